// What kernels that go row by row know of a problem, and max pooling of channels last with windows that share many rows, or
// more taps than a byte can number.
//
// Each input row is reduced along the width once, into a ring of rows that stays in cache, and an output row is the best of the
// reduced rows it covers. Rows keep the first of their ties and earlier rows win ties, which is exactly the first in row-major
// order; ties=last turns both orders around.

// Per-target include guard
#if defined(POOLGRAD_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_ROWS_INL_H_
#undef POOLGRAD_CPU_ROWS_INL_H_
#else
#define POOLGRAD_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/exact-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/forward/reduce-inl.h"
#include "cpu/forward/routes-inl.h"
#include "cpu/scratch.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// What all row-wise kernels know of a problem: planes of rows of `inner` interleaved channels.
template <class S>
struct Rows {
  const Problem& p;
  int64_t inner, planes;
  bool backwards;  // ties=last: prefer the later
  const S* x;
  const S* x_end;
  S* y;
  uint8_t* routes;
  bool* unfit;  // for bits

  Rows(const Problem& problem, const Args& args)
      : p(problem), inner(problem.channels_last() ? problem.channels : 1),
        planes(problem.channels_last() ? problem.batch : problem.batch * problem.channels),
        backwards(problem.ties == POOLGRAD_TIES_LAST), x(static_cast<const S*>(args.source)),
        x_end(x ? x + problem.x_elements() : nullptr), y(static_cast<S*>(args.result)), routes(args.routes), unfit(args.unfit) {}

  // Bits of floats, one of which is negative or NaN: the kernel may stop, another one takes its place.
  void GiveUp() const { *unfit = true; }
  bool GaveUp() const {
    if constexpr (kIsBits<S>) return *unfit;
    return false;
  }

  const S* plane(int64_t i) const { return x + i * p.in_plane() * inner; }
  const S* row(const S* of_plane, int64_t d, int64_t h) const {
    return of_plane + (d * p.height().in + h) * p.width().in * inner;
  }
  int64_t row_count() const { return planes * p.depth().out * p.height().out; }
  S* y_row(int64_t r) const { return y + r * p.width().out * inner; }
  uint8_t* route_row(int64_t r) const {
    return routes ? routes + LineOffset(p.routes, p.channels_last() ? r * p.width().out : r) : nullptr;
  }
};

// The outputs of a row that a fast kernel must not decide: by the rules, or not at all. See RunExactRow in exact-inl.h.
template <class S>
void RunExactRow(const Rows<S>& rows, const S* plane, int64_t od, int64_t oh, Range ow, S* y, uint8_t* routes, Code<S>* codes) {
  if constexpr (kIsBits<S>) {
    rows.GiveUp();
  } else {
    RunExactRow<S>(rows.p, plane, od, oh, ow, y, routes, codes);
  }
}

// The codes of a row's outputs, in scratch: as bytes if the format's codes fit.
template <class S>
OutCodes<S> OutCodesOf(const Problem& p, Code<S>* scratch) {
  return {scratch, sizeof(S) > 1 && p.routes.bits <= 8};
}

template <class S>
void PackRow(const Problem& p, OutCodes<S> codes, Range ow, uint8_t* routes) {
  if (codes.bytes) {
    PackRow(p, reinterpret_cast<const uint8_t*>(codes.lanes), ow, routes);
  } else {
    PackRow(p, codes.lanes, ow, routes);
  }
}

// An input row and the code of its tap 0.
template <class S>
struct Source {
  const S* row;
  Code<S> code;
};

