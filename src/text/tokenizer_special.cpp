#include "text/tokenizer_special.h"

namespace strata {

uint32_t SpecialTokens::child(uint32_t node, uint8_t byte) const {
    if (node == 0) return first_[byte];
    uint32_t at = nodes_[node].child;
    while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
    return at;
}

void SpecialTokens::add(std::string_view text, int32_t id, bool in_all_text) {
    if (text.empty()) return;
    uint32_t node = 0;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        uint32_t next = child(node, byte);
        if (next == 0) {
            next = static_cast<uint32_t>(nodes_.size());
            nodes_.push_back({.sibling = node == 0 ? 0 : nodes_[node].child, .byte = byte});
            (node == 0 ? first_[byte] : nodes_[node].child) = next;
        }
        node = next;
    }
    nodes_[node].id = id;
    nodes_[node].in_all_text = in_all_text;
}

SpecialTokens::Match SpecialTokens::find(std::string_view text, size_t from, bool all) const {
    for (size_t begin = from; begin < text.size(); ++begin) {
        uint32_t node = first_[static_cast<uint8_t>(text[begin])];
        if (node == 0) continue;
        Match longest = {text.size(), text.size(), -1};
        for (size_t end = begin + 1;; ++end) {
            if (nodes_[node].id >= 0 && (all || nodes_[node].in_all_text)) longest = {begin, end, nodes_[node].id};
            if (end == text.size()) break;
            node = child(node, static_cast<uint8_t>(text[end]));
            if (node == 0) break;
        }
        if (longest.id >= 0) return longest;
    }
    return {text.size(), text.size(), -1};
}

}  // namespace strata
