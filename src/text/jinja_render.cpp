#include "text/jinja_render.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {

// Counts how many statements and expressions are open at once: the limit keeps the stack from overflowing.
struct Renderer::Nested {
    explicit Nested(Renderer& renderer) : renderer(renderer) {
        renderer.step();
        if (++renderer.nesting_ > renderer.options_.limits.nesting_depth)
            over_limit("the template recurses too deeply");
    }
    ~Nested() { --renderer.nesting_; }
    Renderer& renderer;
};

Value* Space::find(Renderer& renderer, std::string_view name) {
    int64_t passed = 0;
    Value* found = nullptr;
    for (Member* member = first; member && !found; member = member->next, ++passed) {
        if (member->name == name) found = &member->value;
    }
    renderer.step(passed / 8);
    return found;
}

Renderer::Renderer(const Program& program, const Json& variables, const RenderOptions& options)
    : program_(program),
      options_(options),
      arena_(options.limits.memory_bytes),
      globals_(arena_.array<Value>(program.names.size())),
      steps_(options.limits.steps) {
    for (size_t i = 0; i < program.names.size(); ++i) globals_[i] = undefined(program.names[i]);
    auto find = [&](std::string_view name) -> Value* {
        auto place = std::find(program.names.begin(), program.names.end(), name);
        return place == program.names.end() ? nullptr : &globals_[place - program.names.begin()];
    };
    for (const auto& [name, run] : global_functions()) {
        if (Value* slot = find(name)) *slot = bound(run, undefined(name), name);
    }
    if (!variables.is_object()) return;
    for (const auto& [name, value] : variables.get_ref<const Json::object_t&>()) {
        if (Value* slot = find(name)) *slot = from_json(arena_, value);
    }
}

std::string Renderer::run() {
    std::string out;
    out_ = &out;
    Scope* root = arena_.make(Scope{});
    run(program_.body, *root);
    return out;
}

void Renderer::out_of_steps() const {
    over_limit("the template takes more than " + std::to_string(options_.limits.steps) + " steps");
}

// Statements.

void Renderer::write(std::string_view text) {
    if (text.size() > text_limit() - out_->size()) {
        over_limit("the template writes more than " + std::to_string(text_limit()) + " bytes");
    }
    look_at(text.size());
    *out_ += text;
}

Renderer::Flow Renderer::run(const std::vector<Stmt>& body, Scope& scope) {
    for (const Stmt& stmt : body) {
        Flow flow = run(stmt, scope);
        if (flow != Flow::on) return flow;
    }
    return Flow::on;
}

Renderer::Flow Renderer::run(const Stmt& stmt, Scope& scope) {
    Nested nested(*this);
    line_ = stmt.line;
    switch (stmt.type) {
        case Stmt::Type::text: write(stmt.text); break;
        case Stmt::Type::print: {
            Value value = eval(*stmt.expr, scope);
            line_ = stmt.line;
            if (value.is_string()) {
                write(value.str());
            } else {
                write(printed(value));
            }
            break;
        }
        case Stmt::Type::branch:
            for (const Stmt::Branch& branch : stmt.branches) {
                if (!branch.condition || truth(eval(*branch.condition, scope))) return run(branch.body, scope);
            }
            break;
        case Stmt::Type::loop: {
            Value value = eval(*stmt.expr, scope);
            line_ = stmt.line;
            return run_loop(stmt, items(value), 0, scope);
        }
        case Stmt::Type::set:
        case Stmt::Type::set_block: run_set(stmt, scope); break;
        case Stmt::Type::macro: {
            Value value;
            value.kind = Kind::macro;
            value.macro = arena_.make(Macro{stmt.macro.get(), &scope});
            capture(scope);
            bind(scope, stmt.macro->name, value);
            break;
        }
        case Stmt::Type::call_block: {
            Value caller;
            caller.kind = Kind::macro;
            caller.macro = arena_.make(Macro{stmt.macro.get(), &scope});
            capture(scope);
            write(printed(eval_call(*stmt.expr, scope, &caller)));
            break;
        }
        case Stmt::Type::filter: {
            Value inside = captured(stmt.body, *arena_.make(Scope{&scope}));
            write(printed(eval_filter(*stmt.expr, scope, &inside)));
            break;
        }
        case Stmt::Type::scope: {
            Scope* inner = arena_.make(Scope{&scope});
            for (const auto& [name, expr] : stmt.assignments) bind(*inner, name, eval(*expr, scope));
            return run(stmt.body, *inner);
        }
        case Stmt::Type::leave: return Flow::leave;
        case Stmt::Type::next: return Flow::next;
    }
    return Flow::on;
}

