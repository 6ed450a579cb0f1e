// The cell kernels of f16.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadCells<__half>(const Form& form) {
  return FindCells<__half>(form);
}
}  // namespace poolgrad::cuda
