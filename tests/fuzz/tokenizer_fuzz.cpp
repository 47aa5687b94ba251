// Any vocabulary of a sound form and any text: encoding ends, is repeatable and loses no byte; streaming sends
// characters.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fuzzer/FuzzedDataProvider.h>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace {

using namespace strata;

void require(bool holds, int line = __builtin_LINE()) {
    if (holds) return;
    std::fprintf(stderr, "the requirement of line %d does not hold\n", line);
    std::abort();
}

/// The bytes of a vocabulary: `gpt2`'s alphabet or `gemma4`'s byte tokens.
std::vector<std::string> byte_tokens(bool gemma) {
    std::vector<std::string> tokens;
    uint32_t other = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", byte);
        std::string shown;
        append_utf8(shown, (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173) ? byte : other++);
        tokens.push_back(gemma ? name : shown);
    }
    return tokens;
}

/// A tokenizer of the vocabulary that the input describes, or nothing where it is refused.
std::optional<Tokenizer> make_tokenizer(FuzzedDataProvider& input) {
    std::deque<std::string> strings;
    Vocabulary vocabulary;
    const auto add = [&](const std::string& text, TokenType type) {
        vocabulary.tokens.push_back(strings.emplace_back(text));
        vocabulary.types.push_back(static_cast<int32_t>(type));
    };
    const bool gemma = input.ConsumeBool();
    vocabulary.model = gemma ? "gemma4" : "gpt2";
    constexpr const char* rules[] = {"qwen2",       "qwen35",       "llama-bpe", "glm4",
                                     "deepseek-v3", "deepseek-llm", "gpt-2",     "laguna"};
    vocabulary.pre = rules[input.ConsumeIntegralInRange<size_t>(0, std::size(rules) - 1)];
    static const std::vector<std::string> bytes[2] = {byte_tokens(false), byte_tokens(true)};
    for (const std::string& token : bytes[gemma]) add(token, gemma ? TokenType::byte : TokenType::normal);
    // Tokens grow from merges of what is there, in any order, so that merges reach them. Some lead to no token.
    size_t merges = input.ConsumeIntegralInRange<size_t>(1, 60);
    if (gemma)
        for (const char* text : {"a", "b", "\xE2\x96\x81", "\n", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80"})
            add(text, TokenType::normal);
    const size_t first = gemma ? 256 : 0;
    while (merges-- > 0) {
        const std::string left(vocabulary.tokens[input.ConsumeIntegralInRange(first, vocabulary.tokens.size() - 1)]);
        const std::string right(vocabulary.tokens[input.ConsumeIntegralInRange(first, vocabulary.tokens.size() - 1)]);
        if (left.size() + right.size() > 60) continue;
        const std::string text = strings.emplace_back(left + " " + right);
        vocabulary.merges.insert(input.ConsumeBool() ? vocabulary.merges.end() : vocabulary.merges.begin(),
                                 strings.back());
        bool known = false;
        for (const std::string_view token : vocabulary.tokens) known = known || token == left + right;
        if (!known && input.ConsumeIntegralInRange(0, 7) > 0) add(left + right, TokenType::normal);
    }
    for (const char* special : {"<|im_end|>", "<think>", "<t", "</s>", "<|"})
        if (input.ConsumeBool()) add(special, input.ConsumeBool() ? TokenType::control : TokenType::user_defined);

    auto tokenizer = Tokenizer::make(vocabulary);
    if (tokenizer.ok()) return std::move(tokenizer).value();
    require(!tokenizer.error().message.empty());
    return std::nullopt;
}

/// The same of bytes drawn from a seed; made once, because that takes longer than a text does.
const std::optional<Tokenizer>& known_tokenizer(size_t seed) {
    static std::map<size_t, std::optional<Tokenizer>> known;
    const auto found = known.find(seed);
    if (found != known.end()) return found->second;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<uint8_t> bytes(1000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    FuzzedDataProvider input(bytes.data(), bytes.size());
    return known.emplace(seed, make_tokenizer(input)).first->second;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    FuzzedDataProvider input(data, size);
    const auto choice = input.ConsumeIntegral<uint8_t>();
    std::optional<Tokenizer> own;
    if (choice >= 240) own = make_tokenizer(input);
    const std::optional<Tokenizer>& tokenizer = choice < 240 ? known_tokenizer(choice % 40) : own;
    if (!tokenizer) return 0;

    std::string text = input.ConsumeRandomLengthString();
    if (input.ConsumeBool()) {  // long pieces
        const std::string unit = input.ConsumeRandomLengthString(8);
        for (size_t i = input.ConsumeIntegralInRange<size_t>(0, 300); i-- > 0;) text += unit;
    }
    text += input.ConsumeRemainingBytesAsString();

    const bool comes_back =
        tokenizer->kind() != TokenizerKind::gemma4 || text.find("\xE2\x96\x81") == std::string::npos;
    for (const bool parse_special : {false, true}) {
        const auto kept = tokenizer->encode(text, {.parse_special = parse_special, .invalid_utf8 = InvalidUtf8::keep});
        if (comes_back) require(tokenizer->decode(kept, true) == text);
        const auto replaced = tokenizer->encode(text, {.parse_special = parse_special});
        require(replaced == tokenizer->encode(text, {.parse_special = parse_special}));
        if (comes_back && !parse_special) require(tokenizer->decode(replaced, true) == unicode::replace_invalid(text));
        Detokenizer stream(*tokenizer, true);
        std::string sent;
        for (const int32_t id : kept) {
            require(id >= 0 && id < tokenizer->vocab_size());
            const std::string now = stream.push(id);
            require(unicode::valid_prefix(now) == now.size());
            sent += now;
        }
        sent += stream.finish();
        if (comes_back && unicode::valid_prefix(text) == text.size()) require(sent == text);
    }
    return 0;
}
