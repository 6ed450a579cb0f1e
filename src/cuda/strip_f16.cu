// The strip kernels of f16.
#include "cuda/strip_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_STRIP(__half)
}  // namespace poolgrad::cuda
