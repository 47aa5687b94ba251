// Finding special tokens in text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

/// The strings of special tokens as a trie over bytes. A match is the leftmost one, the longest of those that begin
/// there; where no two special tokens overlap in a text (in every released vocabulary) this is the same as cutting it
/// at the longest tokens first.
class SpecialTokens {
  public:
    /// `in_all_text`: recognised even where control tokens are to be ordinary text. Empty strings are not added.
    void add(std::string_view text, int32_t id, bool in_all_text);

    struct Match {
        size_t begin;
        size_t end;
        int32_t id;  // -1: none, begin and end are the text's size
    };
    /// The first match at or after `from`.
    Match find(std::string_view text, size_t from, bool all) const;

  private:
    struct Node {
        uint32_t child = 0;    // first of its children; 0: none (the root is nobody's child)
        uint32_t sibling = 0;  // next child of the same parent
        int32_t id = -1;       // the token that ends here
        uint8_t byte = 0;
        bool in_all_text = false;
    };
    uint32_t child(uint32_t node, uint8_t byte) const;

    std::vector<Node> nodes_ = std::vector<Node>(1);
    uint32_t first_[256] = {};  // the root's children by byte; 0: none
};

}  // namespace strata
