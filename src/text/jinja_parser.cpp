#include "text/jinja_parser.h"

#include <algorithm>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_lexer.h"

namespace strata::jinja {
namespace {

constexpr int kMaxDepth = 200;

class Parser {
  public:
    Parser(Program& program, std::vector<Token> tokens) : program_(program), tokens_(std::move(tokens)) {
        for (size_t i = 0; i < program_.names.size(); ++i) names_.emplace(program_.names[i], static_cast<Name>(i));
    }

    void run() {
        program_.body = statements({});
        if (!now().is(Token::Type::end)) unexpected();
    }

  private:
    using Ends = std::initializer_list<std::string_view>;

    // Tokens.

    const Token& now() const { return tokens_[at_]; }
    const Token& ahead(size_t n = 1) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
    const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool accept(std::string_view symbol) {
        if (!now().is_symbol(symbol)) return false;
        next();
        return true;
    }
    bool accept_name(std::string_view name) {
        if (!now().is_name(name)) return false;
        next();
        return true;
    }
    void expect(std::string_view symbol) {
        if (!accept(symbol)) syntax_error(now().line, "expected " + quoted(symbol) + " but found " + found());
    }
    void expect_block_end() {
        if (!now().is(Token::Type::block_end)) unexpected();
        next();
    }
    std::string_view expect_name() {
        if (!now().is(Token::Type::name)) syntax_error(now().line, "expected a name but found " + found());
        return next().text;
    }
    std::string found() const {
        switch (now().type) {
            case Token::Type::end: return "the end of the template";
            case Token::Type::block_end: return "the end of the tag";
            case Token::Type::print_end: return "the end of the tag";
            case Token::Type::string: return "a string";
            default: return quoted(now().text);
        }
    }
    [[noreturn]] void unexpected() const { syntax_error(now().line, "unexpected " + found()); }

    Name name_of(std::string_view text) {
        auto [place, fresh] = names_.emplace(std::string(text), static_cast<Name>(program_.names.size()));
        if (fresh) program_.names.emplace_back(text);
        return place->second;
    }

    // Nesting: of the parser's own calls and of the tree, which postfixes deepen without nesting in the source.

