// The interactive chat: messages and commands from a person, answers as they come.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/answer_printer.h"
#include "cli/interrupts.h"
#include "cli/line_editor.h"
#include "cli/session.h"

namespace strata::cli {

class ChatConsole {
  public:
    /// `system`: the system message, or empty. `home`: where /model finds the installed models.
    ChatConsole(SessionOptions options, std::string system, std::filesystem::path home, LineEditor& editor,
                Interrupts& interrupts);

    /// Until the person leaves; the exit code: 0, or 130 after two Ctrl-C within a second.
    Result<int> run();

  private:
    enum class Next { go_on, leave };
    struct Command;
    static const Command kCommands[];

    Result<void> open(SessionOptions options);
    Next command(const std::string& line);
    Next help(const std::string&);
    Next model(const std::string& argument);
    Next think(const std::string& argument);
    Next system(const std::string& argument);
    Next start_anew(const std::string&);
    Next retry(const std::string&);
    Next save(const std::string& argument);
    Next quit(const std::string&);
    Next answer();
    void switch_model(const std::string& name);
    void say(const std::string& text) const;
    void complain(const std::string& text) const;
    void reset();

    SessionOptions options_;
    std::string system_;
    std::filesystem::path home_;
    LineEditor& editor_;
    Interrupts& interrupts_;
    AnswerPrinter printer_;
    std::unique_ptr<Session> session_;
    Json messages_ = Json::array();
    bool left_by_interrupt_ = false;
};

}  // namespace strata::cli
