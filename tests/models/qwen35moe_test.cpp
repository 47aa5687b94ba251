#include <cmath>
#include <functional>
#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using Ids = std::vector<int32_t>;

struct Fixture {
    const char* model;
    const char* reference;
    Tolerance tolerance;
};

// 8-bit activations; the fixtures' own allowances.
const Fixture kTiny{"qwen35moe/tiny.gguf", "qwen35moe/reference.json", {0.2f, 3e-3, 0.1f}};
const Fixture kHeads{"qwen35moe/heads.gguf", "qwen35moe/reference_heads.json", {0.5f, 8e-3, 0.2f}};
const Fixture kClover{"clover_moe/tiny.gguf", "clover_moe/reference.json", {0.2f, 3e-3, 0.1f}};

class Qwen35Moe : public testing::TestWithParam<Fixture> {
  protected:
    Session session_{std::string(GetParam().model)};
    nlohmann::json reference_ = read_json(GetParam().reference);
    Tolerance allowed_ = GetParam().tolerance;
};

INSTANTIATE_TEST_SUITE_P(Fixtures, Qwen35Moe, testing::Values(kTiny, kHeads, kClover), [](const auto& info) {
    return info.index == 0 ? "tiny" : info.index == 1 ? "heads" : "clover";
});

TEST_P(Qwen35Moe, PromptsGiveTheReferenceLogitsAndAnswers) {
    for (const char* name : {"short", "mid", "long"}) {
        SCOPED_TRACE(name);
        const auto c = find_case(reference_, name);
        session_.restart();
        const Logits rows = session_.read(c.at("ids").get<Ids>());
        Tolerance allowed = allowed_;
        // Row 255 of this prompt amplifies noise tenfold (a key head hardly longer than the l2 epsilon): eight-bit
        // activations move it by 0.33. With float activations it holds like all others, see the test below.
        if (GetParam().model == std::string(kTiny.model) && name == std::string("long")) allowed = {0.4f, 8e-3, 0.1f};
        expect_case(c, rows, allowed);
        expect_greedy(session_, rows.back(), c, allowed_);
    }
}

TEST_P(Qwen35Moe, FloatWeightsGiveTheReferenceLogitsClosely) {
    const FloatTwin twin(GetParam().model);
    Session session(twin.path());
    for (const char* name : {"short", "mid", "long"}) {
        SCOPED_TRACE(name);
        const auto c = find_case(reference_, name);
        session.restart();
        expect_case(c, session.read(c.at("ids").get<Ids>()), {2e-2f, 1e-4, 5e-2f});
    }
}

TEST_P(Qwen35Moe, AnyCutOfAPromptGivesTheSameBits) {
    const auto ids = find_case(reference_, "mid").at("ids").get<Ids>();
    const Logits whole = session_.read(ids);
    for (const std::vector<int>& calls :
         {std::vector<int>{17, 23}, {1, 39}, {39, 1}, {8, 8, 8, 8, 8}, {3, 5, 7, 11, 14}}) {
        session_.restart();
        EXPECT_EQ(session_.read(ids, calls), whole);
    }
    session_.restart();
    EXPECT_EQ(session_.read(ids, std::vector<int>(40, 1)), whole);
}

TEST_P(Qwen35Moe, RejectedGuessesLeaveNoTrace) {
    const auto c = find_case(reference_, "rewind");
    const auto prefix = c.at("prefix").get<Ids>(), window = c.at("window").get<Ids>(), then = c.at("then").get<Ids>();
    const auto keep = c.at("keep").get<int>();

    session_.read(prefix);
    session_.call(window, keep);
    const Logits rows = session_.call(then);
    for (size_t t = 0; t < then.size(); ++t)
        if (c.at("gap_then")[t].get<float>() > allowed_.gap) {
            EXPECT_EQ(argmax(rows[t]), c.at("argmax_then")[t].get<size_t>());
        }
    expect_logits(c.at("logits_last").get<std::vector<float>>(), rows.back(), allowed_);

    // Kept rows of any number, then a window or a plain call: the bits of the straight run.
    for (int kept = 0; kept <= static_cast<int>(window.size()); ++kept) {
        SCOPED_TRACE(kept);
        Ids straight = prefix;
        straight.insert(straight.end(), window.begin(), window.begin() + kept);
        session_.restart();
        session_.read(straight);
        const Logits expected = session_.call(then);
        session_.restart();
        session_.read(prefix);
        session_.call(window, kept);
        EXPECT_EQ(session_.call(then, 2), expected);
        EXPECT_EQ(session_.call({then.begin() + 2, then.end()}), Logits(expected.begin() + 2, expected.end()));
    }
}

TEST_P(Qwen35Moe, SettlingTakesInTheKeptRows) {
    const auto ids = find_case(reference_, "mid").at("ids").get<Ids>();
    const Ids head(ids.begin(), ids.begin() + 20), window(ids.begin() + 20, ids.begin() + 26),
        rest(ids.begin() + 26, ids.end());
    const Logits whole = session_.read(ids);
    session_.restart();
    session_.read(head);
    session_.call(window, 6);
    session_.settle();
    EXPECT_EQ(session_.call(rest), Logits(whole.begin() + 26, whole.end()));
}

