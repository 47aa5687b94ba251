// The table of one instruction set: what ops_scalar.cpp, ops_avx2.cpp and ops_avx512.cpp have in common. Nothing of the
// standard library's templates is used in here: a copy built for a wide instruction set must not reach the rest of the
// program.
#include "cpu/lanes.h"
#include "cpu/ops_attention.h"
#include "cpu/ops_attention.inc.h"
#include "cpu/ops_delta_net.h"
#include "cpu/ops_delta_net.inc.h"
#include "cpu/ops_kernels.h"
#include "cpu/ops_rows.inc.h"

namespace strata::cpu {
namespace {

constexpr OpKernels kTable = {
    .norm = norm,
    .add_norm = add_norm,
    .quantise = quantise,
    .add = add,
    .scale = scale,
    .soft_cap = soft_cap,
    .gate = gate,
    .multiply = multiply,
    .dot = dot,
    .exp_sum = exp_sum,
    .rotate = rotate,
    .store = store_row,
    .route = route,
    .attend = attend,
    .merge = merge,
    .finish_head = finish_head,
    .conv_silu = conv_silu,
    .conv_gate = conv_gate,
    .unit = unit,
    .delta_gates = delta_gates,
    .delta_rows = delta_rows,
    .norm_silu = norm_silu,
};

}  // namespace
}  // namespace strata::cpu