Renderer::Flow Renderer::run_loop(const Stmt& stmt, std::span<const Value> items, int depth, Scope& scope) {
    Scope* round = arena_.make(Scope{&scope});
    if (stmt.condition) {
        Value* kept = arena_.array<Value>(items.size());
        size_t count = 0;
        for (const Value& item : items) {
            restart(round);
            assign(stmt.target, item, *round);
            if (truth(eval(*stmt.condition, *round))) kept[count++] = item;
        }
        items = {kept, count};
    }
    if (items.empty()) return run(stmt.other, scope);
    if (stmt.recursive) capture(scope);
    Value loop;
    loop.kind = Kind::loop;
    loop.loop = arena_.make(Loop{items, 0, depth, stmt.recursive ? &stmt : nullptr, &scope});
    for (size_t i = 0; i < items.size(); ++i) {
        step();
        loop.loop->index = i;
        restart(round);
        bind(*round, name_loop, loop);
        line_ = stmt.line;
        assign(stmt.target, items[i], *round);
        if (run(stmt.body, *round) == Flow::leave) break;
    }
    restart(round);
    return Flow::on;
}

void Renderer::run_set(const Stmt& stmt, Scope& scope) {
    Value value;
    if (stmt.type == Stmt::Type::set) {
        value = eval(*stmt.expr, scope);
    } else {
        value = captured(stmt.body, *arena_.make(Scope{&scope}));
        if (stmt.expr) value = eval_filter(*stmt.expr, scope, &value);
    }
    line_ = stmt.line;
    assign(stmt.target, value, scope);
}

Value Renderer::captured(const std::vector<Stmt>& body, Scope& scope) {
    std::string text;
    std::string* outer = std::exchange(out_, &text);
    run(body, scope);
    out_ = outer;
    return this->text(text);
}

void Renderer::capture(Scope& scope) {
    for (Scope* at = &scope; at && !at->captured; at = at->parent) at->captured = true;
}

/// Empties the scope for another round; one that is still looked at stays as it is and a new one takes its place.
void Renderer::restart(Scope*& round) {
    if (round->captured) {
        round = arena_.make(Scope{round->parent});
        return;
    }
    while (Binding* binding = round->first) {
        round->first = binding->next;
        binding->next = spare_;
        spare_ = binding;
    }
}

void Renderer::bind(Scope& scope, Name name, Value value) {
    int64_t passed = 0;
    for (Binding* binding = scope.first; binding; binding = binding->next, ++passed) {
        if (binding->name == name) {
            binding->value = value;
            return step(passed / 8);
        }
    }
    step(passed / 8);
    Binding* fresh = spare_ ? std::exchange(spare_, spare_->next) : arena_.make(Binding{});
    *fresh = {name, value, scope.first};
    scope.first = fresh;
}

Value Renderer::lookup(Name name, Scope& scope) {
    int64_t passed = 0;
    const Value* found = &globals_[name];
    for (Scope* at = &scope; at; at = at->parent) {
        for (Binding* binding = at->first; binding; binding = binding->next, ++passed) {
            if (binding->name != name) continue;
            step(passed / 8);
            return binding->value;
        }
    }
    step(passed / 8);
    return *found;
}

void Renderer::assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.several.empty()) {
        std::span<const Value> parts = items(value);
        if (parts.size() != target.several.size()) {
            fail("cannot unpack " + std::to_string(parts.size()) + " values into " +
                 std::to_string(target.several.size()) + " names");
        }
        for (size_t i = 0; i < parts.size(); ++i) assign(target.several[i], parts[i], scope);
        return;
    }
    if (target.attribute.empty()) return bind(scope, target.name, value);
    Value space = lookup(target.name, scope);
    if (!space.is(Kind::space)) fail("only attributes of a namespace can be set");
    if (Value* member = space.space->find(*this, target.attribute)) {
        *member = value;
    } else {
        space.space->first = arena_.make(Space::Member{target.attribute, value, space.space->first});
    }
}

