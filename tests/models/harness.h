// A model on the CPU device with one conversation, driven call by call as the engine does, and the fixtures' reference
// values.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cpu/cpu_device.h"
#include "gguf/writer.h"
#include "models/model.h"
#include "quant/dequantise.h"

namespace strata::test {

inline std::filesystem::path data(const std::string& name) {
    return std::filesystem::path(POLYSTRATA_TEST_DATA) / name;
}

inline nlohmann::json read_json(const std::string& name) {
    return nlohmann::json::parse(std::ifstream(data(name)));
}

using Logits = std::vector<std::vector<float>>;

struct Picture {
    int columns = 0, lines = 0;
    std::vector<float> rows;  // [lines * columns, width]
};

class Session {
  public:
    explicit Session(const std::string& model, CpuOptions cpu = {}, ModelOptions options = {})
        : Session(data(model), cpu, options) {}
    explicit Session(const std::filesystem::path& path, CpuOptions cpu = {}, ModelOptions options = {},
                     const std::filesystem::path& draft = {}) {
        auto opened = gguf::File::open(path);
        if (!opened) throw std::runtime_error(opened.error().message);
        file_ = std::make_unique<gguf::File>(std::move(opened).value());
        auto device = CpuDevice::create(cpu);
        if (!device) throw std::runtime_error(device.error().message);
        device_ = std::move(device).value();
        if (!draft.empty()) {
            auto other = gguf::File::open(draft);
            if (!other) throw std::runtime_error(other.error().message);
            draft_file_ = std::make_unique<gguf::File>(std::move(other).value());
            options.draft = draft_file_.get();
        }
        auto made = make_model(*file_, *device_, options);
        if (!made) throw std::runtime_error(made.error().message);
        model_ = std::move(made).value();
        memory_.resize(size_t{32} << 20);
        arena_ = Arena(memory_.data(), memory_.size());
        restart();
    }

    void restart() {
        auto state = device_->make_state(model_->layout(), 1024);
        if (!state) throw std::runtime_error(state.error().message);
        state_ = std::move(state).value();
        hidden_.clear();
    }

    /// One call with these tokens; logits of every row. keep < 0: an ordinary call; else a window of which `keep` rows
    /// stay.
    Logits call(const std::vector<int32_t>& ids, int keep = -1) {
        std::vector<std::array<int32_t, 3>> positions;
        for (size_t i = 0; i < ids.size(); ++i) {
            const int p = state_.next_position + static_cast<int>(i);
            positions.push_back({p, p, p});
        }
        return run(ids, positions, {}, nullptr, keep,
                   state_.next_position + (keep < 0 ? static_cast<int>(ids.size()) : keep));
    }

    Logits picture(const Picture& picture) {
        const int p = state_.next_position, n = picture.columns * picture.lines;
        const bool grid = model_->facts().pictures == ModelFacts::Pictures::grid;
        std::vector<std::array<int32_t, 3>> positions;
        for (int r = 0; r < n; ++r)
            positions.push_back(grid ? std::array<int32_t, 3>{p, p + r / picture.columns, p + r % picture.columns}
                                     : std::array<int32_t, 3>{p + r, p + r, p + r});
        const std::array<PictureSpan, 1> spans{{{0, n}}};
        return run(std::vector<int32_t>(static_cast<size_t>(n), 0), positions, spans, picture.rows.data(), -1,
                   p + (grid ? std::max(picture.columns, picture.lines) : n));
    }

    /// A prompt in calls of these sizes (one call where empty).
    Logits read(const std::vector<int32_t>& ids, const std::vector<int>& calls = {}) {
        Logits all;
        size_t at = 0;
        for (size_t c = 0; at < ids.size(); ++c) {
            const size_t left = ids.size() - at;
            const size_t n = c < calls.size() ? std::min(left, static_cast<size_t>(calls[c])) : left;
            for (auto& row : call({ids.begin() + static_cast<long>(at), ids.begin() + static_cast<long>(at + n)}))
                all.push_back(std::move(row));
            at += n;
        }
        return all;
    }

