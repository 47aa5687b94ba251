// strata-poly's end of the line protocol (docs/protocol.md) on standard input and output.
#pragma once

#include "engine/open_engine.h"

namespace strata {

/// Serves until QUIT, the end of input or a broken device. `interrupted` tells of a signal to end. Returns the exit
/// code.
int serve(OpenedEngine& opened, const PolyOptions& options);

/// For signal handlers: ends a serve that runs, as QUIT does. Only calls what may be called there.
void interrupt_serve();

}  // namespace strata
