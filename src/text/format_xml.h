// Calls written as elements around parameters: what the dialects qwen and dsml share.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_dialect.h"

namespace strata {

/// The tags of one such dialect. A head is a tag's beginning up to its name.
struct XmlTags {
    std::string function_head;  // "<function="
    std::string function_end;   // "</function>"
    std::string parameter_head;
    std::string parameter_end;
    std::string block_end;    // empty for a bare call
    bool attributes = false;  // names are attributes (name="..") and a parameter may say string="true"
    bool lines = false;       // a value may stand on lines of its own: one newline on each side is not part of it
};

/// Reads a block, or with `bare` one function whose head was read already.
class XmlReader final : public CallReader {
  public:
    XmlReader(XmlTags tags, bool bare, const ToolSet& tools)
        : tags_(std::move(tags)), tools_(tools), bare_(bare), state_(bare ? State::name : State::function) {}

    Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) override;

  private:
    enum class State : uint8_t { function, name, body, value, after_function };
    enum class Step : uint8_t { again, more, done, refused };

    Step read_function(std::string_view block, bool ended);
    Step read_name(std::string_view block, bool ended);
    Step read_body(std::string_view block, bool ended);
    Step read_parameter(std::string_view block, bool ended);
    Step read_value(std::string_view block, bool ended);
    Step read_after_function(std::string_view block, bool ended);
    void begin_call();
    void end_value(std::string_view value, size_t next);
    Step cut_off(std::string_view block);

    XmlTags tags_;
    const ToolSet& tools_;
    bool bare_;
    State state_;
    size_t at_ = 0;  // read up to here
    std::string name_;
    const Tool* tool_ = nullptr;

    // The value being read.
    std::string key_;
    enum class Kind : uint8_t { by_schema, text, json } kind_ = Kind::by_schema;
    bool streams_ = false;
    bool fresh_ = true;  // nothing of it has been looked at
    size_t value_ = 0;   // where it begins
    size_t sent_ = 0;    // up to where it has been written
    size_t scan_ = 0;
    size_t likely_end_ = std::string_view::npos;  // a tag that ends it if no better one comes
};

/// Whether the text, behind white space, is the head of a function the tools declare.
Match declared_function(std::string_view text, const XmlTags& tags, const ToolSet& tools);
/// The same behind the head: NAME> or NAME">.
Match declared_name(std::string_view text, const XmlTags& tags, const ToolSet& tools);

}  // namespace strata
