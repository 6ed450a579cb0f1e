// The inner loops of max pooling: the best of several rows of values, lane by lane, with the tap it came from.
//
// A job names n sources in order of preference (ties keep the earlier source, so ties=last lists them backwards) and a number
// of runs: `run` consecutive elements, `in_pitch` apart in every source and `out_pitch` in the result. A run is the channels of
// one output pixel, or a whole row.

// Per-target include guard
#if defined(POOLGRAD_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_REDUCE_INL_H_
#undef POOLGRAD_CPU_REDUCE_INL_H_
#else
#define POOLGRAD_CPU_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/order-inl.h"
#include "hwy/highway.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The code of an input row's first tap: its number among the rows that windows at its phase can see, times the taps of a row.
// Walks along rows that are `step` apart without dividing.
template <class C>
class RowCode {
 public:
  RowCode(int64_t row, int64_t step, int64_t dilation, int64_t taps)
      : number_(FloorDiv(row, dilation)), phase_(row - number_ * dilation), step_(step), dilation_(dilation), taps_(taps) {}
  C value() const { return static_cast<C>(number_ * taps_); }
  void Advance() {
    phase_ += step_;
    if (dilation_ == 1) {
      number_ += phase_;
      phase_ = 0;
      return;
    }
    for (; phase_ >= dilation_; phase_ -= dilation_) ++number_;
  }

 private:
  int64_t number_, phase_, step_, dilation_, taps_;
};

// Where the sources are and what the result is. Rows are scratch: keys, with room for a vector beyond their end.
enum class Flow { kRawToRow, kKeysToRow, kRawToY };

template <class S>
struct TapJob {
  const S* const* taps;
  const Code<S>* codes;
  int64_t n;
  int64_t runs, run, in_pitch, out_pitch;
  const S* in_end;  // nothing is read from here on
  S* out;
  Code<S>* out_codes;
  S* out_end;  // nothing is written from here on
  RowCode<Code<S>>* base = nullptr;  // added to the codes, and advanced from run to run; may be null
};

// The codes of a job's taps in the run that is being done: in registers where their number is known.
template <class S, int kN>
struct TapCodes {
  CodeVec<S> of[kN > 0 ? kN : 1];
  CodeVec<S> base;
  const Code<S>* list;

  HWY_INLINE explicit TapCodes(const Code<S>* codes) : list(codes) { SetBase(0); }
  HWY_INLINE void SetBase(Code<S> value) {
    const hn::ScalableTag<Code<S>> du;
    base = hn::Set(du, value);
    for (int t = 0; t < kN; ++t) of[t] = hn::Set(du, static_cast<Code<S>>((list ? list[t] : Code<S>{0}) + value));
  }
  HWY_INLINE CodeVec<S> operator[](int64_t t) const {
    if constexpr (kN > 0) {
      return of[t];
    } else {
      return hn::Add(hn::Set(hn::ScalableTag<Code<S>>(), list[t]), base);
    }
  }
};

template <class S, bool kRoutes, Flow kFlow, int kN>
HWY_INLINE Best<S, kRoutes> ReduceAt(const S* const* taps, const TapCodes<S, kN>& codes, int64_t n, int64_t at,
                                     Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  constexpr bool kRaw = kFlow != Flow::kKeysToRow;
  const auto load = [&](const S* tap) HWY_ATTR {
    const auto v = hn::LoadU(d, tap + at);
    return kRaw ? Key<S>(v) : v;
  };
  Best<S, kRoutes> best;
  best.key = load(taps[0]);
  if constexpr (kRoutes) best.code = codes[0];
  if constexpr (kRaw) watch.template See<0>(best.key);
  const auto meet = [&](auto chain, int64_t t) HWY_ATTR {
    const auto v = load(taps[t]);
    if constexpr (kRaw) watch.template See<decltype(chain)::value>(v);
    best.Meet(v, [&]() HWY_ATTR { return codes[t]; });
  };
  if constexpr (kN > 1) meet(std::integral_constant<int, 1>(), 1);
  if constexpr (kN > 2) meet(std::integral_constant<int, 2>(), 2);
  if constexpr (kN > 3) meet(std::integral_constant<int, 3>(), 3);
  if constexpr (kN == 0) {
    int64_t t = 1;
    for (; t + 2 <= n; t += 2) {
      meet(std::integral_constant<int, 1>(), t);
      meet(std::integral_constant<int, 2>(), t + 1);
    }
    if (t < n) meet(std::integral_constant<int, 1>(), t);
  }
  if constexpr (kFlow == Flow::kRawToY) watch.SeeWinner(best.key);
  return best;
}

