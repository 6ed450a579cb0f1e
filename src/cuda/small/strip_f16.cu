// The strip kernels of f16.
#include "cuda/small/ahead.cuh"

namespace poolgrad::cuda {
template <>
const void* AheadStrip<__half>(const Form& form) {
  return FindStrip<__half>(form);
}
}  // namespace poolgrad::cuda
