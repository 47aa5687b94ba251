// Shows an answer as it streams: reasoning dim, the answer plain, status lines that leave no trace. What is not a
// terminal gets the answer alone.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace strata::cli {

/// Whether a stream shows colours: a terminal that is not "dumb".
bool shows_colours(std::FILE* stream);

class AnswerPrinter {
  public:
    /// The answer goes to `answers`, reasoning and status lines to `rest` where that is a terminal.
    AnswerPrinter(std::FILE* answers, std::FILE* rest);

    void show_reasoning(bool shown) { reasoning_shown_ = shown; }

    /// A line that the next output replaces: "reading 512 of 2,048 tokens".
    void status(const std::string& text);
    void reasoning(std::string_view text);
    void content(std::string_view text);
    /// Ends the answer's last line where it is open.
    void finish();
    /// A dim line of its own, terminals only.
    void note(const std::string& text);

    /// False once standard output could not be written (a closed pipe, a full disk).
    bool ok() const { return ok_; }

  private:
    enum class Section { none, reasoning, content };
    void enter(Section section);
    void clear_status();

    std::FILE* answers_;
    std::FILE* rest_;
    bool colours_;  // of rest_
    bool answers_on_screen_;
    bool reasoning_shown_ = true;
    Section section_ = Section::none;
    bool status_open_ = false;
    bool line_open_ = false;
    bool ok_ = true;
};

}  // namespace strata::cli
