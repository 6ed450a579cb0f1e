// One row of outputs by the letter of spec/rules.h, in vectors: any geometry, every NaN rule, every tie rule, sets of taps too.
// The fast kernels come here for rows in which their Watch saw a special value; problems they do not take come here wholly.
//
// Taps are visited in row-major order and every lane keeps its own winner, so the result is the reference's bit for bit.

// Per-target include guard
#if defined(POOLGRAD_CPU_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_EXACT_INL_H_
#undef POOLGRAD_CPU_EXACT_INL_H_
#else
#define POOLGRAD_CPU_EXACT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/simd/order-inl.h"
#include "cpu/forward/routes-inl.h"
#include "hwy/highway.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Values as the rules compare them: -0 equals +0, a NaN is above, below and equal to nothing.
template <class S>
struct Standings {
  using D = hn::ScalableTag<S>;
  using M = hn::Mask<D>;
  M above, equal, v_nan, best_nan;
};

template <class S>
HWY_INLINE Standings<S> Stand(VecOf<S> v, VecOf<S> best, S infinity) {
  const hn::ScalableTag<S> d;
  if constexpr (kIsFloat<S>) {
    (void)infinity;
    return {hn::Gt(v, best), hn::Eq(v, best), hn::IsNaN(v), hn::IsNaN(best)};
  } else if constexpr (kIsHalf<S>) {
    const auto lowest = hn::Set(d, std::numeric_limits<S>::min());
    const auto key = [&](VecOf<S> raw) { return hn::IfThenElse(hn::Lt(raw, hn::Zero(d)), hn::Sub(lowest, raw), raw); };
    const auto is_nan = [&](VecOf<S> raw) { return hn::Gt(hn::AndNot(lowest, raw), hn::Set(d, infinity)); };
    const auto v_nan = is_nan(v);
    const auto best_nan = is_nan(best);
    const auto either = hn::Or(v_nan, best_nan);
    const auto a = key(v);
    const auto b = key(best);
    return {hn::AndNot(either, hn::Gt(a, b)), hn::AndNot(either, hn::Eq(a, b)), v_nan, best_nan};
  } else {
    const auto never = hn::FirstN(d, 0);
    return {hn::Gt(v, best), hn::Eq(v, best), never, never};
  }
}

template <class S>
HWY_INLINE hn::Mask<hn::ScalableTag<S>> Beats(const Standings<S>& s, poolgrad_nan rule) {
  if constexpr (kIsInt<S>) return s.above;
  switch (rule) {
    case POOLGRAD_NAN_PROPAGATE_LAST: return hn::Or(s.above, s.v_nan);
    case POOLGRAD_NAN_FIRST_PLACE:
    case POOLGRAD_NAN_IGNORE: return s.above;
    case POOLGRAD_NAN_GREATER_EQUAL: return hn::Or(s.above, hn::Or(s.v_nan, s.best_nan));
    default: return hn::Or(s.above, hn::AndNot(s.best_nan, s.v_nan));
  }
}

// A row of outputs: the outputs of one (plane, od, oh). `at` counts elements in the row: ow * inner + channel.
template <class S>
struct ExactRow {
  const Problem& p;
  const S* x;  // of this plane
  int64_t inner;
  Range d, h;  // taps
  int64_t start_d, start_h;

  ExactRow(const Problem& problem, const S* plane, int64_t od, int64_t oh)
      : p(problem), x(plane), inner(problem.channels_last() ? problem.channels : 1), d(problem.depth().valid_taps(od)),
        h(problem.height().valid_taps(oh)), start_d(problem.depth().start(od)), start_h(problem.height().start(oh)) {}

