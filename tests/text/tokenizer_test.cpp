// Tokenizers against the fixtures, and the rules that hold for every vocabulary.
#include "text/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "gguf/file.h"
#include "text/detokenizer.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "tokenizer_fixtures.h"

namespace strata {
namespace {

Tokenizer load(const std::string& name) {
    auto file = gguf::File::open(fixture_path(name + ".gguf"));
    if (!file.ok()) throw std::runtime_error(file.error().message);
    auto tokenizer = Tokenizer::load(*file);
    if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
    return std::move(tokenizer).value();
}

const std::vector<std::string> vocabularies = {"bpe-deepseek-llm", "bpe-deepseek-v3", "bpe-glm4",   "bpe-gpt-2",
                                               "bpe-joyai-llm",    "bpe-kolibri1",    "bpe-laguna", "bpe-lfm2",
                                               "bpe-llama-bpe",    "bpe-qwen2",       "bpe-qwen35", "gemma4"};

class Fixture : public testing::TestWithParam<std::string> {
  protected:
    const Tokenizer tokenizer = load(GetParam());
    const nlohmann::json expected = read_json_fixture(GetParam() + ".json");
};

std::string text_of(const nlohmann::json& entry) {
    return entry.contains("hex") ? from_hex(entry["hex"]) : entry["text"].get<std::string>();
}

TEST_P(Fixture, IdsEqualInEveryCase) {
    int checked = 0;
    for (const auto& entry : expected["cases"]) {
        const EncodeOptions options = {.parse_special = entry["parse_special"],
                                       .add_special = entry["add_special"] ? AddSpecial::always : AddSpecial::none};
        EXPECT_EQ(tokenizer.encode(text_of(entry), options), entry["ids"].get<std::vector<int32_t>>())
            << entry["name"] << ": " << text_of(entry);
        ++checked;
    }
    EXPECT_EQ(checked, 86);
}

TEST_P(Fixture, TextOfIdsEqualsInEveryCase) {
    for (const auto& entry : expected["cases"]) {
        const std::vector<int32_t> ids = entry["ids"];
        const std::string text = unicode::replace_invalid(text_of(entry));
        EXPECT_EQ(tokenizer.decode(ids, true), entry.value("detok_all", text)) << entry["name"];
        EXPECT_EQ(tokenizer.decode(ids), entry.value("detok_visible", entry.value("detok_all", text))) << entry["name"];
    }
}

TEST_P(Fixture, PiecesEqualForEveryId) {
    const std::vector<std::string> pieces = expected["pieces_hex"];
    const std::map<std::string, std::string> differing = expected["visible_pieces_differ"];
    ASSERT_EQ(tokenizer.vocab_size(), static_cast<int32_t>(pieces.size()));
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string shown = from_hex(pieces[static_cast<size_t>(id)]);
        const auto visible = differing.find(std::to_string(id));
        EXPECT_EQ(tokenizer.piece(id, true), shown) << id;
        EXPECT_EQ(tokenizer.piece(id), visible == differing.end() ? shown : from_hex(visible->second)) << id;
    }
}

TEST_P(Fixture, BeginningAndEndsEqual) {
    const auto id = [&](const char* key) {
        return expected[key].is_null() ? std::optional<int32_t>() : expected[key].get<int32_t>();
    };
    EXPECT_EQ(tokenizer.bos(), id("bos"));
    EXPECT_EQ(tokenizer.eos(), id("eos"));
    EXPECT_EQ(tokenizer.adds_bos(), expected["add_bos"].get<bool>());
    EXPECT_EQ(tokenizer.adds_eos(), expected["add_eos"].get<bool>());
    EXPECT_EQ(tokenizer.end_of_generation(), expected["end_of_generation"].get<std::vector<int32_t>>());
    for (const int32_t end : tokenizer.end_of_generation()) EXPECT_TRUE(tokenizer.is_end_of_generation(end));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Fixture, testing::ValuesIn(vocabularies), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// --- rules that hold for every vocabulary and every text ---

class AnyText : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const unsigned seed = std::random_device{}();
        random.seed(seed);
        trace = std::make_unique<testing::ScopedTrace>(__FILE__, __LINE__, "seed " + std::to_string(seed));
    }
    const Tokenizer tokenizer = load(GetParam());
    std::mt19937 random;
    std::unique_ptr<testing::ScopedTrace> trace;
};

