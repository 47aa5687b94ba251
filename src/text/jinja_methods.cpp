// Methods of strings, dicts, lists and of the interpreter's own objects.
#include <algorithm>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_render.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

using Methods = std::unordered_map<std::string_view, FilterFunction>;
using R = Renderer;
using V = Value;

Value list_of_texts(Renderer& renderer, const std::vector<std::string_view>& parts) {
    std::vector<Value> items(parts.size());
    std::transform(parts.begin(), parts.end(), items.begin(), [](std::string_view part) { return string(part); });
    return renderer.list_of(items);
}

// Strings.

template <bool left, bool right>
Value strip_method(R& r, const V& self, const Call& call) {
    call.expect({"chars"});
    r.look_at(self.size);
    const Value* set = call.get(0, "chars");
    if (!set || set->is(Kind::none)) return string(strip(self.str(), left, right));
    std::string_view chars = call.text(0, "chars");
    r.step(static_cast<int64_t>(chars.size()));
    return string(strip(self.str(), chars, left, right));
}

template <bool from_right>
Value split_method(R& r, const V& self, const Call& call) {
    call.expect({"sep", "maxsplit"});
    r.look_at(self.size);
    int64_t limit = call.integer(1, "maxsplit", -1);
    const Value* separator = call.get(0, "sep");
    if (!separator || separator->is(Kind::none)) {
        return list_of_texts(r, from_right ? split_space_right(self.str(), limit) : split_space(self.str(), limit));
    }
    std::string_view text = call.text(0, "sep");
    if (text.empty()) fail("split needs a separator that is not empty");
    return list_of_texts(r, from_right ? split_right(self.str(), text, limit) : split(self.str(), text, limit));
}

template <bool (*test)(std::string_view, std::string_view)>
Value affix_method(R& r, const V& self, const Call& call) {
    if (call.positional.size() != 1) fail(quoted(call.name) + " takes one argument");
    const Value& affix = call.positional[0];
    if (affix.is_string()) return boolean(test(self.str(), affix.str()));
    if (!affix.is(Kind::tuple)) fail(quoted(call.name) + " takes a str or a tuple of them");
    for (const Value& one : affix.list()) {
        r.step();
        if (!one.is_string()) fail(quoted(call.name) + " takes a str or a tuple of them");
        if (test(self.str(), one.str())) return boolean(true);
    }
    return boolean(false);
}

bool starts(std::string_view text, std::string_view affix) {
    return text.starts_with(affix);
}
bool ends(std::string_view text, std::string_view affix) {
    return text.ends_with(affix);
}

Value replace_method(R& r, const V& self, const Call& call) {
    call.expect({"old", "new", "count"});
    r.look_at(self.size);
    return r.text(
        replace(self.str(), call.text(0, "old"), call.text(1, "new"), call.integer(2, "count", -1), r.text_limit()));
}

template <std::string (*change)(std::string_view)>
Value change_method(R& r, const V& self, const Call& call) {
    call.expect({});
    r.look_at(self.size);
    return r.text(change(self.str()));
}

template <bool (*test)(std::string_view)>
Value test_method(R& r, const V& self, const Call& call) {
    call.expect({});
    r.look_at(self.size);
    return boolean(test(self.str()));
}

Value join_method(R& r, const V& self, const Call& call) {
    call.expect({"iterable"});
    const Value* given = call.get(0, "iterable");
    if (!given) fail("join needs an iterable");
    std::string out;
    bool first = true;
    for (const Value& item : r.items(*given)) {
        r.step();
        if (!item.is_string()) fail(std::string("join: an item is ") + kind_name(item) + ", not a str");
        if (!first) out += self.str();
        first = false;
        out += item.str();
        if (out.size() > r.text_limit()) over_limit("a text grows too long");
    }
    return r.text(out);
}

/// The place in code points of a text, or -1.
int64_t place_of(R& r, const V& self, const Call& call, bool last) {
    call.expect({"sub"});
    r.look_at(self.size);
    std::string_view needle = call.text(0, "sub");
    size_t at = last ? find_text_last(self.str(), needle) : find_text(self.str(), needle);
    return at == std::string_view::npos ? -1 : static_cast<int64_t>(utf8_length(self.str().substr(0, at)));
}

