// Qwen3.5 to 3.8, Ornith, Tiel, Clover, MiniCPM-V: ChatML with calls as XML elements.
//
//   <tool_call>
//   <function=NAME>
//   <parameter=KEY>
//   value
//   </parameter>
//   </function>
//   </tool_call>
#include "text/chat_dialect.h"
#include "text/format_xml.h"
#include "text/grammar_calls.h"

namespace strata {
namespace {

XmlTags tags(bool bare) {
    return {"<function=", "</function>", "<parameter=", "</parameter>", bare ? "" : "</tool_call>", false, true};
}

class Qwen final : public Dialect {
  public:
    std::string_view name() const override { return "qwen"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {"<tool_call>"};
        return all;
    }
    std::string_view bare_call_opener() const override { return "<function="; }
    std::string_view bare_call_closer() const override { return "</tool_call>"; }
    std::string_view invented_result() const override { return "<tool_response>"; }

    std::unique_ptr<CallReader> reader(std::string_view, bool bare, const ToolSet& tools) const override {
        return std::make_unique<XmlReader>(tags(bare), bare, tools);
    }
    Match declared(std::string_view after_opener, const ToolSet& tools) const override {
        return declared_function(after_opener, tags(false), tools);
    }
    Match declared_bare(std::string_view after_opener, const ToolSet& tools) const override {
        return declared_name(after_opener, tags(true), tools);
    }

    std::string_view close_reasoning() const override { return "\n</think>\n\n"; }
    std::string_view open_reasoning() const override { return "<think>\n"; }
    std::string forced_call(std::string_view name) const override {
        std::string text = "<tool_call>\n<function=";
        if (!name.empty()) text.append(name).append(">\n");
        return text;
    }
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        ParameterShape shape{[](const std::string& key, bool) { return "<parameter=" + key + ">\n"; },
                             "\n</parameter>\n"};
        STRATA_TRY_ASSIGN(auto at, add_parameters(builder, from, tool, shape));
        return builder.literal(at, "</function>\n</tool_call>");
    }
};

}  // namespace

const Dialect& qwen_dialect() {
    static const Qwen dialect;
    return dialect;
}

}  // namespace strata
