// The kernels of bf16 whose windows are loops.
#include "cuda/large/large_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_LARGE(__nv_bfloat16)
}  // namespace poolgrad::cuda
