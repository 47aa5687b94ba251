#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <unordered_map>
#include <variant>

#include "cuda/cuda_device.h"
#include "cuda/delta_net.h"
#include "cuda/experts.h"
#include "cuda/heads.h"
#include "cuda/late_copies.h"
#include "cuda/memory.h"
#include "cuda/products.h"
#include "cuda/rank.h"
#include "cuda/rows.h"
#include "cuda/weights.h"

namespace strata {
namespace cuda {
namespace {

constexpr int kMaxSlots = 64;    // conversations that have memory on the card
constexpr int kMaxParts = 1024;  // parts of a conversation's state
constexpr size_t kMaxGraphs = 64;
constexpr int kMaxRanked = 512;  // rows of logits ranked at once

/// Running hash of what shapes a call's launches.
class Fingerprint {
  public:
    template <class... T>
    void mix(const T&... values) {
        (one(values), ...);
    }
    uint64_t value() const { return hash_; }

  private:
    void word(uint64_t w) {
        hash_ = (hash_ ^ w) * 0x9e3779b97f4a7c15ull;
        hash_ ^= hash_ >> 29;
    }
    template <class T>
    void one(const T& v) {
        if constexpr (std::is_pointer_v<T>)
            word(reinterpret_cast<uintptr_t>(v));
        else if constexpr (std::is_floating_point_v<T>)
            word(static_cast<uint64_t>(__builtin_bit_cast(uint32_t, static_cast<float>(v))));
        else
            word(static_cast<uint64_t>(v));
    }
    void one(const Rows& r) { mix(r.data, r.rows, r.width, r.stride); }
    void one(const HeadRows& r) { mix(r.data, r.rows, r.heads, r.width, r.row_stride, r.head_stride); }
    void one(const Matrix& m) { mix(m.data, m.rows, m.cols, m.count, static_cast<uint32_t>(m.type)); }
    void one(const QuantisedRows& q) { mix(q.values, q.rows, q.width); }

    uint64_t hash_ = 0xcbf29ce484222325ull;
};

}  // namespace

class CudaDevice final : public Device {
  public:
    CudaDevice(const CudaOptions& options, const cudaDeviceProp& properties);
    ~CudaDevice() override;
    Result<void> open();

    const DeviceFacts& facts() const override { return facts_; }
    Result<void> status() const override;
    uint64_t memory_taken() const override { return memory_.taken(); }

    Result<Matrix> load_matrix(const WeightView& weights) override {
        return upload_matrix(weights, memory_, *uploader_, queue_.stream);
    }
    Result<const float*> load_vector(const WeightView& weights) override;
    Result<const float*> load_vector(std::span<const float> values) override;
    Result<ExpertSet> load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                   const WeightView& down) override;

    Result<std::byte*> allocate(uint64_t bytes, const char* what) override { return memory_.take(bytes, what); }
    void release(std::byte* memory) override;
    void copy_to_host(void* host, const std::byte* from, uint64_t bytes) override;
    void copy_to_host_later(void* host, const std::byte* from, uint64_t bytes) override;
    void finish_copies() override;
    void copy_from_host(std::byte* to, const void* host, uint64_t bytes) override;
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
    void zero(std::byte* to, uint64_t bytes) override;