// Expressions.

Value Renderer::eval(const Expr& expr, Scope& scope) {
    Nested nested(*this);
    line_ = expr.line;
    switch (expr.type) {
        case Expr::Type::constant: return expr.value;
        case Expr::Type::variable: return lookup(expr.name, scope);
        case Expr::Type::list:
        case Expr::Type::tuple: {
            Value* parts = arena_.array<Value>(expr.parts.size());
            for (size_t i = 0; i < expr.parts.size(); ++i) parts[i] = eval(*expr.parts[i], scope);
            return list({parts, expr.parts.size()}, expr.type == Expr::Type::list ? Kind::list : Kind::tuple);
        }
        case Expr::Type::dict: {
            std::vector<Entry> entries(expr.parts.size() / 2);
            for (size_t i = 0; i < entries.size(); ++i) {
                entries[i] = {eval(*expr.parts[2 * i], scope), eval(*expr.parts[2 * i + 1], scope)};
                if (entries[i].key.is_string()) look_at(entries[i].key.size);
            }
            line_ = expr.line;
            return make_dict(arena_, std::move(entries));
        }
        case Expr::Type::arithmetic: return eval_arithmetic(expr, scope);
        case Expr::Type::compare: return eval_compare(expr, scope);
        case Expr::Type::all:
        case Expr::Type::any: {
            Value value;
            for (const ExprPtr& part : expr.parts) {
                value = eval(*part, scope);
                if (truth(value) == (expr.type == Expr::Type::any)) break;
            }
            return value;
        }
        case Expr::Type::negate: return boolean(!truth(eval(*expr.parts[0], scope)));
        case Expr::Type::minus:
        case Expr::Type::plus: {
            Value value = eval(*expr.parts[0], scope);
            line_ = expr.line;
            if (!value.is_number()) fail(std::string(kind_name(value)) + " has no sign");
            return expr.type == Expr::Type::minus ? arithmetic(Operator::subtract, integer(0), value)
                                                  : arithmetic(Operator::add, integer(0), value);
        }
        case Expr::Type::choose:
            if (truth(eval(*expr.parts[1], scope))) return eval(*expr.parts[0], scope);
            return expr.parts[2] ? eval(*expr.parts[2], scope) : undefined("an if without else");
        case Expr::Type::attribute: {
            Value object = eval(*expr.parts[0], scope);
            line_ = expr.line;
            return attribute(object, expr.value.str());
        }
        case Expr::Type::item: {
            Value object = eval(*expr.parts[0], scope);
            Value key = eval(*expr.parts[1], scope);
            line_ = expr.line;
            return item(object, key);
        }
        case Expr::Type::slice: return eval_slice(expr, scope);
        case Expr::Type::call: return eval_call(expr, scope, nullptr);
        case Expr::Type::filter: return eval_filter(expr, scope, nullptr);
        case Expr::Type::test: {
            Value value = eval(*expr.parts[0], scope);
            Call call = eval_arguments(expr, scope, nullptr);
            line_ = expr.line;
            if (!expr.test) fail("there is no test " + quoted(expr.value.str()));
            return boolean(expr.test(*this, value, call));
        }
    }
    return {};
}

Value Renderer::concatenated(std::span<const Value> texts) {
    size_t size = 0;
    for (const Value& text : texts) size += text.size;
    if (size > text_limit()) over_limit("a text grows beyond " + std::to_string(text_limit()) + " bytes");
    look_at(size);
    char* all = static_cast<char*>(arena_.allocate(size));
    char* place = all;
    for (const Value& text : texts) {
        if (text.size == 0) continue;
        std::memcpy(place, text.text, text.size);
        place += text.size;
    }
    return string({all, size});
}

