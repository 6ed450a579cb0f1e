// The forward kernels for any window of i8, u8 and i32.
#include "cuda/any/any_launch.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_ANY_FORWARD(int8_t)
POOLGRAD_CUDA_ANY_FORWARD(uint8_t)
POOLGRAD_CUDA_ANY_FORWARD(int32_t)
}  // namespace poolgrad::cuda
