// The kernels for windows by table and averages of f32.
#include "cuda/tables/tables_known_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_TABLES(float)
}  // namespace poolgrad::cuda
