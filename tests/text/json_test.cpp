#include "text/json.h"

#include <gtest/gtest.h>
#include <string>

namespace strata {
namespace {

std::string round_trip(std::string_view text) {
    auto value = parse_json(text);
    return value.ok() ? json_text(*value) : "error: " + value.error().message;
}

TEST(Json, KeepsKeyOrderAndTellsIntegersFromFloats) {
    EXPECT_EQ(round_trip(R"({"z": 1, "a": 1.0, "m": [2.50, -0.0, 1e3]})"), R"({"z":1,"a":1.0,"m":[2.5,-0.0,1000.0]})");
}

TEST(Json, IntegersLoseNoDigits) {
    EXPECT_EQ(round_trip("[9223372036854775807,18446744073709551615,-9223372036854775808]"),
              "[9223372036854775807,18446744073709551615,-9223372036854775808]");
    EXPECT_EQ(round_trip("[123456789012345678901234567890,-123456789012345678901234567890]"),
              "[123456789012345678901234567890,-123456789012345678901234567890]");
}

TEST(Json, KeyThatComesTwiceKeepsItsPlaceAndItsLastValue) {
    EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
    std::string many = "{";
    for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\":0,";
    auto value = parse_json(many + R"("k3":7,"k99":8})");
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(value->size(), 100u);
    EXPECT_EQ((*value)["k3"], 7);
    EXPECT_EQ((*value)["k99"], 8);
}

TEST(Json, RefusesWhatIsTooDeepOrNoJson) {
    EXPECT_TRUE(parse_json(std::string(128, '[') + std::string(128, ']')).ok());
    auto deep = parse_json(std::string(129, '[') + std::string(129, ']'));
    ASSERT_FALSE(deep.ok());
    EXPECT_NE(deep.error().message.find("128"), std::string::npos);
    for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\"", "[1e999]", "'a'"}) {
        EXPECT_FALSE(parse_json(text).ok()) << text;
    }
}

TEST(Json, FloatsPrintAsPythonPrintsThem) {
    EXPECT_EQ(float_text(1), "1.0");
    EXPECT_EQ(float_text(0.1), "0.1");
    EXPECT_EQ(float_text(-0.0), "-0.0");
    EXPECT_EQ(float_text(0.1 + 0.2), "0.30000000000000004");
    EXPECT_EQ(float_text(1e15), "1000000000000000.0");
    EXPECT_EQ(float_text(1e16), "1e+16");
    EXPECT_EQ(float_text(1.5e16), "1.5e+16");
    EXPECT_EQ(float_text(1e-4), "0.0001");
    EXPECT_EQ(float_text(1.5e-5), "1.5e-05");
    EXPECT_EQ(float_text(1e300), "1e+300");
    EXPECT_EQ(float_text(123456.789), "123456.789");
}

TEST(Json, StyleLaysOutAndEscapes) {
    auto value = parse_json(R"({"b":[],"a":[1,{"x":"é😀\u0007/"}],"c":{}})");
    ASSERT_TRUE(value.ok());
    JsonStyle style;
    style.indent = 2;
    style.key_separator = ": ";
    style.sort_keys = true;
    style.ascii = true;
    EXPECT_EQ(
        json_text(*value, style),
        "{\n  \"a\": [\n    1,\n    {\n      \"x\": \"\\u00e9\\ud83d\\ude00\\u0007/\"\n    }\n  ],\n  \"b\": [],\n"
        "  \"c\": {}\n}");
}

TEST(Json, BytesThatAreNoUtf8PassThroughTheWriter) {
    EXPECT_EQ(json_text(Json(std::string("a\xff\x80z"))), "\"a\xff\x80z\"");
}

}  // namespace
}  // namespace strata
