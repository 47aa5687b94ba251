// From text to ids (docs/tokenizers.md, the pipeline).
#include <algorithm>

#include "text/tokenizer_parts.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

/// Encodes the fragments of one text, which have no special tokens in them.
class FragmentEncoder {
  public:
    FragmentEncoder(const TokenizerParts& parts, Workspace& work, InvalidUtf8 invalid, std::vector<int32_t>& ids)
        : parts_(parts), work_(work), invalid_(invalid), ids_(ids) {}

    void encode(std::string_view text) {
        if (invalid_ == InvalidUtf8::replace && unicode::valid_prefix(text) < text.size()) {
            const std::string repaired = unicode::replace_invalid(text);
            encode_kind(repaired);
        } else {
            encode_kind(text);
        }
    }

  private:
    void encode_kind(std::string_view text) {
        if (parts_.kind == TokenizerKind::gemma4) {
            encode_gemma(text);
        } else {
            encode_byte_level(text);
        }
    }

    // --- gpt2 ---

    void encode_byte_level(std::string_view text) {
        constexpr size_t block = 64 << 10;  // keeps what is worked on in the processor's caches
        while (text.size() > block) {
            const size_t edge = certain_edge(parts_.pre.rule, text, block);
            encode_block(text.substr(0, edge));
            text.remove_prefix(edge);
        }
        encode_block(text);
    }

    void encode_block(std::string_view text) {
        work_.ends.clear();
        split(parts_.pre.rule, text, work_.ends, work_.scratch);
        size_t begin = 0;
        for (const size_t end : work_.ends) {
            const std::string_view piece = text.substr(begin, end - begin);
            if (piece.size() == 1) {
                ids_.push_back(parts_.byte_ids[static_cast<uint8_t>(piece[0])]);
            } else if (piece.size() <= PieceCache::most_bytes) {
                cached(piece, 0, [this](std::string_view p) {
                    if (!take_whole(p)) merge_bytes(p);
                });
            } else if (!take_whole(piece)) {
                for_parts(piece, [this](std::string_view part) {
                    cached(part, PieceCache::part, [this](std::string_view p) { merge_bytes(p); });
                });
            }
            begin = end;
        }
    }

    /// Where the rule says so, a piece that is a token is that token, whatever merging would give.
    bool take_whole(std::string_view piece) {
        if (!parts_.pre.ignore_merges || piece.size() > parts_.longest_token) return false;
        work_.shown.clear();
        byte_alphabet().show(piece, work_.shown);
        const int32_t id = parts_.strings.find(work_.shown);
        if (id >= 0) ids_.push_back(id);
        return id >= 0;
    }

    void merge_bytes(std::string_view piece) {
        work_.symbols.resize(piece.size());
        for (uint32_t i = 0; i < piece.size(); ++i)
            work_.symbols[i] = {parts_.byte_ids[static_cast<uint8_t>(piece[i])], i};
        work_.merger.merge(parts_.merges, work_.symbols);
        for (const Symbol& symbol : work_.symbols) ids_.push_back(symbol.id);
    }

    // --- gemma4 ---

    void encode_gemma(std::string_view text) {
        while (!text.empty()) {
            const bool newlines = text[0] == '\n';
            const size_t end = newlines ? text.find_first_not_of('\n') : text.find('\n');
            const std::string_view run = text.substr(0, end);
            text.remove_prefix(run.size());
            if (!newlines) {
                encode_run(with_shown_spaces(run));
                continue;
            }
            const int32_t id = run.size() <= parts_.longest_token ? parts_.strings.find(run) : -1;
            if (id >= 0) {
                ids_.push_back(id);
            } else {
                encode_run(run);
            }
        }
    }

    std::string_view with_shown_spaces(std::string_view line) {
        std::string& shown = work_.line;
        shown.clear();
        while (true) {
            const size_t space = line.find(' ');
            shown += line.substr(0, space);
            if (space == line.npos) return shown;
            shown += shown_space;
            line.remove_prefix(space + 1);
        }
    }