    struct Level {
        explicit Level(Parser& parser) : parser(parser) {
            if (++parser.depth_ > kMaxDepth) parser.too_deep();
        }
        ~Level() { --parser.depth_; }
        Parser& parser;
    };
    [[noreturn]] void too_deep() const {
        syntax_error(now().line, "the template is nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }

    ExprPtr make(Expr::Type type, int line) {
        auto expr = std::make_unique<Expr>();
        expr->type = type;
        expr->line = line;
        return expr;
    }
    void adopt(Expr& parent, ExprPtr child) {
        if (child) {
            parent.depth = std::max(parent.depth, child->depth + 1);
            if (parent.depth > kMaxDepth) too_deep();
        }
        parent.parts.push_back(std::move(child));
    }
    ExprPtr wrap(Expr::Type type, int line, ExprPtr child) {
        ExprPtr expr = make(type, line);
        adopt(*expr, std::move(child));
        return expr;
    }

    // Expressions, in the order of their precedence.

    ExprPtr expression() {
        Level level(*this);
        int line = now().line;
        ExprPtr value = any_of();
        while (accept_name("if")) {
            ExprPtr choice = wrap(Expr::Type::choose, line, std::move(value));
            adopt(*choice, any_of());
            adopt(*choice, accept_name("else") ? expression() : nullptr);
            value = std::move(choice);
        }
        return value;
    }

    ExprPtr any_of() {
        int line = now().line;
        ExprPtr first = all_of();
        if (!now().is_name("or")) return first;
        ExprPtr any = wrap(Expr::Type::any, line, std::move(first));
        while (accept_name("or")) adopt(*any, all_of());
        return any;
    }

    ExprPtr all_of() {
        int line = now().line;
        ExprPtr first = negation();
        if (!now().is_name("and")) return first;
        ExprPtr all = wrap(Expr::Type::all, line, std::move(first));
        while (accept_name("and")) adopt(*all, negation());
        return all;
    }

    ExprPtr negation() {
        int line = now().line;
        if (!accept_name("not")) return comparison();
        Level level(*this);
        return wrap(Expr::Type::negate, line, negation());
    }

    bool comparison_sign(Comparison& sign) {
        static constexpr std::pair<std::string_view, Comparison> kSigns[] = {
            {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<=", Comparison::le},
            {">=", Comparison::ge}, {"<", Comparison::lt},  {">", Comparison::gt}};
        for (const auto& [text, known] : kSigns) {
            if (accept(text)) return sign = known, true;
        }
        if (accept_name("in")) return sign = Comparison::in, true;
        if (now().is_name("not") && ahead().is_name("in")) {
            next(), next();
            return sign = Comparison::not_in, true;
        }
        return false;
    }

    ExprPtr comparison() {
        int line = now().line;
        ExprPtr first = sum();
        Comparison sign;
        if (!comparison_sign(sign)) return first;
        ExprPtr chain = wrap(Expr::Type::compare, line, std::move(first));
        do {
            chain->comparisons.push_back(sign);
            adopt(*chain, sum());
        } while (comparison_sign(sign));
        return chain;
    }

    template <class Operand>
    ExprPtr operators(Operand operand, std::initializer_list<std::pair<std::string_view, Operator>> known) {
        int line = now().line;
        ExprPtr value = operand();
        ExprPtr chain;
        while (true) {
            auto sign = std::find_if(known.begin(), known.end(), [&](auto& k) { return now().is_symbol(k.first); });
            if (sign == known.end()) return chain ? std::move(chain) : std::move(value);
            next();
            if (!chain) chain = wrap(Expr::Type::arithmetic, line, std::move(value));
            chain->operators.push_back(sign->second);
            adopt(*chain, operand());
        }
    }

    ExprPtr sum() {
        return operators([this] { return joined(); }, {{"+", Operator::add}, {"-", Operator::subtract}});
    }
    ExprPtr joined() {
        return operators([this] { return product(); }, {{"~", Operator::join}});
    }
    ExprPtr product() {
        return operators([this] { return power(); }, {{"*", Operator::multiply},
                                                      {"/", Operator::divide},
                                                      {"//", Operator::divide_down},
                                                      {"%", Operator::modulo}});
    }
    ExprPtr power() {
        return operators([this] { return unit(true); }, {{"**", Operator::power}});
    }

    ExprPtr unit(bool filters) {
        int line = now().line;
        ExprPtr value;
        if (accept("-")) {
            Level level(*this);
            value = wrap(Expr::Type::minus, line, unit(false));
        } else if (accept("+")) {
            Level level(*this);
            value = wrap(Expr::Type::plus, line, unit(false));
        } else {
            value = primary();
        }
        value = postfixes(std::move(value));
        return filters ? filters_and_tests(std::move(value)) : std::move(value);
    }

    ExprPtr constant(int line, Value value) {
        ExprPtr expr = make(Expr::Type::constant, line);
        expr->value = value;
        return expr;
    }

    ExprPtr primary() {
        const Token& token = now();
        int line = token.line;
        switch (token.type) {
            case Token::Type::name: {
                next();
                std::string_view text = token.text;
                if (text == "true" || text == "True") return constant(line, boolean(true));
                if (text == "false" || text == "False") return constant(line, boolean(false));
                if (text == "none" || text == "None") return constant(line, none());
                ExprPtr variable = make(Expr::Type::variable, line);
                variable->name = name_of(text);
                if (!macros_.empty()) {
                    macros_.back()->wants_rest |= variable->name == name_varargs;
                    macros_.back()->wants_keywords |= variable->name == name_kwargs;
                }
                return variable;
            }
            case Token::Type::integer: next(); return constant(line, integer(token.integer));
            case Token::Type::real: next(); return constant(line, real(token.real));
            case Token::Type::big_integer: {
                next();
                Value big = string(program_.arena.copy(token.text));
                big.kind = Kind::big_integer;
                return constant(line, big);
            }
            case Token::Type::string: {
                next();
                if (!now().is(Token::Type::string)) {
                    // The source goes away, the program stays.
                    return constant(line, string(program_.arena.copy(token.text)));
                }
                std::string all(token.text);
                while (now().is(Token::Type::string)) all += next().text;
                return constant(line, string(program_.arena.copy(all)));
            }
            default: break;
        }
        if (accept("(")) {
            ExprPtr value = tuple(true, [this] { return expression(); });
            expect(")");
            return value;
        }
        if (accept("[")) {
            ExprPtr items = make(Expr::Type::list, line);
            while (!accept("]")) {
                adopt(*items, expression());
                if (!now().is_symbol("]")) expect(",");
            }
            return items;
        }
        if (accept("{")) {
            ExprPtr items = make(Expr::Type::dict, line);
            while (!accept("}")) {
                adopt(*items, expression());
                expect(":");
                adopt(*items, expression());
                if (!now().is_symbol("}")) expect(",");
            }
            return items;
        }
        unexpected();
    }

    /// One expression, or a tuple where commas follow; empty only inside parentheses.
    template <class Item>
    ExprPtr tuple(bool parentheses, Item item) {
        int line = now().line;
        if (parentheses && now().is_symbol(")")) return make(Expr::Type::tuple, line);
        ExprPtr first = item();
        if (!now().is_symbol(",")) return first;
        ExprPtr items = wrap(Expr::Type::tuple, line, std::move(first));
        while (accept(",")) {
            const Token& token = now();
            if (token.is_symbol(")") || token.is_symbol("=") || token.is(Token::Type::block_end) ||
                token.is(Token::Type::print_end)) {
                break;
            }
            adopt(*items, item());
        }
        return items;
    }

    ExprPtr postfixes(ExprPtr value) {
        while (true) {
            int line = now().line;
            if (accept(".")) {
                if (now().is(Token::Type::integer)) {
                    value = wrap(Expr::Type::item, line, std::move(value));
                    adopt(*value, constant(line, integer(next().integer)));
                } else {
                    std::string_view name = expect_name();
                    value = wrap(Expr::Type::attribute, line, std::move(value));
                    value->value = string(program_.arena.copy(name));
                }
            } else if (accept("[")) {
                value = subscript(line, std::move(value));
            } else if (now().is_symbol("(")) {
                value = wrap(Expr::Type::call, line, std::move(value));
                arguments(*value);
            } else {
                return value;
            }
        }
    }

    ExprPtr subscript(int line, ExprPtr value) {
        ExprPtr first;
        if (!now().is_symbol(":")) {
            first = tuple(false, [this] { return expression(); });
            if (accept("]")) {
                ExprPtr item = wrap(Expr::Type::item, line, std::move(value));
                adopt(*item, std::move(first));
                return item;
            }
        }
        ExprPtr slice = wrap(Expr::Type::slice, line, std::move(value));
        adopt(*slice, std::move(first));
        expect(":");
        adopt(*slice, now().is_symbol(":") || now().is_symbol("]") ? nullptr : expression());
        adopt(*slice, accept(":") && !now().is_symbol("]") ? expression() : nullptr);
        expect("]");
        return slice;
    }

    void arguments(Expr& call) {
        expect("(");
        while (!accept(")")) {
            if (now().is_symbol("*") || now().is_symbol("**")) {
                syntax_error(now().line, "arguments with * and ** are not supported");
            }
            Argument argument;
            if (now().is(Token::Type::name) && ahead().is_symbol("=")) {
                argument.keyword = program_.arena.copy(next().text);
                next();
            } else if (!call.arguments.empty() && !call.arguments.back().keyword.empty()) {
                syntax_error(now().line, "an argument by position comes after one by name");
            }
            argument.value = expression();
            call.depth = std::max(call.depth, argument.value->depth + 1);
            if (call.depth > kMaxDepth) too_deep();
            call.arguments.push_back(std::move(argument));
            if (!now().is_symbol(")")) expect(",");
        }
    }

    ExprPtr filters_and_tests(ExprPtr value) {
        while (true) {
            if (now().is_symbol("|")) {
                value = filter(std::move(value));
            } else if (now().is_name("is")) {
                value = test(std::move(value));
            } else if (now().is_symbol("(")) {
                value = wrap(Expr::Type::call, now().line, std::move(value));
                arguments(*value);
            } else {
                return value;
            }
        }
    }

    std::string dotted_name() {
        std::string name(expect_name());
        while (accept(".")) name.append(".").append(expect_name());
        return name;
    }

    ExprPtr filter(ExprPtr value) {
        int line = now().line;
        expect("|");
        return filter_named(line, std::move(value));
    }

    ExprPtr filter_named(int line, ExprPtr value) {
        ExprPtr expr = wrap(Expr::Type::filter, line, std::move(value));
        std::string name = dotted_name();
        expr->value = string(program_.arena.copy(name));
        expr->filter = find_filter(name);
        if (now().is_symbol("(")) arguments(*expr);
        return expr;
    }

    ExprPtr test(ExprPtr value) {
        int line = next().line;  // is
        bool negated = accept_name("not");
        ExprPtr expr = wrap(Expr::Type::test, line, std::move(value));
        std::string name = dotted_name();
        expr->value = string(program_.arena.copy(name));
        expr->test = find_test(name);
        if (now().is_symbol("(")) {
            arguments(*expr);
        } else if (begins_argument()) {
            Level level(*this);
            Argument argument;
            argument.value = postfixes(primary());
            expr->depth = std::max(expr->depth, argument.value->depth + 1);
            expr->arguments.push_back(std::move(argument));
        }
        return negated ? wrap(Expr::Type::negate, line, std::move(expr)) : std::move(expr);
    }

    /// Whether an argument without parentheses follows a test's name.
    bool begins_argument() const {
        const Token& token = now();
        switch (token.type) {
            case Token::Type::name:
                for (std::string_view word : {"else", "or", "and", "if", "is", "not", "in", "recursive"}) {
                    if (token.text == word) return false;
                }
                return true;
            case Token::Type::string:
            case Token::Type::integer:
            case Token::Type::big_integer:
            case Token::Type::real: return true;
            default: return token.is_symbol("[") || token.is_symbol("{");
        }
    }

    // Statements.

    /// Up to a tag of one of the names, which stays unread behind its block_begin; or to the template's end.
    std::vector<Stmt> statements(Ends ends) {
        Level level(*this);
        std::vector<Stmt> body;
        while (true) {
            const Token& token = now();
            if (token.is(Token::Type::end)) return body;
            if (token.is(Token::Type::text)) {
                Stmt stmt = statement(Stmt::Type::text);
                stmt.text = program_.arena.copy(next().text);
                body.push_back(std::move(stmt));
            } else if (token.is(Token::Type::print_begin)) {
                Stmt stmt = statement(Stmt::Type::print);
                next();
                stmt.expr = tuple(false, [this] { return expression(); });
                if (!now().is(Token::Type::print_end)) unexpected();
                next();
                body.push_back(std::move(stmt));
            } else {  // block_begin
                next();
                if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return now().is_name(end); })) {
                    return body;
                }
                body.push_back(tag());
            }
        }
    }

