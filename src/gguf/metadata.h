// The keys of a GGUF file and how to read them: typed getters that refuse a wrong type instead of guessing.
// Source: specs page gguf, sections 2 and 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::gguf {

/// Type of a value; the number is the code in the file.
enum class ValueType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

/// "u32", "string", "array", ...
std::string_view value_type_name(ValueType type);

/// Bytes of a value of fixed size; 0 for string and array.
uint32_t value_size(ValueType type);

/// One key as it stands in the file. Views into the file's bytes; nothing in it is aligned.
struct Key {
    std::string_view name;
    ValueType type = ValueType::u8;
    ValueType element = ValueType::u8;  // arrays: the elements' type; else the same as type
    uint64_t count = 1;                 // arrays: elements; else 1
    std::span<const std::byte> bytes;   // scalar: its bytes; string: its text; array: the elements back to back
};

/// "u32" or "array of 3 string": for messages and listings.
std::string describe_type(const Key& key);

/// Integers of an array of any integer type, converted as they are read.
class IntArray {
  public:
    IntArray() = default;
    IntArray(ValueType element, uint64_t count, const std::byte* data)
        : element_(element), count_(count), data_(data) {}
    uint64_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    int64_t operator[](uint64_t i) const;  // i < size(); every element was found to fit at the getter's check
    std::vector<int64_t> to_vector() const;

  private:
    ValueType element_ = ValueType::i64;
    uint64_t count_ = 0;
    const std::byte* data_ = nullptr;
};

/// Floats of an array of f32 or f64, or of integers that are exact as floats.
class FloatArray {
  public:
    FloatArray() = default;
    FloatArray(ValueType element, uint64_t count, const std::byte* data)
        : element_(element), count_(count), data_(data) {}
    uint64_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    float operator[](uint64_t i) const;  // i < size()
    std::vector<float> to_vector() const;

  private:
    ValueType element_ = ValueType::f32;
    uint64_t count_ = 0;
    const std::byte* data_ = nullptr;
};

/// Bools of an array: one byte each, 0 or 1 (the parser has checked them).
class BoolArray {
  public:
    BoolArray() = default;
    BoolArray(uint64_t count, const std::byte* data) : count_(count), data_(data) {}
    uint64_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    bool operator[](uint64_t i) const { return data_[i] != std::byte{0}; }

  private:
    uint64_t count_ = 0;
    const std::byte* data_ = nullptr;
};

/// Strings of an array as one table of views; strings are bytes, not checked for UTF-8, and may hold zeros.
using StringTable = std::vector<std::string_view>;

/// The keys of a file. Getters come in pairs: find_X gives nothing for an absent key, get_X refuses it ("missing-key").
/// Both refuse a value of another type ("key-type") or out of range ("key-range"), naming the file, the key, what was
/// found and what was wanted: a present but wrong value is never replaced by a default. Views point into the file and
/// live as long as its mapping. Const, so safe from any thread.
class Metadata {
  public:
    Metadata() = default;
    /// keys must have distinct names; file_name is for messages.
    Metadata(std::string file_name, std::vector<Key> keys);

    const std::string& file_name() const { return file_name_; }
    /// All keys in file order.
    std::span<const Key> keys() const { return keys_; }
    const Key* find_key(std::string_view name) const;
    bool has(std::string_view name) const { return find_key(name) != nullptr; }

    /// `general.architecture`, or empty where the file has none (a picture encoder's or an importance file may not).
    std::string_view architecture() const { return architecture_; }
    /// "ARCH.suffix" for the keys that belong to the architecture.
    std::string arch_key(std::string_view suffix) const;

    Result<std::optional<int64_t>> find_int(std::string_view name, int64_t lo, int64_t hi) const;
    Result<std::optional<float>> find_float(std::string_view name) const;
    Result<std::optional<bool>> find_bool(std::string_view name) const;
    Result<std::optional<std::string_view>> find_string(std::string_view name) const;
    Result<std::optional<IntArray>> find_ints(std::string_view name, int64_t lo, int64_t hi) const;
    Result<std::optional<FloatArray>> find_floats(std::string_view name) const;
    Result<std::optional<BoolArray>> find_bools(std::string_view name) const;
    Result<std::optional<StringTable>> find_strings(std::string_view name) const;

    Result<int64_t> get_int(std::string_view name, int64_t lo, int64_t hi) const;
    Result<float> get_float(std::string_view name) const;
    Result<bool> get_bool(std::string_view name) const;
    Result<std::string_view> get_string(std::string_view name) const;
    Result<IntArray> get_ints(std::string_view name, int64_t lo, int64_t hi) const;
    Result<FloatArray> get_floats(std::string_view name) const;
    Result<BoolArray> get_bools(std::string_view name) const;
    Result<StringTable> get_strings(std::string_view name) const;

    /// Per-layer values: an array of `layers` entries, or a scalar that stands for every layer. `longest` allows an
    /// array with more entries than layers (draft blocks); the result has exactly `layers` entries. Flags may be stored
    /// as bools or as integers 0 and 1: converters do both.
    Result<std::optional<std::vector<int64_t>>> find_layer_ints(std::string_view name, uint64_t layers, int64_t lo,
                                                                int64_t hi, uint64_t longest = 0) const;
    Result<std::optional<std::vector<float>>> find_layer_floats(std::string_view name, uint64_t layers,
                                                                uint64_t longest = 0) const;
    Result<std::optional<std::vector<bool>>> find_layer_flags(std::string_view name, uint64_t layers,
                                                              uint64_t longest = 0) const;
    Result<std::vector<int64_t>> get_layer_ints(std::string_view name, uint64_t layers, int64_t lo, int64_t hi,
                                                uint64_t longest = 0) const;
    Result<std::vector<float>> get_layer_floats(std::string_view name, uint64_t layers, uint64_t longest = 0) const;
    Result<std::vector<bool>> get_layer_flags(std::string_view name, uint64_t layers, uint64_t longest = 0) const;

    /// An error about a key's value in the getters' form, for checks that a caller makes itself:
    /// "FILE: key NAME is u32, wanted ...".
    Error wrong_value(std::string_view name, std::string_view wanted, std::string code = "key-type") const;

  private:
    Error missing(std::string_view name) const;
    Result<void> check_length(const Key& key, uint64_t layers, uint64_t longest) const;

    std::string file_name_;
    std::vector<Key> keys_;
    std::vector<uint32_t> by_name_;  // positions in keys_, in the order of their names
    std::string_view architecture_;
};

}  // namespace strata::gguf
