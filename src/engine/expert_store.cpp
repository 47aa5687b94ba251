// The life of the cache: memory, filling, growing and shrinking, the profile. What happens inside of a layer:
// expert_layer.cpp.
#include "engine/expert_store.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/numbers.h"
#include "engine/expert_profile.h"

namespace strata {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr auto kSaveEvery = std::chrono::seconds(10);
constexpr uint64_t kManyUses = uint64_t{1} << 22;  // of a layer: then old ones count half

std::string mib(uint64_t bytes) {
    return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB";
}

double seconds_since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

// ---- making

Result<std::unique_ptr<ExpertStore>> ExpertStore::make(Device& device, int used, const ExpertStoreOptions& options) {
    const std::span<const ExpertSet> sets = device.expert_slots()->sets();
    std::vector<uint64_t> kinds;
    const auto size = [](const ExpertSet& set) { return (set.slot_bytes + 255) & ~uint64_t{255}; };
    for (const ExpertSet& set : sets)
        if (std::find(kinds.begin(), kinds.end(), size(set)) == kinds.end()) kinds.push_back(size(set));
    std::vector<ExpertCache::Layer> layers;
    uint64_t largest_layer = 0;
    for (const ExpertSet& set : sets) {
        const auto kind = std::find(kinds.begin(), kinds.end(), size(set)) - kinds.begin();
        layers.push_back({set.gate.count, static_cast<int>(kind)});
        largest_layer = std::max(largest_layer, size(set) * static_cast<uint64_t>(set.gate.count));
    }
    std::unique_ptr<ExpertStore> store(new ExpertStore(device, std::move(layers), std::move(kinds), used, options));
    store->read_profile();

    // The stage: a layer's experts would be best, a quarter of what is free is enough.
    const uint64_t free = device.memory_free(), room = free > store->reserve_ ? free - store->reserve_ : 0;
    const uint64_t wanted = options.stage.value_or(std::min({2048 * kMiB, largest_layer, room / 4}));
    if (wanted >= 2 * store->largest_) {
        store->own_memory_ = true;
        auto memory = device.allocate(wanted, "the stage for experts (--stage-mib)");
        store->own_memory_ = false;
        if (memory) {
            store->stage_ = *memory;
            store->stage_bytes_ = wanted;
        } else {
            store->notes_.push_back(memory.error().message);
        }
    }
    store->card_.serve(store.get());
    if (std::string source = store->card_.source(); !source.empty()) store->notes_.push_back(std::move(source));
    return Result<std::unique_ptr<ExpertStore>>(std::move(store));
}

ExpertStore::ExpertStore(Device& device, std::vector<ExpertCache::Layer> layers, std::vector<uint64_t> kind_bytes,
                         int used, const ExpertStoreOptions& options)
    : device_(device),
      card_(*device.expert_slots()),
      options_(options),
      used_(used),
      kind_bytes_(std::move(kind_bytes)),
      reserve_(options.reserve),
      cache_(layers),
      pool_(options.threads),
      products_(pool_, options.simd.value_or(cpu::best_simd())) {
    largest_ = *std::max_element(kind_bytes_.begin(), kind_bytes_.end());
    chunk_ = options.chunk > 0 ? options.chunk : std::clamp(device.facts().memory_total / 256, uint64_t{1}, 64 * kMiB);
    kind_slots_.resize(kind_bytes_.size());
    kind_experts_.resize(kind_bytes_.size());
    int total = 0;
    for (const ExpertCache::Layer& layer : layers) {
        first_use_.push_back(total);
        total += layer.experts;
        kind_experts_[static_cast<size_t>(layer.kind)] += layer.experts;
    }
    uses_.resize(static_cast<size_t>(total));
    counters_.layers.resize(layers.size());
    read_before_.resize(layers.size());
}

ExpertStore::~ExpertStore() {
    card_.serve(nullptr);
    for (const Chunk& chunk : chunks_) device_.release(chunk.memory);
    if (stage_) device_.release(stage_);
}

Result<void> ExpertStore::fill() {
    const auto began = Clock::now();
    const uint64_t before = counters_.copied_bytes;
    grow();
    STRATA_TRY(wait_for_uploads());
    if (const uint64_t bytes = counters_.copied_bytes - before; bytes > 0)
        link_rate_ = static_cast<double>(bytes) / std::max(1e-9, seconds_since(began));
    counters_.swaps = counters_.copied_bytes = 0;
    const size_t total = uses_.size();
    if (options_.all && static_cast<size_t>(here()) < total) {
        uint64_t missing = 0;
        for (const Expert e : cache_.wanted()) missing += kind_bytes_[static_cast<size_t>(cache_.kind(e.layer))];
        return device_error("--expert-vram all: " + std::to_string(total - static_cast<size_t>(here())) + " of " +
                            std::to_string(total) + " experts find no place on the card, " + mib(missing) +
                            " are missing: leave the flag out, or use a smaller context or file");
    }
    return {};
}

// ---- memory

bool ExpertStore::add_chunk(int kind) {
    const auto k = static_cast<size_t>(kind);
    const uint64_t slot = kind_bytes_[k], most = options_.most.value_or(UINT64_MAX), free = device_.memory_free();
    const uint64_t room =
        std::min(most > slot_memory_ ? most - slot_memory_ : 0, free > reserve_ ? free - reserve_ : 0);
    const auto lacking = static_cast<uint64_t>(kind_experts_[k] - kind_slots_[k]);
    const uint64_t count = std::min({std::max<uint64_t>(1, chunk_ / slot), lacking, room / slot});
    if (count == 0) return false;
    own_memory_ = true;
    auto memory = device_.allocate(count * slot, "experts");
    own_memory_ = false;
    if (!memory) {
        notes_.push_back("the expert cache stays at " + mib(slot_memory_) + ": " + memory.error().message);
        return false;
    }
    Chunk& chunk = chunks_.emplace_back(Chunk{*memory, count * slot, {}});
    for (uint64_t i = 0; i < count; ++i) {
        const int number = cache_.add_slot(kind);
        const auto n = static_cast<size_t>(number) + 1;
        if (address_.size() < n) address_.resize(n), upload_of_.resize(n);
        address_[static_cast<size_t>(number)] = *memory + i * slot;
        chunk.slots.push_back(number);
    }
    kind_slots_[k] += static_cast<int>(count);
    slot_memory_ += chunk.bytes;
    return true;
}

void ExpertStore::drop_coldest_chunk() {
    size_t coldest = 0;
    double least = 0;
    for (size_t i = 0; i < chunks_.size(); ++i) {
        double sum = 0;
        for (const int slot : chunks_[i].slots)
            if (const auto held = cache_.holds(slot)) sum += cache_.score(*held);
        sum /= static_cast<double>(chunks_[i].bytes);
        if (i == 0 || sum < least) least = sum, coldest = i;
    }
    const Chunk chunk = std::move(chunks_[coldest]);
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(coldest));
    for (const int slot : chunk.slots) {
        upload_of_[static_cast<size_t>(slot)] = 0;
        --kind_slots_[static_cast<size_t>(cache_.slot_kind(slot))];
        cache_.remove_slot(slot);
    }
    slot_memory_ -= chunk.bytes;
    device_.release(chunk.memory);
}

