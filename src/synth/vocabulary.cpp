#include "synth/vocabulary.h"

#include <algorithm>
#include <unordered_set>

namespace strata::synth {
namespace {

constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";  // the most frequent first
constexpr int kLetterCount = 26;

void append_utf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xC0 | code >> 6);
        out += static_cast<char>(0x80 | (code & 63));
    } else {
        out += static_cast<char>(0xE0 | code >> 12);
        out += static_cast<char>(0x80 | (code >> 6 & 63));
        out += static_cast<char>(0x80 | (code & 63));
    }
}

std::string utf8(uint32_t code) {
    std::string out;
    append_utf8(out, code);
    return out;
}

/// The characters that stand for the 256 bytes in a byte-level vocabulary.
std::vector<std::string> byte_characters() {
    std::vector<std::string> characters;
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        characters.push_back(utf8(itself ? byte : next++));
    }
    return characters;
}

std::string byte_token(uint32_t byte) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

struct Merge {
    int rank_class;  // merges of a lower class come first; within a class in the order made
    std::string left, right;
};

/// Makes merges of distinct results, from short and frequent to long and rare, until `count` are there.
class MergeMaker {
  public:
    MergeMaker(std::string space, std::string newline, size_t count)
        : space_(std::move(space)), newline_(std::move(newline)), count_(count) {}

    std::vector<Merge> make() {
        white_space();
        for_pairs([&](std::string_view a, std::string_view b) { add(1, a, b); });
        for (const char c : kLetters) add(5, space_, std::string(1, c));
        for_pairs([&](std::string_view a, std::string_view b) { add(6, space_, join(a, b)); });
        for_pairs([&](std::string_view a, std::string_view b) { add(2, upper(a), b); });
        for_pairs([&](std::string_view a, std::string_view b) { add(7, space_, upper(a) + std::string(b)); });
        for_triples([&](const std::string& ab, std::string_view c) { add(3, ab, c); });
        for_triples([&](const std::string& ab, std::string_view c) { add(8, space_, join(ab, c)); });
        for_triples([&](const std::string& ab, std::string_view c) { add(3, capital(ab), c); });
        for_triples([&](const std::string& ab, std::string_view c) { add(8, space_, capital(ab) + std::string(c)); });
        quads();
        std::stable_sort(merges_.begin(), merges_.end(),
                         [](const Merge& a, const Merge& b) { return a.rank_class < b.rank_class; });
        return std::move(merges_);
    }

  private:
    void add(int rank_class, std::string_view left, std::string_view right) {
        if (merges_.size() < count_) merges_.push_back({rank_class, std::string(left), std::string(right)});
    }
    static std::string join(std::string_view a, std::string_view b) { return std::string(a) + std::string(b); }
    static std::string upper(std::string_view a) { return std::string(1, static_cast<char>(a[0] - 'a' + 'A')); }
    static std::string capital(const std::string& text) { return upper(text) + text.substr(1); }

    void white_space() {  // runs of spaces and newlines by doubling
        std::string spaces = space_, newlines = newline_;
        for (int i = 0; i < 4; ++i) {
            add(0, spaces, spaces);
            add(0, newlines, newlines);
            spaces += spaces;
            newlines += newlines;
        }
    }

    /// Letter pairs, those of frequent letters first.
    template <class Do>
    static void for_pairs(Do action) {
        for (int sum = 0; sum <= 2 * (kLetterCount - 1); ++sum)
            for (int i = std::max(0, sum - kLetterCount + 1); i <= std::min(sum, kLetterCount - 1); ++i)
                action(kLetters.substr(static_cast<size_t>(i), 1), kLetters.substr(static_cast<size_t>(sum - i), 1));
    }
    template <class Do>
    static void for_triples(Do action) {
        for_pairs([&](std::string_view a, std::string_view b) {
            const std::string ab = join(a, b);
            for (size_t i = 0; i < kLetters.size(); ++i) action(ab, kLetters.substr(i, 1));
        });
    }
    void quads() {
        std::vector<std::string> pairs;
        for_pairs([&](std::string_view a, std::string_view b) { pairs.push_back(join(a, b)); });
        for (size_t sum = 0; sum <= 2 * (pairs.size() - 1) && merges_.size() < count_; ++sum)
            for (size_t i = sum < pairs.size() ? 0 : sum - pairs.size() + 1; i <= std::min(sum, pairs.size() - 1);
                 ++i) {
                add(4, pairs[i], pairs[sum - i]);
                add(9, space_, pairs[i] + pairs[sum - i]);
            }
    }

    std::string space_, newline_;
    size_t count_;
    std::vector<Merge> merges_;
};

