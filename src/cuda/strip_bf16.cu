// The strip kernels of bf16.
#include "cuda/strip_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_STRIP(__nv_bfloat16)
}  // namespace poolgrad::cuda
