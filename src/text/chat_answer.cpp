#include "text/chat_answer.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;
// Bytes of blocks that turned out to be no calls: from then on call tags are text, so that a reply full of them cannot
// take quadratic time.
constexpr size_t kMostRefused = size_t{8} << 20;

/// The first of several marks in a text.
struct Found {
    size_t at = npos;
    std::string_view mark;
};

void find_first(std::string_view text, std::string_view mark, Found& found) {
    if (mark.empty()) return;
    size_t at = text.substr(0, found.at == npos ? npos : found.at + mark.size()).find(mark);
    if (at != npos && at < found.at) found = {at, mark};
}

/// Where trailing white space begins.
size_t trimmed(std::string_view text) {
    size_t end = text.size();
    while (end > 0 && is_blank(text[end - 1])) --end;
    return end;
}

}  // namespace

AnswerStart answer_start(const Dialect& dialect, std::string_view generation_prompt) {
    if (dialect.reasoning_opener().empty()) return AnswerStart::content;
    size_t opener = generation_prompt.rfind(dialect.reasoning_opener());
    size_t closer = generation_prompt.rfind(dialect.reasoning_closer());
    if (closer != npos && (opener == npos || closer > opener)) return AnswerStart::content;
    return opener != npos ? AnswerStart::reasoning : AnswerStart::undecided;
}

std::string_view to_string(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop: return "stop";
        case FinishReason::tool_calls: return "tool_calls";
        case FinishReason::length: return "length";
    }
    return "stop";
}

AnswerParser::AnswerParser(const Dialect& dialect, AnswerOptions options)
    : dialect_(dialect), options_(std::move(options)), state_(State::start) {
    if (options_.start == AnswerStart::content || dialect_.reasoning_opener().empty()) state_ = State::content;
    if (options_.start == AnswerStart::reasoning) state_ = State::reasoning;
    content_begun_ = options_.continues;
    buffer_ = std::exchange(options_.given, {});
    // The block that the prompt opened stays in the content, whole.
    if (options_.start == AnswerStart::reasoning && !options_.split_reasoning) {
        content_space_ = dialect_.reasoning_opener();
        content_begun_ = true;
    }
}

AnswerParser::~AnswerParser() = default;

AnswerParser::Phase AnswerParser::phase() const {
    switch (state_) {
        case State::start:
        case State::channel: return Phase::undecided;
        case State::reasoning:
        case State::last_call: return Phase::reasoning;
        case State::content: return Phase::content;
        case State::call:
        case State::bare_call: return Phase::call;
        case State::over: return Phase::over;
    }
    return Phase::content;
}

std::string AnswerParser::take_forced() {
    if (state_ != State::content || options_.forced.empty()) return {};
    return std::exchange(options_.forced, {});
}

void AnswerParser::push(std::string_view piece, std::vector<AnswerEvent>& events) {
    out_ = &events;
    // Whole characters only; bytes that can become none are replaced, because arguments must be valid JSON.
    constexpr size_t kSlice = 4096;  // bounds what a search for a mark that is not there looks at
    do {
        cut_ += piece.substr(0, kSlice);
        piece.remove_prefix(std::min(piece.size(), kSlice));
        size_t whole = cut_.size() - utf8_cut(cut_);
        buffer_ += unicode::replace_invalid(std::string_view(cut_).substr(0, whole));
        cut_.erase(0, whole);
        advance(false);
    } while (!piece.empty());
}

FinishReason AnswerParser::finish(AnswerEnd end, std::vector<AnswerEvent>& events) {
    out_ = &events;
    buffer_ += unicode::replace_invalid(std::exchange(cut_, {}));
    if (end == AnswerEnd::stop) {
        advance(true);
    } else {
        // What was held back is text of its state; a block that is cut off is not reported.
        switch (state_) {
            case State::reasoning:
            case State::last_call: reasoning(unread()); break;
            case State::call:
            case State::over: break;
            case State::bare_call:
                if (block_done_) {
                    forward(std::exchange(kept_, {}), reader_->calls());
                    break;
                }
                [[fallthrough]];
            default: content(unread());
        }
        consume(unread().size());
    }
    if (calls_ == 0 && !content_space_.empty() && content_begun_) {
        events.push_back({AnswerEvent::Type::content, -1, std::exchange(content_space_, {})});
    }
    if (end == AnswerEnd::length && state_ != State::over) return FinishReason::length;
    return calls_ > 0 ? FinishReason::tool_calls : FinishReason::stop;
}

