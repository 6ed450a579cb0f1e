// One row of outputs by the letter of spec/rules.h, in vectors: any geometry, every NaN rule, every tie rule, sets of
// taps too. The fast kernels come here for rows in which their Watch saw a special value; problems they do not take
// come here wholly.
//
// Taps are visited in row-major order and every lane keeps its own winner, so the result is the reference's bit for
// bit. Numbers of taps that do not fit a lane are kept in two (TapNumber). Needs no scratch; the time grows with the
// number of taps.
//
// On ordinary values all rules agree: fwd_exact (picked-inl.h) pools rows without them first, and a Watch looks on.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/forward/common/codes-inl.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Values as the rules compare them: -0 equals +0, a NaN is above, below and equal to nothing.
template <class S>
struct Standings {
  using D = hn::ScalableTag<S>;
  using M = hn::Mask<D>;
  M above, equal, v_nan, best_nan;
};

template <class S>
HWY_INLINE Standings<S> Stand(VecOf<S> v, VecOf<S> best, [[maybe_unused]] S infinity) {
  const hn::ScalableTag<S> d;
  if constexpr (kIsFloat<S>) {
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
    case POOLGRAD_NAN_PROPAGATE_LAST:
      return hn::Or(s.above, s.v_nan);
    case POOLGRAD_NAN_FIRST_PLACE:
    case POOLGRAD_NAN_IGNORE:
      return s.above;
    case POOLGRAD_NAN_GREATER_EQUAL:
      return hn::Or(s.above, hn::Or(s.v_nan, s.best_nan));
    default:
      return hn::Or(s.above, hn::AndNot(s.best_nan, s.v_nan));
  }
}

// A tap's number, lane by lane: in two parts where a lane of the type cannot hold it.
template <class S>
struct TapNumber {
  static constexpr bool kTwo = sizeof(S) < 4;
  static constexpr int kBits = kTwo ? 8 * static_cast<int>(sizeof(S)) : 0;
  CodeVec<S> low, high;

  HWY_INLINE explicit TapNumber(int64_t tap) {
    const hn::ScalableTag<Code<S>> du;
    low = hn::Set(du, static_cast<Code<S>>(tap));
    high = kTwo ? hn::Set(du, static_cast<Code<S>>(tap >> kBits)) : low;
  }
  HWY_INLINE void TakeWhere(hn::Mask<hn::ScalableTag<S>> where, const TapNumber& other) {
    const auto mask = hn::RebindMask(hn::ScalableTag<Code<S>>(), where);
    low = hn::IfThenElse(mask, other.low, low);
    if constexpr (kTwo) high = hn::IfThenElse(mask, other.high, high);
  }
  HWY_INLINE hn::Mask<hn::ScalableTag<S>> Is(const TapNumber& other) const {
    const hn::ScalableTag<S> d;
    const auto same = hn::RebindMask(d, hn::Eq(low, other.low));
    if constexpr (!kTwo) return same;
    return hn::And(same, hn::RebindMask(d, hn::Eq(high, other.high)));
  }
  // The first n; none, which is all ones, as all ones.
  HWY_INLINE void Store(int64_t n, uint32_t* to) const {
    const hn::ScalableTag<Code<S>> du;
    HWY_ALIGN Code<S> lows[hn::MaxLanes(hn::ScalableTag<S>())];
    HWY_ALIGN Code<S> highs[hn::MaxLanes(hn::ScalableTag<S>())];
    hn::Store(low, du, lows);
    hn::Store(high, du, highs);
    for (int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<uint32_t>(lows[i]);
      if constexpr (kTwo) to[i] |= static_cast<uint32_t>(highs[i]) << kBits;
      if constexpr (sizeof(S) == 1) to[i] = to[i] == 0xFFFFu ? ~0u : to[i];
    }
  }
};

// A row of outputs: the outputs of one (plane, od, oh). `at` counts elements in the row: ow * inner + channel.
template <class S>
struct ExactRow {
  const Problem& p;
  const S* x;  // of this plane
  int64_t od, oh;
  int64_t inner = p.channels_last() ? p.channels : 1;
  Range d = p.depth().valid_taps(od), h = p.height().valid_taps(oh);  // taps
  int64_t start_d = p.depth().start(od), start_h = p.height().start(oh);

  ExactRow(const Problem& problem, const S* plane, int64_t d_out, int64_t h_out)
      : p(problem), x(plane), od(d_out), oh(h_out) {}

