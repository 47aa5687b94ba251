#include "gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace strata::gguf {
namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

bool is_integer(ValueType type) {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::u16:
        case ValueType::i16:
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::u64:
        case ValueType::i64: return true;
        default: return false;
    }
}

/// The integer of this type at `at`, or nothing where an u64 is above what int64 holds.
std::optional<int64_t> read_int(ValueType type, const std::byte* at) {
    switch (type) {
        case ValueType::u8: return load<uint8_t>(at);
        case ValueType::i8: return load<int8_t>(at);
        case ValueType::u16: return load<uint16_t>(at);
        case ValueType::i16: return load<int16_t>(at);
        case ValueType::u32: return load<uint32_t>(at);
        case ValueType::i32: return load<int32_t>(at);
        case ValueType::i64: return load<int64_t>(at);
        case ValueType::u64: {
            const auto value = load<uint64_t>(at);
            if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
            return static_cast<int64_t>(value);
        }
        default: return std::nullopt;
    }
}

enum class Fit { good, bad_type, out_of_range };

Fit read_ranged(ValueType type, const std::byte* at, int64_t lo, int64_t hi, int64_t& out) {
    if (!is_integer(type)) return Fit::bad_type;
    const auto value = read_int(type, at);
    if (!value || *value < lo || *value > hi) return Fit::out_of_range;
    out = *value;
    return Fit::good;
}

Fit read_float(ValueType type, const std::byte* at, float& out) {
    if (type == ValueType::f32) {
        out = load<float>(at);
        return Fit::good;
    }
    if (type == ValueType::f64) {
        const auto value = load<double>(at);
        if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) return Fit::out_of_range;
        out = static_cast<float>(value);
        return Fit::good;
    }
    if (!is_integer(type)) return Fit::bad_type;
    // Exact in 24 bits of mantissa; larger even numbers could be exact too, but no key needs them.
    const auto value = read_int(type, at);
    if (!value || *value > (1 << 24) || *value < -(1 << 24)) return Fit::out_of_range;
    out = static_cast<float>(*value);
    return Fit::good;
}

std::string range_text(int64_t lo, int64_t hi) {
    return "an integer from " + std::to_string(lo) + " to " + std::to_string(hi);
}

}  // namespace

std::string_view value_type_name(ValueType type) {
    switch (type) {
        case ValueType::u8: return "u8";
        case ValueType::i8: return "i8";
        case ValueType::u16: return "u16";
        case ValueType::i16: return "i16";
        case ValueType::u32: return "u32";
        case ValueType::i32: return "i32";
        case ValueType::f32: return "f32";
        case ValueType::boolean: return "bool";
        case ValueType::string: return "string";
        case ValueType::array: return "array";
        case ValueType::u64: return "u64";
        case ValueType::i64: return "i64";
        case ValueType::f64: return "f64";
    }
    return "unknown";
}

uint32_t value_size(ValueType type) {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::boolean: return 1;
        case ValueType::u16:
        case ValueType::i16: return 2;
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::f32: return 4;
        case ValueType::u64:
        case ValueType::i64:
        case ValueType::f64: return 8;
        case ValueType::string:
        case ValueType::array: return 0;
    }
    return 0;
}

std::string describe_type(const Key& key) {
    if (key.type != ValueType::array) return std::string(value_type_name(key.type));
    return "array of " + std::to_string(key.count) + " " + std::string(value_type_name(key.element));
}

int64_t IntArray::operator[](uint64_t i) const {
    return read_int(element_, data_ + i * value_size(element_)).value_or(std::numeric_limits<int64_t>::max());
}

std::vector<int64_t> IntArray::to_vector() const {
    std::vector<int64_t> values(count_);
    for (uint64_t i = 0; i < count_; ++i) values[i] = (*this)[i];
    return values;
}

float FloatArray::operator[](uint64_t i) const {
    float value = 0;
    read_float(element_, data_ + i * value_size(element_), value);
    return value;
}

std::vector<float> FloatArray::to_vector() const {
    std::vector<float> values(count_);
    for (uint64_t i = 0; i < count_; ++i) values[i] = (*this)[i];
    return values;
}

Metadata::Metadata(std::string file_name, std::vector<Key> keys)
    : file_name_(std::move(file_name)), keys_(std::move(keys)), by_name_(keys_.size()) {
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) { return keys_[a].name < keys_[b].name; });
    const Key* key = find_key("general.architecture");
    if (key && key->type == ValueType::string)
        architecture_ = {reinterpret_cast<const char*>(key->bytes.data()), key->bytes.size()};
}

const Key* Metadata::find_key(std::string_view name) const {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                     [&](uint32_t i, std::string_view wanted) { return keys_[i].name < wanted; });
    return at != by_name_.end() && keys_[*at].name == name ? &keys_[*at] : nullptr;
}

