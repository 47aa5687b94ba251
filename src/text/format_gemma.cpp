// Gemma 4: turns with a thought channel, calls in a notation of their own.
//
//   <|tool_call>call:NAME{key:<|"|>text<|"|>,list:[1,2],object:{key:true}}<tool_call|>
#include <algorithm>

#include "text/chat_dialect.h"
#include "text/grammar_calls.h"
#include "text/json_lenient.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr std::string_view kOpener = "<|tool_call>", kEnd = "<tool_call|>", kQuote = "<|\"|>", kCall = "call:";
constexpr int kMaxDepth = 64;

/// Reads a block up to its end mark. Marks inside of strings do not count, and a string's delimiter ends it only where
/// a value can end: the same token also spells a quote (") in the middle of a text.
class GemmaValues {
  public:
    GemmaValues(std::string_view text, bool ended) : text_(text), ended_(ended) {}

    enum class Outcome : uint8_t { ok, more, bad };

    static bool is_key_character(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
               c == '.' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
    }

    Outcome call(std::string& name, Json& arguments, size_t& used) {
        Match match = starts_with_mark(text_, kCall);
        if (match != Match::yes) return match == Match::more && !ended_ ? Outcome::more : Outcome::bad;
        at_ = kCall.size();
        size_t open = text_.find_first_of("{<", at_);
        name = text_.substr(at_, std::min(open, text_.size()) - at_);
        while (!name.empty() && is_blank(name.back())) name.pop_back();
        if (!is_tool_name(name) || name.size() > 256) return open == npos && !ended_ ? Outcome::more : Outcome::bad;
        if (open == npos) return ended_ ? Outcome::bad : Outcome::more;
        if (text_[open] == '<') return Outcome::bad;
        at_ = open + 1;
        Outcome outcome = object(arguments, 0);
        if (outcome != Outcome::ok) return outcome;
        skip_space();
        Match end = starts_with_mark(text_.substr(at_), kEnd);
        if (end == Match::more && !ended_) return Outcome::more;
        if (end == Match::yes) {
            at_ += kEnd.size();
        } else if (at_ < text_.size()) {
            return Outcome::bad;
        }
        used = at_;
        return Outcome::ok;
    }

  private:
    void skip_space() { at_ = skip_blanks(text_, at_); }

    /// What every place between values has in common: the end mark or the text's end close everything (Match::yes).
    Match at_end() {
        skip_space();
        if (at_ >= text_.size()) return ended_ ? Match::yes : Match::more;
        Match end = starts_with_mark(text_.substr(at_), kEnd);
        return end == Match::more && ended_ ? Match::no : end;
    }

    Outcome object(Json& members, int depth) {
        members = Json::object();
        if (depth > kMaxDepth) return Outcome::bad;
        while (true) {
            Match end = at_end();
            if (end == Match::more) return Outcome::more;
            if (end == Match::yes) return Outcome::ok;
            if (text_[at_] == '}') {
                ++at_;
                return Outcome::ok;
            }
            if (text_[at_] == ',') {
                ++at_;
                continue;
            }
            std::string key;
            if (Outcome outcome = read_key(key); outcome != Outcome::ok) return outcome;
            Json member;
            if (Outcome outcome = value(member, true, depth + 1); outcome != Outcome::ok) return outcome;
            members[key] = std::move(member);
        }
    }

    Outcome array(Json& items, int depth) {
        items = Json::array();
        if (depth > kMaxDepth) return Outcome::bad;
        while (true) {
            Match end = at_end();
            if (end == Match::more) return Outcome::more;
            if (end == Match::yes) return Outcome::ok;
            if (text_[at_] == ']') {
                ++at_;
                return Outcome::ok;
            }
            if (text_[at_] == ',') {
                ++at_;
                continue;
            }
            if (text_[at_] == '}') return Outcome::bad;
            Json item;
            if (Outcome outcome = value(item, false, depth + 1); outcome != Outcome::ok) return outcome;
            items.push_back(std::move(item));
        }
    }

