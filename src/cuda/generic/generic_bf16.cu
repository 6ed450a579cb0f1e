// The generic kernels of bf16.
#include "cuda/generic/generic.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GENERIC(__nv_bfloat16)
}  // namespace poolgrad::cuda
