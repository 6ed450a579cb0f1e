// How values are ordered in vectors: the lanes that kernels compare, and what tells them that a fast comparison is not
// enough.
//
// Kernels run `later > best` on keys: the value itself, or for the halves (their bits as int16_t) an order-preserving
// integer. On ordinary data every NaN rule of spec/rules.h agrees with that. On special values they differ, so a Watch
// looks out for them, and what it flags is computed again by exact-inl.h:
//   floats   NaN and infinities. On Arm a maximum instruction passes NaN on, so looking at winners is enough; but it
//            takes +0 for greater than -0, so a winner of +0 asks whether there is a -0 among the inputs. On x86 the
//            maximum instruction is exactly `later > best ? later : best`, and every input is summed: the sum is not
//            finite if one of them is not. WebAssembly has both; which one is a single instruction depends on the
//            processor below. POOLGRAD_WASM_PASSES_NAN takes the one that Arm has.
//   halves   NaN, -inf, and -0, which is the one value whose key is out of order. With POOLGRAD_HALVES_BY_FMAX they are
//            compared as they are, by the instructions that Arm has for f16, and watched like floats. bf16 too: sign
//            and magnitude are ordered alike in both, but for magnitudes that are NaN in f16 (2^121 and more in bf16),
//            which are special here.
//   integers nothing
//   bits     of floats that are not negative are ordered like unsigned integers, zeros and infinity included. A
//            negative value, a -0 or a NaN is greater than all of them, so looking at winners is enough. What is
//            flagged is not computed by exact-inl.h: the kernel gives up, and the one for all values takes its place
//            (spec/kernel.h, Shortcut).
// False alarms (a sum that overflows) cost time, not correctness.

// Per-target include guard
#if defined(POOLGRAD_CPU_ORDER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_ORDER_INL_H_
#undef POOLGRAD_CPU_ORDER_INL_H_
#else
#define POOLGRAD_CPU_ORDER_INL_H_
#endif

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/problem.h"
#ifdef POOLGRAD_HALVES_BY_FMAX
#include "cpu/simd/half_fmax-inl.h"
#endif

// For the lambdas of inner loops: what they capture by reference has to stay in registers, so they must be inlined.
#ifndef POOLGRAD_LAMBDA
#define POOLGRAD_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

// For loops over a few vectors: they must become registers even where the compiler is asked for small code.
#ifndef POOLGRAD_UNROLL
#define POOLGRAD_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// S is how an element is held: float, double, int16_t (the bits of either half), int8_t (u8 too) or int32_t; or, where
// no value is negative, uint32_t and uint16_t: the bits of f32 and of the halves.
template <class S>
inline constexpr bool kIsFloat = std::is_floating_point_v<S>;
template <class S>
inline constexpr bool kIsHalf = std::is_same_v<S, int16_t>;
template <class S>
inline constexpr bool kIsBits = std::is_same_v<S, uint32_t> || std::is_same_v<S, uint16_t>;
template <class S>
inline constexpr bool kIsByte = std::is_same_v<S, int8_t>;
template <class S>
inline constexpr bool kIsInt = !kIsFloat<S> && !kIsHalf<S>;  // bits too

#ifdef POOLGRAD_HALVES_BY_FMAX
template <class S>
inline constexpr bool kByFmax = kIsHalf<S>;
#else
template <class S>
inline constexpr bool kByFmax = false;
#endif
template <class S>
inline constexpr bool kHasKeys = kIsHalf<S> && !kByFmax<S>;  // others are their own

// Whether loops over two and five sources have forms of their own beside those over three and over any number: for the
// types and instruction sets of most people who measure.
template <class S>
inline constexpr bool kManyForms = (std::is_same_v<S, float> || kIsHalf<S>)&&(HWY_TARGET == HWY_AVX3 ||
                                                                              HWY_TARGET == HWY_NEON);