    void begin(const Call& call) override;
    void embed(const Call& call, const Matrix& table, float scale, Rows out) override;
    void rope_table(const Call& call, const RopeSpec& rope, Rows out) override;
    void norm(Rows x, const float* weight, float eps, Activations out) override;
    void add_norm(Rows residual, Rows x, const float* weight, float eps) override;
    void quantise(Activations x) override;
    void add(Rows to, Rows from) override;
    void scale(Rows x, float factor, const float* weight) override;
    void soft_cap(Rows x, float cap) override;
    void gather(Rows in, std::span<const int32_t> which, Rows out) override;
    void matmul(const Activations& x, std::span<const Product> products) override;
    void matmul_add(const Activations& x, const Matrix& matrix, Rows residual) override;
    void matmul_float(Rows x, std::span<const Product> products) override;
    void prepare_heads(const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k, HeadRows v) override;
    void attend(const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate, Activations out) override;
    void delta_net(const Call& call, const DeltaNetSpec& spec, Rows u, Rows z, Rows alpha, Rows beta,
                   Activations out) override;
    void short_conv(const Call& call, const ShortConvSpec& spec, Rows bcx, Activations out) override;
    void route(Rows logits, const RouteSpec& spec, Routing out) override;
    void experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                 Rows out, bool add) override;
    void feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) override;
    void wait() override;
    void read(Rows rows, float* host) override;
    bool rank(Rows logits, std::span<Likeliest> out) override;

  protected:
    int attach(const State& state) override;
    void detach(const State& state) override;

  private:
    using Operation = std::function<void()>;

    // Operations that wait for the next one, in short calls: where that one reads what they make, both are one launch.
    struct HeldNorm {
        Rows x;
        const float* weight;
        float eps;
        Activations out;
        std::vector<Product> quantised, floats;  // products of it that came since
    };
    struct HeldHeads {
        HeadSpec spec;
        Rows rope;
        HeadRows q, k, v;
    };
    struct HeldRoute {
        Rows logits;
        RouteSpec spec;
        Routing out;
    };
    using Held = std::variant<std::monostate, HeldNorm, HeldHeads, HeldRoute>;
    /// What waits, if it is a T; else null.
    template <class T>
    T* held() {
        return std::get_if<T>(&held_);
    }
    /// Enqueues what waits as it is.
    void let_go();

    /// Runs an operation, or notes it where the call is being noted. `shape`: all that its launches depend on.
    template <class... Shape>
    void enqueue(Operation operation, const Shape&... shape) {
        let_go();
        if (!noting_) return operation();
        fingerprint_.mix(noted_.size(), shape...);
        noted_.push_back(std::move(operation));
    }
    /// Launches what was noted: a recorded graph, or the operations, recording them.
    void flush();
    void fail(const std::string& message);
    /// Scratch of operations, at least this large; they run one after the other, so one is enough.
    std::byte* workspace(uint64_t bytes);
    CachePart cache_part(PartId id) const;
    PreparedHeads prepared(const HeadSpec& spec) const;
    void multiply(const Activations& x, std::span<const Product> products, bool add);
    void run_experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                     Rows out, bool add);
    const float* expanded(const Matrix& matrix);

    CudaOptions options_;
    DeviceFacts facts_;
    Queue queue_;
    CardMemory memory_;
    std::unique_ptr<Uploader> uploader_;
    std::unique_ptr<LateCopies> late_copies_;
    std::string failure_;

    // The step (common.cuh): its place on the card, for calls of up to step_rows_ rows.
    Step step_{};
    std::byte* step_memory_ = nullptr;
    int step_rows_ = 0;
    std::vector<std::byte> step_host_;
    std::byte* part_table_ = nullptr;
    int* tickets_ = nullptr;  // DeltaNetCall
    std::byte* picture_memory_ = nullptr;
    uint64_t picture_bytes_ = 0;
    std::vector<bool> slots_ = std::vector<bool>(kMaxSlots, false);
    const StateLayout* layout_ = nullptr;
    int spans_ = 0, rows_ = 0, longest_ = 0;

    Held held_;
    bool noting_ = false;
    Fingerprint fingerprint_;
    std::vector<Operation> noted_;
    std::unordered_map<uint64_t, cudaGraphExec_t> graphs_;

    std::byte* workspace_ = nullptr;
    uint64_t workspace_bytes_ = 0;
    std::unordered_map<const std::byte*, const float*> expanded_;
    struct Rope {
        const double* frequency;
        const uint8_t* axis;
    };
    std::unordered_map<const RopeSpec*, Rope> ropes_;
    Likeliest* ranked_ = nullptr;   // pinned, [kMaxRanked]
    float* read_buffer_ = nullptr;  // pinned: where reads arrive
    uint64_t read_bytes_ = 0;
};

CudaDevice::CudaDevice(const CudaOptions& options, const cudaDeviceProp& p) : options_(options) {
    facts_.name = "cuda";
    facts_.description = std::string(p.name) + ", " + std::to_string(p.totalGlobalMem >> 20) + " MiB, sm_" +
                         std::to_string(p.major) + std::to_string(p.minor);
    facts_.memory_total = p.totalGlobalMem;
    facts_.warms_up = true;  // kernels are loaded, scratch grows and unrounded weights are made in a first call
    queue_.pdl = p.major >= 9 && options.dependent;
    queue_.multiprocessors = p.multiProcessorCount;
    queue_.shared_limit = static_cast<int>(p.sharedMemPerBlockOptin);
}

Result<void> CudaDevice::open() {
    if (const cudaError_t e = cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking); e != cudaSuccess)
        return cuda_error(facts_.description, e);
    uploader_ = std::make_unique<Uploader>(queue_.stream);
    const uint64_t bytes = uint64_t{kMaxSlots} * kMaxParts * sizeof(std::byte*);
    STRATA_TRY_ASSIGN(part_table_, memory_.take(bytes, "the table of conversations"));
    zero(part_table_, bytes);
    const uint64_t counters = uint64_t{kMaxSlots} * kMostKeyHeads * sizeof(int);
    STRATA_TRY_ASSIGN(std::byte * tickets, memory_.take_small(counters, "counters"));
    zero(tickets, counters);
    tickets_ = reinterpret_cast<int*>(tickets);
    return status();
}