    std::vector<Stmt> body_until(std::string_view end) {
        int line = now().line;
        expect_block_end();
        std::vector<Stmt> body = statements({end});
        if (!accept_name(end)) missing(line, end);
        expect_block_end();
        return body;
    }

    [[noreturn]] void missing(int line, std::string_view end) {
        syntax_error(line, "a block is not closed: {% " + std::string(end) + " %} is missing");
    }

    Stmt statement(Stmt::Type type) {
        Stmt stmt;
        stmt.type = type;
        stmt.line = now().line;
        return stmt;
    }

    Stmt tag() {
        int line = now().line;
        std::string_view name = expect_name();
        Stmt stmt;
        if (name == "if") {
            stmt = branch();
        } else if (name == "for") {
            stmt = loop();
        } else if (name == "set") {
            stmt = set();
        } else if (name == "macro") {
            stmt.type = Stmt::Type::macro;
            stmt.macro = std::make_unique<Stmt::Macro>();
            stmt.macro->name = name_of(expect_name());
            parameters(*stmt.macro);
            macro_body(*stmt.macro, "endmacro");
        } else if (name == "call") {
            stmt.type = Stmt::Type::call_block;
            stmt.macro = std::make_unique<Stmt::Macro>();
            stmt.macro->name = name_caller;
            if (now().is_symbol("(")) parameters(*stmt.macro);
            stmt.expr = expression();
            if (stmt.expr->type != Expr::Type::call) syntax_error(line, "{% call %} needs a call of a macro");
            macro_body(*stmt.macro, "endcall");
        } else if (name == "filter") {
            stmt.type = Stmt::Type::filter;
            stmt.expr = filter_named(line, nullptr);
            while (now().is_symbol("|")) stmt.expr = filter(std::move(stmt.expr));
            stmt.body = body_until("endfilter");
        } else if (name == "generation") {
            stmt.type = Stmt::Type::scope;
            stmt.body = body_until("endgeneration");
        } else if (name == "with") {
            stmt.type = Stmt::Type::scope;
            while (!now().is(Token::Type::block_end)) {
                Name target = name_of(expect_name());
                expect("=");
                stmt.assignments.emplace_back(target, expression());
                if (!now().is(Token::Type::block_end)) expect(",");
            }
            stmt.body = body_until("endwith");
        } else if (name == "break" || name == "continue") {
            if (loops_ == 0) syntax_error(line, "{% " + std::string(name) + " %} outside of a loop");
            stmt.type = name == "break" ? Stmt::Type::leave : Stmt::Type::next;
            expect_block_end();
        } else {
            syntax_error(line, "tag " + quoted(name) + " is not supported here");
        }
        stmt.line = line;
        return stmt;
    }

