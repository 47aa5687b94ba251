#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

constexpr int kMaxDepth = 200;  // of containers in containers, wherever they are walked

void check_depth(int depth) {
    if (depth > kMaxDepth) over_limit("a value is nested deeper than " + std::to_string(kMaxDepth) + " levels");
}

std::optional<int64_t> whole(double number) {
    if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0)) return std::nullopt;
    auto integer = static_cast<int64_t>(number);
    if (static_cast<double>(integer) != number) return std::nullopt;
    return integer;
}

/// Keys are single values: hashing and comparing them takes no walk.
size_t hash(const Value& key) {
    switch (key.kind) {
        case Kind::none: return 1;
        case Kind::boolean:
        case Kind::integer: return std::hash<int64_t>()(key.as_integer());
        case Kind::real:
            if (auto same = whole(key.real)) return std::hash<int64_t>()(*same);
            return std::hash<double>()(key.real);
        case Kind::undefined: return 2;
        case Kind::big_integer:
        case Kind::string: return std::hash<std::string_view>()(key.str());
        default: fail(std::string(kind_name(key)) + " cannot be a key of a dict here");
    }
}

bool same_key(const Value& a, const Value& b) {
    int64_t steps = std::numeric_limits<int64_t>::max();
    return equal(a, b, steps);
}

void spend(int64_t& steps, int64_t count) {
    if ((steps -= count) < 0) over_limit("comparing values takes too many steps");
}

bool equal_at(const Value& a, const Value& b, int64_t& steps, int depth) {
    check_depth(depth);
    spend(steps, 1);
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) {
            if (a.is(b.kind)) return a.str() == b.str();
            return (a.is(Kind::real) || b.is(Kind::real)) && a.as_real() == b.as_real();
        }
        if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
        return a.as_real() == b.as_real();
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case Kind::undefined:
        case Kind::none: return true;
        case Kind::string:
            if (a.size != b.size) return false;
            spend(steps, a.size / 64);
            return a.str() == b.str();
        case Kind::list:
        case Kind::tuple: {
            if (a.size != b.size) return false;
            for (uint32_t i = 0; i < a.size; ++i) {
                if (!equal_at(a.items[i], b.items[i], steps, depth + 1)) return false;
            }
            return true;
        }
        case Kind::dict: {
            if (a.dict->size != b.dict->size) return false;
            for (const Entry& entry : a.dict->all()) {
                const Value* other = b.dict->find(entry.key);
                if (!other || !equal_at(entry.value, *other, steps, depth + 1)) return false;
            }
            return true;
        }
        default: return a.space == b.space;  // the same object
    }
}

int compare_at(const Value& a, const Value& b, int64_t& steps, int depth) {
    check_depth(depth);
    spend(steps, 1);
    if (a.is_number() && b.is_number()) {
        if (a.is_integral() && b.is_integral()) {
            int64_t x = a.as_integer(), y = b.as_integer();
            return x < y ? -1 : x > y;
        }
        if (a.is(Kind::big_integer) && b.is(Kind::big_integer)) {
            bool minus = a.str()[0] == '-';
            if (minus != (b.str()[0] == '-')) return minus ? -1 : 1;
            int order = a.size != b.size ? (a.size < b.size ? -1 : 1) : a.str().compare(b.str());
            return minus ? -order : order;
        }
        double x = a.as_real(), y = b.as_real();
        return x < y ? -1 : x > y;
    }
    if (a.is_string() && b.is_string()) {
        spend(steps, std::min(a.size, b.size) / 64);
        int order = a.str().compare(b.str());  // of bytes: the order of code points
        return order < 0 ? -1 : order > 0;
    }
    if (a.is_sequence() && a.kind == b.kind) {
        uint32_t common = std::min(a.size, b.size);
        for (uint32_t i = 0; i < common; ++i) {
            if (equal_at(a.items[i], b.items[i], steps, depth + 1)) continue;
            return compare_at(a.items[i], b.items[i], steps, depth + 1);
        }
        return a.size < b.size ? -1 : a.size > b.size;
    }
    fail(std::string("cannot order ") + kind_name(a) + " and " + kind_name(b));
}

