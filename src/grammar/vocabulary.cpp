#include "grammar/vocabulary.h"

#include <array>
#include <cstdint>
#include <optional>

#include "gguf/metadata.h"

namespace strata {
namespace {

// tokenizer.ggml.token_type
constexpr int64_t kNormal = 1, kUserDefined = 4, kByte = 6;

/// The byte-level alphabet: 256 bytes as characters below U+0144 (docs/tokenizers.md).
std::array<int, 0x144> byte_alphabet() {
    std::array<int, 0x144> byte_of{};
    byte_of.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
        const bool itself =
            (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
        byte_of[static_cast<size_t>(itself ? byte : next++)] = byte;
    }
    return byte_of;
}

/// The bytes that characters of the alphabet stand for; nothing where there is another one among them.
std::optional<std::string> from_alphabet(std::string_view text) {
    static const auto kByteOf = byte_alphabet();
    std::string bytes;
    for (size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i++]);
        unsigned point = lead;
        if (lead >= 0x80) {  // all of them have at most two bytes
            if (lead < 0xC2 || lead > 0xDF || i >= text.size() || (text[i] & 0xC0) != 0x80) return std::nullopt;
            point = (lead & 0x1Fu) << 6 | (static_cast<unsigned char>(text[i++]) & 0x3Fu);
        }
        if (point >= kByteOf.size() || kByteOf[point] < 0) return std::nullopt;
        bytes += static_cast<char>(kByteOf[point]);
    }
    return bytes;
}

/// <0x41>
std::optional<char> byte_token(std::string_view text) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    const int high = digit(text[3]), low = digit(text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high << 4 | low);
}

std::string with_spaces(std::string_view text) {
    constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581 stands for a space
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const bool blank = text.substr(i).starts_with(kBlank);
        out += blank ? ' ' : text[i];
        i += blank ? kBlank.size() : 1;
    }
    return out;
}

}  // namespace

Result<std::vector<std::string>> token_pieces(const gguf::Metadata& file) {
    STRATA_TRY_ASSIGN(const std::string_view kind, file.get_string("tokenizer.ggml.model"));
    if (kind != "gpt2" && kind != "gemma4") {
        return file_error(file.file_name() + ": grammars work with tokenizers of the kinds gpt2 and gemma4, not " +
                          std::string(kind));
    }
    STRATA_TRY_ASSIGN(const auto tokens, file.get_strings("tokenizer.ggml.tokens"));
    STRATA_TRY_ASSIGN(const auto types, file.find_ints("tokenizer.ggml.token_type", INT32_MIN, INT32_MAX));
    std::vector<std::string> pieces(tokens.size());
    for (uint64_t i = 0; i < tokens.size(); ++i) {
        const std::string_view text = tokens[i];
        const int64_t type = types && i < types->size() ? (*types)[i] : kNormal;
        if (type == kUserDefined) {
            pieces[i] = text;
        } else if (type == kByte) {
            if (const auto byte = byte_token(text)) pieces[i].assign(1, *byte);
        } else if (type == kNormal) {
            pieces[i] = kind == "gemma4" ? with_spaces(text) : from_alphabet(text).value_or(std::string(text));
        }
    }
    return pieces;
}

}  // namespace strata