CudaDevice::~CudaDevice() {
    if (queue_.stream) cudaStreamSynchronize(queue_.stream);
    late_copies_.reset();
    for (const auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
    if (read_buffer_) cudaFreeHost(read_buffer_);
    if (ranked_) cudaFreeHost(ranked_);
    uploader_.reset();
    if (queue_.stream) cudaStreamDestroy(queue_.stream);
}

Result<void> CudaDevice::status() const {
    if (!failure_.empty()) return device_error(failure_);
    if (queue_.error != cudaSuccess)
        return cuda_error("the card failed (" + std::string(queue_.failed) + ")", queue_.error);
    return {};
}

void CudaDevice::fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
}

// ---- memory
// -----------------------------------------------------------------------------------------------------------------

void CudaDevice::release(std::byte* memory) {
    flush();
    cudaStreamSynchronize(queue_.stream);
    memory_.give_back(memory);
}

void CudaDevice::copy_to_host(void* host, const std::byte* from, uint64_t bytes) {
    flush();
    queue_.keep(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, queue_.stream), "copy to the host");
    queue_.keep(cudaStreamSynchronize(queue_.stream), "copy to the host");
}

void CudaDevice::copy_to_host_later(void* host, const std::byte* from, uint64_t bytes) {
    flush();
    if (!late_copies_) late_copies_ = std::make_unique<LateCopies>(options_.card);
    if (!late_copies_->start(host, from, bytes, queue_.stream, memory_)) copy_to_host(host, from, bytes);
}

void CudaDevice::finish_copies() {
    if (late_copies_) queue_.keep(late_copies_->finish(), "copies to the host");
}

void CudaDevice::copy_from_host(std::byte* to, const void* host, uint64_t bytes) {
    flush();
    queue_.keep(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, queue_.stream), "copy from the host");
    queue_.keep(cudaStreamSynchronize(queue_.stream), "copy from the host");
}

void CudaDevice::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    flush();
    queue_.keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, queue_.stream), "copy");
}

void CudaDevice::zero(std::byte* to, uint64_t bytes) {
    flush();
    queue_.keep(cudaMemsetAsync(to, 0, bytes, queue_.stream), "zero");
}

void CudaDevice::read(Rows rows, float* host) {
    flush();
    const uint64_t bytes = static_cast<uint64_t>(rows.rows) * static_cast<uint64_t>(rows.width) * sizeof(float);
    if (bytes == 0) return;
    if (bytes > read_bytes_) {
        if (read_buffer_) cudaFreeHost(read_buffer_);
        read_bytes_ = 0;
        void* memory = nullptr;
        queue_.keep(cudaMallocHost(&memory, bytes), "pinned memory for reads");
        read_buffer_ = static_cast<float*>(memory);
        if (queue_.error != cudaSuccess) return;
        read_bytes_ = bytes;
    }
    const size_t width = static_cast<size_t>(rows.width) * sizeof(float);
    queue_.keep(cudaMemcpy2DAsync(read_buffer_, width, rows.data, static_cast<size_t>(rows.stride) * sizeof(float),
                                  width, static_cast<size_t>(rows.rows), cudaMemcpyDeviceToHost, queue_.stream),
                "read");
    queue_.keep(cudaStreamSynchronize(queue_.stream), "read");
    if (queue_.error == cudaSuccess) std::memcpy(host, read_buffer_, bytes);
}

void CudaDevice::wait() {
    flush();
    queue_.keep(cudaStreamSynchronize(queue_.stream), "a call");
}

bool CudaDevice::rank(Rows logits, std::span<Likeliest> out) {
    if (logits.rows > kMaxRanked) return false;
    if (!ranked_) {
        void* memory = nullptr;
        queue_.keep(cudaMallocHost(&memory, kMaxRanked * sizeof(Likeliest)), "pinned memory for likeliest tokens");
        ranked_ = static_cast<Likeliest*>(memory);
        if (queue_.error != cudaSuccess) return false;
    }
    std::byte* scratch = workspace(rank_scratch(logits.rows, logits.width));
    if (!scratch) return false;
    // With unified addressing the card writes pinned memory at its host address.
    enqueue([=, this] { cuda::rank(queue_, logits, ranked_, scratch); }, logits, ranked_, scratch);
    flush();
    queue_.keep(cudaStreamSynchronize(queue_.stream), "likeliest tokens");
    if (queue_.error != cudaSuccess) return false;
    std::copy_n(ranked_, logits.rows, out.begin());
    return true;
}

