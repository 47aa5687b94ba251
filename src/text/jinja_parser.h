// Tokens to a tree.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace strata::jinja {

/// Fills the program from a source; throws Stop "template_syntax". Refuses what reaches outside of the template
/// (include, import, extends, block), and trees deeper than 200 levels.
void parse(std::string_view source, Program& program);

}  // namespace strata::jinja
