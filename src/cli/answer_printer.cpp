#include "cli/answer_printer.h"

#include <cstdlib>
#include <unistd.h>

#include "text/utf8.h"

namespace strata::cli {
namespace {

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

bool is_terminal(std::FILE* stream) {
    return isatty(fileno(stream)) == 1;
}

/// Text without control characters but line ends and tabs: a model must not be able to steer the terminal.
std::string harmless(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const CodePoint c = decode_utf8(text, at);
        const bool control = c.value < 0x20 || (c.value >= 0x7f && c.value < 0xa0);
        if (!control || c.value == '\n' || c.value == '\t') out += text.substr(at, c.size);
        at += c.size;
    }
    return out;
}

}  // namespace

bool shows_colours(std::FILE* stream) {
    const char* terminal = std::getenv("TERM");
    return is_terminal(stream) && terminal && *terminal && std::string_view(terminal) != "dumb";
}

AnswerPrinter::AnswerPrinter(std::FILE* answers, std::FILE* rest)
    : answers_(answers), rest_(rest), colours_(shows_colours(rest)), answers_on_screen_(is_terminal(answers)) {}

void AnswerPrinter::status(const std::string& text) {
    if (!colours_) return;
    std::fprintf(rest_, "\r\x1b[K%s%s%s", kDim, text.c_str(), kPlain);
    std::fflush(rest_);
    status_open_ = true;
}

void AnswerPrinter::clear_status() {
    if (!status_open_) return;
    std::fputs("\r\x1b[K", rest_);
    std::fflush(rest_);
    status_open_ = false;
}

void AnswerPrinter::enter(Section section) {
    clear_status();
    if (section_ == section) return;
    if (section_ == Section::reasoning && colours_) {
        std::fputs(kPlain, rest_);
        std::fputs(line_open_ ? "\n\n" : "\n", rest_);
        std::fflush(rest_);
        line_open_ = false;
    }
    if (section == Section::reasoning) std::fputs(kDim, rest_);
    section_ = section;
}

void AnswerPrinter::reasoning(std::string_view text) {
    if (!colours_ || text.empty()) return;
    if (!reasoning_shown_) {
        if (!status_open_) status("thinking ...");
        return;
    }
    enter(Section::reasoning);
    const std::string shown = harmless(text);
    std::fwrite(shown.data(), 1, shown.size(), rest_);
    std::fflush(rest_);
    line_open_ = text.back() != '\n';
}

void AnswerPrinter::content(std::string_view text) {
    if (text.empty()) return;
    enter(Section::content);
    const std::string shown = answers_on_screen_ ? harmless(text) : std::string(text);
    if (std::fwrite(shown.data(), 1, shown.size(), answers_) != shown.size() || std::fflush(answers_) != 0) ok_ = false;
    line_open_ = text.back() != '\n';
}

void AnswerPrinter::finish() {
    clear_status();
    if (section_ == Section::reasoning) {
        std::fputs(kPlain, rest_);
        if (line_open_) std::fputc('\n', rest_);
        std::fflush(rest_);
    } else if (section_ == Section::content && line_open_) {
        std::fputc('\n', answers_);
        if (std::fflush(answers_) != 0) ok_ = false;
    }
    section_ = Section::none;
    line_open_ = false;
}

void AnswerPrinter::note(const std::string& text) {
    if (!colours_) return;
    clear_status();
    std::fprintf(rest_, "%s%s%s\n", kDim, text.c_str(), kPlain);
    std::fflush(rest_);
}

}  // namespace strata::cli
