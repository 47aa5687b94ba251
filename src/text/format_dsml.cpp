// DeepSeek V4: calls in a block of elements, whose parameters say whether they are text.
//
//   <｜DSML｜tool_calls>
//   <｜DSML｜invoke name="NAME">
//   <｜DSML｜parameter name="KEY" string="true">text</｜DSML｜parameter>
//   <｜DSML｜parameter name="KEY" string="false">JSON</｜DSML｜parameter>
//   </｜DSML｜invoke>
//   </｜DSML｜tool_calls>
#include "text/chat_dialect.h"
#include "text/format_xml.h"
#include "text/grammar_calls.h"

namespace strata {
namespace {

XmlTags tags(std::string_view opener) {
    XmlTags all{"<｜DSML｜invoke name=\"",
                "</｜DSML｜invoke>",
                "<｜DSML｜parameter name=\"",
                "</｜DSML｜parameter>",
                "",
                true,
                false};
    if (!opener.empty()) all.block_end.append("</").append(opener.substr(1));
    return all;
}

class Dsml final : public Dialect {
  public:
    std::string_view name() const override { return "dsml"; }

    std::span<const std::string_view> call_openers() const override {
        static constexpr std::string_view all[] = {"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"};
        return all;
    }
    std::string_view bare_call_opener() const override { return "<｜DSML｜invoke name=\""; }
    std::string_view bare_call_closer() const override { return "</｜DSML｜tool_calls>"; }

    std::unique_ptr<CallReader> reader(std::string_view opener, bool bare, const ToolSet& tools) const override {
        return std::make_unique<XmlReader>(tags(bare ? std::string_view() : opener), bare, tools);
    }
    Match declared(std::string_view, const ToolSet&) const override { return Match::yes; }
    Match declared_bare(std::string_view after_opener, const ToolSet& tools) const override {
        return declared_name(after_opener, tags({}), tools);
    }

    std::string forced_call(std::string_view name) const override {
        std::string text = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"";
        if (!name.empty()) text.append(name).append("\">\n");
        return text;
    }
    Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                           const Tool& tool) const override {
        ParameterShape shape{[](const std::string& key, bool is_text) {
                                 return "<｜DSML｜parameter name=\"" + key + "\" string=\"" +
                                        (is_text ? "true" : "false") + "\">";
                             },
                             "</｜DSML｜parameter>\n"};
        STRATA_TRY_ASSIGN(auto at, add_parameters(builder, from, tool, shape));
        return builder.literal(at, "</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
    }
};

}  // namespace

const Dialect& dsml_dialect() {
    static const Dsml dialect;
    return dialect;
}

}  // namespace strata
