#include "gguf/writer.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>

#include "base/checked.h"
#include "gguf/mapping.h"
#include "gguf/parse.h"

namespace strata::gguf {
namespace {

template <class T>
constexpr ValueType type_of() {
    if constexpr (std::is_same_v<T, uint8_t>) return ValueType::u8;
    if constexpr (std::is_same_v<T, int8_t>) return ValueType::i8;
    if constexpr (std::is_same_v<T, uint16_t>) return ValueType::u16;
    if constexpr (std::is_same_v<T, int16_t>) return ValueType::i16;
    if constexpr (std::is_same_v<T, uint32_t>) return ValueType::u32;
    if constexpr (std::is_same_v<T, int32_t>) return ValueType::i32;
    if constexpr (std::is_same_v<T, uint64_t>) return ValueType::u64;
    if constexpr (std::is_same_v<T, int64_t>) return ValueType::i64;
    if constexpr (std::is_same_v<T, float>) return ValueType::f32;
    if constexpr (std::is_same_v<T, double>) return ValueType::f64;
    if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
}

template <class T>
void append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_type(std::string& out, ValueType type) {
    append(out, static_cast<uint32_t>(type));
}

void append_string(std::string& out, std::string_view text) {
    append<uint64_t>(out, text.size());
    out += text;
}

std::string array_head(ValueType element, uint64_t count) {
    std::string out;
    append_type(out, ValueType::array);
    append_type(out, element);
    append(out, count);
    return out;
}

std::string system_text(int error) {
    return std::generic_category().message(error);
}

std::string gigabytes(uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GB", static_cast<double>(bytes) / 1e9);
    return text;
}

/// Keys that the writer sets itself.
bool is_writers(std::string_view name) {
    return name == "general.alignment" || name.starts_with("split.");
}

std::filesystem::path part_path(const std::filesystem::path& path, size_t no, size_t count) {
    if (count == 1) return path;
    char suffix[64];
    std::snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu.gguf", no + 1, count);
    std::filesystem::path part = path;
    return part.replace_filename(path.stem().string() + suffix);
}

}  // namespace

template <class T>
void KeyList::set(std::string_view name, T value) {
    std::string out;
    append_type(out, type_of<T>());
    append(out, value);
    put(name, std::move(out));
}

template <class T>
void KeyList::set_array(std::string_view name, std::span<const T> values) {
    std::string out = array_head(type_of<T>(), values.size());
    out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    put(name, std::move(out));
}

#define STRATA_INSTANTIATE(T)                           \
    template void KeyList::set<T>(std::string_view, T); \
    template void KeyList::set_array<T>(std::string_view, std::span<const T>)
STRATA_INSTANTIATE(uint8_t);
STRATA_INSTANTIATE(int8_t);
STRATA_INSTANTIATE(uint16_t);
STRATA_INSTANTIATE(int16_t);
STRATA_INSTANTIATE(uint32_t);
STRATA_INSTANTIATE(int32_t);
STRATA_INSTANTIATE(uint64_t);
STRATA_INSTANTIATE(int64_t);
STRATA_INSTANTIATE(float);
STRATA_INSTANTIATE(double);
STRATA_INSTANTIATE(bool);
#undef STRATA_INSTANTIATE

void KeyList::set_string(std::string_view name, std::string_view value) {
    std::string out;
    append_type(out, ValueType::string);
    append_string(out, value);
    put(name, std::move(out));
}

void KeyList::set_bools(std::string_view name, const std::vector<bool>& values) {
    std::string out = array_head(ValueType::boolean, values.size());
    for (const bool value : values) append<uint8_t>(out, value);
    put(name, std::move(out));
}

void KeyList::set_strings(std::string_view name, std::span<const std::string> values) {
    std::string out = array_head(ValueType::string, values.size());
    for (const std::string& value : values) append_string(out, value);
    put(name, std::move(out));
}

void KeyList::copy(const Key& key) {
    std::string out;
    if (key.type == ValueType::array)
        out = array_head(key.element, key.count);
    else
        append_type(out, key.type);
    if (key.type == ValueType::string) append<uint64_t>(out, key.bytes.size());
    out.append(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
    put(key.name, std::move(out));
}

void KeyList::put(std::string_view name, std::string encoded) {
    for (Entry& entry : entries_)
        if (entry.name == name) {
            entry.encoded = std::move(encoded);
            return;
        }
    entries_.push_back({std::string(name), std::move(encoded)});
}

void KeyList::remove(std::string_view name) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

Result<uint64_t> tensor_bytes(const TensorSpec& tensor) {
    const TypeInfo& type = type_info(tensor.type);
    const std::string who = "tensor " + tensor.name;
    if (tensor.dims.empty() || tensor.dims.size() > kMaxDims) return failure(who + " must have 1 to 4 dimensions");
    if (tensor.dims[0] % type.block != 0)
        return failure(who + " has rows of " + std::to_string(tensor.dims[0]) + ", not a multiple of the " +
                       std::to_string(type.block) + " that a block of " + std::string(type.name) + " holds");
    std::optional<uint64_t> elements = 1;
    for (const uint64_t dim : tensor.dims) elements = elements ? checked_mul(*elements, dim) : elements;
    const auto bytes = elements ? checked_mul(*elements / type.block, type.bytes) : std::nullopt;
    if (!bytes || *bytes >= uint64_t{1} << 62) return failure(who + " has more bytes than can exist");
    return *bytes;
}

uint64_t Layout::total_size() const {
    uint64_t size = 0;
    for (const Part& part : parts) size += part.size;
    return size;
}

Result<Layout> lay_out(const Contents& contents, const std::filesystem::path& path) {
    const uint64_t alignment = contents.alignment;
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment)
        return failure("the alignment " + std::to_string(alignment) + " is not a power of two from 8 to 65536");

    // Which file holds a tensor: filled in order, a tensor that is larger than the limit has one of its own.
    Layout layout;
    std::vector<uint64_t> data_bytes(1, 0);
    for (const TensorSpec& tensor : contents.tensors) {
        STRATA_TRY_ASSIGN(const uint64_t bytes, tensor_bytes(tensor));
        const auto begin = checked_round_up(data_bytes.back(), alignment);
        const auto end = begin ? checked_add(*begin, bytes) : std::nullopt;
        if (!end || *end >= uint64_t{1} << 62) return failure("the tensors have more bytes than can exist");
        if (contents.max_file_bytes && data_bytes.back() > 0 && *end > contents.max_file_bytes) {
            data_bytes.push_back(bytes);
            layout.tensors.push_back({static_cast<uint32_t>(data_bytes.size() - 1), 0, bytes});
        } else {
            data_bytes.back() = *end;
            layout.tensors.push_back({static_cast<uint32_t>(data_bytes.size() - 1), *begin, bytes});
        }
    }
    const size_t count = data_bytes.size();
    if (count > 65535) return failure("the set would have more than 65,535 files: allow larger ones");

    for (size_t no = 0; no < count; ++no) {
        KeyList keys;
        if (no == 0) {
            for (const KeyList::Entry& entry : contents.keys.entries())  // readers expect it early
                if (entry.name == "general.architecture") keys.put(entry.name, entry.encoded);
            for (const KeyList::Entry& entry : contents.keys.entries())
                if (!is_writers(entry.name)) keys.put(entry.name, entry.encoded);
        }
        if (alignment != kDefaultAlignment) keys.set<uint32_t>("general.alignment", static_cast<uint32_t>(alignment));
        if (count > 1) {
            keys.set<uint16_t>("split.no", static_cast<uint16_t>(no));
            keys.set<uint16_t>("split.count", static_cast<uint16_t>(count));
            keys.set<int32_t>("split.tensors.count", static_cast<int32_t>(contents.tensors.size()));
        }
        Layout::Part part;
        part.path = part_path(path, no, count);
        std::string& header = part.header;
        uint64_t tensors = 0;
        for (const Layout::Place& place : layout.tensors) tensors += place.file == no;
        append<uint32_t>(header, 0x46554747);
        append<uint32_t>(header, 3);
        append(header, tensors);
        append<uint64_t>(header, keys.entries().size());
        for (const KeyList::Entry& entry : keys.entries()) {
            append_string(header, entry.name);
            header += entry.encoded;
        }
        for (size_t i = 0; i < layout.tensors.size(); ++i) {
            if (layout.tensors[i].file != no) continue;
            const TensorSpec& tensor = contents.tensors[i];
            size_t dims = tensor.dims.size();
            while (dims > 1 && tensor.dims[dims - 1] == 1) --dims;
            append_string(header, tensor.name);
            append(header, static_cast<uint32_t>(dims));
            for (size_t d = 0; d < dims; ++d) append(header, tensor.dims[d]);
            append(header, static_cast<uint32_t>(tensor.type));
            append(header, layout.tensors[i].offset);
        }
        if (tensors > 0) header.resize(*checked_round_up(header.size(), alignment), '\0');
        part.size = header.size() + *checked_round_up(data_bytes[no], alignment);
        for (Layout::Place& place : layout.tensors)
            if (place.file == no) place.offset += header.size();
        layout.parts.push_back(std::move(part));
    }
    return layout;
}

namespace {

/// An error of writing: the program ran and failed, no file was refused.
Error failed_with(std::string message, std::string code) {
    return {ErrorKind::failed, std::move(message), std::move(code)};
}

Error write_error(const std::filesystem::path& path, int error) {
    if (error == ENOSPC || error == EDQUOT)
        return failed_with(path.string() + ": the disk is full; the partial file was removed", "disk-full");
    return failed_with(path.string() + ": cannot be written: " + system_text(error), "unwritable");
}

Result<void> write_all(int descriptor, uint64_t at, std::span<const std::byte> bytes,
                       const std::filesystem::path& path) {
    while (!bytes.empty()) {
        // Some systems refuse a single write of 2 GiB or more.
        const size_t count = std::min<size_t>(bytes.size(), 1u << 30);
        const ssize_t written = ::pwrite(descriptor, bytes.data(), count, static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return write_error(path, written < 0 ? errno : ENOSPC);
        at += static_cast<uint64_t>(written);
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
}

Error kept(const std::filesystem::path& path) {
    return failed_with(path.string() + ": exists already and is kept; remove it, choose another name, or add --force",
                       "exists");
}

bool present(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

Result<Output> Output::create(Layout layout, Options options) {
    Output output;
    output.layout_ = std::move(layout);
    output.options_ = options;
    output.written_ = std::make_unique<std::atomic<uint64_t>>(0);
    for (const Layout::Part& part : output.layout_.parts)
        if (!options.force && present(part.path)) return kept(part.path);

    const std::filesystem::path& first = output.layout_.parts[0].path;
    struct statvfs disk;
    if (::statvfs(folder_of(first).c_str(), &disk) != 0)
        return failed_with(folder_of(first).string() + ": cannot be written to: " + system_text(errno), "unwritable");
    const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (output.layout_.total_size() > room)
        return failed_with(first.string() + ": needs " + gigabytes(output.layout_.total_size()) + " but its disk has " +
                               gigabytes(room) + " free",
                           "disk-full");

    for (const Layout::Part& part : output.layout_.parts) {
        const std::filesystem::path temporary = part.path.string() + ".partial";
        // The lock tells a file being written from one that a killed program left behind, which is written over.
        const int descriptor = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (descriptor < 0) return write_error(temporary, errno);
        if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
            ::close(descriptor);
            return failed_with(temporary.string() + ": is being written by another program", "exists");
        }
        output.open_.push_back({descriptor, temporary, part.path});
        if (::ftruncate(descriptor, 0) != 0) return write_error(temporary, errno);
        const auto size = static_cast<off_t>(part.size);
        if (::fallocate(descriptor, 0, 0, size) != 0) {
            if (errno != EOPNOTSUPP && errno != ENOSYS) return write_error(temporary, errno);
            if (::ftruncate(descriptor, size) != 0) return write_error(temporary, errno);
        }
        STRATA_TRY(write_all(descriptor, 0, std::as_bytes(std::span(part.header)), temporary));
        // Names, duplicates, limits: whatever our reader refuses is not worth writing the data of.
        STRATA_TRY_ASSIGN(const Mapping mapping, Mapping::open(temporary));
        const auto parsed = parse(mapping.bytes(), part.path.string());
        if (!parsed.ok()) return parsed.error();
    }
    return output;
}

Output::Output(Output&& other) noexcept {
    *this = std::move(other);
}

Output& Output::operator=(Output&& other) noexcept {
    std::swap(layout_, other.layout_);
    std::swap(options_, other.options_);
    std::swap(open_, other.open_);
    std::swap(written_, other.written_);
    return *this;
}

Output::~Output() {
    discard();
}

void Output::discard() {
    for (Open& open : open_) {
        ::unlink(open.temporary.c_str());
        ::close(open.descriptor);
    }
    open_.clear();
}

Result<void> Output::write(size_t tensor, uint64_t from, std::span<const std::byte> bytes) {
    const Layout::Place& place = layout_.tensors[tensor];
    if (from > place.bytes || bytes.size() > place.bytes - from)
        return failure("a write beyond the end of tensor " + std::to_string(tensor));
    const Open& open = open_[place.file];
    STRATA_TRY(write_all(open.descriptor, place.offset + from, bytes, open.temporary));
    written_->fetch_add(bytes.size(), std::memory_order_relaxed);
    return {};
}

Result<void> Output::finish() {
    uint64_t expected = 0;
    for (const Layout::Place& place : layout_.tensors) expected += place.bytes;
    if (*written_ != expected)
        return failure(layout_.parts[0].path.string() + ": " + std::to_string(*written_) +
                       " bytes of tensors were written, " + std::to_string(expected) + " are needed");
    for (const Open& open : open_)
        if (::fsync(open.descriptor) != 0) return write_error(open.temporary, errno);
    while (!open_.empty()) {
        const Open& open = open_.front();
        int failed = ::renameat2(AT_FDCWD, open.temporary.c_str(), AT_FDCWD, open.final_path.c_str(),
                                 options_.force ? 0 : RENAME_NOREPLACE);
        if (failed && (errno == EINVAL || errno == ENOSYS)) {  // a file system that cannot promise not to replace
            if (!options_.force && present(open.final_path)) return kept(open.final_path);
            failed = ::rename(open.temporary.c_str(), open.final_path.c_str());
        }
        if (failed) return errno == EEXIST ? kept(open.final_path) : write_error(open.final_path, errno);
        ::close(open.descriptor);
        open_.erase(open_.begin());
    }
    // The names are safe once the folder is; a file system that cannot do this still has the files.
    const int folder = ::open(folder_of(layout_.parts[0].path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        ::fsync(folder);
        ::close(folder);
    }
    return {};
}

}  // namespace strata::gguf