Value Renderer::eval_arithmetic(const Expr& expr, Scope& scope) {
    size_t count = expr.parts.size();
    Value* parts = arena_.array<Value>(count);
    for (size_t i = 0; i < count; ++i) parts[i] = eval(*expr.parts[i], scope);
    line_ = expr.line;
    if (expr.operators[0] == Operator::join) {  // a level of its own: all are
        for (size_t i = 0; i < count; ++i) parts[i] = string(printed(parts[i]));
        return concatenated({parts, count});
    }
    Value result = parts[0];
    for (size_t i = 1; i < count;) {
        // A run of texts becomes one text at once.
        size_t end = i;
        while (result.is_string() && end < count && expr.operators[end - 1] == Operator::add &&
               parts[end].is_string()) {
            ++end;
        }
        if (end > i) {
            parts[i - 1] = result;
            result = concatenated({parts + i - 1, end - i + 1});
            i = end;
        } else {
            result = arithmetic(expr.operators[i - 1], result, parts[i]);
            ++i;
        }
    }
    return result;
}

Value Renderer::repeated(const Value& value, int64_t times) {
    if (times <= 0 || value.size == 0) return value.is_string() ? string({}) : list({}, value.kind);
    if (value.is_string()) {
        if (times > static_cast<int64_t>(text_limit() / value.size)) {
            over_limit("a text grows beyond " + std::to_string(text_limit()) + " bytes");
        }
        std::string all;
        all.reserve(static_cast<size_t>(times) * value.size);
        for (int64_t i = 0; i < times; ++i) all += value.str();
        return text(all);
    }
    if (times > steps_ / value.size) out_of_steps();
    std::vector<Value> all;
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), value.items, value.items + value.size);
    return list_of(all, value.kind);
}

Value Renderer::arithmetic(Operator sign, const Value& a, const Value& b) {
    auto refuse = [&](const char* what) {
        fail(std::string("cannot ") + what + " " + kind_name(a) + " and " + kind_name(b));
    };
    if (a.is_undefined() || b.is_undefined()) {
        fail(quoted((a.is_undefined() ? a : b).str()) + " is undefined");
    }
    if (sign == Operator::modulo && a.is_string()) return text(format_percent(*this, a.str(), b));
    if (sign == Operator::multiply) {
        if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeated(a, b.as_integer());
        if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeated(b, a.as_integer());
    }
    if (sign == Operator::add && a.kind == b.kind) {
        if (a.is_string()) {
            Value both[] = {a, b};
            return concatenated(both);
        }
        if (a.is_sequence()) {
            step(a.size / 8 + b.size / 8);
            Value* all = arena_.array<Value>(size_t{a.size} + b.size);
            std::copy_n(a.items, a.size, all);
            std::copy_n(b.items, b.size, all + a.size);
            return list({all, size_t{a.size} + b.size}, a.kind);
        }
    }
    if (!a.is_number() || !b.is_number()) {
        switch (sign) {
            case Operator::add: refuse("add"); break;
            case Operator::subtract: refuse("subtract"); break;
            case Operator::multiply: refuse("multiply"); break;
            default: refuse("divide"); break;
        }
    }
    if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) fail("an integer beyond 64 bits can only be printed");
    bool whole = a.is_integral() && b.is_integral();
    int64_t x = whole ? a.as_integer() : 0, y = whole ? b.as_integer() : 0, result = 0;
    double p = a.as_real(), q = b.as_real();
    auto checked = [](bool overflow) {
        if (overflow) fail("the result does not fit into 64 bits");
    };
    switch (sign) {
        case Operator::add:
            if (!whole) return real(p + q);
            checked(__builtin_add_overflow(x, y, &result));
            return integer(result);
        case Operator::subtract:
            if (!whole) return real(a.is_integral() && a.as_integer() == 0 ? -q : p - q);  // -0.0 keeps its sign
            checked(__builtin_sub_overflow(x, y, &result));
            return integer(result);
        case Operator::multiply:
            if (!whole) return real(p * q);
            checked(__builtin_mul_overflow(x, y, &result));
            return integer(result);
        case Operator::divide:
            if (q == 0) fail("division by zero");
            return real(p / q);
        case Operator::divide_down:
            if (q == 0) fail("division by zero");
            if (!whole) return real(std::floor(p / q));
            checked(y == -1 && x == std::numeric_limits<int64_t>::min());
            result = x / y;
            if (x % y != 0 && (x < 0) != (y < 0)) --result;
            return integer(result);
        case Operator::modulo:
            if (q == 0) fail("division by zero");
            if (!whole) {
                double rest = std::fmod(p, q);
                if (rest != 0 && (rest < 0) != (q < 0)) rest += q;
                return real(rest);
            }
            if (y == -1) return integer(0);
            result = x % y;
            if (result != 0 && (result < 0) != (y < 0)) result += y;
            return integer(result);
        case Operator::power: {
            if (!whole || y < 0) {
                if (p == 0 && q < 0) fail("division by zero");
                return real(std::pow(p, q));
            }
            result = 1;
            for (int64_t power = y; power > 0; power >>= 1) {
                if (power & 1) checked(__builtin_mul_overflow(result, x, &result));
                if (power > 1) checked(__builtin_mul_overflow(x, x, &x));
            }
            return integer(result);
        }
        case Operator::join: break;
    }
    return {};
}

