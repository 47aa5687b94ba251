// A command's flags, declared. A thin layer over CLI11, whose header costs seconds in every file that includes it: only
// flag_set.cpp and the main file do.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

/// A declared flag. Lives as long as its set's command.
class Flag {
  public:
    explicit Flag(CLI::Option* option) : option_(option) {}

    Flag required() const;
    /// Not together with that one.
    Flag excludes(Flag other) const;
    /// --help shows the variable's present value as the default.
    Flag shows_default() const;
    /// A heading of its own in --help.
    Flag under(const std::string& heading) const;
    /// Refuses values for which this gives a sentence.
    Flag checked(std::function<std::string(const std::string&)> what_is_wrong) const;

    /// After parsing: whether it was on the command line.
    bool given() const;

  private:
    CLI::Option* option_;
};

/// Names are CLI11's: "--model,-m"; without dashes it is a positional argument. `type` is what --help shows for the
/// value. Variables must live until the command has run.
class FlagSet {
  public:
    explicit FlagSet(CLI::App& app) : app_(app) {}

    Flag text(const std::string& name, std::string& value, const std::string& help, const std::string& type = "TEXT");
    Flag toggle(const std::string& name, bool& value, const std::string& help);
    // Numbers from low to high.
    Flag number(const std::string& name, int& value, double low, double high, const std::string& help);
    Flag number(const std::string& name, int64_t& value, double low, double high, const std::string& help);
    Flag number(const std::string& name, uint64_t& value, const std::string& help);
    Flag number(const std::string& name, float& value, double low, double high, const std::string& help);
    Flag number(const std::string& name, std::optional<int>& value, double low, double high, const std::string& help);
    Flag number(const std::string& name, std::optional<float>& value, double low, double high, const std::string& help);
    Flag number(const std::string& name, std::optional<uint64_t>& value, const std::string& help);
    /// Separated by commas.
    Flag numbers(const std::string& name, std::vector<int64_t>& values, double low, double high,
                 const std::string& help);

    /// A command below this one; `given` tells after parsing.
    struct Command;
    Command command(const std::string& name, const std::string& help);

  private:
    CLI::App& app_;
};

struct FlagSet::Command {
    FlagSet flags;
    std::function<bool()> given;
};

}  // namespace strata::cli