TEST_P(AnyText, ComesBackByteForByte) {
    for (int round = 0; round < 300; ++round) {
        const std::string text = random_text(random, static_cast<int>(random() % 60));
        for (const bool parse_special : {false, true})
            ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, {.parse_special = parse_special}), true), text);
    }
}

TEST_P(AnyText, BytesThatAreNotUtf8ComeBackWhereKeptAndAreReplacedElsewhere) {
    for (int round = 0; round < 300; ++round) {
        std::string text = random_bytes(random, random() % 100);
        if (round % 2) text.insert(text.size() / 2, random_text(random, 5));
        const EncodeOptions keep = {.parse_special = false, .invalid_utf8 = InvalidUtf8::keep};
        ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, keep), true), text);
        ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, {.parse_special = false}), true),
                  unicode::replace_invalid(text));
    }
}

TEST_P(AnyText, GivesTheSameIdsWhateverWasEncodedBefore) {
    const Tokenizer fresh = load(GetParam());
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) texts.push_back(random_text(random, 40));
    std::vector<std::vector<int32_t>> first;
    for (const std::string& text : texts) first.push_back(tokenizer.encode(text));
    for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(tokenizer.encode(texts[i]), first[i]);
    for (size_t i = texts.size(); i-- > 0;) ASSERT_EQ(fresh.encode(texts[i]), first[i]);
}

TEST_P(AnyText, IsCutAtSpecialTokensAsIfEncodedApart) {
    std::vector<int32_t> specials;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
        if (tokenizer.type(id) == TokenType::control || tokenizer.type(id) == TokenType::user_defined)
            specials.push_back(id);
    ASSERT_FALSE(specials.empty());
    for (int round = 0; round < 100; ++round) {
        std::string text;
        std::vector<int32_t> expected;
        for (int i = 0; i < 6; ++i) {
            const std::string part = random_text(random, 6);
            const int32_t special = specials[random() % specials.size()];
            text += part;
            text += tokenizer.piece(special, true);
            tokenizer.encode(part, {}, expected);
            expected.push_back(special);
        }
        ASSERT_EQ(tokenizer.encode(text), expected);
    }
}

TEST_P(AnyText, StreamsAsTheWholeWouldRead) {
    for (int round = 0; round < 200; ++round) {
        const std::string text = random_text(random, 20);
        Detokenizer stream(tokenizer);
        std::string sent;
        for (const int32_t id : tokenizer.encode(text, {.parse_special = false})) {
            const std::string now = stream.push(id);
            ASSERT_EQ(unicode::valid_prefix(now), now.size());
            sent += now;
        }
        ASSERT_EQ(sent + stream.finish(), text);
    }
}

TEST_P(AnyText, IsEncodedByManyThreadsAtOnce) {
    std::vector<std::string> texts;
    for (int i = 0; i < 50; ++i) texts.push_back(random_text(random, 50));
    std::vector<std::vector<int32_t>> expected;
    for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < texts.size(); ++i) wrong[t] += tokenizer.encode(texts[i]) != expected[i];
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

