// polystrata inspect: what a GGUF file is and whether it can run here.

#include <cstdio>

#include "cli/command.h"
#include "cli/model_text.h"
#include "gguf/file.h"

namespace strata::cli {
namespace {

struct Flags {
    std::string file;
    bool json = false;
    bool tensors = false;
};

Json tensors_json(const gguf::File& file) {
    Json tensors = Json::array();
    for (const gguf::TensorInfo& tensor : file.tensors()) {
        Json dims = Json::array();
        for (uint32_t i = 0; i < tensor.n_dims; ++i) dims.push_back(tensor.dims[i]);
        tensors.push_back({{"name", std::string(tensor.name)},
                           {"type", std::string(type_info(tensor.type).name)},
                           {"dims", std::move(dims)},
                           {"bytes", tensor.bytes},
                           {"file", tensor.file},
                           {"offset", tensor.offset}});
    }
    return tensors;
}

std::string tensors_text(const gguf::File& file) {
    std::string text;
    for (const gguf::TensorInfo& tensor : file.tensors()) {
        char line[256];
        std::snprintf(line, sizeof line, "  %-40.*s %-8.*s %-24s %s\n", static_cast<int>(tensor.name.size()),
                      tensor.name.data(), static_cast<int>(type_info(tensor.type).name.size()),
                      type_info(tensor.type).name.data(), gguf::dims_text(tensor).c_str(),
                      bytes_text(tensor.bytes).c_str());
        text += line;
    }
    return text;
}

Json facts_json(const ModelFile& facts) {
    Json types = Json::array();
    for (const TypeShare& share : facts.types)
        types.push_back(
            {{"type", std::string(type_info(share.type).name)}, {"tensors", share.tensors}, {"bytes", share.bytes}});
    return {{"name", facts.name},
            {"architecture", facts.architecture},
            {"kind", facts.kind},
            {"quantization", facts.quantisation},
            {"parameters", facts.parameters},
            {"parameters_active", facts.parameters_active},
            {"layers", facts.layers},
            {"width", facts.width},
            {"context", facts.context},
            {"experts", facts.experts},
            {"experts_used", facts.experts_used},
            {"draft_block", facts.draft_block},
            {"tokenizer", facts.tokenizer},
            {"vocabulary", facts.vocabulary},
            {"chat_template", facts.chat_template},
            {"types", std::move(types)},
            {"file_bytes", facts.file_bytes},
            {"tensor_bytes", facts.tensor_bytes},
            {"dense_bytes", facts.dense_bytes()},
            {"expert_bytes", facts.expert_bytes}};
}

Outcome run(const Flags& flags) {
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(flags.file));
    STRATA_TRY_ASSIGN(const ModelFile facts, describe_model_file(file));
    const auto& parts = file.parts();
    if (flags.json) {
        Json json = {{"file", flags.file}, {"version", parts[0].version}, {"files", parts.size()}};
        json.update(facts_json(facts));
        if (flags.tensors) json["tensors"] = tensors_json(file);
        std::printf("%s\n", json_text(json, {.indent = 2}).c_str());
        return 0;
    }
    std::string text = flags.file + ": GGUF version " + std::to_string(parts[0].version) + ", " +
                       (parts.size() == 1 ? "" : std::to_string(parts.size()) + " files, ") +
                       bytes_text(facts.file_bytes) + ", " + std::to_string(file.tensors().size()) + " tensors\n" +
                       facts_text(facts);
    text += fact_line("dense weights", bytes_text(facts.dense_bytes()));
    text += fact_line("expert weights", facts.expert_bytes > 0 ? bytes_text(facts.expert_bytes) : "");
    if (flags.tensors) text += tensors_text(file);
    std::fputs(text.c_str(), stdout);
    return 0;
}

}  // namespace

Run declare_inspect(CLI::App& app) {
    auto flags = std::make_shared<Flags>();
    app.add_option("file", flags->file, "The GGUF file; of a split set any part")->type_name("FILE")->required();
    app.add_flag("--json", flags->json, "Print JSON");
    app.add_flag("--tensors", flags->tensors, "List every tensor");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