void check_size(const std::string& out, size_t limit) {
    if (out.size() > limit) over_limit("a text grows beyond " + std::to_string(limit) + " bytes");
}

void print_at(std::string& out, const Value& value, bool quoted, size_t limit, int depth) {
    check_depth(depth);
    switch (value.kind) {
        case Kind::undefined:
            if (quoted) out += "Undefined";
            break;
        case Kind::none: out += "None"; break;
        case Kind::boolean: out += value.truth ? "True" : "False"; break;
        case Kind::integer: out += std::to_string(value.integer); break;
        case Kind::real: out += float_text(value.real); break;
        case Kind::big_integer: out += value.str(); break;
        case Kind::string:
            if (quoted) {
                append_python_string(out, value.str());
            } else {
                out += value.str();
            }
            break;
        case Kind::list:
        case Kind::tuple: {
            bool tuple = value.is(Kind::tuple);
            out += tuple ? '(' : '[';
            for (uint32_t i = 0; i < value.size; ++i) {
                if (i) out += ", ";
                print_at(out, value.items[i], true, limit, depth + 1);
            }
            if (tuple && value.size == 1) out += ',';
            out += tuple ? ')' : ']';
            break;
        }
        case Kind::dict: {
            out += '{';
            bool first = true;
            for (const Entry& entry : value.dict->all()) {
                if (!first) out += ", ";
                first = false;
                print_at(out, entry.key, true, limit, depth + 1);
                out += ": ";
                print_at(out, entry.value, true, limit, depth + 1);
            }
            out += '}';
            break;
        }
        case Kind::space: out += "<Namespace>"; break;
        case Kind::loop: out += "<LoopContext>"; break;
        case Kind::function: out += "<function>"; break;
        case Kind::macro: out += "<Macro>"; break;
        case Kind::turns: out += "<object>"; break;
    }
    check_size(out, limit);
}

std::string key_text(const Value& key) {
    std::string text;
    switch (key.kind) {
        case Kind::string: return std::string(key.str());
        case Kind::none: return "null";
        case Kind::boolean: return key.truth ? "true" : "false";
        case Kind::integer:
        case Kind::big_integer:
        case Kind::real: print(text, key, std::numeric_limits<size_t>::max()); return text;
        default: fail(std::string("tojson: ") + kind_name(key) + " cannot be a JSON key");
    }
}

void print_json_at(std::string& out, JsonWriter& writer, const Value& value, size_t limit, int depth) {
    check_depth(depth);
    switch (value.kind) {
        case Kind::none: writer.raw("null"); break;
        case Kind::boolean: writer.raw(value.truth ? "true" : "false"); break;
        case Kind::integer: writer.raw(std::to_string(value.integer)); break;
        case Kind::big_integer: writer.raw(value.str()); break;
        case Kind::real:
            writer.raw(std::isnan(value.real)   ? "NaN"
                       : std::isinf(value.real) ? (value.real < 0 ? "-Infinity" : "Infinity")
                                                : float_text(value.real));
            break;
        case Kind::string: writer.string(value.str()); break;
        case Kind::list:
        case Kind::tuple:
            writer.begin('[');
            for (const Value& item : value.list()) {
                writer.item();
                print_json_at(out, writer, item, limit, depth + 1);
            }
            writer.end(']');
            break;
        case Kind::dict: {
            std::vector<Entry> entries(value.dict->all().begin(), value.dict->all().end());
            if (writer.style().sort_keys) {
                int64_t steps = 10'000'000;
                std::stable_sort(entries.begin(), entries.end(),
                                 [&](const Entry& a, const Entry& b) { return compare(a.key, b.key, steps) < 0; });
            }
            writer.begin('{');
            for (const Entry& entry : entries) {
                writer.key(key_text(entry.key));
                print_json_at(out, writer, entry.value, limit, depth + 1);
            }
            writer.end('}');
            break;
        }
        default: fail(std::string("tojson: ") + kind_name(value) + " has no JSON form");
    }
    check_size(out, limit);
}

