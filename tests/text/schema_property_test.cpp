// Random schemas, random documents of theirs and random damage, against a validator that knows nothing of grammars:
// documents written the way a grammar writes are taken byte by byte, and what is taken is valid.
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <regex>

#include "grammar/grammar_text.h"
#include "grammar/token_mask.h"
#include "text/schema.h"
#include "text/utf8.h"

namespace strata {
namespace {

class Random {
  public:
    Random() {
        unsigned seed = std::random_device()();
        if (const char* given = std::getenv("POLYSTRATA_TEST_SEED")) seed = static_cast<unsigned>(std::atoi(given));
        std::printf("POLYSTRATA_TEST_SEED=%u\n", seed);
        engine_.seed(seed);
    }
    int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
    int between(int low, int high) { return low + below(high - low + 1); }
    bool one_in(int n) { return below(n) == 0; }
    template <class List>
    const auto& of(const List& list) {
        return list[static_cast<size_t>(below(static_cast<int>(std::size(list))))];
    }

  private:
    std::mt19937 engine_;
};

const char* const kNames[] = {"a", "b", "ab", "id", "na\"me", "\xC3\xA9", "x\ny", "long name", ""};
const char* const kTexts[] = {"", "a", "\xC3\xA9", "zz top", "\xF0\x9F\x98\x80!", "q\"\\", "12-ab", "line\n"};

struct Pattern {
    const char* text;
    std::vector<const char*> good;
};
const Pattern kPatterns[] = {{"^[a-z]{2,4}$", {"ab", "abcd"}},
                             {"^(\\d{1,3}|x+)-[^a-f]$", {"12-z", "xxx--", "7-9"}},
                             {"b+", {"abba", "b", "  b"}},
                             {"^a?[A-Z_]*z$", {"z", "aQ_z"}}};

// ---- schemas and documents
// ---------------------------------------------------------------------------------------------------------------

Json constant(Random& random) {
    switch (random.below(6)) {
        case 0: return nullptr;
        case 1: return random.one_in(2);
        case 2: return random.between(-20, 20);
        case 3: return random.of(kTexts);
        case 4: return Json::array({1, random.of(kTexts)});
        default: return Json{{random.of(kNames), 0.5}};
    }
}

Json make_schema(Random& random, int depth) {
    switch (random.below(depth > 0 ? 13 : 8)) {
        case 0: return {{"type", "boolean"}};
        case 1: return {{"type", "null"}};
        case 2: {
            Json schema{{"type", "integer"}};
            const int low = random.between(-1200, 1200);
            if (random.one_in(2)) schema[random.one_in(2) ? "minimum" : "exclusiveMinimum"] = low;
            if (random.one_in(2))
                schema[random.one_in(2) ? "maximum" : "exclusiveMaximum"] = low + random.between(2, 3000);
            return schema;
        }
        case 3: return {{"type", "number"}};
        case 4: {
            Json schema{{"type", "string"}};
            const int low = random.below(4);
            if (random.one_in(2)) schema["minLength"] = low;
            if (random.one_in(2)) schema["maxLength"] = low + random.below(60);
            return schema;
        }
        case 5: return {{"type", "string"}, {"pattern", random.of(kPatterns).text}};
        case 6: {
            Json values = Json::array();
            for (int i = random.between(1, 4); i > 0; --i) values.push_back(constant(random));
            return {{"enum", values}};
        }
        case 7: return {{"const", constant(random)}};
        case 8:
        case 9: {
            Json schema{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
            for (int i = random.below(4); i > 0; --i)
                schema["properties"][random.of(kNames)] = make_schema(random, depth - 1);
            for (const auto& [name, inner] : schema["properties"].items())
                if (random.one_in(2)) schema["required"].push_back(name);
            if (random.one_in(4)) schema["required"].push_back("extra");
            if (random.one_in(2))
                schema["additionalProperties"] = random.one_in(3) ? make_schema(random, 0) : Json(random.one_in(2));
            if (schema["required"].size() > 0 && schema["required"].back() == "extra")
                schema["additionalProperties"] = true;
            return schema;
        }
        case 10: {
            Json schema{{"type", "array"}};
            if (random.one_in(2)) schema["items"] = make_schema(random, depth - 1);
            if (random.one_in(3)) schema["prefixItems"] = Json::array({make_schema(random, 0), make_schema(random, 0)});
            const int low = random.below(3);
            if (random.one_in(2)) schema["minItems"] = low;
            if (random.one_in(2)) schema["maxItems"] = low + random.between(0, 3);
            return schema;
        }
        case 11: {
            Json options = Json::array();
            for (int i = random.between(1, 3); i > 0; --i) options.push_back(make_schema(random, depth - 1));
            return {{random.one_in(2) ? "anyOf" : "oneOf", options}};
        }
        default: return {{"type", Json::array({"integer", random.one_in(2) ? "null" : "string"})}};
    }
}

Json any_document(Random& random, int depth) {
    if (depth > 0 && random.one_in(4)) return Json::array({any_document(random, depth - 1)});
    if (depth > 0 && random.one_in(4)) return {{random.of(kTexts), any_document(random, depth - 1)}};
    return constant(random);
}

std::string text_of(Random& random, int low, int high) {
    std::string text;
    for (int n = random.between(low, high); n > 0; --n)
        append_utf8(text, random.one_in(3) ? static_cast<uint32_t>(random.between(0xA1, 0x2FFF))
                                           : static_cast<uint32_t>(random.between(0x20, 0x7E)));
    return text;
}

/// A document of the schema, its properties in the schema's order.
Json make_document(Random& random, const Json& schema) {
    if (schema.contains("enum")) return random.of(schema["enum"]);
    if (schema.contains("const")) return schema["const"];
    for (const char* word : {"anyOf", "oneOf"})
        if (schema.contains(word)) return make_document(random, random.of(schema[word]));
    const std::string type =
        schema["type"].is_array() ? random.of(schema["type"]).get<std::string>() : schema["type"].get<std::string>();
    if (type == "null") return nullptr;
    if (type == "boolean") return random.one_in(2);
    if (type == "number")
        return random.one_in(2) ? Json(random.between(-99, 99)) : Json(random.between(-99999, 99999) / 64.0);
    if (type == "integer") {
        int low = -5000, high = 5000;
        if (schema.contains("minimum")) low = schema["minimum"];
        if (schema.contains("exclusiveMinimum")) low = schema["exclusiveMinimum"].get<int>() + 1;
        if (schema.contains("maximum")) high = schema["maximum"];
        if (schema.contains("exclusiveMaximum")) high = schema["exclusiveMaximum"].get<int>() - 1;
        return random.one_in(3) ? random.one_in(2) ? low : high : random.between(low, high);
    }
    if (type == "string") {
        if (schema.contains("pattern"))
            for (const Pattern& pattern : kPatterns)
                if (schema["pattern"] == pattern.text) return random.of(pattern.good);
        const int low = schema.value("minLength", 0);
        return text_of(random, low, schema.value("maxLength", low + 70));
    }
    if (type == "array") {
        const Json prefix = schema.value("prefixItems", Json::array());
        const int low = schema.value("minItems", 0);
        Json list = Json::array();
        for (int i = random.between(low, schema.value("maxItems", low + 4)); i > 0; --i) {
            if (list.size() < prefix.size())
                list.push_back(make_document(random, prefix[list.size()]));
            else
                list.push_back(schema.contains("items") ? make_document(random, schema["items"])
                                                        : any_document(random, 2));
        }
        return list;
    }
    Json object = Json::object();
    const Json& required = schema["required"];
    const auto is_required = [&](const std::string& name) {
        return std::find(required.begin(), required.end(), name) != required.end();
    };
    for (const auto& [name, inner] : schema["properties"].items())
        if (is_required(name) || random.one_in(2)) object[name] = make_document(random, inner);
    if (is_required("extra")) object["extra"] = any_document(random, 1);
    const Json more = schema.value("additionalProperties", Json(true));
    if (more != false && random.one_in(2)) {
        for (const char* name : {"more", "idx", "\xC3\xA8", "i"})
            if (random.one_in(2))
                object[name] = more.is_object() ? make_document(random, more) : any_document(random, 2);
    }
    return object;
}

std::string space(Random& random) {
    switch (random.below(8)) {
        case 0: return " ";
        case 1: return "\n" + std::string(static_cast<size_t>(random.below(33)), ' ');
        default: return "";
    }
}

/// The document with white space where a grammar allows it.
std::string written(Random& random, const Json& value) {
    if (!value.is_structured()) return json_text(value);
    const bool object = value.is_object();
    std::string text = (object ? "{" : "[") + space(random);
    bool first = true;
    for (const auto& [name, inner] : value.items()) {
        if (!first) text += "," + space(random);
        first = false;
        if (object) text += json_text(Json(name)) + ":" + space(random);
        text += written(random, inner);
    }
    if (!first) text += space(random);
    return text + (object ? "}" : "]");
}

// ---- the validator
// ---------------------------------------------------------------------------------------------------------------

bool equal(const Json& a, const Json& b) {
    if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
    if (a.is_object() && b.is_object()) {
        return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const auto& entry) {
                   return b.contains(entry.key()) && equal(entry.value(), b[entry.key()]);
               });
    }
    if (a.is_array() && b.is_array()) return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
    return a == b;
}

bool valid(const Json& value, const Json& schema) {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("const") && !equal(value, schema["const"])) return false;
    if (schema.contains("enum") &&
        std::none_of(schema["enum"].begin(), schema["enum"].end(), [&](const Json& one) { return equal(one, value); }))
        return false;
    for (const char* word : {"anyOf", "oneOf"})  // oneOf as anyOf: docs/structured-output.md
        if (schema.contains(word) &&
            std::none_of(schema[word].begin(), schema[word].end(), [&](const Json& one) { return valid(value, one); }))
            return false;
    if (schema.contains("type")) {
        const auto is = [&](const std::string& type) {
            if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
            if (type == "number") return value.is_number();
            return type == value.type_name();
        };
        const Json& type = schema["type"];
        if (type.is_string() ? !is(type)
                             : std::none_of(type.begin(), type.end(), [&](const Json& one) { return is(one); }))
            return false;
    }
    if (value.is_number()) {
        const double x = value.get<double>();
        if (schema.contains("minimum") && x < schema["minimum"].get<double>()) return false;
        if (schema.contains("maximum") && x > schema["maximum"].get<double>()) return false;
        if (schema.contains("exclusiveMinimum") && x <= schema["exclusiveMinimum"].get<double>()) return false;
        if (schema.contains("exclusiveMaximum") && x >= schema["exclusiveMaximum"].get<double>()) return false;
    }
    if (value.is_string()) {
        const std::string text = value.get<std::string>();
        const auto length = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
        if (length < schema.value("minLength", 0) || length > schema.value("maxLength", 1 << 30)) return false;
        if (schema.contains("pattern")) {
            // One unit a character, so that a class takes a whole one; no pattern here tells those beyond ASCII apart.
            std::string units;
            for (size_t i = 0; i < text.size();) {
                const CodePoint point = decode_utf8(text, i);
                units += point.value < 0x80 ? static_cast<char>(point.value) : '\x7F';
                i += point.size;
            }
            if (!std::regex_search(units, std::regex(schema["pattern"].get<std::string>()))) return false;
        }
    }
    if (value.is_array()) {
        if (static_cast<int>(value.size()) < schema.value("minItems", 0) ||
            static_cast<int>(value.size()) > schema.value("maxItems", 1 << 30))
            return false;
        const Json prefix = schema.value("prefixItems", Json::array());
        for (size_t i = 0; i < value.size(); ++i) {
            if (i < prefix.size() ? !valid(value[i], prefix[i])
                                  : schema.contains("items") && !valid(value[i], schema["items"]))
                return false;
        }
    }
    if (value.is_object()) {
        if (schema.contains("required"))
            for (const Json& name : schema["required"])
                if (!value.contains(name.get<std::string>())) return false;
        const Json properties = schema.value("properties", Json::object());
        for (const auto& [name, inner] : value.items()) {
            if (properties.contains(name)
                    ? !valid(inner, properties[name])
                    : schema.contains("additionalProperties") && !valid(inner, schema["additionalProperties"]))
                return false;
        }
    }
    return true;
}

