// What a tokenizer is: built from metadata and checked. tokenizer_encode.cpp has the way from text to ids.
#include "text/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "text/tokenizer_parts.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

// Texts of tokens at which a reply ends (docs/tokenizers.md, end of generation).
constexpr std::string_view end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "[e~[",
};
constexpr std::string_view fim_pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view fim_repository_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                                     "<reponame>"};
constexpr std::string_view fim_separator_texts[] = {"<|file_sep|>"};

bool is_special(TokenType type) {
    return type == TokenType::control || type == TokenType::user_defined || type == TokenType::unknown;
}
bool is_marker(TokenType type) {
    return type == TokenType::control || type == TokenType::user_defined;
}

}  // namespace

// --- alphabet, cache, pool ---

ByteAlphabet::ByteAlphabet() {
    std::fill(std::begin(bytes_), std::end(bytes_), int16_t{-1});
    uint32_t other = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const bool printable =
            (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
        code_points_[byte] = printable ? byte : other++;
        bytes_[code_points_[byte]] = static_cast<int16_t>(byte);
    }
}

const ByteAlphabet& byte_alphabet() {
    static const ByteAlphabet alphabet;
    return alphabet;
}

void ByteAlphabet::show(std::string_view bytes, std::string& text) const {
    for (const char c : bytes) append_utf8(text, code_points_[static_cast<uint8_t>(c)]);
}

void ByteAlphabet::read(std::string_view text, std::string& bytes) const {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
        if (*at >= 0x21 && *at <= 0x7E) {
            bytes.push_back(*at++);
            continue;
        }
        const CodePoint c = decode_utf8(at, end);
        const int shown = c.valid ? byte(c.value) : -1;
        if (shown >= 0) {
            bytes.push_back(static_cast<char>(shown));
        } else {
            bytes.append(at, c.size);
        }
        at += c.size;
    }
}

PieceCache::PieceCache() : entries_(entries), seed_(hash_seed()) {}

PieceCache::Entry& PieceCache::at(std::string_view piece) {
    return entries_[hash_bytes(piece.data(), piece.size(), seed_) & (entries - 1)];
}

std::unique_ptr<Workspace> WorkspacePool::take() {
    {
        const std::lock_guard lock(mutex_);
        if (!free_.empty()) {
            auto workspace = std::move(free_.back());
            free_.pop_back();
            return workspace;
        }
    }
    return std::make_unique<Workspace>();
}

void WorkspacePool::give_back(std::unique_ptr<Workspace> workspace) {
    const auto trim = [](auto& memory) {  // what an unusually long text took is not kept
        constexpr size_t kept = size_t{1} << 18;
        if (memory.capacity() > kept) std::remove_reference_t<decltype(memory)>().swap(memory);
    };
    trim(workspace->symbols);
    trim(workspace->ends);
    trim(workspace->scratch);
    trim(workspace->line);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
}

// --- building ---

namespace {

/// Builds the parts step by step; each step is a section of docs/tokenizers.md.
class Builder {
  public:
    Builder(const Vocabulary& vocabulary, TokenizerParts& parts) : vocabulary_(vocabulary), parts_(parts) {}

    Result<void> build(std::string_view force_pre) {
        STRATA_TRY(choose_kind(force_pre));
        STRATA_TRY(take_tokens());
        find_ids();
        find_ends();
        STRATA_TRY(add_specials());
        STRATA_TRY(parts_.kind == TokenizerKind::gemma4 ? find_gemma_bytes() : find_alphabet_bytes());
        make_pieces();
        add_merges();
        return {};
    }

  private:
    Error refuse(std::string what) const { return file_error(vocabulary_.source + ": " + std::move(what)); }
    void warn(std::string what) { parts_.warnings.push_back(vocabulary_.source + ": " + std::move(what)); }

    Result<void> choose_kind(std::string_view force_pre);
    Result<void> take_tokens();
    void find_ids();
    void find_ends();
    Result<void> add_specials();
    Result<void> find_alphabet_bytes();
    Result<void> find_gemma_bytes();
    void make_pieces();
    void add_merges();

