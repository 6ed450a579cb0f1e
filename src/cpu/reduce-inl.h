// The inner loops of max pooling: the best of several rows of values, lane by lane, with the tap it came from.
//
// A job names n sources in order of preference (ties keep the earlier source, so ties=last lists them backwards) and a number
// of runs: `run` consecutive elements, `in_pitch` apart in every source, packed in the result. Channels last has one run per
// output pixel; where the stride is 1, and in channels first, the whole row is one run.

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

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Where the sources are and what the result is. Rows are scratch: keys, with room for a vector beyond their end.
enum class Flow { kRawToRow, kKeysToRow, kRawToY };

template <class S>
struct TapJob {
  const S* const* taps;
  const Code<S>* codes;
  int64_t n;
  int64_t runs, run, in_pitch;
  const S* in_end;  // nothing is read from here on
  S* out;
  Code<S>* out_codes;
  S* out_end;  // nothing is written from here on
};

template <class S, bool kRoutes, Flow kFlow, int kN>
HWY_INLINE Best<S, kRoutes> ReduceAt(const S* const* taps, const CodeVec<S>* code_vecs, const Code<S>* codes, int64_t n,
                                     int64_t at, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  constexpr bool kRaw = kFlow != Flow::kKeysToRow;
  const auto load = [&](const S* tap) HWY_ATTR {
    const auto v = hn::LoadU(d, tap + at);
    return kRaw ? Key<S>(v) : v;
  };
  Best<S, kRoutes> best;
  best.key = load(taps[0]);
  if constexpr (kRoutes) best.code = kN > 0 ? code_vecs[0] : hn::Set(du, codes[0]);
  if constexpr (kRaw) watch.template See<0>(best.key);
  const auto meet = [&](auto chain, int64_t t) HWY_ATTR {
    const auto v = load(taps[t]);
    if constexpr (kRaw) watch.template See<decltype(chain)::value>(v);
    best.Meet(v, [&]() HWY_ATTR { return kN > 0 ? code_vecs[t] : hn::Set(du, codes[t]); });
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
  if constexpr (kRaw) watch.SeeWinner(best.key);
  return best;
}

template <class S, bool kRoutes, Flow kFlow, int kN>
HWY_NOINLINE void ReduceTapsN(const TapJob<S>& job, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  const S* taps[kN > 0 ? kN : 1];
  CodeVec<S> code_vecs[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) {
    taps[t] = job.taps[t];
    if constexpr (kRoutes) code_vecs[t] = hn::Set(du, job.codes[t]);
  }
  const S* const* tap_list = kN > 0 ? taps : job.taps;
  const S* farthest = *std::max_element(job.taps, job.taps + job.n);
  S* out = job.out;
  Code<S>* out_codes = job.out_codes;
  const auto store = [&](const Best<S, kRoutes>& best, S* to, Code<S>* to_code) HWY_ATTR {
    hn::StoreU(kFlow == Flow::kRawToY ? Key<S>(best.key) : best.key, d, to);
    if constexpr (kRoutes) hn::StoreU(best.code, du, to_code);
  };
  const int64_t full = job.run / lanes * lanes;
  for (int64_t r = 0; r < job.runs; ++r, out += job.run, out_codes += kRoutes ? job.run : 0) {
    const int64_t base = r * job.in_pitch;
    const auto at = [&](int64_t j) HWY_ATTR {
      return ReduceAt<S, kRoutes, kFlow, kN>(tap_list, code_vecs, job.codes, job.n, base + j, watch);
    };
    for (int64_t j = 0; j < full; j += lanes) store(at(j), out + j, out_codes + j);
    if (full == job.run) continue;
    // The last vector: beyond the run where that is our own memory, over the one before it, or in a small copy.
    if (farthest + base + full + lanes <= job.in_end && out + full + lanes <= job.out_end) {
      store(at(full), out + full, out_codes + full);
    } else if (full > 0) {
      const int64_t j = job.run - lanes;
      store(at(j), out + j, out_codes + j);
    } else {
      constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<S>());
      HWY_ALIGN S copy[kMax] = {};
      HWY_ALIGN S result[kMax];
      HWY_ALIGN Code<S> result_codes[kMax];
      const auto bytes = static_cast<size_t>(job.run) * sizeof(S);
      const auto one = [&](int64_t t) HWY_ATTR {
        std::memcpy(copy, job.taps[t] + base, bytes);
        const S* source[] = {copy};
        const CodeVec<S> code[] = {hn::Set(du, kRoutes ? job.codes[t] : Code<S>{0})};
        return ReduceAt<S, kRoutes, kFlow, 1>(source, code, nullptr, 1, 0, watch);
      };
      Best<S, kRoutes> best = one(0);
      for (int64_t t = 1; t < job.n; ++t) {
        const Best<S, kRoutes> next = one(t);
        best.Meet(next.key, [&]() HWY_ATTR { return next.code; });
      }
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
};

// What becomes of the best of several rows: another row, a row whose codes are shifted, or y (codes shifted, in scratch).
enum class Meeting { kToRow, kToShiftedRow, kToY };

// The best of n rows, in order of preference. Shifted codes have `base` and, if not null, starts[j] subtracted. A row may be its
// own result: elements are read before those at lower or equal places are written.
template <class S, bool kRoutes, Meeting kWhat, int kN>
HWY_NOINLINE void MeetRowsN(const Row<S>* rows, int64_t n, int64_t length, S* out, Code<S>* out_codes, Code<S> base,
                            const Code<S>* starts) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  const auto bases = hn::Set(du, base);
  Row<S> some[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) some[t] = rows[t];
  const Row<S>* list = kN > 0 ? some : rows;
  const auto at = [&](int64_t j) HWY_ATTR {
    Best<S, kRoutes> best;
    best.key = hn::LoadU(d, list[0].keys + j);
    if constexpr (kRoutes) best.code = hn::LoadU(du, list[0].codes + j);
    const int64_t count = kN > 0 ? kN : n;
    for (int64_t t = 1; t < count; ++t) {
      best.Meet(hn::LoadU(d, list[t].keys + j), [&]() HWY_ATTR { return hn::LoadU(du, list[t].codes + j); });
    }
    if constexpr (kRoutes && kWhat != Meeting::kToRow) {
      best.code = hn::Sub(best.code, bases);
      if (starts) best.code = hn::Sub(best.code, hn::LoadU(du, starts + j));
    }
    return best;
  };
  const auto store = [&](const Best<S, kRoutes>& best, S* to, Code<S>* to_code) HWY_ATTR {
    hn::StoreU(kWhat == Meeting::kToY ? Key<S>(best.key) : best.key, d, to);
    if constexpr (kRoutes) hn::StoreU(best.code, du, to_code);
  };
  const int64_t full = length / lanes * lanes;
  for (int64_t j = 0; j < full; j += lanes) store(at(j), out + j, out_codes + j);
  if (full == length) return;
  if (kWhat != Meeting::kToY) {
    store(at(full), out + full, out_codes + full);
  } else if (full > 0) {
    store(at(length - lanes), out + length - lanes, out_codes + length - lanes);
  } else {
    HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
    store(at(0), values, out_codes);
    std::memcpy(out, values, static_cast<size_t>(length) * sizeof(S));
  }
}

template <class S, bool kRoutes, Meeting kWhat>
void MeetRows(const Row<S>* rows, int64_t n, int64_t length, S* out, Code<S>* out_codes, Code<S> base,
              const Code<S>* starts) {
  switch (n) {
    case 2: return MeetRowsN<S, kRoutes, kWhat, 2>(rows, n, length, out, out_codes, base, starts);
    case 3: return MeetRowsN<S, kRoutes, kWhat, 3>(rows, n, length, out, out_codes, base, starts);
    default: return MeetRowsN<S, kRoutes, kWhat, 0>(rows, n, length, out, out_codes, base, starts);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
