// The kernels for any window of f16.
#include "cuda/any/any_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_ANY_FORWARD(__half)
POOLGRAD_CUDA_ANY_BACKWARD(__half)
}  // namespace poolgrad::cuda