std::byte* CudaDevice::workspace(uint64_t bytes) {
    if (bytes <= workspace_bytes_) return workspace_;
    flush();  // what was noted uses the smaller one
    cudaStreamSynchronize(queue_.stream);
    if (workspace_) memory_.give_back(workspace_);
    auto memory = memory_.take(bytes, "scratch of operations");
    workspace_ = memory ? *memory : nullptr;
    workspace_bytes_ = memory ? bytes : 0;
    if (!memory) fail(memory.error().message);
    return workspace_;
}

Result<const float*> CudaDevice::load_vector(std::span<const float> values) {
    STRATA_TRY_ASSIGN(std::byte * memory, memory_.take_small(values.size_bytes(), "weights"));
    copy_from_host(memory, values.data(), values.size_bytes());
    STRATA_TRY(status());
    return reinterpret_cast<const float*>(memory);
}

Result<const float*> CudaDevice::load_vector(const WeightView& weights) {
    const auto n = static_cast<size_t>(weights.rows) * static_cast<size_t>(weights.cols);
    if (weights.type != Type::f32) return device_error("tensor " + weights.name + " must be F32");
    return load_vector(std::span(reinterpret_cast<const float*>(weights.data), n));
}

Result<ExpertSet> CudaDevice::load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                           const WeightView& down) {
    ExpertSet set;
    set.layer = layer;
    set.gate_function = gate_function;
    STRATA_TRY_ASSIGN(set.gate, load_matrix(gate));
    STRATA_TRY_ASSIGN(set.up, load_matrix(up));
    STRATA_TRY_ASSIGN(set.down, load_matrix(down));
    return set;
}

const float* CudaDevice::expanded(const Matrix& matrix) {
    const auto found = expanded_.find(matrix.data);
    if (found != expanded_.end()) return found->second;
    auto memory = memory_.take_small(
        static_cast<uint64_t>(matrix.rows) * static_cast<uint64_t>(matrix.cols) * sizeof(float), "unrounded weights");
    if (!memory) {
        fail(memory.error().message);
        return nullptr;
    }
    auto* values = reinterpret_cast<float*>(*memory);
    expand_matrix(matrix, values, queue_.stream);
    return expanded_[matrix.data] = values;
}

int CudaDevice::attach(const State& state) {
    const auto free = std::find(slots_.begin(), slots_.end(), false);
    const auto parts = state.layout().parts.size();
    if (free == slots_.end() || parts > kMaxParts) {
        fail("the card has no place for another conversation");
        return -1;
    }
    *free = true;
    const int slot = static_cast<int>(free - slots_.begin());
    std::vector<std::byte*> row;
    for (size_t i = 0; i < parts; ++i) row.push_back(state.part(static_cast<PartId>(i)));
    copy_from_host(part_table_ + static_cast<uint64_t>(slot) * kMaxParts * sizeof(std::byte*), row.data(),
                   row.size() * sizeof(std::byte*));
    return slot;
}

void CudaDevice::detach(const State& state) {
    slots_[static_cast<size_t>(state.slot())] = false;
}

// ---- a call
// -----------------------------------------------------------------------------------------------------------------

