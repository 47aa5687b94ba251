#include "text/format_xml.h"

#include <algorithm>

#include "text/json_lenient.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr size_t kMaxName = 256;

/// The name in a tag of which the head was read: `NAME>` or `"NAME">` with more attributes; gives where the tag ends.
/// Match::no where it cannot become a name.
Match read_tag(std::string_view text, bool attributes, std::string& name, std::string& rest, size_t& end) {
    size_t close = text.find('>');
    std::string_view inside = text.substr(0, std::min(close, text.size()));
    if (inside.size() > kMaxName || inside.find_first_of("<\n\r") != npos) return Match::no;
    if (close == npos) return Match::more;
    end = close + 1;
    rest.clear();
    if (attributes) {
        size_t quote = inside.find('"');
        if (quote == npos) return Match::no;
        rest = inside.substr(quote + 1);
        inside = inside.substr(0, quote);
    } else if (inside.size() > 2 && (inside.front() == '"' || inside.front() == '\'') &&
               inside.back() == inside.front()) {
        inside = inside.substr(1, inside.size() - 2);
    }
    name = inside;
    return name.empty() ? Match::no : Match::yes;
}

/// Without one line's end in front.
size_t skip_line_end(std::string_view text, size_t at) {
    if (text.substr(at).starts_with("\r\n")) return at + 2;
    return at < text.size() && text[at] == '\n' ? at + 1 : at;
}

/// Without one line's end behind.
std::string_view drop_line_end(std::string_view text) {
    if (text.ends_with("\r\n")) return text.substr(0, text.size() - 2);
    return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

}  // namespace

Match declared_name(std::string_view text, const XmlTags& tags, const ToolSet& tools) {
    std::string name, rest;
    size_t end = 0;
    Match match = read_tag(text, tags.attributes, name, rest, end);
    if (match != Match::yes) return match;
    return tools.find(name) ? Match::yes : Match::no;
}

Match declared_function(std::string_view text, const XmlTags& tags, const ToolSet& tools) {
    std::string_view head = text.substr(skip_blanks(text, 0));
    Match match = starts_with_mark(head, tags.function_head);
    return match == Match::yes ? declared_name(head.substr(tags.function_head.size()), tags, tools) : match;
}

CallReader::Progress XmlReader::read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) {
    writer_.write_to(out);
    while (true) {
        Step step = Step::more;
        switch (state_) {
            case State::function: step = read_function(block, ended); break;
            case State::name: step = read_name(block, ended); break;
            case State::body: step = read_body(block, ended); break;
            case State::value: step = read_value(block, ended); break;
            case State::after_function: step = read_after_function(block, ended); break;
        }
        if (step == Step::again) continue;
        if (step == Step::more) {
            if (!ended) return Progress::more;
            step = cut_off(block);
            if (step == Step::again) continue;
        }
        if (step == Step::refused) return Progress::refused;
        used_ = at_;
        return Progress::done;
    }
}

/// The reply ended while more was needed: close what can be closed.
XmlReader::Step XmlReader::cut_off(std::string_view block) {
    if (bare_) return Step::refused;  // a bare call counts only when it is complete
    switch (state_) {
        case State::function:
        case State::name:
            if (writer_.calls() == 0) return Step::refused;
            break;
        case State::body:
            begin_call();
            writer_.end();
            break;
        case State::value: return Step::refused;  // read_value() ends values itself
        case State::after_function: break;
    }
    if (skip_blanks(block, at_) < block.size()) stray_ = block.substr(at_);  // half a tag
    at_ = block.size();
    return Step::done;
}

XmlReader::Step XmlReader::read_function(std::string_view block, bool) {
    size_t head = skip_blanks(block, at_);
    Match match = starts_with_mark(block.substr(head), tags_.function_head);
    if (match == Match::more) return Step::more;
    if (match == Match::no) return Step::refused;
    at_ = head + tags_.function_head.size();
    state_ = State::name;
    return Step::again;
}