    /// The draft block over rows (token, hidden row of the token before): logits, and in draft_hidden its own hidden
    /// rows.
    Logits draft(const std::vector<int32_t>& ids, int start, const std::vector<std::vector<float>>& before) {
        Call call = make_call(ids);
        std::vector<std::array<int32_t, 3>> positions;
        for (size_t i = 0; i < ids.size(); ++i) positions.push_back({start + int(i), start + int(i), start + int(i)});
        call.positions = positions;
        const std::array<Span, 1> spans{{{.state = &state_, .first = 0, .rows = call.rows, .start = start}}};
        call.spans = spans;
        arena_.reset();
        Rows rows = arena_.rows(call.rows, model_->facts().width);
        for (int t = 0; t < call.rows; ++t)
            std::copy(before[size_t(t)].begin(), before[size_t(t)].end(), rows.data + t * rows.stride);
        device_->begin(call);
        model_->draft()->guess(call, rows);
        draft_hidden = copy(call.hidden);
        return copy(call.logits);
    }

    /// Brings blocks up to date after a window.
    void settle() {
        Call call;
        const std::array<Span, 1> spans{
            {{.state = &state_, .rows = 0, .start = state_.rows, .replay = state_.pending}}};
        call.spans = spans;
        device_->begin(call);
        model_->settle(call);
        state_.pending = 0;
    }

    std::vector<std::vector<float>> draft_hidden;
    /// Hidden rows of all kept tokens so far.
    const std::vector<std::vector<float>>& hidden() const { return hidden_; }
    State& state() { return state_; }
    Model& model() { return *model_; }
    CpuDevice& device() { return *device_; }

  private:
    Call make_call(const std::vector<int32_t>& ids) {
        Call call;
        call.rows = static_cast<int>(ids.size());
        call.tokens = ids;
        outputs_.resize(ids.size());
        for (size_t i = 0; i < ids.size(); ++i) outputs_[i] = static_cast<int32_t>(i);
        call.outputs = outputs_;
        call.scratch = &arena_;
        return call;
    }

    Logits run(const std::vector<int32_t>& ids, const std::vector<std::array<int32_t, 3>>& positions,
               std::span<const PictureSpan> pictures, const float* picture_rows, int keep, int next_position) {
        Call call = make_call(ids);
        call.positions = positions;
        call.pictures = pictures;
        call.picture_rows = picture_rows;
        const std::array<Span, 1> spans{{{.state = &state_,
                                          .first = 0,
                                          .rows = call.rows,
                                          .start = state_.rows,
                                          .replay = state_.pending,
                                          .log = keep >= 0}}};
        call.spans = spans;
        arena_.reset();
        device_->begin(call);
        model_->start(call);
        for (int i = 0; i < model_->facts().layers; ++i) model_->layer(i, call);
        model_->finish(call);
        const int kept = keep < 0 ? call.rows : keep;
        state_.rows += kept;
        state_.pending = keep < 0 ? 0 : keep;
        state_.next_position = next_position;
        auto rows = copy(call.hidden);
        hidden_.insert(hidden_.end(), rows.begin(), rows.begin() + kept);
        return copy(call.logits);
    }

    std::vector<std::vector<float>> copy(Rows rows) {
        std::vector<float> flat(static_cast<size_t>(rows.rows) * static_cast<size_t>(rows.width));
        device_->read(rows, flat.data());
        std::vector<std::vector<float>> result;
        for (int t = 0; t < rows.rows; ++t)
            result.emplace_back(flat.begin() + int64_t{t} * rows.width, flat.begin() + int64_t{t + 1} * rows.width);
        return result;
    }

