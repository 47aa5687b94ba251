// The filters, by name. Those on texts first, then lists, then numbers and JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_render.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

using R = Renderer;
using V = Value;

// What filters share.

[[noreturn]] void refuse(const Call& call, const Value& value) {
    fail("filter " + quoted(call.name) + " cannot take " + kind_name(value));
}

void append(R& r, std::string& out, std::string_view text) {
    if (text.size() > r.text_limit() - std::min(out.size(), r.text_limit())) over_limit("a text grows too long");
    out += text;
}

/// A value as sorting and grouping compare it: texts without their case unless asked.
V sort_key(R& r, const V& value, bool case_sensitive) {
    return value.is_string() && !case_sensitive ? r.text(lower(value.str())) : value;
}

/// An attribute given as a path or a number.
V by_attribute(R& r, const V& value, const V& attribute) {
    if (attribute.is_integral()) return r.item(value, attribute);
    if (!attribute.is_string()) fail("an attribute is named by a str");
    return r.path(value, attribute.str());
}

V call_filter(R& r, std::string_view name, const V& value, const Call& call) {
    FilterFunction filter = find_filter(name);
    if (!filter) fail("there is no filter " + quoted(name));
    Call named = call;
    named.name = name;
    r.step();
    return filter(r, value, named);
}

// Texts.

template <std::string (*how)(std::string_view)>
V change(R& r, const V& value, const Call& call) {
    call.expect({});
    return r.text(how(r.printed(value)));
}

std::string title_words(std::string_view text) {
    // Other than str.title: words begin after white space and opening brackets, so "it's" stays one.
    std::string out;
    bool start = true;
    for (size_t i = 0; i < text.size();) {
        CodePoint point = decode_utf8(text, i);
        std::string_view unit = text.substr(i, point.size);
        out += start ? upper(unit) : lower(unit);
        start = point.valid &&
                (is_space(point.value) || std::u32string_view(U"-([{<").find(point.value) != std::u32string_view::npos);
        i += point.size;
    }
    return out;
}

V trim(R& r, const V& value, const Call& call) {
    call.expect({"chars"});
    std::string_view text = r.printed(value);
    r.look_at(text.size());
    const V* set = call.get(0, "chars");
    if (!set || set->is(Kind::none)) return string(strip(text));
    std::string_view chars = call.text(0, "chars");
    r.step(static_cast<int64_t>(chars.size()));
    return string(strip(text, chars, true, true));
}

V replace_filter(R& r, const V& value, const Call& call) {
    call.expect({"old", "new", "count"});
    std::string_view text = r.printed(value);
    const V* from = call.get(0, "old");
    const V* to = call.get(1, "new");
    if (!from || !to) fail("replace needs what to replace and by what");
    r.look_at(text.size());
    return r.text(replace(text, r.printed(*from), r.printed(*to), call.integer(2, "count", -1), r.text_limit()));
}

V escape(R& r, const V& value, const Call&) {
    std::string out;
    for (char c : r.printed(value)) {
        switch (c) {
            case '&': append(r, out, "&amp;"); break;
            case '<': append(r, out, "&lt;"); break;
            case '>': append(r, out, "&gt;"); break;
            case '"': append(r, out, "&#34;"); break;
            case '\'': append(r, out, "&#39;"); break;
            default: out += c;
        }
    }
    return r.text(out);
}

V indent(R& r, const V& value, const Call& call) {
    call.expect({"width", "first", "blank"});
    const V* width = call.get(0, "width");
    std::string indentation;
    if (width && width->is_string()) {
        indentation = width->str();
    } else {
        indentation.assign(static_cast<size_t>(std::clamp<int64_t>(call.integer(0, "width", 4), 0, 1000)), ' ');
    }
    bool first = call.truth(1, "first", false), blank = call.truth(2, "blank", false);
    std::string out;
    std::string_view text = r.printed(value);
    size_t start = 0;
    for (bool first_line = true; start <= text.size(); first_line = false) {
        size_t end = std::min(text.find('\n', start), text.size());
        r.step();
        if (first_line ? first : (blank || end > start)) append(r, out, indentation);
        append(r, out, text.substr(start, end - start));
        if (end < text.size()) out += '\n';
        start = end + 1;
    }
    return r.text(out);
}