/// Ids by the rules as they are stated, on strings: split, then merge the lowest rank first. No cuts, no cache.
std::vector<int32_t> encode_by_the_rules(const Vocabulary& vocabulary, const Tokenizer& tokenizer,
                                         const std::string& text) {
    std::map<std::string, int32_t, std::less<>> ids;
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
        ids[std::string(vocabulary.tokens[i])] = static_cast<int32_t>(i);
    std::map<std::pair<std::string, std::string>, size_t> ranks;
    for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
        const std::string merge(vocabulary.merges[rank]);
        const size_t space = merge.find(' ', 1);
        ranks.emplace(std::pair(merge.substr(0, space), merge.substr(space + 1)), rank);
    }
    const bool gemma = tokenizer.kind() == TokenizerKind::gemma4;
    std::vector<std::string> pieces;
    if (gemma) {
        std::string escaped;
        for (const char c : text) c == ' ' ? escaped.append("\xE2\x96\x81") : escaped.append(1, c);
        for (size_t i = 0; i < escaped.size(); ++i) {
            if (i == 0 || (escaped[i] == '\n') != (escaped[i - 1] == '\n')) pieces.emplace_back();
            pieces.back() += escaped[i];
        }
    } else {
        size_t begin = 0;
        for (const size_t end : split(find_pre_tokenizer(tokenizer.split_rule())->rule, text)) {
            pieces.push_back(text.substr(begin, end - begin));
            begin = end;
        }
    }
    std::vector<int32_t> result;
    for (const std::string& piece : pieces) {
        std::vector<std::string> symbols;
        std::string shown;
        if (gemma) {
            shown = piece;
        } else {
            for (const char byte : piece) {  // the alphabet by its definition
                const auto value = static_cast<uint32_t>(static_cast<unsigned char>(byte));
                const auto printable = [](uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b != 173); };
                uint32_t others = 0;
                for (uint32_t b = 0; b < value; ++b) others += !printable(b);
                append_utf8(shown, printable(value) ? value : 0x100 + others);
            }
        }
        const bool whole = gemma ? piece[0] == '\n' : find_pre_tokenizer(tokenizer.split_rule())->ignore_merges;
        if (whole && ids.count(shown)) {
            result.push_back(ids[shown]);
            continue;
        }
        for (size_t at = 0; at < shown.size();) {
            const CodePoint c = decode_utf8(shown, at);
            symbols.push_back(shown.substr(at, c.size));
            at += c.size;
        }
        while (true) {
            size_t lowest = SIZE_MAX, best = 0;
            for (size_t i = 0; i + 1 < symbols.size(); ++i) {
                const auto found = ranks.find({symbols[i], symbols[i + 1]});
                if (found != ranks.end() && found->second < lowest) lowest = found->second, best = i;
            }
            if (lowest == SIZE_MAX) break;
            symbols[best] += symbols[best + 1];
            symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
        }
        for (const std::string& symbol : symbols) {
            if (ids.count(symbol)) {
                result.push_back(ids[symbol]);
                continue;
            }
            for (const char byte : symbol) {
                char name[8];
                std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
                result.push_back(ids.at(name));
            }
        }
    }
    return result;
}

TEST_P(AnyText, GetsTheIdsThatTheRulesGive) {
    auto file = gguf::File::open(fixture_path(GetParam() + ".gguf"));
    ASSERT_TRUE(file.ok());
    auto vocabulary = read_vocabulary(*file);
    ASSERT_TRUE(vocabulary.ok());
    // User-defined tokens are cut out first; none of these texts has one.
    for (int round = 0; round < 40; ++round) {
        std::string text = random_text(random, 25);
        if (round % 4 == 0) text = std::string(random() % 150, " a\n="[random() % 4]) + text;
        if (round % 4 == 1)  // one long piece of many characters
            for (int i = 0; i < 60; ++i) append_utf8(text, 0x4E00 + random() % 40);
        ASSERT_EQ(tokenizer.encode(text, {.parse_special = false}), encode_by_the_rules(*vocabulary, tokenizer, text))
            << text;
    }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, AnyText, testing::ValuesIn(vocabularies), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// --- vocabularies made here ---

/// A byte-level vocabulary of the 256 bytes, to which tests add.
struct Made {
    std::deque<std::string> strings;
    Vocabulary vocabulary;

    Made() {
        vocabulary.source = "made.gguf";
        vocabulary.model = "gpt2";
        vocabulary.pre = "qwen2";
        for (int byte = 0, other = 0; byte < 256; ++byte) {
            const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
            std::string shown;
            append_utf8(shown, static_cast<uint32_t>(printable ? byte : 0x100 + other++));
            add(shown);
        }
        merge("a b");
        add("ab");
    }
    int32_t add(const std::string& token, TokenType type = TokenType::normal) {
        vocabulary.tokens.push_back(strings.emplace_back(token));
        vocabulary.types.push_back(static_cast<int32_t>(type));
        return static_cast<int32_t>(vocabulary.tokens.size()) - 1;
    }
    void merge(const std::string& text) { vocabulary.merges.push_back(strings.emplace_back(text)); }
    Tokenizer make() const {
        auto tokenizer = Tokenizer::make(vocabulary);
        if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
        return std::move(tokenizer).value();
    }
    /// The message of the refusal, or nothing.
    std::string refusal(std::string_view force_pre = {}) const {
        auto tokenizer = Tokenizer::make(vocabulary, force_pre);
        return tokenizer.ok() ? "" : tokenizer.error().message;
    }
};

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

TEST(TokenizerFile, OfAnotherKindIsRefusedByName) {
    Made made;
    made.vocabulary.model = "llama";
    auto tokenizer = Tokenizer::make(made.vocabulary);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().kind, ErrorKind::file);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("made.gguf: tokenizer.ggml.model is 'llama'"));
}