std::string damaged(Random& random, std::string text) {
    static const std::string kBytes = "{}[]\",:0123456789abntrue\\-. \n\xC3\xA9";
    for (int n = random.between(1, 2); n > 0; --n) {
        const auto at = static_cast<size_t>(random.below(static_cast<int>(text.size()) + 1));
        const auto size = static_cast<size_t>(random.between(1, 6));
        switch (random.below(4)) {
            case 0: text.insert(at, 1, random.of(kBytes)); break;
            case 1: text.erase(std::min(at, text.size()), random.one_in(2) ? 1 : size); break;
            case 2:
                if (at < text.size()) text[at] = random.of(kBytes);
                break;
            default:
                text.insert(at,
                            text.substr(static_cast<size_t>(random.below(static_cast<int>(text.size()) + 1)), size));
        }
    }
    return text;
}

// ---- the rules
// ---------------------------------------------------------------------------------------------------------------

class SchemaProperty : public testing::Test {
  protected:
    SchemaProperty() {
        for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
        std::vector<std::string_view> pieces(bytes_.begin(), bytes_.end());
        trie_ = std::make_shared<const TokenTrie>(pieces);
    }
    bool takes(TokenMask& mask, std::string_view text) {
        mask.reset();
        for (unsigned char byte : text)
            if (!mask.accept(static_cast<int32_t>(byte))) return false;
        return mask.can_end();
    }

