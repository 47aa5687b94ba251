// Writes GGUF files and sets. Sizes are known before the first byte: they depend on names, types and dims only; the
// data then goes to its place in any order, from any thread. Source: specs page gguf, section 9.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "quant/types.h"

namespace strata::gguf {

/// Keys to be written, in the order in which they are first set. Setting a name again replaces its value.
class KeyList {
  public:
    /// T: uint8_t, int8_t, ..., int64_t, float, double, bool: written as exactly that type.
    template <class T>
    void set(std::string_view name, T value);
    void set_string(std::string_view name, std::string_view value);
    template <class T>
    void set_array(std::string_view name, std::span<const T> values);
    void set_bools(std::string_view name, const std::vector<bool>& values);
    void set_strings(std::string_view name, std::span<const std::string> values);
    /// A key of another file, as it stands there.
    void copy(const Key& key);
    void remove(std::string_view name);

    struct Entry {
        std::string name;
        std::string encoded;  // value type and value as they stand in a file
    };
    std::span<const Entry> entries() const { return entries_; }
    void put(std::string_view name, std::string encoded);

  private:
    std::vector<Entry> entries_;
};

struct TensorSpec {
    std::string name;
    Type type = Type::f32;
    std::vector<uint64_t> dims;  // dims[0] contiguous; trailing ones are not written
};

/// Bytes of the tensor's data, or an error that names what is wrong with its type and dims.
Result<uint64_t> tensor_bytes(const TensorSpec& tensor);

/// What a file or a set will hold. `split.*` and `general.alignment` among the keys are ignored: the writer sets them.
struct Contents {
    KeyList keys;
    std::vector<TensorSpec> tensors;
    uint64_t alignment = 32;
    uint64_t max_file_bytes = 0;  // of tensor data in one file; 0: everything in one file
};

/// Where everything will lie.
struct Layout {
    struct Place {
        uint32_t file = 0;
        uint64_t offset = 0;  // from the start of that file
        uint64_t bytes = 0;
    };
    struct Part {
        std::filesystem::path path;
        std::string header;  // up to the data, padding included
        uint64_t size = 0;   // whole file
    };
    std::vector<Place> tensors;  // like Contents::tensors
    std::vector<Part> parts;
    uint64_t total_size() const;
};

/// Computes every header and every place. `path` of a set is NAME.gguf; its files become NAME-00001-of-0000N.gguf.
Result<Layout> lay_out(const Contents& contents, const std::filesystem::path& path);

/// Files being written, under temporary names (PATH.partial) until finish() gives them their own. Not finished, or
/// failed: the temporary files are removed with the object, and what had the final names before is untouched.
class Output {
  public:
    struct Options {
        bool force = false;  // replace existing files; else they are refused ("exists")
    };
    /// Refuses before anything is written where a file exists, the disk has too little room ("disk-full"), or our own
    /// reader would refuse the result; writes the headers and reserves the space.
    static Result<Output> create(Layout layout, Options options);

    Output(Output&&) noexcept;
    Output& operator=(Output&&) noexcept;
    ~Output();

    /// Puts bytes of a tensor at `from` in it. From any thread; ranges of different calls must not overlap.
    Result<void> write(size_t tensor, uint64_t from, std::span<const std::byte> bytes);

    /// Flushes to the disk and gives the files their names. Refuses if bytes of tensors were not written.
    Result<void> finish();

    const Layout& layout() const { return layout_; }

  private:
    struct Open {
        int descriptor = -1;
        std::filesystem::path temporary;
        std::filesystem::path final_path;
    };
    Output() = default;
    void discard();

    Layout layout_;
    Options options_;
    std::vector<Open> open_;
    std::unique_ptr<std::atomic<uint64_t>> written_;
};

}  // namespace strata::gguf
