#include "text/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "text/schema_pattern.h"
#include "text/schema_values.h"

namespace strata {
namespace {

using State = GrammarBuilder::State;

// What is accepted and says nothing about which values fit.
constexpr std::string_view kIgnored[] = {
    "$schema",     "$id",         "$anchor",  "$comment", "$defs",           "definitions",      "title",
    "description", "default",     "examples", "example",  "deprecated",      "readOnly",         "writeOnly",
    "nullable",    "uniqueItems", "strict",   "format",   "contentEncoding", "contentMediaType", "name"};
// Of numbers that need not be integers; read for integers.
constexpr std::string_view kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
constexpr std::string_view kSupported[] = {"type",   "properties",  "required",  "additionalProperties",
                                           "items",  "prefixItems", "minItems",  "maxItems",
                                           "enum",   "const",       "anyOf",     "oneOf",
                                           "allOf",  "$ref",        "minLength", "maxLength",
                                           "pattern"};
// Known to schemas, and they restrict values in ways that are not followed here. Any other word is somebody's
// annotation.
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "patternProperties",
                                         "dependentSchemas",
                                         "dependentRequired",
                                         "dependencies",
                                         "propertyNames",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "minProperties",
                                         "maxProperties",
                                         "multipleOf",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "additionalItems",
                                         "$dynamicRef",
                                         "$recursiveRef"};

template <size_t size>
bool is_in(std::string_view word, const std::string_view (&words)[size]) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

const Json* member(const Json& object, std::string_view key) {
    if (!object.is_object()) return nullptr;
    auto place = object.find(key);
    return place == object.end() ? nullptr : &*place;
}

class SchemaCompiler {
  public:
    SchemaCompiler(GrammarBuilder& builder, const Json& root, const SchemaOptions& options)
        : builder_(builder), json_(builder), root_(root), options_(options) {}

    Result<int32_t> run(const Json& schema) { return rule_of(schema, "$", 0); }

    int32_t any_object() { return json_.any_object(); }

  private:
    static Error error(const std::string& where, const std::string& what) {
        return {ErrorKind::failed, where + ": " + what, "unsupported_schema"};
    }

    Result<void> check_words(const Json& schema, const std::string& where) {
        for (const auto& [word, value] : schema.items()) {
            if (is_in(word, kRefused)) return error(where, "'" + word + "' is not supported");
        }
        return {};
    }

    static bool restricts(std::string_view word) { return !is_in(word, kIgnored); }

    /// The rule of a schema's values.
    Result<int32_t> rule_of(const Json& schema, const std::string& where, int depth) {
        if (depth > 100) return error(where, "schemas nested deeper than 100 levels are not supported");
        if (builder_.too_large()) {
            return error(where, "the schema grows past " + std::to_string(GrammarBuilder::max_states) + " states");
        }
        if (schema.is_boolean()) {
            if (schema.get<bool>()) return json_.any_value();
            return nothing();
        }
        if (!schema.is_object()) return error(where, "a schema must be an object or a boolean");
        STRATA_TRY(check_words(schema, where));

        if (const Json* reference = member(schema, "$ref")) {
            bool alone = std::none_of(schema.items().begin(), schema.items().end(), [](const auto& entry) {
                return entry.key() != "$ref" && restricts(entry.key());
            });
            if (alone) return referred(*reference, where, depth);
        }
        for (const char* word : {"$ref", "allOf"}) {
            if (!schema.contains(word)) continue;
            STRATA_TRY_ASSIGN(Json merged, flattened(schema, where, depth));
            return rule_of(merged, where, depth + 1);
        }
        for (const char* word : {"anyOf", "oneOf"}) {
            if (schema.contains(word)) return choice(schema, word, where, depth);
        }
        if (const Json* values = member(schema, "enum")) return constants(schema, *values, where);
        if (const Json* value = member(schema, "const")) return constants(schema, Json::array({*value}), where);

        std::vector<std::string> types;
        if (const Json* type = member(schema, "type")) {
            if (type->is_string()) types.push_back(type->get<std::string>());
            if (type->is_array()) {
                for (const Json& one : *type) {
                    if (!one.is_string()) return error(where, "'type' must be a string or a list of them");
                    types.push_back(one.get<std::string>());
                }
            }
        } else {
            types = implied_types(schema);
        }
        if (const Json* nullable = member(schema, "nullable"); nullable && *nullable == true && !types.empty()) {
            types.push_back("null");
        }
        if (types.empty()) return json_.any_value();
        std::vector<int32_t> rules;
        for (const std::string& type : types) {
            STRATA_TRY_ASSIGN(int32_t rule, typed(schema, type, where, depth));
            rules.push_back(rule);
        }
        return any_of(rules);
    }

