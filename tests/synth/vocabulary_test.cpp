// The made-up vocabularies through the program's own tokenizer and template engine.
#include "synth/vocabulary.h"

#include <gtest/gtest.h>

#include "gguf/file.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

namespace strata::synth {
namespace {

struct Family {
    const char* name;
    const VocabularySpec& spec;
};
std::vector<Family> families() {
    return {{"qwen", qwen_vocabulary()},         {"gemma", gemma_vocabulary()},     {"lfm2", lfm_vocabulary(false)},
            {"lfm2.5", lfm_vocabulary(true)},    {"kolibri", kolibri_vocabulary()}, {"flint", flint_vocabulary()},
            {"deepseek", deepseek_vocabulary()}, {"glm", glm_vocabulary()}};
}

/// A file with nothing but the tokenizer's keys.
class Keys {
  public:
    explicit Keys(const VocabularySpec& spec) {
        gguf::Contents contents;
        add_tokenizer(contents.keys, spec);
        header_ = gguf::lay_out(contents, "keys.gguf").value().parts[0].header;
    }
    gguf::File file() const {
        return std::move(gguf::File::from_memory(std::as_bytes(std::span(header_)), "keys")).value();
    }

  private:
    std::string header_;
};

const char* const kTexts[] = {
    "The quick brown fox jumps over the lazy dog.",
    "int main() {\n\tfor (int i = 0; i < 10; ++i)\n        std::printf(\"%d\\n\", i);\n}\n\n\n",
    "Grüße, Ελλάδα, Привет, 你好世界, こんにちは, 🎉🚀, e\xCC\x81, \xEF\xBF\xBD, 1234567",
    "     leading and trailing    ",
    "",
};

TEST(SynthVocabulary, HasTheRealSizeAndNoTokenTwice) {
    for (const Family& family : families()) {
        const Vocabulary vocabulary = make_vocabulary(family.spec);
        EXPECT_EQ(vocabulary.tokens.size(), family.spec.size) << family.name;
        EXPECT_EQ(vocabulary.merges.size(), family.spec.merges) << family.name;
        std::vector<std::string> sorted = vocabulary.tokens;
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        EXPECT_EQ(twice, sorted.end()) << family.name << ": " << *twice;
        for (const FixedToken& token : family.spec.fixed) EXPECT_EQ(vocabulary.tokens[token.id], token.text);
    }
}

TEST(SynthVocabulary, AnyTextBecomesTokensAndComesBack) {
    for (const Family& family : families()) {
        const Keys keys(family.spec);
        const auto tokenizer = Tokenizer::load(keys.file());
        ASSERT_TRUE(tokenizer.ok()) << family.name << ": " << tokenizer.error().message;
        for (const char* text : kTexts) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << family.name;
        // Not a token a letter: prompts of a benchmark should be about as long as real ones.
        const size_t count =
            tokenizer->encode("every word of this sentence is made of common letters and of nothing else at all")
                .size();
        EXPECT_LT(count, 40u) << family.name;
        EXPECT_TRUE(tokenizer->eos()) << family.name;
        EXPECT_FALSE(tokenizer->end_of_generation().empty()) << family.name;
    }
}

TEST(SynthVocabulary, TheTemplateWritesTurnsOfKnownTokens) {
    const Json messages = Json::parse(R"([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is the weather?"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2}}}]},
        {"role": "tool", "content": "rain"}, {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks"}])");
    const Json tools = Json::parse(
        R"([{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])");
    for (const Family& family : families()) {
        const Keys keys(family.spec);
        const gguf::File file = keys.file();
        const auto tokenizer = Tokenizer::load(file);
        ASSERT_TRUE(tokenizer.ok());
        const auto parsed = Template::parse(file.get_string("tokenizer.chat_template").value());
        ASSERT_TRUE(parsed.ok()) << family.name << ": " << parsed.error().message;
        for (const bool thinking : {true, false}) {
            const Json variables = {{"messages", messages},
                                    {"tools", tools},
                                    {"add_generation_prompt", true},
                                    {"enable_thinking", thinking},
                                    {"bos_token", std::string(tokenizer->bos_text())},
                                    {"eos_token", std::string(tokenizer->eos_text())}};
            const auto prompt = parsed->render(variables);
            ASSERT_TRUE(prompt.ok()) << family.name << ": " << prompt.error().message;
            for (const char* part :
                 {"Be brief.", "What is the weather?", "weather", "Oslo", "rain", "It rains.", "Thanks"})
                EXPECT_NE(prompt->find(part), std::string::npos) << family.name << " lacks " << part << ":\n"
                                                                 << *prompt;
            const auto ids = tokenizer->encode_prompt(*prompt);
            const auto controls = std::count_if(
                ids.begin(), ids.end(), [&](int32_t id) { return tokenizer->type(id) == strata::TokenType::control; });
            EXPECT_GE(controls, 5) << family.name << ":\n" << *prompt;
        }
    }
}

}  // namespace
}  // namespace strata::synth