void CudaDevice::begin(const Call& call) {
    flush();
    rows_ = call.rows;
    spans_ = static_cast<int>(call.spans.size());
    layout_ = spans_ > 0 ? &call.spans[0].state->layout() : layout_;
    longest_ = 1;
    for (const Span& span : call.spans) longest_ = std::max(longest_, span.state->capacity);

    // [tokens][positions * 3][span_of][picture][look_ahead] of step_rows_ rows each, then the spans.
    const int rows = std::max({call.rows, step_rows_, 32});
    const uint64_t ints = static_cast<uint64_t>(rows) * 7, bytes = ints * 4 + kMaxSlots * sizeof(SpanInfo);
    if (rows > step_rows_) {
        cudaStreamSynchronize(queue_.stream);
        if (step_memory_) memory_.give_back(step_memory_);
        auto memory = memory_.take(bytes, "a call's rows");
        if (!memory) return fail(memory.error().message);
        step_memory_ = *memory;
        step_rows_ = rows;
        const auto* p = reinterpret_cast<const int32_t*>(step_memory_);
        step_.spans = reinterpret_cast<const SpanInfo*>(p);
        p += kMaxSlots * sizeof(SpanInfo) / 4;
        step_.tokens = p;
        step_.positions = p + rows;
        step_.span_of = p + rows * 4;
        step_.picture = p + rows * 5;
        step_.look_ahead = p + rows * 6;
        step_.parts = reinterpret_cast<std::byte* const*>(part_table_);
        step_.parts_per_slot = kMaxParts;
    }
    step_host_.resize(bytes);
    auto* spans = reinterpret_cast<SpanInfo*>(step_host_.data());
    auto* tokens = reinterpret_cast<int32_t*>(step_host_.data() + kMaxSlots * sizeof(SpanInfo));
    int32_t *positions = tokens + rows, *span_of = tokens + rows * 4, *picture = tokens + rows * 5,
            *look_ahead = tokens + rows * 6;
    if (spans_ > kMaxSlots) return fail("too many conversations in one call");
    for (int s = 0; s < spans_; ++s) {
        const Span& span = call.spans[static_cast<size_t>(s)];
        spans[s] = {span.state->slot(), span.first, span.rows, span.start, span.replay, span.log ? 1 : 0, {0, 0}};
        for (int t = span.first; t < span.first + span.rows; ++t) span_of[t] = s;
    }
    for (int t = 0; t < call.rows; ++t) {
        tokens[t] = call.tokens[static_cast<size_t>(t)];
        for (int a = 0; a < 3; ++a)
            positions[t * 3 + a] = call.positions[static_cast<size_t>(t)][static_cast<size_t>(a)];
        picture[t] = look_ahead[t] = -1;
    }
    int picture_row = 0;
    for (const PictureSpan& p : call.pictures)
        for (int t = p.first; t < p.first + p.rows; ++t) {
            picture[t] = picture_row++;
            const Span& span = call.spans[static_cast<size_t>(span_of[t])];
            look_ahead[t] = span.start + (p.first + p.rows - 1) - span.first;
        }
    // Pageable memory: the driver has its own copy of it when the call returns.
    queue_.keep(cudaMemcpyAsync(step_memory_, step_host_.data(), bytes, cudaMemcpyHostToDevice, queue_.stream),
                "a call's rows");
    step_.picture_rows = reinterpret_cast<const float*>(picture_memory_);
    noting_ = options_.graphs && call.rows > 0 && call.rows <= kNarrow && call.pictures.empty();
    fingerprint_ = {};
    fingerprint_.mix(call.rows, spans_, longest_, step_memory_);
    for (const Span& span : call.spans) fingerprint_.mix(span.first, span.rows, span.log ? 1 : 0);
    if (picture_row > 0) {
        // The rows' width is known with the embedding: copied there.
        picture_bytes_ = static_cast<uint64_t>(picture_row);
    }
}

void CudaDevice::flush() {
    let_go();
    if (!noting_ || noted_.empty()) {
        noting_ = false;
        return;
    }
    noting_ = false;
    const uint64_t key = fingerprint_.value();
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
        if (graphs_.size() >= kMaxGraphs) {
            cudaStreamSynchronize(queue_.stream);
            for (const auto& [k, graph] : graphs_) cudaGraphExecDestroy(graph);
            graphs_.clear();
        }
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        queue_.keep(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), "recording");
        for (const Operation& operation : noted_) operation();
        queue_.keep(cudaStreamEndCapture(queue_.stream, &graph), "recording");
        if (queue_.error == cudaSuccess) queue_.keep(cudaGraphInstantiate(&exec, graph, 0), "recording");
        if (graph) cudaGraphDestroy(graph);
        noted_.clear();
        if (queue_.error != cudaSuccess) return;
        found = graphs_.emplace(key, exec).first;
    }
    noted_.clear();
    queue_.keep(cudaGraphLaunch(found->second, queue_.stream), "a recorded call");
}

CachePart CudaDevice::cache_part(PartId id) const {
    if (id < 0) return {};
    const PartSpec& part = layout_->parts[static_cast<size_t>(id)];
    return {id, part.type, static_cast<int>(part.row_bytes()), part.kind == PartSpec::Kind::ring ? part.capacity : 0};
}

// ---- operations
// -------------------------------------------------------------------------------------------------------------

void CudaDevice::embed(const Call& call, const Matrix& table, float scale, Rows out) {
    if (!call.pictures.empty()) {
        const uint64_t bytes = picture_bytes_ * static_cast<uint64_t>(out.width) * sizeof(float);
        if (picture_memory_) memory_.give_back(picture_memory_);
        auto memory = memory_.take(bytes, "a picture's rows");
        picture_memory_ = memory ? *memory : nullptr;
        if (!memory) return fail(memory.error().message);
        copy_from_host(picture_memory_, call.picture_rows, bytes);
        step_.picture_rows = reinterpret_cast<const float*>(picture_memory_);
    }
    enqueue([=, this] { cuda::embed(queue_, step_, table, scale, out); }, table, scale, out);
}

