// The kernels of f16 whose windows are loops.
#include "cuda/large/large_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_LARGE(__half)
}  // namespace poolgrad::cuda