Value Renderer::eval_compare(const Expr& expr, Scope& scope) {
    Value left = eval(*expr.parts[0], scope);
    for (size_t i = 0; i < expr.comparisons.size(); ++i) {
        Value right = eval(*expr.parts[i + 1], scope);
        line_ = expr.line;
        bool holds = false;
        switch (expr.comparisons[i]) {
            case Comparison::eq: holds = equal(left, right); break;
            case Comparison::ne: holds = !equal(left, right); break;
            case Comparison::lt: holds = compare(left, right) < 0; break;
            case Comparison::le: holds = compare(left, right) <= 0; break;
            case Comparison::gt: holds = compare(left, right) > 0; break;
            case Comparison::ge: holds = compare(left, right) >= 0; break;
            case Comparison::in: holds = contains(right, left); break;
            case Comparison::not_in: holds = !contains(right, left); break;
        }
        if (!holds) return boolean(false);
        left = right;
    }
    return boolean(true);
}

Value Renderer::eval_slice(const Expr& expr, Scope& scope) {
    Value object = eval(*expr.parts[0], scope);
    auto bound = [&](const ExprPtr& part) -> std::optional<int64_t> {
        if (!part) return std::nullopt;
        Value value = eval(*part, scope);
        if (value.is(Kind::none)) return std::nullopt;
        if (!value.is_integral()) fail("slices need integers");
        return value.as_integer();
    };
    auto from = bound(expr.parts[1]), to = bound(expr.parts[2]), by = bound(expr.parts[3]);
    line_ = expr.line;
    int64_t stride = by.value_or(1);
    if (stride == 0) fail("a slice cannot have a step of 0");
    if (!object.is_string() && !object.is_sequence()) {
        if (object.is_undefined()) fail(quoted(object.str()) + " is undefined");
        fail(std::string(kind_name(object)) + " cannot be sliced");
    }
    auto size = static_cast<int64_t>(length(object));
    int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
    auto place = [&](std::optional<int64_t> at, int64_t fallback) {
        if (!at) return fallback;
        return std::clamp(*at < 0 ? *at + size : *at, low, high);
    };
    int64_t start = place(from, stride > 0 ? low : high), stop = place(to, stride > 0 ? high : low);
    if (object.is_string() && stride == 1) {
        look_at(object.size);
        if (start >= stop) return string({});
        return string(slice(object.str(), static_cast<size_t>(start), static_cast<size_t>(stop)));
    }
    std::span<const Value> all = items(object);
    std::vector<Value> picked;
    for (int64_t i = start; stride > 0 ? i < stop : i > stop;) {
        step();
        picked.push_back(all[static_cast<size_t>(i)]);
        if (__builtin_add_overflow(i, stride, &i)) break;
    }
    return object.is_string() ? concatenated(picked) : list_of(picked, object.kind);
}

