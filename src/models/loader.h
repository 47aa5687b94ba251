// Reading a model's numbers and weights from its file: what a model file's constructor is written in. The first thing
// that is missing or misshapen is kept as the error, by name; reads after it give empty values, so a constructor stays
// a list and asks `status()` once at its end.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "gguf/file.h"

namespace strata {

class Loader {
  public:
    Loader(const gguf::File& file, Device& device);

    // Metadata `ARCHITECTURE.key` (a key that begins with "general." or "tokenizer." is taken as it is). A value of a
    // wrong type or outside [lo, hi] is an error also where the key is optional.
    bool has_key(std::string_view key) const;
    bool is_array(std::string_view key) const;
    int integer(std::string_view key, int64_t lo, int64_t hi);
    int integer_or(std::string_view key, int fallback, int64_t lo, int64_t hi);
    float number(std::string_view key);
    float number_or(std::string_view key, float fallback);
    bool flag_or(std::string_view key, bool fallback);
    std::string text_or(std::string_view key, std::string_view fallback);
    /// An array of exactly `layers` values, or one value that stands for all of them.
    std::vector<int> per_layer(std::string_view key, int layers, int64_t lo, int64_t hi);
    /// The same for booleans (integers 0 and 1 are taken too).
    std::vector<bool> flags_per_layer(std::string_view key, int layers);
    /// A number that converters write once, or once a layer; what stands before layer `first` does not count.
    int same_in_layers(std::string_view key, int first, int layers, int64_t lo, int64_t hi);
    std::vector<int> integers(std::string_view key, int64_t lo, int64_t hi);
    /// Refuses rope.scaling.* that changes anything.
    void refuse_rope_scaling();

    // Weights; dimensions in the file's order, contiguous first. Names are whole tensor names.
    bool has(const std::string& name) const;
    /// `other` where the file has that and no `name`: tensors with two names.
    std::string either(const std::string& name, const std::string& other) const {
        return !has(name) && has(other) ? other : name;
    }
    /// Length of a tensor's dimension, 0 where the tensor is missing.
    int64_t dimension(const std::string& name, int index) const;
    /// A matrix {in, out}.
    Matrix matrix(const std::string& name, int in, int out);
    /// Rows [first, first + out) of a matrix {in, total}: a part of a fused tensor.
    Matrix matrix_rows(const std::string& name, int in, int total, int first, int out);
    /// Matrices that lie one by one in the file, or in this order as the rows of one `fused` tensor.
    struct Named {
        std::string name;
        int out;
    };
    std::vector<Matrix> matrices(const std::string& fused, int in, const std::vector<Named>& parts);
    /// Float values of a float tensor with these dimensions, flattened.
    const float* vector(const std::string& name, std::initializer_list<int64_t> dims);
    /// The same in host memory, for weights that a model changes before it gives them to the device.
    std::vector<float> host_vector(const std::string& name, std::initializer_list<int64_t> dims);
    const float* upload(const std::vector<float>& values);
    /// The routed experts of a layer: prefix + ffn_{gate,up,down}_exps, or ffn_gate_up_exps with an expert's gate rows
    /// first.
    ExpertSet experts(const std::string& prefix, int expert_layer, Gate gate_function, int width, int inner, int count);
    /// A shared expert or dense block: prefix + ffn_{gate,up,down} + suffix (".weight" or "_shexp.weight").
    SharedExpert feed_forward(const std::string& prefix, const std::string& suffix, Gate gate_function, int width,
                              int inner);

    /// Marks a tensor as one that this program has no use for, so that it is not reported.
    void ignore(const std::string& name) { used_.insert(name); }
    /// At most one line about tensors that nothing asked for.
    std::vector<std::string> notes() const;

    /// Refuses a layer's bias that nothing has asked for: a sum without it would be wrong.
    void refuse_biases();
    /// Refuses tensors of a type that the model cannot be computed with.
    void refuse_type(Type type);

    /// Records an error of the model's own checks.
    void refuse(const std::string& message);
    void require(bool holds, const std::string& message) {
        if (!holds) refuse(message);
    }
    bool ok() const { return ok_; }
    Result<void> status() const;
    const std::string& architecture() const { return architecture_; }

  private:
    std::string key_name(std::string_view key) const;
    WeightView view(const std::string& name, int in, int total_out, int count, int first, int out);
    const gguf::TensorInfo* tensor(const std::string& name, std::initializer_list<int64_t> dims);
    void keep(const Error& error);

    const gguf::File& file_;
    Device& device_;
    std::string architecture_;
    std::set<std::string, std::less<>> used_;
    bool ok_ = true;
    Error error_;
};

/// "blk.7." + name
inline std::string block_name(int layer, std::string_view name) {
    return "blk." + std::to_string(layer) + "." + std::string(name);
}

}  // namespace strata
