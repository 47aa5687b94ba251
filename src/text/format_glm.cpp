// GLM, Flint: calls as a name and pairs of keys and values, without newlines.
//
//   <tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>
#include <algorithm>

#include "text/chat_dialect.h"
#include "text/grammar_calls.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>", kValue = "<arg_value>",
                           kValueEnd = "</arg_value>", kEnd = "</tool_call>";
constexpr size_t kMaxName = 256;

/// Whether the text is a key's element and the head of its value: <arg_key>..</arg_key> <arg_value>.
Match pair_head(std::string_view text, std::string& key, size_t& end) {
    Match match = starts_with_mark(text, kKey);
    if (match != Match::yes) return match;
    size_t close = text.find('<', kKey.size());
    if (close == npos) return Match::more;
    match = starts_with_mark(text.substr(close), kKeyEnd);
    if (match != Match::yes) return match;
    size_t value = skip_blanks(text, close + kKeyEnd.size());
    match = starts_with_mark(text.substr(value), kValue);
    if (match != Match::yes) return match;
    key = text.substr(kKey.size(), close - kKey.size());
    end = value + kValue.size();
    return Match::yes;
}

class GlmReader final : public CallReader {
  public:
    explicit GlmReader(const ToolSet& tools) : tools_(tools) {}

    Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) override {
        writer_.write_to(out);
        while (true) {
            Progress progress = state_ == State::name   ? read_name(block, ended)
                                : state_ == State::body ? read_body(block, ended)
                                                        : read_value(block, ended);
            if (progress != Progress::more) return finished(progress);
            if (!again_) return Progress::more;
            again_ = false;
        }
    }

  private:
    enum class State : uint8_t { name, body, value };

    Progress finished(Progress progress) {
        if (progress == Progress::done) used_ = at_;
        return progress;
    }
    Progress again() {
        again_ = true;
        return Progress::more;
    }

    Progress read_name(std::string_view block, bool ended) {
        size_t start = skip_blanks(block, 0);
        size_t end = block.find_first_of("<\n", start);
        std::string_view name = block.substr(start, std::min(end, block.size()) - start);
        while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
        if (!name.empty() && (!is_tool_name(name) || name.size() > kMaxName)) return Progress::refused;
        if (end == npos) {
            if (!ended) return Progress::more;
            if (name.empty()) return Progress::refused;
            end = block.size();
        }
        if (name.empty()) return Progress::refused;
        // What follows must be a key or the end, else it only looks like a name.
        std::string_view rest = block.substr(skip_blanks(block, end));
        Match key = starts_with_mark(rest, kKey), close = starts_with_mark(rest, kEnd);
        if (key == Match::no && close == Match::no) return Progress::refused;
        if (key != Match::yes && close != Match::yes && !ended) return Progress::more;
        if (!rest.empty() && key != Match::yes && close != Match::yes) return Progress::refused;
        name_ = name;
        tool_ = tools_.find(name_);
        writer_.begin(name_);
        at_ = end;
        state_ = State::body;
        return again();
    }

    Progress read_body(std::string_view block, bool ended) {
        size_t head = skip_blanks(block, at_);
        std::string_view rest = block.substr(head);
        size_t end = 0;
        Match close = starts_with_mark(rest, kEnd);
        Match pair = pair_head(rest, key_, end);
        if (close == Match::yes) {
            writer_.end();
            at_ = head + kEnd.size();
            return Progress::done;
        }
        if (pair == Match::yes) {
            at_ = value_ = sent_ = scan_ = head + end;
            streams_ = is_text_only(tool_, key_);
            if (streams_) writer_.text_begin(key_);
            state_ = State::value;
            return again();
        }
        if (!ended && (close == Match::more || pair == Match::more)) return Progress::more;
        // Something else: up to the next place where the call could go on, it is content.
        size_t next =
            ended && (close == Match::more || pair == Match::more) ? npos : block.find('<', head + (rest[0] == '<'));
        if (next == npos && !ended) next = block.size();
        next = std::min(next, block.size());
        size_t end_of_text = next;
        while (is_blank(block[end_of_text - 1])) --end_of_text;
        size_t start = stray_.empty() ? head : at_;  // white space within it counts
        stray_ += block.substr(start, end_of_text - start);
        at_ = end_of_text;
        if (next < block.size() || !ended) return again();
        at_ = block.size();
        writer_.end();
        return Progress::done;
    }

    void end_value(std::string_view block, size_t end, size_t next) {
        if (streams_) {
            writer_.text(block.substr(sent_, end - sent_));
            writer_.text_end();
        } else {
            writer_.argument(key_, typed_value(block.substr(value_, end - value_), tool_, key_));
        }
        at_ = next;
        state_ = State::body;
    }

    Progress read_value(std::string_view block, bool ended) {
        while (true) {
            size_t tag = block.find('<', scan_);
            if (tag == npos) {
                scan_ = block.size();
                break;
            }
            std::string_view rest = block.substr(tag);
            Match value_end = starts_with_mark(rest, kValueEnd), close = starts_with_mark(rest, kEnd);
            std::string key;
            size_t end = 0;
            Match another = pair_head(rest, key, end);  // the value's end was forgotten
            if (value_end == Match::yes) {
                end_value(block, tag, tag + kValueEnd.size());
                return again();
            }
            if (close == Match::yes || another == Match::yes) {
                end_value(block, tag, tag);
                return again();
            }
            if (!ended && (value_end == Match::more || close == Match::more || another == Match::more)) {
                scan_ = tag;
                break;
            }
            scan_ = tag + 1;
        }
        if (ended) {
            end_value(block, block.size(), block.size());
            return again();
        }
        if (streams_ && scan_ > sent_) {
            writer_.text(block.substr(sent_, scan_ - sent_));
            sent_ = scan_;
        }
        return Progress::more;
    }

    const ToolSet& tools_;
    State state_ = State::name;
    bool again_ = false;
    size_t at_ = 0;
    std::string name_;
    const Tool* tool_ = nullptr;
    std::string key_;
    bool streams_ = false;
    size_t value_ = 0, sent_ = 0, scan_ = 0;
};

