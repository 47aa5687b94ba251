#include "cpu/products_table.inc.h"

namespace strata::cpu {

const ProductKernels& avx512_product_kernels() {
    static const ProductKernels table = make_table();
    return table;
}

}  // namespace strata::cpu
