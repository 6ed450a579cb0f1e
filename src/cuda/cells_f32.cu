// The cell kernels of f32.
#include "cuda/cell_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_CELLS(float)
}  // namespace poolgrad::cuda