V center(R& r, const V& value, const Call& call) {
    call.expect({"width"});
    std::string_view text = r.printed(value);
    int64_t width = std::min<int64_t>(call.integer(0, "width", 80), 1000);
    int64_t missing = width - static_cast<int64_t>(utf8_length(text));
    if (missing <= 0) return string(text);
    auto left = static_cast<size_t>(missing / 2 + (missing & width & 1));
    return r.text(std::string(left, ' ') + std::string(text) + std::string(static_cast<size_t>(missing) - left, ' '));
}

V truncate(R& r, const V& value, const Call& call) {
    call.expect({"length", "killwords", "end", "leeway"});
    std::string_view text = r.printed(value), end = call.text(2, "end", "...");
    int64_t length = call.integer(0, "length", 255), leeway = call.integer(3, "leeway", 5);
    auto end_length = static_cast<int64_t>(utf8_length(end));
    if (length < end_length || leeway < 0) fail("truncate needs a length that holds its end");
    if (static_cast<int64_t>(utf8_length(text)) <= length + leeway) return string(text);
    std::string_view kept = slice(text, 0, static_cast<size_t>(length - end_length));
    if (!call.truth(1, "killwords", false)) {
        if (size_t space = kept.rfind(' '); space != kept.npos) kept = kept.substr(0, space);
    }
    return r.text(std::string(kept) + std::string(end));
}

void append_url(std::string& out, std::string_view text, bool form) {
    for (char c : text) {
        auto byte = static_cast<unsigned char>(c);
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !form);
        if (plain) {
            out += c;
        } else if (form && c == ' ') {
            out += '+';
        } else {
            static constexpr char kHex[] = "0123456789ABCDEF";
            out += {'%', kHex[byte >> 4], kHex[byte & 15]};
        }
    }
}

V url_encode(R& r, const V& value, const Call&) {
    std::string out;
    if (value.is(Kind::dict)) {
        for (const Entry& entry : value.dict->all()) {
            if (!out.empty()) out += '&';
            append_url(out, r.printed(entry.key), true);
            out += '=';
            append_url(out, r.printed(entry.value), true);
            if (out.size() > r.text_limit()) over_limit("a text grows too long");
        }
    } else {
        append_url(out, r.printed(value), false);
    }
    return r.text(out);
}

V word_count(R& r, const V& value, const Call&) {
    std::string_view text = r.printed(value);
    r.look_at(text.size());
    int64_t words = 0;
    bool inside = false;
    for (size_t i = 0; i < text.size();) {
        CodePoint point = decode_utf8(text, i);
        std::string_view unit = text.substr(i, point.size);
        bool word = is_all_alphanumeric(unit) || unit == "_";
        words += word && !inside;
        inside = word;
        i += point.size;
    }
    return integer(words);
}

// Lists.

V default_value(R&, const V& value, const Call& call) {
    call.expect({"default_value", "boolean"});
    bool missing = value.is_undefined() || (call.truth(1, "boolean", false) && !truth(value));
    if (!missing) return value;
    const V* fallback = call.get(0, "default_value");
    return fallback ? *fallback : string({});
}

V first(R& r, const V& value, const Call&) {
    auto items = r.items(value);
    return items.empty() ? undefined("the first item of nothing") : items.front();
}

V last(R& r, const V& value, const Call&) {
    auto items = r.items(value);
    return items.empty() ? undefined("the last item of nothing") : items.back();
}

V join(R& r, const V& value, const Call& call) {
    call.expect({"d", "attribute"});
    const V* separator = call.get(0, "d");
    std::string_view between = separator ? r.printed(*separator) : std::string_view();
    const V* attribute = call.get(1, "attribute");
    std::string out;
    bool first = true;
    for (const V& item : r.items(value)) {
        r.step();
        if (!first) append(r, out, between);
        first = false;
        append(r, out, r.printed(attribute ? by_attribute(r, item, *attribute) : item));
    }
    return r.text(out);
}