    void encode_run(std::string_view run) {
        for_parts(run, [this](std::string_view part) {
            cached(part, 0, [this](std::string_view p) { merge_characters(p); });
        });
    }

    void merge_characters(std::string_view part) {
        work_.symbols.clear();
        for (size_t at = 0; at < part.size();) {
            const CodePoint c = decode_utf8(part, at);
            work_.symbols.push_back({c.valid ? parts_.characters.find(c.value) : -1, static_cast<uint32_t>(at)});
            at += c.size;
        }
        work_.merger.merge(parts_.merges, work_.symbols);
        for (size_t i = 0; i < work_.symbols.size(); ++i) {
            const Symbol symbol = work_.symbols[i];
            if (symbol.id >= 0 && symbol.id < parts_.strings.size()) {
                ids_.push_back(symbol.id);
                continue;
            }
            const size_t end = i + 1 < work_.symbols.size() ? work_.symbols[i + 1].begin : part.size();
            for (size_t at = symbol.begin; at < end; ++at)
                ids_.push_back(parts_.byte_ids[static_cast<uint8_t>(part[at])]);
        }
    }

    // --- both ---

    /// One merge problem in parts that no merge joins.
    template <class Encode>
    void for_parts(std::string_view text, Encode encode) {
        const char* const end = text.data() + text.size();
        const char* begin = text.data();
        CodePoint before = decode_utf8(begin, end);
        for (const char* at = begin + before.size; at < end; at += before.size) {
            const CodePoint after = decode_utf8(at, end);
            if (!parts_.joints.may_join(before, after, at)) {
                encode(std::string_view(begin, static_cast<size_t>(at - begin)));
                begin = at;
            }
            before = after;
        }
        encode(std::string_view(begin, static_cast<size_t>(end - begin)));
    }

    /// merge(piece), or what it gave the last time.
    template <class Merge>
    void cached(std::string_view piece, uint8_t part_or_0, Merge merge) {
        if (piece.size() > PieceCache::most_bytes) {
            // Symbols count places in 32 bits. No text of this size is anything but a test of limits.
            constexpr size_t longest = size_t{1} << 30;
            for (; piece.size() > longest; piece.remove_prefix(longest)) merge(piece.substr(0, longest));
            merge(piece);
            return;
        }
        PieceCache::Entry& entry = work_.cache.at(piece);
        if (PieceCache::holds(entry, piece, part_or_0)) {
            for (int i = 0; i < entry.ids; ++i) ids_.push_back(entry.id[i]);
            return;
        }
        const size_t first = ids_.size();
        merge(piece);
        const size_t count = ids_.size() - first;
        if (count > PieceCache::most_ids) return;
        entry.key = static_cast<uint8_t>(piece.size() | part_or_0);
        entry.ids = static_cast<uint8_t>(count);
        std::copy(piece.begin(), piece.end(), entry.piece);
        std::copy(ids_.begin() + static_cast<ptrdiff_t>(first), ids_.end(), entry.id);
    }

    const TokenizerParts& parts_;
    Workspace& work_;
    const InvalidUtf8 invalid_;
    std::vector<int32_t>& ids_;
};

}  // namespace

void TokenizerParts::encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
    const bool put_bos = adds_bos && options.add_special != AddSpecial::none;
    const bool put_eos = adds_eos && options.add_special != AddSpecial::none;
    if (put_bos) ids.push_back(*bos);
    const size_t first = ids.size();

    std::unique_ptr<Workspace> work = workspaces.take();
    FragmentEncoder fragments(*this, *work, options.invalid_utf8, ids);
    for (size_t at = 0; at < text.size();) {
        const SpecialTokens::Match special = specials.find(text, at, options.parse_special);
        if (special.begin > at) fragments.encode(text.substr(at, special.begin - at));
        if (special.id >= 0) ids.push_back(special.id);
        at = special.end;
    }
    workspaces.give_back(std::move(work));

    const bool once = options.add_special == AddSpecial::once;
    if (put_eos && !(once && ids.size() > first && ids.back() == *eos)) ids.push_back(*eos);
    if (put_bos && once && ids.size() > first && ids[first] == *bos)
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(first));
}

}  // namespace strata
