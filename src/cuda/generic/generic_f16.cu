// The generic kernels of f16.
#include "cuda/generic/generic.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GENERIC(__half)
}  // namespace poolgrad::cuda