template <class S>
using Code = hwy::MakeUnsigned<S>;  // a tap's number beside a value, in lanes of the same width
template <class S>
using VecOf = hn::Vec<hn::ScalableTag<S>>;
template <class S>
using CodeVec = hn::Vec<hn::ScalableTag<Code<S>>>;

template <class S>
HWY_INLINE int64_t LaneCount() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<S>()));
}

// The key of a value, and back: its own inverse. For a negative half the magnitude's order is turned around.
template <class S>
HWY_INLINE VecOf<S> Key(VecOf<S> raw) {
  if constexpr (kHasKeys<S>) {
    const auto sign = hn::Set(hn::ScalableTag<S>(), std::numeric_limits<S>::min());
#if HWY_TARGET == HWY_NEON
    return hn::IfVecThenElse(sign, raw, hn::Abs(raw));  // a bitwise select there
#else
    return hn::OrAnd(hn::Abs(raw), raw, sign);
#endif
  } else {
    return raw;
  }
}

// The key that no ordinary value is below: what padding holds.
template <class S>
inline S LowestKey() {
  if constexpr (kIsFloat<S>) {
    return -std::numeric_limits<S>::infinity();
  } else if constexpr (kByFmax<S>) {
    return static_cast<S>(0xFC00);  // -inf in f16
  } else {
    return std::numeric_limits<S>::min();
  }
}

// The bits of y where a window has no winner.
template <class S>
inline S LowestRaw(poolgrad_dtype dtype) {
  if constexpr (kIsHalf<S>) {
    return static_cast<S>(dtype == POOLGRAD_BF16 ? 0xFF80 : 0xFC00);
  } else {
    return LowestKey<S>();
  }
}

#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
inline constexpr bool kMaxPassesNan = true;
HWY_INLINE VecOf<float> Greater(VecOf<float> later, VecOf<float> best) {
  return VecOf<float>(vmaxq_f32(later.raw, best.raw));  // Highway's Max is the instruction that drops NaN
}
HWY_INLINE VecOf<double> Greater(VecOf<double> later, VecOf<double> best) {
  return VecOf<double>(vmaxq_f64(later.raw, best.raw));
}
#elif HWY_TARGET == HWY_WASM && defined(POOLGRAD_WASM_PASSES_NAN)
inline constexpr bool kMaxPassesNan = true;
HWY_INLINE VecOf<float> Greater(VecOf<float> later, VecOf<float> best) {
  return VecOf<float>(wasm_f32x4_max(later.raw, best.raw));
}
HWY_INLINE VecOf<double> Greater(VecOf<double> later, VecOf<double> best) {
  return VecOf<double>(wasm_f64x2_max(later.raw, best.raw));
}
#else
inline constexpr bool kMaxPassesNan = false;
template <class V>
HWY_INLINE V Greater(V later, V best) {
#if HWY_ARCH_X86
  return hn::Max(later, best);
#elif HWY_TARGET == HWY_WASM
  if constexpr (std::is_same_v<V, VecOf<float>>) {
    return V(wasm_f32x4_pmax(best.raw, later.raw));  // best < later ? later : best
  } else {
    return V(wasm_f64x2_pmax(best.raw, later.raw));
  }
#else
  return hn::IfThenElse(hn::Gt(later, best), later, best);
#endif
}
#endif

// The greater of two keys: `best` where they tie, but for zeros.
template <class S, class V>
HWY_INLINE V Greatest(V later, V best) {
  if constexpr (kIsFloat<S>) {
    return Greater(later, best);
  } else if constexpr (kByFmax<S>) {
    return HalfFmax(later, best);
  } else {
    return hn::Max(best, later);
  }
}

// Where `later` is greater than `best`.
template <class S>
HWY_INLINE hn::Mask<hn::ScalableTag<S>> Above(VecOf<S> later, VecOf<S> best) {
  if constexpr (kByFmax<S>) {
    return HalfAbove(later, best);
  } else {
    return hn::Gt(later, best);
  }
}