  // Calls visit(tap, value, valid) for every tap of the n <= Lanes outputs from (ow, c) on: n channels of one ow, or
  // (where inner is 1) n neighbouring ow. Lanes of a tap that is not valid hold anything.
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
    const bool contiguous = inner > 1 || n == 1 || (width.stride == 1 && !width.table);
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
            visit(tap, LoadFirst(dv, row + in_w * inner, n), hn::FirstN(dv, static_cast<size_t>(n)));
            continue;
          }
          for (int64_t i = 0; i < lanes; ++i) {
            const int64_t at = i < n ? width.start(ow + i) + kw * width.dilation : 0;
            const bool ok = i < n && at >= 0 && at < width.in && kw < width.size(ow + i);
            buffer[i] = ok ? row[at] : S{0};
            valid[i] = static_cast<Code<S>>(ok ? ~Code<S>{0} : Code<S>{0});
          }
          const hn::ScalableTag<Code<S>> du;
          visit(tap, hn::Load(dv, buffer),
                hn::RebindMask(dv, hn::Eq(hn::Load(du, valid), hn::Set(du, static_cast<Code<S>>(~Code<S>{0})))));
        }
      }
    }
  }

  // y and codes (none as all ones) of n outputs; masks (null: not kept) gets mask_bytes per output. The only place of
  // this file that stores them.
  void Block(int64_t ow, int64_t c, int64_t n, S* y, uint32_t* codes, uint8_t* masks) const {
    const hn::ScalableTag<S> dv;
    const S infinity = static_cast<S>(kIsHalf<S> ? (p.dtype == POOLGRAD_BF16 ? 0x7F80 : 0x7C00) : 0);
    const bool takes_ties = p.ties == POOLGRAD_TIES_LAST;
    const Watch<S> keys(p);  // for u8
    auto best = hn::Set(dv, LowestRaw<S>(p.dtype));
    TapNumber<S> code(~int64_t{0});
    auto waiting = !kIsInt<S> && p.nan == POOLGRAD_NAN_IGNORE ? hn::FirstN(dv, 0) : hn::FirstN(dv, hn::Lanes(dv));
    ForEachTap(ow, c, n, [&](int64_t tap, VecOf<S> raw, hn::Mask<decltype(dv)> valid) HWY_ATTR {
      const auto v = kIsByte<S> ? keys.KeyOf(raw) : raw;
      const Standings<S> s = Stand<S>(v, best, infinity);
      auto take = hn::Or(Beats<S>(s, p.nan), waiting);
      if (takes_ties) take = hn::Or(take, s.equal);
      take = hn::And(take, valid);
      waiting = hn::AndNot(valid, waiting);
      best = hn::IfThenElse(take, v, best);
      code.TakeWhere(take, TapNumber<S>(tap));
    });
    // relu: a window whose winner is not above 0, or a NaN that its rule let win, has no route. (After a bias: later.)
    const auto zero = kIsByte<S> ? keys.KeyOf(hn::Zero(dv)) : hn::Zero(dv);
    const Standings<S> s = Stand<S>(best, zero, infinity);
    const auto dropped = p.relu && !p.bias ? hn::Not(hn::Or(s.above, s.v_nan)) : hn::FirstN(dv, 0);
    if (masks) Sets(ow, c, n, best, code, infinity, dropped, masks);
    code.TakeWhere(dropped, TapNumber<S>(~int64_t{0}));
    best = hn::IfThenElse(dropped, zero, best);
    StoreFirst(dv, kIsByte<S> ? keys.KeyOf(best) : best, y, n);
    if (codes) code.Store(n, codes);
  }

  // The set: the tap that last beat the best, and those after it that tie with it.
  void Sets(int64_t ow, int64_t c, int64_t n, VecOf<S> best, const TapNumber<S>& winner, S infinity,
            hn::Mask<hn::ScalableTag<S>> dropped, uint8_t* masks) const {
    const hn::ScalableTag<S> dv;
    const hn::ScalableTag<Code<S>> du;
    const int64_t bytes = p.routes.mask_bytes();
    for (int64_t i = 0; i < n; ++i) std::memset(masks + i * bytes, 0, static_cast<size_t>(bytes));
    auto bits = hn::Zero(du);
    auto passed = winner.Is(TapNumber<S>(~int64_t{0}));  // the winner has been met, or is what `ignore` starts from
    int64_t byte = -1;
    HWY_ALIGN Code<S> kept[hn::MaxLanes(hn::ScalableTag<S>())];
    const auto flush = [&]() HWY_ATTR {
      hn::Store(bits, du, kept);
      for (int64_t i = 0; byte >= 0 && i < n; ++i) masks[i * bytes + byte] = static_cast<uint8_t>(kept[i]);
      bits = hn::Zero(du);
    };
    const Watch<S> keys(p);
    ForEachTap(ow, c, n, [&](int64_t tap, VecOf<S> raw, hn::Mask<decltype(dv)> valid) HWY_ATTR {
      const auto v = kIsByte<S> ? keys.KeyOf(raw) : raw;
      if (tap / 8 != byte) {
        flush();
        byte = tap / 8;
      }
      const auto wins = winner.Is(TapNumber<S>(tap));
      const auto ties = hn::And(passed, Stand<S>(v, best, infinity).equal);
      const auto in = hn::AndNot(dropped, hn::And(valid, hn::Or(ties, wins)));
      passed = hn::Or(passed, wins);
      const auto bit = hn::Set(du, static_cast<Code<S>>(1u << (tap % 8)));
      bits = hn::Or(bits, hn::IfThenElseZero(hn::RebindMask(du, in), bit));
    });
    flush();
  }
};

