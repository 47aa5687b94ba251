// Kolibri 1 and older Qwen3: ChatML with calls as JSON objects.
//
//   <tool_call>
//   {"name": "NAME", "arguments": {..}}
//   </tool_call>
#include "text/chat_dialect.h"
#include "text/json_lenient.h"
#include "text/schema.h"

namespace strata {
namespace {

constexpr std::string_view kEnd = "</tool_call>";

/// One call of a block's JSON; false where it is none.
bool read_call(const Json& object, std::string& name, Json& arguments) {
    if (!object.is_object()) return false;
    if (object.contains("function") && object["function"].is_object())
        return read_call(object["function"], name, arguments);
    if (!object.contains("name") || !object["name"].is_string()) return false;
    name = object["name"].get<std::string>();
    if (!is_tool_name(name)) return false;
    arguments = object.contains("arguments")    ? object["arguments"]
                : object.contains("parameters") ? object["parameters"]
                                                : Json();
    if (arguments.is_string()) {
        auto inner = read_lenient_json(arguments.get_ref<const std::string&>());
        arguments = inner ? *inner : Json();
        if (!inner) return false;
    }
    if (arguments.is_null()) {
        // Missing arguments are none; a misspelt key must not make them vanish.
        for (const auto& [key, value] : object.items()) {
            if (key != "name" && key != "arguments" && key != "parameters" && key != "id" && key != "type")
                return false;
        }
        arguments = Json::object();
    }
    return arguments.is_object();
}

class JsonReader final : public CallReader {
  public:
    Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) override {
        writer_.write_to(out);
        size_t start = skip_blanks(block, 0);
        if (start < block.size() && block[start] != '{' && block[start] != '[') return Progress::refused;
        // The first closer outside of a string ends the block.
        for (; scan_ < block.size(); ++scan_) {
            char c = block[scan_];
            if (in_string_) {
                if (c == '\\') {
                    if (scan_ + 1 == block.size() && !ended) return Progress::more;
                    ++scan_;
                } else if (c == '"') {
                    in_string_ = false;
                }
                continue;
            }
            if (c == '"') in_string_ = true;
            if (c != '<') continue;
            Match end = starts_with_mark(block.substr(scan_), kEnd);
            if (end == Match::more && !ended) return Progress::more;
            if (end == Match::yes) return parse(block.substr(0, scan_), scan_ + kEnd.size());
        }
        if (!ended) return Progress::more;
        size_t plain = block.find(kEnd);
        if (plain != block.npos) return parse(block.substr(0, plain), plain + kEnd.size());
        return parse(block, block.size());
    }

  private:
    Progress parse(std::string_view body, size_t used) {
        auto json = read_lenient_json(body.substr(skip_blanks(body, 0)));
        if (!json) return Progress::refused;
        std::vector<std::pair<std::string, Json>> calls;
        auto add = [&](const Json& one) {
            std::string name;
            Json arguments;
            if (!read_call(one, name, arguments)) return false;
            calls.emplace_back(std::move(name), std::move(arguments));
            return true;
        };
        if (json->is_array()) {
            for (const Json& one : *json) {
                if (!add(one)) return Progress::refused;
            }
        } else if (!add(*json)) {
            return Progress::refused;
        }
        if (calls.empty()) return Progress::refused;
        for (const auto& [name, arguments] : calls) writer_.whole(name, arguments);
        used_ = used;
        return Progress::done;
    }

    size_t scan_ = 0;
    bool in_string_ = false;
};

class JsonCalls final : public Dialect {
  public:
    std::string_view name() const override { return "json"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {"<tool_call>"};
        return all;
    }
    std::string_view invented_result() const override { return "<tool_response>"; }

    std::unique_ptr<CallReader> reader(std::string_view, bool, const ToolSet&) const override {
        return std::make_unique<JsonReader>();
    }
    /// { "name" : "NAME"
    Match declared(std::string_view text, const ToolSet& tools) const override {
        size_t at = 0;
        for (std::string_view mark : {"{", "\"name\"", ":", "\""}) {
            at = skip_blanks(text, at);
            Match match = starts_with_mark(text.substr(at), mark);
            if (match != Match::yes) return match;
            at += mark.size();
        }
        size_t end = text.find('"', at);
        if (end == text.npos) return text.size() - at > 256 ? Match::no : Match::more;
        return tools.find(text.substr(at, end - at)) ? Match::yes : Match::no;
    }

    std::string_view close_reasoning() const override { return "\n</think>\n\n"; }
    std::string_view open_reasoning() const override { return "<think>\n"; }
    std::string forced_call(std::string_view name) const override {
        std::string text = "<tool_call>\n{\"name\": \"";
        if (!name.empty()) text.append(name).append("\", \"arguments\": ");
        return text;
    }
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        STRATA_TRY_ASSIGN(int32_t rule, add_schema(builder, tool.parameters, tool.parameters, {.strict = true}));
        return builder.literal(builder.call(from, rule), "}\n</tool_call>");
    }
};

}  // namespace

const Dialect& json_dialect() {
    static const JsonCalls dialect;
    return dialect;
}

}  // namespace strata
