#include "grammar/token_trie.h"

#include <algorithm>

namespace strata {

TokenTrie::TokenTrie(std::span<const std::string_view> pieces) : same_piece_(pieces.size(), -1) {
    first_.fill(none);
    constexpr auto kLongest = static_cast<size_t>(Grammar::lookahead_bytes);
    const size_t words = (pieces.size() + 63) / 64;
    at_most_.resize(kLongest * words);
    std::vector<int32_t> order;
    piece_start_.reserve(pieces.size() + 1);
    for (size_t id = 0; id < pieces.size(); ++id) {
        piece_start_.push_back(static_cast<uint32_t>(piece_bytes_.size()));
        if (pieces[id].empty() || pieces[id].size() > kLongest) continue;
        piece_bytes_.insert(piece_bytes_.end(), pieces[id].begin(), pieces[id].end());
        order.push_back(static_cast<int32_t>(id));
        at_most_[(pieces[id].size() - 1) * words + id / 64] |= uint64_t{1} << (id % 64);
    }
    piece_start_.push_back(static_cast<uint32_t>(piece_bytes_.size()));
    for (size_t i = words; i < at_most_.size(); ++i) at_most_[i] |= at_most_[i - words];

    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        int sign = pieces[static_cast<size_t>(a)].compare(pieces[static_cast<size_t>(b)]);
        return sign != 0 ? sign < 0 : a < b;
    });
    std::vector<uint32_t> open;  // the nodes of the last piece's bytes
    std::string_view last;
    int32_t last_token = -1;
    auto close_to = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) {
            Node& closed = nodes_[open.back()];
            closed.end = static_cast<uint32_t>(nodes_.size());
            if (closed.depth == 1) continue;
            Node& above = nodes_[open[open.size() - 2]];
            above.deepest = std::max(above.deepest, closed.deepest);
        }
    };
    for (int32_t id : order) {
        std::string_view piece = pieces[static_cast<size_t>(id)];
        if (last_token >= 0 && piece == last) {
            same_piece_[static_cast<size_t>(last_token)] = id;
            last_token = id;
            continue;
        }
        size_t common = static_cast<size_t>(std::mismatch(piece.begin(), piece.end(), last.begin(), last.end()).first -
                                            piece.begin());
        close_to(common);
        for (size_t i = common; i < piece.size(); ++i) {
            const auto node = static_cast<uint32_t>(nodes_.size());
            const auto byte = static_cast<uint8_t>(piece[i]), depth = static_cast<uint8_t>(i + 1);
            if (i == 0) first_[byte] = node;
            open.push_back(node);
            nodes_.push_back({byte, depth, depth, 0, -1});
        }
        nodes_[open.back()].token = id;
        last = piece;
        last_token = id;
    }
    close_to(0);
}

std::string_view TokenTrie::piece(int32_t token) const {
    if (token < 0 || static_cast<size_t>(token) >= same_piece_.size()) return {};
    uint32_t start = piece_start_[static_cast<size_t>(token)], end = piece_start_[static_cast<size_t>(token) + 1];
    return {piece_bytes_.data() + start, end - start};
}

}  // namespace strata
