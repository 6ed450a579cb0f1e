// relu: y is never below 0, and a window whose winner is not above 0 (or a NaN that its rule let win) has no route.
//
// Rectifying, and adding a bias before it, keep the order of values, so they may wait until winners are known: whatever
// kernel pooled, this goes over its outputs and their routes once more while they are in cache (Kernel::finish). So
// relu is one rule here and none in the kernels.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/rectify.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/forward/common/codes-inl.h"
#include "cpu/forward/forward.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

RunFn RectifierOf(const Problem&) { return nullptr; }

#else

// Which lanes outlive the rectifier (spec/rules.h, PassesRelu). Halves are held as their bits, in int16_t; `infinity`
// is theirs.
template <class S, class D = hn::ScalableTag<S> >
HWY_INLINE hn::Mask<D> Passes(hn::Vec<D> v, [[maybe_unused]] S infinity) {
  const D d;
  if constexpr (std::is_floating_point_v<S>) {
    return hn::Or(hn::Gt(v, hn::Zero(d)), hn::IsNaN(v));
  } else if constexpr (std::is_same_v<S, int16_t>) {  // negative NaNs have more in their lower bits than infinity has
    const auto magnitude = hn::And(v, hn::Set(d, int16_t{0x7FFF}));
    return hn::Or(hn::Gt(v, hn::Zero(d)), hn::Gt(magnitude, hn::Set(d, infinity)));
  } else {
    return hn::Gt(v, hn::Zero(d));
  }
}

// Sets the codes of dropped outputs (0xFF, else 0) to all ones.
HWY_INLINE void DropCodes(hn::Vec<hn::ScalableTag<uint8_t> > dropped, int32_t bits, uint8_t* codes) {
  const hn::ScalableTag<uint8_t> d8;
  HWY_ALIGN uint8_t packed[hn::MaxLanes(d8)];
  size_t bytes = hn::Lanes(d8);
  switch (bits) {
    case 8:
      return hn::StoreU(hn::Or(hn::LoadU(d8, codes), dropped), d8, codes);
    case 4:
      StorePacked<4>(dropped, packed);
      bytes /= 2;
      break;
    case 2:
      StorePacked<2>(dropped, packed);
      bytes /= 4;
      break;
    default: {
      hn::Store(dropped, d8, packed);
      const size_t width = static_cast<size_t>(bits) / 8;
      for (size_t i = 0; i < hn::Lanes(d8); ++i) {
        for (size_t b = 0; b < width; ++b) codes[i * width + b] |= packed[i];
      }
      return;
    }
  }
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t old, drop;
    std::memcpy(&old, codes + i, 4);
    std::memcpy(&drop, packed + i, 4);
    old |= drop;
    std::memcpy(codes + i, &old, 4);
  }
}

// n outputs of one line of routes, from a byte on; codes may be null.
template <class S>
void RectifyRun(const Problem& p, S* y, int64_t n, uint8_t* codes) {
  using U = hwy::MakeUnsigned<S>;
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<U> du;
  const S infinity = static_cast<S>(p.dtype == POOLGRAD_BF16 ? 0x7F80 : 0x7C00);  // of halves
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kVectors = sizeof(S);
  const int64_t block = lanes * kVectors;
  const RouteFormat& f = p.routes;
  int64_t i = 0;
  for (; i + block <= n && !(codes && f.masks); i += block) {
    hn::Vec<decltype(du)> dropped[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto v = hn::LoadU(d, y + i + k * lanes);
      const auto passes = Passes<S>(v, infinity);
      hn::StoreU(hn::IfThenElseZero(passes, v), d, y + i + k * lanes);
      dropped[k] = hn::BitCast(du, hn::VecFromMask(d, hn::Not(passes)));
    }
    if (codes) DropCodes(BytesOf<U>(dropped), f.bits, codes + i * f.bits / 8);
  }
  HWY_ALIGN S one[hn::MaxLanes(hn::ScalableTag<S>())] = {};
  for (; i < n; ++i) {
    one[0] = y[i];
    if (hn::FindFirstTrue(d, Passes<S>(hn::Load(d, one), infinity)) == 0) continue;
    y[i] = S{0};
    if (!codes) continue;
    if (f.masks) {
      std::memset(codes + i * f.mask_bytes(), 0, static_cast<size_t>(f.mask_bytes()));
    } else if (f.bits >= 8) {
      std::memset(codes + i * f.bits / 8, 0xFF, static_cast<size_t>(f.bits / 8));
    } else {
      const int64_t at = i * f.bits;
      codes[at / 8] = static_cast<uint8_t>(codes[at / 8] | f.none() << (at % 8));
    }
  }
}

