// The inner loops of rows-inl.h: a piece of an input row is reduced along the width, and every window that covers the
// row takes what it needs of the result.
//
// Codes are bytes, so that they cost a quarter of the traffic of keys: a group of vectors has one vector of them.
// Accumulators may not be written beyond a run's end, because the next run has not been read yet: each run's part of
// them is padded to whole vectors. y and the codes on their way to routes may: the next run writes over it.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/forward/common/codes-inl.h"
#include "cpu/simd/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

inline constexpr bool kFewForms = HWY_TARGET == HWY_WASM;  // bytes count there

// What a window does with a row it covers.
template <class S>
struct Role {
  S* kept;  // accumulator: keys and codes
  uint8_t* kept_codes;
  S* y;  // last row: where winners and their codes go
  uint8_t* y_codes;
  bool first, last;
  uint8_t code;    // of the row's tap 0
  int64_t output;  // the window's row of outputs
};

// A piece of an input row whose windows have the same taps: `runs` runs of `run` elements.
template <class S>
struct StreamJob {
  const S* x;              // where the first run's window begins
  const int64_t* offsets;  // of its taps, in order of preference, and their codes
  const uint8_t* codes;
  int64_t taps;
  int64_t runs, run;
  int64_t in_pitch, kept_pitch;  // from run to run; in y it is `run`
  int64_t kept_at, y_at;         // of the first run
  const Role<S>* roles;
  int64_t role_count;
  const S* in_end;  // nothing is read from here on
  int64_t y_size;   // nothing is written into y from here on
  Lookahead* look;
  int64_t more, row_pitch;  // so many rows are read with this one: what lies behind them is asked for as fast

  int64_t Farthest() const { return std::max(offsets[0], offsets[taps - 1]); }
};

// Whether the codes of taps are as wide as keys while the taps of a row meet, and narrowed afterwards: cheaper where a
// comparison gives a mask that selects lanes, where it gives lanes it costs as much to narrow those.
inline constexpr bool kWideCodes = HWY_ARCH_X86;

template <class S, int kVectors>
using TapCode = std::conditional_t<kWideCodes, hn::ScalableTag<Code<S>>, typename Group<S, true, kVectors>::D8>;

// The taps of a run; in registers where their number is known. D: of codes.
template <class S, int kTaps, class D>
struct Taps {
  const int64_t n;
  const int64_t* offsets;
  const uint8_t* codes;
  int64_t known_offsets[kTaps > 0 ? kTaps : 1];
  hn::Vec<D> known_codes[kTaps > 0 ? kTaps : 1];

  HWY_INLINE explicit Taps(const StreamJob<S>& job)
      : n(kTaps > 0 ? kTaps : job.taps), offsets(job.offsets), codes(job.codes) {
    POOLGRAD_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      known_offsets[t] = offsets[t];
      known_codes[t] = hn::Set(D(), codes[t]);
    }
  }
  HWY_INLINE int64_t Offset(int64_t t) const { return kTaps > 0 ? known_offsets[t] : offsets[t]; }
  HWY_INLINE hn::Vec<D> CodeOf(int64_t t) const { return kTaps > 0 ? known_codes[t] : hn::Set(D(), codes[t]); }
};

// The best of a run's taps, at x. kSome: only n elements are there.
template <class S, bool kRoutes, int kTaps, int kVectors, bool kSome = false>
HWY_INLINE Group<S, kRoutes, kVectors> BestOfTaps(const Taps<S, kTaps, TapCode<S, kVectors>>& taps, const S* x,
                                                  Watch<S>& watch, [[maybe_unused]] int64_t n = 0) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  const auto load = [&](const S* from, VecOf<S>* to) POOLGRAD_LAMBDA {
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      to[v] = Key<S>(kSome ? LoadFirst(d, from + v * lanes, n) : hn::LoadU(d, from + v * lanes));
    }
    [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA { (watch.template See<kV>(to[kV]), ...); }
    (std::make_integer_sequence<int, kVectors>());
  };
  Group<S, kRoutes, kVectors> best;
  load(x + taps.Offset(0), best.key);
  [[maybe_unused]] CodeVec<S> wide[kVectors];
  if constexpr (!kWideCodes) {
    best.code = taps.CodeOf(0);
  } else {
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) wide[v] = taps.CodeOf(0);
  }
  const auto meet = [&](int64_t t) POOLGRAD_LAMBDA {
    VecOf<S> key[kVectors];
    load(x + taps.Offset(t), key);
    if constexpr (!kWideCodes) {
      best.Meet(key, taps.CodeOf(t));
    } else {
      POOLGRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const auto beats = hn::RebindMask(hn::ScalableTag<Code<S>>(), Above<S>(key[v], best.key[v]));
        wide[v] = hn::IfThenElse(beats, taps.CodeOf(t), wide[v]);
        best.key[v] = Greatest<S>(key[v], best.key[v]);
      }
    }
  };
  if constexpr (kTaps > 0) {
    POOLGRAD_UNROLL
    for (int t = 1; t < kTaps; ++t) meet(t);
  } else {
    for (int64_t t = 1; t < taps.n; ++t) meet(t);
  }
  if constexpr (kWideCodes && kRoutes) best.code = best.Bytes(wide);
  return best;
}