void AnswerParser::advance(bool ended) {
    while (state_ != State::over && step(ended)) {
    }
    if (state_ == State::over) consume(unread().size());
}

bool AnswerParser::step(bool ended) {
    switch (state_) {
        case State::start: return step_start(ended);
        case State::channel: return step_channel(ended);
        case State::reasoning: return step_reasoning(ended);
        case State::last_call: return step_last_call(ended);
        case State::content: return step_content(ended);
        case State::call: return step_call(ended);
        case State::bare_call: return step_bare_call(ended);
        case State::over: break;
    }
    return false;
}

void AnswerParser::consume(size_t bytes) {
    read_ += bytes;
    no_closer_ -= std::min(no_closer_, bytes);
    if (read_ == buffer_.size() || (read_ > 4096 && read_ > buffer_.size() / 2)) {
        buffer_.erase(0, read_);
        read_ = 0;
    }
}

/// The first closer of the reasoning that has not been read. What was searched once is not searched again.
size_t AnswerParser::find_closer() {
    size_t at = unread().find(dialect_.reasoning_closer(), no_closer_);
    no_closer_ = at == npos ? unread().size() - begun_mark(unread(), dialect_.reasoning_closer()) : at;
    return at;
}

// What goes out. White space at an end is held back: it counts only when something follows.

void AnswerParser::reasoning(std::string_view text) {
    if (!options_.split_reasoning) return content(text);
    if (options_.drop_reasoning) return;
    if (!reasoning_begun_) text.remove_prefix(skip_blanks(text, 0));
    size_t end = trimmed(text);
    if (end > 0) {
        out_->push_back(
            {AnswerEvent::Type::reasoning, -1, std::exchange(reasoning_space_, {}) + std::string(text.substr(0, end))});
        reasoning_begun_ = true;
    }
    if (reasoning_begun_) reasoning_space_ += text.substr(end);
}

void AnswerParser::content(std::string_view text) {
    lines_.feed(text);
    if (!content_begun_) text.remove_prefix(skip_blanks(text, 0));
    size_t end = trimmed(text);
    if (end > 0) {
        out_->push_back(
            {AnswerEvent::Type::content, -1, std::exchange(content_space_, {}) + std::string(text.substr(0, end))});
        content_begun_ = true;
    }
    if (content_begun_) content_space_ += text.substr(end);
}

void AnswerParser::enter_reasoning(std::string_view opener) {
    if (!options_.split_reasoning) content(opener);
    state_ = State::reasoning;
}

void AnswerParser::leave_reasoning(std::string_view closer) {
    if (!options_.split_reasoning) content(closer);
    state_ = State::content;
}

void AnswerParser::begin_call() {
    content_space_.clear();
    content_begun_ = false;
    lines_ = {};
}

void AnswerParser::forward(std::vector<AnswerEvent>&& events, int calls) {
    if (!events.empty()) begin_call();
    for (AnswerEvent& event : events) {
        event.call += calls_;
        if (event.call == 0 || options_.parallel_calls) out_->push_back(std::move(event));
    }
    calls_ += calls;
}

void AnswerParser::Lines::feed(std::string_view text) {
    constexpr size_t kEnough = 16;
    for (char c : text) {
        if (c != '\n') {
            if (head.size() < kEnough) head += c;
            continue;
        }
        std::string_view line = head;
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.starts_with("```") || line.starts_with("~~~")) fenced = !fenced;
        head.clear();
    }
}

// The states.

bool AnswerParser::step_start(bool ended) {
    size_t begin = skip_blanks(unread(), 0);
    std::string_view rest = unread().substr(begin);
    std::string_view opener = dialect_.reasoning_opener();
    if (rest.empty()) {
        if (ended) state_ = State::content;
        return ended;
    }
    Match match = starts_with_mark(rest, opener);
    if (match == Match::more && !ended) return false;
    if (match != Match::yes) {
        state_ = State::content;
        return true;
    }
    consume(begin + opener.size());
    if (!dialect_.channel_name().empty()) {
        state_ = State::channel;
    } else {
        enter_reasoning(opener);
    }
    return true;
}

