// A request's messages and tools in the one shape that templates are written for. docs/chat-formats.md, "Messages".
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"

namespace strata {

struct MessageOptions {
    bool parts = false;                 // the template takes content in parts
    bool late_system = false;           // the template writes later system messages itself
    std::string_view picture_mark;      // what stands for a picture in a prompt: text that spells it is defused
    std::string_view reasoning_opener;  // of the dialect
    std::string_view reasoning_closer;
};

struct Messages {
    Json list = Json::array();
    int pictures = 0;
    bool reasoning = false;  // an earlier assistant message carries some
};

/// Errors (code "invalid_request") name the message: `messages[3].content[0]: ...`.
Result<Messages> normalise_messages(const Json& messages, const MessageOptions& options);

/// {"type": "function", "function": {"name", "description", "parameters"}} for each tool; vendor keys are dropped. Null
/// for no tools.
Result<Json> normalise_tools(const Json& tools, const MessageOptions& options);

/// What `tool_choice` asks for.
struct ToolChoice {
    bool required = false;  // the reply must be a call
    std::string name;       // of this function; empty: of any
};

/// Reads a tool_choice and leaves in `tools` (normalised) what the model may see: none for "none", a part for
/// allowed_tools. Refuses names that are not among them.
Result<ToolChoice> choose_tools(Json& tools, const Json& tool_choice);

}  // namespace strata
