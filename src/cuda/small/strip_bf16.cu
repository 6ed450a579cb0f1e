// The strip kernels of bf16.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadStrip<__nv_bfloat16>(const Form& form) {
  return FindStrip<__nv_bfloat16>(form);
}
}  // namespace poolgrad::cuda
