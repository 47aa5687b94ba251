// What holds for every model whose fixture has cases of plain text: the cases' values, and that calls of any size,
// windows of guesses and the places of rows in ring caches change no bit.
#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using Ids = std::vector<int32_t>;

struct Fixture {
    std::string name, model, reference;
    std::vector<std::string> cases;
    // The fixtures' own allowances: 8-bit activations; float activations with half caches, and with float caches.
    Tolerance codes, half_caches, exact;

    friend void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.name; }
    std::string some() const { return cases[1]; }  // 40 tokens or more: past the windows, which see 24 or fewer
};

std::vector<Fixture> fixtures() {
    const std::vector<std::string> usual = {"short", "forty", "long", "split"};
    const Tolerance exact{2e-3f, 1e-6, 2e-3f, 2e-4f};
    return {{"lfm2moe",
             "lfm2moe/tiny.gguf",
             "lfm2moe/reference.json",
             usual,
             {0.6f, 0.02, 0.6f, 0.06f},
             {0.05f, 1e-4, 0.05f, 0.003f},
             exact},
            {"gemma4",
             "gemma4/tiny.gguf",
             "gemma4/reference.json",
             {"short", "mid", "long", "mid_split"},
             {0.08f, 5e-4, 0.1f},
             {0.05f, 1e-4, 0.05f},
             {0.01f, 1e-5, 0.01f}},
            {"kolibri1",
             "kolibri1/tiny.gguf",
             "kolibri1/reference.json",
             usual,
             {0.4f, 0.01, 0.4f, 0.04f},
             {0.1f, 1e-3, 0.1f, 0.006f},
             exact},
            {"flint",
             "flint/tiny.gguf",
             "flint/reference.json",
             usual,
             {0.7f, 0.03, 0.7f, 0.06f},
             {0.15f, 2e-3, 0.15f, 0.01f},
             exact},
            {"flint_b",
             "flint/tiny-b.gguf",
             "flint/reference-b.json",
             {"short", "sixty"},
             {0.7f, 0.03, 0.7f, 0.06f},
             {0.15f, 2e-3, 0.15f, 0.01f},
             exact}};
}

class Prompts : public testing::TestWithParam<Fixture> {
  protected:
    const Fixture& fixture() const { return GetParam(); }
    /// A case in the calls that it names, then its answer.
    void expect_all_cases(Session& session, const Tolerance& allowed) const {
        for (const std::string& name : fixture().cases) {
            SCOPED_TRACE(name);
            const auto c = find_case(reference_, name);
            session.restart();
            const Logits rows = session.read(ids_of(c), calls_of(c));
            expect_case(c, rows, allowed);
            expect_greedy(session, rows.back(), c, allowed);
        }
    }
    Ids some_ids() const { return ids_of(find_case(reference_, fixture().some())); }

    nlohmann::json reference_ = read_json(GetParam().reference);
};

INSTANTIATE_TEST_SUITE_P(Fixtures, Prompts, testing::ValuesIn(fixtures()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Prompts, GiveTheReferenceLogitsAndAnswers) {
    Session session(fixture().model);
    expect_all_cases(session, fixture().codes);
}

TEST_P(Prompts, WithFloatWeightsGiveTheReferenceLogitsClosely) {
    const FloatTwin twin(fixture().model);
    Session half(twin.path());
    expect_all_cases(half, fixture().half_caches);
    Session exact(twin.path(), {}, {.cache_type = Type::f32});
    expect_all_cases(exact, fixture().exact);
}

TEST_P(Prompts, AnyCutGivesTheSameBits) {
    const auto ids = ids_of(find_case(reference_, fixture().cases.back()));
    Session session(fixture().model);
    const Logits whole = session.read(ids);
    for (const std::vector<int>& calls :
         {std::vector<int>{17, 23}, {1, 39}, {39, 1}, {8, 8, 8, 8, 8}, {3, 5, 7, 11, 14}, std::vector<int>(40, 1)}) {
        session.restart();
        EXPECT_EQ(session.read(ids, calls), whole);
    }
}

TEST_P(Prompts, WhereRowsLieInRingsDoesNotMatter) {
    const auto ids = ids_of(find_case(reference_, fixture().cases[fixture().cases.size() > 2 ? 2 : 1]));
    Session large(fixture().model);
    const Logits whole = large.read(ids);
    for (const int rows : {8, 13}) {  // of a call: rings hardly larger than their windows
        Session small(fixture().model, {}, {.max_call_rows = rows});
        std::vector<int> calls;
        for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(calls.back()))
            calls.push_back(std::min(1 + static_cast<int>(at) % rows, static_cast<int>(ids.size() - at)));
        EXPECT_EQ(small.read(ids, calls), whole);
    }
}

TEST_P(Prompts, RejectedGuessesLeaveNoTrace) {
    const Ids ids = some_ids();
    const Ids prefix(ids.begin(), ids.begin() + 25), window(ids.begin() + 25, ids.begin() + 33),
        then(ids.begin() + 33, ids.begin() + 38);
    Session session(fixture().model, {}, {.max_call_rows = 8});
    const std::vector<int> calls = {8, 8, 8, 8, 8};
    for (int kept = 0; kept <= static_cast<int>(window.size()); ++kept) {
        SCOPED_TRACE(kept);
        Ids straight = prefix;
        straight.insert(straight.end(), window.begin(), window.begin() + kept);
        session.restart();
        session.read(straight, calls);
        const Logits expected = session.call(then);
        session.restart();
        session.read(prefix, calls);
        session.call(window, kept);
        EXPECT_EQ(session.call(then, 2), expected);
        session.settle();
        EXPECT_EQ(session.call({then.begin() + 2, then.end()}), Logits(expected.begin() + 2, expected.end()));
    }
}

}  // namespace
}  // namespace strata::test
