#include "text/grammar_calls.h"

#include <algorithm>
#include <vector>

#include "text/schema.h"

namespace strata {

using State = GrammarBuilder::State;

Result<Grammar> grammar_of_call(const Dialect& dialect, const Tool& tool) {
    GrammarBuilder builder;
    int32_t root = builder.rule("call");
    State start = builder.state();
    STRATA_TRY_ASSIGN(State end, dialect.add_call(builder, start, tool));
    builder.set_rule(root, start, end);
    auto grammar = builder.build(root);
    if (!grammar.ok())
        return Error{ErrorKind::failed, tool.name + ": " + grammar.error().message, "unsupported_schema"};
    return grammar;
}

Result<State> add_parameters(GrammarBuilder& builder, State from, const Tool& tool, const ParameterShape& shape) {
    std::vector<std::string> required;
    if (tool.parameters.contains("required") && tool.parameters["required"].is_array()) {
        for (const Json& name : tool.parameters["required"]) {
            if (name.is_string()) required.push_back(name.get<std::string>());
        }
    }
    const std::string& text_after = shape.text_after.empty() ? shape.after : shape.text_after;
    int32_t any_text = -1;  // one rule for all: its masks are learnt once
    const auto raw_text = [&](State value, const Json& schema) {
        const State end = builder.state();
        Json choices = schema.is_object() && schema.contains("enum") ? schema["enum"] : Json::array();
        if (schema.is_object() && schema.contains("const")) choices = Json::array({schema["const"]});
        for (const Json& choice : choices) {
            if (choice.is_string())
                builder.link(builder.literal(value, choice.get_ref<const std::string&>() + text_after), end);
        }
        if (!choices.empty()) return end;
        if (any_text < 0) {
            any_text = builder.rule("text");
            const State start = builder.state();
            builder.set_rule(any_text, start, add_text_until(builder, start, text_after));
        }
        builder.call(value, any_text, end);
        return end;
    };
    // A state before each parameter for "none so far", one for "behind another", which wants a separator.
    State none_yet = from, some = builder.state();
    for (const std::string& key : tool.parameter_names()) {
        const bool is_text = is_text_only(&tool, key);
        const State begin = builder.state(), next_none = builder.state(), next_some = builder.state();
        builder.link(none_yet, begin);
        builder.link(builder.literal(some, shape.separator), begin);
        const State value = builder.literal(begin, shape.before(key, is_text));
        const Json* schema = tool.parameter(key);
        if (is_text && shape.text == ParameterShape::Text::raw) {
            builder.link(raw_text(value, *schema), next_some);
        } else {
            STRATA_TRY_ASSIGN(int32_t rule, add_schema(builder, *schema, tool.parameters, {}));
            builder.link(builder.literal(builder.call(value, rule), shape.after), next_some);
        }
        if (std::find(required.begin(), required.end(), key) == required.end()) {
            builder.link(none_yet, next_none);
            builder.link(some, next_some);
        }
        none_yet = next_none;
        some = next_some;
    }
    builder.link(none_yet, some);
    return some;
}

State add_text_until(GrammarBuilder& builder, State from, std::string_view delimiter) {
    // A state for each beginning of the delimiter that the text ends with (Knuth, Morris, Pratt).
    size_t size = delimiter.size();
    std::vector<size_t> shorter(size + 1, 0);  // the longest beginning that ends a beginning, itself aside
    for (size_t i = 1, k = 0; i < size; ++i) {
        while (k > 0 && delimiter[i] != delimiter[k]) k = shorter[k];
        if (delimiter[i] == delimiter[k]) ++k;
        shorter[i + 1] = k;
    }
    std::vector<State> states;
    for (size_t i = 0; i <= size; ++i) states.push_back(builder.state());
    builder.link(from, states[0]);
    for (size_t i = 0; i < size; ++i) {
        size_t run_start = 0, run_target = size + 1;
        for (size_t byte = 0; byte <= 256; ++byte) {
            size_t target = size + 2;
            if (byte < 256) {
                size_t k = i;
                while (k > 0 && static_cast<unsigned char>(delimiter[k]) != byte) k = shorter[k];
                target = static_cast<unsigned char>(delimiter[k]) == byte ? k + 1 : 0;
            }
            if (target == run_target) continue;
            if (run_target <= size) {
                builder.byte(states[i], static_cast<uint8_t>(run_start), static_cast<uint8_t>(byte - 1),
                             states[run_target]);
            }
            run_start = byte;
            run_target = target;
        }
    }
    return states[size];
}

}  // namespace strata
