// The interpreter: walks a program's tree once, writing text.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja.h"
#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"

namespace strata::jinja {

struct Binding {
    Name name;
    Value value;
    Binding* next;
};

/// The names of a macro call or of one round of a loop; they end where it ends.
struct Scope {
    Scope* parent = nullptr;
    Binding* first = nullptr;
    bool captured = false;  // a macro may look into it after its end
};

struct Macro {
    const Stmt::Macro* code;
    Scope* scope;  // where it was defined
};

struct Space {
    struct Member {
        std::string_view name;
        Value value;
        Member* next;
    };
    Member* first = nullptr;
    Value* find(Renderer& renderer, std::string_view name);
};

/// The variable `loop`.
struct Loop {
    std::span<const Value> items;
    size_t index = 0;
    int depth = 0;
    const Stmt* code = nullptr;  // of a recursive loop
    Scope* scope = nullptr;      // around it
    const Value* last_changed = nullptr;
};

/// What cycler() and joiner() make.
struct Turns {
    Value items;  // a cycler's list, a joiner's text
    size_t at = 0;
};

class Renderer {
  public:
    Renderer(const Program& program, const Json& variables, const RenderOptions& options);

    std::string run();
    int line() const { return line_; }

    // For built-ins.
    Arena& arena() { return arena_; }
    const RenderOptions& options() const { return options_; }
    void step(int64_t count = 1) {
        if ((steps_ -= count) < 0) out_of_steps();
    }
    void look_at(size_t bytes) { step(static_cast<int64_t>(bytes / 64)); }
    /// A new text. Fails when it is larger than the output may be.
    Value text(std::string_view content);
    /// A new list.
    Value list_of(std::span<const Value> items, Kind kind = Kind::list);
    /// What printing the value writes.
    std::string_view printed(const Value& value);
    std::span<const Value> items(const Value& value);  // what iterating gives; fails where nothing does
    size_t length(const Value& value);
    bool contains(const Value& container, const Value& item);
    bool equal(const Value& a, const Value& b);
    int compare(const Value& a, const Value& b);
    Value attribute(const Value& object, std::string_view name);
    Value item(const Value& object, const Value& key);
    /// An attribute by a dotted path: "function.name", "0.type".
    Value path(const Value& object, std::string_view path);
    Value call(const Value& callee, const Call& call);
    Value sum(const Value& a, const Value& b) { return arithmetic(Operator::add, a, b); }
    /// Holds a JSON value as long as the rendering lasts: values point into it.
    const Json& keep(Json json) { return kept_.emplace_back(std::move(json)); }
    size_t text_limit() const { return options_.limits.output_bytes; }

  private:
    enum class Flow { on, leave, next };

    [[noreturn]] void out_of_steps() const;
    struct Nested;

    Flow run(const std::vector<Stmt>& body, Scope& scope);
    Flow run(const Stmt& stmt, Scope& scope);
    Flow run_loop(const Stmt& stmt, std::span<const Value> items, int depth, Scope& scope);
    void run_set(const Stmt& stmt, Scope& scope);
    Value captured(const std::vector<Stmt>& body, Scope& scope);
    void write(std::string_view text);

    Value eval(const Expr& expr, Scope& scope);
    Value eval_arithmetic(const Expr& expr, Scope& scope);
    Value eval_compare(const Expr& expr, Scope& scope);
    Value eval_call(const Expr& expr, Scope& scope, const Value* caller);
    Value eval_filter(const Expr& expr, Scope& scope, const Value* input);
    Value eval_slice(const Expr& expr, Scope& scope);
    Call eval_arguments(const Expr& expr, Scope& scope, const Value* caller);
    Value arithmetic(Operator sign, const Value& a, const Value& b);
    Value repeated(const Value& value, int64_t times);
    Value concatenated(std::span<const Value> texts);
    Value call_macro(const Macro& macro, const Call& call);
    Value bound(FilterFunction run, const Value& self, std::string_view name);

    static void capture(Scope& scope);
    void restart(Scope*& round);
    Value lookup(Name name, Scope& scope);
    void bind(Scope& scope, Name name, Value value);
    void assign(const Target& target, const Value& value, Scope& scope);

    const Program& program_;
    const RenderOptions& options_;
    Arena arena_;
    std::deque<Json> kept_;
    Value* globals_;
    Binding* spare_ = nullptr;  // bindings of rounds that are over
    std::string* out_ = nullptr;
    int64_t steps_;
    int macro_depth_ = 0;
    int nesting_ = 0;
    int line_ = 0;
};

}  // namespace strata::jinja
