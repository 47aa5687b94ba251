// All conversations that the engine remembers: those on the device (slots), and parked ones in host memory. Finds for a
// prompt the one that it continues, and makes room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/conversation.h"
#include "engine/model_runner.h"

namespace strata {

struct StoreLimits {
    int slots = 1;               // conversations on the device
    int max_rows = 32768;        // of a conversation
    int checkpoints = 6;         // of a conversation; 0: nothing is reused
    uint64_t park_bytes = 0;     // host memory for parked conversations; 0: none are parked
    int park_slots = 4;          // how many
    uint64_t park_min_free = 0;  // host memory that must stay free
};

class ConversationStore {
  public:
    ConversationStore(Device& device, const Model& model, ModelRunner& runner, const StoreLimits& limits);

    struct Opened {
        Conversation* conversation = nullptr;  // holds the first `reused` rows of the prompt, has room for `rows`
        int reused = 0;
        int shared = 0;  // rows that some remembered conversation has in common with the prompt, reused or not
    };
    /// A conversation for a prompt of `keys`, with room for `rows` rows, of which at most keys - 1 are taken from
    /// memory. It is busy until `close`. At most limits.slots may be open.
    Result<Opened> open(std::span<const RowKey> keys, int rows, bool reuse);
    /// The request is over; what the conversation holds stays for the next one.
    void close(Conversation& conversation);
    /// The conversation's state is of no use (a failed or stopped call): back to its best checkpoint, or to the start.
    void fall_back(Conversation& conversation);

    /// A checkpoint of a conversation's settled rows.
    void checkpoint(Conversation& conversation);
    /// Room for more rows.
    Result<void> reserve(Conversation& conversation, int rows);

    /// The conversation that was used last, settled; null: there is none.
    Conversation* last_used();
    /// Takes a conversation in, as the last used one, in place of the least used one. Refused while all are busy.
    Result<void> adopt(const PackedConversation& packed);

    /// Drops everything that is not busy.
    void forget_all();
    int parked() const { return static_cast<int>(parked_.size()); }
    /// Lines for the log since the last call.
    std::vector<std::string> take_notes();

  private:
    struct Slot {
        std::unique_ptr<Conversation> conversation;
        bool busy = false;
    };
    /// Where a prompt's rows can come from.
    struct Source {
        Slot* slot = nullptr;  // one of these two
        PackedConversation* parked = nullptr;
        const Checkpoint* checkpoint = nullptr;  // null: as it is, or cut without one
        int rows = 0;
    };

    Source find(std::span<const RowKey> keys, int& shared);
    Result<Slot*> free_slot(int rows, const PackedConversation* keep);
    void park(Conversation& conversation, const PackedConversation* keep);
    bool park_fits(uint64_t bytes, const PackedConversation* keep);
    void unpark(const PackedConversation* packed);
    int capacity_for(int rows) const;

    Device& device_;
    const Model& model_;
    ModelRunner& runner_;
    const StoreLimits limits_;
    std::vector<Slot> slots_;
    std::vector<std::unique_ptr<PackedConversation>> parked_;
    std::vector<std::string> notes_;
    uint64_t clock_ = 0;
};

}  // namespace strata
