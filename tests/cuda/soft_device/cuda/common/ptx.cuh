// What src/cuda/common/ptx.cuh has, in C++: for the device in software. Addresses are checked.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

namespace poolgrad::cuda {

inline float EitherOrNaN(float a, float b) { return b != b ? b : a; }

inline bool SameHalf(uint32_t a, uint32_t b) {
  return __half2float({static_cast<unsigned short>(a)}) == __half2float({static_cast<unsigned short>(b)});
}

template <bool kStays>
void AddWhereEqual(uint32_t pair, uint32_t wanted, float from_a, float from_b, float* a, float* b) {
  if (SameHalf(pair, wanted)) *a += from_a;
  if (SameHalf(pair >> 16, wanted >> 16)) *b += from_b;
}
inline void AddWhereOneEquals(uint32_t pair, uint32_t wanted, bool second, float from, float* to) {
  const int by = second ? 16 : 0;
  if (SameHalf(pair >> by, wanted >> by)) *to += from;
}

// Of less than a word the rest is 0.
template <int kBytes>
void LoadWords(const void* at, uint32_t* words) {
  soft_device::MustAlign(at, kBytes % 16 == 0 ? 16 : kBytes % 8 == 0 ? 8 : kBytes);
  if (kBytes < 4) *words = 0;
  std::memcpy(words, at, kBytes);
}
template <int kBytes>
void LoadWordsIf(bool valid, const void* at, uint32_t* words) {
  if (valid) LoadWords<kBytes>(at, words);
}

template <int kBytes>
void LoadSharedIf(bool valid, uint32_t at, uint32_t* words) {
  if (valid) LoadWords<kBytes>(soft_device::AtShared(at, kBytes), words);
}
template <int kBytes>
void StoreSharedIf(bool valid, uint32_t at, uint32_t bits) {
  if (!valid) return;
  void* to = soft_device::AtShared(at, kBytes);
  soft_device::MustAlign(to, kBytes);
  std::memcpy(to, &bits, kBytes);
}
inline void StoreSharedPairIf(bool valid, uint32_t at, uint32_t first, uint32_t second) {
  if (!valid) return;
  const uint32_t both[] = {first, second};
  void* to = soft_device::AtShared(at, sizeof both);
  soft_device::MustAlign(to, sizeof both);
  std::memcpy(to, both, sizeof both);
}

}  // namespace poolgrad::cuda