TEST(TokenizerFile, WithAnUnknownSplitRuleIsRefusedUnlessOneIsForced) {
    Made made;
    made.vocabulary.pre = "novel";
    EXPECT_THAT(made.refusal(), testing::AllOf(HasSubstr("'novel'"), HasSubstr("llama-bpe")));
    made.vocabulary.pre.clear();
    EXPECT_THAT(made.refusal(), HasSubstr("missing"));
    EXPECT_THAT(made.refusal("mistaken"), HasSubstr("mistaken"));
    auto forced = Tokenizer::make(made.vocabulary, "qwen35");
    ASSERT_TRUE(forced.ok());
    EXPECT_EQ(forced->split_rule(), "qwen35");
    EXPECT_EQ(forced->warnings().size(), 1u);
}

TEST(TokenizerFile, ThatCannotWorkIsRefused) {
    Made made;
    made.add("ab");
    EXPECT_THAT(made.refusal(), HasSubstr("the same string"));
    made = Made();
    made.vocabulary.tokens[0x41] = "odd";
    EXPECT_THAT(made.refusal(), HasSubstr("byte 65"));
    made = Made();
    made.vocabulary.types.pop_back();
    EXPECT_THAT(made.refusal(), HasSubstr("token_type"));
    made = Made();
    made.vocabulary.merges.clear();
    EXPECT_THAT(made.refusal(), HasSubstr("merges"));
    made = Made();
    made.vocabulary.tokens.clear();
    EXPECT_THAT(made.refusal(), HasSubstr("tokens"));
    made = Made();
    made.vocabulary.add_space_prefix = true;
    EXPECT_THAT(made.refusal(), HasSubstr("add_space_prefix"));
    made = Made();
    made.vocabulary.model = "gemma4";
    EXPECT_THAT(made.refusal(), HasSubstr("<0x00>"));
    made = Made();
    made.add(std::string(2000, '<'), TokenType::control);
    EXPECT_THAT(made.refusal(), HasSubstr("2000 bytes"));
}

TEST(TokenizerFile, WithIdsOutsideTheVocabularyWorksWithoutThem) {
    Made made;
    made.vocabulary.bos = 9999;
    made.vocabulary.eos = -1;
    made.vocabulary.add_bos = true;
    made.vocabulary.suppressed = {7, 5, 7, -3, 100000};
    const Tokenizer tokenizer = made.make();
    EXPECT_FALSE(tokenizer.bos());
    EXPECT_FALSE(tokenizer.adds_bos());
    EXPECT_EQ(tokenizer.bos_text(), "");
    EXPECT_TRUE(tokenizer.end_of_generation().empty());
    EXPECT_THAT(tokenizer.suppressed(), ElementsAre(5, 7));
    EXPECT_EQ(tokenizer.warnings().size(), 2u);
}

TEST(TokenizerFile, MergesThatLeadNowhereAreIgnored) {
    Made made;
    for (const char* odd : {"x y", "nospace", "x ", "q\xFF z", ""}) made.merge(odd);
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.encode("xyab"), (Ids{'x', 'y', 256}));
    ASSERT_EQ(tokenizer.warnings().size(), 1u);
    EXPECT_THAT(tokenizer.warnings()[0], HasSubstr("5 of 6 merges"));
}

