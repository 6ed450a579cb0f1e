// The kernels of f32 whose windows are loops.
#include "cuda/large/large_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_LARGE(float)
}  // namespace poolgrad::cuda