// y[i] += bias[i], or bias[0] for all, rounded once; -inf, which nobody or nothing won, stays.
template <class T, bool kSame>
void AddBiasRun(T* y, int64_t n, const T* bias) {
  const WideTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<Wide<T> >::infinity());
  const auto same = hn::Set(d, Widen(bias[0]));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto some = static_cast<size_t>(std::min(lanes, n - i));
    const auto v = LoadWideN(d, y + i, some);
    const auto sum = hn::Add(v, kSame ? same : LoadWideN(d, bias + (kSame ? 0 : i), some));
    StoreNarrowN(d, hn::IfThenElse(hn::Eq(v, lowest), v, sum), y + i, some);
  }
}

// To n outputs from `at` on, which may be of several channels.
template <class T>
void AddBias(const Problem& p, const Args& args, int64_t at, int64_t n) {
  const int64_t run = p.channels_last() ? p.channels : p.out_plane();
  const auto* bias = static_cast<const T*>(args.bias);
  auto* y = static_cast<T*>(args.result);
  for (const int64_t end = at + n; at < end;) {
    const int64_t within = at % run, some = std::min(run - within, end - at);
    if (p.channels_last()) {
      AddBiasRun<T, false>(y + at, some, bias + within);
    } else {
      AddBiasRun<T, true>(y + at, some, bias + at / run % p.channels);
    }
    at += some;
  }
}

void AddBiasOfType([[maybe_unused]] const Problem& p, [[maybe_unused]] const Args& args, [[maybe_unused]] int64_t at,
                   [[maybe_unused]] int64_t n) {
#ifndef POOLGRAD_SMALL  // which leaves a bias to the reference
  switch (p.dtype) {
    case POOLGRAD_F64:
      return AddBias<double>(p, args, at, n);
    case POOLGRAD_F16:
      return AddBias<F16>(p, args, at, n);
    case POOLGRAD_BF16:
      return AddBias<BF16>(p, args, at, n);
    default:
      return AddBias<float>(p, args, at, n);
  }
#endif
}

// Units are equal runs of y, each within a line of routes or of whole lines.
template <class S>
void Rectify(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const RouteFormat& f = p.routes;
  const int64_t each = p.y_elements() / args.units;
  int64_t at = begin * each;
  const int64_t last = end * each;
  auto* y = static_cast<S*>(args.result);
  const bool packed =
      args.routes == nullptr || f.line * f.bits == 8 * f.line_bytes;  // lines follow one another without gaps
  while (at < last) {
    const int64_t line = at / f.line;
    const int64_t within = at % f.line;
    const int64_t n = packed ? last - at : std::min(last - at, f.line - within);
    if (p.bias) AddBiasOfType(p, args, at, n);
    RectifyRun<S>(p, y + at, n, args.routes ? args.routes + LineOffset(f, line) + within * f.bits / 8 : nullptr);
    at += n;
  }
}

RunFn RectifierOf(const Problem& p) {
#ifdef POOLGRAD_SMALL
  return p.dtype == POOLGRAD_F32 && !p.bias ? Rectify<float> : nullptr;
#else
  switch (p.dtype) {
    case POOLGRAD_F32:
      return Rectify<float>;
    case POOLGRAD_F64:
      return Rectify<double>;
    case POOLGRAD_F16:
    case POOLGRAD_BF16:
      return Rectify<int16_t>;
    case POOLGRAD_I8:
      return Rectify<int8_t>;
    case POOLGRAD_U8:
      return Rectify<uint8_t>;
    case POOLGRAD_I32:
      return Rectify<int32_t>;
  }
  return nullptr;
#endif
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(RectifierOf);

RunFn MakeRectifier(const Problem& problem, int64_t simd) { return POOLGRAD_DISPATCH(RectifierOf, simd)(problem); }

}  // namespace poolgrad
#endif  // HWY_ONCE
