// The inner loops of max pooling of f32 with routes, channels first, for windows of three by three: row by row, in
// stripes of a few vectors, all in registers.
//
// Each input row is reduced along the width once to a Swath: keys, and the number of the best column as bytes. Rows
// then meet in order, so that the first of equal taps wins. What one step leaves for the next is made of that step's
// rows alone; so a step that writes nothing begins a new plane.
//
// Neoverse-V1 sustains two vector instructions per cycle, stores among them, and loads cost nothing beside them, also
// those that de-interleave: hence columns that are loaded three times, and no reduced rows in scratch.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/common/codes-inl.h"
#include "cpu/simd/prefetch.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

using ByteVec = hn::Vec<hn::ScalableTag<uint8_t>>;

// A stripe is so many vectors wide: as many as have their numbers in one vector of bytes.
template <class S>
inline constexpr int kStripe = sizeof(S);

// Some vectors side by side, and the numbers of the taps their keys came from.
template <class S, int kSlots>
struct Swath {
  VecOf<S> key[kSlots];
  ByteVec code;

  HWY_INLINE Swath() {}  // GCC compiles implicit constructors without the target's instructions

  HWY_INLINE void Load(const S* keys, const uint8_t* codes) {
    POOLGRAD_UNROLL for (int i = 0; i < kSlots; ++i) key[i] = hn::Load(hn::ScalableTag<S>(), keys + i * LaneCount<S>());
    code = hn::Load(hn::ScalableTag<uint8_t>(), codes);
  }
  HWY_INLINE void Store(S* keys, uint8_t* codes) const {
    POOLGRAD_UNROLL for (int i = 0; i < kSlots; ++i) hn::Store(key[i], hn::ScalableTag<S>(), keys + i * LaneCount<S>());
    hn::Store(code, hn::ScalableTag<uint8_t>(), codes);
  }
};

// What a loop is made for: windows kBy apart, both ways.
template <class T, int kBy>
struct SweepOf {
  using S = T;
  static constexpr int kStride = kBy;
  // `later > best` decides: zeros of different sign tie as they should, but a NaN may get lost, so every input is
  // watched. Otherwise the maximum tells who won: at stride 2, where inputs are four times as many, looking at winners
  // is cheaper.
  static constexpr bool kCompares = kIsFloat<T> && kMaxPassesNan && kBy == 1;
  static constexpr int kSign = kCompares ? -1 : 1;  // of the numbers that swaths carry
};

// best = the better of the two; returns where it was the later one (if the kind compares) or where it was not: all
// ones.
template <class Of, class S = typename Of::S>
HWY_INLINE CodeVec<S> Contest(VecOf<S> later, VecOf<S>& best) {
  const hn::ScalableTag<Code<S>> du;
  if constexpr (Of::kCompares) {
    const auto beats = hn::Gt(later, best);
    best = hn::IfThenElse(beats, later, best);
    return hn::BitCast(du, hn::VecFromMask(hn::ScalableTag<S>(), beats));
  } else {
    const auto before = hn::BitCast(du, best);
    best = Greatest<S>(later, best);
    return hn::VecFromMask(du, hn::Eq(hn::BitCast(du, best), before));
  }
}

template <class Of, class V>
HWY_INLINE V ByContest(V result, V later, V best) {
  return Of::kCompares ? hn::IfThenElse(hn::MaskFromVec(result), later, best)
                       : hn::IfThenElse(hn::MaskFromVec(result), best, later);
}

// One vector for each slot as bytes, in order.
template <class S, int kSlots>
HWY_INLINE ByteVec StripeBytes(const CodeVec<S>* slots) {
  CodeVec<S> all[kStripe<S>];
  POOLGRAD_UNROLL for (int i = 0; i < kStripe<S>; ++i) all[i] = slots[i < kSlots ? i : kSlots - 1];
  return BytesOf<Code<S>>(all);
}

