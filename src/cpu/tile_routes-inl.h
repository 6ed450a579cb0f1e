// Routes of windows with four or eight taps that tile the width, channels first: the taps of a vector of outputs lie in
// registers, meet in pairs (so that no comparison waits for more than two others), and the codes leave packed.
//
// Of equal taps the first must win. Pairs are neighbours in row-major order, and pairs of pairs too: whoever is later
// has to be greater, at every level, so the winner is the first of the greatest.
//
// On Arm a comparison gives a vector of ones and zeros, and a code is put together from those: bit b of the code in
// every bit that is b modulo 2 (modulo 4 for eight taps), so that narrowing to bytes keeps it and one AND leaves it at
// its place in the line. Elsewhere comparisons select numbers.

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

#include "cpu/maxima-inl.h"
#include "cpu/order-inl.h"
#include "cpu/prefetch.h"
#include "cpu/reduce-inl.h"
#include "cpu/routes-inl.h"
#include "cpu/split-inl.h"
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

// Which of four taps: `second` and `fourth` say whether they beat the one before, `later` whether the second pair won.
template <class S>
HWY_INLINE CodeVec<S> CodeOfFour(KeyMask<S> second, KeyMask<S> fourth, KeyMask<S> later) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  if constexpr (kCodesFromMasks) {
    const auto high = hn::BitCast(du, hn::VecFromMask(d, later));
    const auto low = hn::IfVecThenElse(high, hn::BitCast(du, hn::VecFromMask(d, fourth)),
                                       hn::BitCast(du, hn::VecFromMask(d, second)));
    return hn::IfVecThenElse(hn::Set(du, static_cast<Code<S>>(0xAAAAAAAAAAAAAAAAu)), high, low);
  } else {
    const auto first = hn::IfThenElseZero(hn::RebindMask(du, second), hn::Set(du, Code<S>{1}));
    const auto last = hn::IfThenElse(hn::RebindMask(du, fourth), hn::Set(du, Code<S>{3}), hn::Set(du, Code<S>{2}));
    return hn::IfThenElse(hn::RebindMask(du, later), last, first);
  }
}

// Which of eight, from the codes of both halves.
template <class S>
HWY_INLINE CodeVec<S> CodeOfEight(CodeVec<S> first, CodeVec<S> second, KeyMask<S> later) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  if constexpr (kCodesFromMasks) {
    const auto high = hn::BitCast(du, hn::VecFromMask(d, later));
    const auto low = hn::IfVecThenElse(high, second, first);
    return hn::IfVecThenElse(hn::Set(du, static_cast<Code<S>>(0x4444444444444444u)), high, low);
  } else {
    return hn::IfThenElse(hn::RebindMask(du, later), hn::Add(second, hn::Set(du, Code<S>{4})), first);
  }
}

// A vector of codes of kTaps taps, narrowed to bytes: stored as numbers (kBits 8) or packed.
template <int kTaps, int kBits>
HWY_INLINE void StoreTileCodes(hn::Vec<hn::ScalableTag<uint8_t>> codes, uint8_t* to) {
#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
  // Each code is kept where it belongs in its byte of the line: sums of neighbours then are these bytes.
  constexpr uint32_t kOnes = kTaps - 1;
  constexpr uint32_t kPlaces = kBits == 8   ? kOnes * 0x01010101u
                               : kBits == 4 ? kOnes * 0x10011001u
                                            : kOnes * 0x40100401u;
  uint8x16_t line = vandq_u8(codes.raw, vreinterpretq_u8_u32(vdupq_n_u32(kPlaces)));
  if constexpr (kBits < 8) line = vpaddq_u8(line, line);
  if constexpr (kBits < 4) line = vpaddq_u8(line, line);
  if constexpr (kBits == 8) vst1q_u8(to, line);
  if constexpr (kBits == 4) vst1_u8(to, vget_low_u8(line));
  if constexpr (kBits == 2) {
    const uint32_t word = vgetq_lane_u32(vreinterpretq_u32_u8(line), 0);
    std::memcpy(to, &word, sizeof(word));
  }
#else
  StorePacked<kBits>(codes, to);
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
  Lookahead* lookahead;
};

