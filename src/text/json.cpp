#include "text/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "text/utf8.h"

namespace strata {
namespace {

constexpr unsigned kBigInteger = 0x49;  // subtype of the binary values that are integers

/// Builds a Json from nlohmann's events: what its own parser does, but linear in the number of keys, with a depth limit
/// and with integers of any length.
class Builder final : public nlohmann::json_sax<Json> {
  public:
    Builder(Json& root, int max_depth) : root_(root), max_depth_(max_depth) {}

    std::string error;

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t& text) override {
        if (text.find_first_of(".eE") == std::string::npos) return add(big_integer(text));
        return add(value);
    }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; }  // JSON text has none

    bool start_object(size_t) override { return open(Json::object()); }
    bool start_array(size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        Level& level = open_.back();
        Json::object_t::Container& members = level.value->get_ref<Json::object_t&>();
        if (members.size() < kLinear) {
            for (auto& member : members) {
                if (member.first == name) return take(member.second);
            }
        } else {
            if (level.places.empty()) {
                for (size_t i = 0; i < members.size(); ++i) level.places.emplace(members[i].first, i);
            }
            auto [place, fresh] = level.places.emplace(name, members.size());
            if (!fresh) return take(members[place->second].second);
        }
        members.emplace_back(std::move(name), nullptr);
        return take(members.back().second);
    }

    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& reason) override {
        // Their sentence begins with an id in brackets and a place; ours says the place in bytes.
        std::string what = reason.what();
        if (size_t colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
        error = "not valid JSON at byte " + std::to_string(position) + ": " + what;
        return false;
    }

  private:
    static constexpr size_t kLinear = 16;
    struct Level {
        Json* value;
        std::unordered_map<std::string, size_t> places;  // of keys, once there are many
    };

    bool take(Json& slot) {
        slot_ = &slot;
        return true;
    }
    Json& place(Json value) {
        Json* target = &root_;
        if (!open_.empty()) {
            Json& parent = *open_.back().value;
            if (parent.is_array()) {
                auto& items = parent.get_ref<Json::array_t&>();
                items.emplace_back();
                target = &items.back();
            } else {
                target = slot_;
            }
        }
        *target = std::move(value);
        return *target;
    }
    bool add(Json value) {
        place(std::move(value));
        return true;
    }
    bool open(Json value) {
        if (static_cast<int>(open_.size()) >= max_depth_) {
            error = "JSON is nested deeper than " + std::to_string(max_depth_) + " levels";
            return false;
        }
        open_.push_back({&place(std::move(value)), {}});
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    Json& root_;
    int max_depth_;
    std::vector<Level> open_;
    Json* slot_ = nullptr;  // the value of the key that was read last
};

void write(JsonWriter& writer, const Json& value) {
    switch (value.type()) {
        case Json::value_t::null:
        case Json::value_t::discarded: writer.raw("null"); break;
        case Json::value_t::boolean: writer.raw(value.get<bool>() ? "true" : "false"); break;
        case Json::value_t::number_integer: writer.raw(std::to_string(value.get<int64_t>())); break;
        case Json::value_t::number_unsigned: writer.raw(std::to_string(value.get<uint64_t>())); break;
        case Json::value_t::number_float: {
            double number = value.get<double>();
            writer.raw(std::isfinite(number) ? float_text(number) : "null");
            break;
        }
        case Json::value_t::string: writer.string(value.get_ref<const std::string&>()); break;
        case Json::value_t::binary: writer.raw(is_big_integer(value) ? big_integer_digits(value) : "null"); break;
        case Json::value_t::array:
            writer.begin('[');
            for (const Json& item : value) {
                writer.item();
                write(writer, item);
            }
            writer.end(']');
            break;
        case Json::value_t::object: {
            writer.begin('{');
            const auto& members = value.get_ref<const Json::object_t&>();
            if (writer.style().sort_keys) {
                std::vector<const Json::object_t::value_type*> sorted;
                for (const auto& member : members) sorted.push_back(&member);
                std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->first < b->first; });
                for (const auto* member : sorted) {
                    writer.key(member->first);
                    write(writer, member->second);
                }
            } else {
                for (const auto& [name, member] : members) {
                    writer.key(name);
                    write(writer, member);
                }
            }
            writer.end('}');
            break;
        }
    }
}

void append_u_escape(std::string& out, unsigned unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(unit >> shift) & 15];
}

}  // namespace

Result<Json> parse_json(std::string_view text, int max_depth) {
    Json root;
    Builder builder(root, max_depth);
    if (!Json::sax_parse(text.begin(), text.end(), &builder)) return failure(std::move(builder.error));
    return root;
}

Json big_integer(std::string_view digits) {
    return Json::binary(std::vector<uint8_t>(digits.begin(), digits.end()), kBigInteger);
}

bool is_big_integer(const Json& value) {
    return value.is_binary() && value.get_binary().has_subtype() && value.get_binary().subtype() == kBigInteger;
}

std::string_view big_integer_digits(const Json& value) {
    const auto& bytes = value.get_binary();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string json_text(const Json& value, const JsonStyle& style) {
    std::string out;
    JsonWriter writer(out, style);
    write(writer, value);
    return out;
}

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[64];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
    std::string_view scientific(buffer, static_cast<size_t>(end - buffer));  // -d.ddde+XX, shortest digits
    std::string out;
    if (scientific.front() == '-') {
        out = "-";
        scientific.remove_prefix(1);
    }
    size_t e = scientific.find('e');
    int exponent = 0;
    std::string_view exponent_text = scientific.substr(e + 1);
    if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
    std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
    std::string digits;
    for (char c : scientific.substr(0, e)) {
        if (c != '.') digits += c;
    }
    if (exponent < -4 || exponent >= 16) {
        out += digits[0];
        if (digits.size() > 1) out.append(".").append(digits, 1);
        out += exponent < 0 ? "e-" : "e+";
        int size = std::abs(exponent);
        if (size < 10) out += '0';
        return out + std::to_string(size);
    }
    if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
    return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_json_escaped(std::string& out, std::string_view text, bool ascii) {
    size_t plain = 0;  // start of the run that needs no escape
    for (size_t i = 0; i < text.size();) {
        unsigned char c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !ascii)) {
            ++i;
            continue;
        }
        out += text.substr(plain, i - plain);
        size_t used = 1;
        switch (c) {
            case '"': out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            case '\b': out += "\\b"; break;
            case '\f': out += "\\f"; break;
            default:
                if (c < 0x20) {
                    append_u_escape(out, c);
                    break;
                }
                CodePoint point = decode_utf8(text, i);
                used = point.size;
                if (point.value >= 0x10000) {
                    append_u_escape(out, 0xD800 + ((point.value - 0x10000) >> 10));
                    append_u_escape(out, 0xDC00 + ((point.value - 0x10000) & 0x3FF));
                } else {
                    append_u_escape(out, point.value);
                }
        }
        i += used;
        plain = i;
    }
    out += text.substr(plain);
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
    out += '"';
    append_json_escaped(out, text, ascii);
    out += '"';
}

}  // namespace strata