std::string Metadata::arch_key(std::string_view suffix) const {
    std::string key(architecture_);
    key += '.';
    key += suffix;
    return key;
}

Error Metadata::missing(std::string_view name) const {
    return file_error(
        file_name_ + ": key " + std::string(name) +
            " is missing: the file is not a complete model of its architecture; convert or download it again",
        "missing-key");
}

Error Metadata::wrong_value(std::string_view name, std::string_view wanted, std::string code) const {
    std::string text = file_name_ + ": key " + std::string(name);
    const Key* key = find_key(name);
    if (!key) return file_error(text + " is missing, wanted " + std::string(wanted), std::move(code));
    text += " is " + describe_type(*key);
    if (is_integer(key->type)) {
        if (const auto value = read_int(key->type, key->bytes.data()))
            text += " " + std::to_string(*value);
        else
            text += " " + std::to_string(load<uint64_t>(key->bytes.data()));
    }
    return file_error(text + ", wanted " + std::string(wanted), std::move(code));
}

Result<std::optional<int64_t>> Metadata::find_int(std::string_view name, int64_t lo, int64_t hi) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<int64_t>();
    int64_t value = 0;
    switch (read_ranged(key->type, key->bytes.data(), lo, hi, value)) {
        case Fit::good: return std::optional<int64_t>(value);
        case Fit::bad_type: return wrong_value(name, range_text(lo, hi));
        case Fit::out_of_range: break;
    }
    return wrong_value(name, range_text(lo, hi), "key-range");
}

Result<std::optional<float>> Metadata::find_float(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<float>();
    float value = 0;
    switch (read_float(key->type, key->bytes.data(), value)) {
        case Fit::good: return std::optional<float>(value);
        case Fit::bad_type: return wrong_value(name, "a float");
        case Fit::out_of_range: break;
    }
    return wrong_value(name, "a number that a 32-bit float holds", "key-range");
}

Result<std::optional<bool>> Metadata::find_bool(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<bool>();
    if (key->type != ValueType::boolean) return wrong_value(name, "a bool");
    return std::optional<bool>(key->bytes[0] != std::byte{0});
}

Result<std::optional<std::string_view>> Metadata::find_string(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<std::string_view>();
    if (key->type != ValueType::string) return wrong_value(name, "a string");
    return std::optional<std::string_view>(
        std::string_view(reinterpret_cast<const char*>(key->bytes.data()), key->bytes.size()));
}

Result<std::optional<IntArray>> Metadata::find_ints(std::string_view name, int64_t lo, int64_t hi) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<IntArray>();
    const std::string wanted = "an array of integers from " + std::to_string(lo) + " to " + std::to_string(hi);
    if (key->type != ValueType::array || !is_integer(key->element)) return wrong_value(name, wanted);
    const uint32_t size = value_size(key->element);
    for (uint64_t i = 0; i < key->count; ++i) {
        int64_t value;
        if (read_ranged(key->element, key->bytes.data() + i * size, lo, hi, value) != Fit::good)
            return wrong_value(name, wanted + " (entry " + std::to_string(i) + " is not)", "key-range");
    }
    return std::optional<IntArray>(IntArray(key->element, key->count, key->bytes.data()));
}

Result<std::optional<FloatArray>> Metadata::find_floats(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<FloatArray>();
    const uint32_t size = value_size(key->element);
    float value = 0;
    if (key->type != ValueType::array ||
        !(is_integer(key->element) || key->element == ValueType::f32 || key->element == ValueType::f64))
        return wrong_value(name, "an array of floats");
    if (key->element != ValueType::f32)
        for (uint64_t i = 0; i < key->count; ++i)
            if (read_float(key->element, key->bytes.data() + i * size, value) != Fit::good)
                return wrong_value(name, "numbers that a 32-bit float holds (entry " + std::to_string(i) + " is not)",
                                   "key-range");
    return std::optional<FloatArray>(FloatArray(key->element, key->count, key->bytes.data()));
}

Result<std::optional<BoolArray>> Metadata::find_bools(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<BoolArray>();
    if (key->type != ValueType::array || key->element != ValueType::boolean)
        return wrong_value(name, "an array of bools");
    return std::optional<BoolArray>(BoolArray(key->count, key->bytes.data()));
}

Result<std::optional<StringTable>> Metadata::find_strings(std::string_view name) const {
    const Key* key = find_key(name);
    if (!key) return std::optional<StringTable>();
    if (key->type != ValueType::array || key->element != ValueType::string)
        return wrong_value(name, "an array of strings");
    StringTable table;
    table.reserve(key->count);
    const std::byte* at = key->bytes.data();
    for (uint64_t i = 0; i < key->count; ++i) {
        const auto length = load<uint64_t>(at);  // the parser has checked every length
        table.emplace_back(reinterpret_cast<const char*>(at + 8), length);
        at += 8 + length;
    }
    return std::optional<StringTable>(std::move(table));
}

