// Parts of JSON as rules of a grammar: strings, numbers, any value. What schema.cpp puts together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "text/json.h"

namespace strata {

/// Adds rules to a grammar as they are first asked for. States and rules are the builder's.
class JsonRules {
  public:
    using State = GrammarBuilder::State;
    explicit JsonRules(GrammarBuilder& builder) : builder_(builder) {}

    /// White space between tokens: nothing, a space, or a new line and an indentation of up to 32.
    State space(State from);
    int32_t string();
    /// A string of low to high characters; high < 0: no limit. At most max_counted.
    int32_t counted_string(int64_t low, int64_t high);
    static constexpr int64_t max_counted = 11'000;
    int32_t integer();  // of up to 19 digits
    int32_t integers_between(int64_t low, int64_t high);
    int32_t number();
    int32_t any_value();
    int32_t any_object();
    /// A value as it stands, with white space where it may be.
    State constant(State from, const Json& value);
    /// A string that is none of the names.
    State other_key(State from, const std::vector<std::string>& names);

  private:
    void characters(State from, State to);
    State digits(State from, int low, int high);
    State natural(State from);
    void digits_between(State from, std::string_view low, std::string_view high, State to);
    void naturals_between(State from, uint64_t low, uint64_t high, State to);

    GrammarBuilder& builder_;
    int32_t space_ = -1, string_ = -1, integer_ = -1, number_ = -1, any_value_ = -1, any_object_ = -1, any_array_ = -1;
};

}  // namespace strata
