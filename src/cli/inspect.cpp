// polystrata inspect: what a GGUF file is and whether it can run here.

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "cli/command.h"
#include "cli/model_text.h"
#include "cli/synthetic.h"
#include "gguf/file.h"
#include "setup/estimate.h"
#include "setup/machine.h"

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
    MemoryEstimate f16;
    std::optional<MemoryEstimate> q8_0;  // where such caches can hold the model's heads
};

Result<Memory> measure(const gguf::File& file) {
    STRATA_TRY_ASSIGN(MemoryEstimate f16, estimate_memory(file, Type::f16));
    Memory memory{std::move(f16), {}};
    if (auto q8_0 = estimate_memory(file, Type::q8_0)) memory.q8_0 = std::move(q8_0).value();
    return memory;
}

Json memory_json(const Memory& memory, const ModelFile& facts) {
    Json conversations = Json::array();
    for (const int64_t context : contexts(facts)) {
        Json conversation = {{"tokens", context}, {"f16_bytes", memory.f16.conversation_bytes(context)}};
        if (memory.q8_0) conversation["q8_0_bytes"] = memory.q8_0->conversation_bytes(context);
        conversations.push_back(std::move(conversation));
    }
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
        text += fact_line(
            "conversation",
            std::to_string(context) + " tokens: " + bytes_text(memory.f16.conversation_bytes(context)) +
                (memory.q8_0 ? ", with --kv q8_0 " + bytes_text(memory.q8_0->conversation_bytes(context)) : ""));
    return text;
}

/// How a model meets this machine: experts that fit the card, RAM for the rest.
struct Fit {
    Machine machine;
    uint64_t card_room = 0;  // VRAM left for experts beside all else
    int64_t experts = 0;     // that fit it
};

constexpr int64_t kFitContext = 32768;

/// What the engine leaves to others: a thirty-second of the card, 256 to 768 MiB.
uint64_t vram_reserve(uint64_t vram) {
    return std::clamp(vram / 32, uint64_t{256} << 20, uint64_t{768} << 20);
}

Fit fit(const Memory& memory, const ModelFile& facts) {
    Fit out;
    out.machine = this_machine();
    const int64_t context = facts.context > 0 ? std::min(facts.context, kFitContext) : kFitContext;
    const uint64_t needed =
        memory.f16.dense_bytes + memory.f16.conversation_bytes(context) + vram_reserve(out.machine.vram);
    out.card_room = out.machine.vram - std::min(needed, out.machine.vram);
    if (memory.f16.experts > 0)
        out.experts =
            std::min(memory.f16.experts,
                     static_cast<int64_t>(out.card_room / std::max<uint64_t>(memory.f16.bytes_of_expert(), 1)));
    return out;
}

Json fit_json(const Fit& fit) {
    return {{"ram_bytes", fit.machine.ram},
            {"vram_bytes", fit.machine.vram},
            {"vram_for_experts_bytes", fit.card_room},
            {"experts_in_vram", fit.experts}};
}

std::string fit_text(const Fit& fit, const Memory& memory, const ModelFile& facts) {
    std::string text = machine_text(fit.machine);
    if (fit.machine.vram > 0 && fit.card_room == 0) {
        text += "; the dense weights and a conversation do not fit the card";
    } else if (fit.machine.vram > 0 && memory.f16.experts > 0) {
        text += "; beside the rest " + std::to_string(fit.experts) + " of " + std::to_string(memory.f16.experts) +
                " experts fit the card";
    }
    const uint64_t in_ram = facts.file_bytes - std::min(facts.file_bytes, fit.machine.vram);
    if (in_ram > fit.machine.ram)
        text += "; what the card does not hold is more than the RAM: it will be read from the disk again and again";
    return fact_line("this machine", text);
}

std::string title(const std::string& name, const gguf::File& file, const ModelFile& facts, bool planned) {
    const auto& parts = file.parts();
    if (planned) return name + ": a preset; the file takes " + bytes_text(facts.file_bytes) + "\n";
    return name + ": GGUF version " + std::to_string(parts[0].version) + ", " +
           (parts.size() == 1 ? "" : std::to_string(parts.size()) + " files, ") + bytes_text(facts.file_bytes) + ", " +
           std::to_string(file.tensors().size()) + " tensors\n";
}

Outcome report(const Flags& flags, const gguf::File& file, bool planned) {
    STRATA_TRY_ASSIGN(const ModelFile facts, describe_model_file(file));
    const Result<Memory> memory = measure(file);
    if (flags.json) {
        Json json = {{"file", flags.file},
                     {"preset", planned},
                     {"version", file.parts()[0].version},
                     {"files", file.parts().size()}};
        json.update(facts_json(facts));
        json["runs"] = memory.ok();
        if (memory) {
            json["memory"] = memory_json(*memory, facts);
            json["machine"] = fit_json(fit(*memory, facts));
        } else {
            json["problem"] = memory.error().message;
        }
        if (flags.tensors) json["tensors"] = tensors_json(file);
        std::printf("%s\n", json_text(json, {.indent = 2}).c_str());
        return 0;
    }
    std::string text = title(flags.file, file, facts, planned) + facts_text(facts);
    text += fact_line("runs", memory ? "yes" : "no: " + memory.error().message);
    if (memory) text += memory_text(*memory, facts) + fit_text(fit(*memory, facts), *memory, facts);
    if (flags.tensors) text += tensors_text(file);
    std::fputs(text.c_str(), stdout);
    return 0;
}

Outcome run(const Flags& flags) {
    std::error_code error;
    const auto preset = parse_preset(flags.file);
    if (preset && !std::filesystem::exists(flags.file, error)) {
        STRATA_TRY_ASSIGN(const synth::Plan plan, synth::plan(*preset));
        STRATA_TRY_ASSIGN(const PlannedFile planned, PlannedFile::make(plan, flags.file));
        return report(flags, planned.file(), true);
    }
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(flags.file));
    return report(flags, file, false);
}

}  // namespace

Run declare_inspect(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    set.text("file", flags->file,
             "A GGUF file (of a split set any part), or a preset of synth: what a download would be",
             "FILE|PRESET[:MIX]")
        .required();
    set.toggle("--json", flags->json, "Print JSON");
    set.toggle("--tensors", flags->tensors, "List every tensor");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