// The best over n rows and all width taps, for outputs `ow`: interior at once, clipped windows one by one.
template <class S, bool kRoutes>
void ReduceWidth(const Rows<S>& rows, const Source<S>* sources, int64_t n, Range ow, const S** taps, Code<S>* codes, S* out,
                 OutCodes<S> out_codes, S* out_end, Watch<S>& watch) {
  const Axis& width = rows.p.width();
  const Range whole = width.interior();
  const int64_t first = ow.begin;
  while (ow.size() > 0) {
    const bool interior = ow.begin >= whole.begin && ow.begin < whole.end;
    const Range piece = {ow.begin, interior ? std::min(ow.end, whole.end) : ow.begin + 1};
    const Range valid = width.valid_taps(piece.begin);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Source<S>& source = sources[i];
      for (int64_t k = 0; k < valid.size(); ++k, ++count) {
        const int64_t kw = rows.backwards ? valid.end - 1 - k : valid.begin + k;
        taps[count] = source.row + (width.start(piece.begin) + kw * width.dilation) * rows.inner;
        codes[count] = static_cast<Code<S>>(source.code + kw);
      }
    }
    const bool one_run = width.stride == 1;
    const int64_t at = (piece.begin - first) * rows.inner;
    const TapJob<S> job = {taps, codes, count,
                           one_run ? 1 : piece.size(), one_run ? piece.size() * rows.inner : rows.inner,
                           width.stride * rows.inner, rows.inner, rows.x_end, out + at, out_codes + at, out_end};
    ReduceTaps<S, kRoutes>(job, watch);
    ow.begin = piece.end;
  }
}

// Whether the input that outputs `ow` read in one row has a special value.
template <class S>
bool HasSpecial(const Rows<S>& rows, const S* row, Range ow) {
  const Axis& width = rows.p.width();
  const int64_t begin = std::clamp<int64_t>(width.start(ow.begin), 0, width.in);
  const int64_t end = std::clamp<int64_t>(width.start(ow.end - 1) + width.extent(), begin, width.in);
  return HasSpecial<S>(row + begin * rows.inner, (end - begin) * rows.inner, rows.p.dtype);
}

// Scratch of the shared-rows kernel: the ring, and lists of what to reduce.
template <class S>
struct RingScratch {
  int64_t slots;  // per depth tap
  int64_t pitch;
  S* keys;
  Code<S>* codes;
  Code<S>* out_codes;
  int64_t* held;  // which row a slot holds; -1 none
  bool* special;  // whether the Watch fired for it
  Row<S>* list;
  Code<S>* row_codes;
  const S** taps;
  Code<S>* tap_codes;

  RingScratch(const Problem& p, int64_t tile, bool with_codes, ScratchTaker& take) {
    slots = std::min(p.height().extent(), p.height().in);
    pitch = tile * p.channels + LaneCount<S>();
    const int64_t all = slots * p.depth().kernel;
    keys = take.Take<S>(all * pitch);
    codes = take.Take<Code<S>>(with_codes ? all * pitch : 0);
    out_codes = take.Take<Code<S>>(pitch);
    held = take.Take<int64_t>(all);
    special = take.Take<bool>(all);
    list = take.Take<Row<S>>(p.depth().kernel * p.height().kernel);
    row_codes = take.Take<Code<S>>(p.depth().kernel * p.height().kernel);
    taps = take.Take<const S*>(p.width().kernel);
    tap_codes = take.Take<Code<S>>(p.width().kernel);
  }
  Row<S> row(int64_t slot) const { return {keys + slot * pitch, codes + slot * pitch}; }
};

// Output pixels per pass over the rows, so that the ring stays in L2. Whole rows in L2 measured better than pieces of rows in L1:
// the input streams in without breaks.
template <class S>
int64_t RingTile(const Problem& p, bool with_codes) {
  const int64_t slots = std::min(p.height().extent(), p.height().in) * p.depth().kernel;
  const int64_t bytes = slots * p.channels * static_cast<int64_t>(sizeof(S)) * (with_codes ? 2 : 1);
  return std::clamp<int64_t>((512 << 10) / bytes, 1, p.width().out);
}

// Whether a window of outputs `ow` at (od, oh) reads a special value.
template <class S>
bool SeesSpecial(const Rows<S>& rows, const S* plane, int64_t od, int64_t oh, Range ow) {
  const Axis& depth = rows.p.depth();
  const Axis& height = rows.p.height();
  const Range d = depth.valid_taps(od);
  const Range h = height.valid_taps(oh);
  for (int64_t kd = d.begin; kd < d.end; ++kd) {
    for (int64_t kh = h.begin; kh < h.end; ++kh) {
      const S* row = rows.row(plane, depth.start(od) + kd * depth.dilation, height.start(oh) + kh * height.dilation);
      if (HasSpecial(rows, row, ow)) return true;
    }
  }
  return false;
}

