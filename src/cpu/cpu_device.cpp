#include "cpu/cpu_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/mman.h>
#include <thread>

#include "base/checked.h"
#include "cpu/numa.h"
#include "quant/dequantise.h"

namespace strata {

using namespace cpu;

namespace {

int thread_count(int wanted) {
    return wanted > 0 ? wanted : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "CPU";
}

/// What makes a call unfit to be computed, or empty.
std::string fault_of(const Call& call) {
    int next = 0;
    for (const Span& span : call.spans) {
        if (!span.state || !*span.state) return "a span without a conversation";
        if (span.rows < 0 || span.start < 0 || span.first != next) return "spans that do not follow one another";
        next += span.rows;
        if (static_cast<int64_t>(span.start) + span.rows > span.state->capacity)
            return "rows " + std::to_string(span.start) + " to " + std::to_string(span.start + span.rows) +
                   " of a conversation with room for " + std::to_string(span.state->capacity);
        if (span.replay < 0 || span.replay > kMaxWindow || (span.log && span.rows > kMaxWindow))
            return "a window of more than " + std::to_string(kMaxWindow) + " rows";
        for (const PartSpec& part : span.state->layout().parts)
            if (part.kind == PartSpec::Kind::ring && part.capacity < part.window - 1 + span.rows)
                return std::to_string(span.rows) + " rows at once with only " + std::to_string(part.capacity) + " in " +
                       part.name;
    }
    if (next != call.rows)
        return "spans of " + std::to_string(next) + " rows in a call of " + std::to_string(call.rows);
    return {};
}

}  // namespace

Result<CpuDevice::Setup> CpuDevice::setup(const CpuOptions& options) {
    const Simd simd = options.simd.value_or(best_simd());
    if (simd > best_simd())
        return usage_error("this processor has no " + std::string(name_of(simd)) + "; the best it has is " +
                           std::string(name_of(best_simd())));
    return Setup{thread_count(options.threads), simd};
}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(const CpuOptions& options) {
    STRATA_TRY_ASSIGN(const Setup made, setup(options));
    return std::unique_ptr<CpuDevice>(new CpuDevice(made));
}

CpuDevice::CpuDevice(const Setup& setup)
    : pool_(setup.threads), kernels_(op_kernels(setup.simd)), products_(pool_, setup.simd) {
    facts_.name = "cpu";
    facts_.threads = setup.threads;
    facts_.description = processor_name() + ", " + std::to_string(setup.threads) +
                         (setup.threads == 1 ? " thread, " : " threads, ") + std::string(name_of(setup.simd));
}

std::string CpuDevice::stay_near(std::span<const std::span<const std::byte>> memory) {
    const std::vector<NumaNode> nodes = numa_nodes();
    if (nodes.size() < 2) return {};
    const std::optional<NodeShare> most = node_of(memory);
    const NumaNode* node = node_for(nodes, pool_.threads(), most);
    if (!node) return {};
    pool_.stay_on(node->cpus);
    return "threads stay on memory node " + std::to_string(node->number) + " of " + std::to_string(nodes.size()) +
           ", which holds " + std::to_string(static_cast<int>(100 * most->share)) + "% of the file's pages";
}

CpuDevice::~CpuDevice() {
    for (const auto& [memory, size] : allocations_) munmap(const_cast<std::byte*>(memory), size);
}

void CpuDevice::fail(std::string message) {
    if (status_.ok()) status_ = failure(std::move(message));
}

// ---- weights

Result<Matrix> CpuDevice::load_matrix(const WeightView& weights) {
    Matrix matrix;
    matrix.type = weights.type;
    matrix.rows = weights.rows;
    matrix.cols = weights.cols;
    matrix.count = weights.count;
    matrix.stride = static_cast<int64_t>(weights.stride);
    matrix.data = weights.data;
    matrix.scales = weights.scales;
    return matrix;
}

Result<const float*> CpuDevice::load_vector(const WeightView& weights) {
    const bool aligned = reinterpret_cast<uintptr_t>(weights.data) % alignof(float) == 0;
    const auto row = row_bytes(weights.type, static_cast<uint64_t>(weights.cols));
    if (weights.type == Type::f32 && aligned &&
        (weights.count == 1 || weights.stride == row * static_cast<uint64_t>(weights.rows)))
        return reinterpret_cast<const float*>(weights.data);
    std::vector<float> values(static_cast<size_t>(weights.count) * static_cast<size_t>(weights.rows) *
                              static_cast<size_t>(weights.cols));
    float* to = values.data();
    for (int matrix = 0; matrix < weights.count; ++matrix)
        for (int r = 0; r < weights.rows; ++r, to += weights.cols)
            dequantise_row(
                weights.type,
                weights.data + static_cast<uint64_t>(matrix) * weights.stride + static_cast<uint64_t>(r) * row,
                weights.cols, to);
    return vectors_.emplace_back(std::move(values)).data();
}

Result<const float*> CpuDevice::load_vector(std::span<const float> values) {
    return vectors_.emplace_back(values.begin(), values.end()).data();
}

Result<ExpertSet> CpuDevice::load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                          const WeightView& down) {
    ExpertSet set;
    set.layer = layer;
    set.gate_function = gate_function;
    STRATA_TRY_ASSIGN(set.gate, load_matrix(gate));
    STRATA_TRY_ASSIGN(set.up, load_matrix(up));
    STRATA_TRY_ASSIGN(set.down, load_matrix(down));
    return set;
}

