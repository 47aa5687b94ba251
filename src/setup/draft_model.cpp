#include "setup/draft_model.h"

#include <algorithm>
#include <vector>

#include "device/measure.h"
#include "models/model.h"

namespace strata {
namespace fs = std::filesystem;

fs::path find_draft_model(const gguf::File& model, const fs::path& folder) {
    const std::string_view architecture = draft_architecture(model.architecture());
    if (architecture.empty()) return {};
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (at->path().extension() == ".gguf") paths.push_back(at->path());
    std::ranges::sort(paths);
    for (const fs::path& path : paths) {
        const auto draft = gguf::File::open(path);
        if (!draft || draft->architecture() != architecture) continue;
        MeasuringDevice measuring;
        if (make_model(model, measuring, {.draft = &*draft})) return path;
    }
    return {};
}

}  // namespace strata