// Channels last.
template <class S, bool kRoutes>
void RunShared(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  const Axis& depth = p.depth();
  const Axis& height = p.height();
  const Axis& width = p.width();
  const int64_t tile = RingTile<S>(p, kRoutes);
  ScratchTaker take(memory);
  const RingScratch<S> ring(p, tile, kRoutes, take);

  for (int64_t r = begin; r < end && !rows.GaveUp();) {
    const int64_t group = r / height.out;  // (plane, od)
    const int64_t od = group % depth.out;
    const S* plane = rows.plane(group / depth.out);
    const int64_t group_end = std::min(end, (group + 1) * height.out);
    const Range d = depth.valid_taps(od);
    for (int64_t o = 0; o < width.out; o += tile) {
      const Range ow = {o, std::min(o + tile, width.out)};
      std::fill(ring.held, ring.held + ring.slots * depth.kernel, -1);
      for (int64_t at = r; at < group_end; ++at) {
        const int64_t oh = at % height.out;
        const Range h = height.valid_taps(oh);
        int64_t n = 0;
        bool special = d.size() == 0 || h.size() == 0;
        for (int64_t kd = d.begin; kd < d.end; ++kd) {
          const int64_t in_d = depth.start(od) + kd * depth.dilation;
          for (int64_t kh = h.begin; kh < h.end; ++kh) {
            const int64_t in_h = height.start(oh) + kh * height.dilation;
            const int64_t slot = kd * ring.slots + in_h % ring.slots;
            const Row<S> to = ring.row(slot);
            if (ring.held[slot] != in_h) {
              Watch<S> watch(p.dtype);
              const Source<S> source = {rows.row(plane, in_d, in_h), 0};
              ReduceWidth<S, kRoutes>(rows, &source, 1, ow, ring.taps, ring.tap_codes, to.keys, {to.codes},
                                                       to.keys + ring.pitch, watch);
              ring.special[slot] = watch.Fired() != Alarm::kNone;
              ring.held[slot] = in_h;
            }
            special = special || ring.special[slot];
            ring.row_codes[n] = static_cast<Code<S>>((kd * height.kernel + kh) * width.kernel);
            ring.list[n++] = to;
          }
        }
        S* y = rows.y_row(at);
        uint8_t* routes = kRoutes ? rows.route_row(at) : nullptr;
        Watch<S> watch(p.dtype);
        if (rows.backwards) {
          std::reverse(ring.list, ring.list + n);
          std::reverse(ring.row_codes, ring.row_codes + n);
        }
        const int64_t length = ow.size() * rows.inner;
        S* out = y + ow.begin * rows.inner;
        if (!special) {
          MeetRows<S, kRoutes>({ring.list, n, length, out, OutCodesOf<S>(p, ring.out_codes), out + length, ring.row_codes}, watch);
          special = watch.Fired() != Alarm::kNone && SeesSpecial(rows, plane, od, oh, ow);
        }
        if (special) {
          RunExactRow<S>(rows, plane, od, oh, ow, y, routes, kRoutes ? ring.out_codes : nullptr);
        } else if (kRoutes) {
          PackRow(p, OutCodesOf<S>(p, ring.out_codes), ow, routes);
        }
      }
    }
    r = group_end;
  }
}

// The letter of the rules for every row.
template <class S, bool kRoutes>
void RunExact(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t oh = r % p.height().out;
    const int64_t od = r / p.height().out % p.depth().out;
    const S* plane = rows.plane(r / p.height().out / p.depth().out);
    RunExactRow<S>(rows, plane, od, oh, {0, p.width().out}, rows.y_row(r), kRoutes ? rows.route_row(r) : nullptr,
                   kRoutes ? reinterpret_cast<Code<S>*>(memory) : nullptr);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
