// Max pooling of channels first where the windows tile the width: kernel = stride = 2, 3 or 4, no padding there. De-interleaving
// loads bring every tap of a vector of outputs into its own register, so nothing passes through scratch.

// Per-target include guard
#if defined(POOLGRAD_CPU_INTERLEAVED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_INTERLEAVED_INL_H_
#undef POOLGRAD_CPU_INTERLEAVED_INL_H_
#else
#define POOLGRAD_CPU_INTERLEAVED_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/exact-inl.h"
#include "cpu/order-inl.h"
#include "cpu/reduce-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/scratch.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class S>
struct InterleavedScratch {
  int64_t group;  // output rows between two looks at the Watch
  const S** inputs;
  Code<S>* input_codes;  // of every tap, row after row
  Code<S>* out_codes;
  Code<S>* exact_codes;  // of one row

  InterleavedScratch(const Problem& p, bool with_codes, ScratchTaker& take) {
    group = std::clamp<int64_t>(2048 / p.width().out, 1, 64);
    const int64_t rows = p.depth().kernel * p.height().kernel;
    inputs = take.Take<const S*>(rows);
    input_codes = take.Take<Code<S>>(rows * p.width().kernel);
    out_codes = take.Take<Code<S>>(with_codes ? group * p.width().out : 0);
    exact_codes = take.Take<Code<S>>(with_codes ? p.width().out : 0);
  }
};

// `runs` rows of outputs, each from n input rows that lie in_pitch further than for the row before. kN is n where it is known,
// else 0.
template <class S, bool kRoutes, int kStride, int kN>
HWY_NOINLINE void InterleavedRows(const S* const* inputs, const Code<S>* input_codes, int64_t n, bool backwards, int64_t runs,
                                  int64_t in_pitch, int64_t length, S* y, OutCodes<S> y_codes, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  const SourceCodes<S, kN * kStride> codes(kRoutes ? input_codes : nullptr);
  const S* known[kN > 0 ? kN : 1];
  for (int i = 0; i < kN; ++i) known[i] = inputs[i];
  const S* const* list = kN > 0 ? known : inputs;
  const int64_t full = length / lanes * lanes;
  for (int64_t r = 0; r < runs; ++r, y += length, y_codes = y_codes + length) {
    const int64_t from = r * in_pitch;
    const auto at = [&](int64_t j) POOLGRAD_LAMBDA {
      Best<S, kRoutes> best;
      const auto row = [&](int64_t i) POOLGRAD_LAMBDA {
        const S* x = list[i] + from + j * kStride;
        VecOf<S> v[4];
        if constexpr (kStride == 2) hn::LoadInterleaved2(d, x, v[0], v[1]);
        if constexpr (kStride == 3) hn::LoadInterleaved3(d, x, v[0], v[1], v[2]);
        if constexpr (kStride == 4) hn::LoadInterleaved4(d, x, v[0], v[1], v[2], v[3]);
        if (backwards) {
          std::swap(v[0], v[kStride - 1]);
          if constexpr (kStride == 4) std::swap(v[1], v[2]);
        }
        for (int t = 0; t < kStride; ++t) v[t] = Key<S>(v[t]);
        watch.template See<0>(v[0]);
        watch.template See<1>(v[1]);
        if constexpr (kStride > 2) watch.template See<2>(v[2]);
        if constexpr (kStride > 3) watch.template See<3>(v[3]);
        const auto code = [&](int t) POOLGRAD_LAMBDA { return codes[i * kStride + t]; };
        if (i == 0) {
          best.key = v[0];
          if constexpr (kRoutes) best.code = code(0);
        } else {
          best.Meet(v[0], [&]() POOLGRAD_LAMBDA { return code(0); });
        }
        for (int t = 1; t < kStride; ++t) best.Meet(v[t], [&]() POOLGRAD_LAMBDA { return code(t); });
      };
      row(0);
      for (int64_t i = 1; i < (kN > 0 ? kN : n); ++i) row(i);
      watch.SeeWinner(best.key);
      return best;
    };
    const auto put = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA { hn::StoreU(Key<S>(best.key), d, y + j); };
    ForWholeVectors<S, kRoutes>(0, full, y_codes, at, put);
    if (full < length) {
      const Best<S, kRoutes> last = at(length - lanes);
      put(last, length - lanes);
      if constexpr (kRoutes) y_codes.Store(last.code, length - lanes);
    }
  }
  shared_watch = watch;
}

