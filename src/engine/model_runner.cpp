#include "engine/model_runner.h"

#include <algorithm>

namespace strata {

ModelRunner::ModelRunner(Model& model, Device& device, const RunnerLimits& limits)
    : model_(model), device_(device), limits_(limits) {
    const auto rows = static_cast<size_t>(limits.rows);
    spans_.reserve(static_cast<size_t>(limits.spans));
    tokens_.reserve(rows);
    positions_.reserve(rows);
    fill_tokens_.reserve(rows);
    fill_positions_.reserve(rows);
    outputs_.reserve(static_cast<size_t>(limits.outputs));
    likeliest_.resize(static_cast<size_t>(std::max(limits.outputs, limits.spans)));
}

ModelRunner::~ModelRunner() {
    if (memory_) device_.release(memory_);
    if (chain_) device_.release(chain_);
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::make(Model& model, Device& device, const RunnerLimits& limits,
                                                       uint64_t scratch_bytes) {
    std::unique_ptr<ModelRunner> runner(new ModelRunner(model, device, limits));
    STRATA_TRY_ASSIGN(runner->memory_, device.allocate(scratch_bytes, "scratch"));
    runner->arena_ = Arena(runner->memory_, scratch_bytes);
    if (runner->draft()) {
        const uint64_t bytes = uint64_t(limits.spans) * uint64_t(model.facts().width) * sizeof(float);
        STRATA_TRY_ASSIGN(runner->chain_, device.allocate(bytes, "draft rows"));
    }
    runner->logits_.resize(static_cast<size_t>(limits.outputs) * static_cast<size_t>(model.facts().vocabulary));
    return Result<std::unique_ptr<ModelRunner>>(std::move(runner));
}

/// The largest calls there can be: one of `rows` rows with as many outputs as allowed, its rows filled into the draft
/// block, and guesses for every conversation.
Result<uint64_t> ModelRunner::measure(Model& model, Device& measuring, const RunnerLimits& limits) {
    ModelRunner runner(model, measuring, limits);
    runner.logits_.resize(static_cast<size_t>(limits.outputs) * static_cast<size_t>(model.facts().vocabulary));
    const bool drafts = runner.draft() != nullptr;
    if (drafts) {
        STRATA_TRY_ASSIGN(runner.chain_, measuring.allocate(256, "draft rows"));
    }
    std::vector<std::unique_ptr<Conversation>> conversations;
    std::vector<Conversation*> all;
    for (int i = 0; i < limits.spans; ++i) {
        STRATA_TRY_ASSIGN(auto conversation, Conversation::make(measuring, model, drafts, limits.rows));
        all.push_back(conversation.get());
        conversations.push_back(std::move(conversation));
    }
    const std::vector<int32_t> tokens(static_cast<size_t>(limits.rows), 0);
    const std::vector<RowKey> keys(tokens.begin(), tokens.end());
    runner.begin();
    runner.add(*all[0], tokens, false);
    for (int i = 0; i < std::min(limits.rows, limits.outputs); ++i) runner.want(i);
    STRATA_TRY(runner.run({}));
    all[0]->keep(keys, false);
    const KeptRows kept{all[0], 0, limits.rows};
    runner.advance_drafts({&kept, 1});
    if (drafts) STRATA_TRY(runner.guess(all, std::span(tokens).first(all.size()), 0));
    STRATA_TRY(runner.settle(*all[0]));
    return runner.arena_.peak();
}

void ModelRunner::begin() {
    arena_.reset();
    spans_.clear();
    tokens_.clear();
    positions_.clear();
    outputs_.clear();
    pictures_ = {};
}

void ModelRunner::set_positions(int first_position, int rows) {
    for (int i = 0; i < rows; ++i) {
        const int32_t p = first_position + i;
        positions_.push_back({p, p, p});
    }
}

int ModelRunner::add(Conversation& conversation, std::span<const int32_t> tokens, bool log) {
    State& state = conversation.state();
    const int first = rows(), count = static_cast<int>(tokens.size());
    spans_.push_back({&state, first, count, state.rows, state.pending, log});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    set_positions(state.next_position, count);
    conversation.wrote(state.rows + count);
    return first;
}

int ModelRunner::add(Conversation& conversation, std::span<const int32_t> tokens, const PictureInput& pictures) {
    const int start = conversation.rows(), count = static_cast<int>(tokens.size());
    const int first = add(conversation, tokens, false);
    std::copy_n(pictures.positions.begin() + start, count, positions_.end() - count);
    pictures_ = pictures.part(start, count, model_.facts().width);
    return first;
}

void ModelRunner::want(int row) {
    outputs_.push_back(row);
}

Result<bool> ModelRunner::run(const KeepGoing& keep_going, const EveryRow& every_row) {
    call_ = Call{};
    call_.rows = rows();
    call_.spans = spans_;
    call_.tokens = tokens_;
    call_.positions = positions_;
    call_.outputs = outputs_;
    call_.pictures = pictures_.spans;
    call_.picture_rows = pictures_.values;
    call_.scratch = &arena_;
    device_.begin(call_);
    model_.start(call_);
    for (int layer = 0; layer < model_.facts().layers; ++layer) {
        if (keep_going && !keep_going(layer)) return false;
        model_.layer(layer, call_);
    }
    if (every_row) {
        std::vector<int32_t> slice;
        for (int row = 0; row < call_.rows; row += limits_.outputs) {
            slice.clear();
            for (int i = row; i < std::min(call_.rows, row + limits_.outputs); ++i) slice.push_back(i);
            const Arena::Scope scope(arena_);
            call_.outputs = slice;
            model_.finish(call_);
            read_logits(call_);
            for (size_t i = 0; i < slice.size(); ++i) every_row(slice[i], logits(static_cast<int>(i)));
        }
        call_.outputs = outputs_;
    }
    if (!outputs_.empty() || draft()) model_.finish(call_);
    if (!outputs_.empty()) take_logits(call_);
    STRATA_TRY(device_.status());
    return true;
}

void ModelRunner::read_logits(const Call& call) {
    device_.read(call.logits, logits_.data());
    ranked_ = false;
}

void ModelRunner::take_logits(const Call& call) {
    ranked_ =
        rank_only_ && device_.rank(call.logits, std::span(likeliest_).first(static_cast<size_t>(call.logits.rows)));
    if (!ranked_) read_logits(call);
}

std::span<float> ModelRunner::logits(int n) {
    const auto width = static_cast<size_t>(model_.facts().vocabulary);
    return std::span(logits_).subspan(static_cast<size_t>(n) * width, width);
}

void ModelRunner::advance_drafts(std::span<const KeptRows> kept) {
    if (!draft()) return;
    const auto width = static_cast<size_t>(model_.facts().width);
    const uint64_t row_bytes = width * sizeof(float);
    const Rows hidden = call_.hidden;
    const auto hidden_row = [&](int row) {
        return reinterpret_cast<const std::byte*>(hidden.data + row * hidden.stride);
    };

    int count = 0;
    for (const KeptRows& k : kept)
        if (draft()->keeps_rows() && k.conversation->drafts()) count += k.kept;
    if (count > 0) {
        // The same rows of the same call, without those that were not kept; a row wants the hidden row of the one
        // before it.
        const Rows before = arena_.rows(count, static_cast<int>(width));
        spans_.clear();
        fill_tokens_.clear();
        fill_positions_.clear();
        for (const KeptRows& k : kept) {
            if (!k.conversation->drafts() || k.kept == 0) continue;
            const auto first = static_cast<int>(fill_tokens_.size());
            State& state = k.conversation->state();
            spans_.push_back({&state, first, k.kept, state.rows - k.kept});
            for (int i = k.first; i < k.first + k.kept; ++i) {
                fill_tokens_.push_back(tokens_[static_cast<size_t>(i)]);
                fill_positions_.push_back(positions_[static_cast<size_t>(i)]);
            }
            auto* to = reinterpret_cast<std::byte*>(before.data + first * before.stride);
            device_.copy(to, reinterpret_cast<const std::byte*>(k.conversation->hidden()), row_bytes);
            if (k.kept > 1)
                device_.copy(to + row_bytes, hidden_row(k.first), static_cast<uint64_t>(k.kept - 1) * row_bytes);
        }
        Call fill;
        fill.rows = count;
        fill.spans = spans_;
        fill.tokens = fill_tokens_;
        fill.positions = fill_positions_;
        fill.pictures = call_.pictures;  // a call with pictures is kept whole
        fill.picture_rows = call_.picture_rows;
        fill.scratch = &arena_;
        device_.begin(fill);
        draft()->fill(fill, before);
    }
    for (const KeptRows& k : kept)
        if (k.kept > 0)
            device_.copy(reinterpret_cast<std::byte*>(k.conversation->hidden()), hidden_row(k.first + k.kept - 1),
                         row_bytes);
}

Result<void> ModelRunner::guess(std::span<Conversation* const> conversations, std::span<const int32_t> tokens,
                                int depth) {
    begin();
    const auto width = static_cast<size_t>(model_.facts().width);
    const uint64_t row_bytes = width * sizeof(float);
    const int count = static_cast<int>(conversations.size());
    const int ahead = draft()->keeps_rows() ? depth : 0;
    const Rows before = arena_.rows(count, static_cast<int>(width));
    for (int i = 0; i < count; ++i) {
        State& state = conversations[static_cast<size_t>(i)]->state();
        spans_.push_back({&state, i, 1, state.rows + ahead});
        tokens_.push_back(tokens[static_cast<size_t>(i)]);
        set_positions(state.next_position + ahead, 1);
        outputs_.push_back(i);
        auto* to = reinterpret_cast<std::byte*>(before.data + i * before.stride);
        const std::byte* from =
            depth == 0 ? reinterpret_cast<const std::byte*>(conversations[static_cast<size_t>(i)]->hidden())
                       : chain_ + static_cast<uint64_t>(i) * row_bytes;
        device_.copy(to, from, row_bytes);
        if (draft()->keeps_rows()) conversations[static_cast<size_t>(i)]->wrote(state.rows + depth + 1);
    }
    Call call;
    call.rows = count;
    call.spans = spans_;
    call.tokens = tokens_;
    call.positions = positions_;
    call.outputs = outputs_;
    call.scratch = &arena_;
    device_.begin(call);
    draft()->guess(call, before);
    for (int i = 0; i < count; ++i)
        device_.copy(chain_ + static_cast<uint64_t>(i) * row_bytes,
                     reinterpret_cast<const std::byte*>(call.hidden.data + i * call.hidden.stride), row_bytes);
    take_logits(call);
    return device_.status();
}

Result<void> ModelRunner::settle(Conversation& conversation) {
    State& state = conversation.state();
    if (state.pending == 0) return {};
    begin();
    spans_.push_back({&state, 0, 0, state.rows, state.pending});
    Call call;
    call.spans = spans_;
    call.scratch = &arena_;
    device_.begin(call);
    model_.settle(call);
    state.pending = 0;
    return device_.status();
}

}  // namespace strata