    std::optional<int32_t> checked_id(const std::optional<int64_t>& id, const char* name);
    int32_t symbol_of(std::string_view text, int32_t id);
    std::string_view bytes_of(int32_t symbol, std::string_view stored) const;

    const Vocabulary& vocabulary_;
    TokenizerParts& parts_;
    int32_t symbols_ = 0;  // gemma4: ids and the characters that are no tokens
};

Result<void> Builder::choose_kind(std::string_view force_pre) {
    if (vocabulary_.add_space_prefix)
        return refuse("tokenizer.ggml.add_space_prefix is true, which no tokenizer known here does");
    if (vocabulary_.model == "gemma4") {
        parts_.kind = TokenizerKind::gemma4;
        return {};
    }
    if (vocabulary_.model != "gpt2")
        return refuse("tokenizer.ggml.model is '" + vocabulary_.model +
                      "'; the tokenizers known here are gpt2 (byte-level BPE) and gemma4");
    parts_.kind = TokenizerKind::byte_level_bpe;
    const std::string_view name = force_pre.empty() ? std::string_view(vocabulary_.pre) : force_pre;
    const PreTokenizer* pre = find_pre_tokenizer(name);
    if (pre == nullptr && !force_pre.empty())
        return usage_error("--tokenizer-pre " + std::string(name) + ": no such split rule; known are " +
                           pre_tokenizer_names());
    if (pre == nullptr)
        return refuse(name.empty() ? "tokenizer.ggml.pre is missing, so nobody knows how to split text; name a rule "
                                     "with --tokenizer-pre if you know it"
                                   : "tokenizer.ggml.pre is '" + std::string(name) + "', which is not known here (" +
                                         pre_tokenizer_names() + "); --tokenizer-pre NAME forces one of them");
    parts_.pre = *pre;
    if (!force_pre.empty() && force_pre != vocabulary_.pre)
        warn("split rule " + std::string(force_pre) + " is forced; the file says '" + vocabulary_.pre + "'");
    if (!pre->verified)
        warn("split rule '" + std::string(name) + "' was never checked against its model; qwen2's is used");
    return {};
}

Result<void> Builder::take_tokens() {
    if (vocabulary_.tokens.empty()) return refuse("tokenizer.ggml.tokens is missing or empty");
    const size_t count = vocabulary_.tokens.size();
    if (!vocabulary_.types.empty() && vocabulary_.types.size() < count)
        return refuse("tokenizer.ggml.token_type has " + std::to_string(vocabulary_.types.size()) + " entries for " +
                      std::to_string(count) + " tokens");
    if (vocabulary_.merges.empty()) return refuse("tokenizer.ggml.merges is missing or empty");
    if (vocabulary_.merges.size() > size_t{1} << 28) return refuse("tokenizer.ggml.merges is too long to be real");

    STRATA_TRY_ASSIGN(parts_.strings, TokenStrings::make(vocabulary_.tokens, vocabulary_.source));
    parts_.types.assign(count, TokenType::normal);
    for (size_t i = 0; i < count && i < vocabulary_.types.size(); ++i) {
        const int32_t type = vocabulary_.types[i];
        if (type >= 1 && type <= 6) parts_.types[i] = static_cast<TokenType>(type);
    }
    symbols_ = parts_.strings.size();
    return {};
}

std::optional<int32_t> Builder::checked_id(const std::optional<int64_t>& id, const char* name) {
    if (!id) return std::nullopt;
    if (*id >= 0 && *id < parts_.strings.size()) return static_cast<int32_t>(*id);
    warn(std::string("tokenizer.ggml.") + name + " is " + std::to_string(*id) + ", outside the vocabulary of " +
         std::to_string(parts_.strings.size()) + "; taken as absent");
    return std::nullopt;
}

void Builder::find_ids() {
    parts_.bos = checked_id(vocabulary_.bos, "bos_token_id");
    parts_.eos = checked_id(vocabulary_.eos, "eos_token_id");
    parts_.padding = checked_id(vocabulary_.padding, "padding_token_id");
    parts_.unknown = checked_id(vocabulary_.unknown, "unknown_token_id");
    const bool gemma = parts_.kind == TokenizerKind::gemma4;
    parts_.adds_bos = parts_.bos && (gemma || vocabulary_.add_bos.value_or(parts_.pre.adds_bos));
    parts_.adds_eos = parts_.eos && vocabulary_.add_eos.value_or(false);
    for (const int64_t id : vocabulary_.suppressed)
        if (id >= 0 && id < parts_.strings.size()) parts_.suppressed.push_back(static_cast<int32_t>(id));
    std::sort(parts_.suppressed.begin(), parts_.suppressed.end());
    parts_.suppressed.erase(std::unique(parts_.suppressed.begin(), parts_.suppressed.end()), parts_.suppressed.end());
}

void Builder::find_ends() {
    std::vector<int32_t>& ends = parts_.ends;
    const auto marker = [&](std::string_view text) -> int32_t {
        const int32_t id = parts_.strings.find(text);
        return id >= 0 && is_marker(parts_.types[static_cast<size_t>(id)]) ? id : -1;
    };
    const auto add = [&](const std::optional<int64_t>& id, const char* name) {
        if (const auto checked = checked_id(id, name)) ends.push_back(*checked);
    };
    // Only markers: Qwen's vocabularies have an ordinary token spelled </s>.
    const auto add_texts = [&](std::span<const std::string_view> texts) {
        for (const std::string_view text : texts)
            if (const int32_t id = marker(text); id >= 0) ends.push_back(id);
    };
    const auto add_by_key_or_texts = [&](const std::optional<int64_t>& id, const char* name,
                                         std::span<const std::string_view> texts) {
        if (id) {
            add(id, name);
        } else {
            add_texts(texts);
        }
    };

    if (parts_.eos) ends.push_back(*parts_.eos);
    add(vocabulary_.eot, "eot_token_id");
    add(vocabulary_.eom, "eom_token_id");
    for (const int64_t id : vocabulary_.more_ends) add(id, "eos_token_ids");
    add_texts(end_texts);
    add_by_key_or_texts(vocabulary_.fim_pad, "fim_pad_token_id", fim_pad_texts);
    add_by_key_or_texts(vocabulary_.fim_repository, "fim_rep_token_id", fim_repository_texts);
    add_by_key_or_texts(vocabulary_.fim_separator, "fim_sep_token_id", fim_separator_texts);

    if ((marker("<|return|>") >= 0 && marker("<|call|>") >= 0) ||
        (marker("<|calls|>") >= 0 && marker("<|flush|>") >= 0))
        std::erase(ends, marker("<|end|>"));
    if (marker("<|tool_response>") >= 0) std::erase(ends, marker("</s>"));

    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    for (const int32_t id : ends) parts_.types[static_cast<size_t>(id)] = TokenType::control;
}

Result<void> Builder::add_specials() {
    constexpr size_t longest = 1024;  // bounds the work at each place of a text
    for (int32_t id = 0; id < parts_.strings.size(); ++id) {
        const TokenType type = parts_.types[static_cast<size_t>(id)];
        const std::string_view text = parts_.strings[id];
        parts_.longest_token = std::max(parts_.longest_token, text.size());
        if (!is_special(type)) continue;
        if (text.size() > longest)
            return refuse("special token " + std::to_string(id) + " is " + std::to_string(text.size()) +
                          " bytes long; at most " + std::to_string(longest) + " can be");
        parts_.specials.add(text, id, type == TokenType::user_defined);
    }
    return {};
}

Result<void> Builder::find_alphabet_bytes() {
    for (int byte = 0; byte < 256; ++byte) {
        std::string shown;
        append_utf8(shown, byte_alphabet().code_point(static_cast<uint8_t>(byte)));
        parts_.byte_ids[byte] = parts_.strings.find(shown);
        if (parts_.byte_ids[byte] < 0)
            return refuse("the vocabulary has no token '" + shown + "' for byte " + std::to_string(byte) +
                          "; a byte-level one must have all 256");
    }
    return {};
}

Result<void> Builder::find_gemma_bytes() {
    for (int byte = 0; byte < 256; ++byte) {
        constexpr char digits[] = "0123456789ABCDEF";
        const std::string name = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        parts_.byte_ids[byte] = parts_.strings.find(name);
        if (parts_.byte_ids[byte] < 0) return refuse("the vocabulary has no byte token " + name);
        parts_.types[static_cast<size_t>(parts_.byte_ids[byte])] = TokenType::byte;
    }
    return {};
}

void Builder::make_pieces() {
    const bool gemma = parts_.kind == TokenizerKind::gemma4;
    size_t bytes = 0;
    for (int32_t id = 0; id < parts_.strings.size(); ++id) bytes += parts_.strings[id].size();
    parts_.pieces.reserve(static_cast<size_t>(parts_.strings.size()), bytes);
    std::vector<int> byte_of(gemma ? static_cast<size_t>(parts_.strings.size()) : 0, -1);
    if (gemma)
        for (int byte = 0; byte < 256; ++byte) byte_of[static_cast<size_t>(parts_.byte_ids[byte])] = byte;

    std::string piece;
    for (int32_t id = 0; id < parts_.strings.size(); ++id) {
        const std::string_view text = parts_.strings[id];
        const TokenType type = parts_.types[static_cast<size_t>(id)];
        piece.clear();
        if (type == TokenType::unused) {
        } else if (is_special(type)) {
            piece = text;
        } else if (!gemma) {
            byte_alphabet().read(text, piece);
        } else if (const int byte = byte_of[static_cast<size_t>(id)]; byte >= 0) {
            piece = static_cast<char>(byte);
        } else {
            size_t from = 0;
            for (size_t at; (at = text.find(shown_space, from)) != text.npos; from = at + shown_space.size()) {
                piece += text.substr(from, at - from);
                piece += ' ';
            }
            piece += text.substr(from);
        }
        parts_.pieces.add(piece);
    }
}

/// The bytes that a symbol stands for while merging: `gemma4` merges the text as it is stored.
std::string_view Builder::bytes_of(int32_t symbol, std::string_view stored) const {
    return parts_.kind == TokenizerKind::gemma4 ? stored : parts_.pieces[static_cast<size_t>(symbol)];
}

/// The symbol of one side of a merge, whose token is `id` or -1. A `gemma4` character that is no token gets a number
/// above the vocabulary.
int32_t Builder::symbol_of(std::string_view text, int32_t id) {
    if (id >= 0 || parts_.kind != TokenizerKind::gemma4 || text.empty()) return id;
    const CodePoint c = decode_utf8(text, 0);
    if (!c.valid || c.size != text.size()) return -1;
    const int32_t known = parts_.characters.find(c.value);
    if (known >= 0) return known;
    parts_.characters.set(c.value, symbols_);
    return symbols_++;
}

void Builder::add_merges() {
    const bool gemma = parts_.kind == TokenizerKind::gemma4;
    if (gemma) {
        for (int32_t id = 0; id < parts_.strings.size(); ++id) {
            const std::string_view text = parts_.strings[id];
            if (text.size() > 4) continue;
            const CodePoint c = decode_utf8(text, 0);
            if (c.valid && c.size == text.size()) parts_.characters.set(c.value, id);
        }
    }
    parts_.merges = MergeTable(vocabulary_.merges.size());
    // In blocks, so that the look-ups of many merges wait for memory together.
    constexpr size_t block = 64;
    std::string joined;
    std::vector<std::string_view> texts;  // left, right and joined symbols of a block's merges
    int32_t ids[3 * block];
    size_t dropped = 0;
    for (size_t first = 0; first < vocabulary_.merges.size(); first += block) {
        const size_t count = std::min(block, vocabulary_.merges.size() - first);
        const auto merges = std::span(vocabulary_.merges).subspan(first, count);
        size_t bytes = 0;
        for (const std::string_view merge : merges) bytes += merge.size();
        joined.clear();
        joined.reserve(bytes);
        texts.clear();
        for (const std::string_view merge : merges) {
            const size_t space = std::min(merge.find(' ', 1), merge.size());
            const std::string_view left = merge.substr(0, space);
            const std::string_view right = space < merge.size() ? merge.substr(space + 1) : std::string_view();
            const size_t begin = joined.size();
            joined.append(left).append(right);
            texts.insert(texts.end(), {left, right, std::string_view(joined).substr(begin)});
        }
        parts_.strings.find(texts, ids);
        for (size_t i = 0; i < count; ++i) {
            const std::string_view left = texts[3 * i], right = texts[3 * i + 1];
            const int32_t joined_id = left.empty() || right.empty() ? -1 : ids[3 * i + 2];
            const int32_t left_id = joined_id < 0 ? -1 : symbol_of(left, ids[3 * i]);
            const int32_t right_id = left_id < 0 ? -1 : symbol_of(right, ids[3 * i + 1]);
            if (right_id < 0) {
                ++dropped;
                continue;
            }
            parts_.merges.add(left_id, right_id, static_cast<uint32_t>(first + i), joined_id);
            parts_.joints.add(bytes_of(left_id, left), bytes_of(right_id, right));
        }
    }
    if (dropped > 0)
        warn(std::to_string(dropped) + " of " + std::to_string(vocabulary_.merges.size()) +
             " merges are not of tokens or lead to none; they are ignored");
}

}  // namespace