// The bits of +inf.
template <class S>
inline S InfinityBits(bool bf16) {
  return sizeof(S) == 4 ? static_cast<S>(0x7F800000) : static_cast<S>(bf16 ? 0x7F80 : 0x7C00);
}

// Looks at loaded keys (See) and at the keys that reach y (SeeWinner); Fired says whether a special value was among
// them, or a zero that is only special if there is a -0 among the inputs.
template <class S>
class Watch {
 public:
  static constexpr bool kWinnersOnly = (kIsFloat<S> && kMaxPassesNan) || kByFmax<S>;

  HWY_INLINE explicit Watch(const Problem& p) : bf16_(p.dtype == POOLGRAD_BF16), rectifies_(p.relu && !p.bias) {
    seen0_ = seen1_ = seen2_ = seen3_ = winner0_ = winner1_ = hn::Zero(hn::ScalableTag<S>());
    least0_ = least1_ = hn::Set(hn::ScalableTag<Code<S>>(), static_cast<Code<S>>(~Code<S>{0}));
    if constexpr (kIsByte<S>)
      seen0_ = hn::Set(hn::ScalableTag<S>(), p.dtype == POOLGRAD_U8 ? std::numeric_limits<S>::min() : S{0});
    const hn::ScalableTag<S> d;
    floor_ = rectifies_ ? KeyOf(hn::Zero(d)) : hn::Set(d, LowestKey<S>());
  }

  // Key<S>, for types that differ only in their keys: i8 and u8, whose order is i8's with the sign bit turned around.
  HWY_INLINE VecOf<S> KeyOf(VecOf<S> raw) const {
    if constexpr (kIsByte<S>) return hn::Xor(raw, seen0_);
    return Key<S>(raw);
  }

  // What a winner is in y: with relu at least +0, which the greater of two zeros is as well. What is not above it has
  // no route: all ones in its lane. A bias comes later, and relu after it (forward/rectify.cc).
  HWY_INLINE VecOf<S> ToY(VecOf<S> key) const { return KeyOf(Greatest<S>(key, floor_)); }
  HWY_INLINE bool rectifies() const { return rectifies_; }
  HWY_INLINE CodeVec<S> Dropped(VecOf<S> key) const {
    const hn::ScalableTag<Code<S>> du;
    return hn::IfThenZeroElse(hn::RebindMask(du, Above<S>(key, floor_)),
                              hn::Set(du, static_cast<Code<S>>(~Code<S>{0})));
  }

  // Member by member, and no arrays: only such copies does GCC keep in registers.
  HWY_INLINE Watch(const Watch& other) { *this = other; }
  HWY_INLINE Watch& operator=(const Watch& other) {
    bf16_ = other.bf16_;
    rectifies_ = other.rectifies_;
    floor_ = other.floor_;
    seen0_ = other.seen0_;
    seen1_ = other.seen1_;
    seen2_ = other.seen2_;
    seen3_ = other.seen3_;
    winner0_ = other.winner0_;
    winner1_ = other.winner1_;
    least0_ = other.least0_;
    least1_ = other.least1_;
    return *this;
  }

  // Independent chains, four here and two below, so that none is longer than the work around it.
  template <int kChain = 0>
  HWY_INLINE void See(VecOf<S> key) {
    if constexpr (kChain % 4 == 0) seen0_ = With(seen0_, key);
    if constexpr (kChain % 4 == 1) seen1_ = With(seen1_, key);
    if constexpr (kChain % 4 == 2) seen2_ = With(seen2_, key);
    if constexpr (kChain % 4 == 3) seen3_ = With(seen3_, key);
  }

  // A float that may be lost before it reaches y, on targets where looking at winners is usually enough.
  HWY_INLINE void SeeInput(VecOf<S> key) { seen0_ = hn::Add(seen0_, key); }

  // As if a special value had been seen.
  HWY_INLINE void Fire() {
    const hn::ScalableTag<S> d;
    if constexpr (kIsFloat<S>) {
      SeeInput(hn::Set(d, std::numeric_limits<S>::quiet_NaN()));
    } else {
      See(hn::Set(d, LowestKey<S>()));
    }
  }

