// Routes of windows with four or eight taps: the taps of a vector of outputs lie in registers and meet in pairs (so
// that no comparison waits for more than two others), and the codes leave packed.
//
// Of equal taps the first must win. Pairs are neighbours in row-major order, and pairs of pairs too, so at every level
// the earlier one wins if it has the bits of the best. Only the pair that won is asked which of its taps it was.
// (Zeros of different sign differ in their bits, but then a Watch has fired.)
//
// On Arm a comparison gives a vector of ones and zeros, and a code is put together from those: the complement of bit b
// of the code in every bit that is b modulo 2 (modulo 4 for eight taps), so that narrowing to bytes keeps it and one
// BIC leaves the code at its place in the line. Elsewhere comparisons select numbers.

// Per-target include guard
#if defined(POOLGRAD_CPU_TILE_ROUTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_TILE_ROUTES_INL_H_
#undef POOLGRAD_CPU_TILE_ROUTES_INL_H_
#else
#define POOLGRAD_CPU_TILE_ROUTES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/common/codes-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
inline constexpr bool kCodesFromMasks = true;
#else
inline constexpr bool kCodesFromMasks = false;
#endif

template <class S>
using KeyMask = hn::Mask<hn::ScalableTag<S>>;

// What to ask for: something only if windows leave nothing out. Rows of several slices are so short that their runs of
// addresses are followed better without.
template <class S>
RowsAhead RowsToAskFor(const Rows<S>& rows) {
  const Axis& height = rows.p.height();
  const Axis& width = rows.p.width();
  if (height.stride != height.kernel || width.stride != width.kernel || rows.p.depth().kernel > 1) return RowsAhead();
  const int64_t row = height.kernel * width.in * static_cast<int64_t>(sizeof(S));
  return RowsAhead(rows.x, rows.x_end, row, height.kernel == 1);
}

template <class S>
HWY_INLINE KeyMask<S> SameBits(VecOf<S> a, VecOf<S> b) {
  const hn::ScalableTag<Code<S>> du;
  return hn::RebindMask(hn::ScalableTag<S>(), hn::Eq(hn::BitCast(du, a), hn::BitCast(du, b)));
}

// The best of four taps: whether the first pair won, and the earlier tap of the pair that did.
template <class S>
struct BestPair {
  VecOf<S> key;
  VecOf<S> earlier;
  KeyMask<S> first;

  HWY_INLINE BestPair() {}  // GCC compiles implicit constructors without the target's instructions
};

// From the best, the greater tap of the first pair, and the earlier tap of either pair.
template <class S>
HWY_INLINE BestPair<S> PairOfBest(VecOf<S> key, VecOf<S> first, VecOf<S> earlier_of_first, VecOf<S> earlier_of_second) {
  BestPair<S> best;
  best.key = key;
  best.first = SameBits<S>(first, key);
  best.earlier = hn::IfThenElse(best.first, earlier_of_first, earlier_of_second);
  return best;
}

// Which of four taps it was.
template <class S>
HWY_INLINE CodeVec<S> CodeOfFour(const BestPair<S>& best) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const auto earlier = SameBits<S>(best.earlier, best.key);
  if constexpr (kCodesFromMasks) {
    return hn::IfVecThenElse(hn::Set(du, static_cast<Code<S>>(0xAAAAAAAAAAAAAAAAu)),
                             hn::BitCast(du, hn::VecFromMask(d, best.first)),
                             hn::BitCast(du, hn::VecFromMask(d, earlier)));
  } else {
    return hn::Or(hn::IfThenZeroElse(hn::RebindMask(du, best.first), hn::Set(du, Code<S>{2})),
                  hn::IfThenZeroElse(hn::RebindMask(du, earlier), hn::Set(du, Code<S>{1})));
  }
}

