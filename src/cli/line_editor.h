// Reads messages from a person: an edited line on a terminal (history, pastes of several lines), plain lines from
// anything else. Holds the terminal in its own mode for as long as it lives, so that keys typed during an answer wait
// unseen.
#pragma once

#include <string>
#include <string_view>
#include <termios.h>

#include "cli/line_buffer.h"

namespace strata::cli {

struct Message {
    enum class Kind { text, interrupt, end };
    Kind kind = Kind::end;
    std::string text;
};

class LineEditor {
  public:
    /// Standard input and output. `edited`: both are a terminal that knows cursor movements.
    LineEditor(int input, int output);
    ~LineEditor();
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;

    /// Waits for a message. A line that ends in a backslash goes on in the next one. Interrupt: Ctrl-C (terminals
    /// only).
    Message read(std::string_view prompt);

    bool edited() const { return edited_; }
    /// Gives the terminal back as it was found; safe to call from a thread that ends the program.
    void restore() const;

  private:
    Message read_edited(std::string_view prompt);
    Message read_plain(std::string_view prompt);
    bool read_line(std::string& line);
    void draw(std::string_view prompt);
    void leave_drawing();
    void write(std::string_view bytes) const;
    void set_mode(bool keys_are_signals) const;

    int input_;
    int output_;
    bool edited_ = false;
    termios found_{};
    KeyDecoder decoder_;
    LineBuffer buffer_;
    std::string pending_input_;  // plain input read beyond the last line
    int cursor_row_ = 0;         // rows between the drawing's first row and the cursor
    int rows_below_ = 0;         // rows between the cursor and the drawing's last row
};

}  // namespace strata::cli
