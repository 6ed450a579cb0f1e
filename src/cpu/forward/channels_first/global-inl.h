// fwd_global: the window is the whole plane, channels first, and each plane is one contiguous array with one winner.
//
// A plane is reduced lane by lane, and then as many planes as there are lanes are folded together, even lanes against
// odd ones, until every lane holds one plane's winner. Lanes do not follow each other in the array, so a tie between
// lanes is decided by the tap's number. Planes are read one after the other, which is what memory delivers fastest
// (14x14, as a fraction of copy: 0.75, four planes side by side 0.30); with routes four go side by side, because the
// comparisons of one wait for each other.

// Per-target include guard
#if defined(POOLGRAD_CPU_GLOBAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_GLOBAL_INL_H_
#undef POOLGRAD_CPU_GLOBAL_INL_H_
#else
#define POOLGRAD_CPU_GLOBAL_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/common/exact-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Lets the vector at `x` meet the best so far; no arrays of these, GCC would keep them in memory.
template <class S>
HWY_INLINE void MeetVector(const S* x, CodeVec<S> code, Best<S, true>& best, Watch<S>& watch) {
  const auto key = Key<S>(hn::LoadU(hn::ScalableTag<S>(), x));
  watch.See(key);
  best.code = hn::IfThenElse(hn::RebindMask(hn::ScalableTag<Code<S>>(), Above<S>(key, best.key)), code, best.code);
  best.key = Greatest<S>(key, best.key);
}

// The lane-wise best of n >= Lanes values of each of four planes, and where it is.
template <class S>
HWY_INLINE void BestOfLanes(const S* const* planes, int64_t n, bool backwards, Best<S, true>* best, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  const S* x0 = planes[0];
  const S* x1 = planes[1];
  const S* x2 = planes[2];
  const S* x3 = planes[3];
  Best<S, true> a, b, c, e;
  a.key = b.key = c.key = e.key = hn::Set(d, LowestKey<S>());
  a.code = b.code = c.code = e.code = hn::Set(du, static_cast<Code<S>>(backwards ? n - 1 : 0));  // where all are lowest
  const int64_t whole = n / lanes * lanes;
  // The last vector may overlap the one before it: what is met twice ties with itself.
  int64_t at = backwards ? n - lanes : 0;
  for (int64_t left = CeilDiv(n, lanes); left > 0; --left) {
    const auto code = hn::Add(hn::Iota(du, 0), hn::Set(du, static_cast<Code<S>>(at)));
    MeetVector(x0 + at, code, a, watch);
    MeetVector(x1 + at, code, b, watch);
    MeetVector(x2 + at, code, c, watch);
    MeetVector(x3 + at, code, e, watch);
    if (backwards) {
      at = (left - 2) * lanes;
    } else {
      at = at + 2 * lanes > whole ? n - lanes : at + lanes;
    }
  }
  best[0] = a;
  best[1] = b;
  best[2] = c;
  best[3] = e;
}

template <class S>
HWY_INLINE VecOf<S> LoadSeen(const S* x, Watch<S>& watch) {
  const auto key = Key<S>(hn::LoadU(hn::ScalableTag<S>(), x));
  watch.See(key);
  return key;
}

template <class S>
HWY_INLINE VecOf<S> GreatestOfFour(const S* x, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  const auto a = LoadSeen(x, watch), b = LoadSeen(x + lanes, watch);
  const auto c = LoadSeen(x + 2 * lanes, watch), e = LoadSeen(x + 3 * lanes, watch);
  return Greatest<S>(Greatest<S>(e, c), Greatest<S>(b, a));
}

// The lane-wise greatest of n >= Lanes values.
template <class S>
HWY_INLINE VecOf<S> GreatestOfLanes(const S* x, int64_t n, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  int64_t i = n < 4 * lanes ? lanes : 4 * lanes;
  auto greatest = n < 4 * lanes ? LoadSeen(x, watch) : GreatestOfFour(x, watch);
  for (; i + 4 * lanes <= n; i += 4 * lanes) greatest = Greatest<S>(GreatestOfFour(x + i, watch), greatest);
  for (; i < n; i += lanes) greatest = Greatest<S>(LoadSeen(x + std::min(i, n - lanes), watch), greatest);
  return greatest;
}

// The best of the even and the odd lanes of two vectors: those of `low` in the lower half of the result.
template <class S, bool kRoutes>
HWY_INLINE Best<S, kRoutes> Fold(const Best<S, kRoutes>& low, const Best<S, kRoutes>& high, bool backwards) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  Best<S, kRoutes> even;
  even.key = hn::ConcatEven(d, high.key, low.key);
  const auto odd = hn::ConcatOdd(d, high.key, low.key);
  if constexpr (kRoutes) {
    even.code = hn::ConcatEven(du, high.code, low.code);
    const auto odd_code = hn::ConcatOdd(du, high.code, low.code);
    const auto earlier = backwards ? hn::Gt(odd_code, even.code) : hn::Lt(odd_code, even.code);
    const auto beats = hn::Or(Above<S>(odd, even.key), hn::And(hn::Eq(odd, even.key), hn::RebindMask(d, earlier)));
    even.code = hn::IfThenElse(hn::RebindMask(du, beats), odd_code, even.code);
  }
  even.key = Greatest<S>(odd, even.key);
  return even;
}