  template <int kChain = 0>
  HWY_INLINE void SeeWinner(VecOf<S> key) {
    if constexpr (kChain % 2 == 0) winner0_ = WithWinner(winner0_, key);
    if constexpr (kChain % 2 == 1) winner1_ = WithWinner(winner1_, key);
    if constexpr (kWinnersOnly) SeeLeast<kChain>(key);
    if constexpr (kByFmax<S>) SeeMost<kChain>(key);
  }

  // In place of SeeWinner, for kernels that do not compare taps in order: zeros of different sign tie, and their order
  // matters.
  template <int kChain = 0>
  HWY_INLINE void SeeUnordered(VecOf<S> key) {
    SeeWinner<kChain>(key);
    if constexpr (kIsFloat<S> && !kWinnersOnly) SeeLeast<kChain>(hn::Abs(key));
  }

  // The first n lanes only.
  HWY_INLINE void SeeWinner(VecOf<S> key, int64_t n) {
    const hn::ScalableTag<S> d;
    SeeWinner(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), key, hn::Set(d, S{1})));
  }

  HWY_INLINE bool Fired() const {
    const hn::ScalableTag<S> d;
    if constexpr (kIsFloat<S>) {
      const auto zero = hn::Zero(d);
      const auto sum = kWinnersOnly ? hn::Add(hn::Add(winner0_, winner1_), seen0_)
                                    : hn::Add(hn::Add(seen0_, seen1_), hn::Add(seen2_, seen3_));
      if (!hn::AllTrue(d, hn::Eq(hn::Mul(sum, zero), zero))) return true;
      const hn::ScalableTag<Code<S>> du;
      return !hn::AllFalse(du, hn::Eq(hn::Min(least0_, least1_), hn::Zero(du)));
    } else if constexpr (kByFmax<S>) {
      const hn::ScalableTag<Code<S>> du;
      const auto high = hn::Gt(hn::Max(winner0_, winner1_), hn::Set(d, S{0x7C00}));
      const auto low = hn::Gt(hn::Max(hn::BitCast(du, seen0_), hn::BitCast(du, seen1_)), hn::Set(du, Code<S>{0xFBFF}));
      if (!hn::AllFalse(d, high) || !hn::AllFalse(du, low)) return true;
      return !hn::AllFalse(du, hn::Eq(hn::Min(least0_, least1_), hn::Zero(du)));
    } else if constexpr (kIsHalf<S>) {
      const auto least = hn::Min(hn::Min(seen0_, seen1_), hn::Min(seen2_, seen3_));
      const S infinity = InfinityBits<S>(bf16_);
      const auto low = hn::Gt(least, hn::Set(d, static_cast<S>(-infinity)));
      const auto high = hn::Gt(hn::Max(winner0_, winner1_), hn::Set(d, infinity));
      return !hn::AllTrue(d, low) || !hn::AllFalse(d, high);
    } else if constexpr (kIsBits<S>) {
      const auto high = hn::Gt(hn::Max(winner0_, winner1_), hn::Set(d, InfinityBits<S>(bf16_)));
      return !hn::AllFalse(d, high);
    } else {
      return false;
    }
  }

 private:
  static HWY_INLINE VecOf<S> With(VecOf<S> seen, VecOf<S> key) {
    if constexpr (kIsFloat<S> && !kWinnersOnly) return hn::Add(seen, key);
    if constexpr (kHasKeys<S>) return hn::Min(seen, key);
    return seen;
  }
  static HWY_INLINE VecOf<S> WithWinner(VecOf<S> winner, VecOf<S> key) {
    if constexpr (kIsHalf<S> || kIsBits<S>) return hn::Max(winner, key);
    if constexpr (kIsFloat<S> && kWinnersOnly) return hn::Add(winner, key);
    return winner;
  }
  template <int kChain>
  HWY_INLINE void SeeLeast(VecOf<S> key) {
    const auto bits = hn::BitCast(hn::ScalableTag<Code<S>>(), key);
    if constexpr (kChain % 2 == 0) least0_ = hn::Min(least0_, bits);
    if constexpr (kChain % 2 == 1) least1_ = hn::Min(least1_, bits);
  }

  // The negative key of greatest magnitude: -inf and below that are special.
  template <int kChain>
  HWY_INLINE void SeeMost(VecOf<S> key) {
    const hn::ScalableTag<S> d;
    const hn::ScalableTag<Code<S>> du;
    const auto bits = hn::BitCast(du, key);
    if constexpr (kChain % 2 == 0) seen0_ = hn::BitCast(d, hn::Max(hn::BitCast(du, seen0_), bits));
    if constexpr (kChain % 2 == 1) seen1_ = hn::BitCast(d, hn::Max(hn::BitCast(du, seen1_), bits));
  }

  bool bf16_, rectifies_;
  VecOf<S> floor_;
  VecOf<S> seen0_, seen1_, seen2_, seen3_;
  VecOf<S> winner0_, winner1_;
  CodeVec<S> least0_, least1_;
};