void CudaDevice::rope_table(const Call&, const RopeSpec& rope, Rows out) {
    auto found = ropes_.find(&rope);
    if (found == ropes_.end()) {
        const uint64_t n = rope.frequency.size();
        auto frequency = memory_.take_small(n * sizeof(double), "rotary frequencies"),
             axis = memory_.take_small(n, "rotary axes");
        if (!frequency || !axis) return fail("no memory for rotary frequencies");
        queue_.keep(cudaMemcpyAsync(*frequency, rope.frequency.data(), n * sizeof(double), cudaMemcpyHostToDevice,
                                    queue_.stream),
                    "rotary angles");
        queue_.keep(cudaMemcpyAsync(*axis, rope.axis.data(), n, cudaMemcpyHostToDevice, queue_.stream),
                    "rotary angles");
        found = ropes_
                    .emplace(&rope,
                             Rope{reinterpret_cast<const double*>(*frequency), reinterpret_cast<const uint8_t*>(*axis)})
                    .first;
    }
    const Rope on_card = found->second;
    const int pairs = static_cast<int>(rope.frequency.size());
    enqueue([=, this] { cuda::rope_table(queue_, step_, on_card.frequency, on_card.axis, pairs, out); },
            on_card.frequency, pairs, out);
}

void CudaDevice::norm(Rows x, const float* weight, float eps, Activations out) {
    if (out.codes.values && out.values.data != x.data && norm_products_take(x)) {
        let_go();
        held_ = HeldNorm{x, weight, eps, out, {}, {}};
        return;
    }
    enqueue([=, this] { cuda::norm(queue_, x, weight, eps, out.values, codes_of(out.codes)); }, x, weight, eps,
            out.values, out.codes);
}

void CudaDevice::add_norm(Rows residual, Rows x, const float* weight, float eps) {
    enqueue([=, this] { cuda::add_norm(queue_, residual, x, weight, eps); }, residual, x, weight, eps);
}

void CudaDevice::quantise(Activations x) {
    enqueue([=, this] { cuda::quantise(queue_, x.values, codes_of(x.codes)); }, x.values, x.codes);
}

void CudaDevice::add(Rows to, Rows from) {
    enqueue([=, this] { cuda::add(queue_, to, from); }, to, from);
}

void CudaDevice::scale(Rows x, float factor, const float* weight) {
    enqueue([=, this] { cuda::scale(queue_, x, factor, weight); }, x, factor, weight);
}

void CudaDevice::soft_cap(Rows x, float cap) {
    enqueue([=, this] { cuda::soft_cap(queue_, x, cap); }, x, cap);
}

void CudaDevice::gather(Rows in, std::span<const int32_t> which, Rows out) {
    // The places are part of the launch; calls want few rows.
    for (size_t first = 0; first < which.size(); first += kGather) {
        GatherList list{};
        const int n = static_cast<int>(std::min<size_t>(kGather, which.size() - first));
        std::copy_n(which.begin() + static_cast<long>(first), n, list.row);
        const Rows part = out.slice(static_cast<int>(first), n);
        if (noting_)
            for (int i = 0; i < n; ++i) fingerprint_.mix(list.row[i]);
        enqueue([=, this] { cuda::gather(queue_, list, n, in, part); }, in, part);
    }
}

void CudaDevice::let_go() {
    Held held = std::exchange(held_, std::monostate{});
    if (auto* n = std::get_if<HeldNorm>(&held)) {
        if (n->quantised.empty() && n->floats.empty()) {
            enqueue(
                [=, this, n = *n] { cuda::norm(queue_, n.x, n.weight, n.eps, n.out.values, codes_of(n.out.codes)); },
                n->x, n->weight, n->eps, n->out.values, n->out.codes);
            return;
        }
        if (noting_) {
            for (const Product& p : n->quantised) fingerprint_.mix(p.matrix, p.out);
            for (const Product& p : n->floats) fingerprint_.mix(p.matrix, p.out);
        }
        const Rows x = n->x, values = n->out.values;
        const QuantisedRows codes = n->out.codes;
        const float* weight = n->weight;
        const float eps = n->eps;
        enqueue(
            [=, this, quantised = std::move(n->quantised), floats = std::move(n->floats)] {
                norm_products(queue_, x, weight, eps, values, codes_of(codes), quantised, floats);
            },
            x, weight, eps, values, codes, -1);
    } else if (const auto* h = std::get_if<HeldHeads>(&held)) {
        const PreparedHeads heads = prepared(h->spec);
        enqueue([=, this, h = *h] { cuda::prepare_heads(queue_, step_, heads, h.rope, h.q, h.k, h.v); },
                h->spec.query_norm, h->spec.keys, h->rope, h->q, h->k, h->v);
    } else if (const auto* r = std::get_if<HeldRoute>(&held)) {
        enqueue([=, this, r = *r] { cuda::route(queue_, r.logits, r.spec, r.out); }, r->logits, r->spec.used,
                r->spec.bias, r->out.experts, r->out.weights);
    }
}