    Outcome read_key(std::string& key) {
        std::string_view rest = text_.substr(at_);
        for (std::string_view quote : {kQuote, std::string_view("\"")}) {
            Match match = starts_with_mark(rest, quote);
            if (match == Match::more && !ended_) return Outcome::more;
            if (match != Match::yes) continue;
            size_t end = rest.find(quote, quote.size());
            if (end == npos) return ended_ ? Outcome::bad : Outcome::more;
            key = rest.substr(quote.size(), end - quote.size());
            at_ += end + quote.size();
            skip_space();
            if (at_ >= text_.size()) return ended_ ? Outcome::bad : Outcome::more;
            if (text_[at_] != ':') return Outcome::bad;
            ++at_;
            return Outcome::ok;
        }
        size_t end = rest.find_first_of(":,{}[]<\"");
        if (end == npos) return ended_ ? Outcome::bad : Outcome::more;
        if (rest[end] != ':' || end == 0) return Outcome::bad;
        key = rest.substr(0, end);
        while (!key.empty() && is_blank(key.back())) key.pop_back();
        at_ += end + 1;
        return Outcome::ok;
    }

    Outcome value(Json& out, bool in_object, int depth) {
        skip_space();
        std::string_view rest = text_.substr(at_);
        if (rest.empty()) return ended_ ? Outcome::bad : Outcome::more;
        if (rest[0] == '{' || rest[0] == '[') {
            ++at_;
            return rest[0] == '{' ? object(out, depth) : array(out, depth);
        }
        Match quote = starts_with_mark(rest, kQuote);
        if (quote == Match::more && !ended_) return Outcome::more;
        if (quote == Match::yes) return quoted(out, in_object);
        if (rest[0] == '"') {
            size_t end = 1;
            while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
            if (end >= rest.size()) return ended_ ? Outcome::bad : Outcome::more;
            auto text = read_lenient_json(rest.substr(0, end + 1));
            if (!text) return Outcome::bad;
            out = std::move(*text);
            at_ += end + 1;
            return Outcome::ok;
        }
        // A number, a word of JSON or a bare word.
        size_t end = 0;
        for (; end < rest.size() && std::string_view(",}]").find(rest[end]) == npos; ++end) {
            if (rest[end] != '<') continue;
            Match mark = starts_with_mark(rest.substr(end), kEnd);
            if (mark == Match::more && !ended_) return Outcome::more;
            if (mark == Match::yes) break;
        }
        if (end == rest.size() && !ended_) return Outcome::more;
        std::string_view word = rest.substr(0, end);
        while (!word.empty() && is_blank(word.back())) word.remove_suffix(1);
        auto json = parse_json(word);
        out = json.ok() && !json->is_string() ? std::move(*json) : word == "None" ? Json() : Json(std::string(word));
        at_ += end;
        return Outcome::ok;
    }

    Outcome quoted(Json& out, bool in_object) {
        size_t start = at_ + kQuote.size();
        for (size_t end = start; (end = text_.find(kQuote, end)) != npos; end += 1) {
            Match closes = can_end(end + kQuote.size(), in_object);
            if (closes == Match::more) return Outcome::more;
            if (closes == Match::no) continue;
            std::string text(text_.substr(start, end - start));
            for (size_t at = 0; (at = text.find(kQuote, at)) != npos; ++at) text.replace(at, kQuote.size(), "\"");
            out = std::move(text);
            at_ = end + kQuote.size();
            return Outcome::ok;
        }
        return ended_ ? Outcome::bad : Outcome::more;
    }

    /// Whether a value can end before this place.
    Match can_end(size_t place, bool in_object) {
        place = skip_blanks(text_, place);
        std::string_view rest = text_.substr(place);
        if (rest.empty()) return ended_ ? Match::yes : Match::more;
        if (rest[0] == '}' || rest[0] == ']') return Match::yes;
        Match end = starts_with_mark(rest, kEnd);
        if (end == Match::yes || (end == Match::more && !ended_)) return end;
        if (rest[0] != ',') return Match::no;
        size_t next = skip_blanks(rest, 1);
        std::string_view follows = rest.substr(next);
        if (follows.empty()) return ended_ ? Match::yes : Match::more;
        if (in_object) {  // a comma and a key
            if (Match quote = starts_with_mark(follows, kQuote); quote == Match::more && !ended_) return Match::more;
            if (follows.starts_with(kQuote) || follows[0] == '"') return Match::yes;
            size_t colon = 0;
            while (colon < follows.size() && is_key_character(follows[colon])) ++colon;
            if (colon == follows.size()) return ended_ ? Match::no : Match::more;
            return colon > 0 && follows[colon] == ':' ? Match::yes : Match::no;
        }
        if (Match quote = starts_with_mark(follows, kQuote); quote != Match::no) {
            return quote == Match::more && ended_ ? Match::no : quote;
        }
        return std::string_view("{[\"-0123456789tfn").find(follows[0]) != npos ? Match::yes : Match::no;
    }

    std::string_view text_;
    bool ended_;
    size_t at_ = 0;
};

