// The inner loops of fwd_routes: the best of several rows, lane by lane, with the number of the tap it came from.
//
// All rows are scratch, with room for a vector beyond their end. Keys lie there as S and the taps' numbers beside them
// as C: bytes where a window has few enough taps, so that one vector of numbers goes with several vectors of keys, else
// lanes as wide as the keys. Sources are listed in order of preference: ties keep the earlier one.

#include <cstdint>
#include <cstring>

#include "cpu/forward/common/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// A row of keys with its numbers, to which `add` is added; or one tap, whose number is `add`.
template <class S, class C>
struct Contender {
  const S* keys;
  const C* codes;
  Code<S> add;  // as wide as keys: where vectors have no more than loads that spread a value, others take longer
};

enum class BestOf { kTaps, kRows, kRowsToY };

// Element j of row r is the best of the contenders' elements first + r * in_pitch + j.
template <class S, class C>
struct BestJob {
  const Contender<S, C>* from;
  int64_t n;
  int64_t runs, run, in_pitch;
  S* keys;  // or y
  C* codes;
  int64_t out_pitch, code_pitch;                                    // of keys and of codes
  int64_t planes = 1, in_plane = 0, out_plane = 0, code_plane = 0;  // all this for several planes, so far apart
  int64_t first = 0;
};

template <class S, class C, int kN, int kSome>
HWY_INLINE void TapsStep(const Contender<S, C>* from, int64_t n, int64_t at, S* keys, C* codes) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  using G = Group<S, true, kSome, C>;
  VecOf<S> key[kSome];
  CodeVec<S> code[kSome];
  for (int b = 0; b < kSome; ++b) {
    key[b] = hn::LoadU(d, from[0].keys + at + b * lanes);
    code[b] = hn::Set(du, from[0].add);
  }
  for (int64_t t = 1; t < (kN > 0 ? kN : n); ++t) {
    const auto number = hn::Set(du, from[t].add);
    for (int b = 0; b < kSome; ++b) {
      const auto v = hn::LoadU(d, from[t].keys + at + b * lanes);
      code[b] = hn::IfThenElse(hn::RebindMask(du, Above<S>(v, key[b])), number, code[b]);
      key[b] = Greatest<S>(v, key[b]);
    }
  }
  for (int b = 0; b < kSome; ++b) hn::StoreU(key[b], d, keys + b * lanes);
  hn::StoreU(G::Bytes(code), typename G::D8(), codes);
}

template <class S, class C, int kN, bool kToY, int kSome>
HWY_INLINE void RowsStep(const Contender<S, C>* from, int64_t n, int64_t at, S* keys, C* codes, Watch<S>& watch) {
  using G = Group<S, true, kSome, C>;
  const hn::ScalableTag<S> d;
  const typename G::D8 dn;
  const int64_t lanes = LaneCount<S>();
  const auto code_of = [&](int64_t t) POOLGRAD_LAMBDA {
    return hn::Add(hn::LoadU(dn, from[t].codes + at), hn::Set(dn, static_cast<C>(from[t].add)));
  };
  G best;
  for (int b = 0; b < kSome; ++b) best.key[b] = hn::LoadU(d, from[0].keys + at + b * lanes);
  best.code = code_of(0);
  for (int64_t t = 1; t < (kN > 0 ? kN : n); ++t) {
    VecOf<S> key[kSome];
    for (int b = 0; b < kSome; ++b) key[b] = hn::LoadU(d, from[t].keys + at + b * lanes);
    best.Meet(key, code_of(t));
  }
  if constexpr (kToY) best.SeenBy(watch);
  for (int b = 0; b < kSome; ++b) hn::StoreU(kToY ? watch.ToY(best.key[b]) : best.key[b], d, keys + b * lanes);
  if (kToY && watch.rectifies()) best.Drop(watch);
  hn::StoreU(best.code, dn, codes);
}

template <class S, class C, int kN, BestOf kWhat>
HWY_NOINLINE void BestOfN(const BestJob<S, C>& job, Watch<S>& shared_watch) {
  Watch<S> watch = shared_watch;
  const int64_t n = job.n, runs = job.runs, run = job.run, in_pitch = job.in_pitch;
  Contender<S, C> known[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) known[t] = job.from[t];
  const Contender<S, C>* from = kN > 0 ? known : job.from;
  for (int64_t p = 0; p < job.planes; ++p) {
    int64_t base = job.first + p * job.in_plane;
    for (int64_t r = 0; r < runs; ++r, base += in_pitch) {
      S* keys = job.keys + p * job.out_plane + r * job.out_pitch;
      C* codes = job.codes + p * job.code_plane + r * job.code_pitch;
      ForGroups<S, C>(run, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
        constexpr int kSome = decltype(vectors)::value;
        if constexpr (kWhat == BestOf::kTaps) {
          TapsStep<S, C, kN, kSome>(from, n, base + j, keys + j, codes + j);
        } else {
          RowsStep<S, C, kN, kWhat == BestOf::kRowsToY, kSome>(from, n, base + j, keys + j, codes + j, watch);
        }
      });
    }
  }
  if constexpr (kWhat == BestOf::kRowsToY) shared_watch = watch;
}

// To y, rows shorter than a vector.
template <class S, class C>
HWY_NOINLINE void BestOfShortRows(const BestJob<S, C>& job, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
  HWY_ALIGN C codes[hn::MaxLanes(hn::ScalableTag<S>())];
  const auto count = static_cast<size_t>(job.run);
  for (int64_t p = 0; p < job.planes; ++p) {
    for (int64_t r = 0; r < job.runs; ++r) {
      Watch<S> unused = watch;
      RowsStep<S, C, 0, true, 1>(job.from, job.n, job.first + p * job.in_plane + r * job.in_pitch, values, codes,
                                 unused);
      watch.SeeWinner(watch.KeyOf(hn::Load(d, values)), job.run);
      std::memcpy(job.keys + p * job.out_plane + r * job.out_pitch, values, count * sizeof(S));
      std::memcpy(job.codes + p * job.code_plane + r * job.code_pitch, codes, count * sizeof(C));
    }
  }
}

// To y nothing is written beyond its rows.
template <class S, class C, BestOf kWhat>
void FindBest(BestJob<S, C> job, Watch<S>& watch) {
  if (job.in_pitch == job.run && job.out_pitch == job.run && job.code_pitch == job.run) {
    job.run *= job.runs;
    job.runs = 1;
  }
  if constexpr (kWhat == BestOf::kRowsToY) {
    if (job.run < LaneCount<S>()) return BestOfShortRows<S, C>(job, watch);
  }
  if constexpr (sizeof(C) == 1) {  // wider numbers are rare
    if (job.n == 3) return BestOfN<S, C, 3, kWhat>(job, watch);
    if constexpr (kManyForms<S>) {
      if (job.n == 2) return BestOfN<S, C, 2, kWhat>(job, watch);
      if (job.n == 5) return BestOfN<S, C, 5, kWhat>(job, watch);
    }
  }
  return BestOfN<S, C, 0, kWhat>(job, watch);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
