#include "cli/line_buffer.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace strata::cli {
namespace {

constexpr std::string_view kPasteStart = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr size_t kHistoryLines = 1000;

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t';
}

/// Control characters that are keys of their own.
Key::Kind control_key(char c) {
    switch (c) {
        case '\r': return Key::Kind::enter;
        case '\n': return Key::Kind::new_line;
        case 0x01: return Key::Kind::home;
        case 0x02: return Key::Kind::left;
        case 0x03: return Key::Kind::interrupt;
        case 0x04: return Key::Kind::end_of_input;
        case 0x05: return Key::Kind::end;
        case 0x06: return Key::Kind::right;
        case 0x08:
        case 0x7f: return Key::Kind::backspace;
        case 0x0b: return Key::Kind::kill_to_end;
        case 0x0c: return Key::Kind::clear_screen;
        case 0x0e: return Key::Kind::down;
        case 0x10: return Key::Kind::up;
        case 0x15: return Key::Kind::kill_to_start;
        case 0x17: return Key::Kind::kill_word;
        default: return Key::Kind::ignored;
    }
}

bool is_control(char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// The key of a CSI sequence: its parameters ("1;5", "3") and its last character.
Key::Kind csi_key(std::string_view parameters, char last) {
    const bool with_modifier = parameters.find(';') != std::string_view::npos;
    switch (last) {
        case 'A': return Key::Kind::up;
        case 'B': return Key::Kind::down;
        case 'C': return with_modifier ? Key::Kind::word_right : Key::Kind::right;
        case 'D': return with_modifier ? Key::Kind::word_left : Key::Kind::left;
        case 'F': return Key::Kind::end;
        case 'H': return Key::Kind::home;
        case '~':
            if (parameters == "1" || parameters == "7") return Key::Kind::home;
            if (parameters == "3") return Key::Kind::remove;
            if (parameters == "4" || parameters == "8") return Key::Kind::end;
            return Key::Kind::ignored;
        default: return Key::Kind::ignored;
    }
}

/// A paste as text: line ends become \n, tabs stay, other control characters go.
std::string clean_paste(std::string_view bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size(); ++i) {
        const char c = bytes[i];
        if (c == '\r') {
            text += '\n';
            if (i + 1 < bytes.size() && bytes[i + 1] == '\n') ++i;
        } else if (c == '\n' || c == '\t' || !is_control(c)) {
            text += c;
        }
    }
    return text;
}

}  // namespace

bool KeyDecoder::next(Key& key) {
    key = {};
    if (pasting_) return paste(key);
    if (bytes_.empty()) return false;
    if (bytes_[0] == '\x1b') return escape_sequence(key);
    if (is_control(bytes_[0])) {
        key.kind = control_key(bytes_[0]);
        bytes_.erase(0, 1);
        return true;
    }
    size_t size = 0;
    while (size < bytes_.size() && !is_control(bytes_[size])) ++size;
    if (size == bytes_.size()) size -= utf8_cut(bytes_);  // the rest of a character may still come
    if (size == 0) return false;
    key.kind = Key::Kind::text;
    key.text = bytes_.substr(0, size);
    bytes_.erase(0, size);
    return true;
}

bool KeyDecoder::escape_sequence(Key& key) {
    if (bytes_.size() < 2) return false;
    if (bytes_.starts_with(kPasteStart)) {
        bytes_.erase(0, kPasteStart.size());
        pasting_ = true;
        return paste(key);
    }
    size_t size = 2;
    switch (bytes_[1]) {
        case '[': {
            size_t last = 2;
            while (last < bytes_.size() && bytes_[last] >= 0x20 && bytes_[last] < 0x40) ++last;
            if (last == bytes_.size()) return false;
            key.kind = csi_key(std::string_view(bytes_).substr(2, last - 2), bytes_[last]);
            size = last + 1;
            break;
        }
        case 'O':
            if (bytes_.size() < 3) return false;
            key.kind = csi_key({}, bytes_[2]);
            size = 3;
            break;
        case '\r':
        case '\n': key.kind = Key::Kind::new_line; break;
        case 'b': key.kind = Key::Kind::word_left; break;
        case 'f': key.kind = Key::Kind::word_right; break;
        case 0x7f:
        case 0x08: key.kind = Key::Kind::kill_word; break;
        default: size = 1; break;  // a lone Escape: what follows is its own key
    }
    bytes_.erase(0, size);
    return true;
}

