// Registers of values and how they are compared. A pack is one 32-bit register: a float, or two halves side by side, compared
// and selected together with one mask, each with its own tap number.
//
// `Greater` is the plain IEEE comparison: right as long as no value is NaN. The kernels watch for NaN (`Watch`) and for windows
// of nothing but -inf, and leave those to exact.cuh.
#pragma once

#include "cuda/device.cuh"

namespace poolgrad::cuda {

template <class T>
struct Pack;

template <>
struct Pack<float> {
  using Reg = float;
  using Mask = bool;
  static constexpr int kElements = 1;

  __device__ static Reg Fill() { return __int_as_float(0xFF800000); }  // -inf
  __device__ static Reg FromBits(uint32_t bits) { return __uint_as_float(bits); }
  __device__ static uint32_t ToBits(Reg v) { return __float_as_uint(v); }
  __device__ static Mask Greater(Reg a, Reg b) { return a > b; }
  __device__ static Reg Choose(Mask m, Reg a, Reg b) { return m ? a : b; }
  __device__ static uint32_t ChooseTap(Mask m, uint32_t a, uint32_t b) { return m ? a : b; }
  __device__ static constexpr uint32_t Tap(uint32_t t) { return t; }
  // Turns NaN when v is, and stays so.
  __device__ static Reg Watch(Reg seen, Reg v) {
#if __CUDA_ARCH__ >= 800
    float out;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(seen), "f"(v));
    return out;
#else
    return v != v ? v : seen;
#endif
  }
  __device__ static Reg Lower(Reg a, Reg b) { return fminf(a, b); }
  __device__ static bool Exceptional(Reg watched, Reg lowest) { return watched != watched || lowest == Fill(); }
  // The codes of this pack's elements, `bits` each.
  template <int kBits>
  __device__ static uint32_t Codes(uint32_t taps) {
    return taps;
  }
};

// What differs between the two half types.
struct HalfOps {
  using Two = __half2;
  static constexpr uint32_t kLowest = 0xFC00FC00u;
};
struct BfloatOps {
  using Two = __nv_bfloat162;
  static constexpr uint32_t kLowest = 0xFF80FF80u;
};

template <class Ops>
struct PackOfTwo {
  using Reg = uint32_t;
  using Mask = uint32_t;
  using Two = typename Ops::Two;
  static constexpr int kElements = 2;

  __device__ static Two AsTwo(Reg v) {
    Two two;
    static_assert(sizeof(two) == 4);
    memcpy(&two, &v, 4);
    return two;
  }
  __device__ static Reg AsReg(Two two) {
    Reg v;
    memcpy(&v, &two, 4);
    return v;
  }
  __device__ static Reg Fill() { return Ops::kLowest; }
  __device__ static Reg FromBits(uint32_t bits) { return bits; }
  __device__ static uint32_t ToBits(Reg v) { return v; }
  __device__ static Mask Greater(Reg a, Reg b) { return __hgt2_mask(AsTwo(a), AsTwo(b)); }
  __device__ static Reg Choose(Mask m, Reg a, Reg b) { return (a & m) | (b & ~m); }
  __device__ static uint32_t ChooseTap(Mask m, uint32_t a, uint32_t b) { return (a & m) | (b & ~m); }
  __device__ static constexpr uint32_t Tap(uint32_t t) { return t * 0x10001u; }
  __device__ static Reg Watch(Reg seen, Reg v) { return AsReg(__hmax2_nan(AsTwo(seen), AsTwo(v))); }
  __device__ static Reg Lower(Reg a, Reg b) { return AsReg(__hmin2(AsTwo(a), AsTwo(b))); }
  __device__ static bool Exceptional(Reg watched, Reg lowest) {
    const uint32_t magnitude_low = watched & 0x7FFFu, magnitude_high = watched >> 16 & 0x7FFFu;
    const uint32_t infinite = Ops::kLowest & 0x7FFFu;
    return magnitude_low > infinite || magnitude_high > infinite || (lowest & 0xFFFFu) == (Ops::kLowest & 0xFFFFu) ||
           lowest >> 16 == Ops::kLowest >> 16;
  }
  template <int kBits>
  __device__ static uint32_t Codes(uint32_t taps) {
    return (taps | taps >> (16 - kBits)) & ((1u << (2 * kBits)) - 1u);
  }
};
template <>
struct Pack<__half> : PackOfTwo<HalfOps> {};
template <>
struct Pack<__nv_bfloat16> : PackOfTwo<BfloatOps> {};

// ---- loads and stores of whole registers ----

template <bool kShared, class V>
__device__ V LoadWhole(const void* at) {
  if constexpr (kShared) {
    return *static_cast<const V*>(at);
  } else {
    return __ldg(static_cast<const V*>(at));
  }
}

// `kBytes` consecutive bytes, aligned to their size (16 at most), as 32-bit words.
template <bool kShared, int kBytes>
__device__ void LoadWords(const void* at, uint32_t* words) {
  if constexpr (kBytes % 16 == 0) {
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = LoadWhole<kShared, uint4>(static_cast<const uint4*>(at) + i);
      words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 v = LoadWhole<kShared, uint2>(at);
    words[0] = v.x, words[1] = v.y;
  } else if constexpr (kBytes == 4) {
    words[0] = LoadWhole<kShared, uint32_t>(at);
  } else if constexpr (kBytes == 2) {
    words[0] = LoadWhole<kShared, uint16_t>(at);
  } else {
    static_assert(kBytes == 1);
    words[0] = LoadWhole<kShared, uint8_t>(at);
  }
}

template <int kBytes>
__device__ void StoreWords(void* at, const uint32_t* words) {
  if constexpr (kBytes % 16 == 0) {
    for (int i = 0; i < kBytes / 16; ++i) {
      static_cast<uint4*>(at)[i] = make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    }
  } else if constexpr (kBytes == 8) {
    *static_cast<uint2*>(at) = make_uint2(words[0], words[1]);
  } else if constexpr (kBytes == 4) {
    *static_cast<uint32_t*>(at) = words[0];
  } else if constexpr (kBytes == 2) {
    *static_cast<uint16_t*>(at) = static_cast<uint16_t>(words[0]);
  } else {
    static_assert(kBytes == 1);
    *static_cast<uint8_t*>(at) = static_cast<uint8_t>(words[0]);
  }
}

// The same; streamed: for results that nobody reads soon.
template <bool kStreamed, int kBytes>
__device__ void StoreResult(void* at, const uint32_t* words) {
  if constexpr (kStreamed && kBytes == 16) {
    __stcs(static_cast<uint4*>(at), make_uint4(words[0], words[1], words[2], words[3]));
  } else {
    StoreWords<kBytes>(at, words);
  }
}

// One element as the low bits of a word.
template <class T, bool kShared>
__device__ uint32_t LoadElement(const T* at) {
  if constexpr (sizeof(T) == 2) {
    return LoadWhole<kShared, uint16_t>(at);
  } else {
    return LoadWhole<kShared, uint32_t>(at);
  }
}

template <class T>
__device__ void StoreElement(T* at, uint32_t bits) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(bits);
  } else {
    *reinterpret_cast<uint32_t*>(at) = bits;
  }
}

}  // namespace poolgrad::cuda