  // Calls visit(tap, value, valid) for every tap of the n <= Lanes outputs from (ow, c) on: n channels of one ow, or (where
  // inner is 1) n neighbouring ow. Lanes of a tap that is not valid hold anything.
  template <class Visit>
  HWY_INLINE void ForEachTap(int64_t ow, int64_t c, int64_t n, const Visit& visit) const {
    const hn::ScalableTag<S> dv;
    const int64_t lanes = LaneCount<S>();
    const Axis& width = p.width();
    const int64_t last = inner == 1 ? ow + n - 1 : ow;
    Range w = width.valid_taps(ow);
    bool all_valid = true;
    for (int64_t o = ow + 1; o <= last; ++o) {
      const Range other = width.valid_taps(o);
      all_valid = all_valid && other.begin == w.begin && other.end == w.end;
      w = {std::min(w.begin, other.begin), std::max(w.end, other.end)};
    }
    const bool contiguous = inner > 1 || n == 1 || width.stride == 1;
    HWY_ALIGN S buffer[hn::MaxLanes(hn::ScalableTag<S>())] = {};
    HWY_ALIGN Code<S> valid[hn::MaxLanes(hn::ScalableTag<S>())];
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        const int64_t in_d = start_d + kd * p.depth().dilation;
        const int64_t in_h = start_h + kh * p.height().dilation;
        const S* row = x + (in_d * p.height().in + in_h) * width.in * inner + c;
        for (int64_t kw = w.begin; kw < w.end; ++kw) {
          const int64_t tap = (kd * p.height().kernel + kh) * width.kernel + kw;
          const int64_t in_w = width.start(ow) + kw * width.dilation;
          if (all_valid && contiguous) {
            if (n == lanes) {
              visit(tap, hn::LoadU(dv, row + in_w * inner), hn::FirstN(dv, static_cast<size_t>(n)));
              continue;
            }
            std::memcpy(buffer, row + in_w * inner, static_cast<size_t>(n) * sizeof(S));
            visit(tap, hn::Load(dv, buffer), hn::FirstN(dv, static_cast<size_t>(n)));
            continue;
          }
          for (int64_t i = 0; i < lanes; ++i) {
            const int64_t at = in_w + i * width.stride;
            const bool ok = i < n && at >= 0 && at < width.in;
            buffer[i] = ok ? row[at] : S{0};
            valid[i] = static_cast<Code<S>>(ok ? ~Code<S>{0} : Code<S>{0});
          }
          const hn::ScalableTag<Code<S>> du;
          visit(tap, hn::Load(dv, buffer), hn::RebindMask(dv, hn::Eq(hn::Load(du, valid), hn::Set(du, static_cast<Code<S>>(~Code<S>{0})))));
        }
      }
    }
  }

  // y and codes (none as all ones) of n outputs; masks (null: not kept) gets mask_bytes per output.
  void Block(int64_t ow, int64_t c, int64_t n, S* y, Code<S>* codes, uint8_t* masks) const {
    const hn::ScalableTag<S> dv;
    const hn::ScalableTag<Code<S>> du;
    const S infinity = static_cast<S>(kIsHalf<S> ? (p.dtype == POOLGRAD_BF16 ? 0x7F80 : 0x7C00) : 0);
    const bool takes_ties = p.ties == POOLGRAD_TIES_LAST;
    auto best = hn::Set(dv, LowestRaw<S>(p.dtype));
    auto code = hn::Set(du, static_cast<Code<S>>(~Code<S>{0}));
    auto waiting = !kIsInt<S> && p.nan == POOLGRAD_NAN_IGNORE ? hn::FirstN(dv, 0) : hn::FirstN(dv, hn::Lanes(dv));
    ForEachTap(ow, c, n, [&](int64_t tap, VecOf<S> v, hn::Mask<decltype(dv)> valid) HWY_ATTR {
      const Standings<S> s = Stand<S>(v, best, infinity);
      auto take = hn::Or(Beats<S>(s, p.nan), waiting);
      if (takes_ties) take = hn::Or(take, s.equal);
      take = hn::And(take, valid);
      waiting = hn::AndNot(valid, waiting);
      best = hn::IfThenElse(take, v, best);
      code = hn::IfThenElse(hn::RebindMask(du, take), hn::Set(du, static_cast<Code<S>>(tap)), code);
    });
    HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
    HWY_ALIGN Code<S> kept[hn::MaxLanes(hn::ScalableTag<S>())];
    hn::Store(best, dv, values);
    hn::Store(code, du, kept);
    std::memcpy(y, values, static_cast<size_t>(n) * sizeof(S));
    if (codes) std::memcpy(codes, kept, static_cast<size_t>(n) * sizeof(Code<S>));
    if (masks) Sets(ow, c, n, best, code, infinity, masks);
  }

  // The set: the tap that last beat the best, and those after it that tie with it.
  void Sets(int64_t ow, int64_t c, int64_t n, VecOf<S> best, CodeVec<S> winner, S infinity, uint8_t* masks) const {
    const hn::ScalableTag<S> dv;
    const hn::ScalableTag<Code<S>> du;
    const hn::RebindToSigned<decltype(du)> di;
    const int64_t bytes = p.routes.mask_bytes();
    for (int64_t i = 0; i < n; ++i) std::memset(masks + i * bytes, 0, static_cast<size_t>(bytes));
    auto bits = hn::Zero(du);
    int64_t byte = -1;
    HWY_ALIGN Code<S> kept[hn::MaxLanes(hn::ScalableTag<S>())];
    const auto flush = [&]() HWY_ATTR {
      hn::Store(bits, du, kept);
      for (int64_t i = 0; byte >= 0 && i < n; ++i) masks[i * bytes + byte] = static_cast<uint8_t>(kept[i]);
      bits = hn::Zero(du);
    };
    ForEachTap(ow, c, n, [&](int64_t tap, VecOf<S> v, hn::Mask<decltype(dv)> valid) HWY_ATTR {
      if (tap / 8 != byte) {
        flush();
        byte = tap / 8;
      }
      const auto number = hn::Set(du, static_cast<Code<S>>(tap));
      const auto after = hn::RebindMask(dv, hn::Gt(hn::BitCast(di, number), hn::BitCast(di, winner)));
      const auto ties = hn::And(after, Stand<S>(v, best, infinity).equal);
      const auto in = hn::And(valid, hn::Or(ties, hn::RebindMask(dv, hn::Eq(number, winner))));
      const auto bit = hn::Set(du, static_cast<Code<S>>(1u << (tap % 8)));
      bits = hn::Or(bits, hn::IfThenElseZero(hn::RebindMask(du, in), bit));
    });
    flush();
  }
};

