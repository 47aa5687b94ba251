#include "engine/conversation.h"

#include <algorithm>
#include <cstring>

#include "engine/state_copy.h"

namespace strata {
namespace {

bool copy_bytes(const HostBytes& from, HostBytes& to) {
    if (!to.resize(from.size())) return false;
    std::memcpy(to.data(), from.data(), from.size());
    return true;
}

bool copy_checkpoint(const Checkpoint& from, Checkpoint& to) {
    to.rows = from.rows;
    to.next_position = from.next_position;
    to.drafts = from.drafts;
    to.used = from.used;
    return copy_bytes(from.changing, to.changing) && copy_bytes(from.hidden, to.hidden);
}

}  // namespace

int64_t common_prefix(std::span<const RowKey> a, std::span<const RowKey> b) {
    const size_t n = std::min(a.size(), b.size());
    return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin();
}

uint64_t PackedConversation::bytes() const {
    uint64_t sum = keys.size() * sizeof(RowKey) + lasting.size() + changing.size() + hidden.size();
    for (const Checkpoint& c : checkpoints) sum += c.bytes();
    return sum;
}

Result<std::unique_ptr<Conversation>> Conversation::make(Device& device, const Model& model, bool drafts,
                                                         int capacity) {
    std::unique_ptr<Conversation> made(new Conversation(device, model.layout(), model.facts().width));
    STRATA_TRY_ASSIGN(made->state_, device.make_state(model.layout(), capacity));
    if (drafts) {
        const uint64_t bytes = static_cast<uint64_t>(made->width_) * sizeof(float);
        STRATA_TRY_ASSIGN(made->hidden_, device.allocate(bytes, "hidden row"));
    }
    made->clear();
    return Result<std::unique_ptr<Conversation>>(std::move(made));
}

Conversation::~Conversation() {
    if (hidden_) device_.release(hidden_);
}

Result<void> Conversation::reserve(int rows) {
    if (rows <= state_.capacity) return {};
    STRATA_TRY_ASSIGN(State larger, device_.make_state(layout_, rows));
    larger.rows = state_.rows;
    larger.next_position = state_.next_position;
    larger.pending = state_.pending;
    copy_between(device_, state_, larger, state_.rows, true);
    if (state_.pending > 0)
        for (PartId id = 0; id < static_cast<PartId>(layout_.parts.size()); ++id) {
            const PartSpec& part = layout_.parts[static_cast<size_t>(id)];
            if (part.kind == PartSpec::Kind::block)
                device_.copy(larger.log(id), state_.log(id), part.log_bytes * static_cast<uint64_t>(state_.pending));
        }
    state_ = std::move(larger);
    return {};
}

void Conversation::keep(std::span<const RowKey> keys, bool logged, std::optional<int> next_position) {
    keys_.insert(keys_.end(), keys.begin(), keys.end());
    const int count = static_cast<int>(keys.size());
    state_.rows += count;
    state_.next_position = next_position.value_or(state_.next_position + count);
    state_.pending = logged ? count : 0;
}

void Conversation::clear() {
    state_.rows = state_.next_position = state_.pending = 0;
    written_ = restored_ = 0;
    keys_.clear();
    checkpoints_.clear();
    repeats_.cut(0);
    clear_blocks(device_, state_);
    if (hidden_) device_.zero(hidden_, hidden_bytes());
    drafts_ = hidden_ != nullptr;
}

bool Conversation::can_cut_to(int rows) const {
    if (rows == state_.rows) return true;
    if (rows == 0) return true;
    if (rows > state_.rows || state_.next_position != state_.rows) return false;
    for (const PartSpec& part : layout_.parts) {
        if (part.kind == PartSpec::Kind::block) return false;
        if (part.kind != PartSpec::Kind::ring) continue;
        const int needed = std::max(0, rows - (part.window - 1));
        const int there = std::max({0, written_ - part.capacity, restored_ - (part.window - 1)});
        if (needed < there) return false;
    }
    return true;
}

void Conversation::cut_to(int rows) {
    if (rows == 0) return clear();
    if (rows == state_.rows) return;
    state_.rows = state_.next_position = rows;
    state_.pending = 0;
    drop_beyond(rows);
    // The hidden row of an earlier token is gone. A wrong one costs a right guess, never an answer.
    if (hidden_) device_.zero(hidden_, hidden_bytes());
}

void Conversation::drop_beyond(int rows) {
    keys_.resize(static_cast<size_t>(rows));
    repeats_.cut(rows);
    std::erase_if(checkpoints_, [&](const Checkpoint& c) { return c.rows > rows; });
}

const Checkpoint* Conversation::checkpoint_below(int64_t most) const {
    const Checkpoint* best = nullptr;
    for (const Checkpoint& c : checkpoints_)
        if (c.rows <= most) best = &c;
    return best;
}

bool Conversation::fill_checkpoint(Checkpoint& checkpoint) const {
    checkpoint.rows = state_.rows;
    checkpoint.next_position = state_.next_position;
    checkpoint.drafts = drafts_;
    if (!checkpoint.changing.resize(changing_bytes(layout_, state_.rows))) return false;
    copy_changing_to_host(device_, state_, checkpoint.changing.data());
    checkpoint.changing.coming_from(device_);
    if (!checkpoint.hidden.resize(hidden_bytes())) return false;
    if (hidden_) device_.copy_to_host(checkpoint.hidden.data(), hidden_, hidden_bytes());
    return true;
}

void Conversation::save_checkpoint(int limit, uint64_t now) {
    const auto at =
        std::find_if(checkpoints_.begin(), checkpoints_.end(), [&](const Checkpoint& c) { return c.rows >= rows(); });
    if (limit == 0 || rows() == 0) return;
    if (at != checkpoints_.end() && at->rows == rows()) {
        at->used = now;
        return;
    }
    if (static_cast<int>(checkpoints_.size()) >= limit) {
        const size_t first = checkpoints_.size() > 1 ? 1 : 0;  // the shortest serves every branch
        const auto oldest =
            std::min_element(checkpoints_.begin() + static_cast<std::ptrdiff_t>(first), checkpoints_.end(),
                             [](const Checkpoint& a, const Checkpoint& b) { return a.used < b.used; });
        checkpoints_.erase(oldest);
    }
    Checkpoint checkpoint;
    checkpoint.used = now;
    if (!fill_checkpoint(checkpoint)) return;
    const auto place =
        std::find_if(checkpoints_.begin(), checkpoints_.end(), [&](const Checkpoint& c) { return c.rows > rows(); });
    checkpoints_.insert(place, std::move(checkpoint));
}

void Conversation::take_checkpoint(const Checkpoint& checkpoint) {
    state_.rows = checkpoint.rows;
    state_.next_position = checkpoint.next_position;
    state_.pending = 0;
    written_ = restored_ = checkpoint.rows;
    copy_changing_from_host(device_, state_, checkpoint.rows, checkpoint.changing.data());
    drafts_ = hidden_ && checkpoint.drafts && checkpoint.hidden.size() == hidden_bytes();
    if (drafts_) device_.copy_from_host(hidden_, checkpoint.hidden.data(), hidden_bytes());
}

void Conversation::restore(const Checkpoint& checkpoint, uint64_t now) {
    take_checkpoint(checkpoint);
    for (Checkpoint& c : checkpoints_)
        if (&c == &checkpoint) c.used = now;
    drop_beyond(checkpoint.rows);
}

std::unique_ptr<PackedConversation> Conversation::pack() const {
    auto packed = std::make_unique<PackedConversation>();
    packed->keys = keys_;
    packed->next_position = state_.next_position;
    packed->drafts = drafts_;
    packed->used = used;
    Checkpoint end;
    if (!packed->lasting.resize(lasting_bytes(layout_, rows())) || !fill_checkpoint(end)) return nullptr;
    copy_lasting_to_host(device_, state_, rows(), packed->lasting.data());
    packed->changing = std::move(end.changing);
    packed->hidden = std::move(end.hidden);
    for (const Checkpoint& c : checkpoints_)
        if (!copy_checkpoint(c, packed->checkpoints.emplace_back())) return nullptr;
    return packed;
}

void Conversation::unpack(const PackedConversation& packed, const Checkpoint* cut) {
    clear();
    const int rows = cut ? cut->rows : packed.rows();
    copy_lasting_from_host(device_, state_, rows, packed.rows(), packed.lasting.data());
    keys_.assign(packed.keys.begin(), packed.keys.begin() + rows);
    for (const Checkpoint& c : packed.checkpoints) {
        if (c.rows > rows) break;
        if (!copy_checkpoint(c, checkpoints_.emplace_back())) checkpoints_.pop_back();
    }
    if (cut) return take_checkpoint(*cut);
    Checkpoint end;
    end.rows = rows;
    end.next_position = packed.next_position;
    end.drafts = packed.drafts;
    state_.rows = rows;
    state_.next_position = packed.next_position;
    written_ = restored_ = rows;
    copy_changing_from_host(device_, state_, rows, packed.changing.data());
    drafts_ = hidden_ && packed.drafts && packed.hidden.size() == hidden_bytes();
    if (drafts_) device_.copy_from_host(hidden_, packed.hidden.data(), hidden_bytes());
}

void Conversation::copy_from(const Conversation& other, const Checkpoint& cut) {
    clear();
    copy_between(device_, other.state_, state_, cut.rows, false);
    keys_.assign(other.keys_.begin(), other.keys_.begin() + cut.rows);
    for (const Checkpoint& c : other.checkpoints_) {
        if (c.rows > cut.rows) break;
        if (!copy_checkpoint(c, checkpoints_.emplace_back())) checkpoints_.pop_back();
    }
    take_checkpoint(cut);
}

}  // namespace strata
