// strata-poly --tokens: one answer on standard output, then the exit code.
#pragma once

#include <atomic>

#include "engine/open_engine.h"

namespace strata {

/// Without --json: the ids, separated by blanks, as they come. `interrupt` ends the answer early (exit code 130).
int answer_once(OpenedEngine& opened, const PolyOptions& options, const CancelFlag& interrupt);

}  // namespace strata