// Outputs `ow` of the row (plane, od, oh). y and routes point at the row's first output and first route line; routes
// may be null. Where inner is 1, the routes of output ow.begin begin at a byte, and lanes are neighbouring outputs;
// else they are channels of one.
template <class S>
HWY_NOINLINE void RunExactRow(const Problem& p, const S* plane, int64_t od, int64_t oh, Range ow, S* y,
                              uint8_t* routes) {
  const ExactRow<S> row(p, plane, od, oh);
  const bool across = row.inner == 1;
  const bool one_by_one = across && p.width().stride > p.width().in;  // windows that have no taps in common
  const int64_t step = one_by_one ? 1 : LaneCount<S>();
  const bool sets = routes && p.routes.masks;
  constexpr int64_t kSome = 256;  // codes on their way to a line; so many fill bytes
  uint32_t codes[kSome];
  const int64_t runs = across ? 1 : ow.size(), run = across ? ow.size() : row.inner;
  for (int64_t o = ow.begin; o < ow.begin + runs; ++o) {
    for (int64_t begin = 0; begin < run; begin += kSome) {
      const int64_t end = std::min(begin + kSome, run);
      for (int64_t i = begin; i < end; i += step) {
        const int64_t at = o * row.inner + i;
        row.Block(across ? at : o, across ? 0 : i, std::min(step, end - i), y + at,
                  routes && !sets ? codes + (i - begin) : nullptr,
                  sets ? routes + at * p.routes.mask_bytes() : nullptr);
      }
      if (!routes || sets) continue;
      if (across) {
        PackRow(p, codes, {o + begin, o + end}, routes);
      } else {
        PackCodes(codes, end - begin, p.routes.bits, routes + LineOffset(p.routes, o) + begin * p.routes.bits / 8);
      }
    }
  }
}

// Whether rows of this problem may be pooled without rules: one tap wins, and its number fits a lane.
template <class S>
bool TakesOrdinaryRows(const Problem& p) {
  const double most = static_cast<double>(Code<S>(~Code<S>{0}));
  return !p.routes.masks && static_cast<double>(p.taps()) < most && !p.width().has_empty_window();
}