    static std::vector<std::string> implied_types(const Json& schema) {
        for (const char* word : {"properties", "required", "additionalProperties"}) {
            if (schema.contains(word)) return {"object"};
        }
        for (const char* word : {"items", "prefixItems", "minItems", "maxItems"}) {
            if (schema.contains(word)) return {"array"};
        }
        for (const char* word : {"minLength", "maxLength", "pattern"}) {
            if (schema.contains(word)) return {"string"};
        }
        for (std::string_view word : kBounds) {
            if (schema.contains(word)) return {"number"};
        }
        return {};
    }

    int32_t any_of(const std::vector<int32_t>& rules) {
        if (rules.size() == 1) return rules[0];
        int32_t rule = builder_.rule("choice");
        State start = builder_.state(), end = builder_.state();
        for (int32_t one : rules) builder_.call(start, one, end);
        builder_.set_rule(rule, start, end);
        return rule;
    }

    int32_t nothing() {
        int32_t rule = builder_.rule("nothing");
        State start = builder_.state(), end = builder_.state();
        builder_.set_rule(rule, start, end);
        return rule;
    }

    Result<const Json*> target(const Json& reference, const std::string& where) {
        if (!reference.is_string()) return error(where, "'$ref' must be a string");
        const std::string& path = reference.get_ref<const std::string&>();
        if (!path.starts_with("#"))
            return error(where, "'$ref' to '" + path + "' outside of the schema is not supported");
        try {
            Json::json_pointer pointer(path.substr(1));
            if (root_.contains(pointer)) return &root_.at(pointer);
        } catch (const Json::exception&) {
        }
        return error(where, "'$ref' leads to '" + path + "', which is not there");
    }

    Result<int32_t> referred(const Json& reference, const std::string& where, int depth) {
        STRATA_TRY_ASSIGN(const Json* schema, target(reference, where));
        const std::string& path = reference.get_ref<const std::string&>();
        if (auto known = references_.find(path); known != references_.end()) return known->second;
        // A rule of its own that calls the schema's, so that the schema may refer to itself.
        int32_t rule = builder_.rule(path);
        references_.emplace(path, rule);
        STRATA_TRY_ASSIGN(int32_t inner, rule_of(*schema, path, depth + 1));
        State start = builder_.state();
        builder_.set_rule(rule, start, builder_.call(start, inner));
        return rule;
    }

    /// Counts a schema's values that are about to be copied; copies of copies may grow exponentially.
    bool afford(const Json& schema) {
        if (--copies_left_ < 0) return false;
        if (!schema.is_structured()) return true;
        return std::all_of(schema.begin(), schema.end(), [&](const Json& inner) { return afford(inner); });
    }

    /// A schema with its $ref and allOf taken in.
    Result<Json> flattened(const Json& schema, const std::string& where, int depth) {
        if (depth > 100) return error(where, "'$ref' beside other words leads in a circle");
        if (!afford(schema)) return error(where, "'allOf' and '$ref' beside other words make the schema too large");
        if (schema.is_boolean()) {
            if (schema.get<bool>()) return Json::object();
            return error(where, "'allOf' with false is not supported");
        }
        if (!schema.is_object()) return error(where, "a schema must be an object or a boolean");
        Json all = Json::object();
        std::vector<Json> parts;
        for (const auto& [word, value] : schema.items()) {
            if (word == "$ref") {
                STRATA_TRY_ASSIGN(const Json* other, target(value, where));
                STRATA_TRY_ASSIGN(Json part, flattened(*other, where, depth + 1));
                parts.push_back(std::move(part));
            } else if (word == "allOf") {
                if (!value.is_array()) return error(where, "'allOf' must be a list");
                for (const Json& one : value) {
                    STRATA_TRY_ASSIGN(Json part, flattened(one, where, depth + 1));
                    parts.push_back(std::move(part));
                }
            } else {
                all[word] = value;
            }
        }
        for (const Json& part : parts) STRATA_TRY(merge(all, part, where, depth));
        return all;
    }

