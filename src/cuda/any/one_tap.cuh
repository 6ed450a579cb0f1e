// Backward of windows of one tap that move by one and leave nothing out: dx is dy where the code names that tap. Both
// lie alike, so a thread has 16 bytes of them, of whatever rows and planes.
#pragma once

#include "cuda/common/device.cuh"
#include "cuda/common/geo.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/words.cuh"

namespace poolgrad::cuda {

template <class T>
struct OneTapParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  uint32_t count;
  FastDiv line;  // elements whose codes follow one another
  int line_bytes, bits;
};

template <class T>
__global__ void __launch_bounds__(kRowsThreads) OneTapKernel(const __grid_constant__ OneTapParams<T> p) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T)), kCount = 4 * kPerWord;
  const uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * kCount;
  if (first >= p.count) return;
  const int here = static_cast<int>(min(p.count - first, static_cast<uint32_t>(kCount)));
  const bool whole = here == kCount;
  uint32_t words[4] = {}, codes[kCount] = {}, shift[kCount];
  LoadWordsIf<16>(whole, p.dy + first, words);
  uint32_t number = first, line = p.line.take(&number);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t bit = number * static_cast<uint32_t>(p.bits);
    LoadWordsIf<1>(i < here, p.routes + static_cast<int64_t>(line) * p.line_bytes + (bit >> 3), &codes[i]);
    shift[i] = bit & 7;
    if (++number == p.line.divisor) number = 0, ++line;
  }
  if (!whole) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      uint32_t element = 0;
      LoadWordsIf<sizeof(T)>(i < here, p.dy + first + i, &element);
      words[i / kPerWord] |= element << (i % kPerWord * 16);
    }
  }
  const uint32_t mask = (1u << p.bits) - 1u;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float value[kPerWord];
    WidenWord<T>(words[w], value);
#pragma unroll
    for (int e = 0; e < kPerWord; ++e) {  // a sum of one, which knows no -0
      value[e] = (codes[w * kPerWord + e] >> shift[w * kPerWord + e] & mask) == 0 ? __fadd_rn(0.0f, value[e]) : 0.0f;
    }
    words[w] = NarrowWord<T>(value);
  }
  if (whole) {
    StoreResult<true, 16>(p.dx + first, words);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < here) StoreElement(p.dx + first + i, words[i / kPerWord] >> (i % kPerWord * 16));
  }
}

}  // namespace poolgrad::cuda
