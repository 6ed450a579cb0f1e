// The cell kernels of f32.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadCells<float>(const Form& form) {
  return FindCells<float>(form);
}
}  // namespace poolgrad::cuda