// best = the better of the two; `later` begins kRows rows of the window after it.
template <class Of, int kRows, int kSlots, class S = typename Of::S>
HWY_INLINE void Meet(Swath<S, kSlots>& best, const Swath<S, kSlots>& later) {
  CodeVec<S> results[kSlots];
  POOLGRAD_UNROLL for (int i = 0; i < kSlots; ++i) results[i] = Contest<Of>(later.key[i], best.key[i]);
  const auto add = hn::Set(hn::ScalableTag<uint8_t>(), static_cast<uint8_t>(Of::kSign * 3 * kRows));
  best.code = ByContest<Of>(StripeBytes<S, kSlots>(results), hn::Add(later.code, add), best.code);
}

// One step down: two rows, and the rows of outputs they complete.
template <class S>
struct SweepStep {
  const S* row[2];  // where the first window begins, which may be before the row; null: outside the input
  S* y[2];          // null: not wanted
  uint8_t* codes[2];
};

// Some steps, and what their rows have in common.
template <class S>
struct SweepBand {
  const SweepStep<S>* steps;
  int64_t count;
  int64_t dilation;  // of the width
  int64_t before;    // so many of the first windows begin before the row
  int64_t beyond;    // so many of the last end after it
  int64_t in;        // elements of a row
  Lookahead* lookahead;
  int64_t last_stripe = 0;  // where it begins
  int64_t last = 0;         // and where its last vector begins, counted from there
};

// Which part of the row a stripe is. Only the first tap of its first windows and the last tap of its last may lie
// outside, and only in the first and the last vector.
template <int kOfSlots, bool kAtFirst, bool kAtLast>
struct StripePart {
  static constexpr int kSlots = kOfSlots;
  static constexpr bool kFirst = kAtFirst;
  static constexpr bool kLast = kAtLast;
};

template <class S>
struct RowEnds {
  hn::Mask<hn::ScalableTag<S>> first, last;  // lanes whose first tap, whose last tap is inside
};

template <class Of, class P, class S = typename Of::S>
HWY_INLINE void ReduceRow(const S* row, const SweepBand<S>& band, const RowEnds<S>& ends, Swath<S, P::kSlots>& to,
                          Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  const auto lowest = hn::Set(d, LowestKey<S>());
  CodeVec<S> column[P::kSlots];
  POOLGRAD_UNROLL for (int i = 0; i < P::kSlots; ++i) {
    const bool is_last = P::kLast && i == P::kSlots - 1;
    const S* at = row + Of::kStride * (is_last ? band.last : i * lanes);
    VecOf<S> tap0, tap1, tap2;
    if constexpr (Of::kStride == 1) {
      tap0 = hn::LoadU(d, at);
      tap1 = hn::LoadU(d, at + band.dilation);
      tap2 = hn::LoadU(d, at + 2 * band.dilation);
    } else {
      VecOf<S> unused;
      hn::LoadInterleaved2(d, at, tap0, tap1);
      hn::LoadInterleaved2(d, at + 1, unused, tap2);
    }
    if constexpr (Of::kCompares) {  // the columns that no other window begins at are those of the last windows
      watch.SeeInput(tap0);
      if (is_last) watch.SeeInput(tap1);
      if (is_last) watch.SeeInput(tap2);
    } else {
      watch.template See<0>(tap0);
      if (is_last || Of::kStride > 1) watch.template See<1>(tap1);
      if (is_last) watch.template See<2>(tap2);
    }
    if (P::kFirst && i == 0) tap0 = hn::IfThenElse(ends.first, tap0, lowest);
    if (is_last) tap2 = hn::IfThenElse(ends.last, tap2, lowest);
    to.key[i] = tap0;
    auto second = Contest<Of>(tap1, to.key[i]);  // the numbers of the first two, but for a constant
    if constexpr (kIsBits<S>) {                  // a zero beats what lies outside
      if (P::kFirst && i == 0) second = hn::IfThenElseZero(hn::RebindMask(du, ends.first), second);
    }
    const auto third = Contest<Of>(tap2, to.key[i]);
    column[i] = ByContest<Of>(third, hn::Set(du, static_cast<Code<S>>(Of::kCompares ? -2 : 1)), second);
  }
  to.code = StripeBytes<S, P::kSlots>(column);
}