    Stmt branch() {
        Stmt stmt;
        stmt.type = Stmt::Type::branch;
        int line = now().line;
        ExprPtr condition = tuple(false, [this] { return expression(); });
        while (true) {
            expect_block_end();
            stmt.branches.push_back({std::move(condition), statements({"elif", "else", "endif"})});
            bool last = !stmt.branches.back().condition;
            if (accept_name("endif")) break;
            if (last || now().is(Token::Type::end)) missing(line, "endif");
            condition = accept_name("elif") ? tuple(false, [this] { return expression(); }) : (next(), nullptr);
        }
        expect_block_end();
        return stmt;
    }

    Stmt loop() {
        Stmt stmt;
        stmt.type = Stmt::Type::loop;
        int line = now().line;
        stmt.target = target(false);
        if (!accept_name("in")) syntax_error(now().line, "expected 'in' but found " + found());
        stmt.expr = tuple(false, [this] { return any_of(); });  // an `if` here is the loop's filter
        if (accept_name("if")) stmt.condition = expression();
        stmt.recursive = accept_name("recursive");
        expect_block_end();
        ++loops_;
        stmt.body = statements({"else", "endfor"});
        --loops_;
        if (accept_name("else")) {
            expect_block_end();
            stmt.other = statements({"endfor"});
        }
        if (!accept_name("endfor")) missing(line, "endfor");
        expect_block_end();
        return stmt;
    }

