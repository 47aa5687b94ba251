#include "gguf/parse.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/checked.h"

namespace strata::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place: little-endian hosts only");

constexpr uint64_t kTwoTo63 = uint64_t{1} << 63;
constexpr uint64_t kLeastKey = 14;     // bytes: length, one character, type, one byte of value
constexpr uint64_t kLeastTensor = 24;  // bytes: length, number of dims, type, offset

std::string number(uint64_t value) {
    return std::to_string(value);
}

/// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text) {
    const auto* at = reinterpret_cast<const unsigned char*>(text.data());
    const auto* end = at + text.size();
    while (at != end) {
        const unsigned char lead = *at++;
        if (lead < 0x80) continue;
        const int more = lead >= 0xC2 && lead <= 0xDF   ? 1
                         : (lead & 0xF0) == 0xE0        ? 2
                         : lead >= 0xF0 && lead <= 0xF4 ? 3
                                                        : 0;
        if (more == 0 || end - at < more) return false;
        // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
        const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (at[0] < low || at[0] > high) return false;
        for (int i = 1; i < more; ++i)
            if ((at[i] & 0xC0) != 0x80) return false;
        at += more;
    }
    return true;
}

bool has_control_char(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F;
    });
}

/// A name for a message: control characters and broken UTF-8 as escapes, cut to a readable length.
std::string printable(std::string_view text) {
    static constexpr char kHex[] = "0123456789abcdef";
    const bool utf8 = valid_utf8(text);
    size_t length = std::min<size_t>(text.size(), 80);
    while (utf8 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
    std::string out;
    for (const char c : text.substr(0, length)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) {
            out += "\\x";
            out += kHex[byte >> 4];
            out += kHex[byte & 15];
        } else {
            out += c;
        }
    }
    return length < text.size() ? out + "..." : out;
}

/// Names of types that the format once had.
std::string_view removed_type(uint32_t code) {
    switch (code) {
        case 4: return "Q4_2";
        case 5: return "Q4_3";
        case 31: return "Q4_0_4_4";
        case 32: return "Q4_0_4_8";
        case 33: return "Q4_0_8_8";
        case 36: return "IQ4_NL_4_4";
        case 37: return "IQ4_NL_4_8";
        case 38: return "IQ4_NL_8_8";
        default: return {};
    }
}

