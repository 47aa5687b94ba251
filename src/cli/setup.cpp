// polystrata setup: prepares a model (a run config beside the program) and starts it. ./setup.sh builds and calls it.

#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "cli/command.h"
#include "setup/draft_model.h"
#include "setup/families.h"
#include "setup/machine.h"
#include "setup/program.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
    std::string family;
    std::string model;  // a size of the family, or a file
    std::string gguf_dir;
    std::string vision;
    std::string data_dir;
    std::string prompt;
    int64_t context = 0;  // 0: the engine's default
    bool cpu = false;
    bool check = false;
    bool no_start = false;
    bool yes = false;
};

bool names_a_file(const std::string& model) {
    std::error_code error;
    return model.find('/') != std::string::npos || model.ends_with(".gguf") || fs::is_regular_file(model, error);
}

std::string ram_words(double gigabytes, const Machine& machine) {
    char text[64];
    std::snprintf(text, sizeof text, "%.0f GB", gigabytes);
    const auto here = static_cast<double>(machine.ram) / 1e9;
    return std::string(text) + " of RAM" +
           (machine.ram > 0 && gigabytes > here ? " (more than this PC has: slow)" : "");
}

/// Installed models and families, with what this PC makes of them.
Outcome check(const fs::path& home) {
    const Machine machine = this_machine();
    STRATA_TRY_ASSIGN(const Registry registry, Registry::read(home));
    std::printf("This PC: %s\n", machine_text(machine).c_str());
    for (const ModelEntry& entry : registry.entries())
        std::printf(
            "installed  %s: %s\n", entry.id.c_str(),
            entry.available() ? (bytes_text(entry.facts->file_bytes) + ", can run").c_str() : entry.problem.c_str());
    for (const Family& family : families()) {
        std::printf("family     %s: %s", family.name, family.model);
        if (family.carried) std::printf("; comes with the project");
        for (const FamilySize& size : family.sizes)
            if (size.ram_gb > 0)
                std::printf("; %s %.1f GB, wants about %s", size.name, size.download_gb,
                            ram_words(size.ram_gb, machine).c_str());
        std::printf("\n");
    }
    return 0;
}

/// The file that the flags choose.
Result<fs::path> choose_file(const Flags& flags, const Family* family, const fs::path& program_home) {
    if (names_a_file(flags.model)) return fs::absolute(flags.model).lexically_normal();
    if (!flags.gguf_dir.empty()) {
        std::error_code error;
        if (!fs::is_directory(flags.gguf_dir, error))
            return file_error("--gguf-dir: " + flags.gguf_dir + " is not a folder", "no-folder");
        const std::vector<fs::path> files = find_family_files(flags.gguf_dir, family, flags.model);
        if (files.size() == 1) return fs::absolute(files[0]).lexically_normal();
        if (files.empty())
            return file_error(flags.gguf_dir + ": holds no model" +
                                  (family ? " of the architecture of " + std::string(family->model) : "") +
                                  (flags.model.empty() ? "" : " with '" + flags.model + "' in its name"),
                              "no-model");
        std::string names;
        for (const fs::path& file : files) names += (names.empty() ? "" : ", ") + file.filename().string();
        return usage_error(flags.gguf_dir + ": holds several; name one with --model: " + names);
    }
    if (family->carried) {
        if (!flags.model.empty())
            return usage_error("--model: the family " + std::string(family->name) + " has one size only");
        return program_home / family->carried;
    }
    return file_error("setup downloads nothing: get a GGUF file of " + std::string(family->model) +
                          " (recommended: " + family->sizes[0].name +
                          ") and name its folder with --gguf-dir DIR or the file with --model FILE",
                      "no-download");
}

/// HOME/strata-ID.json; an id that begins so by itself is not given it twice.
fs::path config_path(const fs::path& home, const std::string& id) {
    return home / ((id.starts_with("strata-") ? id : "strata-" + id) + ".json");
}

/// Writes the run config of a model file.
Result<std::string> write_config(const Flags& flags, const fs::path& file, const ProgramPaths& paths,
                                 const fs::path& home) {
    STRATA_TRY_ASSIGN(const ModelEntry entry, resolve_model(file.string(), home));
    const auto relative = [&](const fs::path& path) {
        const fs::path short_path = path.lexically_relative(fs::absolute(home).lexically_normal());
        return short_path.empty() || *short_path.begin() == ".." ? path.string() : short_path.string();
    };
    Json arguments = {"--model", relative(entry.path)};
    STRATA_TRY_ASSIGN(const gguf::File model, gguf::File::open(entry.path));
    if (const fs::path draft = find_draft_model(model, entry.path.parent_path()); !draft.empty()) {
        std::fprintf(stderr, "setup: %s guesses for it\n", draft.filename().c_str());
        arguments.insert(arguments.end(), {"--draft-model", relative(draft)});
    }
    if (flags.context > 0) arguments.insert(arguments.end(), {"--max-context", std::to_string(flags.context)});
    if (flags.cpu) arguments.insert(arguments.end(), {"--device", "cpu"});
    STRATA_TRY(write_run_config(config_path(home, entry.id), {{"exe", relative(paths.binaries / "strata-poly")},
                                                              {"args", std::move(arguments)},
                                                              {"model_name", entry.id},
                                                              {"display_name", entry.display_name}}));
    return entry.id;
}

