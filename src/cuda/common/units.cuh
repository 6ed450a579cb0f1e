// What a thread of the kernels for any window holds: kV registers of one place, from global memory and back.
//
// A register (a pack) is one element, or two of a small type: two neighbouring channels, or, where those do not lie
// whole and aligned (`kPlanes`), the same place of two planes. Planes are what the spatial axes lie in: samples when
// channels are last, channels of a sample when they are first.
#pragma once

#include "cuda/common/packs.cuh"

namespace poolgrad::cuda {

template <class T, int kV, bool kPlanes>
struct Unit {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr int kElements = P::kElements;
  static constexpr bool kBytes = sizeof(T) == 1;
  static constexpr int kPlaceElements = kPlanes ? 1 : kV * kElements;  // at one place of one plane
  static constexpr int kPlaceBytes = kPlaceElements * static_cast<int>(sizeof(T));
  static constexpr int kRaw = (kPlaceBytes + 3) / 4;
  static_assert(!kPlanes || (kV == 1 && kElements == 2));
  static_assert(kPlanes || kElements == 1 || kV > 1);

  struct Raw {
    uint32_t word[kPlanes ? 2 : kRaw];
  };

  // `second`: elements from a plane to the next, 0 if there is none (which gives the first one twice).
  __device__ static Raw Load(const T* at, int64_t second) {
    Raw raw;
    LoadWords<kPlaceBytes>(at, raw.word);
    if constexpr (kPlanes) LoadWords<kPlaceBytes>(at + second, raw.word + 1);
    return raw;
  }

  __device__ static void Unpack(const Raw& raw, Reg (&to)[kV]) {
    if constexpr (std::is_same_v<T, double>) {
      to[0] = __hiloint2double(static_cast<int>(raw.word[1]), static_cast<int>(raw.word[0]));
    } else if constexpr (kBytes && kPlanes) {
      to[0] = __byte_perm(__byte_perm(raw.word[0], raw.word[1], 0x0040) ^ P::kShift, kCodeBias, 0x5150);
    } else if constexpr (kBytes) {
#pragma unroll
      for (int i = 0; i < kV; ++i) {
        to[i] = __byte_perm(raw.word[i / 2] ^ P::kShift, kCodeBias, i % 2 ? 0x5352 : 0x5150);
      }
    } else if constexpr (kPlanes) {
      to[0] = P::FromBits(__byte_perm(raw.word[0], raw.word[1], 0x5410));
    } else {
#pragma unroll
      for (int i = 0; i < kV; ++i) to[i] = P::FromBits(raw.word[i]);
    }
  }

  // What Load read, back to a place of another array; the second plane's only if there is one.
  __device__ static void Store(T* at, const Reg (&from)[kV], bool second, int64_t plane) {
    if constexpr (std::is_same_v<T, double>) {
      *at = from[0];
    } else if constexpr (kPlanes) {
      const uint32_t bits = kBytes ? from[0] ^ P::kShift : from[0];
      StoreElement(at, bits);
      if (second) StoreElement(at + plane, bits >> 16);
    } else if constexpr (kBytes) {
      uint32_t words[kRaw];
#pragma unroll
      for (int i = 0; i < kRaw; ++i) words[i] = __byte_perm(from[2 * i], from[2 * i + 1], 0x6420) ^ P::kShift;
      StoreWords<kPlaceBytes>(at, words);
    } else {
      uint32_t words[kV];
#pragma unroll
      for (int i = 0; i < kV; ++i) words[i] = P::ToBits(from[i]);
      StoreWords<kPlaceBytes>(at, words);
    }
  }
};

}  // namespace poolgrad::cuda
