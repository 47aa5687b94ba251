// polystrata models: the installed models, in a table or as JSON.

#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/model_text.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags where;
    bool json = false;
    std::string info;  // name; empty: the list
};

Outcome list(const Registry& registry, bool json) {
    for (const std::string& line : registry.warnings()) std::fprintf(stderr, "polystrata models: %s\n", line.c_str());
    if (json) {
        Json entries = Json::array();
        for (const ModelEntry& entry : registry.entries()) entries.push_back(entry_json(entry));
        std::printf("%s\n", json_text({{"models", std::move(entries)}}, {.indent = 2}).c_str());
        return 0;
    }
    if (registry.entries().empty())
        std::puts("No model is installed: ./setup.sh installs one; chat --model FILE takes any GGUF file.");
    else
        std::fputs(models_table(registry).c_str(), stdout);
    return 0;
}

}  // namespace

Run declare_models(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->where.add_data_dir(set);
    set.toggle("--json", flags->json, "Print JSON");
    FlagSet::Command info = set.command("info", "What one model is");
    info.flags.text("name", flags->info, "The model's name, or a part that only one has, or a GGUF file", "NAME|FILE")
        .required();
    info.flags.toggle("--json", flags->json, "Print JSON");
    return [flags, info_given = info.given]() -> Outcome {
        STRATA_TRY_ASSIGN(const auto home, flags->where.home());
        STRATA_TRY_ASSIGN(const Registry registry, Registry::read(home));
        if (!info_given()) return list(registry, flags->json);
        ModelEntry entry;
        const auto found = registry.find(flags->info);
        if (found) {
            entry = **found;  // also one that cannot be used: info says why
        } else {
            STRATA_TRY_ASSIGN(entry, resolve_model(flags->info, home));
        }
        if (flags->json)
            std::printf("%s\n", json_text(entry_json(entry), {.indent = 2}).c_str());
        else
            std::fputs(model_text(entry).c_str(), stdout);
        return 0;
    };
}

}  // namespace strata::cli