    /// Makes `all` say what both say.
    Result<void> merge(Json& all, const Json& part, const std::string& where, int depth) {
        if (depth > 100) return error(where, "'allOf' nested too deeply");
        for (const auto& [word, value] : part.items()) {
            if (is_in(word, kIgnored) && word != "format" && word != "nullable") continue;
            if (is_in(word, kRefused)) return error(where, "'" + word + "' is not supported");
            if (!all.contains(word)) {
                all[word] = value;
                continue;
            }
            Json& own = all[word];
            if (own == value) continue;
            if (word == "properties" && own.is_object() && value.is_object()) {
                for (const auto& [name, schema] : value.items()) {
                    if (!own.contains(name)) {
                        own[name] = schema;
                    } else {
                        Json both = {{"allOf", Json::array({own[name], schema})}};
                        own[name] = std::move(both);
                    }
                }
            } else if (word == "required" && own.is_array() && value.is_array()) {
                for (const Json& name : value) {
                    if (std::find(own.begin(), own.end(), name) == own.end()) own.push_back(name);
                }
            } else if (word == "additionalProperties") {
                own = own == false || value == false ? Json(false) : own == true ? value : value == true ? own : Json();
                if (own.is_null())
                    return error(where, "two different 'additionalProperties' in 'allOf' are not supported");
            } else if (word == "type") {
                auto has = [](const Json& types, const Json& type) {
                    return types == type ||
                           (types.is_array() && std::find(types.begin(), types.end(), type) != types.end());
                };
                Json both = Json::array();
                for (const Json& type : own.is_array() ? own : Json::array({own})) {
                    if (has(value, type)) both.push_back(type);
                }
                if (both.empty()) return error(where, "no type fits all of 'allOf'");
                own = std::move(both);
            } else if (word == "enum" && own.is_array() && value.is_array()) {
                Json both = Json::array();
                for (const Json& one : own) {
                    if (std::find(value.begin(), value.end(), one) != value.end()) both.push_back(one);
                }
                own = std::move(both);
            } else if ((word == "minimum" || word == "minLength" || word == "minItems") && own.is_number() &&
                       value.is_number()) {
                if (value > own) own = value;
            } else if ((word == "maximum" || word == "maxLength" || word == "maxItems") && own.is_number() &&
                       value.is_number()) {
                if (value < own) own = value;
            } else {
                return error(where, "'" + word + "' in several parts of 'allOf' is not supported");
            }
        }
        return {};
    }

    Result<int32_t> choice(const Json& schema, const std::string& word, const std::string& where, int depth) {
        const Json& options = schema[word];
        if (!options.is_array() || options.empty()) return error(where, "'" + word + "' must be a list");
        Json rest = Json::object();
        for (const auto& [other, value] : schema.items()) {
            if (other != word && (restricts(other) || other == "nullable")) rest[other] = value;
        }
        std::vector<int32_t> rules;
        for (size_t i = 0; i < options.size(); ++i) {
            std::string here = where + "." + word + "[" + std::to_string(i) + "]";
            Json option = options[i];
            if (!rest.empty()) {
                STRATA_TRY_ASSIGN(option, flattened(Json{{"allOf", Json::array({rest, options[i]})}}, here, depth + 1));
            }
            STRATA_TRY_ASSIGN(int32_t rule, rule_of(option, here, depth + 1));
            rules.push_back(rule);
        }
        return any_of(rules);
    }

    Result<int32_t> constants(const Json& schema, const Json& values, const std::string& where) {
        if (!values.is_array()) return error(where, "'enum' must be a list");
        int32_t rule = builder_.rule("constant");
        State start = builder_.state(), end = builder_.state();
        const Json* type = member(schema, "type");
        const Json* only = member(schema, "const");
        for (const Json& value : values) {
            if (type && !is_of_type(value, *type)) continue;
            if (only && value != *only) continue;
            builder_.link(json_.constant(start, value), end);
        }
        if (const Json* nullable = member(schema, "nullable"); nullable && *nullable == true) {
            builder_.link(builder_.literal(start, "null"), end);
        }
        builder_.set_rule(rule, start, end);
        return rule;
    }

