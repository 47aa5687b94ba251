// What templates can call: filters, tests, methods of values, global functions. Nothing here reaches outside of the
// values given.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "text/jinja_ast.h"

namespace strata::jinja {

/// The arguments of one call.
struct Call {
    std::string_view name;  // of what is called, for messages
    std::span<const Value> positional;
    std::span<const std::pair<std::string_view, Value>> keyword;

    /// The argument at a place or of a name; null when not given.
    const Value* get(size_t place, std::string_view keyword_name) const;
    /// Fails on more arguments than names, and on a keyword that is not among them.
    void expect(std::initializer_list<std::string_view> names) const;

    // The same with a conversion; they fail on another kind of value.
    std::string_view text(size_t place, std::string_view keyword_name, std::string_view fallback) const;
    std::string_view text(size_t place, std::string_view keyword_name) const;  // must be given
    int64_t integer(size_t place, std::string_view keyword_name, int64_t fallback) const;
    bool truth(size_t place, std::string_view keyword_name, bool fallback) const;
};

/// An engine's function, perhaps bound to a value ("text".upper).
struct Function {
    FilterFunction run;
    Value self;
    std::string_view name;
};

FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
/// A method of a value, or null.
FilterFunction find_method(const Value& self, std::string_view name);
/// A method Python has and the sandbox refuses: reading it gives undefined, whatever keys a dict has.
bool is_refused_method(const Value& self, std::string_view name);
/// range, dict, namespace, raise_exception, strftime_now, cycler, joiner.
std::span<const std::pair<std::string_view, FilterFunction>> global_functions();

/// printf formatting: "%s has %d" % values.
std::string format_percent(Renderer& renderer, std::string_view format, const Value& values);
/// str.format: "{} {name:>5}".
std::string format_braces(Renderer& renderer, std::string_view format, const Call& call);

}  // namespace strata::jinja
