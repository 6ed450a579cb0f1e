// What kernels that go row by row know of a problem; how they hand rows with special values to exact-inl.h. It brings
// what they all need: vectors, keys and codes, and scratch.

// Per-target include guard
#if defined(POOLGRAD_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_ROWS_INL_H_
#undef POOLGRAD_CPU_ROWS_INL_H_
#else
#define POOLGRAD_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/kept.h"
#include "cpu/forward/common/exact-inl.h"
#include "cpu/scratch.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Where row r of the result is. Divisions of 32 bits take a third of the time.
struct RowPlace {
  int64_t plane, od, oh;
  RowPlace(const Problem& p, int64_t r) {
    const int64_t height = p.height().out, depth = p.depth().out;
    const bool narrow = static_cast<uint64_t>(r | height | depth) >> 32 == 0;
    const auto over = [narrow](int64_t a, int64_t b) {
      return narrow ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
    };
    const int64_t slice = over(r, height);
    plane = over(slice, depth), od = slice - plane * depth, oh = r - slice * height;
  }
};

// What all row-wise kernels know of a problem: planes of rows of `inner` interleaved channels.
template <class S>
struct Rows {
  const Problem& p;
  Args args;
  int64_t inner = p.channels_last() ? p.channels : 1, planes = p.channels_last() ? p.batch : p.batch * p.channels;
  bool backwards = p.ties == POOLGRAD_TIES_LAST;  // prefer the later of ties
  const S* x = static_cast<const S*>(args.source);
  const S* x_end = x ? x + p.x_elements() : nullptr;
  S* y = static_cast<S*>(args.result);
  uint8_t* routes = args.routes;

  Rows(const Problem& problem, const Args& of_run) : p(problem), args(of_run) {}

  // Bits of floats, one of which is negative or NaN: the kernel may stop, another one takes its place.
  void GiveUp() const { *args.unfit = true; }
  bool GaveUp() const {
    if constexpr (kIsBits<S>) return *args.unfit;
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

  // Outputs `ow` of rows [r, r + count) are in y, with their routes; what is left is a bias.
  void Finish(int64_t r, int64_t count, Range ow) const {
    if (!p.bias) return;
    const int64_t out = p.width().out, end = (r + count) * out;
    if (ow.size() == out) return args.finish(p, args, {r * out * inner, end * inner});
    for (int64_t at = r * out; at < end; at += out)
      args.finish(p, args, {(at + ow.begin) * inner, (at + ow.end) * inner});
  }
};

// Rows of outputs of one plane and depth, of which a kernel makes columns `ow`.
template <class S>
struct Slice {
  const S* plane = nullptr;
  int64_t od = 0, first = 0;  // the number of its first row
  Range ow = {};
};

// Calls pool(oh) for rows [begin, end) of the result, those of a slice at a time, `tile` columns at a time: with *at.
template <class S, class Pool>
void ForSlices(const Rows<S>& rows, int64_t tile, int64_t begin, int64_t end, Slice<S>* at, const Pool& pool) {
  const int64_t depth = rows.p.depth().out, height = rows.p.height().out, width = rows.p.width().out;
  for (int64_t r = begin, past; r < end && !rows.GaveUp(); r = past) {
    const int64_t group = r / height;  // (plane, od)
    *at = {rows.plane(group / depth), group % depth, group * height};
    past = std::min(end, at->first + height);
    for (int64_t o = 0; o < width; o += tile) {
      at->ow = {o, std::min(o + tile, width)};
      pool(Range{r - at->first, past - at->first});
    }
  }
}

// A kernel that is the class Runner, and whose units are rows of outputs.
template <class S, class Runner, class Layout>
const char* MakeOfRows(Kernel* kernel, const Problem& p, const Layout& layout) {
  kernel->run = RunAs<Runner>;
  kernel->units = Rows<S>(p, Args{}).row_count();
  kernel->scratch_bytes = ScratchOf<Runner>(p, &layout);
  return Keep(layout, &kernel->layout);
}

// The outputs of row r of the result that a fast kernel must not decide: by the rules, or not at all. See RunExactRow
// in exact-inl.h.
template <class S>
void RunExactRow(const Rows<S>& rows, const S* plane, int64_t od, int64_t oh, Range ow, int64_t r) {
  if constexpr (kIsBits<S>) {
    rows.GiveUp();
  } else {
    RunExactRow<S>(rows.p, plane, od, oh, ow, rows.y_row(r), rows.route_row(r));
  }
}

// Whether the input that outputs `ow` read in one row has a special value.
template <class S>
bool HasSpecial(const Rows<S>& rows, const S* row, Range ow) {
  const Range in = rows.p.width().inputs(ow);
  return HasSpecial<S>(row + in.begin * rows.inner, in.size() * rows.inner, rows.p.dtype);
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

// Whether a special value may lie among the inputs of output rows [begin, end), looked through as the one run of
// addresses that they are: behind a rectifier every block has winners of zero and asks, and row by row that takes
// several times as long as the pooling.
template <class S>
bool SpanHasSpecial(const Rows<S>& rows, int64_t begin, int64_t end) {
  const Problem& p = rows.p;
  const RowPlace first(p, begin), last(p, end - 1);
  const S* from = rows.plane(first.plane);
  const S* to = rows.plane(last.plane + 1);
  if (first.plane == last.plane && first.od == last.od) {
    const Axis &d = p.depth(), &h = p.height();
    const int64_t front = std::clamp<int64_t>(d.start(first.od), 0, d.in - 1);
    const int64_t back = std::clamp<int64_t>(d.start(first.od) + d.extent() - 1, front, d.in - 1);
    const int64_t top = std::clamp<int64_t>(h.start(first.oh), 0, h.in - 1);
    const int64_t bottom = std::clamp<int64_t>(h.start(last.oh) + h.extent() - 1, 0, h.in - 1);
    to = rows.row(from, back, std::max(top, bottom)) + p.width().in * rows.inner;
    from = rows.row(from, front, top);
  }
  return HasSpecial<S>(from, to - from, p.dtype);
}

// Outputs `ow` of rows [begin, end) were pooled, and the Watch fired or did not: those that see a special value, or
// nothing, are left to the rules.
template <class S>
HWY_NOINLINE void PoolSpecialRows(const Rows<S>& rows, int64_t begin, int64_t end, Range ow, bool fired) {
  const Problem& p = rows.p;
  const bool special = fired && (ow.size() < p.width().out || SpanHasSpecial<S>(rows, begin, end));
  if (!special && !p.depth().has_empty_window() && !p.height().has_empty_window()) return;
  for (int64_t r = begin; r < end; ++r) {
    const RowPlace at(p, r);
    const S* const plane = rows.plane(at.plane);
    const bool empty = p.depth().valid_taps(at.od).size() == 0 || p.height().valid_taps(at.oh).size() == 0;
    if (!empty && !(special && SeesSpecial(rows, plane, at.od, at.oh, ow))) continue;
    RunExactRow<S>(rows, plane, at.od, at.oh, ow, r);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
