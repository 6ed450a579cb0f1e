// The cell kernels of f16.
#include "cuda/cell_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_CELLS(__half)
}  // namespace poolgrad::cuda
