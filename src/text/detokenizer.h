// Ids to text as it may be sent: whole UTF-8 characters only, however the model's tokens cut them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace strata {

/// Bytes in pieces to valid UTF-8. Holds back the start of an unfinished character (at most 3 bytes). What cannot be
/// part of a character becomes U+FFFD, one for each longest run of bytes that begins a valid one.
class Utf8Stream {
  public:
    /// Adds to `text` what can be said after `bytes`.
    void push(std::string_view bytes, std::string& text);

    /// The end: adds U+FFFD for a character that stayed unfinished, and starts anew.
    void finish(std::string& text);

    bool holds_back() const { return held_size_ > 0; }

  private:
    unsigned char held_[4] = {};  // the bytes so far of a character, [held_size_]
    int held_size_ = 0;
    int expected_ = 0;  // bytes that character has when it is whole
};

/// The text of a reply, id by id. Special tokens are hidden; end tokens and unused ids too.
class Detokenizer {
  public:
    /// The tokenizer must outlive it.
    explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false)
        : tokenizer_(&tokenizer), show_special_(show_special) {}

    /// Shows this id although it is special: the markers that an answer's parser needs to see.
    void show(int32_t id) { shown_.push_back(id); }

    /// The text that may be sent after this id; often empty.
    std::string push(int32_t id);

    /// What remains at the end of the reply.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    bool show_special_;
    std::vector<int32_t> shown_;
    Utf8Stream utf8_;
};

}  // namespace strata