// The four taps at v[0] to v[3], as keys.
template <class S>
HWY_INLINE Best<S, true> BestOfFour(const VecOf<S>* v) {
  const auto first = Greatest<S>(v[1], v[0]);
  const auto last = Greatest<S>(v[3], v[2]);
  Best<S, true> best;
  best.code = CodeOfFour<S>(Above<S>(v[1], v[0]), Above<S>(v[3], v[2]), Above<S>(last, first));
  best.key = Greatest<S>(last, first);
  return best;
}

// The taps of a vector of outputs, in order: those of kPhases columns of one input row after the other.
template <class S, int kStride, int kTaps>
HWY_INLINE void LoadTaps(const S* const* inputs, int64_t at, VecOf<S>* v, Watch<S>& watch) {
  for (int i = 0; i < kTaps / kStride; ++i) LoadPhases<S, kStride>(inputs[i] + at, v + i * kStride);
  for (int t = 0; t < kTaps; t += 2) {
    v[t] = Key<S>(v[t]);
    v[t + 1] = Key<S>(v[t + 1]);
    watch.template See<0>(v[t]);
    watch.template See<1>(v[t + 1]);
  }
}

// One vector of bytes of codes, and as many vectors of outputs, from output j of a row on.
template <class S, int kStride, int kTaps, int kBits>
HWY_INLINE void TileBlock(const S* const* inputs, int64_t from, int64_t j, S* y, uint8_t* codes, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  CodeVec<S> of[sizeof(S)];
  for (size_t k = 0; k < sizeof(S); ++k) {
    const int64_t at = j + static_cast<int64_t>(k) * lanes;
    VecOf<S> v[kTaps];
    LoadTaps<S, kStride, kTaps>(inputs, from + at * kStride, v, watch);
    Best<S, true> best = BestOfFour<S>(v);
    if constexpr (kTaps == 8) {
      const Best<S, true> second = BestOfFour<S>(v + 4);
      best.code = CodeOfEight<S>(best.code, second.code, Above<S>(second.key, best.key));
      best.key = Greatest<S>(second.key, best.key);
    }
    watch.SeeWinner(best.key);
    hn::StoreU(Key<S>(best.key), hn::ScalableTag<S>(), y + at);
    of[k] = best.code;
  }
  StoreTileCodes<kTaps, kBits>(BytesOf<Code<S>>(of), codes + j * kBits / 8);
}

// Rows of at least a vector of bytes; packed only if their codes fill whole bytes.
template <class S, int kStride, int kTaps, int kBits>
HWY_NOINLINE void TileRows(const TileJob<S>& job, Watch<S>& shared_watch) {
  constexpr int kRows = kTaps / kStride;
  constexpr int64_t kPiece = 64;  // long rows in pieces, so that input is asked for little by little
  const int64_t block = LaneCount<uint8_t>();
  const int64_t length = job.length;
  const S* inputs[kRows];
  for (int i = 0; i < kRows; ++i) inputs[i] = job.inputs[i];
  Watch<S> watch = shared_watch;
  S* y = job.y;
  uint8_t* codes = job.codes;
  for (int64_t r = 0; r < job.runs; ++r, y += length, codes += job.codes_pitch) {
    const int64_t from = r * job.in_pitch;
    int64_t j = 0;
    while (j + block <= length) {
      job.lookahead->At(inputs[kRows - 1] + from + std::min(j + kPiece, length) * kStride);
      const int64_t end = std::min(j + kPiece, length);
      for (; j + block <= end; j += block) TileBlock<S, kStride, kTaps, kBits>(inputs, from, j, y, codes, watch);
    }
    if (j < length) TileBlock<S, kStride, kTaps, kBits>(inputs, from, length - block, y, codes, watch);
  }
  shared_watch = watch;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
