#include "setup/families.h"

#include <algorithm>
#include <array>

#include "setup/registry.h"

namespace strata {
namespace fs = std::filesystem;
namespace {

constexpr std::array kNano = {FamilySize{"Q4_K", 0.016, 0}};
constexpr std::array kTiny = {FamilySize{"F16", 0.0015, 0}};
constexpr std::array kQwen36 = {FamilySize{"UD-Q3_K_M", 17.1, 21}, FamilySize{"UD-Q2_K_XL", 12.6, 17},
                                FamilySize{"UD-Q4_K_M", 22.7, 27}};
constexpr std::array kOrnith = {FamilySize{"APEX-MTP-I-Compact", 17.4, 22}, FamilySize{"APEX-MTP-I-Mini", 14.4, 18},
                                FamilySize{"APEX-MTP-I-Quality", 23.7, 28}};
constexpr std::array kTiel = {FamilySize{"UD-Q3_K_XL", 17.2, 21}, FamilySize{"UD-IQ3_XXS", 13.6, 18},
                              FamilySize{"UD-Q4_K_XL", 22.7, 27}};
constexpr std::array kMiniCpm = {FamilySize{"Q4_K_M", 21.2, 25}, FamilySize{"mix_q3gud_im", 15.5, 19},
                                 FamilySize{"Q6_K", 28.5, 31}};
constexpr std::array kClover = {FamilySize{"Q3_K_M", 16.8, 20}, FamilySize{"APEX-I-NanoPlus", 12.6, 16},
                                FamilySize{"Q4_K_M", 21.2, 25}};
constexpr std::array kGemma4 = {FamilySize{"UD-Q3_K_M", 13.2, 18}, FamilySize{"UD-Q2_K_XL", 11.0, 15},
                                FamilySize{"UD-Q4_K_M", 17.4, 21}};
constexpr std::array kKolibri = {FamilySize{"Q4_K_M", 47.5, 52}, FamilySize{"Q2_K", 28.6, 33},
                                 FamilySize{"Q3_K_M", 37.5, 42}};
constexpr std::array kLfm = {FamilySize{"QAD-Q4_0", 13.5, 18}, FamilySize{"Q8_0", 25.5, 30}};
constexpr std::array kFlint = {FamilySize{"UD-Q4_K_XL", 25.0, 29}, FamilySize{"UD-Q3_K_XL", 18.5, 23},
                               FamilySize{"Q8_0", 42.3, 46}};

constexpr std::array kFamilies = {
    Family{"nano", "the project's own small model, trained for demonstration", "qwen35moe", "strata-nano", kNano,
           "models/strata-nano.gguf"},
    Family{"tiny", "the project's test model (random weights)", "qwen35moe", "tiny", kTiny,
           "tests/data/qwen35moe/tiny.gguf", true},
    Family{"qwen36", "Qwen3.6-35B-A3B", "qwen35moe", "qwen3.6", kQwen36, nullptr},
    Family{"ornith", "Ornith 1.5 35B-A3B", "qwen35moe", "ornith", kOrnith, nullptr},
    Family{"tiel", "Tiel Coder 35B-A3B", "qwen35moe", "tiel", kTiel, nullptr},
    Family{"minicpmv", "MiniCPM-V 4.7 35B-A3B", "qwen35moe", "minicpm", kMiniCpm, nullptr},
    Family{"gemma4", "Gemma 4 26B-A4B", "gemma4", "gemma", kGemma4, nullptr},
    Family{"clover", "Clover-35B-A3B-Preview", "clover_moe", "clover", kClover, nullptr},
    Family{"kolibri", "Kolibri 1 78B-A3.5B", "kolibri1", "kolibri", kKolibri, nullptr},
    Family{"lfm", "LFM2.5-24B-A2B", "lfm2moe", "lfm2", kLfm, nullptr},
    Family{"flint", "Flint 40B-A2.5B", "flint", "flint", kFlint, nullptr},
};

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

}  // namespace

std::span<const Family> families() {
    return kFamilies;
}

Result<const Family*> find_family(std::string_view name) {
    std::string names;
    for (const Family& family : kFamilies) {
        if (name == family.name) return &family;
        names += std::string(names.empty() ? "" : ", ") + family.name;
    }
    return usage_error("--family: '" + std::string(name) + "' is not known; known are " + names);
}

std::vector<fs::path> find_family_files(const fs::path& folder, const Family* family, std::string_view size) {
    struct Candidate {
        fs::path path;
        bool named;
    };
    std::vector<Candidate> candidates;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const fs::path& path = at->path();
        const std::string name = lower(path.filename().string());
        if (!name.ends_with(".gguf") || is_later_part(path)) continue;
        if (!size.empty() && name.find(lower(size)) == std::string::npos) continue;
        const auto file = gguf::File::open(path);
        if (!file) continue;
        const auto facts = describe_model_file(*file);
        if (!facts || facts->kind != "model" || (family && facts->architecture != family->architecture)) continue;
        const bool named = family && (name.find(family->word) != std::string::npos ||
                                      lower(facts->name).find(family->word) != std::string::npos);
        candidates.push_back({path, named});
    }
    const bool any_named = std::ranges::any_of(candidates, &Candidate::named);
    std::vector<fs::path> files;
    for (const Candidate& candidate : candidates)
        if (candidate.named || !any_named) files.push_back(candidate.path);
    std::ranges::sort(files);
    return files;
}

}  // namespace strata