class Glm final : public Dialect {
  public:
    std::string_view name() const override { return "glm"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {"<tool_call>"};
        return all;
    }
    std::string_view invented_result() const override { return "<tool_response>"; }

    std::unique_ptr<CallReader> reader(std::string_view, bool, const ToolSet& tools) const override {
        return std::make_unique<GlmReader>(tools);
    }
    Match declared(std::string_view text, const ToolSet& tools) const override {
        size_t start = skip_blanks(text, 0);
        size_t end = text.find_first_of("<\n", start);
        std::string_view name = text.substr(start, std::min(end, text.size()) - start);
        while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
        if (end == npos) return name.size() > kMaxName ? Match::no : Match::more;
        if (!tools.find(name)) return Match::no;
        std::string_view rest = text.substr(skip_blanks(text, end));
        Match key = starts_with_mark(rest, kKey), close = starts_with_mark(rest, kEnd);
        if (key == Match::yes || close == Match::yes) return Match::yes;
        return key == Match::more || close == Match::more ? Match::more : Match::no;
    }

    std::string forced_call(std::string_view name) const override { return "<tool_call>" + std::string(name); }
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        ParameterShape shape{[](const std::string& key, bool) {
                                 return std::string(kKey) + key + std::string(kKeyEnd) + std::string(kValue);
                             },
                             std::string(kValueEnd)};
        STRATA_TRY_ASSIGN(auto at, add_parameters(builder, from, tool, shape));
        return builder.literal(at, kEnd);
    }
    // Templates that know only low, high and max take any other level for max.
    std::string effort(std::string_view level) const override {
        if (level == "minimal") return "low";
        if (level == "medium") return "high";
        if (level == "xhigh") return "max";
        return std::string(level);
    }
};

}  // namespace

const Dialect& glm_dialect() {
    static const Glm dialect;
    return dialect;
}

}  // namespace strata
