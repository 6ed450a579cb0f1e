// The gather kernels of f32.
#include "cuda/any/gather_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GATHER(float)
}  // namespace poolgrad::cuda