/// Position of the first name that equals another, if any. Sorting instead of hashing: no input makes it slow.
template <class Entry>
std::optional<uint32_t> find_duplicate(const std::vector<Entry>& entries) {
    std::vector<uint32_t> order(entries.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
    for (size_t i = 1; i < order.size(); ++i)
        if (entries[order[i]].name == entries[order[i - 1]].name) return order[i];
    return std::nullopt;
}

/// The walk over the bytes: one position, every check before the bytes are used.
class Parser {
  public:
    Parser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

    Result<Container> run() {
        STRATA_TRY(header());
        for (uint64_t i = 0; i < key_count_; ++i) STRATA_TRY(key());
        if (const auto twice = find_duplicate(out_.keys))
            return refuse("key " + printable(out_.keys[*twice].name) + " is there twice", "duplicate-key");
        STRATA_TRY(alignment());
        for (uint64_t i = 0; i < tensor_count_; ++i) STRATA_TRY(tensor());
        if (const auto twice = find_duplicate(out_.tensors))
            return refuse("tensor " + printable(out_.tensors[*twice].name) + " is there twice", "duplicate-tensor");
        STRATA_TRY(data());
        return std::move(out_);
    }

  private:
    uint64_t left() const { return bytes_.size() - at_; }

    Error refuse(std::string text, std::string code) const {
        return file_error(std::string(name_) + ": " + std::move(text), std::move(code));
    }
    Error truncated(std::string_view what) const {
        return refuse("ends at byte " + number(bytes_.size()) + ", inside " + std::string(what) +
                          ": the file is incomplete; download it again",
                      "truncated");
    }

    template <class T>
    bool take(T& value) {
        if (sizeof(T) > left()) return false;
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return true;
    }

    /// A length and that many bytes.
    Result<std::string_view> string(std::string_view what, uint64_t limit, std::string_view limit_code) {
        uint64_t length;
        if (!take(length)) return truncated(what);
        if (length > left())
            return refuse(std::string(what) + " at byte " + number(at_ - 8) + " claims " + number(length) +
                              " bytes but the file has " + number(left()) + " more: it is incomplete or damaged",
                          "string-past-end");
        if (length > limit)
            return refuse(std::string(what) + " at byte " + number(at_ - 8) + " has " + number(length) +
                              " bytes; at most " + number(limit) + " are read",
                          std::string(limit_code));
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
        at_ += length;
        return text;
    }

    Result<void> header() {
        uint32_t magic, version;
        if (!take(magic)) return truncated("the header");
        if (magic != 0x46554747)
            return refuse("does not begin with GGUF: it is no GGUF file, or not a complete download", "bad-magic");
        if (!take(version)) return truncated("the header");
        if ((version & 0xFFFF) == 0)
            return refuse("is a big-endian GGUF, made for another kind of machine; get the little-endian file",
                          "big-endian");
        if (version != 2 && version != 3)
            return refuse("is GGUF version " + number(version) + "; versions 2 and 3 are read" +
                              (version == 1 ? ": convert the model again" : ": a newer program is needed"),
                          "bad-version");
        out_.version = version;
        if (!take(tensor_count_) || !take(key_count_)) return truncated("the header");
        if (tensor_count_ > kMaxTensors || tensor_count_ > left() / kLeastTensor)
            return refuse("claims " + number(tensor_count_) + " tensors, more than fit: it is incomplete or damaged",
                          "tensor-count");
        if (key_count_ > kMaxKeys || key_count_ > left() / kLeastKey)
            return refuse("claims " + number(key_count_) + " keys, more than fit: it is incomplete or damaged",
                          "kv-count");
        out_.keys.reserve(key_count_);
        out_.tensors.reserve(tensor_count_);
        return {};
    }

    Result<void> key() {
        Key key;
        STRATA_TRY_ASSIGN(key.name, string("a key's name", kMaxKeyLength, "key-too-long"));
        if (key.name.empty()) return refuse("has a key without a name before byte " + number(at_), "empty-key");
        if (!valid_utf8(key.name)) return refuse("key " + printable(key.name) + " is not UTF-8", "key-not-utf8");
        if (has_control_char(key.name))
            return refuse("key " + printable(key.name) + " has a control character", "key-control-char");
        uint32_t code;
        if (!take(code)) return truncated("key " + printable(key.name));
        if (code > static_cast<uint32_t>(ValueType::f64)) return bad_type(key, code);
        key.type = key.element = static_cast<ValueType>(code);
        if (key.type == ValueType::array) {
            STRATA_TRY(array(key));
        } else if (key.type == ValueType::string) {
            STRATA_TRY_ASSIGN(auto text,
                              string("the value of key " + printable(key.name), kMaxString, "string-too-long"));
            key.bytes = std::as_bytes(std::span(text));
        } else {
            const uint64_t size = value_size(key.type);
            if (size > left()) return truncated("key " + printable(key.name));
            key.bytes = bytes_.subspan(at_, size);
            at_ += size;
        }
        if (key.element == ValueType::boolean)
            for (const std::byte value : key.bytes)
                if (value > std::byte{1})
                    return refuse("key " + printable(key.name) + " holds the bool " +
                                      number(static_cast<uint64_t>(value)) + "; only 0 and 1 are",
                                  "bad-bool");
        out_.keys.push_back(key);
        return {};
    }

    Error bad_type(const Key& key, uint32_t code) const {
        return refuse("key " + printable(key.name) + " has the unknown value type " + number(code), "bad-value-type");
    }

    Result<void> array(Key& key) {
        uint32_t code;
        if (!take(code)) return truncated("key " + printable(key.name));
        if (code > static_cast<uint32_t>(ValueType::f64)) return bad_type(key, code);
        key.element = static_cast<ValueType>(code);
        if (key.element == ValueType::array)
            return refuse("key " + printable(key.name) + " is an array of arrays, which the format does not have",
                          "nested-array");
        if (!take(key.count)) return truncated("key " + printable(key.name));
        const bool strings = key.element == ValueType::string;
        const uint64_t size = strings ? 8 : value_size(key.element);
        if (key.count > kMaxArray || key.count > left() / size)
            return refuse("key " + printable(key.name) + " claims " + number(key.count) +
                              " entries, more than fit: the file is incomplete or damaged",
                          "array-past-end");
        const uint64_t begin = at_;
        if (strings) {
            const std::string what = "an entry of key " + printable(key.name);
            for (uint64_t i = 0; i < key.count; ++i) STRATA_TRY(string(what, kMaxString, "string-too-long"));
        } else {
            at_ += key.count * size;
        }
        key.bytes = bytes_.subspan(begin, at_ - begin);
        return {};
    }

    Result<void> alignment() {
        for (const Key& key : out_.keys) {
            if (key.name != "general.alignment") continue;
            if (key.type != ValueType::u32)
                return refuse("key general.alignment is " + describe_type(key) + ", wanted u32", "alignment-type");
            uint32_t value;
            std::memcpy(&value, key.bytes.data(), sizeof value);
            if (value < kMinAlignment || value > kMaxAlignment || !std::has_single_bit(value))
                return refuse("general.alignment is " + number(value) + ", wanted a power of two from 8 to 65536",
                              "bad-alignment");
            out_.alignment = value;
        }
        return {};
    }

    Result<void> tensor() {
        TensorInfo tensor;
        STRATA_TRY_ASSIGN(tensor.name, string("a tensor's name", kMaxTensorName, "name-too-long"));
        if (tensor.name.empty()) return refuse("has a tensor without a name before byte " + number(at_), "empty-name");
        if (!valid_utf8(tensor.name))
            return refuse("the tensor name " + printable(tensor.name) + " is not UTF-8", "name-not-utf8");
        if (has_control_char(tensor.name))
            return refuse("the tensor name " + printable(tensor.name) + " has a control character",
                          "name-control-char");
        const std::string who = "tensor " + std::string(tensor.name);

        if (!take(tensor.n_dims)) return truncated(who);
        if (tensor.n_dims > kMaxDims)
            return refuse(who + " has " + number(tensor.n_dims) + " dimensions; at most 4 are possible", "n-dims");
        for (uint32_t d = 0; d < tensor.n_dims; ++d)
            if (!take(tensor.dims[d])) return truncated(who);
        uint32_t code;
        uint64_t offset;
        if (!take(code) || !take(offset)) return truncated(who);

        const TypeInfo* type = find_type(code);
        if (!type) {
            const std::string_view removed = removed_type(code);
            if (!removed.empty())
                return refuse(who + " has the type " + std::string(removed) +
                                  ", which was removed from the format: get a newer file",
                              "tensor-type");
            if (code == 9 || code == 15)
                return refuse(
                    who + " has the type " + (code == 9 ? "Q8_1" : "Q8_K") + ", which is for activations only",
                    "tensor-type");
            return refuse(who + " has the unknown type " + number(code) + ": a newer program is needed", "tensor-type");
        }
        tensor.type = type->type;
        for (const uint64_t dim : tensor.dims)
            if (dim >= kTwoTo63) return refuse(who + " has a negative dimension", "dim-negative");
        uint64_t elements = 1;
        for (const uint64_t dim : tensor.dims) {
            const auto product = checked_mul(elements, dim);
            if (!product || *product >= kTwoTo63)
                return refuse(who + " has dimensions " + dims_text(tensor) + ", more elements than can exist",
                              "element-overflow");
            elements = *product;
        }
        if (tensor.dims[0] % type->block != 0)
            return refuse(who + " has rows of " + number(tensor.dims[0]) + ", not a multiple of the " +
                              number(type->block) + " that a block of " + std::string(type->name) + " holds",
                          "row-not-whole-blocks");
        const auto bytes = checked_mul(elements / type->block, type->bytes);
        if (!bytes || *bytes >= kTwoTo63)
            return refuse(who + " has dimensions " + dims_text(tensor) + ", more bytes than can exist",
                          "byte-overflow");
        tensor.bytes = *bytes;

        if (offset % out_.alignment != 0)
            return refuse(who + " begins at offset " + number(offset) + ", not a multiple of the alignment " +
                              number(out_.alignment),
                          "offset-misaligned");
        if (offset != next_offset_)
            return refuse(
                who + " begins at offset " + number(offset) + " but the one before it ends at " + number(next_offset_),
                "offset-not-packed");
        const auto end = checked_add(next_offset_, tensor.bytes);
        const auto padded = end ? checked_round_up(*end, out_.alignment) : std::nullopt;
        if (!padded || *padded >= kTwoTo63) return refuse(who + " ends beyond any possible file size", "byte-overflow");
        tensor.offset = offset;  // from the data's start, which is known after the last info
        next_offset_ = *padded;
        out_.tensors.push_back(tensor);
        return {};
    }

    Result<void> data() {
        out_.data_start = at_;
        if (out_.tensors.empty()) return {};
        out_.data_start = round_up(at_, out_.alignment);  // at_ is at most a file's size, so this cannot overflow
        const uint64_t size = bytes_.size();
        for (TensorInfo& tensor : out_.tensors) {
            tensor.offset += out_.data_start;  // both below 2^63
            if (tensor.bytes == 0) {  // a view of nothing; its place may be past the end where the padding is missing
                tensor.data = bytes_.data() + std::min(tensor.offset, size);
                continue;
            }
            if (tensor.offset > size || tensor.bytes > size - tensor.offset)
                return refuse("tensor " + std::string(tensor.name) + " ends at byte " +
                                  number(tensor.offset + tensor.bytes) + " but the file has " + number(size) +
                                  ": the download is incomplete; run setup again to resume it",
                              "data-past-end");
            tensor.data = bytes_.data() + tensor.offset;
        }
        return {};
    }

    std::span<const std::byte> bytes_;
    std::string_view name_;
    uint64_t at_ = 0;
    uint64_t tensor_count_ = 0;
    uint64_t key_count_ = 0;
    uint64_t next_offset_ = 0;  // of the next tensor, by the packing rule
    Container out_;
};

}  // namespace

std::string dims_text(const TensorInfo& tensor) {
    std::string text = "[";
    for (uint32_t d = 0; d < tensor.n_dims; ++d) text += (d ? ", " : "") + std::to_string(tensor.dims[d]);
    return text + "]";
}

Result<Container> parse(std::span<const std::byte> bytes, std::string_view name) {
    return Parser(bytes, name).run();
}

}  // namespace strata::gguf