const float* CpuDevice::by_tap(const float* conv, int channels, int taps) {
    std::vector<float>& turned = by_tap_[conv];
    if (turned.empty()) {
        turned.resize(static_cast<size_t>(channels) * static_cast<size_t>(taps));
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
            for (size_t j = 0; j < static_cast<size_t>(taps); ++j)
                turned[j * static_cast<size_t>(channels) + c] = conv[c * static_cast<size_t>(taps) + j];
    }
    return turned.data();
}

// ---- memory

Result<std::byte*> CpuDevice::allocate(uint64_t bytes, const char* what) {
    const uint64_t size = std::max<uint64_t>(bytes, 1);
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return device_error("no memory for " + std::string(what) + " (" + std::to_string(bytes >> 20) +
                            " MiB): " + std::strerror(errno) + "; use a shorter context or fewer conversations");
    constexpr uint64_t kHugeWorthwhile = uint64_t{16} << 20;  // less than an eighth is wasted at a 2 MB page's end
    if (size >= kHugeWorthwhile) madvise(memory, size, MADV_HUGEPAGE);
    allocations_[static_cast<std::byte*>(memory)] = size;
    return static_cast<std::byte*>(memory);
}

void CpuDevice::release(std::byte* memory) {
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) return;
    munmap(memory, found->second);
    allocations_.erase(found);
}

void CpuDevice::copy_to_host(void* host, const std::byte* from, uint64_t bytes) {
    std::memcpy(host, from, bytes);
}

void CpuDevice::copy_from_host(std::byte* to, const void* host, uint64_t bytes) {
    std::memcpy(to, host, bytes);
}

void CpuDevice::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    std::memmove(to, from, bytes);
}

void CpuDevice::zero(std::byte* to, uint64_t bytes) {
    std::memset(to, 0, bytes);
}

// ---- a call

void CpuDevice::begin(const Call& call) {
    if (const std::string fault = fault_of(call); !fault.empty()) fail("a call that does not fit: " + fault);
}

void CpuDevice::embed(const Call& call, const Matrix& table, float scale, Rows out) {
    if (!status_.ok()) return;
    const auto is_picture = [&](int row) {
        return std::any_of(call.pictures.begin(), call.pictures.end(), [&](const PictureSpan& picture) {
            return row >= picture.first && row < picture.first + picture.rows;
        });
    };
    for (int row = 0; row < call.rows; ++row)
        if (const int32_t token = call.tokens[static_cast<size_t>(row)];
            (token < 0 || token >= table.rows) && !is_picture(row))
            return fail("token " + std::to_string(token) + " is not in the vocabulary of " +
                        std::to_string(table.rows));
    cpu::embed(context(), call, table, scale, out);
}

