// Models without calls: reasoning tags at most.
#include "text/chat_dialect.h"

namespace strata {
namespace {

class Plain final : public Dialect {
  public:
    explicit Plain(bool has_reasoning) : has_reasoning_(has_reasoning) {}

    std::string_view name() const override { return "none"; }
    std::string_view reasoning_opener() const override { return has_reasoning_ ? "<think>" : ""; }
    std::string_view reasoning_closer() const override { return has_reasoning_ ? "</think>" : ""; }
    std::unique_ptr<CallReader> reader(std::string_view, bool, const ToolSet&) const override { return nullptr; }
    Match declared(std::string_view, const ToolSet&) const override { return Match::no; }
    std::string_view close_reasoning() const override { return "\n</think>\n\n"; }
    std::string_view open_reasoning() const override { return "<think>\n"; }
    std::string forced_call(std::string_view) const override { return {}; }

  private:
    bool has_reasoning_;
};

}  // namespace

const Dialect& plain_dialect(bool has_reasoning) {
    static const Plain with(true), without(false);
    return has_reasoning ? with : without;
}

}  // namespace strata
