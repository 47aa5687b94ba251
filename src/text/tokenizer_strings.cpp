#include "text/tokenizer_strings.h"

#include <algorithm>
#include <bit>

#include "text/tokenizer_hash.h"

namespace strata {

void StringArena::reserve(size_t strings, size_t bytes) {
    ends_.reserve(strings);
    text_.reserve(bytes);
}

void StringArena::add(std::string_view text) {
    text_ += text;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
}

Result<TokenStrings> TokenStrings::make(std::span<const std::string_view> tokens, std::string_view source) {
    constexpr size_t most_bytes = size_t{1} << 30;
    constexpr size_t most_tokens = size_t{1} << 26;
    size_t bytes = 0;
    for (const std::string_view token : tokens) bytes += token.empty() ? 20 : token.size();
    if (bytes > most_bytes || tokens.size() > most_tokens)
        return file_error(std::string(source) + ": the vocabulary has " + std::to_string(tokens.size()) +
                          " tokens and takes " + std::to_string(bytes) + " bytes; that is no real vocabulary");

    TokenStrings result;
    result.seed_ = hash_seed();
    result.strings_.reserve(tokens.size(), bytes);
    result.slots_.assign(std::bit_ceil(2 * tokens.size() + 2), {0, -1});
    const size_t mask = result.slots_.size() - 1;
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i].empty()) {
            result.strings_.add("[EMPTY_" + std::to_string(i) + "]");
        } else {
            result.strings_.add(tokens[i]);
        }
    }
    constexpr size_t block = 64;
    uint64_t hashes[block];
    for (size_t first = 0; first < tokens.size(); first += block) {
        const size_t count = std::min(block, tokens.size() - first);
        for (size_t i = 0; i < count; ++i) {
            hashes[i] = result.hash(result.strings_[first + i]);
            __builtin_prefetch(&result.slots_[hashes[i] & mask], 1);
        }
        for (size_t i = 0; i < count; ++i) {
            const auto id = static_cast<int32_t>(first + i);
            const auto tag = static_cast<uint32_t>(hashes[i] >> 32);
            size_t at = hashes[i] & mask;
            for (; result.slots_[at].id >= 0; at = (at + 1) & mask) {
                const Slot& slot = result.slots_[at];
                if (slot.tag == tag && result[slot.id] == result[id])
                    return file_error(std::string(source) + ": tokens " + std::to_string(slot.id) + " and " +
                                      std::to_string(id) +
                                      " of the vocabulary are the same string; the file is damaged");
            }
            result.slots_[at] = {tag, id};
        }
    }
    return result;
}

uint64_t TokenStrings::hash(std::string_view text) const {
    return hash_bytes(text.data(), text.size(), seed_);
}

int32_t TokenStrings::find(std::string_view text, uint64_t hash) const {
    const auto tag = static_cast<uint32_t>(hash >> 32);
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask)
        if (slots_[at].tag == tag && (*this)[slots_[at].id] == text) return slots_[at].id;
    return -1;
}

int32_t TokenStrings::find(std::string_view text) const {
    return find(text, hash(text));
}

void TokenStrings::find(std::span<const std::string_view> texts, int32_t* ids) const {
    constexpr size_t block = 64;
    uint64_t hashes[block];
    const size_t mask = slots_.size() - 1;
    for (size_t first = 0; first < texts.size(); first += block) {
        const size_t count = std::min(block, texts.size() - first);
        for (size_t i = 0; i < count; ++i) {
            hashes[i] = hash(texts[first + i]);
            __builtin_prefetch(&slots_[hashes[i] & mask]);
        }
        for (size_t i = 0; i < count; ++i) {  // most strings are in the first slot that they could be in
            const int32_t id = slots_[hashes[i] & mask].id;
            if (id >= 0) __builtin_prefetch((*this)[id].data());
        }
        for (size_t i = 0; i < count; ++i) ids[first + i] = find(texts[first + i], hashes[i]);
    }
}

}  // namespace strata
