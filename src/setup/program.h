// Where this program and what belongs to it lie.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace strata {

struct ProgramPaths {
    std::filesystem::path binaries;  // folder of the running program; the engine lies beside it
    std::filesystem::path home;      // run configs (strata-NAME.json) and models/: the project's folder, or `binaries`
                                     // where the program was copied away from a build tree
};

Result<ProgramPaths> program_paths();

}  // namespace strata