template <class Of, class P, class S = typename Of::S>
HWY_INLINE void PutSwath(const Swath<S, P::kSlots>& from, S* y, uint8_t* codes, int64_t last, Watch<S>& watch) {
  const hn::ScalableTag<uint8_t> d8;
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<S>());
  POOLGRAD_UNROLL for (int i = 0; i < P::kSlots; ++i) {
    if constexpr (!Of::kCompares) {
      if (i % 2 == 0) watch.template SeeWinner<0>(from.key[i]);
      if (i % 2 == 1) watch.template SeeWinner<1>(from.key[i]);
    }
    hn::StoreU(watch.ToY(from.key[i]), hn::ScalableTag<S>(), y + (P::kLast && i == P::kSlots - 1 ? last : i * kLanes));
  }
  auto code = Of::kCompares ? hn::Sub(hn::Zero(d8), from.code) : hn::Add(from.code, hn::Set(d8, 1));
  if (watch.rectifies()) {
    CodeVec<S> dropped[P::kSlots];
    POOLGRAD_UNROLL for (int i = 0; i < P::kSlots; ++i) dropped[i] = watch.Dropped(from.key[i]);
    code = hn::Or(code, StripeBytes<S, P::kSlots>(dropped));
  }
  hn::StoreU(code, d8, codes);
  if (P::kLast && last != (P::kSlots - 1) * kLanes) {
    uint8_t end[kLanes];
    std::memcpy(end, codes + (P::kSlots - 1) * kLanes, kLanes);
    std::memcpy(codes + last, end, kLanes);
  }
}

// A row outside the input. As bits of floats its keys tie with zeros, and before the input it must not win: if it does,
// all of the row after it is zero, and the number it carries is that of the first tap there.
template <class Of, class P, class S = typename Of::S>
HWY_INLINE void SetLowest(const RowEnds<S>& ends, Swath<S, P::kSlots>& to) {
  const hn::ScalableTag<uint8_t> d8;
  POOLGRAD_UNROLL for (int i = 0; i < P::kSlots; ++i) to.key[i] = hn::Set(hn::ScalableTag<S>(), LowestKey<S>());
  to.code = hn::Set(d8, kIsBits<S> ? 2 : 0);
  if constexpr (kIsBits<S> && P::kFirst) {
    const hn::ScalableTag<Code<S>> du;
    CodeVec<S> number[P::kSlots];
    POOLGRAD_UNROLL for (int i = 0; i < P::kSlots; ++i) number[i] = hn::Set(du, Code<S>{2});
    number[0] = hn::IfThenElse(hn::RebindMask(du, ends.first), number[0], hn::Set(du, Code<S>{3}));
    to.code = StripeBytes<S, P::kSlots>(number);
  }
}

template <class Of, class P, class S = typename Of::S>
HWY_INLINE void ReduceOrLowest(const S* row, int64_t j, const SweepBand<S>& band, const RowEnds<S>& ends,
                               Swath<S, P::kSlots>& to, Watch<S>& watch) {
  if (row) {
    ReduceRow<Of, P>(row + j * Of::kStride, band, ends, to, watch);
  } else {
    SetLowest<Of, P>(ends, to);
  }
}