template <class S, bool kRoutes, Flow kFlow, int kN>
HWY_NOINLINE void ReduceTapsN(const TapJob<S>& job, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  const S* taps[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) taps[t] = job.taps[t];
  TapCodes<S, kN> codes(kRoutes ? job.codes : nullptr);
  const S* const* tap_list = kN > 0 ? taps : job.taps;
  const S* farthest = *std::max_element(job.taps, job.taps + job.n);
  S* out = job.out;
  Code<S>* out_codes = job.out_codes;
  const auto store = [&](const Best<S, kRoutes>& best, S* to, Code<S>* to_code) HWY_ATTR {
    hn::StoreU(kFlow == Flow::kRawToY ? Key<S>(best.key) : best.key, d, to);
    if constexpr (kRoutes) hn::StoreU(best.code, du, to_code);
  };
  const int64_t full = job.run / lanes * lanes;
  for (int64_t r = 0; r < job.runs; ++r, out += job.out_pitch, out_codes += kRoutes ? job.out_pitch : 0) {
    const int64_t base = r * job.in_pitch;
    if constexpr (kRoutes) {
      if (job.base) {
        codes.SetBase(job.base->value());
        job.base->Advance();
      }
    }
    const auto at = [&](int64_t j) HWY_ATTR {
      return ReduceAt<S, kRoutes, kFlow, kN>(tap_list, codes, job.n, base + j, watch);
    };
    for (int64_t j = 0; j < full; j += lanes) store(at(j), out + j, kRoutes ? out_codes + j : nullptr);
    if (full == job.run) continue;
    // The last vector: beyond the run where that is our own memory, over the one before it, or in a small copy.
    if (farthest + base + full + lanes <= job.in_end && out + full + lanes <= job.out_end) {
      store(at(full), out + full, kRoutes ? out_codes + full : nullptr);
    } else if (full > 0) {
      const int64_t j = job.run - lanes;
      store(at(j), out + j, kRoutes ? out_codes + j : nullptr);
    } else {
      constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<S>());
      HWY_ALIGN S copy[kMax] = {};
      HWY_ALIGN S result[kMax];
      HWY_ALIGN Code<S> result_codes[kMax];
      const auto bytes = static_cast<size_t>(job.run) * sizeof(S);
      const auto one = [&](int64_t t) HWY_ATTR {
        std::memcpy(copy, job.taps[t] + base, bytes);
        const S* source[] = {copy};
        TapCodes<S, 1> code(kRoutes ? job.codes + t : nullptr);
        return ReduceAt<S, kRoutes, kFlow, 1>(source, code, 1, 0, watch);
      };
      Best<S, kRoutes> best = one(0);
      for (int64_t t = 1; t < job.n; ++t) {
        const Best<S, kRoutes> next = one(t);
        best.Meet(next.key, [&]() HWY_ATTR { return next.code; });
      }
      if constexpr (kRoutes) best.code = hn::Add(best.code, codes.base);
      store(best, result, result_codes);
      std::memcpy(out, result, bytes);
      if constexpr (kRoutes) std::memcpy(out_codes, result_codes, static_cast<size_t>(job.run) * sizeof(Code<S>));
    }
  }
  shared_watch = watch;
}

template <class S, bool kRoutes, Flow kFlow>
void ReduceTaps(const TapJob<S>& job, Watch<S>& watch) {
  switch (job.n) {
    case 2: return ReduceTapsN<S, kRoutes, kFlow, 2>(job, watch);
    case 3: return ReduceTapsN<S, kRoutes, kFlow, 3>(job, watch);
    case 4: return ReduceTapsN<S, kRoutes, kFlow, 4>(job, watch);
    default: return ReduceTapsN<S, kRoutes, kFlow, 0>(job, watch);
  }
}

// A reduced row in scratch: keys and, where routes are kept, codes.
template <class S>
struct Row {
  S* keys;
  Code<S>* codes;