V reverse(R& r, const V& value, const Call&) {
    std::span<const V> all = r.items(value);
    std::vector<V> items(all.begin(), all.end());
    std::reverse(items.begin(), items.end());
    if (!value.is_string()) return r.list_of(items);
    std::string out;
    for (const V& item : items) out += item.str();
    return r.text(out);
}

struct Keyed {
    V key;
    V item;
};

V sorted(R& r, std::vector<Keyed> all, bool descending) {
    // Descending keeps the order of equals, too.
    std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
        return descending ? r.compare(b.key, a.key) < 0 : r.compare(a.key, b.key) < 0;
    });
    std::vector<V> items(all.size());
    std::transform(all.begin(), all.end(), items.begin(), [](const Keyed& keyed) { return keyed.item; });
    return r.list_of(items);
}

std::vector<Keyed> keyed_items(R& r, const V& value, const V* attribute, bool case_sensitive) {
    std::vector<Keyed> all;
    for (const V& item : r.items(value)) {
        r.step();
        V key = attribute && !attribute->is(Kind::none) ? by_attribute(r, item, *attribute) : item;
        all.push_back({sort_key(r, key, case_sensitive), item});
    }
    return all;
}

V sort(R& r, const V& value, const Call& call) {
    call.expect({"reverse", "case_sensitive", "attribute"});
    auto all = keyed_items(r, value, call.get(2, "attribute"), call.truth(1, "case_sensitive", false));
    return sorted(r, std::move(all), call.truth(0, "reverse", false));
}

V dict_sort(R& r, const V& value, const Call& call) {
    call.expect({"case_sensitive", "by", "reverse"});
    if (!value.is(Kind::dict)) refuse(call, value);
    std::string_view by = call.text(1, "by", "key");
    if (by != "key" && by != "value") fail("dictsort sorts by 'key' or by 'value'");
    bool case_sensitive = call.truth(0, "case_sensitive", false);
    std::vector<Keyed> all;
    for (const Entry& entry : value.dict->all()) {
        r.step();
        all.push_back(
            {sort_key(r, by == "key" ? entry.key : entry.value, case_sensitive), list({&entry.key, 2}, Kind::tuple)});
    }
    return sorted(r, std::move(all), call.truth(2, "reverse", false));
}

V unique(R& r, const V& value, const Call& call) {
    call.expect({"case_sensitive", "attribute"});
    auto all = keyed_items(r, value, call.get(1, "attribute"), call.truth(0, "case_sensitive", false));
    std::vector<V> keys, kept;
    for (const Keyed& keyed : all) {
        if (std::any_of(keys.begin(), keys.end(), [&](const V& key) { return r.equal(key, keyed.key); })) continue;
        keys.push_back(keyed.key);
        kept.push_back(keyed.item);
    }
    return r.list_of(kept);
}

template <int sign>
V extreme(R& r, const V& value, const Call& call) {
    call.expect({"case_sensitive", "attribute"});
    auto all = keyed_items(r, value, call.get(1, "attribute"), call.truth(0, "case_sensitive", false));
    if (all.empty()) return undefined("the extreme of nothing");
    const Keyed* best = &all[0];
    for (const Keyed& keyed : all) {
        if (r.compare(keyed.key, best->key) == sign) best = &keyed;
    }
    return best->item;
}

