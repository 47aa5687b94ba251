// The fixture's verdicts, and bytes that nobody meant: prefixes and damaged copies of every file.
#include "gguf/parse.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "gguf/file.h"

namespace strata::gguf {
namespace {

using nlohmann::json;

const std::filesystem::path kFolder = std::filesystem::path(POLYSTRATA_TEST_DATA) / "gguf";

json index_file() {
    std::ifstream in(kFolder / "index.json");
    return json::parse(in)["files"];
}

/// The file's bytes in a block of exactly its size, so that the sanitizer sees a read past the end.
struct Bytes {
    std::unique_ptr<std::byte[]> data;
    size_t size = 0;
    std::span<const std::byte> span() const { return {data.get(), size}; }
};

Bytes copy_of(std::span<const std::byte> from) {
    Bytes bytes{std::make_unique<std::byte[]>(from.size()), from.size()};
    if (!from.empty()) std::memcpy(bytes.data.get(), from.data(), from.size());
    return bytes;
}

Bytes read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return copy_of(std::as_bytes(std::span(text)));
}

uint32_t crc32(std::span<const std::byte> bytes) {
    uint32_t crc = ~0u;
    for (const std::byte byte : bytes) {
        crc ^= static_cast<uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0u);
    }
    return ~crc;
}

std::string string_of(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    std::string out;
    const std::string hex = value.at("hex");
    for (size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return out;
}

/// Compares one scalar's bytes with the index's value, by the type's own width.
template <class T>
void expect_scalar(const std::byte* at, const json& value, const std::string& where) {
    T found;
    std::memcpy(&found, at, sizeof found);
    const T wanted = value.get<T>();
    EXPECT_EQ(std::memcmp(&found, &wanted, sizeof found), 0) << where << ": " << found << " instead of " << wanted;
}

void expect_value(ValueType type, const std::byte* at, const json& value, const std::string& where) {
    switch (type) {
        case ValueType::u8: return expect_scalar<uint8_t>(at, value, where);
        case ValueType::i8: return expect_scalar<int8_t>(at, value, where);
        case ValueType::u16: return expect_scalar<uint16_t>(at, value, where);
        case ValueType::i16: return expect_scalar<int16_t>(at, value, where);
        case ValueType::u32: return expect_scalar<uint32_t>(at, value, where);
        case ValueType::i32: return expect_scalar<int32_t>(at, value, where);
        case ValueType::u64: return expect_scalar<uint64_t>(at, value, where);
        case ValueType::i64: return expect_scalar<int64_t>(at, value, where);
        case ValueType::f32: return expect_scalar<float>(at, value, where);
        case ValueType::f64: return expect_scalar<double>(at, value, where);
        case ValueType::boolean: return expect_scalar<bool>(at, value, where);
        default: ADD_FAILURE() << where << ": not a scalar";
    }
}

void expect_key(const Key& key, const json& wanted, const std::string& file) {
    const std::string where = file + " " + std::string(key.name);
    EXPECT_EQ(key.name, wanted[0].get<std::string>()) << where;
    std::string type(value_type_name(key.type));
    std::string element(value_type_name(key.element));
    if (element == "string") element = "str";
    EXPECT_EQ(key.type == ValueType::array ? "arr:" + element
              : type == "string"           ? "str"
                                           : type,
              wanted[1].get<std::string>())
        << where;
    const json& value = wanted[2];
    if (key.type == ValueType::string) {
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()), string_of(value))
            << where;
    } else if (key.type != ValueType::array) {
        expect_value(key.type, key.bytes.data(), value, where);
    } else if (key.element == ValueType::string) {
        const Metadata metadata(file, {key});
        const auto table = metadata.get_strings(key.name);
        ASSERT_TRUE(table.ok()) << where;
        ASSERT_EQ(table->size(), value.size()) << where;
        for (size_t i = 0; i < value.size(); ++i) EXPECT_EQ((*table)[i], string_of(value[i])) << where;
    } else {
        ASSERT_EQ(key.count, value.size()) << where;
        for (size_t i = 0; i < value.size(); ++i)
            expect_value(key.element, key.bytes.data() + i * value_size(key.element), value[i], where);
    }
}