void ExpertStore::shrink_to(uint64_t free) {
    while (!chunks_.empty() && device_.memory_free() < free) drop_coldest_chunk();
}

void ExpertStore::make_room(uint64_t bytes) {
    if (!own_memory_ && !in_layer_) shrink_to(bytes + reserve_);
}

void ExpertStore::grow() {
    std::vector<bool> full(kind_bytes_.size(), false);
    for (const Expert e : cache_.wanted()) {
        const int kind = cache_.kind(e.layer);
        if (full[static_cast<size_t>(kind)]) continue;
        if (cache_.free_slot(kind) < 0 && !add_chunk(kind)) {
            full[static_cast<size_t>(kind)] = true;
            continue;
        }
        if (!bring(e, cache_.free_slot(kind))) return;
    }
}

void ExpertStore::exchange() {
    const std::vector<Expert> wanted = cache_.wanted();
    std::vector<std::vector<Expert>> here(kind_bytes_.size());  // by kind, least used last
    for (int layer = 0; layer < static_cast<int>(cache_.layers().size()); ++layer)
        for (int e = 0; e < cache_.layers()[static_cast<size_t>(layer)].experts; ++e)
            if (cache_.place({layer, e}) == ExpertCache::Place::here)
                here[static_cast<size_t>(cache_.kind(layer))].push_back({layer, e});
    for (auto& list : here)
        std::stable_sort(list.begin(), list.end(),
                         [&](Expert a, Expert b) { return cache_.score(a) > cache_.score(b); });
    for (const Expert e : wanted) {
        auto& list = here[static_cast<size_t>(cache_.kind(e.layer))];
        if (list.empty() || cache_.score(e) <= cache_.score(list.back())) continue;
        if (!bring(e, cache_.slot(list.back()))) return;
        list.pop_back();
    }
}