    static bool is_of_type(const Json& value, const Json& type) {
        if (type.is_array()) {
            return std::any_of(type.begin(), type.end(), [&](const Json& one) { return is_of_type(value, one); });
        }
        if (type == "integer") return value.is_number_integer() || is_big_integer(value);
        if (type == "number") return value.is_number() || is_big_integer(value);
        return type == value.type_name();
    }

    Result<int32_t> typed(const Json& schema, const std::string& type, const std::string& where, int depth) {
        if (type == "null" || type == "boolean") {
            return constants(Json::object(), type == "null" ? Json::array({nullptr}) : Json::array({true, false}),
                             where);
        }
        if (type == "string") return string_of(schema, where);
        if (type == "number") return json_.number();
        if (type == "integer") return integer_of(schema, where);
        if (type == "object") return object_of(schema, where, depth);
        if (type == "array") return array_of(schema, where, depth);
        return error(where, "there is no type '" + type + "'");
    }

    /// A whole number that a word gives; `fallback` where it is not there.
    Result<int64_t> count(const Json& schema, const char* word, int64_t fallback, const std::string& where) {
        const Json* value = member(schema, word);
        if (!value) return fallback;
        if (value->is_number_float() && value->get<double>() >= 0 &&
            value->get<double>() == std::floor(value->get<double>()) && value->get<double>() < 1e9) {
            return static_cast<int64_t>(value->get<double>());
        }
        if (!value->is_number_integer() || *value < 0 || *value > 1'000'000'000) {
            return error(where, "'" + std::string(word) + "' must be a number of at least 0");
        }
        return value->get<int64_t>();
    }

    Result<int32_t> string_of(const Json& schema, const std::string& where) {
        STRATA_TRY_ASSIGN(int64_t low, count(schema, "minLength", 0, where));
        STRATA_TRY_ASSIGN(int64_t high, count(schema, "maxLength", -1, where));
        if (high >= 0 && high < low) return nothing();
        const Json* pattern = member(schema, "pattern");
        const Json* format = member(schema, "format");
        std::string_view known =
            format && format->is_string() ? format_pattern(format->get_ref<const std::string&>()) : "";
        if (!pattern && known.empty()) {
            if (low == 0 && high < 0) return json_.string();
            if (std::max(low, high) > JsonRules::max_counted) {
                return error(where, "'maxLength' and 'minLength' are supported up to 11,000");
            }
            return json_.counted_string(low, high);
        }
        if (pattern && !pattern->is_string()) return error(where, "'pattern' must be a string");
        if (low > 0 || high >= 0) {
            return error(where, std::string(high >= 0 ? "'maxLength'" : "'minLength'") + " beside " +
                                    (pattern ? "'pattern'" : "'format'") + " is not supported");
        }
        int32_t rule = builder_.rule("string");
        State start = builder_.state();
        auto end = add_pattern(builder_, builder_.literal(start, "\""),
                               pattern ? std::string_view(pattern->get_ref<const std::string&>()) : known);
        if (!end.ok()) return error(where, end.error().message);
        builder_.set_rule(rule, start, builder_.literal(*end, "\""));
        return rule;
    }

    static std::string_view format_pattern(std::string_view format) {
#define STRATA_DATE "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
#define STRATA_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        if (format == "date") return "^(" STRATA_DATE ")$";
        if (format == "time") return "^(" STRATA_TIME ")$";
        if (format == "date-time") return "^(" STRATA_DATE "T" STRATA_TIME ")$";
        if (format == "uuid") return "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
#undef STRATA_DATE
#undef STRATA_TIME
        return {};
    }

