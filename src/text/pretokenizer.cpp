#include "text/pretokenizer.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

using namespace unicode;

constexpr PreTokenizer pre_tokenizers[] = {
    {"qwen35", SplitRule::qwen35},
    {"qwen2", SplitRule::qwen2},
    {"deepseek-r1-qwen", SplitRule::qwen2},
    {"megrez", SplitRule::qwen2},
    {"stablelm2", SplitRule::qwen2},
    {"hunyuan", SplitRule::qwen2},
    {"solar-open", SplitRule::qwen2},
    {"grok-2", SplitRule::qwen2},
    {"kolibri1", SplitRule::qwen2},
    {"kolibri", SplitRule::qwen2},
    {.name = "flint", .rule = SplitRule::qwen2, .verified = false},
    {.name = "llama-bpe", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "lfm2", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "pixtral", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .rule = SplitRule::llama_bpe, .ignore_merges = true, .adds_bos = true},
    {"glm4", SplitRule::llama_bpe},
    {"chatglm-bpe", SplitRule::llama_bpe},
    {"deepseek-v3", SplitRule::deepseek_v3},
    {"joyai-llm", SplitRule::deepseek_v3},
    {"hunyuan-dense", SplitRule::deepseek_v3},
    {"hy_v4", SplitRule::deepseek_v3},
    {"deepseek-llm", SplitRule::deepseek_llm},
    {"gpt-2", SplitRule::gpt2},
    {"laguna", SplitRule::laguna},
};

/// Reading positions of one piece of text. Positions are pointers; nothing outside [begin, end) is looked at.
class Reader {
  public:
    Reader(const char* end, const uint8_t* classes) : end_(end), classes_(classes) {}

    const char* end() const { return end_; }

    /// Whether the character at `at` has one of these classes; false at the end.
    bool is(const char* at, unsigned mask) const { return at < end_ && (class_at(at) & mask) != 0; }

    unsigned class_at(const char* at) const {
        const auto byte = static_cast<unsigned char>(*at);
        return classes_[byte < 0x80 ? byte : decode_utf8(at, end_).value];
    }

    uint32_t code_point(const char* at) const { return decode_utf8(at, end_).value; }
    const char* next(const char* at) const {
        return at + (static_cast<unsigned char>(*at) < 0x80 ? 1 : decode_utf8(at, end_).size);
    }

    /// The end of the run of characters that have one of these classes (wanted) or none of them (not wanted).
    template <bool wanted = true>
    const char* run(const char* at, unsigned mask) const {
        while (at < end_) {
            const auto byte = static_cast<unsigned char>(*at);
            if (byte < 0x80) {
                if (((classes_[byte] & mask) != 0) != wanted) break;
                ++at;
            } else {
                const CodePoint c = decode_utf8(at, end_);
                if (((classes_[c.value] & mask) != 0) != wanted) break;
                at += c.size;
            }
        }
        return at;
    }

  private:
    const char* end_;
    const uint8_t* classes_;
};

/// The white space rules that several scans share; the character at `at` is white space. A run with a newline in it
/// (where `to_newline`) ends after the last one; a run before text leaves its last character to that text.
const char* white_space_piece(const Reader& text, const char* at, bool to_newline) {
    const char* end = at;
    const char* last = at;  // the run's last character
    const char* after_newline = nullptr;
    while (text.is(end, white_space)) {
        last = end;
        end = text.next(end);
        if (*last == '\n' || *last == '\r') after_newline = end;
    }
    if (to_newline && after_newline != nullptr) return after_newline;
    return end < text.end() && last > at ? last : end;
}