// One stripe of a step, from its window number j on. `keys` and `codes` hold what the step before left: at stride 1 the
// best of its two rows, and the second of them; at stride 2 the second alone.
template <class Of, class P, class S = typename Of::S>
HWY_INLINE void StepStripe(const SweepStep<S>& step, int64_t j, const SweepBand<S>& band, const RowEnds<S>& ends,
                           S* keys, uint8_t* codes, Watch<S>& watch) {
  constexpr int64_t kWidth = kStripe<S> * hn::MaxLanes(hn::ScalableTag<S>());
  Swath<S, P::kSlots> row0, row1, out;
  if constexpr (Of::kStride == 1) {
    ReduceOrLowest<Of, P>(step.row[0], j, band, ends, row0, watch);
    ReduceOrLowest<Of, P>(step.row[1], j, band, ends, row1, watch);
    if (step.y[0]) {
      out.Load(keys, codes);
      Meet<Of, 2>(out, row0);
      PutSwath<Of, P>(out, step.y[0] + j, step.codes[0] + j, band.last, watch);
    }
    Meet<Of, 1>(row0, row1);
    if (step.y[1]) {
      out.Load(keys + kWidth, codes + kWidth);
      Meet<Of, 1>(out, row0);
      PutSwath<Of, P>(out, step.y[1] + j, step.codes[1] + j, band.last, watch);
    }
    row0.Store(keys, codes);
    row1.Store(keys + kWidth, codes + kWidth);
  } else if (step.y[0]) {
    ReduceOrLowest<Of, P>(step.row[0], j, band, ends, row0, watch);
    out.Load(keys, codes);
    Meet<Of, 1>(out, row0);
    ReduceOrLowest<Of, P>(step.row[1], j, band, ends, row1, watch);
    row1.Store(keys, codes);
    Meet<Of, 2>(out, row1);
    PutSwath<Of, P>(out, step.y[0] + j, step.codes[0] + j, band.last, watch);
  } else {
    ReduceOrLowest<Of, P>(step.row[1], j, band, ends, row1, watch);
    row1.Store(keys, codes);
  }
}

// Steps over whole rows. Of their stripes, the last has kLastSlots vectors; kMany: there are others.
template <class Of, int kLastSlots, bool kMany, class S = typename Of::S>
HWY_NOINLINE void SweepRows(const SweepBand<S>& in, S* kept_keys, uint8_t* kept_codes, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<S>());
  constexpr int64_t kWidth = kStripe<S> * kLanes;
  constexpr int64_t kKept = Of::kStride == 1 ? 2 * kWidth : kWidth;
  const SweepBand<S> band = in;
  Watch<S> watch = shared_watch;
  const RowEnds<S> ends = {hn::Not(hn::FirstN(d, static_cast<size_t>(band.before))),
                           hn::FirstN(d, static_cast<size_t>(kLanes - band.beyond))};
  for (const SweepStep<S>* step = band.steps; step != band.steps + band.count; ++step) {
    if (step->row[1]) band.lookahead->At(step->row[1] + band.in);
    S* keys = kept_keys;
    uint8_t* codes = kept_codes;
    int64_t j = 0;
    if constexpr (kMany) {
      StepStripe<Of, StripePart<kStripe<S>, true, false>>(*step, j, band, ends, keys, codes, watch);
      for (j = kWidth; j < band.last_stripe; j += kWidth) {
        keys += kKept;
        codes += kKept;
        StepStripe<Of, StripePart<kStripe<S>, false, false>>(*step, j, band, ends, keys, codes, watch);
      }
      keys += kKept;
      codes += kKept;
    }
    StepStripe<Of, StripePart<kLastSlots, !kMany, true>>(*step, j, band, ends, keys, codes, watch);
  }
  shared_watch = watch;
}

template <class Of, class S = typename Of::S>
void Sweep(SweepBand<S> band, int64_t out, S* kept_keys, uint8_t* kept_codes, Watch<S>& watch) {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<S>());
  constexpr int kMost = kStripe<S>;
  const int64_t slots = CeilDiv(out, kLanes);
  const int64_t whole = (slots - 1) / kMost;  // stripes before the last
  band.last_stripe = whole * kMost * kLanes;
  band.last = out - kLanes - band.last_stripe;
  const auto sweep = [&](auto many) {
    constexpr bool kMany = decltype(many)::value;
    switch (slots - whole * kMost) {
      case 1:
        return SweepRows<Of, 1, kMany>(band, kept_keys, kept_codes, watch);
      case 2:
        return SweepRows<Of, 2, kMany>(band, kept_keys, kept_codes, watch);
      case 3:
        if constexpr (kMost > 2) return SweepRows<Of, 3, kMany>(band, kept_keys, kept_codes, watch);
        break;
      default:
        if constexpr (kMost > 3) return SweepRows<Of, 4, kMany>(band, kept_keys, kept_codes, watch);
    }
  };
  if (whole > 0) {
    sweep(std::true_type());
  } else {
    sweep(std::false_type());
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