    Result<int32_t> integer_of(const Json& schema, const std::string& where) {
        constexpr int64_t kMost = 999'999'999'999'999'999;
        int64_t low = -kMost, high = kMost;
        bool bounded = false;
        for (std::string_view word : kBounds) {
            const Json* value = member(schema, word);
            if (!value || value->is_boolean()) continue;  // draft 4's exclusive bounds were booleans
            if (!value->is_number()) return error(where, "'" + std::string(word) + "' must be a number");
            bounded = true;
            double bound = value->get<double>();
            bool exclusive = word.starts_with("exclusive"), lower = word.find("inimum") != word.npos;
            double whole = lower ? std::ceil(bound) : std::floor(bound);
            if (exclusive && whole == bound) whole += lower ? 1 : -1;
            whole = std::clamp(whole, -static_cast<double>(kMost), static_cast<double>(kMost));
            // Beyond 2^53 doubles lose digits: take integers as they are.
            int64_t limit = value->is_number_integer() && !exclusive
                                ? std::clamp(value->get<int64_t>(), -kMost, kMost)
                                : std::clamp(static_cast<int64_t>(whole), -kMost, kMost);
            if (lower) {
                low = std::max(low, limit);
            } else {
                high = std::min(high, limit);
            }
        }
        if (!bounded) return json_.integer();
        if (low > high) return nothing();
        return json_.integers_between(low, high);
    }

    Result<int32_t> object_of(const Json& schema, const std::string& where, int depth) {
        const Json* properties = member(schema, "properties");
        const Json* required_list = member(schema, "required");
        const Json* more = member(schema, "additionalProperties");
        if (properties && !properties->is_object()) return error(where, "'properties' must be an object");
        if (required_list && !required_list->is_array()) return error(where, "'required' must be a list");
        if (more && !more->is_boolean() && !more->is_object())
            return error(where, "'additionalProperties' must be a schema");
        std::set<std::string> required;
        if (required_list) {
            for (const Json& name : *required_list) {
                if (!name.is_string()) return error(where, "'required' must list strings");
                required.insert(name.get<std::string>());
            }
        }
        bool open = more ? *more != false : !(properties && options_.strict);
        struct Property {
            std::string name;
            int32_t value;
            bool required;
        };
        std::vector<Property> all;
        std::vector<std::string> names;
        if (properties) {
            for (const auto& [name, value] : properties->items()) {
                STRATA_TRY_ASSIGN(int32_t rule, rule_of(value, where + ".properties." + name, depth + 1));
                all.push_back({name, rule, required.erase(name) > 0});
                names.push_back(name);
            }
        }
        int32_t more_rule = -1;
        if (open) {
            if (more && more->is_object()) {
                STRATA_TRY_ASSIGN(more_rule, rule_of(*more, where + ".additionalProperties", depth + 1));
            } else {
                more_rule = json_.any_value();
            }
        }
        for (const std::string& name : required) {  // required, but not among the properties
            if (more_rule < 0) return nothing();
            all.push_back({name, more_rule, true});
            names.push_back(name);
        }
        if (all.empty() && open && (!more || *more == true)) return json_.any_object();

        // The properties in their order; optional ones may be left out. A state before each for "none so far", one for
        // "after another", which wants a comma.
        int32_t rule = builder_.rule("object");
        State start = builder_.state(), end = builder_.state();
        State none_yet = json_.space(builder_.literal(start, "{")), some = builder_.state();
        for (const Property& property : all) {
            State next_none = builder_.state(), next_some = builder_.state();
            State key = builder_.state();
            builder_.link(none_yet, key);
            builder_.link(json_.space(builder_.literal(some, ",")), key);
            State value = json_.space(builder_.literal(key, json_text(Json(property.name)) + ":"));
            builder_.call(value, property.value, next_some);
            if (!property.required) {
                builder_.link(none_yet, next_none);
                builder_.link(some, next_some);
            }
            none_yet = next_none;
            some = next_some;
        }
        if (more_rule >= 0) {
            State key = builder_.state(), after = builder_.state();
            builder_.link(none_yet, key);
            builder_.link(some, after);
            builder_.link(json_.space(builder_.literal(after, ",")), key);
            State value = json_.space(builder_.literal(json_.other_key(key, names), ":"));
            builder_.call(value, more_rule, after);
            some = after;
        }
        builder_.link(builder_.literal(none_yet, "}"), end);
        builder_.link(builder_.literal(json_.space(some), "}"), end);
        builder_.set_rule(rule, start, end);
        return rule;
    }