bool AnswerParser::step_channel(bool ended) {
    Match match = starts_with_mark(unread(), dialect_.channel_name());
    if (match == Match::more && !ended) return false;
    if (match == Match::yes) {
        consume(dialect_.channel_name().size());
        enter_reasoning(std::string(dialect_.reasoning_opener()) + std::string(dialect_.channel_name()));
    } else {
        state_ = State::content;  // the mark alone means nothing
    }
    return true;
}

bool AnswerParser::step_reasoning(bool ended) {
    std::string_view closer = dialect_.reasoning_closer();
    Found found{find_closer(), closer};
    size_t held = begun_mark(unread(), closer);
    auto look_for = [&](std::string_view mark) {
        find_first(unread(), mark, found);
        held = std::max(held, begun_mark(unread(), mark));
    };
    bool with_calls = !options_.tools.empty() && refused_ < kMostRefused;
    if (with_calls) {
        for (std::string_view opener : dialect_.call_openers()) look_for(opener);
    }
    if (found.at == npos) {
        size_t certain = unread().size() - (ended ? 0 : held);
        reasoning(unread().substr(0, certain));
        consume(certain);
        return false;
    }
    reasoning(unread().substr(0, found.at));
    if (found.mark == closer) {
        consume(found.at + found.mark.size());
        leave_reasoning(found.mark);
        return true;
    }
    consume(found.at);
    state_ = State::last_call;
    opener_ = found.mark.size();
    block_ = 0;
    kept_.clear();
    kept_calls_ = 0;
    block_done_ = false;
    reader_.reset();
    return true;
}

// A call within the reasoning counts only if it is to a declared tool and the last thing the model says: it forgot to
// close the block. Until the reply is over it may be a draft.
bool AnswerParser::step_last_call(bool ended) {
    std::string_view buffer = unread();
    auto back_to_reasoning = [&](size_t bytes) {
        reasoning(buffer.substr(0, bytes));
        consume(bytes);
        reader_.reset();
        state_ = State::reasoning;
        return true;
    };
    std::string_view closer = dialect_.reasoning_closer();
    if (size_t at = find_closer(); at != npos) return back_to_reasoning(at);

    if (!reader_) {
        // At an opener: block_ bytes of whole calls and white space are before it.
        std::string_view rest = buffer.substr(block_ + opener_);
        Match match = dialect_.declared(rest, options_.tools);
        if (match == Match::more && !ended) return false;
        if (match != Match::yes) {
            return back_to_reasoning(block_ + opener_);
        }
        reader_ = dialect_.reader(buffer.substr(block_, opener_), false, options_.tools);
        block_done_ = false;
    }
    if (!block_done_) {
        std::vector<AnswerEvent> events;
        auto progress = reader_->read(buffer.substr(block_ + opener_), ended, events);
        for (AnswerEvent& event : events) {
            event.call += kept_calls_;
            kept_.push_back(std::move(event));
        }
        if (progress == CallReader::Progress::more) return false;
        if (progress == CallReader::Progress::refused || !reader_->stray().empty()) {
            refused_ += unread().size();
            return back_to_reasoning(block_ + opener_);
        }
        kept_calls_ += reader_->calls();
        block_ += opener_ + reader_->used();
        block_done_ = true;
    }
    size_t next = skip_blanks(buffer, block_);
    std::string_view rest = buffer.substr(next);
    if (rest.empty()) {
        if (!ended) return false;
        forward(std::exchange(kept_, {}), kept_calls_);
        consume(unread().size());
        reader_.reset();
        state_ = State::content;
        return true;
    }
    Match match = starts_with_mark(rest, closer);
    for (std::string_view opener : dialect_.call_openers()) {
        Match another = starts_with_mark(rest, opener);
        if (another == Match::yes) {
            block_ = next;
            opener_ = opener.size();
            reader_.reset();
            return true;
        }
        if (another == Match::more) match = Match::more;
    }
    if (match == Match::more && !ended) return false;
    return back_to_reasoning(next);  // other text follows
}

