// The cell kernels of bf16.
#include "cuda/cell_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_CELLS(__nv_bfloat16)
}  // namespace poolgrad::cuda