Value index_method(R& r, const V& self, const Call& call) {
    int64_t at = place_of(r, self, call, false);
    if (at < 0) fail("substring not found");
    return integer(at);
}

Value split_lines_method(R& r, const V& self, const Call& call) {
    call.expect({"keepends"});
    r.look_at(self.size);
    return list_of_texts(r, split_lines(self.str(), call.truth(0, "keepends", false)));
}

template <bool from_right>
Value partition_method(R& r, const V& self, const Call& call) {
    call.expect({"sep"});
    r.look_at(self.size);
    std::string_view text = self.str(), separator = call.text(0, "sep");
    if (separator.empty()) fail("partition needs a separator that is not empty");
    size_t at = from_right ? find_text_last(text, separator) : find_text(text, separator);
    Value parts[3] = {string({}), string({}), string({})};
    if (at == text.npos) {
        parts[from_right ? 2 : 0] = self;
    } else {
        parts[0] = string(text.substr(0, at));
        parts[1] = string(separator);
        parts[2] = string(text.substr(at + separator.size()));
    }
    return r.list_of(parts, Kind::tuple);
}

const Methods& string_methods() {
    static const Methods all = {
        {"split", split_method<false>},
        {"rsplit", split_method<true>},
        {"strip", strip_method<true, true>},
        {"lstrip", strip_method<true, false>},
        {"rstrip", strip_method<false, true>},
        {"startswith", affix_method<starts>},
        {"endswith", affix_method<ends>},
        {"replace", replace_method},
        {"upper", change_method<upper>},
        {"lower", change_method<lower>},
        {"casefold", change_method<lower>},
        {"title", change_method<title>},
        {"capitalize", change_method<capitalize>},
        {"join", join_method},
        {"find", [](R& r, const V& self, const Call& call) { return integer(place_of(r, self, call, false)); }},
        {"rfind", [](R& r, const V& self, const Call& call) { return integer(place_of(r, self, call, true)); }},
        {"index", index_method},
        {"count",
         [](R& r, const V& self, const Call& call) {
             call.expect({"sub"});
             r.look_at(self.size);
             return integer(static_cast<int64_t>(count_text(self.str(), call.text(0, "sub"))));
         }},
        {"splitlines", split_lines_method},
        {"partition", partition_method<false>},
        {"rpartition", partition_method<true>},
        {"isdigit", test_method<is_all_digits>},
        {"isnumeric", test_method<is_all_digits>},
        {"isdecimal", test_method<is_all_digits>},
        {"isalpha", test_method<is_all_letters>},
        {"isalnum", test_method<is_all_alphanumeric>},
        {"isspace", test_method<is_all_space>},
        {"islower", test_method<is_lower>},
        {"isupper", test_method<is_upper>},
        {"format", [](R& r, const V& self, const Call& call) { return r.text(format_braces(r, self.str(), call)); }},
        {"removeprefix",
         [](R&, const V& self, const Call& call) {
             std::string_view text = self.str(), affix = call.text(0, "prefix");
             return string(text.starts_with(affix) ? text.substr(affix.size()) : text);
         }},
        {"removesuffix",
         [](R&, const V& self, const Call& call) {
             std::string_view text = self.str(), affix = call.text(0, "suffix");
             return string(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
         }},
        {"zfill",
         [](R& r, const V& self, const Call& call) {
             auto width = std::min<int64_t>(call.integer(0, "width", 0), 1000);
             std::string_view text = self.str();
             bool sign = text.starts_with('-') || text.starts_with('+');
             auto size = static_cast<int64_t>(utf8_length(text));
             std::string zeros(static_cast<size_t>(std::max<int64_t>(width - size, 0)), '0');
             return r.text(std::string(text.substr(0, sign)) + zeros + std::string(text.substr(sign)));
         }},
    };
    return all;
}

// Dicts.

Value items_method(R& r, const V& self, const Call& call) {
    call.expect({});
    const Dict& dict = *self.dict;
    r.step(dict.size / 4);
    Value* pairs = r.arena().array<Value>(dict.size);
    for (uint32_t i = 0; i < dict.size; ++i) {
        // An entry is a key and a value side by side, which is what a pair is.
        static_assert(sizeof(Entry) == 2 * sizeof(Value));
        pairs[i] = list({&dict.entries[i].key, 2}, Kind::tuple);
    }
    return list({pairs, dict.size});
}

const Methods& dict_methods() {
    static const Methods all = {
        {"items", items_method},
        {"keys",
         [](R& r, const V& self, const Call& call) {
             call.expect({});
             return list(r.items(self));
         }},
        {"values",
         [](R& r, const V& self, const Call& call) {
             call.expect({});
             std::vector<Value> values;
             for (const Entry& entry : self.dict->all()) values.push_back(entry.value);
             return r.list_of(values);
         }},
        {"get",
         [](R& r, const V& self, const Call& call) {
             call.expect({"key", "default"});
             const Value* key = call.get(0, "key");
             if (!key) fail("get needs a key");
             if (key->is_string()) r.look_at(key->size);
             if (const Value* found = self.dict->find(*key)) return *found;
             const Value* fallback = call.get(1, "default");
             return fallback ? *fallback : none();
         }},
        {"copy", [](R&, const V& self, const Call&) { return self; }},
    };
    return all;
}

// Lists and tuples.

const Methods& list_methods() {
    static const Methods all = {
        {"index",
         [](R& r, const V& self, const Call& call) {
             call.expect({"value"});
             const Value* wanted = call.get(0, "value");
             for (uint32_t i = 0; wanted && i < self.size; ++i) {
                 if (r.equal(self.items[i], *wanted)) return integer(i);
             }
             fail("the value is not in the list");
         }},
        {"count",
         [](R& r, const V& self, const Call& call) {
             call.expect({"value"});
             const Value* wanted = call.get(0, "value");
             int64_t count = 0;
             for (uint32_t i = 0; wanted && i < self.size; ++i) count += r.equal(self.items[i], *wanted);
             return integer(count);
         }},
        {"copy", [](R&, const V& self, const Call&) { return self; }},
    };
    return all;
}

// The interpreter's own.

const Methods& loop_methods() {
    static const Methods all = {
        {"cycle",
         [](R&, const V& self, const Call& call) {
             if (call.positional.empty()) fail("cycle needs values");
             return call.positional[self.loop->index % call.positional.size()];
         }},
        {"changed",
         [](R& r, const V& self, const Call& call) {
             Value now = r.list_of(call.positional);
             const Value* before = self.loop->last_changed;
             if (before && r.equal(*before, now)) return boolean(false);
             self.loop->last_changed = r.arena().make(now);
             return boolean(true);
         }},
    };
    return all;
}

const Methods& cycler_methods() {
    static const Methods all = {
        {"next",
         [](R&, const V& self, const Call&) {
             Turns& turns = *self.turns;
             return turns.items.items[turns.at++ % turns.items.size];
         }},
        {"reset",
         [](R&, const V& self, const Call&) {
             self.turns->at = 0;
             return none();
         }},
    };
    return all;
}

const Methods* methods_of(const Value& self) {
    switch (self.kind) {
        case Kind::string: return &string_methods();
        case Kind::dict: return &dict_methods();
        case Kind::list:
        case Kind::tuple: return &list_methods();
        case Kind::loop: return &loop_methods();
        case Kind::turns: return self.turns->items.is_sequence() ? &cycler_methods() : nullptr;
        default: return nullptr;
    }
}

}  // namespace

FilterFunction find_method(const Value& self, std::string_view name) {
    const Methods* methods = name.size() <= 12 ? methods_of(self) : nullptr;  // the longest: removeprefix
    if (!methods) return nullptr;
    auto place = methods->find(name);
    return place == methods->end() ? nullptr : place->second;
}

bool is_refused_method(const Value& self, std::string_view name) {
    auto any = [&](std::initializer_list<std::string_view> names) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    switch (self.kind) {
        case Kind::dict: return any({"clear", "pop", "popitem", "setdefault", "update", "fromkeys"});
        case Kind::list: return any({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
        default: return false;
    }
}

}  // namespace strata::jinja