    Result<int32_t> array_of(const Json& schema, const std::string& where, int depth) {
        STRATA_TRY_ASSIGN(int64_t low, count(schema, "minItems", 0, where));
        STRATA_TRY_ASSIGN(int64_t high, count(schema, "maxItems", -1, where));
        if (high >= 0 && high < low) return nothing();
        std::vector<int32_t> first;
        const Json* prefix = member(schema, "prefixItems");
        const Json* items = member(schema, "items");
        std::string items_where = where + ".items";
        if (items && items->is_array()) {  // the older way to write prefixItems
            if (prefix) return error(where, "'items' must be a schema");
            prefix = items;
            items = nullptr;
        }
        if (prefix) {
            if (!prefix->is_array()) return error(where, "'prefixItems' must be a list");
            for (size_t i = 0; i < prefix->size(); ++i) {
                STRATA_TRY_ASSIGN(int32_t rule,
                                  rule_of((*prefix)[i], where + ".prefixItems[" + std::to_string(i) + "]", depth + 1));
                first.push_back(rule);
            }
        }
        int32_t rest = -1;
        if (!items) {
            rest = json_.any_value();
        } else if (*items != false) {
            STRATA_TRY_ASSIGN(rest, rule_of(*items, items_where, depth + 1));
        }
        auto known = static_cast<int64_t>(first.size());
        if (rest < 0) high = high < 0 ? known : std::min(high, known);
        if (high >= 0 && high < low) return nothing();
        // Items one by one as long as their number or kind matters, then a loop.
        int64_t chain = high >= 0 ? high : std::max(low, known);
        int32_t rule = builder_.rule("array");
        State start = builder_.state(), end = builder_.state(), close = builder_.state();
        builder_.link(builder_.literal(close, "]"), end);
        State at = json_.space(builder_.literal(start, "["));
        State closing = builder_.state();
        builder_.link(json_.space(closing), close);
        for (int64_t i = 0; i < chain; ++i) {
            if (builder_.too_large()) break;
            if (i >= low) builder_.link(at, i == 0 ? close : closing);
            State item = i == 0 ? at : json_.space(builder_.literal(at, ","));
            at = builder_.call(item, i < known ? first[static_cast<size_t>(i)] : rest);
        }
        if (high < 0) {
            State item = builder_.state(), after = builder_.state();
            if (chain == 0) {
                builder_.link(at, close);
                builder_.link(at, item);
            } else {
                builder_.link(at, after);
            }
            builder_.call(item, rest, after);
            builder_.link(json_.space(builder_.literal(after, ",")), item);
            builder_.link(after, closing);
        } else {
            builder_.link(at, chain == 0 ? close : closing);
        }
        builder_.set_rule(rule, start, end);
        return rule;
    }

    GrammarBuilder& builder_;
    JsonRules json_;
    const Json& root_;
    SchemaOptions options_;
    std::map<std::string, int32_t> references_;
    int64_t copies_left_ = 1'000'000;
};

/// A whole reply: the value, with line ends in front as some models write them behind their reasoning.
Result<Grammar> whole(GrammarBuilder& builder, int32_t value) {
    int32_t root = builder.rule("reply");
    State start = builder.state();
    builder.set_rule(root, start, builder.call(add_leading_space(builder, start), value));
    auto grammar = builder.build(root);
    if (!grammar.ok()) return Error{ErrorKind::failed, "$: " + grammar.error().message, "unsupported_schema"};
    return grammar;
}

}  // namespace

Result<int32_t> add_schema(GrammarBuilder& builder, const Json& schema, const Json& root,
                           const SchemaOptions& options) {
    return SchemaCompiler(builder, root, options).run(schema);
}

int32_t add_json_object(GrammarBuilder& builder) {
    Json none = Json::object();
    return SchemaCompiler(builder, none, {}).any_object();
}

State add_leading_space(GrammarBuilder& builder, State from) {
    State once = builder.state(), end = builder.state();
    builder.link(from, end);
    for (char c : {' ', '\n'}) builder.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), once);
    builder.byte(once, '\n', '\n', end);
    builder.link(once, end);
    return end;
}

Result<Grammar> grammar_of_schema(const Json& schema, const SchemaOptions& options) {
    GrammarBuilder builder;
    STRATA_TRY_ASSIGN(int32_t value, add_schema(builder, schema, schema, options));
    return whole(builder, value);
}

Result<Grammar> grammar_of_json_object() {
    GrammarBuilder builder;
    int32_t value = add_json_object(builder);
    return whole(builder, value);
}

}  // namespace strata