Value from_json_at(Arena& arena, const Json& json, int depth) {
    check_depth(depth);
    switch (json.type()) {
        case Json::value_t::boolean: return boolean(json.get<bool>());
        case Json::value_t::number_integer: return integer(json.get<int64_t>());
        case Json::value_t::number_unsigned: {
            auto number = json.get<uint64_t>();
            if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
                return integer(static_cast<int64_t>(number));
            }
            Value big = string(arena.copy(std::to_string(number)));
            big.kind = Kind::big_integer;
            return big;
        }
        case Json::value_t::number_float: return real(json.get<double>());
        case Json::value_t::string: return string(json.get_ref<const std::string&>());
        case Json::value_t::binary: {
            if (!is_big_integer(json)) return none();
            Value big = string(big_integer_digits(json));
            big.kind = Kind::big_integer;
            return big;
        }
        case Json::value_t::array: {
            Value* items = arena.array<Value>(json.size());
            size_t count = 0;
            for (const Json& item : json) items[count++] = from_json_at(arena, item, depth + 1);
            return list({items, count});
        }
        case Json::value_t::object: {
            std::vector<Entry> entries;
            entries.reserve(json.size());
            for (const auto& [name, member] : json.get_ref<const Json::object_t&>()) {
                entries.push_back({string(name), from_json_at(arena, member, depth + 1)});
            }
            return make_dict(arena, std::move(entries));
        }
        default: return none();
    }
}

}  // namespace

void fail(std::string message) {
    throw Stop{"template_failed", std::move(message)};
}
void over_limit(std::string message) {
    throw Stop{"template_limit", std::move(message)};
}

std::string quoted(std::string_view name) {
    std::string text;
    text.append("'").append(name).append("'");
    return text;
}

void* Arena::allocate(size_t bytes) {
    constexpr size_t kBlock = 64 << 10;
    if (bytes > limit_) over_limit("the template uses too much memory");
    bytes = (bytes + 15) & ~size_t{15};
    if (bytes > left_) {
        size_t block = std::max(bytes, kBlock);
        if (used_ + block > limit_ + kBlock) over_limit("the template uses too much memory");
        blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block));
        used_ += block;
        if (bytes > kBlock / 4 && left_ > 0) return blocks_.back().get();  // large: keep filling the block before
        next_ = blocks_.back().get();
        left_ = block;
    }
    void* place = next_;
    next_ += bytes;
    left_ -= bytes;
    return place;
}

std::string_view Arena::copy(std::string_view text) {
    char* place = static_cast<char*>(allocate(text.size()));
    if (!text.empty()) std::memcpy(place, text.data(), text.size());
    return {place, text.size()};
}

double Value::as_real() const {
    switch (kind) {
        case Kind::real: return real;
        case Kind::big_integer: return std::strtod(std::string(str()).c_str(), nullptr);
        default: return static_cast<double>(as_integer());
    }
}

Value undefined(std::string_view what) {
    Value value = string(what);
    value.kind = Kind::undefined;
    return value;
}

Value none() {
    Value value;
    value.kind = Kind::none;
    return value;
}

Value boolean(bool truth) {
    Value value;
    value.kind = Kind::boolean;
    value.truth = truth;
    return value;
}

Value integer(int64_t number) {
    Value value;
    value.kind = Kind::integer;
    value.integer = number;
    return value;
}

Value real(double number) {
    Value value;
    value.kind = Kind::real;
    value.real = number;
    return value;
}

Value string(std::string_view text) {
    if (text.size() > std::numeric_limits<uint32_t>::max()) over_limit("a text is longer than 4 GiB");
    Value value;
    value.kind = Kind::string;
    value.size = static_cast<uint32_t>(text.size());
    value.text = text.data();
    return value;
}

