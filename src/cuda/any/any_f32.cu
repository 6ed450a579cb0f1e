// The kernels for any window of f32.
#include "cuda/any/any_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_ANY_FORWARD(float)
POOLGRAD_CUDA_ANY_BACKWARD(float)
}  // namespace poolgrad::cuda
