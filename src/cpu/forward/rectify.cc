// A bias, and relu after it: y is never below 0, and a window whose winner is not above 0 (or a NaN that its rule let
// win) has no route.
//
// Rectifying, and adding a bias before it, keep the order of values, so they may wait until winners are known. Without
// a bias, winners are rectified where they are stored (Watch::ToY, exact-inl.h): to go over y once more took 1.1 to 2
// times as long as plain pooling. Kernels do not know of a bias. They call this (Kernel::finish) for outputs as they
// make them, while these are in cache.
#define POOLGRAD_WIDER HWY_AVX2  // a pass over what lies in the cache
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/rectify.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/forward/forward.h"
#include "hwy/highway.h"
#include "spec/problem.h"
#if HWY_TARGET != HWY_SCALAR
#include "cpu/forward/common/codes-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

constexpr int64_t kTogether = 512;  // outputs whose routes are dropped together

// Takes the routes of n outputs, from a byte on, where `dropped` is 0xFF and not 0.
void DropRoutes(const RouteFormat& f, const uint8_t* dropped, int64_t n, uint8_t* routes) {
  uint8_t packed[kTogether];
  if (f.masks) {
    const auto bytes = static_cast<size_t>(f.mask_bytes());
    for (int64_t i = 0; i < n; ++i) {
      if (dropped[i]) std::memset(routes + i * f.mask_bytes(), 0, bytes);
    }
    return;
  }
  if (f.bits > 8) {
    for (int64_t i = 0, bytes = f.bits / 8; i < n; ++i) {
      for (int64_t b = 0; b < bytes; ++b) *routes++ |= dropped[i];
    }
    return;
  }
  if (f.bits < 8) {
    PackCodes(dropped, n, f.bits, packed);
    dropped = packed;
  }
  const hn::CappedTag<uint8_t, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t bytes = CeilDiv(n * f.bits, 8);
  int64_t i = 0;
  for (; i + lanes <= bytes; i += lanes) {
    hn::StoreU(hn::Or(hn::LoadU(d, routes + i), hn::LoadU(d, dropped + i)), d, routes + i);
  }
  for (; i < bytes; ++i) routes[i] |= dropped[i];
}

// At most kTogether outputs of one line of routes, from a byte on; routes may be null: y[i] + bias[i], or bias[0] for
// all (`same`), rounded once; -inf, which nobody or nothing won, stays and is dropped.
template <class T>
void RectifyRun(const Problem& p, T* y, int64_t n, const T* bias, bool same, uint8_t* routes) {
  const hn::ScalableTag<Wide<T> > d;
  using D = decltype(d);
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint8_t dropped[kTogether];
  const auto first = hn::Set(d, Widen(bias[0]));
  const auto rectify = [&](int64_t i, int64_t some) POOLGRAD_LAMBDA {
    auto v = LoadSome(d, y + i, some);
    const auto lost = hn::Eq(v, hn::Set(d, -std::numeric_limits<Wide<T> >::infinity()));
    v = hn::Add(v, same ? first : LoadSome(d, bias + i, some));
    const auto drops = hn::Or(lost, hn::Le(v, hn::Zero(d)));
    StoreSome(d, hn::IfThenZeroElse(drops, v), y + i, some);
    if (routes) hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, hn::VecFromMask(d, drops))), d8, dropped + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) rectify(i, lanes);
  if (i < n) rectify(i, n - i);
  if (routes) DropRoutes(p.routes, dropped, n, routes);
}

// Outputs of one line of routes, from a byte on, or of whole lines.
template <class T>
void Rectify(const Problem& p, const Args& args, Range outputs) {
  const RouteFormat& f = p.routes;
  const auto* bias = static_cast<const T*>(args.bias);
  auto* y = static_cast<T*>(args.result);
  const bool packed =
      args.routes == nullptr || f.line * f.bits == 8 * f.line_bytes;  // lines follow one another without gaps
  // Neighbours have the same bias, or those of neighbouring channels: all channels, where there are few, several times.
  const bool same = !p.channels_last() && p.out_plane() > 1;
  const int64_t run = same ? p.out_plane() : p.channels;
  const int64_t few = !same && run <= kTogether / 2 ? std::min(kTogether, outputs.size()) / run * run : 0;
  T repeated[kTogether];
  for (int64_t i = 0; i < few; i += run) std::copy(bias, bias + run, repeated + i);
  int64_t of_line = outputs.begin % f.line, of_run = outputs.begin % run, channel = outputs.begin / run % p.channels;
  uint8_t* routes = args.routes ? args.routes + LineOffset(f, outputs.begin / f.line) : nullptr;
  for (int64_t at = outputs.begin; at < outputs.end;) {
    const bool repeats = of_run == 0 && few > 0;
    int64_t n = std::min(kTogether, outputs.end - at);
    if (!packed) n = std::min(n, f.line - of_line);
    n = std::min(n, repeats ? few : run - of_run);
    const T* of_these = repeats ? repeated : bias + (same ? channel : of_run);
    RectifyRun<T>(p, y + at, n, of_these, same, routes ? routes + of_line * f.bits / 8 : nullptr);
    at += n;
    of_line += n;
    if (!packed && of_line == f.line) {
      of_line = 0;
      routes += f.line_bytes;
    }
    of_run = repeats && n == few ? 0 : of_run + n;
    if (of_run == run) {
      of_run = 0;
      channel = channel + 1 < p.channels ? channel + 1 : 0;
    }
  }
}

Finisher RectifierOf([[maybe_unused]] const Problem& p) {
#ifndef POOLGRAD_SMALL  // which leaves a bias to the reference
  if (p.dtype == POOLGRAD_F32) return Rectify<float>;
  if (p.dtype == POOLGRAD_F64) return Rectify<double>;
  if (p.dtype == POOLGRAD_F16) return Rectify<F16>;
  if (p.dtype == POOLGRAD_BF16) return Rectify<BF16>;
#endif
  return nullptr;
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {

Finisher MakeRectifier(const Problem& problem, int64_t simd) {
  const auto of = POOLGRAD_DISPATCH(Finisher(const Problem&), RectifierOf, simd);
  return of ? of(problem) : nullptr;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
