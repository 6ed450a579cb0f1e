// The strip kernels of f32.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadStrip<float>(const Form& form) {
  return FindStrip<float>(form);
}
}  // namespace poolgrad::cuda
