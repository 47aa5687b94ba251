#include "server/reply.h"

#include <algorithm>
#include <cmath>

namespace strata::server {
namespace {

AnswerParser parser_for(const ModelText& text, const AnswerRequest& request, AnswerOptions options) {
    if (!request.raw.empty()) {
        options = {};
        options.start = AnswerStart::content;
        options.continues = true;
        return AnswerParser(plain_dialect(false), std::move(options));
    }
    return AnswerParser(text.chat()->dialect(), std::move(options));
}

double logarithm(float p) {
    return p > 0 ? std::log(static_cast<double>(p)) : -9999.0;
}

}  // namespace

ReplyReader::ReplyReader(const ModelText& text, const AnswerRequest& request, AnswerOptions options)
    : text_(text),
      request_(request),
      raw_(!request.raw.empty()),
      parser_(parser_for(text, request, std::move(options))),
      detokenizer_(text.tokenizer(), !raw_),
      stops_(request.stop),
      reasoning_stops_(request.stop_in_reasoning ? request.stop : std::vector<std::string>{}) {}

void ReplyReader::note_logprob(const protocol::Token& token) {
    if (request_.logprobs < 0) return;
    TokenLogprob entry;
    const auto piece = [&](int32_t id) { return std::string(text_.tokenizer().piece(id, true)); };
    entry.token = {piece(token.id), logarithm(token.p.value_or(0))};
    for (const auto& top : token.top) {
        if (static_cast<int>(entry.top.size()) >= request_.logprobs) break;
        entry.top.push_back({piece(top.id), logarithm(top.p)});
    }
    waiting_.push_back(std::move(entry));
}

bool ReplyReader::take(const protocol::Token& token, std::vector<AnswerEvent>& events,
                       std::vector<TokenLogprob>& logprobs) {
    if (stopped_) return false;
    repeats_ = token.id == last_ ? repeats_ + 1 : 1;
    last_ = token.id;
    const auto before = parser_.phase();
    if (before == AnswerParser::Phase::reasoning) ++reasoning_tokens_;
    if (text_.tokenizer().is_end_of_generation(token.id)) return true;
    std::vector<AnswerEvent> raw;
    parser_.push(detokenizer_.push(token.id), raw);
    const auto after = parser_.phase();
    const bool mark = text_.tokenizer().type(token.id) == TokenType::control;
    if (!mark && after == AnswerParser::Phase::content && before != AnswerParser::Phase::reasoning &&
        before != AnswerParser::Phase::call)
        note_logprob(token);
    pass(raw, events);
    if (std::ranges::any_of(events, [](const auto& e) { return e.type == AnswerEvent::Type::content; }))
        logprobs = std::exchange(waiting_, {});
    // The same token again and again: the model is stuck.
    const int64_t most = text_.entry().config.repeat_stop_tokens;
    if (most > 0 && repeats_ >= most) stopped_ = too_many_ = true;
    if (parser_.wants_stop()) stopped_ = true;
    return !stopped_;
}

/// Takes stop strings out.
void ReplyReader::pass(std::vector<AnswerEvent>& raw, std::vector<AnswerEvent>& events) {
    const size_t first = events.size();
    for (AnswerEvent& event : raw) {
        if (stopped_) break;
        StopStrings* stops = event.type == AnswerEvent::Type::content     ? &stops_
                             : event.type == AnswerEvent::Type::reasoning ? &reasoning_stops_
                                                                          : nullptr;
        if (!stops) {
            // A call follows: content held back was no stop string.
            if (event.type == AnswerEvent::Type::call_begin)
                if (std::string held = stops_.finish(); !held.empty())
                    events.push_back({AnswerEvent::Type::content, -1, std::move(held)});
            events.push_back(std::move(event));
            continue;
        }
        std::string text;
        if (stops->push(event.text, text)) {
            stopped_ = true;
            result_.stop_string = stops->found();
        }
        if (!text.empty()) events.push_back({event.type, event.call, std::move(text)});
    }
    result_.answer.add({events.begin() + static_cast<std::ptrdiff_t>(first), events.end()});
}

void ReplyReader::finish(const std::string& how, std::vector<AnswerEvent>& events,
                         std::vector<TokenLogprob>& logprobs) {
    const bool cut = too_many_ || (!stopped_ && how != "stop");
    const AnswerEnd end = cut ? AnswerEnd::length : AnswerEnd::stop;
    std::vector<AnswerEvent> raw;
    FinishReason reason = FinishReason::stop;
    if (result_.stop_string.empty()) {
        parser_.push(detokenizer_.finish(), raw);
        reason = parser_.finish(end, raw);
        const bool stopped = std::exchange(stopped_, false);
        pass(raw, events);
        stopped_ = stopped || stopped_;
        std::vector<AnswerEvent> held;
        for (StopStrings* stops : {&reasoning_stops_, &stops_}) {
            if (!result_.stop_string.empty()) break;
            if (std::string text = stops->finish(); !text.empty())
                held.push_back({stops == &stops_ ? AnswerEvent::Type::content : AnswerEvent::Type::reasoning, -1,
                                std::move(text)});
        }
        result_.answer.add(held);
        events.insert(events.end(), held.begin(), held.end());
    }
    logprobs.insert(logprobs.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    result_.answer.drop_incomplete();
    result_.finish = !result_.stop_string.empty()            ? Finish::stop_string
                     : cut || reason == FinishReason::length ? Finish::length
                     : reason == FinishReason::tool_calls    ? Finish::tool_calls
                                                             : Finish::stop;
}

std::string ReplyReader::phase() const {
    switch (parser_.phase()) {
        case AnswerParser::Phase::reasoning: return "thinking";
        case AnswerParser::Phase::call: return "writing a tool call";
        default: return "answering";
    }
}

GenerateRequest engine_request(const ModelText& text, const AnswerRequest& request, const TokenPrompt& prompt,
                               int64_t room, int reply) {
    GenerateRequest out;
    out.prompt = prompt.ids;
    out.max_new = std::clamp<int64_t>(request.max_tokens.value_or(room), 1, room);
    out.sampling = text.sampling(request.sampling);
    if (out.sampling.seed != 0) out.sampling.seed += static_cast<uint64_t>(reply);
    if (request.ignore_eos) {
        out.stop_ids.emplace();
        for (const int32_t id : text.tokenizer().end_of_generation()) out.sampling.bias.emplace_back(id, -1e9f);
    } else {
        out.stop_ids = text.tokenizer().end_of_generation();
    }
    if (request.logprobs >= 0) out.top = std::max(1, request.logprobs);
    out.cache = request.cache;
    out.turn_at = prompt.turn_at;
    return out;
}

}  // namespace strata::server