// The best of eight taps and which it was, from both halves.
template <class S>
HWY_INLINE Best<S, true> BestOfHalves(const BestPair<S>& first, const BestPair<S>& second) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  BestPair<S> pair;
  pair.key = Greatest<S>(second.key, first.key);
  const auto in_first = SameBits<S>(first.key, pair.key);
  pair.earlier = hn::IfThenElse(in_first, first.earlier, second.earlier);
  Best<S, true> best;
  best.key = pair.key;
  if constexpr (kCodesFromMasks) {
    const auto half = hn::VecFromMask(d, in_first);
    pair.first =
        hn::MaskFromVec(hn::IfVecThenElse(half, hn::VecFromMask(d, first.first), hn::VecFromMask(d, second.first)));
    best.code = hn::IfVecThenElse(hn::Set(du, static_cast<Code<S>>(0x4444444444444444u)), hn::BitCast(du, half),
                                  CodeOfFour<S>(pair));
  } else {
    pair.first = hn::Or(hn::And(in_first, first.first), hn::AndNot(in_first, second.first));
    best.code = hn::Or(hn::IfThenZeroElse(hn::RebindMask(du, in_first), hn::Set(du, Code<S>{4})), CodeOfFour<S>(pair));
  }
  return best;
}

// Codes of kTaps taps, as many vectors as narrow to one of bytes, and what the rectifier drops of them: stored as
// numbers (kBits 8) or packed. kVectors: how many of the vectors count; numbers may be written beyond them.
template <class S, int kTaps, int kBits, int kVectors>
HWY_INLINE void StoreTileCodes(CodeVec<S>* codes, const CodeVec<S>* dropped, [[maybe_unused]] bool drops, uint8_t* to) {
#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
  // Each code is kept where it belongs in its byte of the line: sums of neighbours then are these bytes.
  constexpr uint32_t kPlaces = kBits == 8 ? 0x01010101u : kBits == 4 ? 0x10011001u : 0x40100401u;
  const auto ones = [](uint32_t code) { return vreinterpretq_u8_u32(vdupq_n_u32(code * kPlaces)); };
  uint8x16_t line = vbicq_u8(ones(kTaps - 1), BytesOf<Code<S>>(codes).raw);
  if (drops) line = vorrq_u8(line, vandq_u8(BytesOf<Code<S>>(dropped).raw, ones((1u << kBits) - 1)));
  if constexpr (kBits < 8) line = vpaddq_u8(line, line);
  if constexpr (kBits < 4) line = vpaddq_u8(line, line);
  if constexpr (kBits == 8) {
    vst1q_u8(to, line);
  } else {
    const uint64_t word = vgetq_lane_u64(vreinterpretq_u64_u8(line), 0);
    std::memcpy(to, &word, 2 * kBits * kVectors / sizeof(S));
  }
#else
  POOLGRAD_UNROLL
  for (size_t k = 0; k < sizeof(S); ++k) codes[k] = hn::Or(codes[k], dropped[k]);
  if constexpr (kBits == 8 || kVectors == sizeof(S)) {
    StorePacked<kBits>(BytesOf<Code<S>>(codes), to);
  } else {
    HWY_ALIGN uint8_t packed[hn::MaxLanes(hn::ScalableTag<uint8_t>())];
    StorePacked<kBits>(BytesOf<Code<S>>(codes), packed);
    std::memcpy(to, packed, static_cast<size_t>(LaneCount<S>()) * kVectors * kBits / 8);
  }
#endif
}

// `runs` rows of `length` outputs, each from the input rows that lie in_pitch further than for the row before.
template <class S>
struct TileJob {
  const S* const* inputs;
  int64_t runs, in_pitch, length;
  S* y;
  uint8_t* codes;  // a byte each, or packed
  int64_t codes_pitch;
  RowsAhead* ahead;
  const S* ahead_of;  // where the first row's windows begin to read
};

// Four taps of each of a vector of outputs: two of two input rows, or four of one.
template <class S, int kStride>
HWY_INLINE BestPair<S> BestOfTile(const S* const* inputs, int64_t at, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  VecOf<S> v[4];
  for (int t = 0; t < 4; ++t) v[t] = Key<S>(hn::LoadU(d, inputs[t / kStride] + at + t % kStride * lanes));
  watch.template See<0>(v[0]);
  watch.template See<1>(v[1]);
  watch.template See<2>(v[2]);
  watch.template See<3>(v[3]);
  const auto low = PairMax<S>(v[0], v[1]), high = PairMax<S>(v[2], v[3]);
  const auto low_earlier = hn::ConcatEven(d, v[1], v[0]), high_earlier = hn::ConcatEven(d, v[3], v[2]);
  if constexpr (kStride == 2) {
    return PairOfBest<S>(Greatest<S>(high, low), low, low_earlier, high_earlier);
  } else {
    return PairOfBest<S>(PairMax<S>(low, high), hn::ConcatEven(d, high, low),
                         hn::ConcatEven(d, high_earlier, low_earlier), hn::ConcatOdd(d, high_earlier, low_earlier));
  }
}

