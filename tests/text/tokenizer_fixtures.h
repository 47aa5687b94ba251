// What the tokenizer tests share: the fixtures of tests/data/tokenizer and random text made of hard parts.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace strata {

inline std::string fixture_path(const std::string& name) {
    return std::string(POLYSTRATA_TEST_DATA) + "/tokenizer/" + name;
}

inline std::string read_fixture(const std::string& name) {
    std::ifstream in(fixture_path(name), std::ios::binary);
    if (!in) throw std::runtime_error("no test data " + fixture_path(name));
    return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json read_json_fixture(const std::string& name) {
    return nlohmann::json::parse(read_fixture(name));
}

inline std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

/// Valid UTF-8 from the parts that split rules and byte handling get wrong.
inline std::string random_text(std::mt19937& random, int parts) {
    static const char* const pool[] = {
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\xC2\xA0",
        "\xE3\x80\x80",
        "\xE2\x80\x83",
        "\xC2\x85",
        "'",
        "'s",
        "'LL",
        "'Ve",
        "\xE2\x80\x99s",
        "a",
        "the",
        " the",
        "Hello",
        "world",
        "unmergeable",
        "zigzag",
        "\xC3\xA9",
        "e\xCC\x81",
        "\xCC\x81",
        "1",
        "12",
        "1234567",
        "\xD9\xA3\xD9\xA4",
        "\xC2\xBD",
        "\xE2\x85\xA7",
        "!",
        "...",
        "->",
        "(x):\n",
        "{\n    ",
        "$",
        "\xE2\x82\xAC",
        "<",
        "<|",
        "|>",
        "<0x0A>",
        "</s>",
        "\xE4\xBD\xA0\xE5\xA5\xBD",
        "\xE3\x82\xAB\xE3\x83\xBB\xE3\x82\xBF",
        "\xEC\x95\x88\xEB\x85\x95",
        "\xD0\x9F\xD1\x80\xD0\xB8",
        "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87",
        "\xF0\x9F\x98\x80",
        "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
        "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD",
        "\xEF\xBB\xBF",
        "\xF0\x9D\x90\x80",
        "\xEE\x80\x80",
        "\xCD\xB8",
        "aaaaaaaa",
        "----",
        "====",
        "http://",
        "_under",
    };
    std::string text;
    for (int i = 0; i < parts; ++i) text += pool[random() % std::size(pool)];
    text.push_back('\0');
    if (random() % 2) text.pop_back();
    return text;
}

inline std::string random_bytes(std::mt19937& random, size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

}  // namespace strata
