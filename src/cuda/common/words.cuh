// Words of gradients: widened to the floats that sums are made of, and rounded back once.
#pragma once

#include "cuda/common/packs.cuh"

namespace poolgrad::cuda {

// The two values of a pair of halves, or the one of a float.
template <class T>
__device__ void WidenWord(uint32_t word, float* out) {
  if constexpr (std::is_same_v<T, float>) {
    out[0] = __uint_as_float(word);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xFFFF0000u);
  } else {
    const float2 two = __half22float2(PackOfTwo<HalfOps>::AsTwo(word));
    out[0] = two.x, out[1] = two.y;
  }
}

template <class T>
__device__ uint32_t NarrowWord(const float* in) {
  if constexpr (std::is_same_v<T, float>) {
    return __float_as_uint(in[0]);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return PackOfTwo<BfloatOps>::AsReg(__floats2bfloat162_rn(in[0], in[1]));
  } else {
    return PackOfTwo<HalfOps>::AsReg(__floats2half2_rn(in[0], in[1]));
  }
}

}  // namespace poolgrad::cuda