// Codes of outputs `ow` of a row, from scratch to the row's lines: one line where channels come first, one per ow where last.
template <class U>
void PackRow(const Problem& p, const U* codes, Range ow, uint8_t* routes) {
  const RouteFormat& f = p.routes;
  if (!p.channels_last()) {
    PackCodes(codes, ow.size(), f.bits, routes + ow.begin * f.bits / 8);
  } else if (f.line * f.bits % 8 == 0) {
    PackCodes(codes, ow.size() * f.line, f.bits, routes + LineOffset(f, ow.begin));
  } else if (f.line == 1) {
    for (int64_t i = 0; i < ow.size(); ++i) routes[ow.begin + i] = static_cast<uint8_t>(codes[i] & f.none());
  } else {
    for (int64_t o = ow.begin; o < ow.end; ++o) {
      PackCodes(codes + (o - ow.begin) * f.line, f.line, f.bits, routes + LineOffset(f, o));
    }
  }
}

// Outputs [begin, end) of the row (plane, od, oh), in ow. y and routes point at the row's first output and first route line;
// routes may be null. `codes` is scratch for (end - begin) * inner codes. Where inner is 1, begin must be 0 if routes are kept.
template <class S>
HWY_NOINLINE void RunExactRow(const Problem& p, const S* plane, int64_t od, int64_t oh, Range ow, S* y, uint8_t* routes,
                              Code<S>* codes) {
  const ExactRow<S> row(p, plane, od, oh);
  const int64_t lanes = LaneCount<S>();
  const bool sets = routes && p.routes.masks;
  const int64_t bytes = p.routes.mask_bytes();
  if (row.inner == 1) {
    for (int64_t o = ow.begin; o < ow.end; o += lanes) {
      row.Block(o, 0, std::min(lanes, ow.end - o), y + o, codes ? codes + o - ow.begin : nullptr,
                sets ? routes + o * bytes : nullptr);
    }
    if (routes && !sets) PackRow(p, codes, ow, routes);
    return;
  }
  for (int64_t o = ow.begin; o < ow.end; ++o) {
    uint8_t* line = routes ? routes + LineOffset(p.routes, o) : nullptr;
    for (int64_t c = 0; c < row.inner; c += lanes) {
      row.Block(o, c, std::min(lanes, row.inner - c), y + o * row.inner + c, codes ? codes + c : nullptr,
                sets ? line + c * bytes : nullptr);
    }
    if (routes && !sets) PackCodes(codes, row.inner, p.routes.bits, line);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