V group_by(R& r, const V& value, const Call& call) {
    call.expect({"attribute", "default", "case_sensitive"});
    const V* attribute = call.get(0, "attribute");
    const V* fallback = call.get(1, "default");
    if (!attribute) fail("groupby needs an attribute");
    bool case_sensitive = call.truth(2, "case_sensitive", false);
    struct Member {
        V key, name, item;
    };
    std::vector<Member> all;
    for (const V& item : r.items(value)) {
        r.step();
        V name = by_attribute(r, item, *attribute);
        if (name.is_undefined() && fallback) name = *fallback;
        all.push_back({sort_key(r, name, case_sensitive), name, item});
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](const Member& a, const Member& b) { return r.compare(a.key, b.key) < 0; });
    std::vector<V> groups;
    for (size_t i = 0; i < all.size();) {
        size_t end = i;
        std::vector<V> members;
        for (; end < all.size() && r.equal(all[end].key, all[i].key); ++end) members.push_back(all[end].item);
        V group[] = {all[i].name, r.list_of(members)};
        groups.push_back(r.list_of(group, Kind::tuple));
        i = std::max(end, i + 1);  // a key that does not equal itself (nan) is a group of its own
    }
    return r.list_of(groups);
}

V map(R& r, const V& value, const Call& call) {
    std::vector<V> out;
    if (call.positional.empty()) {
        call.expect({"attribute", "default"});
        const V* attribute = call.get(0, "attribute");
        const V* fallback = call.get(1, "default");
        if (!attribute) fail("map needs a filter or an attribute");
        for (const V& item : r.items(value)) {
            r.step();
            V got = by_attribute(r, item, *attribute);
            out.push_back(got.is_undefined() && fallback ? *fallback : got);
        }
        return r.list_of(out);
    }
    std::string_view name = call.text(0, "filter");
    Call rest{name, call.positional.subspan(1), call.keyword};
    for (const V& item : r.items(value)) out.push_back(call_filter(r, name, item, rest));
    return r.list_of(out);
}

/// select and reject, with a test or by truth; of the items or of an attribute.
template <bool keep, bool attribute>
V pick(R& r, const V& value, const Call& call) {
    size_t at = attribute ? 1 : 0;
    if (call.positional.size() < at) fail(quoted(call.name) + " needs an attribute");
    TestFunction test = nullptr;
    Call rest;
    if (call.positional.size() > at) {
        rest.name = call.text(at, "test");
        rest.positional = call.positional.subspan(at + 1);
        rest.keyword = call.keyword;
        test = find_test(rest.name);
        if (!test) fail("there is no test " + quoted(rest.name));
    }
    std::vector<V> out;
    for (const V& item : r.items(value)) {
        r.step();
        V tested = attribute ? by_attribute(r, item, call.positional[0]) : item;
        if ((test ? test(r, tested, rest) : truth(tested)) == keep) out.push_back(item);
    }
    return r.list_of(out);
}

V sum(R& r, const V& value, const Call& call) {
    call.expect({"attribute", "start"});
    const V* attribute = call.get(0, "attribute");
    const V* start = call.get(1, "start");
    V total = start ? *start : integer(0);
    for (const V& item : r.items(value)) {
        r.step();
        V next = attribute && !attribute->is(Kind::none) ? by_attribute(r, item, *attribute) : item;
        total = r.sum(total, next);
    }
    return total;
}

V batch(R& r, const V& value, const Call& call) {
    call.expect({"linecount", "fill_with"});
    int64_t size = call.integer(0, "linecount", 0);
    if (size <= 0) fail("batch needs a size above 0");
    const V* fill = call.get(1, "fill_with");
    std::vector<V> batches, now;
    for (const V& item : r.items(value)) {
        now.push_back(item);
        if (static_cast<int64_t>(now.size()) < size) continue;
        batches.push_back(r.list_of(now));
        now.clear();
    }
    if (!now.empty()) {
        if (fill) {
            r.step(size);
            now.resize(static_cast<size_t>(size), *fill);
        }
        batches.push_back(r.list_of(now));
    }
    return r.list_of(batches);
}

V slices(R& r, const V& value, const Call& call) {
    call.expect({"slices", "fill_with"});
    int64_t count = call.integer(0, "slices", 0);
    if (count <= 0) fail("slice needs a number above 0");
    r.step(count);
    const V* fill = call.get(1, "fill_with");
    auto items = r.items(value);
    size_t each = items.size() / static_cast<size_t>(count), longer = items.size() % static_cast<size_t>(count);
    std::vector<V> out;
    size_t at = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        size_t size = each + (i < longer ? 1 : 0);
        std::vector<V> part(items.begin() + static_cast<ptrdiff_t>(at),
                            items.begin() + static_cast<ptrdiff_t>(at + size));
        if (fill && longer && i >= longer) part.push_back(*fill);
        out.push_back(r.list_of(part));
        at += size;
    }
    return r.list_of(out);
}

