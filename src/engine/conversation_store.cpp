#include "engine/conversation_store.h"

#include <algorithm>

#include "engine/state_copy.h"
#include "engine/system_memory.h"

namespace strata {
namespace {

constexpr int kFirstCapacity = 256;  // rows of a new conversation, before it grows
constexpr int kWorthKeeping = 256;   // rows that a cut would lose and that are parked or left in their slot instead

}  // namespace

ConversationStore::ConversationStore(Device& device, const Model& model, ModelRunner& runner, const StoreLimits& limits)
    : device_(device), model_(model), runner_(runner), limits_(limits) {
    slots_.reserve(static_cast<size_t>(limits.slots));
}

int ConversationStore::capacity_for(int rows) const {
    const int most = limits_.max_rows + kMaxWindow;
    int capacity = std::min(kFirstCapacity, most);
    while (capacity < rows) capacity = capacity > most / 2 ? most : 2 * capacity;
    return capacity;
}

Result<void> ConversationStore::reserve(Conversation& conversation, int rows) {
    if (rows <= conversation.state().capacity) return {};
    return conversation.reserve(capacity_for(rows));
}

ConversationStore::Source ConversationStore::find(std::span<const RowKey> keys, int& shared) {
    Source best;
    const auto most = static_cast<int64_t>(keys.size()) - 1;
    const auto consider = [&](Source source) {
        if (source.rows > best.rows) best = source;
    };
    for (Slot& slot : slots_) {
        Conversation& c = *slot.conversation;
        const int64_t common = common_prefix(c.keys(), keys);
        shared = std::max(shared, static_cast<int>(common));
        const int64_t usable = std::min(common, most);
        if (!slot.busy && usable == c.rows()) consider({&slot, nullptr, nullptr, c.rows()});
        if (!slot.busy && usable > 0 && c.can_cut_to(static_cast<int>(usable)))
            consider({&slot, nullptr, nullptr, static_cast<int>(usable)});
        if (const Checkpoint* checkpoint = c.checkpoint_below(usable))
            consider({&slot, nullptr, checkpoint, checkpoint->rows});
    }
    for (auto& packed : parked_) {
        const int64_t common = common_prefix(packed->keys, keys);
        shared = std::max(shared, static_cast<int>(common));
        const int64_t usable = std::min(common, most);
        if (usable == packed->rows()) consider({nullptr, packed.get(), nullptr, packed->rows()});
        for (const Checkpoint& checkpoint : packed->checkpoints)
            if (checkpoint.rows <= usable) consider({nullptr, packed.get(), &checkpoint, checkpoint.rows});
    }
    return best;
}

Result<ConversationStore::Opened> ConversationStore::open(std::span<const RowKey> keys, int rows, bool reuse) {
    ++clock_;
    Opened opened;
    const Source source = reuse && limits_.checkpoints > 0 ? find(keys, opened.shared) : Source{};
    Slot* slot = source.slot;
    const bool whole = source.slot && !source.checkpoint && source.rows == slot->conversation->rows();
    const int lost = source.slot ? slot->conversation->rows() - source.rows : 0;
    if (source.slot && (slot->busy || lost >= kWorthKeeping)) {
        // The other branch of the conversation stays where it is when there is room for a copy, or is parked.
        const bool room = static_cast<int>(slots_.size()) < limits_.slots;
        if (slot->busy || (room && source.checkpoint)) {
            STRATA_TRY_ASSIGN(Slot * copy, free_slot(rows, nullptr));
            copy->conversation->copy_from(*source.slot->conversation, *source.checkpoint);
            slot = copy;
        } else {
            park(*slot->conversation, nullptr);
        }
    }
    if (source.parked) {
        STRATA_TRY_ASSIGN(slot, free_slot(rows, source.parked));
        slot->conversation->unpack(*source.parked, source.checkpoint);
        source.parked->used = clock_;
        if (source.parked->rows() - source.rows < kWorthKeeping) unpark(source.parked);
    } else if (!source.slot) {
        STRATA_TRY_ASSIGN(slot, free_slot(rows, nullptr));
        slot->conversation->clear();
    } else if (slot == source.slot) {
        Conversation& c = *slot->conversation;
        if (source.checkpoint) {
            c.restore(*source.checkpoint, clock_);
        } else if (whole) {
            // Where the last answer ended; a later request may come back to it.
            STRATA_TRY(runner_.settle(c));
            checkpoint(c);
        } else {
            c.cut_to(source.rows);
        }
    }
    Conversation& c = *slot->conversation;
    if (auto room = reserve(c, rows); !room) return std::move(room).error();
    c.used = clock_;
    slot->busy = true;
    opened.conversation = &c;
    opened.reused = c.rows();
    return opened;
}

/// A slot that nobody uses, with an empty or an overwritable conversation: a new one while there may be more, else the
/// one that was used longest ago, parked first.
Result<ConversationStore::Slot*> ConversationStore::free_slot(int rows, const PackedConversation* keep) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_)
        if (!slot.busy && (!oldest || slot.conversation->used < oldest->conversation->used)) oldest = &slot;
    const bool empty = oldest && oldest->conversation->rows() == 0;
    if (!empty && static_cast<int>(slots_.size()) < limits_.slots) {
        auto made = Conversation::make(device_, model_, runner_.draft() != nullptr, capacity_for(rows));
        if (!made && !oldest) return std::move(made).error();
        if (made) {
            slots_.push_back({std::move(made).value(), false});
            return &slots_.back();
        }
    }
    if (!oldest) return failure("all conversations are busy");
    park(*oldest->conversation, keep);
    oldest->conversation->clear();
    if (auto room = reserve(*oldest->conversation, rows); !room) return std::move(room).error();
    return oldest;
}

