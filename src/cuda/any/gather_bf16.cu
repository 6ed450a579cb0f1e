// The gather kernels of bf16.
#include "cuda/any/gather_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GATHER(__nv_bfloat16)
}  // namespace poolgrad::cuda