V items(R& r, const V& value, const Call& call) {
    if (value.is_undefined()) return list({});
    if (!value.is(Kind::dict)) refuse(call, value);
    return find_method(value, "items")(r, value, call);
}

// Numbers.

/// A whole text as an int of a base; white space around and underscores between digits are fine.
bool read_integer(std::string_view text, int base, int64_t& number) {
    std::string digits;
    text = strip(text);
    bool minus = text.starts_with('-');
    if (minus || text.starts_with('+')) text.remove_prefix(1);
    char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) text.remove_prefix(2);
    if (minus) digits = "-";
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
        digits += text[i];
    }
    if (text.starts_with('-')) return false;
    auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    return read.ec == std::errc() && read.ptr == digits.data() + digits.size();
}

bool read_real(std::string_view text, double& number) {
    std::string all(strip(text));
    if (all.empty() || all.find_first_of("xXpP(") != all.npos) return false;
    char* end = nullptr;
    number = std::strtod(all.c_str(), &end);
    return end == all.c_str() + all.size();
}

V to_integer(R&, const V& value, const Call& call) {
    call.expect({"default", "base"});
    const V* fallback = call.get(0, "default");
    V otherwise = fallback ? *fallback : integer(0);
    double number = 0;
    if (value.is_integral()) return integer(value.as_integer());
    if (value.is(Kind::big_integer)) return value;
    if (value.is(Kind::real)) {
        number = value.real;
    } else if (value.is_string()) {
        int64_t base = call.integer(1, "base", 10), whole = 0;
        if (base < 2 || base > 36) fail("int takes a base from 2 to 36");
        if (value.size > 1000) return otherwise;
        if (read_integer(value.str(), static_cast<int>(base), whole)) return integer(whole);
        if (!read_real(value.str(), number)) return otherwise;
    } else {
        return otherwise;
    }
    if (!(number > -9.2e18 && number < 9.2e18)) return otherwise;
    return integer(static_cast<int64_t>(number));
}

V to_real(R&, const V& value, const Call& call) {
    call.expect({"default"});
    const V* fallback = call.get(0, "default");
    double number = 0;
    if (value.is_number()) return real(value.as_real());
    if (value.is_string() && value.size <= 1000 && read_real(value.str(), number)) return real(number);
    return fallback ? *fallback : real(0);
}

V round_number(R&, const V& value, const Call& call) {
    call.expect({"precision", "method"});
    if (!value.is_number()) refuse(call, value);
    int64_t precision = std::clamp<int64_t>(call.integer(0, "precision", 0), -300, 300);
    std::string_view method = call.text(1, "method", "common");
    if (method == "common") {
        if (value.is_integral() && precision >= 0) return integer(value.as_integer());
        if (precision >= 0) {  // the decimal text of the exact value rounds as Python rounds
            char buffer[700];
            std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value.as_real());
            return real(std::strtod(buffer, nullptr));
        }
        double scale = std::pow(10.0, static_cast<double>(-precision));
        double rounded = std::nearbyint(value.as_real() / scale) * scale;
        return value.is_integral() ? integer(static_cast<int64_t>(rounded)) : real(rounded);
    }
    if (method != "ceil" && method != "floor") fail("round knows 'common', 'ceil' and 'floor'");
    double scale = std::pow(10.0, static_cast<double>(precision));
    double scaled = value.as_real() * scale;
    return real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

V absolute(R&, const V& value, const Call& call) {
    if (value.is(Kind::real)) return real(std::fabs(value.real));
    if (!value.is_integral()) refuse(call, value);
    if (value.as_integer() == INT64_MIN) fail("the result does not fit into 64 bits");
    return integer(std::abs(value.as_integer()));
}