void CpuDevice::rope_table(const Call& call, const RopeSpec& rope, Rows out) {
    if (status_.ok()) cpu::rope_table(context(), call, rope, out);
}

void CpuDevice::norm(Rows x, const float* weight, float eps, Activations out) {
    if (status_.ok()) cpu::norm(context(), x, weight, eps, out);
}

void CpuDevice::add_norm(Rows residual, Rows x, const float* weight, float eps) {
    if (status_.ok()) cpu::add_norm(context(), residual, x, weight, eps);
}

void CpuDevice::quantise(Activations x) {
    if (status_.ok()) cpu::quantise(context(), x);
}

void CpuDevice::add(Rows to, Rows from) {
    if (status_.ok()) cpu::add(context(), to, from);
}

void CpuDevice::scale(Rows x, float factor, const float* weight) {
    if (status_.ok()) cpu::scale(context(), x, factor, weight);
}

void CpuDevice::soft_cap(Rows x, float cap) {
    if (status_.ok()) cpu::soft_cap(context(), x, cap);
}

void CpuDevice::gather(Rows in, std::span<const int32_t> which, Rows out) {
    if (status_.ok()) cpu::gather(context(), in, which, out);
}

void CpuDevice::prepare_heads(const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k, HeadRows v) {
    if (std::max({q.width, k.width, v.width}) > kMaxHeadWidth)
        fail("attention heads wider than " + std::to_string(kMaxHeadWidth));
    if (status_.ok()) cpu::prepare_heads(context(), call, spec, rope, q, k, v);
}

void CpuDevice::attend(const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate, Activations out) {
    if (status_.ok()) cpu::attend(context(), call, spec, q, gate, out);
}

void CpuDevice::delta_net(const Call& call, const DeltaNetSpec& spec, Rows u, Rows z, Rows alpha, Rows beta,
                          Activations out) {
    if (spec.width % kLaneCount != 0 || spec.taps < 2 || spec.taps > kMaxTaps)
        fail("a delta net with heads of width " + std::to_string(spec.width) + " and " + std::to_string(spec.taps) +
             " taps");
    if (!status_.ok()) return;
    const int channels = (2 * spec.key_heads + spec.value_heads) * spec.width;
    cpu::delta_net(context(), call, spec, by_tap(spec.conv, channels, spec.taps), u, z, alpha, beta, out);
}

void CpuDevice::short_conv(const Call& call, const ShortConvSpec& spec, Rows bcx, Activations out) {
    if (spec.taps < 2 || spec.taps > kMaxTaps) fail("a short convolution with " + std::to_string(spec.taps) + " taps");
    if (status_.ok()) cpu::short_conv(context(), call, spec, by_tap(spec.conv, spec.width, spec.taps), bcx, out);
}

void CpuDevice::route(Rows logits, const RouteSpec& spec, Routing out) {
    if (status_.ok()) cpu::route(context(), logits, spec, out);
}

void CpuDevice::read(Rows rows, float* host) {
    for (int row = 0; row < rows.rows; ++row)
        std::memcpy(host + static_cast<int64_t>(row) * rows.width, row_of(rows, row),
                    static_cast<size_t>(rows.width) * sizeof(float));
}

// ---- products

void CpuDevice::matmul(const Activations& x, std::span<const Product> products) {
    if (status_.ok()) products_.matmul(x, products);
}

void CpuDevice::matmul_add(const Activations& x, const Matrix& matrix, Rows residual) {
    if (status_.ok()) products_.matmul_add(x, matrix, residual);
}

void CpuDevice::matmul_float(Rows x, std::span<const Product> products) {
    if (status_.ok()) products_.matmul_float(x, products);
}

void CpuDevice::experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                        Rows out, bool add) {
    if (status_.ok()) products_.experts(set, x, routing, shared, out, add);
}

void CpuDevice::feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) {
    if (status_.ok()) products_.feed_forward(block, x, out, add);
}

}  // namespace strata
