// Mixes: which tensor of a model gets which type. Source: specs page quants, section 8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/types.h"

namespace strata::synth {

/// What a mix looks at.
struct MixTensor {
    std::string name;
    std::vector<uint64_t> dims;
    std::optional<Type> fixed;  // no mix touches it: norms, routers, convolutions, tables
};
struct MixModel {
    int blocks = 0;  // draft blocks included
    int heads = 0;
    int kv_heads = 0;
    int experts = 0;
    std::vector<MixTensor> tensors;  // file order: some rules count
};

struct Mix {
    std::vector<Type> types;  // like MixModel::tensors
    uint32_t file_type = 0;   // general.file_type
};

/// The types that the mix gives, or a usage error that lists the mixes. Rows that do not divide into a type's blocks
/// get the type that quantisers fall back to.
Result<Mix> apply_mix(std::string_view name, const MixModel& model);

struct MixName {
    std::string name;
    std::string description;
};
/// Every mix, and one line of it.
std::vector<MixName> mixes();

/// The block number of "blk.N.rest" (-1 if it is no such name), and the rest.
struct BlockName {
    int block;
    std::string_view rest;
};
BlockName split_block_name(std::string_view name);

}  // namespace strata::synth
