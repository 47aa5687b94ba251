// nano_quantise IN OUT [PART=TYPE ...]: a GGUF file with some tensors in other types. A tensor takes the type of the
// first PART that its name contains; where the type's blocks do not divide its rows, the nearest one that fits; the
// rest stay as they are. Keys are copied; general.file_type takes the type that most bytes have.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "quant/dequantise.h"
#include "quant/presets.h"
#include "quant/quantise.h"

namespace {

using namespace strata;

struct Rule {
    std::string part;
    Type type;
};

Result<std::vector<Rule>> read_rules(int argc, char** argv) {
    std::vector<Rule> rules;
    for (int i = 3; i < argc; ++i) {
        const std::string word = argv[i];
        const size_t at = word.find('=');
        const auto type = at == word.npos ? std::nullopt : type_by_name(word.substr(at + 1));
        if (!type || !quantisable(*type)) return usage_error("'" + word + "' must be PART=TYPE, like ffn_up_exps=Q4_K");
        rules.push_back({word.substr(0, at), *type});
    }
    return rules;
}

Type type_of(const gguf::TensorInfo& tensor, const std::vector<Rule>& rules) {
    if (tensor.n_dims < 2) return tensor.type;
    for (const Rule& rule : rules) {
        if (tensor.name.find(rule.part) == tensor.name.npos) continue;
        const auto width = static_cast<int64_t>(tensor.dims[0]);
        return width % type_info(rule.type).block == 0 ? rule.type : fitting_type(rule.type, width);
    }
    return tensor.type;
}

/// What general.file_type says of a file whose matrices are mostly of this type.
std::optional<Preset> preset_of(Type type) {
    switch (type) {
        case Type::f32: return Preset::f32;
        case Type::f16: return Preset::f16;
        case Type::bf16: return Preset::bf16;
        case Type::q8_0: return Preset::q8_0;
        case Type::q4_k: return Preset::q4_k_m;
        case Type::q5_k: return Preset::q5_k_m;
        case Type::q6_k: return Preset::q6_k;
        default: return std::nullopt;
    }
}

Result<void> convert(const char* from, const char* to, const std::vector<Rule>& rules) {
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(from));
    gguf::Contents contents;
    for (const gguf::Key& key : file.keys()) contents.keys.copy(key);
    std::map<Type, uint64_t> bytes;
    for (const gguf::TensorInfo& t : file.tensors()) {
        contents.tensors.push_back(
            {std::string(t.name), type_of(t, rules), {t.dims.begin(), t.dims.begin() + t.n_dims}});
        STRATA_TRY_ASSIGN(const uint64_t size, gguf::tensor_bytes(contents.tensors.back()));
        bytes[contents.tensors.back().type] += size;
    }
    Type most = Type::f32;
    for (const auto& [type, size] : bytes)
        if (size > bytes[most]) most = type;
    if (const auto preset = preset_of(most))
        contents.keys.set<uint32_t>("general.file_type", static_cast<uint32_t>(*preset));

    STRATA_TRY_ASSIGN(gguf::Layout layout, gguf::lay_out(contents, to));
    STRATA_TRY_ASSIGN(gguf::Output output, gguf::Output::create(std::move(layout), {.force = true}));
    std::vector<float> row;
    std::vector<std::byte> block;
    for (size_t i = 0; i < contents.tensors.size(); ++i) {
        const gguf::TensorInfo& t = file.tensors()[i];
        const Type type = contents.tensors[i].type;
        if (type == t.type) {
            STRATA_TRY(output.write(i, 0, {t.data, t.bytes}));
            continue;
        }
        const uint64_t size = row_bytes(type, t.dims[0]);
        row.resize(t.dims[0]);
        block.resize(size);
        for (uint64_t r = 0; r < t.rows(); ++r) {
            dequantise_row(t.type, t.data + r * t.row_bytes(), static_cast<int64_t>(t.dims[0]), row.data());
            quantise_row(type, row.data(), static_cast<int64_t>(t.dims[0]), nullptr, block.data());
            STRATA_TRY(output.write(i, r * size, block));
        }
    }
    STRATA_TRY(output.finish());
    for (const auto& [type, size] : bytes)
        std::printf("%-6s %8.2f MB\n", std::string(type_info(type).name).c_str(), static_cast<double>(size) / 1e6);
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "nano_quantise IN OUT [PART=TYPE ...]\n");
        return 2;
    }
    const auto rules = read_rules(argc, argv);
    const auto result = rules ? convert(argv[1], argv[2], *rules) : Result<void>(rules.error());
    if (result) return 0;
    std::fprintf(stderr, "nano_quantise: %s\n", result.error().message.c_str());
    return static_cast<int>(result.error().kind);
}
