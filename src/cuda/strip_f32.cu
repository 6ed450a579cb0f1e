// The strip kernels of f32.
#include "cuda/strip_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_STRIP(float)
}  // namespace poolgrad::cuda