class GemmaReader final : public CallReader {
  public:
    Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) override {
        if (ended) return read_to(block, true, out);
        // The block is read again when another end mark has come, and up to it: what is behind may have come with it or
        // not. Only its first bytes can refuse it before.
        if (starts_with_mark(block.substr(0, kCall.size()), kCall) == Match::no) return Progress::refused;
        for (size_t end; (end = block.find(kEnd, scan_)) != npos;) {
            scan_ = end + 1;
            const Progress progress = read_to(block.substr(0, end + kEnd.size()), false, out);
            if (progress != Progress::more) return progress;
        }
        scan_ = std::max(scan_, block.size() - begun_mark(block, kEnd));
        return Progress::more;
    }

  private:
    Progress read_to(std::string_view block, bool ended, std::vector<AnswerEvent>& out) {
        std::string name;
        Json arguments;
        size_t used = 0;
        switch (GemmaValues(block, ended).call(name, arguments, used)) {
            case GemmaValues::Outcome::more: return Progress::more;
            case GemmaValues::Outcome::bad: return Progress::refused;
            case GemmaValues::Outcome::ok: break;
        }
        writer_.write_to(out);
        writer_.whole(name, arguments);
        used_ = used;
        return Progress::done;
    }

    size_t scan_ = 0;
};

class Gemma final : public Dialect {
  public:
    std::string_view name() const override { return "gemma"; }
    std::string_view reasoning_opener() const override { return "<|channel>"; }
    std::string_view reasoning_closer() const override { return "<channel|>"; }
    std::string_view channel_name() const override { return "thought"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {kOpener};
        return all;
    }
    std::string_view invented_result() const override { return "<|tool_response>"; }

    std::unique_ptr<CallReader> reader(std::string_view, bool, const ToolSet&) const override {
        return std::make_unique<GemmaReader>();
    }
    Match declared(std::string_view text, const ToolSet& tools) const override {
        Match match = starts_with_mark(text, kCall);
        if (match != Match::yes) return match;
        size_t open = text.find('{', kCall.size());
        if (open == npos) return text.size() > 256 ? Match::no : Match::more;
        return tools.find(text.substr(kCall.size(), open - kCall.size())) ? Match::yes : Match::no;
    }

    std::string_view close_reasoning() const override { return "\n<channel|>"; }
    std::string_view open_reasoning() const override { return "<|channel>thought\n"; }
    std::string forced_call(std::string_view name) const override {
        std::string text = "<|tool_call>call:";
        if (!name.empty()) text.append(name).append("{");
        return text;
    }
    /// Texts between their marks; other values as JSON, which the notation takes in.
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        for (const std::string& key : tool.parameter_names()) {
            if (key.empty() || !std::all_of(key.begin(), key.end(), GemmaValues::is_key_character))
                return Error{ErrorKind::failed, "'" + key + "' cannot be written as a key", "unsupported_schema"};
        }
        const ParameterShape shape{
            .before = [](const std::string& key,
                         bool is_text) { return key + ":" + (is_text ? std::string(kQuote) : ""); },
            .separator = ",",
            .text_after = std::string(kQuote)};
        STRATA_TRY_ASSIGN(const auto at, add_parameters(builder, from, tool, shape));
        return builder.literal(at, "}" + std::string(kEnd));
    }

    /// Older templates know results only as a list on the message that called.
    void prepare(TemplateInput& input) const override {
        if (input.source.find("OpenAI Chat Completions") != npos || !input.messages.is_array()) return;
        Json folded = Json::array();
        for (Json& message : input.messages) {
            std::string role = message.value("role", "");
            bool after_results = !folded.empty() && folded.back().contains("tool_responses");
            if (role == "tool" && !folded.empty() && folded.back().value("role", "") == "assistant") {
                Json response = message["content"];
                if (response.is_string()) {
                    auto object = parse_json(response.get_ref<const std::string&>());
                    if (object.ok() && object->is_object()) response = std::move(*object);
                }
                folded.back()["tool_responses"].push_back(
                    {{"name", message.value("name", "")}, {"response", response}});
            } else if (role == "assistant" && after_results && !message.contains("tool_calls") &&
                       folded.back().value("content", Json("")) == "") {
                folded.back()["content"] = message["content"];
            } else {
                folded.push_back(std::move(message));
            }
        }
        input.messages = std::move(folded);
    }

    void complete(std::string& prompt) const override {
        if (prompt.ends_with("<turn|>\n")) prompt += "<|turn>model\n";
    }
};

}  // namespace

const Dialect& gemma_dialect() {
    static const Gemma dialect;
    return dialect;
}

}  // namespace strata
