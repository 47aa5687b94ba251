#include "cli/command.h"

#include <cerrno>
#include <unistd.h>

#include "setup/program.h"

namespace strata::cli {

Flag ModelFlags::add(FlagSet& flags) {
    const Flag flag = flags.text(
        "--model,-m", model, "An installed model's name (or a part that only one has), or a GGUF file", "NAME|FILE");
    add_data_dir(flags);
    return flag;
}

void ModelFlags::add_data_dir(FlagSet& flags) {
    flags.text("--data-dir", data_dir, "Folder with run configs and models/ (default: the program's)", "DIR");
}

Result<std::filesystem::path> ModelFlags::home() const {
    if (!data_dir.empty()) return std::filesystem::path(data_dir);
    STRATA_TRY_ASSIGN(const ProgramPaths paths, program_paths());
    return paths.home;
}

Result<ModelEntry> ModelFlags::resolve() const {
    STRATA_TRY_ASSIGN(const std::filesystem::path folder, home());
    return resolve_model(model, folder);
}

void EngineFlags::add(FlagSet& flags) {
    flags.text("--engine-args", arguments, "More flags for the engine, as one text: \"--threads 4 --kv q8_0\"");
}

Result<std::vector<std::string>> EngineFlags::split() const {
    std::vector<std::string> words;
    bool in_word = false;
    char quote = 0;
    for (const char c : arguments) {
        if (quote) {
            if (c == quote)
                quote = 0;
            else
                words.back() += c;
        } else if (c == ' ' || c == '\t' || c == '\n') {
            in_word = false;
        } else {
            if (!in_word) words.emplace_back();
            in_word = true;
            if (c == '\'' || c == '"')
                quote = c;
            else
                words.back() += c;
        }
    }
    if (quote) return usage_error(std::string("--engine-args: the quote ") + quote + " is not closed");
    return words;
}

std::string read_standard_input() {
    std::string text;
    char bytes[65536];
    for (;;) {
        const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return text;
        text.append(bytes, static_cast<size_t>(count));
    }
}

}  // namespace strata::cli
