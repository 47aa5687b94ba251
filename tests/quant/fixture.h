// tests/data/quants: blocks of every type with their exact values and products (its README.md has the layout).
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quant/types.h"

namespace strata::fixture {

inline std::string path(const std::string& name) {
    return std::string(POLYSTRATA_TEST_DATA) + "/quants/" + name;
}

inline std::vector<uint8_t> read_file(const std::string& name) {
    std::ifstream in(path(name), std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path(name));
    return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json read_json(const std::string& name) {
    return nlohmann::json::parse(read_file(name));
}

inline const nlohmann::json& index() {
    static const nlohmann::json value = read_json("index.json");
    return value;
}

template <class T>
std::vector<T> values_of(const std::vector<uint8_t>& bytes, size_t offset, size_t size) {
    std::vector<T> out(size / sizeof(T));
    std::memcpy(out.data(), bytes.data() + offset, size);
    return out;
}

inline std::vector<float> read_floats(const std::string& name) {
    const auto bytes = read_file(name);
    return values_of<float>(bytes, 0, bytes.size());
}

/// One set ("plain", "imatrix", "adversarial") of one type.
struct Set {
    Type type;
    std::string name;  // "Q4_K plain"
    nlohmann::json facts;
    std::vector<uint8_t> file;

    int rows() const { return facts.at("rows"); }
    template <class T>
    std::vector<T> section(const std::string& key) const {
        return values_of<T>(file, facts.at(key).at(0), facts.at(key).at(1));
    }
};

inline constexpr int kColumns = 512;

/// Every set of every type, in the order of the index.
inline const std::vector<Set>& sets() {
    static const std::vector<Set> all = [] {
        std::vector<Set> out;
        for (const auto& [type_name, facts] : index().at("types").items())
            for (const auto& [set_name, set] : facts.at("sets").items())
                out.push_back({*type_by_name(type_name), type_name + " " + set_name, set, read_file(facts.at("file"))});
        return out;
    }();
    return all;
}

}  // namespace strata::fixture