    std::unique_ptr<gguf::File> file_, draft_file_;
    std::unique_ptr<CpuDevice> device_;
    std::unique_ptr<Model> model_;
    std::vector<std::byte> memory_;
    Arena arena_;
    std::vector<int32_t> outputs_;
    State state_;
    std::vector<std::vector<float>> hidden_;
};

/// The same model with every matrix as F32: its products use unrounded activations, so what is left is the arithmetic
/// of the layers themselves (and half-precision caches).
class FloatTwin {
  public:
    explicit FloatTwin(const std::string& model) {
        std::string pattern = (std::filesystem::temp_directory_path() / "strata-twin-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
        auto file = gguf::File::open(data(model));
        gguf::Contents contents;
        for (const gguf::Key& key : file->keys()) contents.keys.copy(key);
        for (const gguf::TensorInfo& t : file->tensors())
            contents.tensors.push_back({std::string(t.name), Type::f32, {t.dims.begin(), t.dims.begin() + t.n_dims}});
        auto output = gguf::Output::create(*gguf::lay_out(contents, path()), {});
        for (size_t i = 0; i < file->tensors().size(); ++i) {
            const gguf::TensorInfo& t = file->tensors()[i];
            std::vector<float> values(t.elements());
            for (uint64_t row = 0; row < t.rows(); ++row)
                dequantise_row(t.type, t.data + row * t.row_bytes(), static_cast<int64_t>(t.dims[0]),
                               values.data() + row * t.dims[0]);
            if (!output->write(i, 0, std::as_bytes(std::span(values))))
                throw std::runtime_error("the twin was not written");
        }
        if (!output->finish()) throw std::runtime_error("the twin was not finished");
    }
    ~FloatTwin() { std::filesystem::remove_all(folder_); }
    std::filesystem::path path() const { return folder_ / "twin.gguf"; }

  private:
    std::filesystem::path folder_;
};

/// A fixture with its keys or tensors changed by `edit`, and zeros for data: shapes are checked before it.
class EditedFile {
  public:
    EditedFile(const std::string& fixture, const std::function<void(gguf::Contents&)>& edit) {
        auto file = gguf::File::open(data(fixture));
        gguf::Contents contents;
        for (const gguf::Key& key : file->keys()) contents.keys.copy(key);
        for (const gguf::TensorInfo& t : file->tensors())
            contents.tensors.push_back({std::string(t.name), t.type, {t.dims.begin(), t.dims.begin() + t.n_dims}});
        edit(contents);
        std::string pattern = (std::filesystem::temp_directory_path() / "strata-edited-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
        auto output = gguf::Output::create(*gguf::lay_out(contents, path()), {});
        for (size_t i = 0; i < contents.tensors.size(); ++i) {
            const std::vector<std::byte> zeros(output->layout().tensors[i].bytes);
            if (!output->write(i, 0, zeros)) throw std::runtime_error("the edited file was not written");
        }
        if (!output->finish()) throw std::runtime_error("the edited file was not finished");
    }
    ~EditedFile() { std::filesystem::remove_all(folder_); }
    std::filesystem::path path() const { return folder_ / "m.gguf"; }

  private:
    std::filesystem::path folder_;
};

/// An edited file opened as a model: the error's sentence, or nothing; `notes`: what loading had to say.
inline std::string refusal(const std::string& fixture, const std::function<void(gguf::Contents&)>& edit,
                           std::vector<std::string>* notes = nullptr) {
    const EditedFile edited(fixture, edit);
    auto device = CpuDevice::create();
    auto opened = gguf::File::open(edited.path());
    auto model = make_model(*opened, **device, {});
    if (model && notes) *notes = (*model)->facts().notes;
    return model ? "" : model.error().message;
}

inline gguf::TensorSpec& tensor(gguf::Contents& contents, const std::string& name) {
    return *std::find_if(contents.tensors.begin(), contents.tensors.end(),
                         [&](const auto& t) { return t.name == name; });
}

/// How far an engine with 8-bit activations may be from the float64 values.
struct Tolerance {
    float logits = 0.2f;
    double divergence = 3e-3;  // Kullback-Leibler
    float gap = 0.1f;          // an argmax must agree where the two largest are further apart
    float mean = std::numeric_limits<float>::infinity();  // of the differences of a row's logits
};

// The fixtures' files have several names for some things.
inline std::vector<int32_t> ids_of(const nlohmann::json& c) {
    if (!c.contains("segments")) return c.at(c.contains("ids") ? "ids" : "tokens").get<std::vector<int32_t>>();
    std::vector<int32_t> ids;
    for (const auto& segment : c.at("segments"))
        for (const auto& id : segment.at("tokens")) ids.push_back(id);
    return ids;
}
/// The sizes of a case's calls; none: one call.
inline std::vector<int> calls_of(const nlohmann::json& c) {
    std::vector<int> calls = c.value("split", std::vector<int>{});
    if (c.contains("segments"))
        for (const auto& segment : c.at("segments")) calls.push_back(static_cast<int>(segment.at("tokens").size()));
    return calls;
}
/// How far the two largest logits are apart; infinitely where the file does not say it.
inline std::vector<float> gaps_of(const nlohmann::json& c, size_t count, const std::string& prefix = "") {
    for (const char* name : {"gap", "top2_gap"})
        if (c.contains(prefix + name)) return c.at(prefix + name).get<std::vector<float>>();
    return std::vector<float>(count, std::numeric_limits<float>::infinity());
}

inline nlohmann::json find_case(const nlohmann::json& reference, const std::string& name) {
    for (const auto& c : reference.at("cases"))
        if (c.at("name") == name) return c;
    throw std::runtime_error("no case " + name);
}

inline size_t argmax(const std::vector<float>& row) {
    return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

inline double divergence(const std::vector<float>& reference, const std::vector<float>& row) {
    const auto log_sum = [](const std::vector<float>& x) {
        double m = *std::max_element(x.begin(), x.end()), sum = 0;
        for (float v : x) sum += std::exp(v - m);
        return m + std::log(sum);
    };
    const double a = log_sum(reference), b = log_sum(row);
    double kl = 0;
    for (size_t i = 0; i < row.size(); ++i) kl += std::exp(reference[i] - a) * ((reference[i] - a) - (row[i] - b));
    return kl;
}

inline void expect_logits(const std::vector<float>& reference, const std::vector<float>& row,
                          const Tolerance& allowed) {
    ASSERT_EQ(reference.size(), row.size());
    float worst = 0, sum = 0;
    for (size_t i = 0; i < row.size(); ++i) {
        worst = std::max(worst, std::abs(reference[i] - row[i]));
        sum += std::abs(reference[i] - row[i]);
    }
    EXPECT_LE(worst, allowed.logits);
    EXPECT_LE(sum / static_cast<float>(row.size()), allowed.mean);
    EXPECT_LE(divergence(reference, row), allowed.divergence);
}

/// Rows against a case's `argmax`, `gap` and `logits`.
inline void expect_case(const nlohmann::json& reference, const Logits& rows, const Tolerance& allowed) {
    const auto& best = reference.at("argmax");
    ASSERT_EQ(best.size(), rows.size());
    const auto gap = gaps_of(reference, rows.size());
    for (size_t t = 0; t < rows.size(); ++t)
        if (gap[t] > allowed.gap) {
            EXPECT_EQ(argmax(rows[t]), best[t].get<size_t>()) << "row " << t;
        }
    for (const auto& [row, values] : reference.at("logits").items()) {
        SCOPED_TRACE("logits of row " + row);
        expect_logits(values.get<std::vector<float>>(), rows[std::stoul(row)], allowed);
    }
}

/// Greedy tokens equal the reference's up to the first step whose gap is within the tolerance.
inline void expect_greedy(Session& session, std::vector<float> last, const nlohmann::json& reference,
                          const Tolerance& allowed) {
    const auto tokens = reference.at("greedy").get<std::vector<int32_t>>();
    const auto gaps = gaps_of(reference, tokens.size(), "greedy_");
    for (size_t i = 0; i < tokens.size() && gaps[i] > allowed.gap; ++i) {
        ASSERT_EQ(static_cast<int32_t>(argmax(last)), tokens[i]) << "step " << i;
        last = session.call({tokens[i]}).back();
    }
}

}  // namespace strata::test