// What the windows that cover a row do with it, in order, known to the compiler where the order is a usual one.
enum class Part { kAsListed, kFirst, kBetween, kLast, kOnly };

// The reduced row meets one window that covers it, at one place. `n`: how many of the elements count.
template <class S, bool kRoutes, int kVectors, Part kPart>
HWY_INLINE void Give(const Role<S>& role, const Group<S, kRoutes, kVectors>& here, int64_t kept_at, int64_t y_at,
                     int64_t n, int64_t y_size, Watch<S>& watch) {
  using G = Group<S, kRoutes, kVectors>;
  const hn::ScalableTag<S> d;
  const typename G::D8 d8;
  const int64_t lanes = LaneCount<S>();
  const bool first = kPart == Part::kAsListed ? role.first : kPart == Part::kFirst || kPart == Part::kOnly;
  const bool last = kPart == Part::kAsListed ? role.last : kPart == Part::kLast || kPart == Part::kOnly;
  S* kept = role.kept + kept_at;
  G best;
  auto code = hn::Zero(d8);
  if constexpr (kRoutes) code = hn::Add(here.code, hn::Set(d8, role.code));
  if (first) {
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) best.key[v] = here.key[v];
    best.code = code;
  } else {
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) best.key[v] = hn::LoadU(d, kept + v * lanes);
    if constexpr (kRoutes) best.code = hn::LoadU(d8, role.kept_codes + kept_at);
    best.Meet(here.key, code);
  }
  if (!last) {
    if constexpr (kRoutes) hn::StoreU(best.code, d8, role.kept_codes + kept_at);
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(best.key[v], d, kept + v * lanes);
    return;
  }
  S* y = role.y + y_at;
  if constexpr (kRoutes) {
    if (watch.rectifies()) best.Drop(watch);
    hn::StoreU(best.code, d8, role.y_codes + y_at);  // scratch: room for a vector beyond its end
  }
  if (n == kVectors * lanes) {
    best.SeenBy(watch);
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(watch.ToY(best.key[v]), d, y + v * lanes);
    return;
  }
  watch.SeeWinner(best.key[0], n);
  if (y_at + lanes <= y_size) return hn::StoreU(watch.ToY(best.key[0]), d, y);  // the next run writes over the rest
  StoreFirst(d, watch.ToY(best.key[0]), y, n);
}

// What is left of a run when less than a group is: [j, run), of the run that begins at `x`.
template <class S, bool kRoutes>
HWY_NOINLINE void StreamTail(const StreamJob<S>& job, const S* x, int64_t j, int64_t kept_at, int64_t y_at,
                             Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  const S* farthest = x + job.Farthest();
  const Taps<S, 0, TapCode<S, 1>> taps(job);
  for (; j < job.run; j += lanes) {
    const int64_t n = std::min(lanes, job.run - j);
    const bool inside = n == lanes || farthest + j + lanes <= job.in_end;
    const auto here = inside ? BestOfTaps<S, kRoutes, 0, 1>(taps, x + j, watch)
                             : BestOfTaps<S, kRoutes, 0, 1, true>(taps, x + j, watch, n);
    for (int64_t r = 0; r < job.role_count; ++r) {
      Give<S, kRoutes, 1, Part::kAsListed>(job.roles[r], here, kept_at + j, y_at + j, n, job.y_size, watch);
    }
  }
}

