// Registers of values and how they are compared. A pack is one 32-bit register: a float, or two halves side by side,
// compared and selected together with one mask, each with its own tap number.
//
// `Greater` is the plain IEEE comparison: right as long as no value is NaN. The kernels watch for NaN (`Watch`) and for
// windows of nothing but -inf, and leave those to exact.cuh.
#pragma once

#include "cuda/common/geo.cuh"
#include "cuda/common/ptx.cuh"

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
  __device__ static Reg Watch(Reg seen, Reg v) { return EitherOrNaN(seen, v); }
  __device__ static Reg Lower(Reg a, Reg b) { return fminf(a, b); }
  // The greater, but of zeros either one: where what is not above 0 is forgotten.
  __device__ static Reg Max(Reg a, Reg b) { return fmaxf(a, b); }
  __device__ static bool Watched(Reg watched) { return watched != watched; }
  __device__ static bool Exceptional(Reg watched, Reg lowest) { return Watched(watched) || lowest == Fill(); }
  __device__ static Reg Zero() { return 0; }
  __device__ static bool Lowest(Reg v) { return v == Fill(); }
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
  static constexpr uint32_t kShift = 0;  // what turns stored bytes into those that are compared

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
  __device__ static Reg Max(Reg a, Reg b) { return AsReg(__hmax2(AsTwo(a), AsTwo(b))); }
  __device__ static bool Watched(Reg watched) {
    const uint32_t infinite = Ops::kLowest & 0x7FFFu;
    return (watched & 0x7FFFu) > infinite || (watched >> 16 & 0x7FFFu) > infinite;
  }
  __device__ static bool Exceptional(Reg watched, Reg lowest) {
    return Watched(watched) || (lowest & 0xFFFFu) == (Ops::kLowest & 0xFFFFu) || lowest >> 16 == Ops::kLowest >> 16;
  }
  __device__ static Reg Zero() { return 0; }
  // Whether one of the two is -inf.
  __device__ static bool Lowest(Reg v) {
    return (v & 0xFFFFu) == (Ops::kLowest & 0xFFFFu) || v >> 16 == Ops::kLowest >> 16;
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

template <>
struct Pack<double> {
  using Reg = double;
  using Mask = bool;
  static constexpr int kElements = 1;

  __device__ static Reg Fill() { return __longlong_as_double(0xFFF0000000000000ll); }
  __device__ static Mask Greater(Reg a, Reg b) { return a > b; }
  __device__ static Reg Choose(Mask m, Reg a, Reg b) { return m ? a : b; }
  __device__ static uint32_t ChooseTap(Mask m, uint32_t a, uint32_t b) { return m ? a : b; }
  __device__ static constexpr uint32_t Tap(uint32_t t) { return t; }
  __device__ static Reg Zero() { return 0; }
  __device__ static Reg Watch(Reg seen, Reg v) { return v != v ? v : seen; }
  __device__ static bool Watched(Reg watched) { return watched != watched; }
  __device__ static bool Lowest(Reg v) { return v == Fill(); }
};

template <>
struct Pack<int32_t> {
  using Reg = int32_t;
  using Mask = bool;
  static constexpr int kElements = 1;

  __device__ static Reg Fill() { return INT32_MIN; }
  __device__ static Reg FromBits(uint32_t bits) { return static_cast<int32_t>(bits); }
  __device__ static uint32_t ToBits(Reg v) { return static_cast<uint32_t>(v); }
  __device__ static Mask Greater(Reg a, Reg b) { return a > b; }
  __device__ static Reg Choose(Mask m, Reg a, Reg b) { return m ? a : b; }
  __device__ static uint32_t ChooseTap(Mask m, uint32_t a, uint32_t b) { return m ? a : b; }
  __device__ static constexpr uint32_t Tap(uint32_t t) { return t; }
  __device__ static Reg Zero() { return 0; }
  __device__ static Reg Watch(Reg seen, Reg) { return seen; }
  __device__ static bool Watched(Reg) { return false; }
  __device__ static bool Lowest(Reg v) { return v == Fill(); }
};

// Bytes, two side by side, each as the half of value 1024 + byte (moved up by 128 when signed), which are in the same
// order. No byte is as low as -inf, so what a window starts from never wins.
struct PackOfBytes : PackOfTwo<HalfOps> {
  __device__ static Reg Watch(Reg seen, Reg) { return seen; }
  __device__ static bool Watched(Reg) { return false; }
  __device__ static bool Lowest(Reg) { return false; }
};
template <>
struct Pack<uint8_t> : PackOfBytes {};
template <>
struct Pack<int8_t> : PackOfBytes {
  static constexpr uint32_t kShift = 0x80808080u;
};

// ---- route codes in pairs ----

// Two codes side by side as halves of value 1024 + code: one instruction compares both with a tap.
inline constexpr uint32_t kCodeBias = 0x64006400u;

// Where the first code of `pair` is `tap`, `a` gets `from_a` added; where the second is, `b` gets `from_b`.
__device__ inline void AddWhere(uint32_t pair, uint32_t tap, float from_a, float from_b, float* a, float* b) {
  AddWhereEqual<true>(pair, kCodeBias + tap * 0x10001u, from_a, from_b, a, b);
}
// The same for one of them, the second or the first.
__device__ inline void AddWhereOne(uint32_t pair, uint32_t tap, bool second, float from, float* to) {
  AddWhereOneEquals(pair, kCodeBias + tap * 0x10001u, second, from, to);
}

// The codes of neighbouring channels, 4 or 8 bits each in one word, as pairs.
template <int kBits, int kChannels>
struct ChannelCodes {
  static_assert((kBits == 4 && (kChannels == 4 || kChannels == 8)) || (kBits == 8 && kChannels == 4));
  static constexpr int kPairs = kChannels / 2;
  __device__ static constexpr int First(int pair) { return kBits == 8 ? 2 * pair : pair; }
  __device__ static constexpr int Second(int pair) { return kBits == 8 ? 2 * pair + 1 : pair + kPairs; }

  __device__ static void Unpack(uint32_t word, uint32_t (&pairs)[kPairs]) {
    if constexpr (kBits == 8) {
      pairs[0] = __byte_perm(word, kCodeBias, 0x5150);
      pairs[1] = __byte_perm(word, kCodeBias, 0x5352);
    } else {
      if constexpr (kChannels == 4) word = __byte_perm(word, 0, 0x4140);  // the upper two to the upper half
#pragma unroll
      for (int i = 0; i < kPairs; ++i) pairs[i] = (word >> (4 * i) & 0x000F000Fu) | kCodeBias;
    }
  }
};

// ---- loads and stores of whole registers ----

// 16 aligned bytes of global memory that no kernel is writing.
__device__ inline void LoadVector(const void* at, uint32_t (&words)[4]) {
  const uint4 v = __ldg(static_cast<const uint4*>(at));
  words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

// So many bytes as a vector.
template <int kBytes>
using VectorOf =
    std::conditional_t<kBytes == 16, uint4,
                       std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>>;

// The same of 2 to 16; of two, the upper half of the word is 0.
template <int kBytes, int kWords>
__device__ void LoadVector(const void* at, uint32_t (&words)[kWords]) {
  const auto v = __ldg(static_cast<const VectorOf<kBytes>*>(at));
  if constexpr (kBytes < 4) words[0] = 0;
  memcpy(words, &v, kBytes);
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

template <class T>
__device__ void StoreElement(T* at, uint32_t bits) {
  if constexpr (sizeof(T) == 1) {
    *reinterpret_cast<uint8_t*>(at) = static_cast<uint8_t>(bits);
  } else if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(bits);
  } else {
    *reinterpret_cast<uint32_t*>(at) = bits;
  }
}

// relu: what is not above 0 becomes +0 without a route (a NaN is left to the exact path).
template <class P, bool kRoutes, int kPacks>
__device__ void Rectify(typename P::Reg (&value)[kPacks], uint32_t (&tap)[kPacks], uint32_t none) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const auto m = P::Greater(value[i], P::Zero());
    value[i] = P::Choose(m, value[i], P::Zero());
    if constexpr (kRoutes) tap[i] = P::ChooseTap(m, tap[i], P::Tap(none));
  }
}

}  // namespace poolgrad::cuda