/// Becomes `polystrata chat` with this model.
Outcome start(const Flags& flags, const std::string& id, bool noise, const ProgramPaths& paths, const fs::path& home) {
    std::vector<std::string> words = {
        (paths.binaries / "polystrata").string(), "chat", "--model", id, "--data-dir", home.string()};
    if (!flags.prompt.empty()) words.insert(words.end(), {"--prompt", flags.prompt});
    if (noise)
        words.insert(words.end(), {"--think", "off", "--max-new", "48"});  // random weights find no end by themselves
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::fflush(nullptr);
    execv(arguments[0], arguments.data());
    return failure(words[0] + ": cannot be started: " + std::strerror(errno));
}

Outcome run(Flags flags) {
    STRATA_TRY_ASSIGN(const ProgramPaths paths, program_paths());
    const fs::path home = flags.data_dir.empty() ? paths.home : fs::absolute(flags.data_dir).lexically_normal();
    std::error_code error;
    fs::create_directories(home, error);
    if (flags.check) return check(home);
    if (flags.vision == "yes" || flags.vision == "gpu" || flags.vision == "cpu")
        return usage_error("--vision: this version reads no pictures; only 'no' is possible");

    std::string id;
    bool noise = false;
    const bool nothing_named = flags.family.empty() && flags.model.empty() && flags.gguf_dir.empty();
    if (nothing_named) {
        STRATA_TRY_ASSIGN(const Registry registry, Registry::read(home));
        if (!registry.entries().empty()) {
            STRATA_TRY_ASSIGN(const ModelEntry* entry, registry.only());
            id = entry->id;
            std::fprintf(stderr, "setup: starting %s\n", id.c_str());
        }
    }
    if (id.empty()) {
        const Family* family = nullptr;
        if (!flags.family.empty() || (flags.gguf_dir.empty() && !names_a_file(flags.model))) {
            STRATA_TRY_ASSIGN(family, find_family(flags.family.empty() ? "nano" : flags.family));
        }
        STRATA_TRY_ASSIGN(const fs::path file, choose_file(flags, family, paths.home));
        STRATA_TRY_ASSIGN(id, write_config(flags, file, paths, home));
        std::fprintf(stderr, "setup: %s is ready: %s\n", id.c_str(), config_path(home, id).c_str());
        noise = family && family->noise;
        if (noise)
            std::fputs(
                "setup: this model has random weights: it shows that the program works, and its words are noise\n",
                stderr);
    }
    if (flags.no_start) {
        std::fprintf(stderr, "setup: chat with it: %s chat --model %s\n", (paths.binaries / "polystrata").c_str(),
                     id.c_str());
        return 0;
    }
    return start(flags, id, noise, paths, home);
}

}  // namespace

Run declare_setup(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    set.text("--family", flags->family, "A model by name; --check lists them (default: what is installed, else nano)",
             "NAME");
    set.text("--model", flags->model, "A size of the family (as in the file's name), or a GGUF file", "SIZE|FILE");
    set.text("--gguf-dir", flags->gguf_dir, "Use a model file that lies in this folder", "DIR");
    set.number("--context", flags->context, 256, 1 << 30, "Tokens a conversation may have (default: the engine's)");
    set.text("--vision", flags->vision, "Pictures: only 'no' in this version", "yes|no|gpu|cpu")
        .checked([](const std::string& text) {
            const bool known = text == "yes" || text == "no" || text == "gpu" || text == "cpu";
            return known ? std::string{} : "must be yes, no, gpu or cpu";
        });
    set.text("--prompt", flags->prompt, "Answer this once and end");
    set.text("--data-dir", flags->data_dir, "Folder for run configs and models/ (default: the program's)", "DIR");
    set.toggle("--cpu", flags->cpu, "Do not use a card");
    set.toggle("--yes", flags->yes, "Ask nothing (setup asks nothing yet)");
    set.toggle("--check", flags->check,
               "Say what this PC makes of the installed models and the families; change nothing");
    set.toggle("--no-start", flags->no_start, "Prepare the model only");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
