// The text being typed and the keys that change it, without a terminal: LineEditor draws it, tests drive it.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace strata::cli {

/// A key or a paste, decoded from what a terminal sends.
struct Key {
    enum class Kind {
        text,  // printable UTF-8, or a paste with its line ends as \n
        enter,
        new_line,  // Alt-Enter, Ctrl-J: a line end inside the message
        interrupt,
        end_of_input,  // Ctrl-D
        left,
        right,
        word_left,
        word_right,
        home,
        end,
        up,
        down,
        backspace,
        remove,  // Delete
        kill_word,
        kill_to_start,
        kill_to_end,
        clear_screen,
        ignored,
    };
    Kind kind = Kind::ignored;
    std::string text;
};

/// Terminal bytes to keys. Bytes of a sequence that has not ended wait inside; next() gives keys as they are complete.
class KeyDecoder {
  public:
    void feed(std::string_view bytes) { bytes_ += bytes; }
    /// The next whole key into `key`, or false.
    bool next(Key& key);
    /// Bytes wait that may be the start of a sequence (a lone Escape): call this when nothing followed for a while.
    void give_up_sequence();

  private:
    bool escape_sequence(Key& key);
    bool paste(Key& key);

    std::string bytes_;
    bool pasting_ = false;
};

/// A text with a cursor, and the lines entered before.
class LineBuffer {
  public:
    /// Applies any key that changes text, cursor or history place; others do nothing.
    void apply(const Key& key);
    const std::string& text() const { return text_; }
    size_t cursor() const { return cursor_; }  // byte of the text
    bool empty() const { return text_.empty(); }
    /// Empties the text and leaves history browsing.
    void clear();
    /// Appends to the history; the same line twice in a row counts once.
    void remember(const std::string& line);

  private:
    void insert(std::string_view text);
    void erase(size_t from, size_t to);
    void show_history(size_t place);
    size_t before(size_t at) const;  // start of the character left of `at`
    size_t after(size_t at) const;
    size_t word_left() const;
    size_t word_right() const;

    std::string text_;
    size_t cursor_ = 0;
    std::deque<std::string> history_;
    size_t place_ = 0;     // in history_; its size: the line being typed
    std::string pending_;  // the line being typed, while history is shown
};

/// Columns that text takes on a terminal: 2 for wide characters, 0 for combining ones. No line ends inside.
int display_width(std::string_view text);

}  // namespace strata::cli
