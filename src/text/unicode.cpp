#include "text/unicode.h"

#include <cstring>

#include "text/utf8.h"

namespace strata::unicode {
namespace {

constexpr ClassRange white_space_ranges[] = {
    {0x09, 0x0D, white_space},     {0x20, 0x20, white_space},     {0x85, 0x85, white_space},
    {0xA0, 0xA0, white_space},     {0x1680, 0x1680, white_space}, {0x2000, 0x200A, white_space},
    {0x2028, 0x2029, white_space}, {0x202F, 0x202F, white_space}, {0x205F, 0x205F, white_space},
    {0x3000, 0x3000, white_space}, {0x0A, 0x0A, newline},         {0x0D, 0x0D, newline},
};

// Stage 2 of the rule deepseek-llm.
constexpr uint32_t deepseek_letters[][2] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

// Zero at the start, so that pages nobody touches (most planes are unassigned) take no memory.
uint8_t class_table[last_code_point + 1];

const uint8_t* fill_class_table() {
    for (const ClassRange& range : category_ranges())
        std::memset(class_table + range.first, range.classes, range.last - range.first + 1);
    for (const ClassRange& range : white_space_ranges)
        for (uint32_t c = range.first; c <= range.last; ++c) class_table[c] |= range.classes;
    for (const auto& range : deepseek_letters)
        for (uint32_t c = range[0]; c <= range[1]; ++c) class_table[c] |= deepseek_letter;
    return class_table;
}

}  // namespace

const uint8_t* classes() {
    static const uint8_t* const table = fill_class_table();
    return table;
}

size_t valid_prefix(std::string_view text) {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
        if (end - at >= 8) {  // most text is ASCII: eight bytes at a step
            uint64_t eight;
            std::memcpy(&eight, at, 8);
            if ((eight & 0x8080808080808080) == 0) {
                at += 8;
                continue;
            }
        }
        const CodePoint c = decode_utf8(at, end);
        if (!c.valid) break;
        at += c.size;
    }
    return static_cast<size_t>(at - text.data());
}

std::string replace_invalid(std::string_view text) {
    std::string out;
    out.reserve(text.size() + 16);
    while (true) {
        const size_t good = valid_prefix(text);
        out += text.substr(0, good);
        if (good == text.size()) return out;
        out += replacement_utf8;
        text.remove_prefix(good + 1);
    }
}

}  // namespace strata::unicode
