#include "cli/line_editor.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include "text/utf8.h"

namespace strata::cli {
namespace {

constexpr std::string_view kContinued = "  ";  // in front of a message's later lines
constexpr int kSequenceMs = 50;                // a lone Escape is one when nothing follows for this long

bool knows_cursor_movements() {
    const char* terminal = std::getenv("TERM");
    return terminal && std::string_view(terminal) != "dumb" && *terminal;
}

int terminal_columns(int output) {
    winsize size{};
    if (ioctl(output, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/// Where text ends up on the terminal when it is printed from a place on.
struct Place {
    int row = 0;
    int column = 0;

    void advance(std::string_view text, int columns) {
        for (size_t at = 0; at < text.size();) {
            const size_t size = decode_utf8(text, at).size;
            const std::string_view character = text.substr(at, size);
            at += size;
            if (character == "\n") {
                ++row;
                column = display_width(kContinued);
                continue;
            }
            const int width = character == "\t" ? 1 : display_width(character);
            if (column + width > columns) {
                ++row;
                column = 0;
            }
            column += width;
        }
    }
};

}  // namespace

LineEditor::LineEditor(int input, int output) : input_(input), output_(output) {
    edited_ = isatty(input) && isatty(output) && knows_cursor_movements() && tcgetattr(input, &found_) == 0;
    if (!edited_) return;
    set_mode(true);
    write("\x1b[?2004h");  // pastes come marked
}

LineEditor::~LineEditor() {
    restore();
}

void LineEditor::restore() const {
    if (!edited_) return;
    write("\x1b[?2004l");
    tcsetattr(input_, TCSADRAIN, &found_);
}

void LineEditor::set_mode(bool keys_are_signals) const {
    termios mode = found_;
    mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IXON);
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
    if (!keys_are_signals) mode.c_lflag &= ~static_cast<tcflag_t>(ISIG);
    mode.c_cc[VSUSP] = _POSIX_VDISABLE;
    mode.c_cc[VQUIT] = _POSIX_VDISABLE;
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    tcsetattr(input_, TCSADRAIN, &mode);
}

Message LineEditor::read(std::string_view prompt) {
    return edited_ ? read_edited(prompt) : read_plain(prompt);
}

Message LineEditor::read_edited(std::string_view prompt) {
    set_mode(false);
    buffer_.clear();
    cursor_row_ = rows_below_ = 0;
    draw(prompt);
    Message message;
    for (bool done = false; !done;) {
        Key key;
        if (!decoder_.next(key)) {
            char bytes[4096];
            const ssize_t count = ::read(input_, bytes, sizeof bytes);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) break;  // the terminal is gone: Kind::end
            decoder_.feed({bytes, static_cast<size_t>(count)});
            if (bytes[count - 1] == '\x1b') {
                pollfd more{input_, POLLIN, 0};
                if (poll(&more, 1, kSequenceMs) == 0) decoder_.give_up_sequence();
            }
            continue;
        }
        switch (key.kind) {
            case Key::Kind::interrupt:
                message.kind = Message::Kind::interrupt;
                done = true;
                break;
            case Key::Kind::end_of_input:
                if (buffer_.empty()) {
                    done = true;
                    break;
                }
                buffer_.apply(key);
                draw(prompt);
                break;
            case Key::Kind::enter:
                if (buffer_.cursor() == buffer_.text().size() && buffer_.text().ends_with('\\')) {
                    buffer_.apply({Key::Kind::backspace, {}});
                    buffer_.apply({Key::Kind::new_line, {}});
                    draw(prompt);
                    break;
                }
                message.kind = Message::Kind::text;
                message.text = buffer_.text();
                buffer_.remember(message.text);
                done = true;
                break;
            case Key::Kind::clear_screen:
                write("\x1b[H\x1b[2J");
                cursor_row_ = rows_below_ = 0;
                draw(prompt);
                break;
            default:
                buffer_.apply(key);
                draw(prompt);
                break;
        }
    }
    leave_drawing();
    set_mode(true);
    return message;
}

void LineEditor::draw(std::string_view prompt) {
    const int columns = terminal_columns(output_);
    std::string out;
    if (cursor_row_ > 0) out += "\x1b[" + std::to_string(cursor_row_) + "A";
    out += "\r\x1b[J";
    out += prompt;
    for (const char c : buffer_.text()) {
        if (c == '\n') {
            out += '\n';
            out += kContinued;
        } else {
            out += c == '\t' ? ' ' : c;
        }
    }
    Place cursor;
    cursor.advance(prompt, columns);
    Place end = cursor;
    cursor.advance(std::string_view(buffer_.text()).substr(0, buffer_.cursor()), columns);
    end.advance(buffer_.text(), columns);
    // A terminal keeps the cursor on a full row until the next character; go to the next row at once, so that both
    // agree.
    if (cursor.column == columns) cursor = {cursor.row + 1, 0};
    if (end.column == columns) {
        end = {end.row + 1, 0};
        out += '\n';
    }
    if (end.row > cursor.row) out += "\x1b[" + std::to_string(end.row - cursor.row) + "A";
    out += '\r';
    if (cursor.column > 0) out += "\x1b[" + std::to_string(cursor.column) + "C";
    write(out);
    cursor_row_ = cursor.row;
    rows_below_ = end.row - cursor.row;
}

void LineEditor::leave_drawing() {
    std::string out;
    if (rows_below_ > 0) out += "\x1b[" + std::to_string(rows_below_) + "B";
    write(out + "\r\n");
}

void LineEditor::write(std::string_view bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = ::write(output_, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return;
        bytes.remove_prefix(static_cast<size_t>(count));
    }
}

Message LineEditor::read_plain(std::string_view prompt) {
    if (isatty(input_) && isatty(output_)) write(prompt);
    Message message;
    std::string line;
    while (read_line(line)) {
        message.kind = Message::Kind::text;
        const bool goes_on = line.ends_with('\\');
        if (goes_on) line.pop_back();
        message.text += line;
        if (!goes_on) return message;
        message.text += '\n';
    }
    return message;
}

bool LineEditor::read_line(std::string& line) {
    for (;;) {
        const size_t end = pending_input_.find('\n');
        if (end != std::string::npos) {
            line = pending_input_.substr(0, end);
            pending_input_.erase(0, end + 1);
            if (line.ends_with('\r')) line.pop_back();
            return true;
        }
        char bytes[4096];
        const ssize_t count = ::read(input_, bytes, sizeof bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            line = std::exchange(pending_input_, {});
            return !line.empty();
        }
        pending_input_.append(bytes, static_cast<size_t>(count));
    }
}

}  // namespace strata::cli