// Up to Lanes planes from `plane` on; their codes go to scratch, with room for a vector.
template <class S, bool kRoutes>
HWY_INLINE void PoolPlanes(const Rows<S>& rows, int64_t plane, int64_t count, Code<S>* codes, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  constexpr int kMax = static_cast<int>(hn::MaxLanes(hn::ScalableTag<S>()));
  const int64_t lanes = LaneCount<S>();
  Best<S, kRoutes> best[std::max(kMax, 4)];
  const auto plane_at = [&](int64_t i) { return rows.plane(plane + std::min(i, count - 1)); };
  if constexpr (kRoutes) {
    for (int64_t i = 0; i < lanes; i += 4) {
      const S* planes[4] = {plane_at(i), plane_at(i + 1), plane_at(i + 2), plane_at(i + 3)};
      BestOfLanes<S>(planes, rows.p.in_plane(), rows.backwards, best + i, watch);
    }
  } else {
    for (int64_t i = 0; i < lanes; ++i) best[i].key = GreatestOfLanes<S>(plane_at(i), rows.p.in_plane(), watch);
  }
  for (int m = kMax; m > 1; m /= 2) {
    for (int i = 0; i < m; i += 2) best[i / 2] = Fold(best[i], best[i + 1], rows.backwards);
  }
  watch.SeeUnordered(best[0].key);
  const auto winners = watch.ToY(best[0].key);
  if (count >= lanes) {
    hn::StoreU(winners, d, rows.y + plane);
  } else {
    HWY_ALIGN S values[kMax];
    hn::Store(winners, d, values);
    std::memcpy(rows.y + plane, values, static_cast<size_t>(count) * sizeof(S));
  }
  if constexpr (kRoutes) {
    if (watch.rectifies()) best[0].code = hn::Or(best[0].code, watch.Dropped(best[0].key));
    hn::StoreU(best[0].code, hn::ScalableTag<Code<S>>(), codes);
  }
}

// Memory delivers more to a few runs of addresses than to one, so a task reads its planes from four places by turns, at
// most 4 KiB each time.
template <class S, bool kRoutes>
void RunGlobal(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const Rows<S> rows(p, args);
  const int64_t lanes = LaneCount<S>();
  const int64_t n = p.in_plane();
  const int64_t turn = lanes * std::clamp<int64_t>((4 << 10) / (lanes * n * static_cast<int64_t>(sizeof(S))), 1, 4);
  const int64_t share = CeilDiv(CeilDiv(end - begin, int64_t{4}), turn) * turn;
  HWY_ALIGN Code<S> codes[4 * hn::MaxLanes(hn::ScalableTag<S>())];
  for (int64_t at = begin; at < begin + share; at += turn) {
    for (int64_t place = at; place < end && !rows.GaveUp(); place += share) {
      const int64_t place_end = std::min(place + turn, end);
      Watch<S> watch(p);
      for (int64_t plane = place; plane < place_end; plane += lanes) {
        PoolPlanes<S, kRoutes>(rows, plane, place_end - plane, codes + (plane - place), watch);
      }
      // A line is one output, and begins at a byte.
      if constexpr (kRoutes) PackCodes(codes, place_end - place, std::max(p.routes.bits, 8), rows.route_row(place));
      const bool special =
          watch.Fired() != Alarm::kNone && HasSpecial<S>(rows.plane(place), n * (place_end - place), p.dtype);
      for (int64_t plane = place; special && plane < place_end; ++plane) {
        if (HasSpecial<S>(rows.plane(plane), n, p.dtype)) RunExactRow<S>(rows, rows.plane(plane), 0, 0, {0, 1}, plane);
      }
      rows.Finish(place, place_end - place, {0, 1});
    }
  }
}

template <class S, bool kRoutes>
Made MakeGlobal(const Problem& p) {
  for (const Axis& a : p.axis) {
    if (a.kernel != a.in || a.out != 1 || a.dilation != 1 || a.pad_lo != 0) return "the window is not the whole plane";
  }
  if (p.channels_last() && p.channels > 1) return "it needs channels first";
  if (p.in_plane() < LaneCount<S>()) return "a plane is shorter than a vector";
  if (kRoutes && sizeof(S) < 4 && p.in_plane() > (int64_t{1} << (8 * sizeof(S))) - 1)
    return "a tap's number does not fit a lane";
  Kernel kernel;
  kernel.tasks_per_thread = 1;  // long runs of addresses
  kernel.units = p.batch * p.channels;
  kernel.run = RunGlobal<S, kRoutes>;
  return kernel;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
