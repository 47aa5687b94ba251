// Command line flags from one table: name, value, range, default and help of a flag stand in one place, and parsing,
// errors and
// --help follow from it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata {

struct Flag {
    std::string name;   // "--threads"
    std::string value;  // what it takes, for the help: "N"; empty: a switch
    std::string help;   // with the default
    std::function<Result<void>(std::string_view)> set;
};

class FlagTable {
  public:
    /// Flags that follow stand under this heading in the help.
    void group(std::string title);
    void add(Flag flag);

    // The usual kinds. The default shown is what `out` holds now.
    void number(const std::string& name, const std::string& value, int64_t lo, int64_t hi, int64_t& out,
                const std::string& help);
    void real(const std::string& name, double lo, double hi, double& out, const std::string& help);
    void text(const std::string& name, const std::string& value, std::string& out, const std::string& help);
    void choice(const std::string& name, const std::vector<std::string>& values, std::string& out,
                const std::string& help);
    void enable(const std::string& name, bool& out, const std::string& help);   // becomes true
    void disable(const std::string& name, bool& out, const std::string& help);  // becomes false

    /// "--name value" or "--name=value"; the last one wins. An unknown flag, a missing or wrong value: one line that
    /// names it.
    Result<void> parse(const std::vector<std::string>& arguments) const;
    /// Whether the last parse met this flag.
    bool given(std::string_view name) const;

    std::string help(const std::string& usage) const;

  private:
    struct Group {
        std::string title;
        size_t first;
    };
    const Flag* find(std::string_view name) const;

    std::vector<Flag> flags_;
    std::vector<Group> groups_;
    mutable std::vector<std::string_view> given_;  // names of flags_
};

}  // namespace strata