    Random random_;
    std::vector<std::string> bytes_;
    std::shared_ptr<const TokenTrie> trie_;
};

TEST_F(SchemaProperty, DocumentsAreTakenAndWhatIsTakenIsValid) {
    int documents = 0, refused = 0, taken = 0;
    for (int round = 0; round < 300; ++round) {
        const Json schema = make_schema(random_, 3);
        SCOPED_TRACE(json_text(schema));
        auto compiled = grammar_of_schema(schema);
        ASSERT_TRUE(compiled.ok()) << compiled.error().message;
        auto travelled = parse_grammar_text(grammar_text(*compiled));
        ASSERT_TRUE(travelled.ok()) << travelled.error().message;
        TokenMask mask(std::make_shared<const Grammar>(std::move(*travelled)), trie_, {});
        for (int i = 0; i < 10; ++i) {
            const Json document = make_document(random_, schema);
            ASSERT_TRUE(valid(document, schema)) << json_text(document);
            const std::string text = written(random_, document);
            EXPECT_TRUE(takes(mask, text)) << text;
            ++documents;
            for (int j = 0; j < 8; ++j) {
                const std::string other = damaged(random_, text);
                const auto read = parse_json(other);
                if (!takes(mask, other)) {
                    ++refused;
                    continue;
                }
                ++taken;
                ASSERT_TRUE(read.ok()) << other;
                EXPECT_TRUE(valid(*read, schema)) << other;
            }
        }
    }
    EXPECT_EQ(documents, 3000);
    EXPECT_GT(refused, 1000);  // damage does damage,
    EXPECT_GT(taken, 1000);    // and not always
}

}  // namespace
}  // namespace strata