// Whether one of n values has the bits of a special one: -0, NaN, an infinity. Only asked after an alarm.
template <class S>
HWY_NOINLINE bool HasSpecial(const S* values, int64_t n, [[maybe_unused]] poolgrad_dtype dtype) {
  if constexpr (kIsFloat<S> || kIsHalf<S>) {
    const hn::ScalableTag<S> d;
    const hn::ScalableTag<Code<S>> du;
    const hn::RebindToSigned<decltype(du)> di;
    const auto zero = hn::Zero(d);
    const int64_t lanes = LaneCount<S>();
    // Sums of floats, of which none is finite if one of them is not; of halves twice the greatest magnitude. And the
    // least, as integers. Four chains: rectifiers make so many zeros that behind them every row is looked at.
    VecOf<S> far[4] = {zero, zero, zero, zero};
    hn::Vec<decltype(di)> least[4] = {hn::Zero(di), hn::Zero(di), hn::Zero(di), hn::Zero(di)};
    const auto greatest = [&](VecOf<S> a, VecOf<S> b) POOLGRAD_LAMBDA {
      if constexpr (kIsFloat<S>) return hn::Add(a, b);
      return hn::BitCast(d, hn::Max(hn::BitCast(du, a), hn::BitCast(du, b)));
    };
    const auto see = [&](VecOf<S> v, int c) POOLGRAD_LAMBDA {
      if constexpr (kIsFloat<S>) far[c] = hn::Add(far[c], v);
      if constexpr (kIsHalf<S>) far[c] = greatest(far[c], hn::BitCast(d, hn::ShiftLeft<1>(hn::BitCast(du, v))));
      least[c] = hn::Min(least[c], hn::BitCast(di, v));
    };
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      POOLGRAD_UNROLL for (int c = 0; c < 4; ++c) see(hn::LoadU(d, values + i + c * lanes), c);
    }
    for (; i < n; i += lanes) see(LoadFirst(d, values + i, n - i), 0);
    const auto all = greatest(greatest(far[0], far[1]), greatest(far[2], far[3]));
    const auto least_all = hn::Min(hn::Min(least[0], least[1]), hn::Min(least[2], least[3]));
    const auto minus_zero = hn::Set(di, std::numeric_limits<hn::TFromD<decltype(di)>>::min());
    if (!hn::AllFalse(di, hn::Eq(least_all, minus_zero))) return true;
    if constexpr (kIsFloat<S>) return !hn::AllTrue(d, hn::Eq(hn::Mul(all, zero), zero));
    const auto twice = static_cast<Code<S>>(2 * InfinityBits<S>(dtype == POOLGRAD_BF16 && !kByFmax<S>));
    return !hn::AllTrue(du, hn::Lt(hn::BitCast(du, all), hn::Set(du, twice)));
  } else {
    return kIsBits<S>;  // in any case the kernel gives up
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
