// The generic kernels of f32.
#include "cuda/generic/generic.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GENERIC(float)
}  // namespace poolgrad::cuda