void ConversationStore::park(Conversation& conversation, const PackedConversation* keep) {
    if (limits_.park_bytes == 0 || limits_.park_slots == 0 || conversation.rows() < kWorthKeeping) return;
    if (!runner_.settle(conversation).ok()) return;
    const StateLayout& layout = model_.layout();
    uint64_t bytes = lasting_bytes(layout, conversation.rows()) + changing_bytes(layout, conversation.rows());
    for (const Checkpoint& c : conversation.checkpoints()) bytes += c.bytes();
    // An older copy of the same conversation is of no use beside this one.
    std::erase_if(parked_, [&](const auto& packed) {
        return packed.get() != keep && common_prefix(packed->keys, conversation.keys()) == packed->rows();
    });
    if (!park_fits(bytes, keep)) {
        notes_.push_back("a conversation of " + std::to_string(conversation.rows()) + " rows (" +
                         std::to_string(bytes >> 20) + " MiB) is not parked: not enough memory for it");
        return;
    }
    if (auto packed = conversation.pack()) parked_.push_back(std::move(packed));
}

/// Makes room for `bytes` more: the parked conversations used longest ago leave.
bool ConversationStore::park_fits(uint64_t bytes, const PackedConversation* keep) {
    if (bytes > limits_.park_bytes) return false;
    while (true) {
        uint64_t sum = bytes;
        for (const auto& packed : parked_) sum += packed->bytes();
        if (sum <= limits_.park_bytes && static_cast<int>(parked_.size()) < limits_.park_slots) break;
        auto oldest = parked_.end();
        for (auto at = parked_.begin(); at != parked_.end(); ++at)
            if (at->get() != keep && (oldest == parked_.end() || (*at)->used < (*oldest)->used)) oldest = at;
        if (oldest == parked_.end()) return false;
        parked_.erase(oldest);
    }
    return limits_.park_min_free == 0 || available_memory() >= limits_.park_min_free + bytes;
}

void ConversationStore::unpark(const PackedConversation* packed) {
    std::erase_if(parked_, [&](const auto& p) { return p.get() == packed; });
}

void ConversationStore::close(Conversation& conversation) {
    for (Slot& slot : slots_)
        if (slot.conversation.get() == &conversation) slot.busy = false;
    conversation.repeats().cut(conversation.rows());
    conversation.used = ++clock_;
}

void ConversationStore::fall_back(Conversation& conversation) {
    const Checkpoint* checkpoint = conversation.checkpoint_below(conversation.rows());
    if (!model_.facts().recurrent) return;  // rows that were not kept are as if never written
    if (checkpoint)
        conversation.restore(*checkpoint, ++clock_);
    else
        conversation.clear();
}

void ConversationStore::checkpoint(Conversation& conversation) {
    conversation.save_checkpoint(limits_.checkpoints, ++clock_);
}

Conversation* ConversationStore::last_used() {
    Conversation* last = nullptr;
    for (Slot& slot : slots_)
        if (slot.conversation->rows() > 0 && (!last || slot.conversation->used > last->used))
            last = slot.conversation.get();
    if (last && !runner_.settle(*last).ok()) return nullptr;
    return last;
}

Result<void> ConversationStore::adopt(const PackedConversation& packed) {
    STRATA_TRY_ASSIGN(Slot * slot, free_slot(packed.rows(), nullptr));
    slot->conversation->unpack(packed, nullptr);
    slot->conversation->used = ++clock_;
    return {};
}

void ConversationStore::forget_all() {
    parked_.clear();
    std::erase_if(slots_, [](const Slot& slot) { return !slot.busy; });
}

std::vector<std::string> ConversationStore::take_notes() {
    return std::exchange(notes_, {});
}

}  // namespace strata
