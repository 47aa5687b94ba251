// LFM2 and LFM2.5: calls as a list of Python calls.
//
//   <|tool_call_start|>[NAME(key='text', key=1), NAME2()]<|tool_call_end|>
#include "text/chat_dialect.h"
#include "text/grammar_calls.h"
#include "text/json_lenient.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr std::string_view kEnd = "<|tool_call_end|>";
constexpr std::string_view kNameMarks = ".-/:";  // in a name besides letters, digits and underscores

/// Whether the text, behind white space, goes on with `NAME` and then the mark.
bool is_name_and(std::string_view text, char mark) {
    LenientReader reader(text);
    reader.skip_space();
    return !reader.word(kNameMarks).empty() && reader.accept(mark);
}

/// The models are trained on strings whose quotes are not escaped. A quote ends its string only before something that
/// can follow a value: `, name=`, a comma and an opening bracket or quote, a closing bracket, or `)` and the next call
/// or the end.
bool ends_string(std::string_view after, bool is_key) {
    LenientReader reader(after);
    reader.skip_space();
    if (reader.ended()) return true;
    if (is_key) return reader.peek() == ':';
    char c = reader.peek();
    ++reader.at;
    if (c == ']' || c == '}') return true;
    if (c == ',') {
        if (is_name_and(reader.rest(), '=')) return true;
        reader.skip_space();
        return std::string_view("([{'\"").find(reader.peek()) != npos && !reader.ended();
    }
    if (c != ')') return false;
    if (reader.accept(',')) return is_name_and(reader.rest(), '(');
    reader.accept(']');
    reader.skip_space();
    return reader.ended();
}

struct ReadCall {
    std::string name;
    Json arguments = Json::object();
};

std::optional<std::vector<ReadCall>> read_calls(std::string_view text, const ToolSet& tools, bool loose) {
    LenientReader reader(text);
    if (loose) reader.ends_string = ends_string;
    reader.may_lack_brackets = true;
    bool brackets = reader.accept('[');
    std::vector<ReadCall> calls;
    while (true) {
        reader.skip_space();
        ReadCall call;
        call.name = reader.word(kNameMarks);
        if (!is_tool_name(call.name) || !reader.accept('(')) return std::nullopt;
        const Tool* tool = tools.find(call.name);
        auto names = tool ? tool->parameter_names() : std::vector<std::string>();
        size_t place = 0;
        while (!reader.accept(')')) {
            if (reader.ended()) break;  // its closing brackets are missing
            size_t start = reader.at;
            std::string key(reader.word());
            if (key.empty() || !reader.accept('=')) {  // by position
                reader.at = start;
                if (place >= names.size()) return std::nullopt;
                key = names[place++];
            }
            auto value = reader.value();
            if (!value) return std::nullopt;
            call.arguments[key] = std::move(*value);
            if (reader.accept(',')) continue;
            reader.skip_space();
            if (reader.peek() != ')' && !reader.ended()) return std::nullopt;
        }
        calls.push_back(std::move(call));
        if (reader.accept(',')) {
            reader.skip_space();
            if (!reader.ended() && reader.peek() != ']') continue;
        }
        if (brackets) reader.accept(']');
        reader.skip_space();
        if (!reader.ended()) return std::nullopt;
        return calls;
    }
}

class LfmReader final : public CallReader {
  public:
    explicit LfmReader(const ToolSet& tools) : tools_(tools) {}

    Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) override {
        size_t end = block.find(kEnd, scan_);
        if (end == npos && !ended) {
            scan_ = block.size() - begun_mark(block, kEnd);
            return Progress::more;
        }
        std::string_view body = block.substr(0, end);
        auto calls = read_calls(body, tools_, false);
        if (!calls) calls = read_calls(body, tools_, true);
        if (!calls) return Progress::refused;
        writer_.write_to(out);
        for (const ReadCall& call : *calls) writer_.whole(call.name, call.arguments);
        used_ = end == npos ? block.size() : end + kEnd.size();
        return Progress::done;
    }

  private:
    const ToolSet& tools_;
    size_t scan_ = 0;
};

class Lfm final : public Dialect {
  public:
    std::string_view name() const override { return "lfm"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {"<|tool_call_start|>"};
        return all;
    }

    std::unique_ptr<CallReader> reader(std::string_view, bool, const ToolSet& tools) const override {
        return std::make_unique<LfmReader>(tools);
    }
    Match declared(std::string_view text, const ToolSet& tools) const override {
        LenientReader reader(text);
        reader.skip_space();
        if (reader.ended()) return Match::more;
        if (!reader.accept('[')) return Match::no;
        reader.skip_space();
        std::string_view name = reader.word(kNameMarks);
        if (reader.ended()) return Match::more;
        return reader.peek() == '(' && tools.find(name) ? Match::yes : Match::no;
    }

    std::string forced_call(std::string_view name) const override {
        std::string text = "<|tool_call_start|>[";
        if (!name.empty()) text.append(name).append("(");
        return text;
    }
    /// Values as JSON, which Python's notation takes in; texts too, because quotes in them must be escaped.
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        for (const std::string& key : tool.parameter_names()) {
            if (LenientReader(key).word() != key)
                return Error{ErrorKind::failed, "'" + key + "' cannot be written as the name of an argument",
                             "unsupported_schema"};
        }
        const ParameterShape shape{.before = [](const std::string& key, bool) { return key + "="; },
                                   .separator = ", ",
                                   .text = ParameterShape::Text::json};
        STRATA_TRY_ASSIGN(const auto at, add_parameters(builder, from, tool, shape));
        return builder.literal(at, ")]" + std::string(kEnd));
    }
};

}  // namespace

const Dialect& lfm_dialect() {
    static const Lfm dialect;
    return dialect;
}

}  // namespace strata