TEST_P(Qwen35Moe, StateAfterAPromptIsTheReferenceState) {
    session_.read(find_case(reference_, "mid").at("ids").get<Ids>());
    for (const auto& [layer, expected] : reference_.at("state_after_mid").items()) {
        SCOPED_TRACE("layer " + layer);
        const std::string name = "blk." + layer + ".s";
        const auto& parts = session_.model().layout().parts;
        const auto part = std::find_if(parts.begin(), parts.end(), [&](const PartSpec& p) { return p.name == name; });
        ASSERT_NE(part, parts.end());
        std::vector<float> s(part->bytes / sizeof(float));
        session_.device().copy_to_host(s.data(), session_.state().part(static_cast<PartId>(part - parts.begin())),
                                       part->bytes);
        double sum = 0, absolute = 0;
        for (float v : s) sum += v, absolute += std::abs(v);
        EXPECT_NEAR(sum, expected.at("sum").get<double>(), 0.01 * expected.at("abs_sum").get<double>());
        EXPECT_NEAR(absolute, expected.at("abs_sum").get<double>(), 0.01 * expected.at("abs_sum").get<double>());
    }
}

TEST_P(Qwen35Moe, PictureRowsTakeTheirPositions) {
    const auto& cases = reference_.at("cases");
    const auto c = std::find_if(cases.begin(), cases.end(), [](const auto& x) { return x.at("name") == "picture"; });
    if (c == cases.end()) GTEST_SKIP() << "a model without pictures";
    Picture picture{c->at("nx"), c->at("ny"), {}};
    for (const auto& row : c->at("rows"))
        for (const auto& value : row) picture.rows.push_back(value);
    Logits rows = session_.read(c->at("before").get<Ids>());
    for (auto& row : session_.picture(picture)) rows.push_back(std::move(row));
    EXPECT_EQ(session_.state().next_position, c->at("first_position_after").get<int>());
    for (auto& row : session_.read(c->at("after").get<Ids>())) rows.push_back(std::move(row));
    expect_case(*c, rows, allowed_);
}

TEST_P(Qwen35Moe, DraftBlockGuessesAsTheReference) {
    if (!session_.model().draft()) GTEST_SKIP() << "a model without a draft block";
    for (const char* name : {"short", "mid", "long"}) {
        SCOPED_TRACE(name);
        const auto c = find_case(reference_, name);
        const auto ids = c.at("ids").get<Ids>();
        session_.restart();
        session_.read(ids);
        std::vector<std::vector<float>> before = {std::vector<float>(session_.hidden()[0].size(), 0.0f)};
        before.insert(before.end(), session_.hidden().begin(), session_.hidden().end() - 1);
        expect_case(c.at("block"), session_.draft(ids, 0, before), allowed_);

        // Chained: the token that follows the prompt with the trunk's hidden row, then each guess with the block's own.
        const auto guesses = c.at("block").at("draft").get<Ids>();
        const auto gaps = c.at("block").at("draft_gap").get<std::vector<float>>();
        int32_t token = c.at("greedy")[0];
        std::vector<float> hidden = session_.hidden().back();
        for (size_t i = 0; i < guesses.size() && gaps[i] > allowed_.gap; ++i) {
            const auto row = session_.draft({token}, static_cast<int>(ids.size() + i), {hidden}).front();
            EXPECT_EQ(static_cast<int32_t>(argmax(row)), guesses[i]) << "guess " << i;
            token = guesses[i];
            hidden = session_.draft_hidden.front();
        }
    }
}

std::string refusal(const std::function<void(gguf::Contents&)>& edit) {
    return test::refusal(kTiny.model, edit);
}

TEST(Qwen35MoeLoader, NamesWhatIsMissingOrMisshapen) {
    using testing::HasSubstr;
    EXPECT_EQ(refusal([](gguf::Contents&) {}), "");
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.remove("qwen35moe.ssm.state_size"); }),
                HasSubstr("qwen35moe.ssm.state_size"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<float>("qwen35moe.expert_count", 8); }),
                HasSubstr("qwen35moe.expert_count"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<uint32_t>("qwen35moe.ssm.time_step_rank", 5); }),
                HasSubstr("ssm.time_step_rank"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { tensor(c, "blk.2.attn_k.weight").name = "blk.2.attn_kk.weight"; }),
                HasSubstr("blk.2.attn_k.weight is missing"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    tensor(c, "blk.4.attn_output.weight").dims = {64, 64};
                }),
                HasSubstr("blk.4.attn_output.weight is [64, 64], wanted [128, 64]"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set_string("general.architecture", "llama9"); }),
                HasSubstr("'llama9' is not known"));
}

TEST(Qwen35MoeLoader, TakesThreeSectionsAndGuestTensors) {
    EXPECT_EQ(refusal([](gguf::Contents& c) {
                  const std::vector<int32_t> three = {3, 3, 2};
                  c.keys.set_array<int32_t>("qwen35moe.rope.dimension_sections", three);
                  c.tensors.push_back({"v.blk.0.attn_q.weight", Type::f32, {64, 64}});
                  c.tensors.push_back({"mtp.norm.weight", Type::f32, {64}});
              }),
              "");
}

}  // namespace
}  // namespace strata::test