/// The length of a contraction at `at` ('s 't 'm 'd 're 've 'll), 0 where there is none.
int contraction(const Reader& text, const char* at, bool ignore_case) {
    const auto left = text.end() - at;
    if (left < 2 || *at != '\'') return 0;
    const auto letter_at = [&](int i) {
        const char c = at[i];
        return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter_at(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if (left < 3) return 0;
    const char second = letter_at(2);
    const bool two =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? 3 : 0;
}

/// The Llama 3 and Qwen family: digits in pieces of at most `digits`, words of the classes `word`.
template <int digits, unsigned word>
const char* llama_piece(const Reader& text, const char* at) {
    if (const int size = contraction(text, at, true)) return at + size;
    const unsigned here = text.class_at(at);

    if (here & word) return text.run(text.next(at), word);
    if ((here & (newline | number)) == 0) {
        const char* after = text.next(at);
        if (text.is(after, word)) return text.run(after, word);
    }

    if (here & number) {
        const char* end = text.next(at);
        for (int i = 1; i < digits && text.is(end, number); ++i) end = text.next(end);
        return end;
    }

    const char* begin = at + (*at == ' ');
    const char* end = text.run<false>(begin, white_space | number | word);
    if (end > begin) return text.run(end, newline);

    return white_space_piece(text, at, true);
}

const char* gpt2_piece(const Reader& text, const char* at) {
    if (const int size = contraction(text, at, false)) return at + size;
    const char* begin = at + (*at == ' ');
    if (text.is(begin, letter)) return text.run(begin, letter);
    if (text.is(begin, number)) return text.run(begin, number);
    const char* end = text.run<false>(begin, white_space | letter | number);
    if (end > begin) return end;
    return white_space_piece(text, at, false);
}

bool is_ascii_letter(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_ascii_punctuation(char c) {
    return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/// A match of deepseek-v3's third stage, or `at` where there is none.
const char* deepseek_v3_word(const Reader& text, const char* at) {
    if (is_ascii_punctuation(*at)) {
        const char* end = at + 1;
        while (end < text.end() && is_ascii_letter(*end)) ++end;
        if (end > at + 1) return end;
    }

    const unsigned here = text.class_at(at);
    if (here & (letter | mark)) return text.run(at, letter | mark);
    if ((here & (newline | punctuation | symbol)) == 0) {
        const char* after = text.next(at);
        if (text.is(after, letter | mark)) return text.run(after, letter | mark);
    }

    const char* begin = at + (*at == ' ');
    const char* end = text.run(begin, punctuation | symbol);
    if (end > begin) return text.run(end, newline);

    return here & white_space ? white_space_piece(text, at, true) : at;
}

const char* numbers_up_to_three(const Reader& text, const char* at) {
    const char* end = at;
    for (int i = 0; i < 3 && text.is(end, number); ++i) end = text.next(end);
    return end;
}

/// A run of characters of which `belongs(code point)` holds.
template <class Belongs>
const char* run_of(const Reader& text, const char* at, Belongs belongs) {
    while (at < text.end() && belongs(text.code_point(at))) at = text.next(at);
    return at;
}

const char* east_asian_run(const Reader& text, const char* at) {
    return run_of(text, at, [](uint32_t c) {
        return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x309F) || (c >= 0x30A0 && c <= 0x30FF);
    });
}

/// `begin` after an optional white space character, where a run that is not empty follows it; else none.
template <class Run>
const char* after_optional_white_space(const Reader& text, const char* at, Run run) {
    const char* begin = text.is(at, white_space) ? text.next(at) : at;
    const char* end = run(begin);
    return end > begin ? end : at;
}

const char* deepseek_llm_letters(const Reader& text, const char* at) {
    return after_optional_white_space(text, at, [&](const char* begin) { return text.run(begin, deepseek_letter); });
}

const char* deepseek_llm_punctuation(const Reader& text, const char* at) {
    return after_optional_white_space(text, at, [&](const char* begin) {
        return run_of(text, begin, [](uint32_t c) {
            return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x7E) || (c >= 0xFF01 && c <= 0xFF0F) ||
                   (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) || (c >= 0x3001 && c <= 0x3002);
        });
    });
}

const char* deepseek_llm_cjk(const Reader& text, const char* at) {
    const char* end = at;
    while (end < text.end()) {
        const uint32_t c = text.code_point(end);
        if (!((c >= 0x800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF)) || text.is(end, white_space)) break;
        end = text.next(end);
    }
    return end;
}

// A rule is a list of stages. A stage cuts every piece of the stage before (the first one: the whole text) into the
// matches of `match` and the gaps between them: match(reader of the piece, position) gives a match's end, or the
// position itself where there is none.
class Stages {
  public:
    Stages(std::string_view text, std::vector<size_t>& ends, std::vector<size_t>& scratch)
        : text_(text), ends_(ends), scratch_(scratch), first_(ends.size()), classes_(classes()) {
        if (!text.empty()) ends_.push_back(text.size());
    }

    template <class Match>
    void cut(Match match) {
        cut_pieces([&](const Reader& piece, const char* begin) {
            const char* gap = begin;
            for (const char* at = begin; at < piece.end();) {
                const char* end = match(piece, at);
                if (end == at) {
                    at = piece.next(at);
                    continue;
                }
                if (gap < at) add(at);
                add(end);
                gap = at = end;
            }
            if (gap < piece.end()) add(piece.end());
        });
    }

    /// A stage that only splits off the white space at the end of each piece.
    void cut_trailing_white_space() {
        cut_pieces([&](const Reader& piece, const char* begin) {
            const char* last = begin;  // after the last character that is no white space
            for (const char* at = begin; at < piece.end();) {
                at = piece.run(at, white_space);
                if (at == piece.end()) break;
                last = at = piece.run<false>(at, white_space);
            }
            if (last > begin) add(last);
            if (last < piece.end()) add(piece.end());
        });
    }

  private:
    template <class CutPiece>
    void cut_pieces(CutPiece cut_piece) {
        scratch_.assign(ends_.begin() + static_cast<ptrdiff_t>(first_), ends_.end());
        ends_.resize(first_);
        const char* begin = text_.data();
        for (const size_t end : scratch_) {
            const Reader piece(text_.data() + end, classes_);
            cut_piece(piece, begin);
            begin = piece.end();
        }
    }

    void add(const char* end) { ends_.push_back(static_cast<size_t>(end - text_.data())); }

    std::string_view text_;
    std::vector<size_t>& ends_;
    std::vector<size_t>& scratch_;
    size_t first_;  // where this text's ends begin in ends_
    const uint8_t* classes_;
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
    for (const PreTokenizer& known : pre_tokenizers)
        if (known.name == name) return &known;
    return nullptr;
}

std::string pre_tokenizer_names() {
    std::string names;
    for (const PreTokenizer& known : pre_tokenizers) {
        if (!names.empty()) names += ", ";
        names += known.name;
    }
    return names;
}

void split(SplitRule rule, std::string_view text, std::vector<size_t>& ends, std::vector<size_t>& scratch) {
    Stages stages(text, ends, scratch);
    switch (rule) {
        case SplitRule::qwen2: stages.cut(llama_piece<1, letter>); break;
        case SplitRule::qwen35: stages.cut(llama_piece<1, letter | mark>); break;
        case SplitRule::llama_bpe: stages.cut(llama_piece<3, letter>); break;
        case SplitRule::gpt2: stages.cut(gpt2_piece); break;
        case SplitRule::laguna:
            stages.cut(
                [](const Reader& t, const char* at) { return run_of(t, at, [](uint32_t c) { return c == '\n'; }); });
            stages.cut(llama_piece<1, letter>);
            break;
        case SplitRule::deepseek_v3:
            stages.cut(numbers_up_to_three);
            stages.cut(east_asian_run);
            stages.cut(deepseek_v3_word);
            break;
        case SplitRule::deepseek_llm:
            stages.cut([](const Reader&, const char* at) { return at + (*at == '\n' || *at == '\r'); });
            stages.cut(deepseek_llm_letters);
            stages.cut(deepseek_llm_punctuation);
            stages.cut_trailing_white_space();
            stages.cut(deepseek_llm_cjk);
            stages.cut([](const Reader& t, const char* at) { return t.run(at, number); });
            break;
    }
}

size_t certain_edge(SplitRule rule, std::string_view text, size_t from) {
    if (rule == SplitRule::gpt2) return text.size();
    for (size_t at = from; (at = text.find('\n', at)) < text.size();) {
        ++at;
        if (at < text.size() && is_ascii_letter(text[at])) return at;
    }
    return text.size();
}

std::vector<size_t> split(SplitRule rule, std::string_view text) {
    std::vector<size_t> ends, scratch;
    split(rule, text, ends, scratch);
    return ends;
}

}  // namespace strata
