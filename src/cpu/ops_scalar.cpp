#include "cpu/ops_table.inc.h"

namespace strata::cpu {

const OpKernels& ops_scalar() {
    return kTable;
}

}  // namespace strata::cpu
