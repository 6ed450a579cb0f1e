// The generic kernels of i8, u8 and i32.
#include "cuda/generic/generic.cuh"

namespace poolgrad::cuda {
POOLGRAD_CUDA_GENERIC(int8_t)
POOLGRAD_CUDA_GENERIC(uint8_t)
POOLGRAD_CUDA_GENERIC(int32_t)
}  // namespace poolgrad::cuda