TEST(GgufFixture, EveryValidFileGivesExactlyWhatTheIndexSays) {
    int files = 0;
    const json index = index_file();
    for (const auto& [name, entry] : index.items()) {
        if (entry["verdict"] != "valid") continue;
        ++files;
        const Bytes bytes = read_file(kFolder / name);
        const auto parsed = parse(bytes.span(), name);
        ASSERT_TRUE(parsed.ok()) << parsed.error().message;
        const json& expect = entry["expect"];
        EXPECT_EQ(parsed->version, expect["version"].get<uint32_t>()) << name;
        EXPECT_EQ(parsed->alignment, expect["alignment"].get<uint64_t>()) << name;
        EXPECT_EQ(parsed->data_start, expect["data_start"].get<uint64_t>()) << name;
        ASSERT_EQ(parsed->keys.size(), expect["keys"].size()) << name;
        for (size_t i = 0; i < parsed->keys.size(); ++i) expect_key(parsed->keys[i], expect["keys"][i], name);
        ASSERT_EQ(parsed->tensors.size(), expect["tensors"].size()) << name;
        for (size_t i = 0; i < parsed->tensors.size(); ++i) {
            const TensorInfo& tensor = parsed->tensors[i];
            const json& wanted = expect["tensors"][i];
            const std::string where = name + " " + std::string(tensor.name);
            EXPECT_EQ(tensor.name, wanted["name"].get<std::string>());
            const auto dims = wanted["dims"].get<std::vector<uint64_t>>();
            ASSERT_EQ(tensor.n_dims, dims.size()) << where;
            for (size_t d = 0; d < 4; ++d) EXPECT_EQ(tensor.dims[d], d < dims.size() ? dims[d] : 1) << where;
            EXPECT_EQ(static_cast<uint32_t>(tensor.type), wanted["type"].get<uint32_t>()) << where;
            EXPECT_EQ(type_info(tensor.type).name, wanted["type_name"].get<std::string>()) << where;
            EXPECT_EQ(tensor.offset, wanted["file_offset"].get<uint64_t>()) << where;
            EXPECT_EQ(tensor.bytes, wanted["bytes"].get<uint64_t>()) << where;
            EXPECT_EQ(tensor.bytes, tensor.rows() * tensor.row_bytes()) << where;
            EXPECT_EQ(crc32({tensor.data, tensor.bytes}), wanted["crc32"].get<uint32_t>()) << where;
        }
    }
    EXPECT_EQ(files, 20);
}

TEST(GgufFixture, EveryMalformedFileIsRefusedWithItsCodeAndItsName) {
    int files = 0;
    const json index = index_file();
    for (const auto& [name, entry] : index.items()) {
        if (entry["verdict"] != "refuse") continue;
        ++files;
        const auto opened = File::open(kFolder / name);
        ASSERT_FALSE(opened.ok()) << name << ": " << entry["why"];
        EXPECT_EQ(opened.error().code, entry["code"].get<std::string>()) << opened.error().message;
        EXPECT_EQ(opened.error().kind, ErrorKind::file);
        EXPECT_NE(opened.error().message.find(name.substr(0, 3)), std::string::npos) << opened.error().message;
        EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
        EXPECT_EQ(opened.error().message.find('\0'), std::string::npos);
    }
    EXPECT_EQ(files, 55);
}

/// Reads everything a parse hands out, so that a view outside of the bytes shows.
uint64_t read_all(const Container& container) {
    uint64_t sum = 0;
    for (const Key& key : container.keys) {
        for (const std::byte byte : key.bytes) sum += static_cast<uint64_t>(byte);
        if (key.type == ValueType::array && key.element == ValueType::string) {
            const auto table = Metadata("x", {key}).get_strings(key.name);
            for (const std::string_view text : *table)
                for (const char c : text) sum += static_cast<unsigned char>(c);
        }
    }
    for (const TensorInfo& tensor : container.tensors)
        for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<uint64_t>(tensor.data[i]);
    return sum;
}

TEST(GgufHostile, EveryPrefixOfEveryFileIsRefusedOrReadWithinItsBytes) {
    const json index = index_file();
    for (const auto& [name, entry] : index.items()) {
        const Bytes whole = read_file(kFolder / name);
        for (size_t length = 0; length <= whole.size; ++length) {
            // The long-key file: its middle says nothing new.
            if (whole.size > 20000 && length > 200 && length + 200 < whole.size) continue;
            const Bytes prefix = copy_of(whole.span().first(length));
            const auto parsed = parse(prefix.span(), name);
            if (parsed.ok())
                read_all(*parsed);
            else
                EXPECT_FALSE(parsed.error().code.empty()) << parsed.error().message;
        }
    }
}

