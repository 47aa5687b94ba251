// The table from `general.architecture` to its maker.

#include <array>

#include "models/flint.h"
#include "models/gemma4.h"
#include "models/kolibri1.h"
#include "models/lfm2moe.h"
#include "models/model.h"
#include "models/qwen35moe.h"

namespace strata {
namespace {

struct Entry {
    const char* architecture;
    Result<std::unique_ptr<Model>> (*make)(const gguf::File&, Device&, const ModelOptions&);
    const char* draft = nullptr;  // architecture of the draft models that come in a file of their own
};

constexpr std::array kArchitectures = {
    Entry{"qwen35moe", make_qwen35moe},
    Entry{"clover_moe", make_qwen35moe},
    Entry{"gemma4", make_gemma4, "gemma4-assistant"},
    Entry{"lfm2moe", make_lfm2moe},
    Entry{"kolibri1", make_kolibri1},
    Entry{"flint", make_flint},
};

}  // namespace

std::vector<std::string> known_architectures() {
    std::vector<std::string> names;
    for (const Entry& entry : kArchitectures) names.emplace_back(entry.architecture);
    return names;
}

std::string_view draft_architecture(std::string_view architecture) {
    for (const Entry& entry : kArchitectures)
        if (architecture == entry.architecture && entry.draft) return entry.draft;
    return {};
}

Result<std::unique_ptr<Model>> make_model(const gguf::File& file, Device& device, const ModelOptions& options) {
    STRATA_TRY_ASSIGN(const std::string_view architecture, file.get_string("general.architecture"));
    STRATA_TRY_ASSIGN(const auto kind, file.find_string("general.type"));
    if (kind && *kind != "model")
        return file_error(file.file_name() + ": is a file of type '" + std::string(*kind) + "', not a model",
                          "not-a-model");
    for (const Entry& entry : kArchitectures) {
        if (entry.draft && architecture == entry.draft)
            return file_error(file.file_name() +
                                  ": is a draft model: give it as --draft-model to a model of architecture '" +
                                  entry.architecture + "'",
                              "draft-model");
        if (architecture != entry.architecture) continue;
        if (options.draft && (!entry.draft || options.draft->architecture() != entry.draft))
            return file_error(options.draft->file_name() + ": architecture '" +
                                  std::string(options.draft->architecture()) + "' is no draft model for '" +
                                  std::string(architecture) + "'",
                              "draft-model");
        return entry.make(file, device, options);
    }
    std::string known;
    for (const Entry& entry : kArchitectures) known += std::string(known.empty() ? "" : ", ") + entry.architecture;
    return file_error(
        file.file_name() + ": architecture '" + std::string(architecture) + "' is not known here; known are " + known,
        "architecture");
}

}  // namespace strata
