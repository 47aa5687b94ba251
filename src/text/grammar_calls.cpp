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
    State at = from;
    for (const std::string& key : tool.parameter_names()) {
        bool is_text = is_text_only(&tool, key);
        State value = builder.literal(at, shape.before(key, is_text));
        State next = builder.state();
        if (is_text) {
            builder.link(add_text_until(builder, value, shape.after), next);
        } else {
            STRATA_TRY_ASSIGN(int32_t rule, add_schema(builder, *tool.parameter(key), tool.parameters, {}));
            builder.link(builder.literal(builder.call(value, rule), shape.after), next);
        }
        if (std::find(required.begin(), required.end(), key) == required.end()) builder.link(at, next);
        at = next;
    }
    return at;
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