// kSome vectors from element `at` of a row of inputs on, the last of n elements, with taps w of the width: the winners,
// as `later > best` has them, or with ties=last `later >= best`, and their taps' numbers go to done(v, key, code).
// Every window must have a tap. Where the watch fires it may be wrong.
template <class S, int kSome, class Done>
HWY_INLINE void OrdinaryBlock(const ExactRow<S>& row, Range w, int64_t at, int64_t n, Watch<S>& watch,
                              const Done& done) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const Problem& p = row.p;
  const int64_t lanes = LaneCount<S>(), pitch = p.width().in * row.inner, step = p.width().dilation * row.inner;
  const bool takes_ties = p.ties == POOLGRAD_TIES_LAST;
  const auto number = [&](int64_t kd, int64_t kh) {
    return (kd * p.height().kernel + kh) * p.width().kernel + w.begin;
  };
  VecOf<S> best[kSome], seen[kSome];  // what the watch is shown at the end: sums of floats, the least of keys
  CodeVec<S> code[kSome];
  POOLGRAD_UNROLL for (int v = 0; v < kSome; ++v) {
    seen[v] = hn::Zero(d);
    best[v] = hn::Set(d, LowestKey<S>());
    code[v] = hn::Set(du, static_cast<Code<S>>(number(row.d.begin, row.h.begin)));
  }
  for (int64_t kd = row.d.begin; kd < row.d.end; ++kd) {
    for (int64_t kh = row.h.begin; kh < row.h.end; ++kh) {
      const int64_t in_row =
          (row.start_d + kd * p.depth().dilation) * p.height().in + row.start_h + kh * p.height().dilation;
      const S* from = row.x + in_row * pitch + at;
      auto tap = hn::Set(du, static_cast<Code<S>>(number(kd, kh)));
      for (int64_t kw = w.begin; kw < w.end; ++kw, from += step, tap = hn::Add(tap, hn::Set(du, 1))) {
        POOLGRAD_UNROLL for (int v = 0; v < kSome; ++v) {
          const auto key = watch.KeyOf(kSome == 1 ? LoadFirst(d, from, n) : hn::LoadU(d, from + v * lanes));
          if constexpr (kIsFloat<S>) seen[v] = hn::Add(seen[v], key);
          if constexpr (kHasKeys<S>) seen[v] = hn::Min(seen[v], key);
          const auto takes = takes_ties ? hn::Not(Above<S>(best[v], key)) : Above<S>(key, best[v]);
          code[v] = hn::IfThenElse(hn::RebindMask(du, takes), tap, code[v]);
          best[v] = kByFmax<S> ? Greatest<S>(key, best[v]) : hn::IfThenElse(takes, key, best[v]);
        }
      }
    }
  }
  POOLGRAD_UNROLL for (int v = 0; v < kSome; ++v) {
    if constexpr (kIsFloat<S>) watch.SeeInput(seen[v]);
    if constexpr (kHasKeys<S>) watch.See(seen[v]);
    done(v, best[v], code[v]);
  }
}

// Outputs whose lanes are channels. Codes may go beyond the n outputs.
template <class S>
HWY_INLINE void StoreOrdinary(VecOf<S> key, CodeVec<S> code, int64_t n, S* y, Code<S>* codes, Watch<S>& watch) {
  if constexpr (kIsHalf<S>) watch.SeeWinner(key);
  if (watch.rectifies()) code = hn::Or(code, watch.Dropped(key));
  StoreFirst(hn::ScalableTag<S>(), watch.ToY(key), y, n);
  hn::StoreU(code, hn::ScalableTag<Code<S>>(), codes);
}

template <class S>
HWY_NOINLINE void OrdinaryRow(const ExactRow<S>& row, S* y, uint8_t* routes, Watch<S>& shared_watch) {
  constexpr int64_t kSome = 256;  // codes on their way to a line; so many fill bytes
  HWY_ALIGN Code<S> codes[kSome];
  const Problem& p = row.p;
  const int64_t lanes = LaneCount<S>(), channels = p.channels;
  Watch<S> watch = shared_watch;
  for (int64_t o = 0; o < p.width().out; ++o, y += channels) {
    const Range w = p.width().valid_taps(o);
    const int64_t first = (p.width().start(o) + w.begin * p.width().dilation) * channels;
    for (int64_t begin = 0; begin < channels; begin += kSome) {
      const int64_t end = std::min(begin + kSome, channels);
      int64_t c = begin, n = lanes;
      const auto done = [&](int v, VecOf<S> key, CodeVec<S> code) POOLGRAD_LAMBDA {
        StoreOrdinary<S>(key, code, n, y + c + v * lanes, codes + (c - begin) + v * lanes, watch);
      };
      for (; c + 4 * lanes <= end; c += 4 * lanes) OrdinaryBlock<S, 4>(row, w, first + c, n, watch, done);
      for (; c < end; c += lanes) OrdinaryBlock<S, 1>(row, w, first + c, n = std::min(lanes, end - c), watch, done);
      uint8_t* const to = routes ? routes + LineOffset(p.routes, o) + begin * p.routes.bits / 8 : nullptr;
      if (to) PackCodes(codes, end - begin, p.routes.bits, to);
    }
  }
  shared_watch = watch;
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
