#include "gguf/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <optional>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace strata::gguf {
namespace {

constexpr uint64_t kPage = 4096;
__extension__ using Wide = unsigned __int128;

struct Opened {
    File::Part part;
    Container container;
};

Result<Opened> open_part(const std::filesystem::path& path) {
    Opened opened;
    opened.part.path = path;
    STRATA_TRY_ASSIGN(opened.part.mapping, Mapping::open(path));
    opened.part.bytes = opened.part.mapping.bytes();
    STRATA_TRY_ASSIGN(opened.container, parse(opened.part.bytes, path.string()));
    return opened;
}

/// Where a file stands in its set.
struct Split {
    int64_t no = 0;     // from 0
    int64_t count = 1;  // files of the set
    std::optional<int64_t> tensors;
};

Result<Split> split_of(const Metadata& keys) {
    Split split;
    STRATA_TRY_ASSIGN(const auto count, keys.find_int("split.count", 0, 65535));
    STRATA_TRY_ASSIGN(const auto no, keys.find_int("split.no", 0, 65535));
    STRATA_TRY_ASSIGN(split.tensors, keys.find_int("split.tensors.count", 0, int64_t{1} << 40));
    split.count = std::max<int64_t>(count.value_or(1), 1);
    if (split.count > 1 && !no)
        return file_error(keys.file_name() + ": is one of " + std::to_string(split.count) +
                              " files but does not say which (key split.no is missing)",
                          "split-no");
    split.no = no.value_or(0);
    return split;
}

std::string split_suffix(int64_t no, int64_t count) {
    char text[64];
    std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(no + 1),
                  static_cast<long long>(count));
    return text;
}

std::string plain_name(const std::filesystem::path& path) {
    return path.filename().string();
}

}  // namespace

Result<File> File::open(const std::filesystem::path& path) {
    STRATA_TRY_ASSIGN(Opened named, open_part(path));
    Metadata named_keys(path.string(), named.container.keys);
    STRATA_TRY_ASSIGN(const Split split, split_of(named_keys));

    std::vector<Opened> all;
    if (split.count == 1) {
        all.push_back(std::move(named));
    } else {
        const std::string suffix = split_suffix(split.no, split.count);
        const std::string name = plain_name(path);
        if (split.no >= split.count || !name.ends_with(suffix))
            return file_error(path.string() + ": says that it is file " + std::to_string(split.no + 1) + " of " +
                                  std::to_string(split.count) + " but its name does not end in " + suffix +
                                  ": give it back the name it was downloaded with",
                              "split-name");
        const std::string prefix = name.substr(0, name.size() - suffix.size());
        for (int64_t no = 0; no < split.count; ++no) {
            if (no == split.no) {
                all.push_back(std::move(named));
                continue;
            }
            const std::filesystem::path other = path.parent_path() / (prefix + split_suffix(no, split.count));
            auto opened = open_part(other);
            if (!opened.ok()) {
                Error error = std::move(opened).error();
                if (error.code == "missing")
                    error = file_error(other.string() + ": is missing: the model is a set of " +
                                           std::to_string(split.count) + " files that must lie in one folder",
                                       "split-missing");
                return error;
            }
            STRATA_TRY_ASSIGN(const Split found, split_of(Metadata(other.string(), opened->container.keys)));
            if (found.count != split.count)
                return file_error(other.string() + ": says that its set has " + std::to_string(found.count) +
                                      " files, but " + name + " says " + std::to_string(split.count),
                                  "split-count");
            if (found.no != no)
                return file_error(other.string() + ": says that it is file " + std::to_string(found.no + 1) +
                                      " of its set, but its name says " + std::to_string(no + 1),
                                  "split-no");
            all.push_back(std::move(opened).value());
        }
    }

    const std::string first_name = all[0].part.path.string();
    File file{Metadata(first_name, std::move(all[0].container.keys))};
    STRATA_TRY_ASSIGN(const Split whole, split_of(file));
    for (Opened& opened : all) {
        const auto number = static_cast<uint32_t>(file.parts_.size());
        opened.part.data_start = opened.container.data_start;
        opened.part.alignment = opened.container.alignment;
        opened.part.version = opened.container.version;
        file.parts_.push_back(std::move(opened.part));
        STRATA_TRY(file.add_tensors(std::move(opened.container.tensors), number));
    }
    if (split.count > 1 && whole.tensors && static_cast<uint64_t>(*whole.tensors) != file.tensors_.size())
        return file_error(first_name + ": says that its set has " + std::to_string(*whole.tensors) +
                              " tensors, but its files hold " + std::to_string(file.tensors_.size()) +
                              ": they are not from one set",
                          "split-tensor-count");
    STRATA_TRY(file.index_tensors());
    return file;
}

Result<File> File::from_memory(std::span<const std::byte> bytes, std::string_view name) {
    STRATA_TRY_ASSIGN(Container container, parse(bytes, name));
    File file{Metadata(std::string(name), std::move(container.keys))};
    Part part;
    part.path = std::string(name);
    part.bytes = bytes;
    part.data_start = container.data_start;
    part.alignment = container.alignment;
    part.version = container.version;
    file.parts_.push_back(std::move(part));
    STRATA_TRY(file.add_tensors(std::move(container.tensors), 0));
    STRATA_TRY(file.index_tensors());
    return file;
}

