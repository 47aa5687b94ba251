#include "text/chat_values.h"

#include <algorithm>

#include "text/json_lenient.h"

namespace strata {
namespace {

/// JSON's types, as bits.
enum TypeBit : unsigned {
    type_null = 1,
    type_boolean = 2,
    type_integer = 4,
    type_number = 8,
    type_string = 16,
    type_array = 32,
    type_object = 64,
    type_any = 127,
};

unsigned type_named(std::string_view name) {
    if (name == "null") return type_null;
    if (name == "boolean") return type_boolean;
    if (name == "integer") return type_integer;
    if (name == "number") return type_number | type_integer;
    if (name == "string") return type_string;
    if (name == "array") return type_array;
    if (name == "object") return type_object;
    return 0;
}

unsigned type_of(const Json& value) {
    if (value.is_null()) return type_null;
    if (value.is_boolean()) return type_boolean;
    if (value.is_number_float()) return type_number;
    if (value.is_number() || is_big_integer(value)) return type_integer;
    if (value.is_string()) return type_string;
    if (value.is_array()) return type_array;
    return type_object;
}

const Json* member(const Json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    auto place = object.find(key);
    return place == object.end() ? nullptr : &*place;
}

/// The types a schema allows; all of them where it says nothing. Depth-limited: schemas may refer to themselves.
unsigned allowed(const Json& schema, const Json& root, int depth) {
    if (!schema.is_object() || depth > 16) return type_any;
    unsigned types = type_any;
    if (const Json* reference = member(schema, "$ref"); reference && reference->is_string()) {
        const std::string& path = reference->get_ref<const std::string&>();
        if (path.starts_with("#")) {
            // find() of a pointer that leads nowhere throws; contains() does not.
            Json::json_pointer pointer;
            try {
                pointer = Json::json_pointer(path.substr(1));
            } catch (const Json::exception&) {
                return type_any;
            }
            if (root.contains(pointer)) types &= allowed(root[pointer], root, depth + 1);
        }
    }
    if (const Json* type = member(schema, "type")) {
        unsigned named = 0;
        if (type->is_string()) named = type_named(type->get_ref<const std::string&>());
        if (type->is_array()) {
            for (const Json& one : *type) {
                if (one.is_string()) named |= type_named(one.get_ref<const std::string&>());
            }
        }
        if (named) types &= named;
    }
    for (const char* choice : {"anyOf", "oneOf"}) {
        const Json* options = member(schema, choice);
        if (!options || !options->is_array() || options->empty()) continue;
        unsigned any = 0;
        for (const Json& option : *options) any |= allowed(option, root, depth + 1);
        types &= any;
    }
    if (const Json* all = member(schema, "allOf"); all && all->is_array()) {
        for (const Json& part : *all) types &= allowed(part, root, depth + 1);
    }
    if (const Json* values = member(schema, "enum"); values && values->is_array() && !values->empty()) {
        unsigned any = 0;
        for (const Json& value : *values) any |= type_of(value);
        if (any & type_integer) any |= type_number;
        types &= any;
    }
    if (const Json* value = member(schema, "const")) types &= type_of(*value);
    if (const Json* nullable = member(schema, "nullable"); nullable && *nullable == true && types != type_any) {
        types |= type_null;
    }
    return types;
}

/// The types of a parameter; type_any where nothing is known.
unsigned types_of(const Tool* tool, std::string_view parameter) {
    const Json* schema = tool ? tool->parameter(parameter) : nullptr;
    if (!schema) return type_any;
    unsigned types = allowed(*schema, tool->parameters, 0);
    return types == 0 ? static_cast<unsigned>(type_any) : types;
}

}  // namespace

const Json* Tool::parameter(std::string_view key) const {
    const Json* properties = member(parameters, "properties");
    return properties ? member(*properties, std::string(key).c_str()) : nullptr;
}

std::vector<std::string> Tool::parameter_names() const {
    std::vector<std::string> names;
    const Json* properties = member(parameters, "properties");
    if (!properties || !properties->is_object()) return names;
    for (const auto& [name, schema] : properties->items()) names.push_back(name);
    return names;
}

ToolSet::ToolSet(const Json& tools) {
    if (!tools.is_array()) return;
    for (const Json& tool : tools) {
        const Json* function = member(tool, "function");
        const Json* name = function ? member(*function, "name") : nullptr;
        if (!name || !name->is_string()) continue;
        const Json* parameters = member(*function, "parameters");
        tools_.push_back({name->get<std::string>(), parameters ? *parameters : Json::object()});
    }
}

const Tool* ToolSet::find(std::string_view name) const {
    auto place = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& tool) { return tool.name == name; });
    return place == tools_.end() ? nullptr : &*place;
}

Json typed_value(std::string_view text, const Tool* tool, std::string_view parameter) {
    unsigned types = types_of(tool, parameter);
    if (types == type_string) return std::string(text);
    if (types == type_any) {
        auto strict = parse_json(text);
        return strict.ok() && !strict->is_string() ? std::move(*strict) : Json(std::string(text));
    }
    auto value = read_lenient_json(text);
    if (!value) return std::string(text);
    if (!(types & type_string)) return std::move(*value);
    if (value->is_string() || !(type_of(*value) & types)) return std::string(text);
    return std::move(*value);
}

bool is_text_only(const Tool* tool, std::string_view parameter) {
    return types_of(tool, parameter) == type_string;
}

bool is_tool_name(std::string_view name) {
    return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' ||
               std::string_view("<>\"'`{}[](),=|").find(c) != std::string_view::npos;
    });
}

}  // namespace strata
