#include "models/loader.h"

#include <algorithm>
#include <limits>

#include "quant/dequantise.h"

namespace strata {
namespace {

/// "[2048, 512]": as the file says it, without trailing ones.
std::string dims_text(std::vector<int64_t> dims) {
    while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
    std::string text = "[";
    for (int64_t d : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
    return text + "]";
}

}  // namespace

Loader::Loader(const gguf::File& file, Device& device)
    : file_(file), device_(device), architecture_(file.architecture()) {}

// ---- errors
// ------------------------------------------------------------------------------------------------------------

void Loader::keep(const Error& error) {
    if (!ok_) return;
    ok_ = false;
    error_ = error;
}

void Loader::refuse(const std::string& message) {
    keep(file_error(file_.file_name() + ": " + message, "model"));
}

Result<void> Loader::status() const {
    if (!ok_) return error_;
    return {};
}

// ---- metadata
// ----------------------------------------------------------------------------------------------------------

std::string Loader::key_name(std::string_view key) const {
    if (key.starts_with("general.") || key.starts_with("tokenizer.")) return std::string(key);
    return file_.arch_key(key);
}

bool Loader::has_key(std::string_view key) const {
    return file_.has(key_name(key));
}

bool Loader::is_array(std::string_view key) const {
    const gguf::Key* found = file_.find_key(key_name(key));
    return found && found->type == gguf::ValueType::array;
}

int Loader::integer(std::string_view key, int64_t lo, int64_t hi) {
    auto value = file_.get_int(key_name(key), lo, hi);
    if (!value) keep(value.error());
    return value ? static_cast<int>(*value) : static_cast<int>(lo);
}

int Loader::integer_or(std::string_view key, int fallback, int64_t lo, int64_t hi) {
    return has_key(key) ? integer(key, lo, hi) : fallback;
}

float Loader::number(std::string_view key) {
    auto value = file_.get_float(key_name(key));
    if (!value) keep(value.error());
    return value ? *value : 0.0f;
}

float Loader::number_or(std::string_view key, float fallback) {
    return has_key(key) ? number(key) : fallback;
}

bool Loader::flag_or(std::string_view key, bool fallback) {
    auto value = file_.find_bool(key_name(key));
    if (!value) keep(value.error());
    return value ? value->value_or(fallback) : fallback;
}

std::string Loader::text_or(std::string_view key, std::string_view fallback) {
    auto value = file_.find_string(key_name(key));
    if (!value) keep(value.error());
    return std::string(value ? value->value_or(fallback) : fallback);
}

std::vector<int> Loader::per_layer(std::string_view key, int layers, int64_t lo, int64_t hi) {
    auto values = file_.get_layer_ints(key_name(key), static_cast<uint64_t>(layers), lo, hi);
    if (values) return {values->begin(), values->end()};
    keep(values.error());
    return std::vector<int>(static_cast<size_t>(layers), static_cast<int>(lo));
}

std::vector<bool> Loader::flags_per_layer(std::string_view key, int layers) {
    auto values = file_.get_layer_flags(key_name(key), static_cast<uint64_t>(layers));
    if (values) return std::move(values).value();
    keep(values.error());
    return std::vector<bool>(static_cast<size_t>(layers), false);
}

int Loader::same_in_layers(std::string_view key, int first, int layers, int64_t lo, int64_t hi) {
    if (!is_array(key)) return integer(key, lo, hi);
    const std::vector<int> values = integers(key, 0, hi);
    const size_t count = values.size(), skipped = count == 1 ? 0 : static_cast<size_t>(first);
    const bool fits = (count == 1 || count == static_cast<size_t>(layers)) && skipped < count && values.back() >= lo &&
                      std::all_of(values.begin() + static_cast<std::ptrdiff_t>(skipped), values.end(),
                                  [&](int value) { return value == values.back(); });
    require(fits, key_name(key) + " must be one number, the same for all layers, from " + std::to_string(lo) + " on");
    return fits ? values.back() : static_cast<int>(lo);
}

std::vector<int> Loader::integers(std::string_view key, int64_t lo, int64_t hi) {
    auto values = file_.get_ints(key_name(key), lo, hi);
    if (!values) {
        keep(values.error());
        return {};
    }
    const std::vector<int64_t> all = values->to_vector();
    return {all.begin(), all.end()};
}

void Loader::refuse_rope_scaling() {
    const std::string type = text_or("rope.scaling.type", "none");
    const float factor = number_or("rope.scaling.factor", 1.0f);
    require(type == "none" || factor == 1.0f,
            "rope scaling '" + type + "' by " + std::to_string(factor) + " is not supported for " + architecture_);
    require(factor == 1.0f || factor == 0.0f,
            "a rope.scaling.factor of " + std::to_string(factor) + " is not supported");
}

// ---- weights
// -----------------------------------------------------------------------------------------------------------

bool Loader::has(const std::string& name) const {
    return file_.find_tensor(name) != nullptr;
}

int64_t Loader::dimension(const std::string& name, int index) const {
    const gguf::TensorInfo* info = file_.find_tensor(name);
    return info ? static_cast<int64_t>(info->dims[static_cast<size_t>(index)]) : 0;
}

const gguf::TensorInfo* Loader::tensor(const std::string& name, std::initializer_list<int64_t> dims) {
    const gguf::TensorInfo* info = file_.find_tensor(name);
    if (!info) {
        refuse("tensor " + name + " is missing");
        return nullptr;
    }
    used_.insert(name);
    // Trailing dimensions of one may be written or not.
    bool same = info->n_dims <= 4;
    auto wanted = dims.begin();
    for (const uint64_t have : info->dims) {
        same = same && static_cast<int64_t>(have) == (wanted != dims.end() ? *wanted : 1);
        if (wanted != dims.end()) ++wanted;
    }
    if (same) return info;
    refuse("tensor " + name + " is " + gguf::dims_text(*info) + ", wanted " + dims_text(dims));
    return nullptr;
}

WeightView Loader::view(const std::string& name, int in, int total, int count, int first, int out) {
    const gguf::TensorInfo* info = tensor(name, {in, total, count});
    if (!info) return {};
    const TypeInfo& type = type_info(info->type);
    const bool is_float = info->type == Type::f32 || info->type == Type::f16 || info->type == Type::bf16;
    if (!type.quantised && !is_float) {
        refuse("tensor " + name + " is " + std::string(type.name) + ", which is no type for a matrix");
        return {};
    }
    if (type.quantised && in % 32 != 0) {
        refuse("tensor " + name + ": rows of " + std::to_string(in) + " values are not a multiple of 32");
        return {};
    }
    WeightView weights;
    weights.name = name;
    weights.type = info->type;
    weights.rows = out;
    weights.cols = in;
    weights.count = count;
    weights.stride = info->matrix_bytes();
    weights.data = info->data + static_cast<uint64_t>(first) * info->row_bytes();

    // A companion of scales multiplies the product, one for all or one an expert. One that the model has read itself
    // means something else.
    const std::string stem = name.substr(0, name.rfind('.'));
    ignore(stem + ".input_scale");
    if (name.ends_with(".weight") && has(stem + ".scale") && !used_.contains(stem + ".scale")) {
        const gguf::TensorInfo* scale = tensor(stem + ".scale", {count});
        if (scale && scale->type == Type::f32)
            weights.scales = reinterpret_cast<const float*>(scale->data);
        else if (scale)
            refuse("tensor " + stem + ".scale must be F32");
    }
    return weights;
}

Matrix Loader::matrix_rows(const std::string& name, int in, int total, int first, int out) {
    const WeightView weights = view(name, in, total, 1, first, out);
    if (!weights.data) return {};
    auto matrix = device_.load_matrix(weights);
    if (!matrix) keep(matrix.error());
    return matrix ? *matrix : Matrix{};
}

Matrix Loader::matrix(const std::string& name, int in, int out) {
    return matrix_rows(name, in, out, 0, out);
}

std::vector<Matrix> Loader::matrices(const std::string& fused, int in, const std::vector<Named>& parts) {
    std::vector<Matrix> all;
    int total = 0, first = 0;
    for (const Named& part : parts) total += part.out;
    const bool one = has(fused);
    for (const Named& part : parts) {
        all.push_back(one ? matrix_rows(fused, in, total, first, part.out) : matrix(part.name, in, part.out));
        first += part.out;
    }
    return all;
}

std::vector<float> Loader::host_vector(const std::string& name, std::initializer_list<int64_t> dims) {
    const gguf::TensorInfo* info = tensor(name, dims);
    if (!info) return {};
    if (info->type != Type::f32 && info->type != Type::f16 && info->type != Type::bf16) {
        refuse("tensor " + name + " is " + std::string(type_info(info->type).name) + ", wanted a float type");
        return {};
    }
    std::vector<float> values(info->elements());
    dequantise_row(info->type, info->data, static_cast<int64_t>(values.size()), values.data());
    return values;
}

const float* Loader::upload(const std::vector<float>& values) {
    if (!ok_) return nullptr;
    auto loaded = device_.load_vector(values);
    if (!loaded) keep(loaded.error());
    return loaded ? *loaded : nullptr;
}

const float* Loader::vector(const std::string& name, std::initializer_list<int64_t> dims) {
    return upload(host_vector(name, dims));
}

ExpertSet Loader::experts(const std::string& prefix, int expert_layer, Gate gate_function, int width, int inner,
                          int count) {
    WeightView gate, up;
    if (has(prefix + "ffn_gate_up_exps.weight")) {
        gate = view(prefix + "ffn_gate_up_exps.weight", width, 2 * inner, count, 0, inner);
        up = view(prefix + "ffn_gate_up_exps.weight", width, 2 * inner, count, inner, inner);
    } else {
        gate = view(prefix + "ffn_gate_exps.weight", width, inner, count, 0, inner);
        up = view(prefix + "ffn_up_exps.weight", width, inner, count, 0, inner);
    }
    const WeightView down = view(prefix + "ffn_down_exps.weight", inner, width, count, 0, width);
    if (!gate.data || !up.data || !down.data) return {};
    auto set = device_.load_experts(expert_layer, gate_function, gate, up, down);
    if (!set) keep(set.error());
    return set ? *set : ExpertSet{};
}

SharedExpert Loader::feed_forward(const std::string& prefix, const std::string& suffix, Gate gate_function, int width,
                                  int inner) {
    SharedExpert block;
    block.gate_function = gate_function;
    block.gate = matrix(prefix + "ffn_gate" + suffix, width, inner);
    block.up = matrix(prefix + "ffn_up" + suffix, width, inner);
    block.down = matrix(prefix + "ffn_down" + suffix, inner, width);
    return block;
}

void Loader::refuse_biases() {
    for (const gguf::TensorInfo& info : file_.tensors())
        if (info.name.starts_with("blk.") && info.name.ends_with(".bias") && !used_.contains(info.name))
            return refuse("biases are not supported for " + architecture_ + " (" + std::string(info.name) + ")");
}

void Loader::refuse_type(Type type) {
    for (const gguf::TensorInfo& info : file_.tensors())
        if (info.type == type)
            return refuse("tensor " + std::string(info.name) + " is " + std::string(type_info(type).name) +
                          ", which is not supported for " + architecture_);
}

std::vector<std::string> Loader::notes() const {
    std::string first;
    size_t ignored = 0;
    for (const gguf::TensorInfo& info : file_.tensors()) {
        if (used_.contains(info.name)) continue;
        if (ignored++ == 0) first = info.name;
    }
    if (ignored == 0) return {};
    return {std::to_string(ignored) + (ignored == 1 ? " tensor is" : " tensors are") +
            " not part of this model and ignored (the first is " + first + ")"};
}

}  // namespace strata