// kVectors vectors of outputs from output j of a row on, at most as many as have their codes in one vector of bytes.
template <class S, int kStride, int kTaps, int kBits, int kVectors>
HWY_INLINE void TileBlock(const S* const* inputs, int64_t from, int64_t j, S* y, uint8_t* codes, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  CodeVec<S> of[sizeof(S)], dropped[sizeof(S)];
  POOLGRAD_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    const int64_t at = j + k * lanes;
    const auto first = BestOfTile<S, kStride>(inputs, from + at * kStride, watch);
    Best<S, true> best;
    if constexpr (kTaps == 8) {
      best = BestOfHalves<S>(first, BestOfTile<S, kStride>(inputs + 4 / kStride, from + at * kStride, watch));
    } else {
      best.key = first.key;
      best.code = CodeOfFour<S>(first);
    }
    watch.SeeWinner(best.key);
    hn::StoreU(watch.ToY(best.key), hn::ScalableTag<S>(), y + at);
    of[k] = best.code;
    dropped[k] = watch.rectifies() ? watch.Dropped(best.key) : hn::Zero(hn::ScalableTag<Code<S>>());
  }
  POOLGRAD_UNROLL
  for (int k = kVectors; k < static_cast<int>(sizeof(S)); ++k) {  // do not count
    of[k] = of[0];
    dropped[k] = dropped[0];
  }
  StoreTileCodes<S, kTaps, kBits, kVectors>(of, dropped, watch.rectifies(), codes + j * kBits / 8);
}

// Rows of at least a vector of bytes; packed only if their codes fill whole bytes.
template <class S, int kStride, int kTaps, int kBits>
HWY_NOINLINE void TileRows(const TileJob<S>& job, Watch<S>& shared_watch) {
  constexpr int kRows = kTaps / kStride;
  constexpr int kBlock = sizeof(S);
  const int64_t lanes = LaneCount<S>();
  const int64_t block = LaneCount<uint8_t>();
  const auto block_bytes = static_cast<uintptr_t>(block) * kTaps * sizeof(S);
  const int64_t length = job.length;
  // What is left of a row is done in single vectors where their codes fill bytes, else with a block over the last one.
  const bool in_vectors = kBlock <= 4 && length % lanes == 0 && lanes * kBits % 8 == 0;
  const S* inputs[kRows];
  for (int i = 0; i < kRows; ++i) inputs[i] = job.inputs[i];
  Watch<S> watch = shared_watch;
  RowsAhead ahead = *job.ahead;
  S* y = job.y;
  uint8_t* codes = job.codes;
  for (int64_t r = 0; r < job.runs; ++r, y += length, codes += job.codes_pitch) {
    const int64_t from = r * job.in_pitch;
    ahead.Start(job.ahead_of + from);
    int64_t j = 0;
    for (; j + block <= length; j += block) {
      ahead.Block(block_bytes);
      TileBlock<S, kStride, kTaps, kBits, kBlock>(inputs, from, j, y, codes, watch);
    }
    if (j == length) continue;
    ahead.Block(block_bytes);
    if (!in_vectors) {
      TileBlock<S, kStride, kTaps, kBits, kBlock>(inputs, from, length - block, y, codes, watch);
    } else if constexpr (kBlock <= 4) {
      const int64_t left = (length - j) / lanes;
      if (left == 1) TileBlock<S, kStride, kTaps, kBits, 1>(inputs, from, j, y, codes, watch);
      if constexpr (kBlock == 4) {
        if (left == 2) TileBlock<S, kStride, kTaps, kBits, 2>(inputs, from, j, y, codes, watch);
        if (left == 3) TileBlock<S, kStride, kTaps, kBits, 3>(inputs, from, j, y, codes, watch);
      }
    }
  }
  *job.ahead = ahead;
  shared_watch = watch;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