Call Renderer::eval_arguments(const Expr& expr, Scope& scope, const Value* caller) {
    Call call;
    if (expr.value.is_string()) call.name = expr.value.str();
    size_t count = expr.arguments.size();
    if (count == 0 && !caller) return call;
    size_t by_place = 0;
    while (by_place < count && expr.arguments[by_place].keyword.empty()) ++by_place;
    Value* places = arena_.array<Value>(by_place);
    for (size_t i = 0; i < by_place; ++i) places[i] = eval(*expr.arguments[i].value, scope);
    using Named = std::pair<std::string_view, Value>;
    size_t named = count - by_place + (caller ? 1 : 0);
    Named* names = arena_.array<Named>(named);
    for (size_t i = by_place; i < count; ++i) {
        names[i - by_place] = {expr.arguments[i].keyword, eval(*expr.arguments[i].value, scope)};
    }
    if (caller) names[named - 1] = {"caller", *caller};
    call.positional = {places, by_place};
    call.keyword = {names, named};
    return call;
}

Value Renderer::eval_call(const Expr& expr, Scope& scope, const Value* caller) {
    const Expr& callee = *expr.parts[0];
    if (callee.type == Expr::Type::attribute) {
        // A method needs no bound value in between.
        Value self = eval(*callee.parts[0], scope);
        std::string_view name = callee.value.str();
        if (FilterFunction method = find_method(self, name)) {
            Call arguments = eval_arguments(expr, scope, caller);
            arguments.name = name;
            line_ = expr.line;
            return method(*this, self, arguments);
        }
        line_ = expr.line;
        if (is_refused_method(self, name)) {
            fail(quoted(name) + " of " + kind_name(self) + " is not allowed: values cannot be changed");
        }
        Value value = attribute(self, name);
        Call arguments = eval_arguments(expr, scope, caller);
        line_ = expr.line;
        if (value.is_undefined()) fail(std::string(kind_name(self)) + " has no method " + quoted(name));
        return call(value, arguments);
    }
    Value value = eval(callee, scope);
    Call arguments = eval_arguments(expr, scope, caller);
    line_ = expr.line;
    return call(value, arguments);
}

Value Renderer::call(const Value& callee, const Call& arguments) {
    step();
    switch (callee.kind) {
        case Kind::function: {
            Call named = arguments;
            named.name = callee.function->name;
            return callee.function->run(*this, callee.function->self, named);
        }
        case Kind::macro: return call_macro(*callee.macro, arguments);
        case Kind::loop: {
            if (!callee.loop->code) fail("this loop is not recursive");
            if (arguments.positional.size() != 1) fail("loop(..) takes the items of the inner loop");
            std::string text;
            std::string* outer = std::exchange(out_, &text);
            int line = line_;
            Nested nested(*this);
            run_loop(*callee.loop->code, items(arguments.positional[0]), callee.loop->depth + 1, *callee.loop->scope);
            out_ = outer;
            line_ = line;
            return this->text(text);
        }
        case Kind::turns: {  // a joiner: nothing the first time, then its text
            if (!callee.turns->items.is_string()) break;
            return callee.turns->at++ == 0 ? string({}) : callee.turns->items;
        }
        case Kind::undefined: fail(quoted(callee.str()) + " is undefined and cannot be called");
        default: break;
    }
    fail(std::string(kind_name(callee)) + " cannot be called");
}

