// polystrata tokenize: text to ids and back.

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "cli/command.h"
#include "gguf/file.h"
#include "text/tokenizer.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags model;
    std::string text;
    std::string decode;
    std::string pre;
    bool no_special = false;
    bool keep_bytes = false;
    bool json = false;
};

/// Ids separated by commas or white space.
Result<std::vector<int32_t>> parse_ids(std::string_view text, int32_t vocabulary) {
    std::vector<int32_t> ids;
    size_t at = 0;
    for (;;) {
        at = text.find_first_not_of(", \t\r\n", at);
        if (at == std::string_view::npos) return ids;
        const size_t end = std::min(text.find_first_of(", \t\r\n", at), text.size());
        int32_t id = -1;
        const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
        if (error != std::errc{} || stop != text.data() + end)
            return usage_error("--decode: '" + std::string(text.substr(at, end - at)) + "' is no token id");
        if (id < 0 || id >= vocabulary)
            return usage_error("--decode: token id " + std::to_string(id) + " is outside the vocabulary (0 to " +
                               std::to_string(vocabulary - 1) + ")");
        ids.push_back(id);
        at = end;
    }
}

/// Ids with the text each stands for.
std::string pieces_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back({{"id", id}, {"text", std::string(tokenizer.piece(id, true))}});
    return json_text({{"ids", ids}, {"pieces", std::move(pieces)}});
}

Outcome run(const Flags& flags, bool text_given, bool decode_given) {
    STRATA_TRY_ASSIGN(const ModelEntry entry, flags.model.resolve());
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(entry.path));
    STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(file, flags.pre));
    for (const std::string& warning : tokenizer.warnings()) std::fprintf(stderr, "%s\n", warning.c_str());
    std::string out;
    if (decode_given) {
        STRATA_TRY_ASSIGN(const std::vector<int32_t> ids, parse_ids(flags.decode, tokenizer.vocab_size()));
        out = flags.json ? pieces_json(tokenizer, ids) : tokenizer.decode(ids, true);
    } else {
        const std::string text = text_given ? flags.text : read_standard_input();
        EncodeOptions options;
        options.parse_special = !flags.no_special;
        options.invalid_utf8 = flags.keep_bytes ? InvalidUtf8::keep : InvalidUtf8::replace;
        options.add_special = flags.no_special ? AddSpecial::none : AddSpecial::once;
        const std::vector<int32_t> ids = tokenizer.encode(text, options);
        if (flags.json) {
            out = pieces_json(tokenizer, ids);
        } else {
            for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
        }
    }
    out += '\n';
    std::fwrite(out.data(), 1, out.size(), stdout);
    return 0;
}

}  // namespace

Run declare_tokenize(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->model.add(set).required();
    const Flag text = set.text("--text", flags->text, "The text (default: standard input)");
    set.toggle("--no-special", flags->no_special,
               "Special tokens spelled in the text stay text, and none is put in front");
    set.toggle("--keep-bytes", flags->keep_bytes,
               "Bytes that are not UTF-8 become their byte tokens, so that they come back (default: U+FFFD)");
    set.text("--tokenizer-pre", flags->pre, "A split rule instead of the file's", "NAME");
    const Flag decode =
        set.text("--decode", flags->decode, "Token ids, separated by commas or spaces: print their text", "IDS")
            .excludes(text);
    set.toggle("--json", flags->json, "Print ids and pieces as JSON");
    return [flags, text, decode] { return run(*flags, text.given(), decode.given()); };
}

}  // namespace strata::cli
