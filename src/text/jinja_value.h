// Values of a template while it renders. A value is 16 trivial bytes; what it points to lies in the rendering's arena,
// in the parsed template or in the caller's JSON, all of which outlive it. So there is nothing to free, and a value
// nested a million levels deep cannot overflow a stack when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace strata::jinja {

/// Thrown inside the interpreter only: Template turns it into an Error.
struct Stop {
    const char* code;  // see Template
    std::string message;
};
[[noreturn]] void fail(std::string message);        // "template_failed"
[[noreturn]] void over_limit(std::string message);  // "template_limit"
std::string quoted(std::string_view name);          // for messages: 'name'

/// Memory that is given back all at once, with a budget.
class Arena {
  public:
    explicit Arena(size_t limit) : limit_(limit) {}
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    void* allocate(size_t bytes);
    std::string_view copy(std::string_view text);
    template <class T>
    T* make(T value) {
        static_assert(std::is_trivially_destructible_v<T>);
        return new (allocate(sizeof(T))) T(value);
    }
    template <class T>
    T* array(size_t count) {
        static_assert(std::is_trivially_destructible_v<T>);
        if (count > limit_ / sizeof(T)) over_limit("the template uses too much memory");
        T* items = static_cast<T*>(allocate(count * sizeof(T)));
        for (size_t i = 0; i < count; ++i) new (items + i) T();
        return items;
    }

  private:
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
    std::byte* next_ = nullptr;
    size_t left_ = 0;
    size_t used_ = 0;
    size_t limit_;
};

enum class Kind : uint8_t {
    undefined,  // text: what was missing, for messages
    none,
    boolean,
    integer,
    big_integer,  // text: the decimal digits
    real,
    string,
    list,
    tuple,
    dict,
    space,     // what namespace() makes: the only thing that changes
    loop,      // the variable `loop`
    function,  // of the engine, perhaps bound to a value
    macro,
    turns,  // what cycler() and joiner() make
};

struct Dict;
struct Space;
struct Loop;
struct Function;
struct Macro;
struct Turns;

struct Value {
    Kind kind = Kind::undefined;
    uint32_t size = 0;  // bytes of text, items of a list or tuple
    union {
        bool truth;
        int64_t integer = 0;
        double real;
        const char* text;
        const Value* items;
        const Dict* dict;
        Space* space;
        Loop* loop;
        const Function* function;
        const Macro* macro;
        Turns* turns;
    };

    std::string_view str() const { return {text, size}; }
    std::span<const Value> list() const { return {items, size}; }

    bool is(Kind other) const { return kind == other; }
    bool is_string() const { return kind == Kind::string; }
    bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
    bool is_undefined() const { return kind == Kind::undefined; }
    bool is_integral() const { return kind == Kind::integer || kind == Kind::boolean; }
    bool is_number() const { return is_integral() || kind == Kind::real || kind == Kind::big_integer; }
    int64_t as_integer() const { return kind == Kind::boolean ? truth : integer; }  // where is_integral()
    double as_real() const;                                                         // where is_number()
};
static_assert(sizeof(Value) == 16);

Value undefined(std::string_view what);  // what: in memory that outlives the value
Value none();
Value boolean(bool truth);
Value integer(int64_t number);
Value real(double number);
Value string(std::string_view text);  // text: in memory that outlives the value
Value list(std::span<const Value> items, Kind kind = Kind::list);

struct Entry {
    Value key;
    Value value;
};

/// Keys in insertion order, found as Python finds them: 1, 1.0 and True are one key.
struct Dict {
    const Entry* entries;
    uint32_t size;
    const uint32_t* places;  // hash table of entry numbers + 1, or null where a dict is small
    uint32_t mask;

    std::span<const Entry> all() const { return {entries, size}; }
    const Value* find(const Value& key) const;
    const Value* find(std::string_view key) const { return find(string(key)); }
};

/// A dict of the entries; of equal keys the last value stays, at the first place. Fails on keys that cannot be keys.
Value make_dict(Arena& arena, std::vector<Entry> entries);

/// The JSON as a value: texts are not copied. Fails on what is nested deeper than 200 levels.
Value from_json(Arena& arena, const Json& json);

bool truth(const Value& value);
/// Python's ==. Takes a step for each item and each 64 bytes of text compared, and stops where none are left: a list
/// that holds another one twice, that one twice again, and so on, has more items than anybody can count.
bool equal(const Value& a, const Value& b, int64_t& steps);
/// Below 0, 0, above 0; fails where Python has no order.
int compare(const Value& a, const Value& b, int64_t& steps);

/// What printing writes: a string is itself, containers in Python's notation. Stops beyond `limit` bytes of `out`.
void print(std::string& out, const Value& value, size_t limit);
/// The value as inside a container: strings in quotes.
void print_quoted(std::string& out, const Value& value, size_t limit);
/// The filter tojson.
void print_json(std::string& out, const Value& value, const JsonStyle& style, size_t limit);

/// Python's name of the kind with its article, for messages: "a str", "an int".
const char* kind_name(const Value& value);

}  // namespace strata::jinja