    Stmt set() {
        Stmt stmt;
        stmt.target = target(true);
        if (accept("=")) {
            stmt.type = Stmt::Type::set;
            stmt.expr = tuple(false, [this] { return expression(); });
            expect_block_end();
            return stmt;
        }
        stmt.type = Stmt::Type::set_block;
        if (now().is_symbol("|")) stmt.expr = filter(nullptr);
        while (now().is_symbol("|")) stmt.expr = filter(std::move(stmt.expr));
        stmt.body = body_until("endset");
        return stmt;
    }

    Target target(bool attributes) {
        Level level(*this);
        Target first = one_target(attributes);
        if (!now().is_symbol(",")) return first;
        Target all;
        all.several.push_back(std::move(first));
        while (accept(",")) {
            if (!now().is(Token::Type::name) && !now().is_symbol("(")) break;
            if (now().is_name("in")) break;
            all.several.push_back(one_target(attributes));
        }
        return all;
    }

    Target one_target(bool attributes) {
        Target one;
        if (accept("(")) {
            one = target(attributes);
            expect(")");
            return one;
        }
        std::string_view name = expect_name();
        if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
            name == "None") {
            syntax_error(now().line, "cannot assign to " + quoted(name));
        }
        one.name = name_of(name);
        if (attributes && accept(".")) one.attribute = program_.arena.copy(expect_name());
        return one;
    }

    void parameters(Stmt::Macro& macro) {
        expect("(");
        while (!accept(")")) {
            Parameter parameter{name_of(expect_name()), nullptr};
            if (accept("=")) {
                parameter.fallback = expression();
            } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
                syntax_error(now().line, "a parameter without a default comes after one with");
            }
            macro.parameters.push_back(std::move(parameter));
            if (!now().is_symbol(")")) expect(",");
        }
    }

    void macro_body(Stmt::Macro& macro, std::string_view end) {
        macros_.push_back(&macro);
        int loops = std::exchange(loops_, 0);
        macro.body = body_until(end);
        loops_ = loops;
        macros_.pop_back();
    }

    Program& program_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    int depth_ = 0;
    int loops_ = 0;  // around the current place, within its macro
    std::vector<Stmt::Macro*> macros_;
    std::unordered_map<std::string, Name> names_;
};

}  // namespace

void parse(std::string_view source, Program& program) {
    std::string text;
    text.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            text += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            text += source[i];
        }
    }
    if (text.ends_with('\n')) text.pop_back();
    Arena arena(size_t{1} << 30);
    Parser(program, tokenize(text, arena)).run();
}

}  // namespace strata::jinja
