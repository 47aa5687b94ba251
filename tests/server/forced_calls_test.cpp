// Calls that a request demands, for every kind of template: the model has random weights, so what is right about its
// call is the grammar's doing.
#include <gtest/gtest.h>

#include "live_server.h"

namespace strata::server {
namespace {

class ForcedCalls : public testing::TestWithParam<const char*> {};

std::string body(const std::string& choice, const char* more = "") {
    return R"({"messages": [{"role": "user", "content": "go"}], "max_tokens": 400, "temperature": 1, "seed": 5,
        "reasoning_budget_tokens": 3, "parallel_tool_calls": false, "tools": [
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"days":
            {"type": "integer", "minimum": 1, "maximum": 9}, "unit": {"enum": ["c", "f"]}}, "required": ["days", "unit"],
            "additionalProperties": false}}},
        {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {"now":
            {"type": "boolean"}}, "required": ["now"], "additionalProperties": false}}}], "tool_choice": )" +
           choice + more + "}";
}

void expect_arguments_fit(const Json& function) {
    const auto arguments = parse_json(function["arguments"].get<std::string>());
    ASSERT_TRUE(arguments && arguments->is_object()) << json_text(function);
    if (function["name"] == "stop") {
        EXPECT_TRUE((*arguments)["now"].is_boolean()) << json_text(function);
        return;
    }
    EXPECT_EQ(function["name"], "weather");
    EXPECT_TRUE((*arguments)["days"].is_number_integer()) << json_text(function);
    EXPECT_TRUE((*arguments)["unit"] == "c" || (*arguments)["unit"] == "f") << json_text(function);
}

TEST_P(ForcedCalls, AreMadeWithArgumentsOfTheSchema) {
    const LiveServer live({}, {}, false, std::string(GetParam()) + ".jinja");
    for (const char* choice : {R"("required")", R"({"type": "function", "function": {"name": "weather"}})"}) {
        const HttpAnswer answer = live.post("/v1/chat/completions", body(choice));
        ASSERT_EQ(answer.status, 200) << answer.body;
        const Json one = answer.json()["choices"][0];
        ASSERT_EQ(one["finish_reason"], "tool_calls")
            << answer.body << live.post("/v1/chat/completions", body(choice, R"(, "stream": true)")).body;
        for (const Json& call : one["message"]["tool_calls"]) expect_arguments_fit(call["function"]);
        if (choice[0] == '{') {
            EXPECT_EQ(one["message"]["tool_calls"][0]["function"]["name"], "weather");
        }
    }
    // The same in a stream, and for Anthropic's clients.
    std::string name, arguments;
    for (const Json& event :
         test::sse_data(live.post("/v1/chat/completions", body(R"("required")", R"(, "stream": true)")).body)) {
        if (!event.is_object() || event["choices"].empty() || !event["choices"][0]["delta"].contains("tool_calls"))
            continue;
        const Json& function = event["choices"][0]["delta"]["tool_calls"][0]["function"];
        if (function.contains("name") && name.empty()) name = function["name"];
        if (event["choices"][0]["delta"]["tool_calls"][0]["index"] == 0)
            arguments += function["arguments"].get<std::string>();
    }
    expect_arguments_fit({{"name", name}, {"arguments", arguments}});
    const Json message =
        live.post("/v1/messages", R"({"max_tokens": 400, "messages": [{"role": "user", "content": "go"}],
        "thinking": {"type": "disabled"}, "tools": [{"name": "stop", "input_schema": {"type": "object", "properties": {"now":
        {"type": "boolean"}}, "required": ["now"], "additionalProperties": false}}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}})")
            .json();
    EXPECT_EQ(message["stop_reason"], "tool_use") << json_text(message);
    EXPECT_TRUE(message["content"].back()["input"]["now"].is_boolean()) << json_text(message);
}

INSTANTIATE_TEST_SUITE_P(Templates, ForcedCalls,
                         testing::Values("chatml-xml", "pairs", "json-calls", "dsml", "python-calls"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::erase(name, '-');
                             return name;
                         });

}  // namespace
}  // namespace strata::server