TEST(TokenizerFile, WithoutTypesHasOrdinaryTokensOnly) {
    Made made;
    const int32_t end = made.add("<|im_end|>");
    made.vocabulary.types.clear();
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.type(end), TokenType::normal);
    EXPECT_EQ(tokenizer.piece(end), "<|im_end|>");
    EXPECT_EQ(tokenizer.encode("<|im_end|>").size(), 10u);
}

TEST(TokenizerFile, EmptyTokensGetAName) {
    Made made;
    const int32_t empty = made.add("");
    const int32_t another = made.add("");
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.piece(empty), "[EMPTY_" + std::to_string(empty) + "]");
    EXPECT_NE(tokenizer.piece(empty), tokenizer.piece(another));
}

TEST(EndOfGeneration, IsFoundByKeyAndByTextOfMarkersOnly) {
    Made made;
    const int32_t eos = made.add("stop");  // an ordinary token, named by its key
    const int32_t im_end = made.add("<|im_end|>", TokenType::control);
    const int32_t pad = made.add("<|fim_pad|>", TokenType::control);
    const int32_t html = made.add("</s>");  // Qwen's vocabularies have it as an ordinary token: text, no end
    made.add("<EOT>", TokenType::unused);
    made.vocabulary.eos = eos;
    made.vocabulary.more_ends = {65};
    const Tokenizer tokenizer = made.make();
    EXPECT_THAT(tokenizer.end_of_generation(), ElementsAre(65, eos, im_end, pad));
    EXPECT_EQ(tokenizer.type(eos), TokenType::control);
    EXPECT_FALSE(tokenizer.is_end_of_generation(html));
    EXPECT_EQ(tokenizer.piece(html), "</s>");
    EXPECT_EQ(tokenizer.piece(eos), "");
    EXPECT_EQ(tokenizer.encode("xstopx"), (Ids{'x', eos, 'x'}));
    EXPECT_EQ(tokenizer.encode("stop", {.parse_special = false}), (Ids{'s', 't', 'o', 'p'}));
}

TEST(EndOfGeneration, KeepsEndMarkersOfOtherDialectsOut) {
    Made made;
    const int32_t end = made.add("<|end|>", TokenType::control);
    EXPECT_TRUE(made.make().is_end_of_generation(end));
    made.add("<|return|>", TokenType::control);
    EXPECT_TRUE(made.make().is_end_of_generation(end));
    made.add("<|call|>", TokenType::control);
    EXPECT_FALSE(made.make().is_end_of_generation(end));

    Made gemma_like;
    const int32_t s = gemma_like.add("</s>", TokenType::control);
    EXPECT_TRUE(gemma_like.make().is_end_of_generation(s));
    gemma_like.add("<|tool_response>", TokenType::user_defined);
    EXPECT_FALSE(gemma_like.make().is_end_of_generation(s));
}

TEST(SpecialTokens, ControlOnesAreTextWhereNotParsedAndUserDefinedOnesNever) {
    Made made;
    const int32_t start = made.add("<|start|>", TokenType::control);
    const int32_t think = made.add("<think>", TokenType::user_defined);
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.encode("a<|start|><think>b"), (Ids{'a', start, think, 'b'}));
    const Ids plain = tokenizer.encode("<|start|><think>b", {.parse_special = false});
    EXPECT_THAT(plain, testing::Contains(think));
    EXPECT_THAT(plain, testing::Not(testing::Contains(start)));
    EXPECT_EQ(tokenizer.decode(plain), "<|start|><think>b");
    EXPECT_EQ(tokenizer.decode(Ids{'a', start, think}), "a<think>");
    EXPECT_EQ(tokenizer.decode(Ids{'a', start, think}, true), "a<|start|><think>");
}

TEST(SpecialTokens, LongestOfThoseThatBeginAtOnePlaceWins) {
    Made made;
    const int32_t shorter = made.add("<x", TokenType::control);
    const int32_t user = made.add("<xy", TokenType::user_defined);
    const int32_t longer = made.add("<xyz>", TokenType::control);
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.encode("<xyz><xyz<xy<x<"), (Ids{longer, user, 'z', user, shorter, '<'}));
    EXPECT_EQ(tokenizer.encode("<xyz>", {.parse_special = false}), (Ids{user, 'z', '>'}));
}

