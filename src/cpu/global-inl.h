// Max pooling of channels first where the window is the whole plane: each plane is one contiguous array with one winner.
//
// A plane is reduced lane by lane, and then as many planes as there are lanes are folded together, even lanes against odd
// ones, until every lane holds one plane's winner. Lanes do not follow each other in the array, so a tie between lanes is
// decided by the tap's number.

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

#include "cpu/exact-inl.h"
#include "cpu/order-inl.h"
#include "cpu/rows-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The lane-wise best of n >= Lanes values.
template <class S, bool kRoutes>
HWY_INLINE Best<S, kRoutes> BestOfLanes(const S* x, int64_t n, bool backwards, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  const auto iota = hn::Iota(du, 0);
  const auto load = [&](int64_t at) POOLGRAD_LAMBDA { return Key<S>(hn::LoadU(d, x + at)); };
  const auto code = [&](int64_t at) POOLGRAD_LAMBDA { return hn::Add(iota, hn::Set(du, static_cast<Code<S>>(at))); };
  Best<S, kRoutes> best;
  const auto meet = [&](int64_t at) POOLGRAD_LAMBDA {
    const auto key = load(at);
    watch.See(key);
    best.Meet(key, [&]() POOLGRAD_LAMBDA { return code(at); });
  };
  const int64_t first = backwards ? n - lanes : 0;
  best.key = load(first);
  if constexpr (kRoutes) best.code = code(first);
  watch.See(best.key);
  if (backwards) {
    for (int64_t at = n / lanes * lanes - lanes; at >= 0; at -= lanes) meet(at);
  } else {
    for (int64_t at = lanes; at + lanes <= n; at += lanes) meet(at);
    if (n % lanes != 0) meet(n - lanes);
  }
  return best;
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
    const auto beats = hn::Or(hn::Gt(odd, even.key), hn::And(hn::Eq(odd, even.key), hn::RebindMask(d, earlier)));
    even.code = hn::IfThenElse(hn::RebindMask(du, beats), odd_code, even.code);
  }
  if constexpr (kIsFloat<S>) {
    even.key = Greater(odd, even.key);
  } else {
    even.key = hn::Max(odd, even.key);
  }
  return even;
}

template <class S, bool kRoutes>
void RunGlobal(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const Rows<S> rows(p, args);
  const int64_t lanes = LaneCount<S>();
  const int64_t n = p.in_plane();
  constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<S>());
  HWY_ALIGN S values[kMax];
  HWY_ALIGN Code<S> codes[kMax];
  const int32_t bits = std::max(p.routes.bits, 8);  // a line is one output, and begins at a byte
  for (int64_t plane = begin; plane < end; plane += lanes) {
    const int64_t count = std::min(lanes, end - plane);
    Watch<S> watch(p.dtype);
    Best<S, kRoutes> best[kMax];
    for (int64_t i = 0; i < lanes; ++i) {
      best[i] = BestOfLanes<S, kRoutes>(rows.plane(plane + std::min(i, count - 1)), n, rows.backwards, watch);
    }
    for (int64_t m = lanes; m > 1; m /= 2) {
      for (int64_t i = 0; i < m; i += 2) best[i / 2] = Fold(best[i], best[i + 1], rows.backwards);
    }
    watch.SeeWinner(best[0].key);
    hn::Store(Key<S>(best[0].key), d, values);
    std::memcpy(rows.y + plane, values, static_cast<size_t>(count) * sizeof(S));
    if constexpr (kRoutes) {
      hn::Store(best[0].code, du, codes);
      PackCodes(codes, count, bits, rows.route_row(plane));
    }
    if (watch.Fired() == Alarm::kNone) continue;
    for (int64_t i = plane; i < plane + count; ++i) {
      if (!HasSpecial<S>(rows.plane(i), n, p.dtype)) continue;
      RunExactRow<S>(p, rows.plane(i), 0, 0, {0, 1}, rows.y_row(i), kRoutes ? rows.route_row(i) : nullptr, codes);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