void CudaDevice::multiply(const Activations& x, std::span<const Product> products, bool add) {
    std::vector<Product> quantised, floats;
    for (const Product& p : products) (type_info(p.matrix.type).quantised ? quantised : floats).push_back(p);
    if (auto* n = held<HeldNorm>(); n && !add && n->out.codes.values == x.codes.values &&
                                    n->out.values.data == x.values.data && n->out.codes.rows == x.codes.rows) {
        n->quantised.insert(n->quantised.end(), quantised.begin(), quantised.end());
        n->floats.insert(n->floats.end(), floats.begin(), floats.end());
        return;
    }
    let_go();
    if (noting_)
        for (const Product& p : products) fingerprint_.mix(p.matrix, p.out);
    if (!floats.empty())
        enqueue([=, this, values = x.values] { float_product(queue_, values, floats, add); }, x.values, add);
    if (quantised.empty()) return;
    enqueue(
        [=, this, codes = codes_of(x.codes)] {
            if (codes.rows <= kNarrow)
                matvec(queue_, codes, quantised, add);
            else
                matmat(queue_, codes, quantised, add);
        },
        x.codes, add);
}

void CudaDevice::matmul(const Activations& x, std::span<const Product> products) {
    multiply(x, products, false);
}

void CudaDevice::matmul_add(const Activations& x, const Matrix& matrix, Rows residual) {
    const Product product{matrix, residual};
    multiply(x, {&product, 1}, true);
}

void CudaDevice::matmul_float(Rows x, std::span<const Product> products) {
    std::vector<Product> floats(products.begin(), products.end());
    for (Product& p : floats) {
        if (type_info(p.matrix.type).quantised) {
            p.matrix.data = reinterpret_cast<const std::byte*>(expanded(p.matrix));
            p.matrix.type = Type::f32;
            if (!p.matrix.data) return;
        }
    }
    if (auto* n = held<HeldNorm>();
        n && n->out.values.data == x.data && n->out.values.rows == x.rows && n->out.values.width == x.width) {
        n->floats.insert(n->floats.end(), floats.begin(), floats.end());
        return;
    }
    let_go();
    if (noting_)
        for (const Product& p : floats) fingerprint_.mix(p.matrix, p.out);
    enqueue([=, this] { float_product(queue_, x, floats, false); }, x);
}

PreparedHeads CudaDevice::prepared(const HeadSpec& spec) const {
    return {spec.query_norm, spec.key_norm, spec.value_norm, spec.eps, cache_part(spec.keys), cache_part(spec.values)};
}

void CudaDevice::prepare_heads(const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k, HeadRows v) {
    let_go();
    held_ = HeldHeads{spec, rope, q, k, v};
    // Only the attention of answers makes its heads ready itself.
    if (call.rows > kNarrow || !q.data || !k.data || spec.keys < 0 || spec.values < 0) let_go();
}

void CudaDevice::attend(const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate, Activations out) {
    const bool prompt = call.rows > kNarrow;
    Attention attention{};
    attention.keys = cache_part(spec.keys);
    attention.values = cache_part(spec.values);
    attention.kv_heads = spec.kv_heads;
    attention.scale = spec.scale;
    attention.window = spec.window;
    attention.sinks = spec.sinks;
    attention.look_ahead = spec.pictures_look_ahead;
    attention.own_rows = spec.own_rows;
    attention.longest = longest_;
    if (!prompt) {
        attention.partial =
            reinterpret_cast<float*>(workspace(attention_scratch(call.rows, q.heads, q.width, longest_)));
        if (!attention.partial) return;
    }
    std::optional<NewHeads> heads;
    if (const auto* h = held<HeldHeads>(); h && h->q.data == q.data && h->q.width == q.width &&
                                           h->spec.keys == spec.keys && h->spec.values == spec.values &&
                                           h->k.heads == spec.kv_heads && h->v.width == q.width && spec.own_rows) {
        heads = NewHeads{prepared(h->spec), h->rope, h->k, h->v};
        if (noting_) fingerprint_.mix(h->spec.query_norm, h->rope, h->k, h->v);
        held_ = std::monostate{};
    }
    const int spans = spans_;
    enqueue(
        [=, this] {
            cuda::attend(queue_, step_, attention, heads ? &*heads : nullptr, q, gate, out.values, codes_of(out.codes),
                         spans, prompt);
        },
        spec.keys, spec.values, spec.scale, spec.window, attention.partial, longest_, q, gate, out.values, out.codes);
}

