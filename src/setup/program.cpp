#include "setup/program.h"

#include <system_error>

namespace strata {
namespace fs = std::filesystem;

Result<ProgramPaths> program_paths() {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (error) return failure("/proc/self/exe: cannot be read (" + error.message() + "); is /proc mounted?");
    ProgramPaths paths;
    paths.binaries = paths.home = program.parent_path();
    // HOME/build*/bin/program
    const fs::path project = paths.binaries.parent_path().parent_path();
    if (paths.binaries.filename() == "bin" && fs::exists(project / "setup.sh", error)) paths.home = project;
    return paths;
}

}  // namespace strata
