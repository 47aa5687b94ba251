// Stop strings in a text that comes in pieces: the earliest end wins, then the longest. What could still become one is
// held back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::server {

class StopStrings {
  public:
    explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    /// Adds a piece; appends to `out` what is certain to be no part of a stop string. True: one was found, the text is
    /// over.
    bool push(std::string_view piece, std::string& out);
    /// The text is over without one: what was held back.
    std::string finish() { return std::exchange(held_, {}); }
    /// The one that was found; empty: none.
    const std::string& found() const { return found_; }

  private:
    const std::vector<std::string> stops_;
    std::string held_;
    std::string found_;
};

}  // namespace strata::server