void CudaDevice::delta_net(const Call& call, const DeltaNetSpec& spec, Rows u, Rows z, Rows alpha, Rows beta,
                           Activations out) {
    const uint64_t state_bytes = layout_->parts[static_cast<size_t>(spec.state)].bytes;
    const uint64_t history_bytes = layout_->parts[static_cast<size_t>(spec.history)].bytes;
    if (!delta_net_takes(spec)) return fail("a delta net of this shape is not supported on the card");
    DeltaNetCall on_card{spans_, 0, workspace(delta_net_scratch(spec, u.rows)), tickets_};
    bool logs = false;
    for (const Span& span : call.spans) {
        on_card.longest = std::max(on_card.longest, span.rows);
        logs = logs || span.log;
    }
    if (logs && on_card.longest > kMaxWindow) return fail("a window beside a prompt in one call");
    if (!on_card.scratch) return;
    enqueue(
        [=, this] {
            cuda::delta_net(queue_, step_, spec, state_bytes, history_bytes, u, z, alpha, beta, out.values,
                            codes_of(out.codes), on_card);
        },
        spec.state, spec.conv, on_card.longest, on_card.scratch, u, z, alpha, beta, out.values, out.codes);
}

void CudaDevice::short_conv(const Call&, const ShortConvSpec& spec, Rows bcx, Activations out) {
    const uint64_t history_bytes = layout_->parts[static_cast<size_t>(spec.history)].bytes;
    const int spans = spans_;
    enqueue(
        [=, this] {
            cuda::short_conv(queue_, step_, spec, history_bytes, bcx, out.values, codes_of(out.codes), spans);
        },
        spec.history, spec.conv, bcx, out.values, out.codes);
}

void CudaDevice::route(Rows logits, const RouteSpec& spec, Routing out) {
    if (logits.width > 1024) return fail("more than 1,024 experts a layer are not supported on the card");
    let_go();
    held_ = HeldRoute{logits, spec, out};
    if (logits.rows > kNarrow) let_go();
}

void CudaDevice::run_experts(const ExpertSet& set, const Activations& x, const Routing& routing,
                             const SharedExpert& shared, Rows out, bool add) {
    std::byte* scratch = workspace(
        experts_scratch(x.values.rows, routing.used, set.gate.rows, shared.gate.rows, out.width, set.gate.count));
    if (!scratch) return;
    std::optional<RouteInput> route;
    if (const auto* r = held<HeldRoute>(); r && routing.used > 0 && r->out.experts == routing.experts) {
        route = RouteInput{r->logits, r->spec};
        if (noting_) fingerprint_.mix(r->logits, r->spec.bias);
        held_ = std::monostate{};
    }
    enqueue(
        [=, this] {
            cuda::experts(queue_, set, x.values, codes_of(x.codes), routing, shared, out, add,
                          route ? &*route : nullptr, scratch);
        },
        set.gate, set.down, shared.gate, shared.weight_logit, x.values, x.codes, routing.experts, routing.weights,
        routing.used, out, add, scratch);
}

void CudaDevice::experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                         Rows out, bool add) {
    run_experts(set, x, routing, shared, out, add);
}

void CudaDevice::feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) {
    run_experts({}, x, {.rows = x.values.rows}, block, out, add);
}

}  // namespace cuda

std::vector<std::string> cuda_cards() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError();
        return {};
    }
    std::vector<std::string> cards;
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp p{};
        if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
        cards.push_back(std::string(p.name) + ", " + std::to_string(p.totalGlobalMem >> 30) + " GiB, sm_" +
                        std::to_string(p.major) + std::to_string(p.minor));
    }
    return cards;
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
    // All kernels at once, while the model loads anyway, instead of each at its first use.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int count = 0;
    if (const cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0)
        return device_error("no CUDA card can be used" +
                            (e != cudaSuccess ? std::string(" (") + cudaGetErrorString(e) + ")" : std::string()) +
                            "; use --device cpu");
    if (options.card < 0 || options.card >= count)
        return device_error("card " + std::to_string(options.card) + " does not exist: this machine has " +
                            std::to_string(count));
    cudaDeviceProp properties{};
    if (const cudaError_t e = cudaSetDevice(options.card); e != cudaSuccess)
        return cuda::cuda_error("card " + std::to_string(options.card), e);
    if (const cudaError_t e = cudaGetDeviceProperties(&properties, options.card); e != cudaSuccess)
        return cuda::cuda_error("card " + std::to_string(options.card), e);
    if (properties.major < 7 || (properties.major == 7 && properties.minor < 5))
        return device_error(std::string(properties.name) +
                            " is too old: cards from sm_75 on are supported; use --device cpu");
    auto device = std::make_unique<cuda::CudaDevice>(options, properties);
    STRATA_TRY(device->open());
    return Result<std::unique_ptr<Device>>(std::move(device));
}

}  // namespace strata