Value Renderer::call_macro(const Macro& macro, const Call& arguments) {
    const Stmt::Macro& code = *macro.code;
    std::string name = program_.names[static_cast<size_t>(code.name)];
    if (macro_depth_ >= options_.limits.macro_depth) over_limit("macros call each other too deeply");
    Scope* scope = arena_.make(Scope{macro.scope});
    size_t given = arguments.positional.size();
    if (given > code.parameters.size() && !code.wants_rest) {
        fail("macro '" + name + "' takes at most " + std::to_string(code.parameters.size()) + " arguments");
    }
    std::vector<Entry> rest;
    std::vector<bool> by_name(code.parameters.size());
    for (const auto& [keyword, value] : arguments.keyword) {
        size_t i = 0;
        while (i < code.parameters.size() && program_.names[static_cast<size_t>(code.parameters[i].name)] != keyword)
            ++i;
        if (i < code.parameters.size()) {
            if (i < given) fail("macro '" + name + "' got " + quoted(keyword) + " twice");
            by_name[i] = true;
            bind(*scope, code.parameters[i].name, value);
        } else if (keyword == "caller") {
            bind(*scope, name_caller, value);
        } else if (code.wants_keywords) {
            rest.push_back({string(keyword), value});
        } else {
            fail("macro '" + name + "' has no parameter " + quoted(keyword));
        }
    }
    Nested nested(*this);
    for (size_t i = 0; i < code.parameters.size(); ++i) {
        const Parameter& parameter = code.parameters[i];
        if (i < given) {
            bind(*scope, parameter.name, arguments.positional[i]);
        } else if (!by_name[i]) {
            std::string_view parameter_name = program_.names[static_cast<size_t>(parameter.name)];
            bind(*scope, parameter.name,
                 parameter.fallback ? eval(*parameter.fallback, *scope) : undefined(parameter_name));
        }
    }
    if (code.wants_rest) {
        size_t taken = std::min(given, code.parameters.size());
        bind(*scope, name_varargs, list_of(arguments.positional.subspan(taken), Kind::tuple));
    }
    if (code.wants_keywords) bind(*scope, name_kwargs, make_dict(arena_, std::move(rest)));
    ++macro_depth_;
    int line = line_;
    Value result = captured(code.body, *scope);
    line_ = line;
    --macro_depth_;
    return result;
}

Value Renderer::eval_filter(const Expr& expr, Scope& scope, const Value* input) {
    // In a filter block the innermost filter has no input of its own.
    Value value;
    if (!expr.parts[0]) {
        value = *input;
    } else if (input && expr.parts[0]->type == Expr::Type::filter) {
        value = eval_filter(*expr.parts[0], scope, input);
    } else {
        value = eval(*expr.parts[0], scope);
    }
    Call call = eval_arguments(expr, scope, nullptr);
    line_ = expr.line;
    if (!expr.filter) fail("there is no filter " + quoted(expr.value.str()));
    step();
    return expr.filter(*this, value, call);
}

// What built-ins and expressions share.

Value Renderer::text(std::string_view content) {
    if (content.size() > text_limit()) over_limit("a text grows beyond " + std::to_string(text_limit()) + " bytes");
    look_at(content.size());
    return string(arena_.copy(content));
}

Value Renderer::list_of(std::span<const Value> items, Kind kind) {
    step(static_cast<int64_t>(items.size() / 8));
    Value* copy = arena_.array<Value>(items.size());
    std::copy(items.begin(), items.end(), copy);
    return list({copy, items.size()}, kind);
}

std::string_view Renderer::printed(const Value& value) {
    if (value.is_string()) return value.str();
    if (value.is_undefined()) return {};
    std::string out;
    print(out, value, text_limit());
    return text(out).str();
}

std::span<const Value> Renderer::items(const Value& value) {
    switch (value.kind) {
        case Kind::undefined: return {};
        case Kind::list:
        case Kind::tuple: return value.list();
        case Kind::string: {
            step(value.size / 8);
            size_t count = utf8_length(value.str());
            Value* units = arena_.array<Value>(count);
            size_t at = 0;
            for (size_t i = 0; i < count; ++i) {
                CodePoint point = decode_utf8(value.str(), at);
                units[i] = string(value.str().substr(at, point.size));
                at += point.size;
            }
            return {units, count};
        }
        case Kind::dict: {
            step(value.dict->size / 8);
            Value* keys = arena_.array<Value>(value.dict->size);
            for (uint32_t i = 0; i < value.dict->size; ++i) keys[i] = value.dict->entries[i].key;
            return {keys, value.dict->size};
        }
        default: fail(std::string(kind_name(value)) + " cannot be iterated");
    }
}

size_t Renderer::length(const Value& value) {
    switch (value.kind) {
        case Kind::undefined: return 0;
        case Kind::string: look_at(value.size); return utf8_length(value.str());
        case Kind::list:
        case Kind::tuple: return value.size;
        case Kind::dict: return value.dict->size;
        default: fail(std::string(kind_name(value)) + " has no length");
    }
}