template <class S, bool kRoutes, int kTaps, Part... kParts>
HWY_NOINLINE void StreamRuns(const StreamJob<S>& job, Watch<S>& shared_watch) {
  // Copies of what the loop needs: stores of bytes may alias anything that is not the loop's own.
  constexpr int kRoles = sizeof...(kParts);
  Role<S> roles[kRoles + 1];
  POOLGRAD_UNROLL
  for (int r = 0; r < kRoles; ++r) roles[r] = job.roles[r];
  const Taps<S, kTaps, TapCode<S, kGroup<S>>> taps(job);
  Watch<S> watch = shared_watch;
  const int64_t group = kGroup<S> * LaneCount<S>();
  const int64_t run = job.run;
  const int64_t full = run / group * group;
  const int64_t y_size = job.y_size;
  constexpr bool kRestInline =
      kRoles > 0 && !kFewForms;  // what is left of a run in single vectors; the last may read beyond it
  [[maybe_unused]] const int64_t lanes = LaneCount<S>();
  [[maybe_unused]] const int64_t beyond = job.Farthest() + lanes;
  [[maybe_unused]] const Taps<S, kTaps, TapCode<S, 1>> taps_of_one(job);
  Lookahead look = *job.look;
  const int64_t more = job.more;
  const S* x = job.x;
  int64_t kept_at = job.kept_at;
  int64_t y_at = job.y_at;
  for (int64_t r = job.runs; r > 0; --r) {
    for (int64_t j = 0; j < full; j += group) {
      look.At(x + j + more * (job.row_pitch + (x + j - job.x)));
      const auto here = BestOfTaps<S, kRoutes, kTaps, kGroup<S>>(taps, x + j, watch);
      if constexpr (kRoles > 0) {
        int at = 0;
        (Give<S, kRoutes, kGroup<S>, kParts>(roles[at++], here, kept_at + j, y_at + j, group, y_size, watch), ...);
      } else {
        for (int64_t i = 0; i < job.role_count; ++i) {
          Give<S, kRoutes, kGroup<S>, Part::kAsListed>(job.roles[i], here, kept_at + j, y_at + j, group, y_size, watch);
        }
      }
    }
    bool rest = full < run;
    if constexpr (kRestInline) {
      if (rest && x + run + beyond <= job.in_end) {
        for (int64_t j = full; j < run; j += lanes) {
          const auto here = BestOfTaps<S, kRoutes, kTaps, 1>(taps_of_one, x + j, watch);
          const int64_t n = std::min(lanes, run - j);
          int at = 0;
          (Give<S, kRoutes, 1, kParts>(roles[at++], here, kept_at + j, y_at + j, n, y_size, watch), ...);
        }
        rest = false;
      }
    }
    if (rest) {
      Watch<S> tail_watch = watch;  // or the loop's would live in memory
      StreamTail<S, kRoutes>(job, x, full, kept_at, y_at, tail_watch);
      watch = tail_watch;
    }
    x += job.in_pitch;
    kept_at += job.kept_pitch;
    y_at += run;
  }
  *job.look = look;
  shared_watch = watch;
}

// What the windows do with a row is known to the compiler for the usual orders, and three taps along the width: read
// from lists, 3x3 at stride 2 reached 0.42 of copy where this reaches 0.49.
template <class S, bool kRoutes, int kTaps>
void StreamParts(const StreamJob<S>& job, Watch<S>& watch) {
  const auto part = [&](int64_t r) {
    const Role<S>& role = job.roles[r];
    return role.first ? role.last ? Part::kOnly : Part::kFirst : role.last ? Part::kLast : Part::kBetween;
  };
  const Part first = part(0);
  if (job.role_count == 1) {
    if (first == Part::kBetween) return StreamRuns<S, kRoutes, kTaps, Part::kBetween>(job, watch);
    if constexpr (!kFewForms) {
      if (first == Part::kFirst) return StreamRuns<S, kRoutes, kTaps, Part::kFirst>(job, watch);
      if (first == Part::kLast) return StreamRuns<S, kRoutes, kTaps, Part::kLast>(job, watch);
    }
  }
  if constexpr (kTaps == 3) {
    if (first == Part::kLast && job.role_count == 2 && part(1) == Part::kFirst) {
      return StreamRuns<S, kRoutes, kTaps, Part::kLast, Part::kFirst>(job, watch);
    }
    if (first == Part::kLast && job.role_count == 3 && part(1) == Part::kBetween && part(2) == Part::kFirst) {
      return StreamRuns<S, kRoutes, kTaps, Part::kLast, Part::kBetween, Part::kFirst>(job, watch);
    }
  }
  StreamRuns<S, kRoutes, 0>(job, watch);
}

template <class S, bool kRoutes>
void StreamPieceOfRow(const StreamJob<S>& job, Watch<S>& watch) {
  const bool only = job.role_count == 1 && job.roles[0].first && job.roles[0].last;
  if (job.taps == 4 && only) return StreamRuns<S, kRoutes, 4, Part::kOnly>(job, watch);
  if (job.taps == 3) return StreamParts<S, kRoutes, 3>(job, watch);
  if constexpr (kFewForms) {
    return StreamRuns<S, kRoutes, 0>(job, watch);
  } else {
    if (only) return StreamRuns<S, kRoutes, 0, Part::kOnly>(job, watch);
    return StreamParts<S, kRoutes, 0>(job, watch);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