TEST(GgufHostile, DamagedBytesAreRefusedOrReadWithinTheirFile) {
    const uint32_t seed = 20261130;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const json index = index_file();
    for (const auto& [name, entry] : index.items()) {
        const Bytes whole = read_file(kFolder / name);
        for (size_t at = 0; at < whole.size; ++at) {
            if (whole.size > 20000 && at > 200 && at + 200 < whole.size) continue;
            Bytes damaged = copy_of(whole.span());
            // One byte, or eight at once: a length field of all ones.
            const size_t count = random() % 4 ? 1 : std::min<size_t>(8, whole.size - at);
            for (size_t i = 0; i < count; ++i)
                damaged.data[at + i] = random() % 2 ? std::byte{0xFF} : static_cast<std::byte>(random());
            const auto parsed = parse(damaged.span(), name);
            if (parsed.ok()) read_all(*parsed);
        }
    }
}

/// A file under construction, for cases the fixture does not have.
class Builder {
  public:
    Builder(uint64_t tensors, uint64_t keys) { put<uint32_t>(0x46554747), put<uint32_t>(3), put(tensors), put(keys); }
    template <class T>
    Builder& put(T value) {
        text_.append(reinterpret_cast<const char*>(&value), sizeof value);
        return *this;
    }
    Builder& str(std::string_view text) {
        put<uint64_t>(text.size());
        text_ += text;
        return *this;
    }
    Builder& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
        str(name).put<uint32_t>(static_cast<uint32_t>(dims.size()));
        for (const uint64_t dim : dims) put(dim);
        return put(type).put(offset);
    }
    Builder& pad(size_t multiple) {
        while (text_.size() % multiple) text_ += '\0';
        return *this;
    }
    Builder& data(size_t count) {
        text_.append(count, '\1');
        return *this;
    }
    std::string code() const {
        const auto parsed = parse(std::as_bytes(std::span(text_)), "built");
        return parsed.ok() ? "ok" : parsed.error().code;
    }

  private:
    std::string text_;
};

TEST(GgufHostile, ProductsThatOverflowAreRefusedEvenBesideAZeroDim) {
    const uint64_t big = uint64_t{1} << 32;
    EXPECT_EQ(Builder(1, 0).tensor("a", {big, big, 0}, 0, 0).code(), "element-overflow");
    EXPECT_EQ(Builder(1, 0).tensor("a", {big, big, big, big}, 0, 0).code(), "element-overflow");
    EXPECT_EQ(Builder(1, 0).tensor("a", {uint64_t{1} << 62, 2}, 24, 0).code(), "element-overflow");
}

TEST(GgufHostile, TensorsThatTogetherPassTheEndOfNumbersAreRefused) {
    const uint64_t half = uint64_t{1} << 62;
    EXPECT_EQ(Builder(2, 0).tensor("a", {half}, 24, 0).tensor("b", {half}, 24, half).code(), "byte-overflow");
}

TEST(GgufHostile, ActivationTypesAreRefused) {
    EXPECT_EQ(Builder(1, 0).tensor("a", {32}, 9, 0).code(), "tensor-type");
    EXPECT_EQ(Builder(1, 0).tensor("a", {256}, 15, 0).code(), "tensor-type");
}

TEST(GgufHostile, NamesWithControlCharactersAreRefused) {
    EXPECT_EQ(Builder(1, 0).tensor("a\tb", {1}, 0, 0).code(), "name-control-char");
    EXPECT_EQ(Builder(0, 1).str("a\x7F").put<uint32_t>(7).put<uint8_t>(1).code(), "key-control-char");
}

TEST(GgufHostile, Utf8IsStrict) {
    const auto code = [](std::string_view name) {
        return Builder(0, 1).str(name).put<uint32_t>(7).put<uint8_t>(1).code();
    };
    for (const std::string_view good :
         {"a", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
        EXPECT_EQ(code(good), "ok") << good;
    for (const std::string_view bad :
         {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82", "\xF0\x8F\xBF\xBF",
          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x28\xA1"})
        EXPECT_EQ(code(bad), "key-not-utf8") << bad;
}

TEST(GgufHostile, AFileMayEndAtItsLastTensorsLastByte) {
    EXPECT_EQ(Builder(1, 0).tensor("a", {3}, 0, 0).pad(32).data(12).code(), "ok");
    EXPECT_EQ(Builder(1, 0).tensor("a", {3}, 0, 0).pad(32).data(11).code(), "data-past-end");
    // An empty tensor after it may then point past the end: it has no bytes to read.
    EXPECT_EQ(Builder(2, 0).tensor("a", {3}, 0, 0).tensor("z", {8, 0}, 0, 32).pad(32).data(12).code(), "ok");
}

}  // namespace
}  // namespace strata::gguf
