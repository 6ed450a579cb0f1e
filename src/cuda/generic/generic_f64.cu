// The generic kernels of f64.
#include "cuda/generic/generic.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GENERIC(double)
}  // namespace poolgrad::cuda
