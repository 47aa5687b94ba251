// Models in words, for `models`, `inspect` and the chat's /model.
#pragma once

#include <string>

#include "setup/registry.h"

namespace strata::cli {

/// The installed models, one a line.
std::string models_table(const Registry& registry);
/// What one model is, several lines.
std::string model_text(const ModelEntry& entry);
/// The facts of a file's header, one a line, each indented by two.
std::string facts_text(const ModelFile& facts);

/// "name           value\n", indented by two.
std::string fact_line(std::string_view name, const std::string& value);

}  // namespace strata::cli