template <class S, bool kRoutes, int kStride>
void RunInterleavedBy(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  const Axis& depth = p.depth();
  const Axis& height = p.height();
  const int64_t out = p.width().out;
  ScratchTaker take(memory);
  const InterleavedScratch<S> scratch(p, kRoutes, take);
  const Range whole_d = depth.interior();
  const Range whole_h = height.interior();
  int64_t oh = begin % height.out;
  int64_t od = begin / height.out % depth.out;
  int64_t plane = begin / height.out / depth.out;

  const auto advance = [&](int64_t& plane_at, int64_t& od_at, int64_t& oh_at, int64_t by) {
    oh_at += by;
    if (oh_at < height.out) return;
    oh_at = 0;
    if (++od_at < depth.out) return;
    od_at = 0;
    ++plane_at;
  };
  for (int64_t r = begin; r < end;) {
    const int64_t count = std::min(scratch.group, end - r);
    int64_t group_oh = oh;
    int64_t group_od = od;
    int64_t group_plane = plane;
    Watch<S> watch(p.dtype);
    for (int64_t g = 0; g < count;) {
      const bool whole = oh >= whole_h.begin && oh < whole_h.end;
      const Range d = od >= whole_d.begin && od < whole_d.end ? Range{0, depth.kernel} : depth.valid_taps(od);
      const Range h = whole ? Range{0, height.kernel} : height.valid_taps(oh);
      const int64_t runs = whole ? std::min(count - g, whole_h.end - oh) : 1;
      int64_t n = 0;
      for (int64_t kd = d.begin; kd < d.end; ++kd) {
        for (int64_t kh = h.begin; kh < h.end; ++kh, ++n) {
          const int64_t at = rows.backwards ? d.size() * h.size() - 1 - n : n;
          scratch.inputs[at] = rows.row(rows.plane(plane), depth.start(od) + kd * depth.dilation,
                                        height.start(oh) + kh * height.dilation);
          for (int t = 0; kRoutes && t < kStride; ++t) {
            const int64_t kw = rows.backwards ? kStride - 1 - t : t;
            scratch.input_codes[at * kStride + t] = static_cast<Code<S>>((kd * height.kernel + kh) * kStride + kw);
          }
        }
      }
      S* y = rows.y_row(r + g);
      const OutCodes<S> codes = OutCodesOf<S>(p, scratch.out_codes) + g * out;
      const int64_t in_pitch = height.stride * p.width().in;
      if (n == 2) {
        InterleavedRows<S, kRoutes, kStride, 2>(scratch.inputs, scratch.input_codes, n, rows.backwards, runs, in_pitch, out, y,
                                                codes, watch);
      } else if (n > 0) {
        InterleavedRows<S, kRoutes, kStride, 0>(scratch.inputs, scratch.input_codes, n, rows.backwards, runs, in_pitch, out, y,
                                                codes, watch);
      }
      g += runs;
      advance(plane, od, oh, runs);
    }
    const bool alarm = watch.Fired() != Alarm::kNone || p.routes.may_be_none;
    for (int64_t g = 0; g < count; ++g, advance(group_plane, group_od, group_oh, 1)) {
      uint8_t* routes = kRoutes ? rows.route_row(r + g) : nullptr;
      const S* x = rows.plane(group_plane);
      const bool empty = alarm && (depth.valid_taps(group_od).size() == 0 || height.valid_taps(group_oh).size() == 0);
      if (empty || (alarm && SeesSpecial(rows, x, group_od, group_oh, {0, out}))) {
        RunExactRow<S>(p, x, group_od, group_oh, {0, out}, rows.y_row(r + g), routes,
                       kRoutes ? scratch.exact_codes : nullptr);
      } else if (kRoutes) {
        PackRow(p, OutCodesOf<S>(p, scratch.out_codes) + g * out, {0, out}, routes);
      }
    }
    r += count;
  }
}

// Null where a row of outputs is shorter than a vector.
template <class S, bool kRoutes>
RunFn SelectInterleaved(const Problem& p) {
  if (p.width().out < LaneCount<S>()) return nullptr;
  switch (p.width().stride) {
    case 2: return RunInterleavedBy<S, kRoutes, 2>;
    case 3: return RunInterleavedBy<S, kRoutes, 3>;
    default: return RunInterleavedBy<S, kRoutes, 4>;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
