#include "engine/expert_profile.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/atomic_file.h"
#include "base/hash.h"

namespace strata {
namespace {

constexpr uint64_t kVersion = 1;

uint64_t magic() {
    uint64_t word;
    std::memcpy(&word, "STRATAEP", sizeof word);
    return word;
}

/// Everything before the uses.
std::vector<uint64_t> header_of(uint64_t model_id, std::span<const int> layers) {
    std::vector<uint64_t> words{magic(), kVersion, model_id, layers.size()};
    for (const int experts : layers) words.push_back(static_cast<uint64_t>(experts));
    return words;
}

}  // namespace

Result<void> save_expert_profile(const std::string& path, uint64_t model_id, std::span<const int> layers,
                                 std::span<const uint64_t> uses) {
    std::vector<uint64_t> words = header_of(model_id, layers);
    words.insert(words.end(), uses.begin(), uses.end());
    words.push_back(hash_bytes(std::as_bytes(std::span(words))));
    STRATA_TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
    STRATA_TRY(file.write(std::as_bytes(std::span(words))));
    return file.commit();
}

Result<std::vector<uint64_t>> load_expert_profile(const std::string& path, uint64_t model_id,
                                                  std::span<const int> layers) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
    if (!file) return file_error(path + ": " + std::strerror(errno), errno == ENOENT ? "missing" : "read");
    const std::vector<uint64_t> header = header_of(model_id, layers);
    size_t experts = 0;
    for (const int n : layers) experts += static_cast<size_t>(n);

    // One word more than there should be, to see that there is none.
    std::vector<uint64_t> words(header.size() + experts + 2);
    const size_t bytes = std::fread(words.data(), 1, words.size() * sizeof(uint64_t), file.get());
    if (std::ferror(file.get())) return file_error(path + ": cannot be read", "read");
    const size_t whole = (header.size() + experts + 1) * sizeof(uint64_t);
    if (bytes < 2 * sizeof(uint64_t) || words[0] != magic())
        return file_error(path + ": it is no expert profile", "damaged");
    if (words[1] != kVersion) return file_error(path + ": it was written by another version", "other");
    if (bytes < header.size() * sizeof(uint64_t))
        return file_error(path + ": it is damaged (" + std::to_string(bytes) + " bytes)", "damaged");
    if (!std::equal(header.begin(), header.end(), words.begin()))
        return file_error(path + ": it belongs to another model", "other");
    words.resize(header.size() + experts + 1);
    const uint64_t hash = hash_bytes(std::as_bytes(std::span(words).first(words.size() - 1)));
    if (bytes != whole || words.back() != hash) return file_error(path + ": it is damaged", "damaged");
    return std::vector<uint64_t>(words.begin() + static_cast<std::ptrdiff_t>(header.size()), words.end() - 1);
}

}  // namespace strata
