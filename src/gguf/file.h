// A model file, or a set of them, opened and read in place. Source: specs page gguf, sections 7, 8 and 10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/mapping.h"
#include "gguf/metadata.h"
#include "gguf/parse.h"

namespace strata::gguf {

/// What caches of a file's contents are keyed by. For a set: device, inode and time of the first file, all sizes added
/// up, and one hash over every file's header (keys and tensor infos, not the data).
struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t size = 0;
    int64_t mtime_ns = 0;
    uint64_t header_hash = 0;

    bool operator==(const Identity&) const = default;
};

/// How pages of the mapping will be used, for the operating system.
enum class Access { normal, sequential, random, will_need, dont_need };

/// Keys (of the first file) through the getters of Metadata, tensors of all files of the set. Everything handed out is
/// a view into the mappings and lives as long as the File; moving a File keeps the views valid. All const members are
/// safe from any thread.
class File : public Metadata {
  public:
    /// Opens a file, or the whole set that it is a part of (any part may be named; the others are looked for beside the
    /// path as given, so beside a link and under its name). Refuses with file_error and the spec's code.
    static Result<File> open(const std::filesystem::path& path);

    /// A single file that lies in memory, for tests and tools; `bytes` must outlive the File. Identity has no inode.
    static Result<File> from_memory(std::span<const std::byte> bytes, std::string_view name);

    /// All tensors, file by file, in file order.
    std::span<const TensorInfo> tensors() const { return tensors_; }
    const TensorInfo* find_tensor(std::string_view name) const;

    /// Bytes of all files together.
    uint64_t total_size() const;
    /// Reads every header once (some MB) for the hash.
    Identity identity() const;

    struct Part {
        std::filesystem::path path;
        Mapping mapping;                   // empty for from_memory
        std::span<const std::byte> bytes;  // the whole file
        uint64_t data_start = 0;
        uint64_t alignment = kDefaultAlignment;
        uint32_t version = 0;
    };
    /// The files of the set in their order; TensorInfo::file counts them.
    std::span<const Part> parts() const { return parts_; }

    /// Refuses ("changed") where a file was cut or rewritten since it was opened: ask before using late-loaded parts.
    Result<void> check_unchanged() const;

    /// Reads bytes of a tensor without touching the mapping, for uploads through pinned memory: fills `out` from byte
    /// `from` of the tensor. Needs a file that was opened by path.
    Result<void> read(const TensorInfo& tensor, uint64_t from, std::span<std::byte> out) const;

    /// Tells the system how all data, or one tensor's, will be used. A hint: it cannot fail.
    void advise(Access access) const;
    void advise(const TensorInfo& tensor, Access access) const;

  private:
    explicit File(Metadata metadata) : Metadata(std::move(metadata)) {}
    Result<void> add_tensors(std::vector<TensorInfo> tensors, uint32_t file);
    Result<void> index_tensors();

    std::vector<Part> parts_;
    std::vector<TensorInfo> tensors_;
    std::vector<uint32_t> by_name_;  // positions in tensors_, in the order of their names
};

/// Reads one byte of every 4 KiB page of a range, so that later reads of it cost no page fault. Call it from several
/// threads with ranges of their own; returns the sum of the bytes read, which nobody needs.
uint64_t touch(std::span<const std::byte> range);

/// Asks for a mapped range in pages of 2 MB: what is not in memory yet is then read, and mapped, in such pages, where
/// the system and the file's file system have them. For files that fit in memory: a single byte reads 2 MB. A hint.
void prefer_large_pages(std::span<const std::byte> range);

}  // namespace strata::gguf
