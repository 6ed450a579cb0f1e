// The inner loop of large-inl.h: a few neighbouring windows at once, along the width or down.
//
// Windows that overlap share their middle. Its taps meet once, from the last to the first, and going on towards the
// front gives each window everything but what it has behind the middle; those taps meet in order, and each window
// takes them as far as it reaches:
//
//   taps       0 1 2 3 4 5 6 7         windows of 5 taps, four of them: the middle is taps 3 and 4
//   window 0   < < < m m               <  met towards the front
//   window 1     < < m m >             >  met towards the end
//   window 2       < m m > >
//   window 3         m m > > >
//
// That is (taps + 2 windows - 4) / windows comparisons per output, 2.25 here and 3.1 for eight windows of 13 taps,
// and two stores. Earlier taps win ties, so the winners are those of the taps one by one.

#include <algorithm>
#include <cstdint>

#include "cpu/forward/common/codes-inl.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

inline constexpr int64_t kMostWindows = 8;  // at once

// How many windows of this axis are best pooled at once: few enough that they have a tap in common.
inline int64_t WindowsAtOnce(const Axis& a) {
  const int64_t most = a.kernel < 9 ? 4 : kMostWindows;
  return std::max<int64_t>(1, std::min({most, (a.kernel - 1) / a.stride + 1, a.out}));
}

// Neighbouring windows along one axis, for `run` elements side by side. Taps are counted from the first window's first.
template <class S, class C>
struct MiddleJob {
  const S* keys;   // tap t's lie from keys + first + offsets[t] on
  const C* codes;  // and their numbers as far beside; null: taps of x, of which t has number t * code_step
  int64_t first;
  const int64_t* offsets;
  C code, code_step;     // what is added to the number of window 0's winner; and less for the next window, by tap
  int64_t taps, stride;  // of a window; from window to window
  int64_t windows;
  Range valid;  // taps that lie inside the input
  int64_t run;  // at least a vector
  S* out;       // window w's winners, from out + w * out_step on
  int64_t out_step;
  C* out_codes;
  int64_t out_code_step;
};

template <class S, class C, bool kRoutes, bool kToY, int kVectors>
HWY_INLINE Group<S, kRoutes, kVectors, C> LoadTap(const MiddleJob<S, C>& job, int64_t t, int64_t j) {
  const hn::ScalableTag<S> d;
  const typename Group<S, kRoutes, kVectors, C>::D8 d8;
  const int64_t lanes = LaneCount<S>();
  const int64_t at = job.first + job.offsets[t] + j;
  Group<S, kRoutes, kVectors, C> tap;
  POOLGRAD_UNROLL
  for (int v = 0; v < kVectors; ++v) tap.key[v] = hn::LoadU(d, job.keys + at + v * lanes);
  if constexpr (kRoutes) {
    tap.code = kToY ? hn::LoadU(d8, job.codes + at) : hn::Set(d8, static_cast<C>(t * job.code_step));
  }
  return tap;
}

template <class S, class C, bool kRoutes, bool kToY, int kVectors>
HWY_INLINE void PutWindow(const MiddleJob<S, C>& job, int64_t w, int64_t j, const Group<S, kRoutes, kVectors, C>& best,
                          Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const typename Group<S, kRoutes, kVectors, C>::D8 d8;
  const int64_t lanes = LaneCount<S>();
  if constexpr (kToY) best.SeenBy(watch);
  S* out = job.out + w * job.out_step + j;
  POOLGRAD_UNROLL
  for (int v = 0; v < kVectors; ++v) hn::StoreU(kToY ? watch.ToY(best.key[v]) : best.key[v], d, out + v * lanes);
  if constexpr (kRoutes) {
    const auto add = hn::Set(d8, static_cast<C>(job.code - w * job.stride * job.code_step));
    Group<S, kRoutes, kVectors, C> from_first = best;
    from_first.code = hn::Add(best.code, add);
    if (kToY && watch.rectifies()) from_first.Drop(watch);
    hn::StoreU(from_first.code, d8, job.out_codes + w * job.out_code_step + j);
  }
}

