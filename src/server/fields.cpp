#include "server/fields.h"

#include <cmath>

namespace strata::server {
namespace {

std::string range_text(double low, double high) {
    return "between " + float_text(low) + " and " + float_text(high);
}

}  // namespace

const Json* Fields::find(const char* name) const {
    const auto place = object_.find(name);
    return place == object_.end() || place->is_null() ? nullptr : &*place;
}

Api<std::optional<bool>> Fields::boolean(const char* name) const {
    const Json* value = find(name);
    if (!value) return std::optional<bool>();
    if (!value->is_boolean()) return invalid_type(path(name), "true or false");
    return std::optional(value->get<bool>());
}

Api<std::optional<int64_t>> Fields::integer(const char* name, int64_t low, int64_t high) const {
    const Json* value = find(name);
    if (!value) return std::optional<int64_t>();
    if (is_big_integer(*value)) return invalid_value(path(name), path(name) + " is too large");
    if (value->is_number_float() && value->get<double>() == std::floor(value->get<double>()) &&
        std::abs(value->get<double>()) < 9e15) {
        const auto whole = static_cast<int64_t>(value->get<double>());
        if (whole >= low && whole <= high) return std::optional(whole);
    }
    if (!value->is_number_integer()) return invalid_type(path(name), "an integer");
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return invalid_value(path(name), path(name) + " is too large");
    const auto number = value->get<int64_t>();
    if (number < low || number > high)
        return invalid_value(path(name), path(name) + " must be between " + std::to_string(low) + " and " +
                                             std::to_string(high) + ", not " + std::to_string(number));
    return std::optional(number);
}

Api<std::optional<double>> Fields::number(const char* name, double low, double high) const {
    const Json* value = find(name);
    if (!value) return std::optional<double>();
    if (!value->is_number()) return invalid_type(path(name), "a number");
    const auto number = value->get<double>();
    if (!(number >= low && number <= high))
        return invalid_value(path(name),
                             path(name) + " must be " + range_text(low, high) + ", not " + float_text(number));
    return std::optional(number);
}

Api<std::optional<std::string>> Fields::text(const char* name) const {
    const Json* value = find(name);
    if (!value) return std::optional<std::string>();
    if (!value->is_string()) return invalid_type(path(name), "a string");
    return std::optional(value->get<std::string>());
}

Api<const Json*> Fields::object(const char* name) const {
    const Json* value = find(name);
    if (value && !value->is_object()) return invalid_type(path(name), "an object");
    return value;
}

Api<const Json*> Fields::array(const char* name) const {
    const Json* value = find(name);
    if (value && !value->is_array()) return invalid_type(path(name), "a list");
    return value;
}

}  // namespace strata::server
