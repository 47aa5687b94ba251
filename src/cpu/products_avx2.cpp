#include "cpu/products_kernels.h"
namespace strata::cpu {
const ProductKernels& avx2_product_kernels() {
    return scalar_product_kernels();
}
}  // namespace strata::cpu
