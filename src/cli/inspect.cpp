// polystrata inspect: what a GGUF file is and whether it can run here.

#include <array>
#include <cstdio>

#include "cli/command.h"
#include "cli/model_text.h"
#include "gguf/file.h"
#include "setup/estimate.h"

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

constexpr std::array<int64_t, 3> kContexts = {8192, 32768, 131072};

/// The contexts to tell of: those below the trained one, and that one.
std::vector<int64_t> contexts(const ModelFile& facts) {
    std::vector<int64_t> out;
    for (const int64_t context : kContexts)
        if (facts.context == 0 || context < facts.context) out.push_back(context);
    if (facts.context > 0) out.push_back(facts.context);
    return out;
}

/// What memory the model takes: the same numbers for people and for programs.
struct Memory {
    MemoryEstimate f16, q8_0;
};

Result<Memory> measure(const gguf::File& file) {
    STRATA_TRY_ASSIGN(MemoryEstimate f16, estimate_memory(file, Type::f16));
    STRATA_TRY_ASSIGN(MemoryEstimate q8_0, estimate_memory(file, Type::q8_0));
    return Memory{std::move(f16), std::move(q8_0)};
}

Json memory_json(const Memory& memory, const ModelFile& facts) {
    Json conversations = Json::array();
    for (const int64_t context : contexts(facts))
        conversations.push_back({{"tokens", context},
                                 {"f16_bytes", memory.f16.conversation_bytes(context)},
                                 {"q8_0_bytes", memory.q8_0.conversation_bytes(context)}});
    return {{"dense_bytes", memory.f16.dense_bytes},
            {"expert_bytes", memory.f16.expert_bytes},
            {"experts", memory.f16.experts},
            {"bytes_of_expert", memory.f16.bytes_of_expert()},
            {"conversations", std::move(conversations)}};
}

std::string memory_text(const Memory& memory, const ModelFile& facts) {
    std::string text =
        fact_line("dense weights", bytes_text(memory.f16.dense_bytes) + ", on the card where there is one");
    if (memory.f16.experts > 0)
        text += fact_line("expert weights", bytes_text(memory.f16.expert_bytes) + ": " +
                                                std::to_string(memory.f16.experts) + " experts of " +
                                                bytes_text(memory.f16.bytes_of_expert()) +
                                                "; as many on the card as fit, the others read in place from RAM");
    for (const int64_t context : contexts(facts))
        text += fact_line("conversation",
                          std::to_string(context) + " tokens: " + bytes_text(memory.f16.conversation_bytes(context)) +
                              ", with --kv q8_0 " + bytes_text(memory.q8_0.conversation_bytes(context)));
    return text;
}

Outcome run(const Flags& flags) {
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(flags.file));
    STRATA_TRY_ASSIGN(const ModelFile facts, describe_model_file(file));
    const Result<Memory> memory = measure(file);
    const auto& parts = file.parts();
    if (flags.json) {
        Json json = {{"file", flags.file}, {"version", parts[0].version}, {"files", parts.size()}};
        json.update(facts_json(facts));
        json["runs"] = memory.ok();
        if (memory)
            json["memory"] = memory_json(*memory, facts);
        else
            json["problem"] = memory.error().message;
        if (flags.tensors) json["tensors"] = tensors_json(file);
        std::printf("%s\n", json_text(json, {.indent = 2}).c_str());
        return 0;
    }
    std::string text = flags.file + ": GGUF version " + std::to_string(parts[0].version) + ", " +
                       (parts.size() == 1 ? "" : std::to_string(parts.size()) + " files, ") +
                       bytes_text(facts.file_bytes) + ", " + std::to_string(file.tensors().size()) + " tensors\n" +
                       facts_text(facts);
    text += fact_line("runs", memory ? "yes" : "no: " + memory.error().message);
    if (memory) text += memory_text(*memory, facts);
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
