// Templates from nowhere, rendered on a small chat: no crash, no hang, no leak, within small limits. The input is a
// template, optionally followed by a zero byte and the variables as JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const strata::Json kVariables = *strata::parse_json(
        R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
            {"role": "assistant", "content": "c", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": 2.5}}}]}],
            "tools": [{"a": null, "b": [true, "x"]}], "add_generation_prompt": true, "n": 123456789012345678901})");
    std::string_view input(reinterpret_cast<const char*>(data), size);
    size_t zero = input.find('\0');
    auto parsed = strata::Template::parse(input.substr(0, zero));
    if (!parsed.ok()) return 0;
    strata::RenderOptions options;
    options.limits.steps = 20'000;
    options.limits.memory_bytes = 4 << 20;
    options.limits.output_bytes = 1 << 20;
    if (zero != input.npos) {
        auto variables = strata::parse_json(input.substr(zero + 1));
        if (variables.ok()) (void)parsed->render(*variables, options);
    }
    (void)parsed->render(kVariables, options);
    return 0;
}