// ---- uploads

/// False: the link failed, and the slot is empty.
bool ExpertStore::bring(Expert e, int slot) {
    const ExpertSet& set = card_.sets()[static_cast<size_t>(e.layer)];
    const auto at = static_cast<size_t>(slot);
    cache_.load(e, slot);
    upload_of_[at] = 0;
    const auto number = card_.upload(set, e.expert, address_[at]);
    if (!number) {
        cache_.empty(slot);
        if (counters_.failed_uploads++ == 0)
            notes_.push_back("an expert could not be copied to the card, the CPU computes it: " +
                             number.error().message);
        return false;
    }
    upload_of_[at] = *number;
    on_their_way_.push_back({*number, slot});
    ++counters_.swaps;
    counters_.copied_bytes += set.slot_bytes;
    return true;
}

void ExpertStore::see_arrivals() {
    if (on_their_way_.empty()) return;
    const uint64_t arrived = card_.arrived();
    while (!on_their_way_.empty() && on_their_way_.front().number <= arrived) {
        const OnItsWay it = on_their_way_.front();
        on_their_way_.pop_front();
        // A slot may have been given away, and even come back, since.
        if (upload_of_[static_cast<size_t>(it.slot)] != it.number) continue;
        upload_of_[static_cast<size_t>(it.slot)] = 0;
        cache_.arrive(it.slot);
    }
}

Result<void> ExpertStore::wait_for_uploads() {
    device_.wait();
    while (!on_their_way_.empty()) {
        STRATA_TRY(device_.status());
        see_arrivals();
    }
    return {};
}

// ---- around requests

void ExpertStore::between_requests() {
    if (!counting_ || !std::exchange(served_, true)) return;
    see_arrivals();
    const uint64_t free = device_.memory_free();
    const uint64_t least = std::min(reserve_, std::max(reserve_ / 2, 128 * kMiB));
    if (free < least)
        shrink_to(reserve_);
    else if (free > reserve_ + std::min(64 * kMiB, 2 * chunk_))
        grow();
}

Result<void> ExpertStore::resize(std::optional<uint64_t> reserve) {
    reserve_ = reserve.value_or(options_.reserve);
    see_arrivals();
    shrink_to(reserve_);
    exchange();
    grow();
    return wait_for_uploads();
}

// ---- the profile

void ExpertStore::read_profile() {
    if (options_.profile.empty()) return;
    std::vector<int> layers;
    for (const ExpertCache::Layer& layer : cache_.layers()) layers.push_back(layer.experts);
    auto uses = load_expert_profile(options_.profile, options_.model_id, layers);
    if (!uses) {
        if (uses.error().code != "missing") notes_.push_back("expert profile ignored: " + uses.error().message);
        return;
    }
    uses_ = std::move(*uses);
    profile_uses_ = std::accumulate(uses_.begin(), uses_.end(), uint64_t{0});
    cache_.expect(uses_, used_);
}