Value list(std::span<const Value> items, Kind kind) {
    if (items.size() > std::numeric_limits<uint32_t>::max()) over_limit("a list has too many items");
    Value value;
    value.kind = kind;
    value.size = static_cast<uint32_t>(items.size());
    value.items = items.data();
    return value;
}

const Value* Dict::find(const Value& key) const {
    if (!places) {
        for (const Entry& entry : all()) {
            if (same_key(entry.key, key)) return &entry.value;
        }
        return nullptr;
    }
    for (size_t place = hash(key) & mask;; place = (place + 1) & mask) {
        uint32_t number = places[place];
        if (number == 0) return nullptr;
        if (same_key(entries[number - 1].key, key)) return &entries[number - 1].value;
    }
}

Value make_dict(Arena& arena, std::vector<Entry> entries) {
    constexpr size_t kSmall = 8;
    if (entries.size() > (size_t{1} << 28)) over_limit("a dict has too many entries");
    Entry* kept = arena.array<Entry>(entries.size());
    uint32_t count = 0;
    uint32_t* places = nullptr;
    size_t mask = 0;
    if (entries.size() > kSmall) {
        size_t slots = 16;
        while (slots < entries.size() * 2) slots *= 2;
        places = arena.array<uint32_t>(slots);
        mask = slots - 1;
    }
    for (const Entry& entry : entries) {
        size_t place = hash(entry.key);  // also where no table is made: it refuses what cannot be a key
        Entry* same = nullptr;
        if (places) {
            for (place &= mask; places[place] != 0; place = (place + 1) & mask) {
                if (same_key(kept[places[place] - 1].key, entry.key)) {
                    same = &kept[places[place] - 1];
                    break;
                }
            }
        } else {
            for (uint32_t i = 0; i < count && !same; ++i) {
                if (same_key(kept[i].key, entry.key)) same = &kept[i];
            }
        }
        if (same) {
            same->value = entry.value;
            continue;
        }
        kept[count++] = entry;
        if (places) places[place] = count;
    }
    Value value;
    value.kind = Kind::dict;
    value.dict = arena.make(Dict{kept, count, places, static_cast<uint32_t>(mask)});
    return value;
}

Value from_json(Arena& arena, const Json& json) {
    return from_json_at(arena, json, 0);
}

bool truth(const Value& value) {
    switch (value.kind) {
        case Kind::undefined:
        case Kind::none: return false;
        case Kind::boolean: return value.truth;
        case Kind::integer: return value.integer != 0;
        case Kind::real: return value.real != 0;
        case Kind::string:
        case Kind::list:
        case Kind::tuple: return value.size != 0;
        case Kind::dict: return value.dict->size != 0;
        default: return true;
    }
}

bool equal(const Value& a, const Value& b, int64_t& steps) {
    return equal_at(a, b, steps, 0);
}
int compare(const Value& a, const Value& b, int64_t& steps) {
    return compare_at(a, b, steps, 0);
}

void print(std::string& out, const Value& value, size_t limit) {
    print_at(out, value, false, limit, 0);
}
void print_quoted(std::string& out, const Value& value, size_t limit) {
    print_at(out, value, true, limit, 0);
}

void print_json(std::string& out, const Value& value, const JsonStyle& style, size_t limit) {
    JsonWriter writer(out, style);
    print_json_at(out, writer, value, limit, 0);
}

const char* kind_name(const Value& value) {
    switch (value.kind) {
        case Kind::undefined: return "an undefined value";
        case Kind::none: return "None";
        case Kind::boolean: return "a bool";
        case Kind::integer:
        case Kind::big_integer: return "an int";
        case Kind::real: return "a float";
        case Kind::string: return "a str";
        case Kind::list: return "a list";
        case Kind::tuple: return "a tuple";
        case Kind::dict: return "a dict";
        case Kind::space: return "a namespace";
        case Kind::loop: return "a loop";
        case Kind::function: return "a function";
        case Kind::macro: return "a macro";
        case Kind::turns: return "a cycler";
    }
    return "a value";
}

}  // namespace strata::jinja
