// Jinja templates: a model file carries its chat template as one (docs/jinja.md). Parsed once, rendered many times.
// The environment is the one chat templates are written for: trim_blocks and lstrip_blocks on, no autoescape, loop
// controls, a transparent `generation` block, undefined prints as nothing, values cannot be changed in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"

namespace strata {

namespace jinja {
struct Program;
}

/// What one rendering may use. A template comes from a file somebody downloaded: past a limit it gets an error.
struct TemplateLimits {
    int64_t steps = 10'000'000;               // statements, expressions, items, and every 64 bytes looked at
    size_t output_bytes = size_t{64} << 20;   // of the result, and of any one text on the way to it
    size_t memory_bytes = size_t{512} << 20;  // of all values made on the way
    int macro_depth = 200;                    // macros calling macros
    int nesting_depth = 2000;                 // statements and expressions being evaluated at once
};

struct RenderOptions {
    std::optional<std::tm> now;  // the local time strftime_now sees; the clock's when unset
    TemplateLimits limits;
};

/// A parsed template. Immutable: any number of threads may render it at once.
///
/// Errors say the line. Their codes: "template_syntax" (parse), "template_raised" (the template called
/// raise_exception: the message is its own sentence, meant for the client), "template_failed" (an operation that has no
/// result, such as an attribute of an undefined value), "template_limit".
class Template {
  public:
    static Result<Template> parse(std::string_view source);

    /// Renders with an object's members as the variables. Sees nothing but them: no files, no environment.
    Result<std::string> render(const Json& variables, const RenderOptions& options = {}) const;

    /// Whether the template reads a variable of this name anywhere.
    bool mentions(std::string_view variable) const;

    Template(Template&&) noexcept;
    Template& operator=(Template&&) noexcept;
    ~Template();

  private:
    explicit Template(std::unique_ptr<jinja::Program> program);
    std::unique_ptr<jinja::Program> program_;
};

}  // namespace strata