bool Renderer::contains(const Value& container, const Value& item) {
    if (item.is_string()) look_at(item.size);
    switch (container.kind) {
        case Kind::undefined: return false;
        case Kind::string:
            if (!item.is_string()) fail(std::string("a str cannot contain ") + kind_name(item));
            look_at(container.size);
            return find_text(container.str(), item.str()) != std::string_view::npos;
        case Kind::list:
        case Kind::tuple:
            return std::any_of(container.items, container.items + container.size,
                               [&](const Value& other) { return equal(other, item); });
        case Kind::dict: return container.dict->find(item) != nullptr;
        case Kind::space: return item.is_string() && container.space->find(*this, item.str());
        default: fail(std::string(kind_name(container)) + " contains nothing");
    }
}

bool Renderer::equal(const Value& a, const Value& b) {
    return jinja::equal(a, b, steps_);
}

int Renderer::compare(const Value& a, const Value& b) {
    return jinja::compare(a, b, steps_);
}

Value Renderer::bound(FilterFunction run, const Value& self, std::string_view name) {
    Value value;
    value.kind = Kind::function;
    value.function = arena_.make(Function{run, self, name});
    return value;
}

Value Renderer::attribute(const Value& object, std::string_view name) {
    look_at(name.size());
    if (object.is_undefined()) {
        fail(quoted(object.str()) + " is undefined, so it has no " + quoted(name));
    }
    if (FilterFunction method = find_method(object, name)) return bound(method, object, name);
    if (is_refused_method(object, name)) return undefined(name);
    switch (object.kind) {
        case Kind::dict:
            if (const Value* found = object.dict->find(name)) return *found;
            break;
        case Kind::space:
            if (const Value* found = object.space->find(*this, name)) return *found;
            break;
        case Kind::loop: {
            const Loop& loop = *object.loop;
            auto at = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items.size());
            if (name == "index") return integer(at + 1);
            if (name == "index0") return integer(at);
            if (name == "revindex") return integer(size - at);
            if (name == "revindex0") return integer(size - at - 1);
            if (name == "first") return boolean(at == 0);
            if (name == "last") return boolean(at == size - 1);
            if (name == "length") return integer(size);
            if (name == "depth") return integer(loop.depth + 1);
            if (name == "depth0") return integer(loop.depth);
            if (name == "previtem" && at > 0) return loop.items[loop.index - 1];
            if (name == "nextitem" && at + 1 < size) return loop.items[loop.index + 1];
            break;
        }
        case Kind::turns:
            if (name == "current" && object.turns->items.is_sequence()) {
                return object.turns->items.items[object.turns->at % object.turns->items.size];
            }
            break;
        case Kind::macro:
            if (name == "name") return string(program_.names[static_cast<size_t>(object.macro->code->name)]);
            break;
        default: break;
    }
    return undefined(name);
}

Value Renderer::item(const Value& object, const Value& key) {
    if (key.is_string()) look_at(key.size);
    if (object.is_undefined()) fail(quoted(object.str()) + " is undefined, so it has no items");
    if (object.is(Kind::dict)) {
        if (const Value* found = object.dict->find(key)) return *found;
    }
    if ((object.is_string() || object.is_sequence()) && key.is_integral()) {
        auto size = static_cast<int64_t>(length(object));
        int64_t at = key.as_integer();
        if (at < 0) at += size;
        if (at < 0 || at >= size) return undefined("an item out of range");
        if (object.is_sequence()) return object.items[at];
        return string(slice(object.str(), static_cast<size_t>(at), static_cast<size_t>(at) + 1));
    }
    if (key.is_string()) {
        if (object.is(Kind::dict)) {  // no such key: what is left are methods
            if (FilterFunction method = find_method(object, key.str())) return bound(method, object, key.str());
            return undefined(key.str());
        }
        return attribute(object, key.str());
    }
    return undefined("an item");
}

Value Renderer::path(const Value& object, std::string_view path) {
    Value value = object;
    while (true) {
        size_t dot = path.find('.');
        std::string_view step = path.substr(0, dot);
        bool number = !step.empty() && step.size() < 10 && step.find_first_not_of("0123456789") == step.npos;
        if (number) {
            value = item(value, integer(std::atoll(std::string(step).c_str())));
        } else {
            value = item(value, string(step));
        }
        if (dot == path.npos) return value;
        path.remove_prefix(dot + 1);
    }
}

}  // namespace strata::jinja