XmlReader::Step XmlReader::read_name(std::string_view block, bool) {
    std::string rest;
    size_t end = 0;
    Match match = read_tag(block.substr(at_), tags_.attributes, name_, rest, end);
    if (match == Match::more) return Step::more;
    if (match == Match::no || !is_tool_name(name_)) {
        if (writer_.calls() == 0) return Step::refused;
        // Calls before it stand; this one is text.
        at_ -= tags_.function_head.size();
        return Step::done;
    }
    tool_ = tools_.find(name_);
    at_ += end;
    state_ = State::body;
    return Step::again;
}

void XmlReader::begin_call() {
    if (!writer_.open()) writer_.begin(name_);
}

XmlReader::Step XmlReader::read_body(std::string_view block, bool ended) {
    size_t head = skip_blanks(block, at_);
    std::string_view rest = block.substr(head);
    if (rest.empty()) return Step::more;
    Match parameter = starts_with_mark(rest, tags_.parameter_head);
    if (parameter == Match::yes) {
        at_ = head;
        return read_parameter(block, ended);
    }
    Match end = starts_with_mark(rest, tags_.function_end);
    if (end == Match::yes) {
        begin_call();
        writer_.end();
        at_ = head + tags_.function_end.size();
        state_ = State::after_function;
        return Step::again;
    }
    Match block_end = tags_.block_end.empty() ? Match::no : starts_with_mark(rest, tags_.block_end);
    if (block_end == Match::yes) {  // the function's own end is missing
        begin_call();
        writer_.end();
        at_ = head + tags_.block_end.size();
        return Step::done;
    }
    if (parameter == Match::more || end == Match::more || block_end == Match::more) return Step::more;
    // A parameter's end left over from a value that was closed by another tag.
    Match left_over = starts_with_mark(rest, tags_.parameter_end);
    if (left_over == Match::more) return Step::more;
    if (left_over == Match::yes && writer_.open()) {
        at_ = head + tags_.parameter_end.size();
        return Step::again;
    }
    if (!writer_.open() && writer_.calls() == 0) return Step::refused;
    begin_call();
    writer_.end();
    at_ = head;
    return Step::done;
}

XmlReader::Step XmlReader::read_parameter(std::string_view block, bool) {
    std::string rest;
    size_t end = 0;
    Match match = read_tag(block.substr(at_ + tags_.parameter_head.size()), tags_.attributes, key_, rest, end);
    if (match == Match::more) return Step::more;
    if (match == Match::no) {
        if (!writer_.open()) return Step::refused;
        writer_.end();
        return Step::done;
    }
    begin_call();
    kind_ = rest.find("string=\"true\"") != npos    ? Kind::text
            : rest.find("string=\"false\"") != npos ? Kind::json
                                                    : Kind::by_schema;
    streams_ = kind_ == Kind::text || (kind_ == Kind::by_schema && is_text_only(tool_, key_));
    if (streams_) writer_.text_begin(key_);
    at_ += tags_.parameter_head.size() + end;
    value_ = sent_ = scan_ = at_;
    likely_end_ = npos;
    fresh_ = true;
    state_ = State::value;
    return Step::again;
}

void XmlReader::end_value(std::string_view value, size_t next) {
    if (streams_) {
        size_t done = std::min(sent_ - value_, value.size());
        writer_.text(value.substr(done));
        writer_.text_end();
    } else if (kind_ == Kind::json) {
        auto json = read_lenient_json(value);
        writer_.argument(key_, json ? *json : Json(std::string(value)));
    } else {
        writer_.argument(key_, typed_value(value, tool_, key_));
    }
    at_ = next;
    state_ = State::body;
}

