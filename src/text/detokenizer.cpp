#include "text/detokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace strata {
namespace {

/// How many bytes the character has that this byte begins; 0 where none begins with it.
int character_size(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/// Whether `byte` may be the second one after `lead` (no overlong forms, surrogates or values above U+10FFFF).
bool may_be_second(unsigned char lead, unsigned char byte) {
    switch (lead) {
        case 0xE0: return byte >= 0xA0 && byte <= 0xBF;
        case 0xED: return byte >= 0x80 && byte <= 0x9F;
        case 0xF0: return byte >= 0x90 && byte <= 0xBF;
        case 0xF4: return byte >= 0x80 && byte <= 0x8F;
        default: return byte >= 0x80 && byte <= 0xBF;
    }
}

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& text) {
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (held_size_ > 0) {
            const bool continues = held_size_ == 1 ? may_be_second(held_[0], byte) : (byte & 0xC0) == 0x80;
            if (continues) {
                held_[held_size_++] = byte;
                if (held_size_ == expected_) {
                    text.append(reinterpret_cast<const char*>(held_), static_cast<size_t>(held_size_));
                    held_size_ = 0;
                }
                continue;
            }
            text += unicode::replacement_utf8;
            held_size_ = 0;
        }
        expected_ = character_size(byte);
        if (expected_ == 0) {
            text += unicode::replacement_utf8;
        } else if (expected_ == 1) {
            text.push_back(c);
        } else {
            held_[held_size_++] = byte;
        }
    }
}

void Utf8Stream::finish(std::string& text) {
    if (held_size_ > 0) text += unicode::replacement_utf8;
    held_size_ = 0;
}

std::string Detokenizer::push(int32_t id) {
    const bool shown = show_special_ || std::find(shown_.begin(), shown_.end(), id) != shown_.end();
    std::string text;
    utf8_.push(tokenizer_->piece(id, shown), text);
    return text;
}

std::string Detokenizer::finish() {
    std::string text;
    utf8_.finish(text);
    return text;
}

}  // namespace strata
