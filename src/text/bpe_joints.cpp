#include "text/bpe_joints.h"

#include "text/tokenizer_hash.h"

namespace strata {
namespace {

bool continues(char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

/// The size of the character that this byte begins.
size_t size_by_lead(char byte) {
    const auto lead = static_cast<uint8_t>(byte);
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

}  // namespace

Joints::Joints() : pairs_(1024, free_slot), seed_(hash_seed()) {}

size_t Joints::slot(uint64_t pair) const {
    const size_t mask = pairs_.size() - 1;
    size_t at = hash_pair(pair, seed_) & mask;
    while (pairs_[at] != pair && pairs_[at] != free_slot) at = (at + 1) & mask;
    return at;
}

bool Joints::find(uint32_t before, uint32_t after) const {
    return pairs_[slot(static_cast<uint64_t>(before) << 32 | after)] != free_slot;
}

void Joints::insert(uint64_t pair) {
    uint64_t& found = pairs_[slot(pair)];
    if (found == pair) return;
    found = pair;
    if (2 * ++count_ <= pairs_.size()) return;
    std::vector<uint64_t> old(2 * pairs_.size(), free_slot);
    old.swap(pairs_);
    for (const uint64_t kept : old)
        if (kept != free_slot) pairs_[slot(kept)] = kept;
}

void Joints::add(std::string_view left, std::string_view right) {
    if (left.empty() || right.empty() || continues(right.front())) return;  // joins inside a character
    size_t last = left.size() - 1;
    while (last > 0 && continues(left[last])) --last;
    const bool left_is_part = continues(left[last]);
    if (!left_is_part && size_by_lead(left[last]) != left.size() - last) return;  // ends inside a character
    const CodePoint after = decode_utf8(right, 0);
    if (left_is_part || !after.valid) {
        partial_[static_cast<uint8_t>(left.back())][static_cast<uint8_t>(right.front())] = true;
        return;
    }
    const CodePoint before = decode_utf8(left, last);
    if (!before.valid) return;  // no valid text has it
    if (before.value < 0x80 && after.value < 0x80) {
        ascii_[before.value][after.value] = true;
    } else {
        insert(static_cast<uint64_t>(before.value) << 32 | after.value);
    }
}

}  // namespace strata
