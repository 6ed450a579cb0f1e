// fwd_cf_average_planes: averages of whole planes, the last layer of many networks. A lane is a plane: 16 bytes of each
// are loaded, turned over and added, one element after the other, so that the order of a sum is the row-major one and
// every input is read once. fwd_average, which goes through scratch, takes 1.3 to 4 times as long.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/simd/transpose-inl.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Blocks of 16 bytes, `apart` bytes from one to the next.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const uint8_t* from, int64_t apart) {
  constexpr int64_t kBlocks = hn::MaxLanes(d) * sizeof(hn::TFromD<D>) / 16;
  if constexpr (kBlocks == 1) {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadBlocks(half, from + kBlocks / 2 * apart, apart), LoadBlocks(half, from, apart));
  }
}

// Element i of those that the unsigned lanes hold, as wide ones.
template <class T, int i, class D, class VU>
HWY_INLINE hn::Vec<D> ElementOf(D d, VU bits) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
    return hn::BitCast(d, bits);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return hn::BitCast(d, i == 0 ? hn::ShiftLeft<16>(bits) : hn::And(bits, hn::Set(hn::DFromV<VU>(), 0xFFFF0000u)));
  } else {
    const VU half = i == 0 ? hn::And(bits, hn::Set(hn::DFromV<VU>(), 0xFFFFu)) : hn::ShiftRight<16>(bits);
    if constexpr (kNativeF16) {
      const hn::Rebind<uint16_t, D> narrow;
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), hn::TruncateTo(narrow, half)));
    } else {
      return F32FromF16Bits(d, half);
    }
  }
}

template <class T>
void RunAveragePlanes(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  using W = Wide<T>;
  using U = hwy::MakeUnsigned<W>;
  const hn::ScalableTag<W> d;
  const hn::ScalableTag<U> du;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  constexpr int64_t kSide = 16 / sizeof(U);
  constexpr int64_t kSize = sizeof(T), kPiece = 16 / kSize;  // elements
  const int64_t n = p.in_plane(), planes = p.batch * p.channels;
  const int64_t plane = n * kSize;
  // With every piece as many lines are asked for as were read: of the next planes where these are near, else of the
  // same ones, in turns. (From memory 1.2 to 1.9 times as fast.)
  constexpr int64_t kLines = kLanes * 16 / 64, kTurns = 64 / 16, kFurther = 512;
  const bool near = kLanes * plane <= 128 << 10;
  const auto count = hn::Set(d, static_cast<W>(AverageCount(p, 0, 0, 0)));
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = std::min(unit * kLanes, planes - kLanes);  // the last unit reads some planes again
    const uint8_t* const x = static_cast<const uint8_t*>(args.source) + first * plane;
    auto sum = hn::Zero(d);
    for (int64_t e = 0; e < n; e += kPiece) {
      const int64_t at = std::min(e, n - kPiece);
      const int64_t added = e - at;  // before, of the last piece
      const int64_t ahead =
          near ? kLanes * (plane + e * kSize) : e * kSize + kFurther + e / kPiece % kTurns * kLines * plane;
      POOLGRAD_UNROLL for (int64_t i = 0; i < kLines; ++i) Ask(x, ahead + i * (near ? 64 : plane));
      VecOf<U> v[kSide];
      POOLGRAD_UNROLL for (int64_t i = 0; i < kSide; ++i) {
        v[i] = LoadBlocks(du, x + at * kSize + i * plane, kSide * plane);
      }
      TransposeInBlocks(du, v);
      POOLGRAD_UNROLL for (int64_t i = 0; i < kPiece; ++i) {
        if (i < added) continue;
        sum = hn::Add(sum, kPiece == kSide ? ElementOf<T, 0>(d, v[i])
                           : i % 2 == 0    ? ElementOf<T, 0>(d, v[i / 2])
                                           : ElementOf<T, 1>(d, v[i / 2]));
      }
    }
    HWY_ALIGN T averages[kLanes];
    StoreNarrow(d, hn::Div(sum, count), averages);
    std::copy(averages + (unit * kLanes - first), averages + kLanes, static_cast<T*>(args.result) + unit * kLanes);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
