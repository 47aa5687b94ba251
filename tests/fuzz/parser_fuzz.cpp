// Replies from nowhere. The first byte picks the dialect and switches, the second cuts: whole and cut replies must give
// the same, arguments must be JSON, and no text may come out that did not go in.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/chat_answer.h"
#include "text/json_lenient.h"

namespace {

using namespace strata;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

struct Read {
    Answer answer;
    FinishReason finish;
};

Read read(const Dialect& dialect, const AnswerOptions& options, std::string_view text, AnswerEnd end, unsigned cut) {
    AnswerParser parser(dialect, options);
    std::vector<AnswerEvent> events;
    for (size_t at = 0; at < text.size();) {
        size_t size = cut == 0 ? text.size() : 1 + (at * 7 + cut) % cut;
        parser.push(text.substr(at, size), events);
        at += size;
    }
    Read result;
    result.finish = parser.finish(end, events);
    result.answer.add(events);
    result.answer.drop_incomplete();
    return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const ToolSet kTools(*parse_json(
        R"([{"function": {"name": "now", "parameters": {}}},
            {"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
             "o": {"anyOf": [{"type": "object"}, {"$ref": "#/properties/o"}]}}}}}])"));
    static const Dialect* kDialects[] = {&qwen_dialect(),      &glm_dialect(),       &json_dialect(),
                                         &dsml_dialect(),      &lfm_dialect(),       &gemma_dialect(),
                                         &plain_dialect(true), &plain_dialect(false)};
    if (size < 2) return 0;
    const Dialect& dialect = *kDialects[data[0] & 7];
    AnswerOptions options;
    options.tools = kTools;
    options.start = data[0] & 8 ? AnswerStart::reasoning : data[0] & 16 ? AnswerStart::content : AnswerStart::undecided;
    options.split_reasoning = !(data[0] & 32);
    options.parallel_calls = !(data[0] & 64);
    AnswerEnd end = data[0] & 128 ? AnswerEnd::length : AnswerEnd::stop;
    std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

    Read whole = read(dialect, options, text, end, 0);
    Read pieces = read(dialect, options, text, end, 1 + data[1] % 32);
    require(whole.answer.reasoning == pieces.answer.reasoning, "the reasoning depends on the pieces");
    require(whole.answer.content == pieces.answer.content, "the content depends on the pieces");
    require(whole.finish == pieces.finish, "the finish reason depends on the pieces");
    require(whole.answer.calls.size() == pieces.answer.calls.size(), "the calls depend on the pieces");
    for (size_t i = 0; i < whole.answer.calls.size(); ++i) {
        require(whole.answer.calls[i].arguments == pieces.answer.calls[i].arguments, "arguments depend on the pieces");
        auto arguments = parse_json(whole.answer.calls[i].arguments, 1000);
        require(arguments.ok() && arguments->is_object(), "arguments are no JSON object");
    }
    (void)read_lenient_json(text);
    return 0;
}