Result<void> ExpertStore::save_profile() {
    if (options_.profile.empty()) return {};
    std::vector<int> layers;
    for (size_t i = 0; i < cache_.layers().size(); ++i) {
        const auto first = uses_.begin() + first_use_[i], end = first + cache_.layers()[i].experts;
        layers.push_back(cache_.layers()[i].experts);
        if (std::accumulate(first, end, uint64_t{0}) > kManyUses)
            std::transform(first, end, first, [](uint64_t n) { return n / 2; });
    }
    saved_ = Clock::now();
    return save_expert_profile(options_.profile, options_.model_id, layers, uses_);
}

void ExpertStore::answer_ended() {
    if (!counting_ || !profile_works_ || (saved_ && Clock::now() - *saved_ < kSaveEvery)) return;
    if (const auto saved = save_profile(); !saved) {
        profile_works_ = false;
        notes_.push_back("the expert profile is not kept: " + saved.error().message);
    }
}

std::string ExpertStore::changes_answers() const {
    if (options_.skip_weight > 0) return "skip_weight:" + number_text(options_.skip_weight);
    return options_.tail_skip > 0 ? "tail_skip:" + number_text(options_.tail_skip) : std::string();
}

// ---- statistics

std::string ExpertCounters::explain(double total_ms) const {
    const auto number = [](double value) {
        char text[32];
        std::snprintf(text, sizeof text, "%.1f", value);
        return std::string(text);
    };
    const auto part = [&](double ms) {
        return number(ms) + " ms" + (total_ms > 0 ? " (" + number(100 * ms / total_ms) + "%)" : "");
    };
    std::string text =
        "experts while writing: " + std::to_string(hits()) + " of " + std::to_string(lookups()) + " found on the card";
    const Layer* worst = nullptr;
    for (const Layer& layer : layers)
        if (layer.lookups > 0 && (!worst || layer.hits * worst->lookups < worst->hits * layer.lookups)) worst = &layer;
    if (worst)
        text += ", fewest in layer " + std::to_string(worst - layers.data()) + " (" + std::to_string(worst->hits) +
                " of " + std::to_string(worst->lookups) + ")";
    text += "\nof " + number(total_ms) + " ms: " + part(cpu_ms) + " computing " + std::to_string(cpu_experts) +
            " experts on the CPU";
    if (cpu_ms > 0) text += " at " + number(static_cast<double>(cpu_bytes) / cpu_ms / 1e6) + " GB/s";
    text += ", " + part(card_ms) + " waiting for the card between layers";
    text += "\nover the link: " + std::to_string(swaps) + " experts to stay, " + std::to_string(staged) +
            " for one call, " + mib(copied_bytes) + " in all";
    if (failed_uploads > 0) text += "; " + std::to_string(failed_uploads) + " uploads failed";
    if (left_out > 0) text += "\nleft out by --tail-skip or --skip-weight: " + std::to_string(left_out) + " uses";
    return text;
}

uint64_t ExpertCounters::lookups() const {
    return std::accumulate(layers.begin(), layers.end(), uint64_t{0},
                           [](uint64_t sum, const Layer& layer) { return sum + layer.lookups; });
}

uint64_t ExpertCounters::hits() const {
    return std::accumulate(layers.begin(), layers.end(), uint64_t{0},
                           [](uint64_t sum, const Layer& layer) { return sum + layer.hits; });
}

ExpertCounters ExpertCounters::since(const ExpertCounters& before) const {
    ExpertCounters d = *this;
    for (size_t i = 0; i < before.layers.size() && i < d.layers.size(); ++i) {
        d.layers[i].lookups -= before.layers[i].lookups;
        d.layers[i].hits -= before.layers[i].hits;
    }
    d.swaps -= before.swaps;
    d.staged -= before.staged;
    d.copied_bytes -= before.copied_bytes;
    d.failed_uploads -= before.failed_uploads;
    d.cpu_experts -= before.cpu_experts;
    d.cpu_bytes -= before.cpu_bytes;
    d.left_out -= before.left_out;
    d.cpu_ms -= before.cpu_ms;
    d.card_ms -= before.card_ms;
    return d;
}

}  // namespace strata