  Row operator+(int64_t elements) const { return {keys + elements, codes ? codes + elements : nullptr}; }
};

// What becomes of the best of several rows: another row, or y, with the window's own codes in scratch.
enum class Meeting { kToRow, kToY };

// The best of n rows, in order of preference, in runs as above.
template <class S>
struct MeetJob {
  const Row<S>* rows;
  int64_t n;
  int64_t runs, run, in_pitch, out_pitch, code_pitch;
  S* out;
  Code<S>* out_codes;
  S* out_end;                       // of y: nothing is written from here on
  RowCode<Code<S>>* base = nullptr;  // to y: subtracted from the codes, and advanced from run to run
  const Code<S>* starts = nullptr;  // to y: starts[j] is subtracted too; may be null
  Watch<S>* watch = nullptr;        // to y: sees the winners
};

// A row may be its own result: elements are read before those at lower or equal places are written.
template <class S, bool kRoutes, Meeting kWhat, int kN>
HWY_NOINLINE void MeetRowsN(const MeetJob<S>& job) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  constexpr bool kToY = kWhat == Meeting::kToY;
  Watch<S> watch = kToY ? *job.watch : Watch<S>(POOLGRAD_F32);
  Row<S> rows[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) rows[t] = job.rows[t];
  const Row<S>* list = kN > 0 ? rows : job.rows;
  S* out = job.out;
  Code<S>* out_codes = job.out_codes;
  const int64_t full = job.run / lanes * lanes;
  for (int64_t r = 0; r < job.runs; ++r, out += job.out_pitch, out_codes += kRoutes ? job.code_pitch : 0) {
    const int64_t from = r * job.in_pitch;
    auto base = hn::Zero(du);
    if constexpr (kRoutes && kToY) {
      base = hn::Set(du, job.base->value());
      job.base->Advance();
    }
    const auto at = [&](int64_t j) HWY_ATTR {
      Best<S, kRoutes> best;
      best.key = hn::LoadU(d, list[0].keys + from + j);
      if constexpr (kRoutes) best.code = hn::LoadU(du, list[0].codes + from + j);
      const int64_t count = kN > 0 ? kN : job.n;
      for (int64_t t = 1; t < count; ++t) {
        best.Meet(hn::LoadU(d, list[t].keys + from + j),
                  [&]() HWY_ATTR { return hn::LoadU(du, list[t].codes + from + j); });
      }
      if constexpr (kRoutes && kToY) {
        best.code = hn::Sub(best.code, base);
        if (job.starts) best.code = hn::Sub(best.code, hn::LoadU(du, job.starts + j));
      }
      return best;
    };
    const auto store = [&](const Best<S, kRoutes>& best, S* to, Code<S>* to_code) HWY_ATTR {
      hn::StoreU(kToY ? Key<S>(best.key) : best.key, d, to);
      if constexpr (kRoutes) hn::StoreU(best.code, du, to_code);
    };
    for (int64_t j = 0; j < full; j += lanes) {
      const Best<S, kRoutes> best = at(j);
      if constexpr (kToY) watch.SeeWinner(best.key);
      store(best, out + j, kRoutes ? out_codes + j : nullptr);
    }
    if (full == job.run) continue;
    if constexpr (kToY) watch.SeeWinner(at(full).key, job.run - full);
    if (!kToY || out + full + lanes <= job.out_end) {
      store(at(full), out + full, kRoutes ? out_codes + full : nullptr);
    } else if (full > 0) {
      store(at(job.run - lanes), out + job.run - lanes, kRoutes ? out_codes + job.run - lanes : nullptr);
    } else {
      HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
      store(at(0), values, out_codes);
      std::memcpy(out, values, static_cast<size_t>(job.run) * sizeof(S));
    }
  }
  if constexpr (kToY) *job.watch = watch;
}

template <class S, bool kRoutes, Meeting kWhat>
void MeetRows(const MeetJob<S>& job) {
  switch (job.n) {
    case 2: return MeetRowsN<S, kRoutes, kWhat, 2>(job);
    case 3: return MeetRowsN<S, kRoutes, kWhat, 3>(job);
    default: return MeetRowsN<S, kRoutes, kWhat, 0>(job);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
