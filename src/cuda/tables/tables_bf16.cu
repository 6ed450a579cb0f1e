// The kernels for windows by table and averages of bf16.
#include "cuda/tables/tables_known_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_TABLES(__nv_bfloat16)
}  // namespace poolgrad::cuda