bool AnswerParser::step_content(bool ended) {
    Found found;
    size_t held = 0;
    auto look_for = [&](std::string_view mark) {
        find_first(unread(), mark, found);
        if (!mark.empty()) held = std::max(held, begun_mark(unread(), mark));
    };
    bool with_calls = !options_.tools.empty() && refused_ < kMostRefused;
    bool channels = !dialect_.channel_name().empty();
    if (with_calls) {
        for (std::string_view opener : dialect_.call_openers()) look_for(opener);
        look_for(dialect_.bare_call_opener());
    }
    if (channels) {
        look_for(dialect_.reasoning_opener());
        look_for(dialect_.reasoning_closer());
    }
    if (calls_ > 0) look_for(dialect_.invented_result());
    if (found.at == npos) {
        size_t certain = unread().size() - (ended ? 0 : held);
        content(unread().substr(0, certain));
        consume(certain);
        return false;
    }
    content(unread().substr(0, found.at));
    consume(found.at);
    if (calls_ > 0 && found.mark == dialect_.invented_result()) {
        state_ = State::over;
        return true;
    }
    if (channels && found.mark == dialect_.reasoning_opener()) {
        consume(found.mark.size());
        state_ = State::channel;
        return true;
    }
    if (channels && found.mark == dialect_.reasoning_closer()) {  // closes nothing
        consume(found.mark.size());
        return true;
    }
    opener_ = found.mark.size();
    bool bare = found.mark == dialect_.bare_call_opener();
    if (bare) {
        Match match = Match::no;
        if (lines_.head.empty() && !lines_.fenced) {
            match = dialect_.declared_bare(unread().substr(opener_), options_.tools);
            if (match == Match::more && !ended) return false;
        }
        if (match != Match::yes) {
            content(unread().substr(0, opener_));
            consume(opener_);
            return true;
        }
    }
    reader_ = dialect_.reader(found.mark, bare, options_.tools);
    block_done_ = false;
    kept_.clear();
    state_ = bare ? State::bare_call : State::call;
    return true;
}

void AnswerParser::call_is_text() {
    refused_ += unread().size();
    content(unread().substr(0, opener_));
    consume(opener_);
    reader_.reset();
    state_ = State::content;
}

bool AnswerParser::step_call(bool ended) {
    std::vector<AnswerEvent> events;
    auto progress = reader_->read(unread().substr(opener_), ended, events);
    if (progress == CallReader::Progress::refused) {
        call_is_text();
        return true;
    }
    forward(std::move(events), 0);
    if (progress == CallReader::Progress::more) return false;
    calls_ += reader_->calls();
    consume(opener_ + reader_->used());
    std::string stray = reader_->stray();
    reader_.reset();
    state_ = options_.parallel_calls ? State::content : State::over;
    content(stray);
    return true;
}

bool AnswerParser::step_bare_call(bool ended) {
    if (!block_done_) {
        auto progress = reader_->read(unread().substr(opener_), ended, kept_);
        if (progress == CallReader::Progress::more) return false;
        if (progress == CallReader::Progress::refused) {
            kept_.clear();
            call_is_text();
            return true;
        }
        block_done_ = true;
        consume(opener_ + reader_->used());
    }
    // A lone closer of the block that has no opener goes with the call.
    size_t next = skip_blanks(unread(), 0);
    Match closer = starts_with_mark(unread().substr(next), dialect_.bare_call_closer());
    if (closer == Match::more && !ended) return false;
    if (closer == Match::yes) consume(next + dialect_.bare_call_closer().size());
    forward(std::exchange(kept_, {}), reader_->calls());
    reader_.reset();
    state_ = options_.parallel_calls ? State::content : State::over;
    return true;
}

void Answer::add(const std::vector<AnswerEvent>& events) {
    for (const AnswerEvent& event : events) {
        switch (event.type) {
            case AnswerEvent::Type::reasoning: reasoning += event.text; break;
            case AnswerEvent::Type::content: content += event.text; break;
            case AnswerEvent::Type::call_begin: calls.push_back({event.text, {}, false}); break;
            case AnswerEvent::Type::call_arguments:
                calls[static_cast<size_t>(event.call)].arguments += event.text;
                break;
            case AnswerEvent::Type::call_end: calls[static_cast<size_t>(event.call)].complete = true; break;
        }
    }
}

void Answer::drop_incomplete() {
    std::erase_if(calls, [](const Call& call) { return !call.complete; });
}

}  // namespace strata
