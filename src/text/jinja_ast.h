// A parsed template. Chains of operators are flat (a + b - c is one node), so depth means nesting, which the parser
// limits: walking a tree never overflows a stack.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

struct Call;
class Renderer;

using FilterFunction = Value (*)(Renderer&, const Value& input, const Call& call);
using TestFunction = bool (*)(Renderer&, const Value& input, const Call& call);

using Name = int;  // a variable, as an index into Program::names

enum class Operator : uint8_t { add, subtract, multiply, divide, divide_down, modulo, power, join };
enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
    std::string_view keyword;  // empty: by position
    ExprPtr value;
};

struct Expr {
    enum class Type : uint8_t {
        constant,    // value
        variable,    // name
        list,        // parts
        tuple,       // parts
        dict,        // parts: key, value, key, value, ..
        arithmetic,  // parts[0] operators[0] parts[1] operators[1] ..
        compare,     // parts[0] comparisons[0] parts[1] ..
        all,         // parts, `and`
        any,         // parts, `or`
        negate,      // parts[0], `not`
        minus,       // parts[0]
        plus,        // parts[0]
        choose,      // parts[0] if parts[1] else parts[2], which may be missing
        attribute,   // parts[0] . value
        item,        // parts[0] [ parts[1] ]
        slice,       // parts[0] [ parts[1] : parts[2] : parts[3] ], null where left out
        call,        // parts[0] ( arguments )
        filter,      // parts[0] | value (arguments); parts[0] null inside a filter block
        test,        // parts[0] is value (arguments)
    };

    Type type;
    int line = 0;
    int depth = 1;
    Name name = 0;
    Value value;
    std::vector<ExprPtr> parts;
    std::vector<Operator> operators;
    std::vector<Comparison> comparisons;
    std::vector<Argument> arguments;
    FilterFunction filter = nullptr;  // null: unknown, an error when executed
    TestFunction test = nullptr;
};

/// What a loop or a set assigns to: one name, an attribute of a namespace, or several targets.
struct Target {
    Name name = 0;
    std::string_view attribute;   // of the namespace `name`; empty: the name itself
    std::vector<Target> several;  // not empty: unpack
};

struct Parameter {
    Name name;
    ExprPtr fallback;  // null: undefined when not given
};

struct Stmt {
    enum class Type : uint8_t {
        text,        // text
        print,       // expr
        branch,      // branches: the first whose condition holds; null condition: else
        loop,        // for target in expr if condition: body, else other
        set,         // target = expr
        set_block,   // target = body, through the filters of expr if there is one
        macro,       // macro
        call_block,  // expr is a call; macro is its caller
        filter,      // expr over body
        scope,       // body in a scope of its own (with, generation); assignments first
        leave,       // break
        next,        // continue
    };

    struct Branch {
        ExprPtr condition;
        std::vector<Stmt> body;
    };
    struct Macro {
        Name name = 0;
        std::vector<Parameter> parameters;
        std::vector<Stmt> body;
        bool wants_rest = false;      // the body speaks of varargs
        bool wants_keywords = false;  // the body speaks of kwargs
    };

    Type type;
    int line = 0;
    std::string_view text;
    ExprPtr expr;
    ExprPtr condition;
    Target target;
    std::vector<Stmt> body;
    std::vector<Stmt> other;
    std::vector<Branch> branches;
    std::unique_ptr<Macro> macro;
    std::vector<std::pair<Name, ExprPtr>> assignments;
    bool recursive = false;
};

/// Names the interpreter itself sets or asks for.
enum KnownName : Name { name_loop, name_caller, name_varargs, name_kwargs, known_names };

struct Program {
    Arena arena{size_t{1} << 30};  // texts of literals; as large as the source needs
    std::vector<std::string> names{"loop", "caller", "varargs", "kwargs"};
    std::vector<Stmt> body;
};

}  // namespace strata::jinja