bool KeyDecoder::paste(Key& key) {
    const size_t end = bytes_.find(kPasteEnd);
    if (end == std::string::npos) return false;
    key.kind = Key::Kind::text;
    key.text = clean_paste(std::string_view(bytes_).substr(0, end));
    bytes_.erase(0, end + kPasteEnd.size());
    pasting_ = false;
    return true;
}

void KeyDecoder::give_up_sequence() {
    if (!pasting_ && bytes_.starts_with('\x1b')) bytes_.erase(0, 1);
}

void LineBuffer::apply(const Key& key) {
    switch (key.kind) {
        case Key::Kind::text: insert(key.text); break;
        case Key::Kind::new_line: insert("\n"); break;
        case Key::Kind::left: cursor_ = before(cursor_); break;
        case Key::Kind::right: cursor_ = after(cursor_); break;
        case Key::Kind::word_left: cursor_ = word_left(); break;
        case Key::Kind::word_right: cursor_ = word_right(); break;
        case Key::Kind::home: cursor_ = 0; break;
        case Key::Kind::end: cursor_ = text_.size(); break;
        case Key::Kind::up:
            if (place_ > 0) show_history(place_ - 1);
            break;
        case Key::Kind::down:
            if (place_ < history_.size()) show_history(place_ + 1);
            break;
        case Key::Kind::backspace: erase(before(cursor_), cursor_); break;
        case Key::Kind::end_of_input:
        case Key::Kind::remove: erase(cursor_, after(cursor_)); break;
        case Key::Kind::kill_word: erase(word_left(), cursor_); break;
        case Key::Kind::kill_to_start: erase(0, cursor_); break;
        case Key::Kind::kill_to_end: erase(cursor_, text_.size()); break;
        case Key::Kind::enter:
        case Key::Kind::interrupt:
        case Key::Kind::clear_screen:
        case Key::Kind::ignored: break;
    }
}

void LineBuffer::clear() {
    text_.clear();
    cursor_ = 0;
    place_ = history_.size();
}

void LineBuffer::remember(const std::string& line) {
    if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
    if (history_.size() > kHistoryLines) history_.pop_front();
    place_ = history_.size();
}

void LineBuffer::insert(std::string_view text) {
    text_.insert(cursor_, text);
    cursor_ += text.size();
}

void LineBuffer::erase(size_t from, size_t to) {
    text_.erase(from, to - from);
    cursor_ = from;
}

void LineBuffer::show_history(size_t place) {
    if (place_ == history_.size()) pending_ = text_;
    place_ = place;
    text_ = place == history_.size() ? pending_ : history_[place];
    cursor_ = text_.size();
}

// A character is a grapheme cluster, so that one Backspace takes an accent with its letter and an emoji as a whole.
size_t LineBuffer::after(size_t at) const {
    if (at >= text_.size()) return text_.size();
    CodePoint last = decode_utf8(text_, at);
    size_t end = at + last.size;
    utf8proc_int32_t state = 0;
    while (end < text_.size()) {
        const CodePoint next = decode_utf8(text_, end);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                             static_cast<utf8proc_int32_t>(next.value), &state))
            break;
        last = next;
        end += next.size;
    }
    return end;
}

size_t LineBuffer::before(size_t at) const {
    size_t start = 0;
    for (size_t next = 0; next < at; next = after(next)) start = next;
    return start;
}

size_t LineBuffer::word_left() const {
    size_t at = cursor_;
    while (at > 0 && is_space(text_[at - 1])) --at;
    while (at > 0 && !is_space(text_[at - 1])) --at;
    return at;
}

size_t LineBuffer::word_right() const {
    size_t at = cursor_;
    while (at < text_.size() && is_space(text_[at])) ++at;
    while (at < text_.size() && !is_space(text_[at])) ++at;
    return at;
}

int display_width(std::string_view text) {
    int width = 0;
    for (size_t at = 0; at < text.size();) {
        const CodePoint c = decode_utf8(text, at);
        width += c.valid ? utf8proc_charwidth(static_cast<utf8proc_int32_t>(c.value)) : 1;
        at += c.size;
    }
    return width;
}

}  // namespace strata::cli