/// The second ways to make a token that a gemma4 vocabulary has beside the first: cut elsewhere.
void add_other_cuts(std::vector<std::string>& lines, const std::vector<Merge>& merges, size_t count) {
    std::unordered_set<std::string> tokens;
    for (const Merge& merge : merges) tokens.insert(merge.left + merge.right);
    for (const char c : kLetters) tokens.insert({c});
    for (const Merge& merge : merges) {
        const std::string whole = merge.left + merge.right;
        if (merge.rank_class < 3) continue;  // pairs have one cut
        for (size_t cut = 1; cut < whole.size() && lines.size() < count; ++cut) {
            if (cut == merge.left.size()) continue;
            const std::string left = whole.substr(0, cut), right = whole.substr(cut);
            if (tokens.contains(left) && tokens.contains(right)) lines.push_back(left + " " + right);
        }
    }
}

}  // namespace

Vocabulary make_vocabulary(const VocabularySpec& spec) {
    Vocabulary out;
    out.tokens.resize(spec.size);
    out.types.assign(spec.size, static_cast<int32_t>(TokenType::unused));
    for (const FixedToken& token : spec.fixed) {
        out.tokens[token.id] = token.text;
        out.types[token.id] = static_cast<int32_t>(token.type);
    }
    uint32_t id = 0;
    const auto put = [&](const std::string& text) {  // at the next free id
        while (id < spec.size && !out.tokens[id].empty()) ++id;
        if (id == spec.size) return false;
        out.tokens[id] = text;
        out.types[id] = static_cast<int32_t>(TokenType::normal);
        return true;
    };

    const bool bytes = spec.model == "gpt2";
    size_t singles = 0;
    if (bytes) {
        for (const std::string& character : byte_characters()) singles += put(character);
    } else {
        for (uint32_t byte = 0; byte < 256; ++byte) {  // at their real place, reached only by bytes
            out.tokens[238 + byte] = byte_token(byte);
            out.types[238 + byte] = static_cast<int32_t>(TokenType::byte);
        }
        std::string newlines;
        for (uint32_t i = 0; i < 31; ++i) {
            newlines += '\n';
            out.tokens[107 + i] = newlines;
            out.types[107 + i] = static_cast<int32_t>(TokenType::normal);
        }
        // Letters of the alphabets of Europe, digits, signs; everything else is reached by bytes.
        put(utf8(0x2581));
        put("\t");
        const std::pair<uint32_t, uint32_t> ranges[] = {
            {0x21, 0x7E}, {0xA1, 0x17F}, {0x391, 0x3C9}, {0x410, 0x44F}, {0x3041, 0x3096}};
        for (const auto& [first, last] : ranges)
            for (uint32_t code = first; code <= last; ++code) put(utf8(code));
    }

    // Merges that make new tokens: as many as the family has, or as there are ids left for.
    const auto free_ids = static_cast<size_t>(
        std::count_if(out.tokens.begin(), out.tokens.end(), [](const auto& t) { return t.empty(); }));
    std::vector<Merge> merges = MergeMaker(bytes ? "\xC4\xA0" : "\xE2\x96\x81", bytes ? "\xC4\x8A" : "\n",
                                           std::min<size_t>(free_ids, spec.merges))
                                    .make();
    for (const Merge& merge : merges) {
        const std::string whole = merge.left + merge.right;
        const bool run_of_newlines = !bytes && whole.find_first_not_of('\n') == std::string::npos;
        if (!run_of_newlines) put(whole);
        out.merges.push_back(merge.left + " " + merge.right);
    }
    if (!bytes) add_other_cuts(out.merges, merges, spec.merges);
    for (uint32_t i = 0; i < spec.size; ++i)
        if (out.tokens[i].empty()) out.tokens[i] = "[PAD" + std::to_string(i) + "]";
    return out;
}

void add_tokenizer(gguf::KeyList& keys, const VocabularySpec& spec) {
    const Vocabulary vocabulary = make_vocabulary(spec);
    keys.set_string("tokenizer.ggml.model", spec.model);
    if (!spec.pre.empty()) keys.set_string("tokenizer.ggml.pre", spec.pre);
    keys.set_strings("tokenizer.ggml.tokens", vocabulary.tokens);
    if (spec.model == "gemma4")
        keys.set_array<float>("tokenizer.ggml.scores", std::vector<float>(vocabulary.tokens.size(), -1000.0f));
    keys.set_array<int32_t>("tokenizer.ggml.token_type", vocabulary.types);
    keys.set_strings("tokenizer.ggml.merges", vocabulary.merges);
    const auto id = [&](const char* name, int64_t value) {
        if (value >= 0)
            keys.set<uint32_t>(std::string("tokenizer.ggml.") + name + "_token_id", static_cast<uint32_t>(value));
    };
    id("bos", spec.bos);
    id("eos", spec.eos);
    id("eot", spec.eot);
    id("eom", spec.eom);
    id("unknown", spec.unknown);
    id("padding", spec.pad);
    id("mask", spec.mask);
    if (spec.model == "gemma4") keys.set<bool>("tokenizer.ggml.add_space_prefix", false);
    keys.set<bool>("tokenizer.ggml.add_bos_token", spec.add_bos);
    keys.set_string("tokenizer.chat_template", spec.chat_template);
}

}  // namespace strata::synth
