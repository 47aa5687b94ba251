// The tools a request offers, and argument texts turned into JSON by their schemas.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace strata {

/// One function a model may call.
struct Tool {
    std::string name;
    Json parameters;  // its JSON schema, as the request has it

    /// The schema of a parameter; null where it is not declared.
    const Json* parameter(std::string_view key) const;
    /// Names of the parameters in the schema's order.
    std::vector<std::string> parameter_names() const;
};

/// The tools of a request, in its order.
class ToolSet {
  public:
    ToolSet() = default;
    /// From the normalised list: {"type": "function", "function": {"name", "parameters", ..}}.
    explicit ToolSet(const Json& tools);

    bool empty() const { return tools_.empty(); }
    const Tool* find(std::string_view name) const;
    const std::vector<Tool>& all() const { return tools_; }

  private:
    std::vector<Tool> tools_;
};

/// What an argument written as plain text means: by the types its schema allows, text where nothing else fits. `tool`
/// and the parameter may be unknown (null): then only strict JSON that is no string counts as more than text.
Json typed_value(std::string_view text, const Tool* tool, std::string_view parameter);

/// Whether the parameter can only be a string, so that its text can be passed on while it is being written.
bool is_text_only(const Tool* tool, std::string_view parameter);

/// A name a tool can have: not empty, no white space, quotes, brackets or angle brackets.
bool is_tool_name(std::string_view name);

}  // namespace strata
