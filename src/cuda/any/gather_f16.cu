// The gather kernels of f16.
#include "cuda/any/gather_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GATHER(__half)
}  // namespace poolgrad::cuda