// All windows at element j. kWindows: there are so many, one tap apart, all inside the input; 0 where not.
template <class S, class C, bool kRoutes, bool kToY, int kWindows, int kVectors>
HWY_INLINE void PoolWindows(const MiddleJob<S, C>& job, int64_t j, Watch<S>& watch) {
  using G = Group<S, kRoutes, kVectors, C>;
  constexpr bool kWhole = kWindows > 0;
  const int64_t stride = kWhole ? 1 : job.stride;
  const Range valid = kWhole ? Range{0, job.taps - 1 + kWindows} : job.valid;
  int64_t t = std::min(job.taps, valid.end) - 1;
  G kept[kWhole ? kWindows : kMostWindows];
  G best = LoadTap<S, C, kRoutes, kToY, kVectors>(job, t, j);
  const auto towards_front = [&](int64_t w) POOLGRAD_LAMBDA {
    const int64_t begin = std::max(w * stride, valid.begin);
    for (--t; t >= begin; --t) best.MeetEarlier(LoadTap<S, C, kRoutes, kToY, kVectors>(job, t, j));
    t = begin;
    kept[w] = best;
  };
  G behind;
  int64_t met = 1;  // of the taps behind window 0
  const bool any = kWhole || (job.taps < valid.end && job.windows > 1);
  const auto towards_end = [&](int64_t w) POOLGRAD_LAMBDA {
    best = kept[w];
    if (!any) return;
    const int64_t end = std::min(w * stride, valid.end - job.taps);
    for (; met < end; ++met) behind.MeetLater(LoadTap<S, C, kRoutes, kToY, kVectors>(job, job.taps + met, j));
    best.MeetLater(behind);
  };
  if constexpr (kWhole) {
    POOLGRAD_UNROLL for (int w = kWindows - 1; w >= 0; --w) towards_front(w);
  } else {
    for (int64_t w = job.windows - 1; w >= 0; --w) towards_front(w);
  }
  PutWindow<S, C, kRoutes, kToY, kVectors>(job, 0, j, best, watch);
  behind = any ? LoadTap<S, C, kRoutes, kToY, kVectors>(job, job.taps, j) : best;
  if constexpr (kWhole) {
    POOLGRAD_UNROLL for (int w = 1; w < kWindows; ++w) {
      towards_end(w);
      PutWindow<S, C, kRoutes, kToY, kVectors>(job, w, j, best, watch);
    }
  } else {
    for (int64_t w = 1; w < job.windows; ++w) {
      towards_end(w);
      PutWindow<S, C, kRoutes, kToY, kVectors>(job, w, j, best, watch);
    }
  }
}

template <class S, class C, bool kRoutes, bool kToY, int kWindows>
HWY_NOINLINE void PoolMiddlesN(const MiddleJob<S, C>& shared_job, Watch<S>& shared_watch) {
  const MiddleJob<S, C> job = shared_job;  // stores of bytes may alias anything that is not the loop's own
  Watch<S> watch = shared_watch;
  ForGroups<S, C>(job.run, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
    PoolWindows<S, C, kRoutes, kToY, kWindows, decltype(vectors)::value>(job, j, watch);
  });
  shared_watch = watch;
}

// The better of two taps, whose numbers are job.code and code_step more; or, where they have such (kCodes), count from
// there.
template <class S, class C, bool kRoutes, bool kCodes>
HWY_NOINLINE void PoolPair(const MiddleJob<S, C>& shared_job) {
  MiddleJob<S, C> job = shared_job;
  const int64_t offsets[] = {job.offsets[0], job.offsets[1]};
  job.offsets = offsets;
  ForGroups<S, C>(job.run, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
    constexpr int kVectors = decltype(vectors)::value;
    using G = Group<S, kRoutes, kVectors, C>;
    const typename G::D8 d8;
    G tap[2];
    POOLGRAD_UNROLL
    for (int t = 0; t < 2; ++t) {
      tap[t] = LoadTap<S, C, kRoutes, kCodes, kVectors>(job, t, j);
      if constexpr (kRoutes) {
        const auto number = hn::Set(d8, static_cast<C>(job.code + t * job.code_step));
        tap[t].code = kCodes ? hn::Add(tap[t].code, number) : number;
      }
    }
    tap[0].MeetLater(tap[1]);
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(tap[0].key[v], hn::ScalableTag<S>(), job.out + j + v * LaneCount<S>());
    }
    if constexpr (kRoutes) hn::StoreU(tap[0].code, d8, job.out_codes + j);
  });
}

// kToY: the taps are keys with numbers and the winners are y's; else keys of x, and the winners go to scratch.
template <class S, class C, bool kRoutes, bool kToY>
void PoolMiddles(const MiddleJob<S, C>& job, Watch<S>& watch) {
  if (job.stride == 1 && job.valid.begin == 0 && job.valid.end == job.windows - 1 + job.taps) {
    if constexpr (!kRoutes || sizeof(C) == 1) {  // windows of more taps than bytes can number are large
      if (job.windows == 4) return PoolMiddlesN<S, C, kRoutes, kToY, 4>(job, watch);
    }
    if (job.windows == kMostWindows) return PoolMiddlesN<S, C, kRoutes, kToY, kMostWindows>(job, watch);
  }
  return PoolMiddlesN<S, C, kRoutes, kToY, 0>(job, watch);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
