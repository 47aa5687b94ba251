#include "text/chat_dialect.h"

#include <algorithm>

namespace strata {

Match starts_with_mark(std::string_view text, std::string_view mark) {
    if (text.starts_with(mark)) return Match::yes;
    return mark.starts_with(text) ? Match::more : Match::no;
}

size_t begun_mark(std::string_view text, std::string_view mark) {
    for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
        if (text.ends_with(mark.substr(0, size))) return size;
    }
    return 0;
}

bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t skip_blanks(std::string_view text, size_t at) {
    while (at < text.size() && is_blank(text[at])) ++at;
    return at;
}

Result<GrammarBuilder::State> Dialect::add_call(GrammarBuilder&, GrammarBuilder::State, const Tool&) const {
    return Error{ErrorKind::failed, "calls in the notation of '" + std::string(name()) + "' cannot be held to a schema",
                 "unsupported_schema"};
}

void CallWriter::put(std::string text) {
    out_->push_back({AnswerEvent::Type::call_arguments, calls_ - 1, std::move(text)});
}

std::string CallWriter::key_text(std::string_view key) {
    std::string text = first_ ? "{" : ",";
    first_ = false;
    append_json_string(text, key);
    return text += ':';
}

void CallWriter::begin(std::string_view name) {
    out_->push_back({AnswerEvent::Type::call_begin, calls_++, std::string(name)});
    open_ = true;
    first_ = true;
}

void CallWriter::argument(std::string_view key, const Json& value) {
    put(key_text(key) + json_text(value));
}

void CallWriter::text_begin(std::string_view key) {
    put(key_text(key) + '"');
}

void CallWriter::text(std::string_view piece) {
    if (piece.empty()) return;
    std::string escaped;
    append_json_escaped(escaped, piece);
    put(std::move(escaped));
}

void CallWriter::text_end() {
    put("\"");
}

void CallWriter::end() {
    put(first_ ? "{}" : "}");
    out_->push_back({AnswerEvent::Type::call_end, calls_ - 1, {}});
    open_ = false;
}

void CallWriter::whole(std::string_view name, const Json& arguments) {
    begin(name);
    put(json_text(arguments));
    out_->push_back({AnswerEvent::Type::call_end, calls_ - 1, {}});
    open_ = false;
}

}  // namespace strata
