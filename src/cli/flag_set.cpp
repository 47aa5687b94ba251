#include "cli/flag_set.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace strata::cli {
namespace {

template <class T>
Flag add_number(CLI::App& app, const std::string& name, T& value, const std::string& help, const std::string& type) {
    return Flag(app.add_option(name, value, help)->type_name(type));
}

template <class T>
Flag add_ranged(CLI::App& app, const std::string& name, T& value, double low, double high, const std::string& help,
                const std::string& type) {
    CLI::Option* option = app.add_option(name, value, help);
    option->check(CLI::Range(low, high).description(""));
    option->type_name(type);
    return Flag(option);
}

}  // namespace

Flag Flag::required() const {
    option_->required();
    return *this;
}

Flag Flag::excludes(Flag other) const {
    option_->excludes(other.option_);
    return *this;
}

Flag Flag::shows_default() const {
    option_->capture_default_str();
    return *this;
}

Flag Flag::under(const std::string& heading) const {
    option_->group(heading);
    return *this;
}

Flag Flag::checked(std::function<std::string(const std::string&)> what_is_wrong) const {
    option_->check(std::move(what_is_wrong));
    return *this;
}

bool Flag::given() const {
    return option_->count() > 0;
}

Flag FlagSet::text(const std::string& name, std::string& value, const std::string& help, const std::string& type) {
    return Flag(app_.add_option(name, value, help)->type_name(type));
}

Flag FlagSet::toggle(const std::string& name, bool& value, const std::string& help) {
    return Flag(app_.add_flag(name, value, help));
}

Flag FlagSet::number(const std::string& name, int& value, double low, double high, const std::string& help) {
    return add_ranged(app_, name, value, low, high, help, "N");
}

Flag FlagSet::number(const std::string& name, int64_t& value, double low, double high, const std::string& help) {
    return add_ranged(app_, name, value, low, high, help, "N");
}

Flag FlagSet::number(const std::string& name, uint64_t& value, const std::string& help) {
    return add_number(app_, name, value, help, "N");
}

Flag FlagSet::number(const std::string& name, float& value, double low, double high, const std::string& help) {
    return add_ranged(app_, name, value, low, high, help, "F");
}

Flag FlagSet::number(const std::string& name, std::optional<int>& value, double low, double high,
                     const std::string& help) {
    return add_ranged(app_, name, value, low, high, help, "N");
}

Flag FlagSet::number(const std::string& name, std::optional<float>& value, double low, double high,
                     const std::string& help) {
    return add_ranged(app_, name, value, low, high, help, "F");
}

Flag FlagSet::number(const std::string& name, std::optional<uint64_t>& value, const std::string& help) {
    return add_number(app_, name, value, help, "N");
}

Flag FlagSet::numbers(const std::string& name, std::vector<int64_t>& values, double low, double high,
                      const std::string& help) {
    CLI::Option* option = app_.add_option(name, values, help)->delimiter(',');
    option->check(CLI::Range(low, high).description(""));
    option->type_name("N,N,...");
    return Flag(option);
}

FlagSet::Command FlagSet::command(const std::string& name, const std::string& help) {
    CLI::App* app = app_.add_subcommand(name, help);
    return {FlagSet(*app), [app] { return app->parsed(); }};
}

}  // namespace strata::cli