Result<void> File::add_tensors(std::vector<TensorInfo> tensors, uint32_t file) {
    if (tensors_.size() + tensors.size() > kMaxTensors)
        return file_error(file_name() + ": the set has more than " + std::to_string(kMaxTensors) + " tensors",
                          "tensor-count");
    for (TensorInfo& tensor : tensors) tensor.file = file;
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
    return {};
}

Result<void> File::index_tensors() {
    // A wrong type here would be found by nobody else: every other key is asked for by whoever needs it.
    STRATA_TRY(find_string("general.architecture"));
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    std::sort(by_name_.begin(), by_name_.end(),
              [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
    for (size_t i = 1; i < by_name_.size(); ++i) {
        const TensorInfo& a = tensors_[by_name_[i - 1]];
        const TensorInfo& b = tensors_[by_name_[i]];
        if (a.name == b.name)
            return file_error(parts_[std::max(a.file, b.file)].path.string() + ": tensor " + std::string(a.name) +
                                  " is in two files of the set",
                              "duplicate-tensor");
    }
    return {};
}

const TensorInfo* File::find_tensor(std::string_view name) const {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                     [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
    return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

uint64_t File::total_size() const {
    uint64_t size = 0;
    for (const Part& part : parts_) size += part.bytes.size();
    return size;
}

Identity File::identity() const {
    Identity id;
    id.size = total_size();
    if (!parts_.empty()) {
        id.device = parts_[0].mapping.device();
        id.inode = parts_[0].mapping.inode();
        id.mtime_ns = parts_[0].mapping.mtime_ns();
    }
    // Eight bytes a step, multiplied and folded: a hash against accidents, not against forgery.
    uint64_t hash = 0x9E3779B97F4A7C15;
    const auto mix = [&hash](uint64_t word) {
        const auto product = static_cast<Wide>(hash ^ word) * 0xD6E8FEB86659FD93;
        hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    };
    for (const Part& part : parts_) {
        const uint64_t length = std::min<uint64_t>(part.data_start, part.bytes.size());
        mix(length + 1);
        for (uint64_t at = 0; at < length; at += 8) {
            uint64_t word = 0;
            std::memcpy(&word, part.bytes.data() + at, std::min<uint64_t>(8, length - at));
            mix(word + at);
        }
    }
    id.header_hash = hash;
    return id;
}

Result<void> File::check_unchanged() const {
    for (const Part& part : parts_)
        if (part.mapping.descriptor() >= 0 && !part.mapping.unchanged())
            return file_error(part.path.string() + ": was changed while it was in use: start again", "changed");
    return {};
}

Result<void> File::read(const TensorInfo& tensor, uint64_t from, std::span<std::byte> out) const {
    const Part& part = parts_[tensor.file];
    if (from > tensor.bytes || out.size() > tensor.bytes - from)
        return failure(part.path.string() + ": a read beyond the end of tensor " + std::string(tensor.name));
    uint64_t done = 0;
    while (done < out.size()) {
        const ssize_t count = ::pread(part.mapping.descriptor(), out.data() + done, out.size() - done,
                                      static_cast<off_t>(tensor.offset + from + done));
        if (count > 0) {
            done += static_cast<uint64_t>(count);
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        return file_error(part.path.string() + ": tensor " + std::string(tensor.name) + " cannot be read: " +
                              (count == 0 ? "the file was cut short" : std::generic_category().message(errno)),
                          count == 0 ? "changed" : "unreadable");
    }
    return {};
}

namespace {

void advise_pages(std::span<const std::byte> range, int advice) {
    if (range.empty()) return;
    const auto begin =
        reinterpret_cast<uintptr_t>(range.data()) & ~(kPage - 1);  // hints may include a neighbour's bytes
    const auto end = reinterpret_cast<uintptr_t>(range.data()) + range.size();
    ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

void advise_range(std::span<const std::byte> range, Access access) {
    int advice = MADV_NORMAL;
    switch (access) {
        case Access::normal: break;
        case Access::sequential: advice = MADV_SEQUENTIAL; break;
        case Access::random: advice = MADV_RANDOM; break;
        case Access::will_need: advice = MADV_WILLNEED; break;
        case Access::dont_need: advice = MADV_DONTNEED; break;
    }
    advise_pages(range, advice);
}

}  // namespace

void File::advise(Access access) const {
    for (const Part& part : parts_)
        if (part.mapping.descriptor() >= 0) advise_range(part.bytes, access);
}

void File::advise(const TensorInfo& tensor, Access access) const {
    if (parts_[tensor.file].mapping.descriptor() >= 0) advise_range({tensor.data, tensor.bytes}, access);
}

uint64_t touch(std::span<const std::byte> range) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < range.size(); at += kPage) {
        const volatile std::byte* byte = range.data() + at;
        sum += static_cast<uint64_t>(*byte);
    }
    if (!range.empty()) sum += static_cast<uint64_t>(*static_cast<const volatile std::byte*>(&range.back()));
    return sum;
}

void prefer_large_pages([[maybe_unused]] std::span<const std::byte> range) {
#if defined(MADV_HUGEPAGE)
    advise_pages(range, MADV_HUGEPAGE);
#endif
}

}  // namespace strata::gguf
