// Arguments of calls, tests, and the global functions.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_render.h"
#include "text/jinja_text.h"

namespace strata::jinja {

const Value* Call::get(size_t place, std::string_view keyword_name) const {
    if (place < positional.size()) return &positional[place];
    for (const auto& [given, value] : keyword) {
        if (given == keyword_name) return &value;
    }
    return nullptr;
}

void Call::expect(std::initializer_list<std::string_view> names) const {
    if (positional.size() > names.size()) {
        fail(quoted(name) + " takes at most " + std::to_string(names.size()) + " arguments");
    }
    for (const auto& [given, value] : keyword) {
        if (std::find(names.begin(), names.end(), given) == names.end()) {
            fail(quoted(name) + " has no argument " + quoted(given));
        }
    }
}

std::string_view Call::text(size_t place, std::string_view keyword_name) const {
    const Value* value = get(place, keyword_name);
    if (!value) fail(quoted(name) + " needs the argument " + quoted(keyword_name));
    if (!value->is_string()) {
        fail(quoted(name) + ": " + quoted(keyword_name) + " is " + kind_name(*value) + ", not a str");
    }
    return value->str();
}

std::string_view Call::text(size_t place, std::string_view keyword_name, std::string_view fallback) const {
    const Value* value = get(place, keyword_name);
    return !value || value->is(Kind::none) || value->is_undefined() ? fallback : text(place, keyword_name);
}

int64_t Call::integer(size_t place, std::string_view keyword_name, int64_t fallback) const {
    const Value* value = get(place, keyword_name);
    if (!value || value->is(Kind::none) || value->is_undefined()) return fallback;
    if (!value->is_integral()) {
        fail(quoted(name) + ": " + quoted(keyword_name) + " is " + kind_name(*value) + ", not an int");
    }
    return value->as_integer();
}

bool Call::truth(size_t place, std::string_view keyword_name, bool fallback) const {
    const Value* value = get(place, keyword_name);
    return value ? jinja::truth(*value) : fallback;
}

namespace {

// Tests.

const Value& other(const Call& call) {
    if (call.positional.size() != 1) fail("test " + quoted(call.name) + " takes one argument");
    return call.positional[0];
}

int64_t integer_of(const Value& value) {
    if (!value.is_integral()) fail(std::string("expected an int, not ") + kind_name(value));
    return value.as_integer();
}

bool is_iterable(const Value& value) {
    return value.is_string() || value.is_sequence() || value.is(Kind::dict) || value.is_undefined();
}

template <int sign, bool or_equal>
bool ordered(Renderer& renderer, const Value& value, const Call& call) {
    int order = renderer.compare(value, other(call));
    return order == sign || (or_equal && order == 0);
}

bool is_equal(Renderer& renderer, const Value& value, const Call& call) {
    return renderer.equal(value, other(call));
}
bool is_unequal(Renderer& renderer, const Value& value, const Call& call) {
    return !renderer.equal(value, other(call));
}

bool is_same(Renderer& renderer, const Value& value, const Call& call) {
    const Value& second = other(call);
    if (value.kind != second.kind) return false;
    if (value.is_sequence()) return value.items == second.items && value.size == second.size;
    if (value.is(Kind::dict)) return value.dict == second.dict;
    return renderer.equal(value, second);
}

const std::unordered_map<std::string_view, TestFunction>& tests() {
    using R = Renderer;
    using V = Value;
    static const std::unordered_map<std::string_view, TestFunction> all = {
        {"boolean", [](R&, const V& v, const Call&) { return v.is(Kind::boolean); }},
        {"callable",
         [](R&, const V& v, const Call&) {
             return v.is(Kind::function) || v.is(Kind::macro) || v.is(Kind::loop) ||
                    (v.is(Kind::turns) && v.turns->items.is_string());
         }},
        {"defined", [](R&, const V& v, const Call&) { return !v.is_undefined(); }},
        {"undefined", [](R&, const V& v, const Call&) { return v.is_undefined(); }},
        {"none", [](R&, const V& v, const Call&) { return v.is(Kind::none); }},
        {"string", [](R&, const V& v, const Call&) { return v.is_string(); }},
        {"number", [](R&, const V& v, const Call&) { return v.is_number(); }},
        {"integer", [](R&, const V& v, const Call&) { return v.is(Kind::integer) || v.is(Kind::big_integer); }},
        {"float", [](R&, const V& v, const Call&) { return v.is(Kind::real); }},
        {"mapping", [](R&, const V& v, const Call&) { return v.is(Kind::dict); }},
        {"sequence", [](R&, const V& v, const Call&) { return is_iterable(v); }},
        {"iterable", [](R&, const V& v, const Call&) { return is_iterable(v); }},
        {"true", [](R&, const V& v, const Call&) { return v.is(Kind::boolean) && v.truth; }},
        {"false", [](R&, const V& v, const Call&) { return v.is(Kind::boolean) && !v.truth; }},
        {"eq", is_equal},
        {"equalto", is_equal},
        {"ne", is_unequal},
        {"lt", ordered<-1, false>},
        {"lessthan", ordered<-1, false>},
        {"le", ordered<-1, true>},
        {"gt", ordered<1, false>},
        {"greaterthan", ordered<1, false>},
        {"ge", ordered<1, true>},
        {"in", [](R& r, const V& v, const Call& c) { return r.contains(other(c), v); }},
        {"sameas", is_same},
        {"divisibleby",
         [](R&, const V& v, const Call& c) {
             int64_t by = integer_of(other(c));
             if (by == 0) fail("division by zero");
             return by == -1 || integer_of(v) % by == 0;
         }},
        {"odd", [](R&, const V& v, const Call&) { return integer_of(v) % 2 != 0; }},
        {"even", [](R&, const V& v, const Call&) { return integer_of(v) % 2 == 0; }},
        {"lower", [](R& r, const V& v, const Call&) { return is_lower(r.printed(v)); }},
        {"upper", [](R& r, const V& v, const Call&) { return is_upper(r.printed(v)); }},
        {"escaped", [](R&, const V&, const Call&) { return false; }},
        {"filter", [](R&, const V& v, const Call&) { return v.is_string() && find_filter(v.str()); }},
        {"test", [](R&, const V& v, const Call&) { return v.is_string() && find_test(v.str()); }},
        // Under their signs: select("==", 3).
        {"==", is_equal},
        {"!=", is_unequal},
        {"<", ordered<-1, false>},
        {"<=", ordered<-1, true>},
        {">", ordered<1, false>},
        {">=", ordered<1, true>},
    };
    return all;
}

// Global functions.

Value range(Renderer& renderer, const Value&, const Call& call) {
    call.expect({"start", "stop", "step"});
    if (call.positional.empty() || !call.keyword.empty()) fail("range takes one to three integers");
    int64_t start = 0, stop = integer_of(call.positional[0]), step = 1;
    if (call.positional.size() > 1) {
        start = stop;
        stop = integer_of(call.positional[1]);
    }
    if (call.positional.size() > 2) step = integer_of(call.positional[2]);
    if (step == 0) fail("range needs a step other than 0");
    constexpr size_t kMost = 100'000;  // as the original's sandbox
    std::vector<Value> numbers;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (numbers.size() == kMost) over_limit("range has more than " + std::to_string(kMost) + " numbers");
        numbers.push_back(integer(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return renderer.list_of(numbers);
}

std::vector<Entry> members_of(const Call& call) {
    std::vector<Entry> entries;
    if (!call.positional.empty()) {
        const Value& source = call.positional[0];
        if (!source.is(Kind::dict)) fail(quoted(call.name) + " takes a dict or keywords");
        entries.assign(source.dict->all().begin(), source.dict->all().end());
    }
    for (const auto& [name, value] : call.keyword) entries.push_back({string(name), value});
    return entries;
}

Value dict(Renderer& renderer, const Value&, const Call& call) {
    std::vector<Entry> entries = members_of(call);
    renderer.step(static_cast<int64_t>(entries.size()));
    return make_dict(renderer.arena(), std::move(entries));
}

Value make_namespace(Renderer& renderer, const Value&, const Call& call) {
    Space* space = renderer.arena().make(Space{});
    for (const Entry& entry : members_of(call)) {
        if (!entry.key.is_string()) fail("names in a namespace are strings");
        if (Value* known = space->find(renderer, entry.key.str())) {
            *known = entry.value;
        } else {
            space->first = renderer.arena().make(Space::Member{entry.key.str(), entry.value, space->first});
        }
    }
    Value value;
    value.kind = Kind::space;
    value.space = space;
    return value;
}

Value raise_exception(Renderer& renderer, const Value&, const Call& call) {
    std::string message(call.positional.empty() ? "" : renderer.printed(call.positional[0]));
    throw Stop{"template_raised", std::move(message)};
}

Value strftime_now(Renderer& renderer, const Value&, const Call& call) {
    call.expect({"format"});
    std::string_view format = call.text(0, "format");
    std::tm now{};
    if (renderer.options().now) {
        now = *renderer.options().now;
    } else {
        std::time_t seconds = std::time(nullptr);
        localtime_r(&seconds, &now);
    }
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%' || i + 1 == format.size()) {
            out += format[i];
            continue;
        }
        char conversion[] = {'%', format[++i], '\0', '\0'};
        if (conversion[1] == '-' && i + 1 < format.size()) conversion[2] = format[++i];  // without leading zeros
        if (std::string_view("aAbBcdDeFGgHIjklmMnpPrRsStTuUVwWxXyYzZ%")
                .find(conversion[conversion[1] == '-' ? 2 : 1]) == std::string_view::npos) {
            out += conversion;
            continue;
        }
        char buffer[128];
        out.append(buffer, std::strftime(buffer, sizeof buffer, conversion, &now));
        if (out.size() > renderer.text_limit()) over_limit("a text grows too long");
    }
    return renderer.text(out);
}

Value turns(Renderer& renderer, const Value& items) {
    Value value;
    value.kind = Kind::turns;
    value.turns = renderer.arena().make(Turns{items});
    return value;
}

Value cycler(Renderer& renderer, const Value&, const Call& call) {
    if (call.positional.empty()) fail("cycler needs values");
    return turns(renderer, list(call.positional));
}

Value joiner(Renderer& renderer, const Value&, const Call& call) {
    call.expect({"sep"});
    return turns(renderer, string(call.text(0, "sep", ", ")));
}

}  // namespace

TestFunction find_test(std::string_view name) {
    auto place = tests().find(name);
    return place == tests().end() ? nullptr : place->second;
}

std::span<const std::pair<std::string_view, FilterFunction>> global_functions() {
    static constexpr std::pair<std::string_view, FilterFunction> all[] = {
        {"range", range},
        {"dict", dict},
        {"namespace", make_namespace},
        {"raise_exception", raise_exception},
        {"strftime_now", strftime_now},
        {"cycler", cycler},
        {"joiner", joiner},
    };
    return all;
}

}  // namespace strata::jinja