// A value may hold anything, also tags. Its end is the first
//   - end tag of a parameter before the head of another one;
//   - end tag of a parameter, or none, before the function's end before the block's end.
// Other end tags only may end it: if nothing better comes until the reply is over, the first of them does.
XmlReader::Step XmlReader::read_value(std::string_view block, bool ended) {
    if (fresh_) {
        // One newline in front is not part of the value.
        std::string_view rest = block.substr(value_);
        if (tags_.lines && !ended && (rest.empty() || rest == "\r")) return Step::more;
        if (tags_.lines) value_ = sent_ = scan_ = skip_line_end(block, value_);
        fresh_ = false;
    }
    auto value_to = [&](size_t end) {
        std::string_view value = block.substr(value_, end - value_);
        return tags_.lines ? drop_line_end(value) : value;
    };
    auto maybe = [&](size_t at) { likely_end_ = std::min(likely_end_, at); };
    // What a function's end at a place means: yes: the block ends with it, or another function follows.
    auto function_ends = [&](size_t at) {
        size_t next = skip_blanks(block, at + tags_.function_end.size());
        if (tags_.block_end.empty()) return Match::yes;
        std::string_view rest = block.substr(next);
        Match block_end = starts_with_mark(rest, tags_.block_end);
        Match another = starts_with_mark(rest, tags_.function_head);
        if (block_end == Match::yes || another == Match::yes) return Match::yes;
        return block_end == Match::more || another == Match::more ? Match::more : Match::no;
    };
    bool waits = false;
    while (!waits) {
        size_t tag = block.find("</", scan_);
        if (tag == npos) break;
        std::string_view rest = block.substr(tag);
        Match parameter = starts_with_mark(rest, tags_.parameter_end);
        Match function = starts_with_mark(rest, tags_.function_end);
        Match block_end = tags_.block_end.empty() ? Match::no : starts_with_mark(rest, tags_.block_end);
        if (parameter == Match::yes) {
            size_t next = skip_blanks(block, tag + tags_.parameter_end.size());
            std::string_view follows = block.substr(next);
            Match another = starts_with_mark(follows, tags_.parameter_head);
            Match end = starts_with_mark(follows, tags_.function_end);
            Match last = tags_.block_end.empty() ? Match::no : starts_with_mark(follows, tags_.block_end);
            if (end == Match::yes) {
                end = function_ends(next);
                if (end == Match::no) maybe(tag);
            }
            if (another == Match::yes || end == Match::yes) {
                end_value(value_to(tag), tag + tags_.parameter_end.size());
                return Step::again;
            }
            if (last == Match::yes) maybe(tag);
            waits = another == Match::more || end == Match::more || last == Match::more;
        } else if (function == Match::yes) {
            Match end = function_ends(tag);
            if (end == Match::yes) {
                end_value(value_to(tag), tag);
                return Step::again;
            }
            maybe(tag);
            waits = end == Match::more;
        } else if (block_end == Match::yes) {
            maybe(tag);
        } else {
            waits = parameter == Match::more || function == Match::more || block_end == Match::more;
        }
        if (!waits) scan_ = tag + 2;
        if (waits && ended) {
            // Nothing follows: a whole tag ends the value, half a tag is part of it.
            waits = false;
            if (parameter == Match::yes || function == Match::yes) maybe(tag);
            scan_ = tag + 2;
        }
    }
    if (ended) {
        if (bare_) return Step::refused;
        size_t end = std::min(likely_end_, block.size());
        end_value(value_to(end), end);
        return Step::again;
    }
    if (!waits) scan_ = block.size() - (block.ends_with('<') ? 1 : 0);
    // Written so far: what no tag and no newline before one can take back.
    size_t certain = std::min(scan_, likely_end_);
    if (tags_.lines) {
        if (certain > value_ && block[certain - 1] == '\n') --certain;
        if (certain > value_ && block[certain - 1] == '\r') --certain;
    }
    if (streams_ && certain > sent_) {
        writer_.text(block.substr(sent_, certain - sent_));
        sent_ = certain;
    }
    return Step::more;
}

XmlReader::Step XmlReader::read_after_function(std::string_view block, bool) {
    if (tags_.block_end.empty()) return Step::done;
    size_t next = skip_blanks(block, at_);
    std::string_view rest = block.substr(next);
    Match block_end = starts_with_mark(rest, tags_.block_end);
    if (block_end == Match::yes) {
        at_ = next + tags_.block_end.size();
        return Step::done;
    }
    Match another = starts_with_mark(rest, tags_.function_head);
    if (another == Match::yes) {
        at_ = next + tags_.function_head.size();
        state_ = State::name;
        return Step::again;
    }
    if (block_end == Match::more || another == Match::more) return Step::more;
    return Step::done;  // the block's end is missing
}

}  // namespace strata