TEST(SpecialTokens, AreMatchedOnBytesBeforeTextIsRepaired) {
    Made made;
    const int32_t special = made.add("<s>", TokenType::control);
    const Tokenizer tokenizer = made.make();
    const Ids ids = tokenizer.encode("\xE4<s>\xBD");
    ASSERT_EQ(ids.size(), 7u);  // three bytes of U+FFFD on either side
    EXPECT_EQ(ids[3], special);
}

TEST(BeginOfSequence, IsPutOnceUnlessAskedTwice) {
    const Tokenizer llama = load("bpe-llama-bpe");
    const int32_t bos = *llama.bos();
    const std::string text(llama.bos_text());
    EXPECT_EQ(llama.encode_prompt("a"), (Ids{bos, llama.encode("a")[0]}));
    EXPECT_EQ(llama.encode_prompt(text + "a"), (Ids{bos, llama.encode("a")[0]}));
    EXPECT_EQ(llama.encode_prompt(text + text).size(), 2u);  // the text asks for two itself
    EXPECT_EQ(llama.encode_prompt(""), (Ids{bos}));
    EXPECT_EQ(llama.encode(text, {.add_special = AddSpecial::always}), (Ids{bos, bos}));
    EXPECT_EQ(llama.encode("a"), llama.encode("a", {.add_special = AddSpecial::none}));

    std::vector<int32_t> ids = {7};  // what the caller has stays in front
    llama.encode("a", {.add_special = AddSpecial::once}, ids);
    EXPECT_EQ(ids, (Ids{7, bos, llama.encode("a")[0]}));

    const Tokenizer qwen = load("bpe-qwen35");  // has one and does not add it
    ASSERT_TRUE(qwen.bos());
    EXPECT_EQ(qwen.encode_prompt("a"), qwen.encode("a"));
    EXPECT_EQ(qwen.encode_prompt(std::string(qwen.bos_text()) + "a")[0], *qwen.bos());
}

TEST(BeginOfSequence, AlwaysComesFirstInGemmaWhateverTheFileSays) {
    auto file = gguf::File::open(fixture_path("gemma4.gguf"));
    ASSERT_TRUE(file.ok());
    auto vocabulary = read_vocabulary(*file);
    ASSERT_TRUE(vocabulary.ok());
    vocabulary->add_bos = false;
    auto gemma = Tokenizer::make(*vocabulary);
    ASSERT_TRUE(gemma.ok());
    EXPECT_EQ(gemma->encode_prompt("x")[0], *gemma->bos());
}

TEST(EndOfSequence, IsPutOnceWhereTheFileSaysSo) {
    Made made;
    const int32_t eos = made.add("<e>", TokenType::control);
    made.vocabulary.eos = eos;
    made.vocabulary.add_eos = true;
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.encode_prompt("x"), (Ids{'x', eos}));
    EXPECT_EQ(tokenizer.encode_prompt("x<e>"), (Ids{'x', eos}));
    EXPECT_EQ(tokenizer.encode("x<e>", {.add_special = AddSpecial::always}), (Ids{'x', eos, eos}));
    EXPECT_EQ(tokenizer.encode_prompt(""), (Ids{eos}));
}

