// What the kernels of disjoint windows share: what a sum makes of a single value, and codes compared where they lie.
//
// Packed codes are not unpacked: every lane gets a chunk of them as wide as itself and looks at the bits of its own
// output, its field. A tap's number, repeated in every field, turns "is this code the tap" into "has the difference no
// bit in my field".
//
// 0 + value differs from value for -0 and signalling NaN only. For f32 and f64 the addition is one instruction; for the
// halves it would be six, so kernels write the bits as they are while a SumWatch looks on, and once more if it fired.
#if defined(POOLGRAD_CPU_BACKWARD_FIELDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_FIELDS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_FIELDS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_FIELDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/backward/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
inline constexpr bool kIsHalfType = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

// What the sum of one value is: 0 + value, rounded back. T: the element type, or for unpool the integer of its size.
template <class T, class D>
HWY_INLINE hn::Vec<D> AsSum(D d, hn::Vec<D> bits) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const hn::RebindToFloat<D> df;
    return hn::BitCast(d, hn::Add(hn::BitCast(df, bits), hn::Zero(df)));
  } else if constexpr (kIsHalfType<T>) {
    return HalfAsSum<T>(d, bits);
  } else {
    (void)d;
    return bits;
  }
}

// The bits of dx where the code of an output is `code`.
template <class T, class Bits>
HWY_INLINE Bits Chosen(Bits value, Bits code, int64_t tap) {
  const hn::CappedTag<Bits, 1> d;
  return code == static_cast<Bits>(tap) ? hn::GetLane(AsSum<T>(d, hn::Set(d, value))) : Bits{0};
}

// How a kernel takes the values of dy: as they are; the same, and watched; or made what a sum makes of them.
enum class Values { kPlain, kWatched, kSums };

// How it takes them first.
template <class T>
inline constexpr Values kFirstValues = kIsHalfType<T> ? Values::kWatched : Values::kSums;

// Whether a half was seen that a sum would change. Quiet NaNs fire as well; that costs time only.
template <class T, class D>
class SumWatch {
  using DI = hn::RebindToSigned<D>;

 public:
  HWY_INLINE SumWatch() : least_(hn::Zero(DI())), doubled_(hn::Zero(D())) {}

  HWY_INLINE void See(hn::Vec<D> bits) {
    least_ = hn::Min(least_, hn::BitCast(DI(), bits));
    doubled_ = hn::Max(doubled_, hn::Add(bits, bits));
  }

  HWY_INLINE bool Fired() const {
    constexpr uint16_t kInfinity = std::is_same_v<T, BF16> ? 0x7F80 : 0x7C00;
    const auto minus_zero = hn::Eq(least_, hn::Set(DI(), std::numeric_limits<int16_t>::min()));
    const auto nan = hn::Gt(doubled_, hn::Set(D(), static_cast<uint16_t>(2 * kInfinity)));
    return !hn::AllFalse(DI(), minus_zero) || !hn::AllFalse(D(), nan);
  }

 private:
  hn::Vec<DI> least_;
  hn::Vec<D> doubled_;
};

// A vector of dy. `watch` is looked at for halves only.
template <class T, Values kValues, class D, class Watched>
HWY_INLINE hn::Vec<D> LoadValues(D d, const hn::TFromD<D>* from, Watched& watch) {
  const auto bits = hn::LoadU(d, from);
  if constexpr (kValues == Values::kWatched) watch.See(bits);
  if constexpr (kValues == Values::kSums) return AsSum<T>(d, bits);
  (void)watch;
  return bits;
}

// What takes the place of a SumWatch where there is nothing to watch for.
struct NoWatch {
  static constexpr bool Fired() { return false; }
};

template <class T, class D>
using WatchOf = std::conditional_t<kIsHalfType<T>, SumWatch<T, D>, NoWatch>;

// How a vector of dx leaves: to the caches, or (x86) past them straight to memory. Elsewhere the core does that by itself.
enum class Way { kCached, kPast };

template <Way kWay, class D>
HWY_INLINE void Put(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
  if constexpr (kWay == Way::kPast) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// 1 in every field of a word of 64 bits.
constexpr uint64_t OneInEveryField(int64_t bits) { return ~uint64_t{0} / ((uint64_t{1} << bits) - 1); }

// The lanes of `difference` that have a bit of `fields` become 0 in `v`. (TestBit is defined for single bits only, but
// is CMTST on Arm.)
template <class D>
HWY_INLINE hn::Vec<D> ZeroWhereDifferent(D d, hn::Vec<D> difference, hn::Vec<D> fields, hn::Vec<D> v) {
#if HWY_TARGET == HWY_NEON
  (void)d;
  return hn::IfThenZeroElse(hn::TestBit(difference, fields), v);
#else
  return hn::IfThenElseZero(hn::Eq(hn::And(difference, fields), hn::Zero(d)), v);
#endif
}

// An unsigned integer of kBytes bytes of codes, or of as many as it has.
template <class Word, int64_t kBytes>
HWY_INLINE Word LoadWord(const uint8_t* codes) {
  Word word = 0;
  std::memcpy(&word, codes, kBytes < static_cast<int64_t>(sizeof(Word)) ? kBytes : sizeof(Word));
  return word;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_FIELDS_INL_H_