// JSON.

V to_json(R& r, const V& value, const Call& call) {
    call.expect({"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ascii = call.truth(0, "ensure_ascii", false);
    style.indent = static_cast<int>(std::clamp<int64_t>(call.integer(1, "indent", -1), -1, 100));
    style.item_separator = style.indent < 0 ? ", " : ",";
    style.key_separator = ": ";
    style.sort_keys = call.truth(3, "sort_keys", false);
    const V* separators = call.get(2, "separators");
    if (separators && !separators->is(Kind::none)) {
        if (!separators->is_sequence() || separators->size != 2 || !separators->items[0].is_string() ||
            !separators->items[1].is_string()) {
            fail("tojson: 'separators' is a pair of strings");
        }
        style.item_separator = separators->items[0].str();
        style.key_separator = separators->items[1].str();
    }
    std::string out;
    print_json(out, value, style, r.text_limit());
    return r.text(out);
}

V read_json(R& r, const V& value, const Call& call) {
    if (!value.is_string()) refuse(call, value);
    r.step(value.size);
    Result<Json> json = parse_json(value.str());
    if (!json.ok()) fail("from_json: " + json.error().message);
    return from_json(r.arena(), r.keep(std::move(*json)));
}

const std::unordered_map<std::string_view, FilterFunction>& filters() {
    static const std::unordered_map<std::string_view, FilterFunction> all = {
        {"capitalize", change<capitalize>},
        {"lower", change<lower>},
        {"upper", change<upper>},
        {"title", change<title_words>},
        {"string", [](R& r, const V& v, const Call&) { return string(r.printed(v)); }},
        {"safe", [](R&, const V& v, const Call&) { return v; }},
        {"trim", trim},
        {"replace", replace_filter},
        {"e", escape},
        {"escape", escape},
        {"forceescape", escape},
        {"indent", indent},
        {"center", center},
        {"truncate", truncate},
        {"urlencode", url_encode},
        {"wordcount", word_count},
        {"format",
         [](R& r, const V& v, const Call& call) {
             if (!v.is_string()) refuse(call, v);
             return r.text(format_percent(r, v.str(), list(call.positional, Kind::tuple)));
         }},
        {"pprint",
         [](R& r, const V& v, const Call&) {
             std::string out;
             print_quoted(out, v, r.text_limit());
             return r.text(out);
         }},
        {"default", default_value},
        {"d", default_value},
        {"first", first},
        {"last", last},
        {"length", [](R& r, const V& v, const Call&) { return integer(static_cast<int64_t>(r.length(v))); }},
        {"count", [](R& r, const V& v, const Call&) { return integer(static_cast<int64_t>(r.length(v))); }},
        {"list", [](R& r, const V& v, const Call&) { return list(r.items(v)); }},
        {"join", join},
        {"reverse", reverse},
        {"sort", sort},
        {"dictsort", dict_sort},
        {"unique", unique},
        {"min", extreme<-1>},
        {"max", extreme<1>},
        {"groupby", group_by},
        {"map", map},
        {"select", pick<true, false>},
        {"reject", pick<false, false>},
        {"selectattr", pick<true, true>},
        {"rejectattr", pick<false, true>},
        {"sum", sum},
        {"batch", batch},
        {"slice", slices},
        {"items", items},
        {"attr",
         [](R& r, const V& v, const Call& call) {
             // Attributes only: methods, not the keys of a dict.
             return v.is(Kind::dict) && !find_method(v, call.text(0, "name")) ? undefined("an attribute")
                                                                              : r.attribute(v, call.text(0, "name"));
         }},
        {"int", to_integer},
        {"float", to_real},
        {"round", round_number},
        {"abs", absolute},
        {"tojson", to_json},
        {"from_json", read_json},
        {"fromjson", read_json},
    };
    return all;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
    auto place = filters().find(name);
    return place == filters().end() ? nullptr : place->second;
}

}  // namespace strata::jinja
