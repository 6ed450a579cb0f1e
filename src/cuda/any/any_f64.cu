// The kernels for any window of f64.
#include "cuda/any/any_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_ANY_FORWARD(double)
POOLGRAD_CUDA_ANY_BACKWARD(double)
}  // namespace poolgrad::cuda