Result<void> Metadata::check_length(const Key& key, uint64_t layers, uint64_t longest) const {
    if (key.count >= layers && key.count <= std::max(layers, longest)) return {};
    std::string wanted = std::to_string(layers);
    if (longest > layers) wanted += " to " + std::to_string(longest);
    return wrong_value(key.name, "one value, or an array with one for each layer (" + wanted + ")", "key-length");
}

Result<std::optional<std::vector<int64_t>>> Metadata::find_layer_ints(std::string_view name, uint64_t layers,
                                                                      int64_t lo, int64_t hi, uint64_t longest) const {
    using Out = std::optional<std::vector<int64_t>>;
    const Key* key = find_key(name);
    if (!key) return Out();
    if (key->type != ValueType::array) {
        STRATA_TRY_ASSIGN(auto value, get_int(name, lo, hi));
        return Out(std::vector<int64_t>(layers, value));
    }
    STRATA_TRY(check_length(*key, layers, longest));
    STRATA_TRY_ASSIGN(auto array, get_ints(name, lo, hi));
    std::vector<int64_t> values(layers);
    for (uint64_t i = 0; i < layers; ++i) values[i] = array[i];
    return Out(std::move(values));
}

Result<std::optional<std::vector<float>>> Metadata::find_layer_floats(std::string_view name, uint64_t layers,
                                                                      uint64_t longest) const {
    using Out = std::optional<std::vector<float>>;
    const Key* key = find_key(name);
    if (!key) return Out();
    if (key->type != ValueType::array) {
        STRATA_TRY_ASSIGN(auto value, get_float(name));
        return Out(std::vector<float>(layers, value));
    }
    STRATA_TRY(check_length(*key, layers, longest));
    STRATA_TRY_ASSIGN(auto array, get_floats(name));
    std::vector<float> values(layers);
    for (uint64_t i = 0; i < layers; ++i) values[i] = array[i];
    return Out(std::move(values));
}

Result<std::optional<std::vector<bool>>> Metadata::find_layer_flags(std::string_view name, uint64_t layers,
                                                                    uint64_t longest) const {
    using Out = std::optional<std::vector<bool>>;
    const Key* key = find_key(name);
    if (!key) return Out();
    if (key->element == ValueType::boolean) {  // one byte, 0 or 1: the integer road reads it once it is known
        std::vector<bool> values(layers);
        if (key->type == ValueType::array) STRATA_TRY(check_length(*key, layers, longest));
        for (uint64_t i = 0; i < layers; ++i)
            values[i] = key->bytes[key->type == ValueType::array ? i : 0] != std::byte{0};
        return Out(std::move(values));
    }
    if (!is_integer(key->element)) return wrong_value(name, "a bool, or an array of bools with one for each layer");
    STRATA_TRY_ASSIGN(auto numbers, get_layer_ints(name, layers, 0, 1, longest));
    return Out(std::vector<bool>(numbers.begin(), numbers.end()));
}

// get_X: find_X, with an absent key refused.
#define STRATA_GET(call)                 \
    STRATA_TRY_ASSIGN(auto found, call); \
    if (!found) return missing(name);    \
    return *std::move(found)

Result<int64_t> Metadata::get_int(std::string_view name, int64_t lo, int64_t hi) const {
    STRATA_GET(find_int(name, lo, hi));
}
Result<float> Metadata::get_float(std::string_view name) const {
    STRATA_GET(find_float(name));
}
Result<bool> Metadata::get_bool(std::string_view name) const {
    STRATA_GET(find_bool(name));
}
Result<std::string_view> Metadata::get_string(std::string_view name) const {
    STRATA_GET(find_string(name));
}
Result<IntArray> Metadata::get_ints(std::string_view name, int64_t lo, int64_t hi) const {
    STRATA_GET(find_ints(name, lo, hi));
}
Result<FloatArray> Metadata::get_floats(std::string_view name) const {
    STRATA_GET(find_floats(name));
}
Result<BoolArray> Metadata::get_bools(std::string_view name) const {
    STRATA_GET(find_bools(name));
}
Result<StringTable> Metadata::get_strings(std::string_view name) const {
    STRATA_GET(find_strings(name));
}
Result<std::vector<int64_t>> Metadata::get_layer_ints(std::string_view name, uint64_t layers, int64_t lo, int64_t hi,
                                                      uint64_t longest) const {
    STRATA_GET(find_layer_ints(name, layers, lo, hi, longest));
}
Result<std::vector<float>> Metadata::get_layer_floats(std::string_view name, uint64_t layers, uint64_t longest) const {
    STRATA_GET(find_layer_floats(name, layers, longest));
}
Result<std::vector<bool>> Metadata::get_layer_flags(std::string_view name, uint64_t layers, uint64_t longest) const {
    STRATA_GET(find_layer_flags(name, layers, longest));
}
#undef STRATA_GET

}  // namespace strata::gguf
