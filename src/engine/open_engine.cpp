#include "engine/open_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/hash.h"
#include "cpu/cpu_device.h"
#include "cpu/sim_device.h"
#ifdef POLYSTRATA_CUDA
#include "cuda/cuda_device.h"
#endif
#include "device/measure.h"

namespace strata {
namespace {

Type cache_type(const std::string& name) {
    if (name == "q8_0") return Type::q8_0;
    return name == "f32" ? Type::f32 : Type::f16;
}

/// auto: the card where it holds the whole file and a tenth more; else the CPU.
Result<std::unique_ptr<Device>> make_device(const PolyOptions& options, [[maybe_unused]] uint64_t file_bytes) {
#ifdef POLYSTRATA_CUDA
    if (options.device == "cuda") return make_cuda_device();
    if (options.device == "auto" && !cuda_cards().empty()) {
        auto card = make_cuda_device();
        if (card && file_bytes + file_bytes / 10 < (*card)->facts().memory_total) return card;
    }
#else
    if (options.device == "cuda") return device_error("--device cuda: this build has no CUDA device; use --device cpu");
#endif
    CpuOptions cpu;
    cpu.threads = options.threads > 0 ? static_cast<int>(options.threads) : default_threads();
    if (options.simd != "auto") cpu.simd = cpu::simd_by_name(options.simd);
    if (options.device == "sim") {
        STRATA_TRY_ASSIGN(const uint64_t memory, options.card.sim_memory());
        STRATA_TRY_ASSIGN(auto device, SimDevice::create({.cpu = cpu, .memory = memory, .pulls = true}));
        return Result<std::unique_ptr<Device>>(std::move(device));
    }
    STRATA_TRY_ASSIGN(auto device, CpuDevice::create(cpu));
    return Result<std::unique_ptr<Device>>(std::move(device));
}

/// Ids that end an answer, by the file. A damaged one is left out: what a request names wins anyway.
std::vector<int32_t> end_ids(const gguf::File& file, int vocabulary) {
    std::vector<int32_t> ids;
    const auto add = [&](int64_t id) {
        if (id >= 0 && id < vocabulary && std::find(ids.begin(), ids.end(), id) == ids.end())
            ids.push_back(static_cast<int32_t>(id));
    };
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
        if (file.has(key))
            if (const auto id = file.get_int(key, 0, vocabulary - 1)) add(*id);
    if (file.has("tokenizer.ggml.eos_token_ids"))
        if (const auto list = file.get_ints("tokenizer.ggml.eos_token_ids", 0, INT32_MAX))
            for (const int64_t id : list->to_vector()) add(id);
    return ids;
}

/// The expert cache of a card with slots.
Result<void> make_experts(OpenedEngine& opened, const PolyOptions& options) {
    ExpertSlots* slots = opened.device->expert_slots();
    if (!slots || slots->sets().empty()) return {};
    STRATA_TRY_ASSIGN(ExpertStoreOptions store, options.card.store_options(opened.device->facts().memory_total));
    store.threads = options.threads > 0 ? static_cast<int>(options.threads) : default_threads();
    if (options.simd != "auto") store.simd = cpu::simd_by_name(options.simd);
    store.model_id = opened.model_id();
    STRATA_TRY_ASSIGN(opened.experts, ExpertStore::make(*opened.device, opened.model->facts().experts_used, store));
    return {};
}

struct NoAnswer : Answer {
    std::optional<Error> error;
    void token(const AnswerToken&) override {}
    void done(const AnswerSummary&) override {}
    void failed(const Error& e) override { error = e; }
};

/// A request of the longest call and some single tokens, of which nothing is kept.
Result<void> warm_up(Engine& engine) {
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(std::min(engine.limits().prompt_batch, engine.limits().max_context / 2)),
                          0);
    request.max_new = 3;
    NoAnswer answer;
    engine.submit(std::move(request), answer);
    STRATA_TRY(engine.run());
    engine.forget_conversations();
    if (answer.error) return *answer.error;
    return {};
}

/// Touches the files' pages in the background and then keeps the device's threads near them.
void warm_files(OpenedEngine& opened, bool quiet) {
    auto* device = dynamic_cast<CpuDevice*>(opened.device.get());
    if (!device) return;
    std::vector<std::span<const std::byte>> memory;
    for (const auto* file : {&opened.file, &opened.draft_file})
        if (*file)
            for (const gguf::File::Part& part : (*file)->parts()) memory.push_back(part.bytes);
    opened.warmer.emplace(memory, [device, memory, quiet] {
        const std::string note = device->stay_near(memory);
        if (!quiet && !note.empty()) std::fprintf(stderr, "%s\n", note.c_str());
    });
}

}  // namespace

