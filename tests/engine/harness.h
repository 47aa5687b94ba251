// What engine tests share: a sink that records an answer, engines over any model, and a plain re-read to compare with.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

#include "engine/engine.h"

namespace strata {

/// Keeps all that happens to a request.
class Recorder : public Answer {
  public:
    void progress(int rows, int total) override {
        EXPECT_GE(rows, last_progress);
        EXPECT_LE(rows, total);
        last_progress = rows;
        if (on_progress) on_progress(rows);
    }
    void reused(int rows) override { reused_rows.push_back(rows); }
    void logits(int row, std::span<const float> values) override {
        EXPECT_EQ(row, first_logits_row + static_cast<int>(rows_of_logits.size()));
        rows_of_logits.emplace_back(values.begin(), values.end());
    }
    void token(const AnswerToken& token) override {
        EXPECT_FALSE(ended());
        EXPECT_EQ(token.step, static_cast<int>(tokens.size()));
        tokens.push_back(token.id);
        details.push_back(token);
        if (on_token) on_token(token);
    }
    void done(const AnswerSummary& s) override {
        EXPECT_FALSE(ended());
        summary = s;
    }
    void failed(const Error& e) override {
        EXPECT_FALSE(ended());
        error = e;
    }
    bool ended() const { return summary.has_value() || error.has_value(); }

    std::function<void(int)> on_progress;
    std::function<void(const AnswerToken&)> on_token;
    int last_progress = 0;
    int first_logits_row = 0;
    std::vector<int> reused_rows;
    std::vector<int32_t> tokens;
    std::vector<AnswerToken> details;
    std::vector<std::vector<float>> rows_of_logits;
    std::optional<AnswerSummary> summary;
    std::optional<Error> error;
};

/// A model that tells before every layer of a call.
class HookedModel : public Model {
  public:
    explicit HookedModel(Model& inner) : inner_(inner) {}
    const ModelFacts& facts() const override { return inner_.facts(); }
    const StateLayout& layout() const override { return inner_.layout(); }
    void start(Call& call) override { inner_.start(call); }
    void layer(int index, Call& call) override {
        inner_.layer(index, call);
        if (on_layer) on_layer();
    }
    void finish(Call& call) override { inner_.finish(call); }
    void settle(Call& call) override { inner_.settle(call); }
    DraftBlock* draft() override { return inner_.draft(); }

    std::function<void()> on_layer;

  private:
    Model& inner_;
};

/// A model on a device, ready to make engines from.
struct Bench {
    virtual ~Bench() = default;
    virtual HookedModel& model() = 0;
    virtual Device& device() = 0;
    virtual uint64_t scratch_bytes(const EngineLimits& limits) = 0;
    virtual std::vector<int32_t> end_ids() const { return {}; }
    virtual ExpertStore* experts() { return nullptr; }

    std::unique_ptr<Engine> engine(const EngineLimits& limits) {
        auto made = Engine::make(model(), device(), limits, scratch_bytes(limits), end_ids(), experts());
        EXPECT_TRUE(made) << (made ? "" : made.error().message);
        return made ? std::move(made).value() : nullptr;
    }
};

/// Guesses of any source and number, without looking at the clock.
class RandomGuess : public GuessPolicy {
  public:
    explicit RandomGuess(uint32_t seed) : random_(seed) {}
    GuessChoice choose(const GuessOffer& offer, int) override {
        const bool draft = offer.draft_guesses > 0 && (offer.repeat_guesses == 0 || random_() % 2 == 0);
        const int most = draft ? offer.draft_guesses : offer.repeat_guesses;
        const int guesses = static_cast<int>(random_() % static_cast<uint32_t>(most + 1));
        if (guesses == 0) return {};
        return {draft ? GuessSource::draft : GuessSource::repeats, guesses};
    }

  private:
    std::mt19937 random_;
};

/// An engine that remembers nothing and guesses nothing.
inline EngineLimits plain_limits(int max_context, int prompt_batch) {
    EngineLimits limits;
    limits.max_context = max_context;
    limits.prompt_batch = prompt_batch;
    limits.window = 1;
    limits.checkpoints = 0;
    limits.drafts = limits.repeats = false;
    return limits;
}

}  // namespace strata
