#include "text/jinja.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

namespace strata {
namespace {

std::tm fixed_time() {
    std::tm time{};
    time.tm_year = 126;
    time.tm_mon = 0;
    time.tm_mday = 2;
    time.tm_hour = 3;
    time.tm_min = 4;
    time.tm_sec = 5;
    time.tm_wday = 5;
    time.tm_yday = 1;
    return time;
}

Result<std::string> render(std::string_view source, const Json& variables = Json::object(),
                           RenderOptions options = {}) {
    STRATA_TRY_ASSIGN(Template parsed, Template::parse(source));
    return parsed.render(variables, options);
}

/// The text, or the error behind "error: ".
std::string shown(std::string_view source, const Json& variables = Json::object(), RenderOptions options = {}) {
    auto text = render(source, variables, options);
    return text.ok() ? *text : "error: " + text.error().message;
}

std::string code_of(std::string_view source, RenderOptions options = {}) {
    auto text = render(source, Json::object(), options);
    return text.ok() ? "ok" : text.error().code;
}

Json read_json(const std::string& name) {
    std::ifstream file(std::string(POLYSTRATA_TEST_DATA) + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    auto json = parse_json(text.str());
    EXPECT_TRUE(json.ok()) << name;
    return json.ok() ? *json : Json();
}

void check_cases(const Json& cases) {
    RenderOptions options;
    options.now = fixed_time();
    for (const Json& one : cases) {
        SCOPED_TRACE(one["template"].get<std::string>());
        auto text = render(one["template"].get<std::string>(), one.value("context", Json::object()), options);
        if (one.contains("error")) {
            EXPECT_FALSE(text.ok()) << *text;
        } else {
            ASSERT_TRUE(text.ok()) << text.error().message;
            EXPECT_EQ(*text, one["expected"].get<std::string>());
        }
    }
}

TEST(Jinja, GivesWhatTheOriginalGives) {
    Json cases = read_json("chat/jinja_cases.json");
    ASSERT_EQ(cases.size(), 94u);
    check_cases(cases);
}

// Recorded from Python's jinja2 3.1.6 set up as chat templates expect it.
TEST(Jinja, GivesWhatTheOriginalGivesInOddCases) {
    check_cases(read_json("chat/jinja_more_cases.json"));
}

TEST(Jinja, ErrorsNameTheLine) {
    EXPECT_EQ(shown("a\n{% if x %}\n{{ 1 +\n 'a' }}{% endif %}", Json{{"x", 1}}),
              "error: line 3: cannot add an int and a str");
    EXPECT_EQ(shown("{% macro f() %}\n{{ none.x.y }}\n{% endmacro %}\n\n{{ f() }}"),
              "error: line 2: 'x' is undefined, so it has no 'y'");
    EXPECT_EQ(shown("{% macro f() %}\n\n{% endmacro %}\n{{ f() + 1 }}"), "error: line 4: cannot add a str and an int");
    EXPECT_EQ(shown("\n\n{% for x in y %}"), "error: line 3: a block is not closed: {% endfor %} is missing");
    EXPECT_EQ(shown("a\n{{ 'x }}"), "error: line 2: a string is not closed");
    EXPECT_EQ(shown("\n{{ x"), "error: line 2: a tag is not closed: '}}' is missing");
    EXPECT_EQ(shown("{{ x }}\n{% include 'f' %}"), "error: line 2: tag 'include' is not supported here");
}

TEST(Jinja, ErrorCodesTellWhoseFaultItIs) {
    EXPECT_EQ(code_of("{{ }}"), "template_syntax");
    EXPECT_EQ(code_of("{{ 1 + none }}"), "template_failed");
    RenderOptions few;
    few.limits.steps = 1000;
    EXPECT_EQ(code_of("{% for i in range(1000) %}{% endfor %}", few), "template_limit");
    auto raised = render("\n\n{{ raise_exception('roles must alternate') }}");
    ASSERT_FALSE(raised.ok());
    EXPECT_EQ(raised.error().code, "template_raised");
    EXPECT_EQ(raised.error().message, "roles must alternate");
}

TEST(Jinja, RefusesWhatDoesNotParse) {
    for (const char* source : {"{% if %}",
                               "{% endif %}",
                               "{% for x y %}{% endfor %}",
                               "{{ a b }}",
                               "{{ (1 }}",
                               "{{ 1) }}",
                               "{% set 1 = 2 %}",
                               "{% set true = 1 %}",
                               "{{ f(a=1, 2) }}",
                               "{{ f(*a) }}",
                               "{% if a %}{% else %}{% else %}{% endif %}",
                               "{# open",
                               "{% raw %}",
                               "{% break %}",
                               "{% for a in b %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
                               "{% macro f(a=1, b) %}{% endmacro %}",
                               "{% call x %}{% endcall %}",
                               "{% block a %}{% endblock %}",
                               "{% extends 'a' %}",
                               "{% import 'a' as b %}",
                               "{{ '\\x1' }}",
                               "{{ a ? b }}",
                               "{% %}",
                               "{{ {1} }}",
                               "{{ x. }}"}) {
        EXPECT_EQ(code_of(source), "template_syntax") << source;
    }
}

TEST(Jinja, SeesNothingButItsVariables) {
    for (const char* name : {"__class__", "__init__", "__globals__", "mro", "__subclasses__", "format_map"}) {
        std::string source = "{{ x." + std::string(name) + " is defined }}{{ ''['" + name +
                             "'] is defined }}{{ [] | attr('" + name + "') is defined }}{{ f." + name +
                             " is defined }}";
        EXPECT_EQ(shown("{% macro f() %}{% endmacro %}" + source, Json{{"x", Json::object()}}), "FalseFalseFalseFalse");
    }
    for (const char* name : {"self", "lipsum", "config", "request", "open", "environ"}) {
        EXPECT_EQ(shown("{{ " + std::string(name) + " is defined }}"), "False");
    }
}

TEST(Jinja, ValuesCannotBeChangedInPlace) {
    Json variables = {{"l", {1}}, {"d", {{"a", 1}}}};
    for (const char* call : {"l.append(2)", "l.pop()", "l.sort()", "d.update({'b': 1})", "d.pop('a')", "d.clear()",
                             "d.setdefault('c', 1)"}) {
        auto text = render("{{ " + std::string(call) + " }}", variables);
        EXPECT_FALSE(text.ok()) << call;
    }
    EXPECT_EQ(shown("{{ d.pop is defined }}{{ {'pop': 1}.pop is defined }}{{ {'pop': 1}['pop'] }}", variables),
              "FalseFalse1");
}

// Each of these would run for minutes or fill the memory without limits.
TEST(Jinja, HostileTemplatesMeetTheLimits) {
    std::string doubling = "{% set ns = namespace(v=V) %}{% for i in range(99) %}{% set ns.v = STEP %}{% endfor %}";
    auto with = [&](const char* start, const char* step) {
        std::string source = doubling;
        source.replace(source.find("STEP"), 4, step);
        source.replace(source.find("V)"), 1, start);
        return source;
    };
    std::string deep_list =
        "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% set ns.v = [ns.v] %}{% endfor %}";
    std::string wide_list = with("[0]", "[ns.v, ns.v]");  // 2^99 items in 99 lists
    const std::string sources[] = {
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}",
        "{{ range(1000000000) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        with("'a'", "ns.v + ns.v"),
        with("'a'", "ns.v ~ ns.v"),
        with("[0]", "ns.v + ns.v"),
        with("'a'", "ns.v | replace('a', 'aa')"),
        with("'a'", "[ns.v, ns.v] | join"),
        with("'a'", "'%s%s' | format(ns.v, ns.v)"),
        with("'a'", "'{0}{0}'.format(ns.v)"),
        with("'a'", "[ns.v, ns.v] | tojson"),
        wide_list + "{{ ns.v }}",
        wide_list + "{{ ns.v | tojson }}",
        wide_list + "{{ ns.v == [ns.v[0], [ns.v[1][0], ns.v[0][1]]] }}",
        wide_list + "{{ ns.v | string | length }}",
        deep_list + "{{ ns.v }}",
        deep_list + "{{ ns.v | tojson }}",
        deep_list +
            "{% set a = ns.v %}{% set ns.v = [] %}{% for i in range(1000) %}{% set ns.v = [ns.v] %}{% endfor %}"
            "{{ a == ns.v }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'a' | center(1000000000) | length }}{{ 'x' * 99999999 }}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(100000) %}{{ 'ba' in s }}{{ s.count('q') }}{% endfor %}",
        "{% set s = 'a' * 3000000 %}{% for i in range(100000) %}{{ (s ~ 'b') in (s ~ s) }}{% endfor %}",
        "{% for i in range(100000) %}{{ range(100000) | sort | length }}{% endfor %}",
        "{{ range(100000) | unique | list | length }}",
    };
    RenderOptions options;
    options.limits.steps /= 10;
    options.limits.memory_bytes /= 8;
    options.limits.output_bytes /= 8;
    for (const std::string& source : sources) {
        auto text = render(source, Json::object(), options);
        ASSERT_FALSE(text.ok()) << source << " gives " << text->substr(0, 100);
        EXPECT_EQ(text.error().code, "template_limit") << source << ": " << text.error().message;
    }
}

TEST(Jinja, MacroThatOutlivesItsRoundStillSeesIt) {
    EXPECT_EQ(
        shown(
            "{% set ns = namespace(f=[]) %}{% for i in [1, 2, 3] %}{% set j = i * 10 %}{% macro m() %}{{ i }}-{{ j }} "
            "{% endmacro %}{% set ns.f = ns.f + [m] %}{% endfor %}{% for x in [7, 8] %}{% set j = 5 %}{% endfor %}"
            "{% for f in ns.f %}{{ f() }}{% endfor %}"),
        "1-10 2-20 3-30 ");
    EXPECT_EQ(
        shown("{% set ns = namespace() %}{% macro keep() %}{% set ns.c = caller %}{% endmacro %}{% for i in [1, 2] %}"
              "{% if i == 1 %}{% call keep() %}<{{ i }}>{% endcall %}{% endif %}{% endfor %}{{ ns.c() }}"),
        "<1>");
}

TEST(Jinja, DeeplyNestedSourceIsRefused) {
    for (const auto& [open, close] :
         {std::pair{"(", ")"}, {"[", "]"}, {"{1:", "}"}, {"-", ""}, {"not ", ""}, {"f(", ")"}}) {
        std::string source = "{{ ";
        for (int i = 0; i < 100000; ++i) source += open;
        source += "1";
        for (int i = 0; i < 100000; ++i) source += close;
        EXPECT_EQ(code_of(source + " }}"), "template_syntax") << open;
    }
    std::string ifs, chain = "{{ a", filters = "{{ a", choices = "{{ a";
    for (int i = 0; i < 100000; ++i) {
        ifs += "{% if a %}";
        chain += ".b";
        filters += " | upper";
        choices += " if a else b";
    }
    EXPECT_EQ(code_of(ifs), "template_syntax");
    EXPECT_EQ(code_of(chain + " }}"), "template_syntax");
    EXPECT_EQ(code_of(filters + " }}"), "template_syntax");
    EXPECT_EQ(code_of(choices + " }}"), "template_syntax");
}

TEST(Jinja, LongChainsOfOperatorsAreNotDeep) {
    std::string sum = "{{ 0", joined = "{{ ''", ands = "{{ 1", elifs = "{% if false %}";
    for (int i = 0; i < 10000; ++i) {
        sum += " + 1";
        joined += " ~ 'x'";
        ands += " and 1";
        elifs += "{% elif false %}";
    }
    EXPECT_EQ(shown(sum + " }}"), "10000");
    EXPECT_EQ(shown(joined + " }}"), std::string(10000, 'x'));
    EXPECT_EQ(shown(ands + " }}"), "1");
    EXPECT_EQ(shown(elifs + "{% else %}y{% endif %}"), "y");
}

TEST(Jinja, TextThatIsNotUtf8PassesThrough) {
    EXPECT_EQ(shown("{{ x }}{{ x | trim }}{{ x[1:] }}{{ x | upper }}{{ x | length }}", Json{{"x", "a\xff\xe9z"}}),
              "a\xff\xe9z"
              "a\xff\xe9z"
              "\xff\xe9z"
              "A\xff\xe9Z"
              "4");
}

TEST(Jinja, BigIntegersKeepTheirDigits) {
    auto variables = parse_json(R"({"x": [123456789012345678901234567890, 18446744073709551615, -1]})");
    ASSERT_TRUE(variables.ok());
    EXPECT_EQ(shown("{{ x | tojson }} {{ x[0] }} {{ x[0] > x[1] }} {{ x[0] == x[0] }} {{ x | sort }}", *variables),
              "[123456789012345678901234567890, 18446744073709551615, -1] 123456789012345678901234567890 True True "
              "[-1, 18446744073709551615, 123456789012345678901234567890]");
}

TEST(Jinja, KnowsWhichVariablesItMentions) {
    auto parsed = Template::parse("{% if enable_thinking %}{{ messages[0].content }}{% endif %}");
    ASSERT_TRUE(parsed.ok());
    EXPECT_TRUE(parsed->mentions("enable_thinking"));
    EXPECT_TRUE(parsed->mentions("messages"));
    EXPECT_FALSE(parsed->mentions("content"));
    EXPECT_FALSE(parsed->mentions("reasoning_effort"));
}

}  // namespace
}  // namespace strata
