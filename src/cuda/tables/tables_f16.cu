// The kernels for windows by table and averages of f16.
#include "cuda/tables/tables_known_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_TABLES(__half)
}  // namespace poolgrad::cuda
