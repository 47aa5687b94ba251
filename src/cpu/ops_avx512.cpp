#include "cpu/ops_table.inc.h"

namespace strata::cpu {

const OpKernels& ops_avx512() {
    return kTable;
}

}  // namespace strata::cpu