int64_t OpenedEngine::experts_total() const {
    const ModelFacts& facts = model->facts();
    return static_cast<int64_t>(facts.expert_layers) * facts.experts;
}

const char* OpenedEngine::draft_kind() const {
    return !engine->has_draft() ? "none" : draft_file ? "model" : "block";
}

uint64_t OpenedEngine::model_id() const {
    constexpr size_t kSamples = 32, kBytes = 64;
    const gguf::Identity identity = file->identity();
    Hasher hasher;
    hasher.update_number(identity.header_hash);
    hasher.update_number(identity.size);
    const auto tensors = file->tensors();
    const size_t step = std::max<size_t>(1, tensors.size() / kSamples);
    for (size_t i = 0; i < tensors.size(); i += step) {
        const uint64_t middle = tensors[i].bytes / 2;
        hasher.update(tensors[i].data + middle, std::min<uint64_t>(kBytes, tensors[i].bytes - middle));
    }
    return hasher.value();
}

Result<void> OpenedEngine::constrain(EngineRequest& request) {
    if (request.grammar.empty()) return {};
    STRATA_TRY_ASSIGN(request.constraint,
                      grammars->make(request.grammar, request.stop_ids ? &*request.stop_ids : nullptr));
    request.grammar.clear();
    return {};
}

Result<std::unique_ptr<OpenedEngine>> open_engine(const PolyOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    auto opened = std::make_unique<OpenedEngine>();
    opened->kv = options.kv;
    STRATA_TRY_ASSIGN(opened->file, gguf::File::open(options.model));
    if (!options.draft_model.empty()) {
        STRATA_TRY_ASSIGN(opened->draft_file, gguf::File::open(options.draft_model));
    }
    STRATA_TRY_ASSIGN(opened->device, make_device(options, opened->file_bytes()));
    STRATA_TRY(options.card.check(opened->device->expert_slots() ? ExpertsIn::slots
                                  : opened->on_card()            ? ExpertsIn::card
                                                                 : ExpertsIn::host));

    // Two models: a dry run of one on a device that computes nothing tells the scratch that calls of the other need.
    ModelOptions model{.cache_type = cache_type(options.kv), .max_call_rows = options.limits(0).runner().rows};
    if (opened->draft_file) model.draft = &*opened->draft_file;
    MeasuringDevice measuring;
    STRATA_TRY_ASSIGN(const auto measured, make_model(*opened->file, measuring, model));
    const EngineLimits limits = options.limits(measured->facts().context);
    STRATA_TRY_ASSIGN(opened->scratch_bytes, ModelRunner::measure(*measured, measuring, limits.runner()));
    {
        const uint64_t before = measuring.allocated();
        STRATA_TRY_ASSIGN(const State state, measuring.make_state(measured->layout(), limits.max_context + kMaxWindow));
        opened->conversation_bytes = measuring.allocated() - before;
    }
    STRATA_TRY_ASSIGN(opened->model, make_model(*opened->file, *opened->device, model));
    STRATA_TRY(make_experts(*opened, options));
    const std::vector<int32_t> ends = end_ids(*opened->file, measured->facts().vocabulary);
    STRATA_TRY_ASSIGN(opened->engine, Engine::make(*opened->model, *opened->device, limits, opened->scratch_bytes, ends,
                                                   opened->experts.get()));
    if (opened->experts) STRATA_TRY(opened->experts->fill());
    opened->grammars.emplace(*opened->file, ends);
    if (opened->experts) opened->experts->count(false);
    if (opened->device->facts().warms_up) STRATA_TRY(warm_up(*opened->engine));
    if (opened->experts) opened->experts->count(true);
    if (options.guesses == "always") opened->engine->set_policy(std::make_unique<AlwaysGuess>());
    warm_files(*opened, options.quiet);
    opened->load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
    return Result<std::unique_ptr<OpenedEngine>>(std::move(opened));
}

}  // namespace strata