TEST(Gemma, NewlineRunsAndSymbolsOutsideTheVocabulary) {
    Made made;
    made.vocabulary = {};
    made.vocabulary.source = "made.gguf";
    made.vocabulary.model = "gemma4";
    for (int byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
        made.add(name, TokenType::byte);
    }
    const int32_t a = made.add("a"), space = made.add("\xE2\x96\x81"), newline = made.add("\n");
    const int32_t three = made.add("\n\n\n"),
                  joined = made.add(
                      "\xC3\xA9"
                      "a"),
                  space_a = made.add(
                      "\xE2\x96\x81"
                      "a");
    made.merge("\xC3\xA9 a");  // its left side is no token: it is a symbol all the same
    made.merge("\xE2\x96\x81 a");
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.encode("a a  a\n\n\n\n"),
              (Ids{a, space_a, space, space_a, newline, newline, newline, newline}));
    EXPECT_EQ(tokenizer.encode("\n\n\n"), (Ids{three}));
    EXPECT_EQ(tokenizer.encode("\xC3\xA9"
                               "a\xC3\xA9"),
              (Ids{joined, 0xC3, 0xA9}));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("\xC3\xA9 a\t")), "\xC3\xA9 a\t");
    std::string unknown;  // of several sizes, none of them a symbol, and no place to cut: bytes that are not UTF-8
    for (int i = 0; i < 30; ++i) unknown += "\xC3\xA8\xFF\xB6";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(unknown, {.invalid_utf8 = InvalidUtf8::keep})), unknown);
    EXPECT_EQ(tokenizer.encode("<0x41>").size(), 6u);  // the text of a byte token is no byte token
    EXPECT_EQ(tokenizer.token_id(" a"), space_a);
    EXPECT_EQ(tokenizer.kind_name(), "gemma4");
}

TEST(IgnoreMerges, TakesWholePiecesButNotPartsOfLongerOnes) {
    Made made;
    made.vocabulary.pre = "llama-bpe";
    const int32_t word = made.add("word");  // no merge leads here
    const int32_t wo = made.add("wo"), rd = made.add("rd");
    made.add("or");
    for (const char* merge : {"w o", "r d", "o r"}) made.merge(merge);
    const Tokenizer llama = made.make();
    EXPECT_EQ(llama.encode("word"), (Ids{word}));
    EXPECT_EQ(llama.encode("wordy"), (Ids{wo, rd, 'y'}));
    // A long piece is cut where no merge joins. "word" is a part of this one, and no piece.
    Ids expected(42, 'z');
    expected[0] = wo;
    expected[1] = rd;
    EXPECT_EQ(llama.encode("word" + std::string(40, 'z')), expected);
    EXPECT_EQ(llama.encode("word"), (Ids{word}));
    made.vocabulary.pre = "qwen2";
    EXPECT_EQ(made.make().encode("word"), (Ids{wo, rd}));
}

TEST(LongRuns, OfEveryKindEndInTheLongestTokens) {
    Made made;
    std::string left = "x";
    for (int i = 0; i < 5; ++i) {  // x, xx, xxxx, ... 32
        made.merge(left + " " + left);
        left += left;
        made.add(left);
    }
    const Tokenizer tokenizer = made.make();
    const int32_t longest = tokenizer.vocab_size() - 1;
    EXPECT_EQ(tokenizer.encode(std::string(131072, 'x')), Ids(131072 / 32, longest));
    std::string mixed;
    for (int i = 0; i < 30000; ++i) mixed += "xxxab";
    const Ids ids = tokenizer.encode(mixed);
    EXPECT_EQ(ids.size(), 90000u);
    EXPECT_EQ(tokenizer.decode(ids), mixed);
}

TEST(TokenId, IsFoundByTheTextThatTheTokenStandsFor) {
    Made made;
    const int32_t hello = made.add(
        "\xC4\xA0"
        "hello");  // " hello" in the alphabet
    const int32_t end = made.add("<|im_end|>", TokenType::control);
    const Tokenizer tokenizer = made.make();
    EXPECT_EQ(tokenizer.token_id(" hello"), hello);
    EXPECT_EQ(tokenizer.token_id("<|im_end|>"), end);
    EXPECT_EQ(tokenizer.token_id("\n"), 10);
    EXPECT_FALSE(tokenizer.token_id("<|im_start|>"));
    EXPECT_FALSE(tokenizer.token_id(""));
}

TEST(Pieces, OfIdsOutsideTheVocabularyAndUnusedOnesAreEmpty) {
    Made made;
    const int32_t unused = made.add("[PAD257]", TokenType::unused);
    const Tokenizer tokenizer = made.make();
    for (const int32_t id : {-1, INT32_MIN, tokenizer.vocab_size(), INT32_MAX, unused}) {
        EXPECT_EQ(tokenizer.piece(id, true), "");
        EXPECT_EQ(tokenizer.type(id), TokenType::unused);
        EXPECT_FALSE(tokenizer.is_end_of_generation(id));
    }
}

}  // namespace
}  // namespace strata
