// The cell kernels of bf16.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadCells<__nv_bfloat16>(const Form& form) {
  return FindCells<__nv_bfloat16>(form);
}
}  // namespace poolgrad::cuda
