// The kernels for any window of bf16.
#include "cuda/any/any_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_ANY_FORWARD(__nv_bfloat16)
POOLGRAD_CUDA_ANY_BACKWARD(__nv_bfloat16)
}  // namespace poolgrad::cuda