Result<Tokenizer> Tokenizer::make(const Vocabulary& vocabulary, std::string_view force_pre) {
    auto parts = std::make_unique<TokenizerParts>();
    STRATA_TRY(Builder(vocabulary, *parts).build(force_pre));
    return Tokenizer(std::move(parts));
}

// --- using ---

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
    parts_->encode(text, options, ids);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 2 + 4);  // more than most texts have; memory that is not used is never touched
    encode(text, options, ids);
    return ids;
}

std::string_view Tokenizer::piece(int32_t id, bool show_special) const {
    const TokenType type = this->type(id);
    if (type == TokenType::unused) return {};
    if (!show_special && (type == TokenType::control || type == TokenType::unknown)) return {};
    return parts_->pieces[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_special) const {
    std::string bytes;
    for (const int32_t id : ids) bytes += piece(id, show_special);
    return bytes;
}

TokenizerKind Tokenizer::kind() const {
    return parts_->kind;
}
std::string_view Tokenizer::kind_name() const {
    return kind() == TokenizerKind::gemma4 ? "gemma4" : "gpt2";
}
std::string_view Tokenizer::split_rule() const {
    return parts_->pre.name;
}
int32_t Tokenizer::vocab_size() const {
    return parts_->strings.size();
}

std::optional<int32_t> Tokenizer::bos() const {
    return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos() const {
    return parts_->eos;
}
std::optional<int32_t> Tokenizer::padding() const {
    return parts_->padding;
}
std::optional<int32_t> Tokenizer::unknown() const {
    return parts_->unknown;
}
bool Tokenizer::adds_bos() const {
    return parts_->adds_bos;
}
bool Tokenizer::adds_eos() const {
    return parts_->adds_eos;
}
std::string_view Tokenizer::bos_text() const {
    return bos() ? parts_->strings[*bos()] : std::string_view();
}
std::string_view Tokenizer::eos_text() const {
    return eos() ? parts_->strings[*eos()] : std::string_view();
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
    return std::binary_search(parts_->ends.begin(), parts_->ends.end(), id);
}
const std::vector<int32_t>& Tokenizer::end_of_generation() const {
    return parts_->ends;
}
const std::vector<int32_t>& Tokenizer::suppressed() const {
    return parts_->suppressed;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view text) const {
    int32_t id = parts_->strings.find(text);
    if (id >= 0 && is_special(type(id))) return id;
    if (kind() == TokenizerKind::byte_level_bpe) {
        std::string shown;
        byte_alphabet().show(text, shown);
        id = parts_->strings.find(shown);
    } else {
        std::string escaped;
        for (const char c : text) c == ' ' ? escaped.append(shown_space) : escaped.append(1, c);
        id = parts_->strings.find(escaped);
    }
    return id >= 0 ? std::optional(id) : std::nullopt;
}

TokenType Tokenizer::type(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return TokenType::unused;
    return parts_->types[static_cast<size_t>(id)];
}

const std::vector<std::string>& Tokenizer::warnings() const {
    return parts_->warnings;
}

}  // namespace strata
