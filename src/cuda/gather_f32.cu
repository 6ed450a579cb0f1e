// The gather kernels of f32.
#include "cuda/gather_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GATHER(float)
}  // namespace poolgrad::cuda
