#include "engine/flags.h"

#include <algorithm>

#include "base/numbers.h"

namespace strata {
namespace {

Error wrong_value(const std::string& name, std::string_view value, const std::string& wanted) {
    return usage_error(name + " is '" + std::string(value) + "', it must be " + wanted);
}

}  // namespace

void FlagTable::group(std::string title) {
    groups_.push_back({std::move(title), flags_.size()});
}

void FlagTable::add(Flag flag) {
    flags_.push_back(std::move(flag));
}

void FlagTable::number(const std::string& name, const std::string& value, int64_t lo, int64_t hi, int64_t& out,
                       const std::string& help) {
    const std::string wanted = hi == INT64_MAX ? "a number from " + number_text(lo) + " on"
                                               : "a number from " + number_text(lo) + " to " + number_text(hi);
    add({name, value, help, [=, &out](std::string_view text) -> Result<void> {
             const auto parsed = parse_int<int64_t>(text, lo, hi);
             if (!parsed) return wrong_value(name, text, wanted);
             out = *parsed;
             return {};
         }});
}

void FlagTable::real(const std::string& name, double lo, double hi, double& out, const std::string& help) {
    const std::string wanted = "a number from " + number_text(lo) + " to " + number_text(hi);
    add({name, "F", help + " (" + number_text(out) + ")", [=, &out](std::string_view text) -> Result<void> {
             const auto parsed = parse_number(text);
             if (!parsed || *parsed < lo || *parsed > hi) return wrong_value(name, text, wanted);
             out = *parsed;
             return {};
         }});
}

void FlagTable::text(const std::string& name, const std::string& value, std::string& out, const std::string& help) {
    add({name, value, help, [=, &out](std::string_view given) -> Result<void> {
             if (given.empty()) return usage_error(name + " needs a value");
             out = given;
             return {};
         }});
}

void FlagTable::choice(const std::string& name, const std::vector<std::string>& values, std::string& out,
                       const std::string& help) {
    std::string listed;
    for (const std::string& value : values) listed += (listed.empty() ? "" : "|") + value;
    add({name, listed, help + " (" + out + ")", [=, &out](std::string_view given) -> Result<void> {
             if (std::find(values.begin(), values.end(), given) == values.end())
                 return wrong_value(name, given, "one of " + listed);
             out = given;
             return {};
         }});
}

void FlagTable::enable(const std::string& name, bool& out, const std::string& help) {
    add({name, "", help, [&out](std::string_view) -> Result<void> {
             out = true;
             return {};
         }});
}

void FlagTable::disable(const std::string& name, bool& out, const std::string& help) {
    add({name, "", help, [&out](std::string_view) -> Result<void> {
             out = false;
             return {};
         }});
}

const Flag* FlagTable::find(std::string_view name) const {
    const auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == name; });
    return flag == flags_.end() ? nullptr : &*flag;
}

Result<void> FlagTable::parse(const std::vector<std::string>& arguments) const {
    given_.clear();
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view argument = arguments[i];
        const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
        const std::string_view name = argument.substr(0, equals);
        const Flag* flag = find(name);
        if (!flag) return usage_error("unknown flag '" + std::string(name) + "'; --help lists what there is");
        given_.push_back(flag->name);
        if (flag->value.empty()) {
            if (equals != std::string_view::npos) return usage_error(flag->name + " takes no value");
            STRATA_TRY(flag->set({}));
        } else if (equals != std::string_view::npos) {
            STRATA_TRY(flag->set(argument.substr(equals + 1)));
        } else {
            if (i + 1 == arguments.size()) return usage_error(flag->name + " needs a value (" + flag->value + ")");
            STRATA_TRY(flag->set(arguments[++i]));
        }
    }
    return {};
}

bool FlagTable::given(std::string_view name) const {
    return std::find(given_.begin(), given_.end(), name) != given_.end();
}

std::string FlagTable::help(const std::string& usage) const {
    constexpr size_t kColumn = 36, kWidth = 120;
    std::string out = usage;
    for (size_t i = 0; i < flags_.size(); ++i) {
        for (const Group& group : groups_)
            if (group.first == i) out += "\n" + group.title + "\n";
        std::string line = "  " + flags_[i].name + (flags_[i].value.empty() ? "" : " " + flags_[i].value);
        if (line.size() + 2 > kColumn) {
            out += line + "\n";
            line.clear();
        }
        line.resize(kColumn, ' ');
        // The help, broken at blanks.
        std::string_view rest = flags_[i].help;
        while (!rest.empty()) {
            size_t take = std::min(rest.size(), kWidth - kColumn);
            if (take < rest.size()) {
                const size_t blank = rest.substr(0, take + 1).find_last_of(' ');
                if (blank != std::string_view::npos && blank > 0) take = blank;
            }
            out += line + std::string(rest.substr(0, take)) + "\n";
            rest.remove_prefix(take);
            while (rest.starts_with(' ')) rest.remove_prefix(1);
            line.assign(kColumn, ' ');
        }
    }
    return out;
}

}  // namespace strata
