// Max pooling without routes of channels first (and of a single channel last): down first, then across, a block of
// output rows at a time, in L1.
//
//   fold     windows with depth: the greatest of the slices, row by row
//   down     each row of outputs: the greatest of the input rows it sees, into a padded row
//   across   each output: the greatest of its window of the padded row
//
// Windows three wide and two apart do all of it at once (slide-inl.h).
//
// Down first reads x where it lies and leaves one row per row of outputs to the slower way across. Blocks, not rows,
// because loads that straddle what was just stored wait for it.

// Per-target include guard
#if defined(POOLGRAD_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_COLUMNS_INL_H_
#undef POOLGRAD_CPU_COLUMNS_INL_H_
#else
#define POOLGRAD_CPU_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/blocks-inl.h"
#include "cpu/forward/exact-inl.h"
#include "cpu/forward/maxima-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/forward/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/forward/slide-inl.h"
#include "cpu/forward/split-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// How a problem is cut, and the scratch for it.
template <class S>
struct ColumnScratch {
  Spans down, across;
  bool folds;                 // depth taps are folded into one slice first
  bool slides;                // windows of three go straight from x to y (slide-inl.h)
  bool pairs;                 // windows of neighbours two apart: taken from padded rows as they are
  int64_t out_rows, in_rows;  // per block
  int64_t pitch;              // of padded rows
  Phases phases;
  S* folded;  // in_rows rows as wide as the input
  S* column_spans;
  S* padded;
  S* sorted;  // padded rows by phase, or spans of them
  bool* special;
  const S** list;

  static int64_t OutRows(const Problem& p, const Spans& down, bool folds) {
    constexpr int64_t kBlockBytes = 24 << 10;
    const Axis& h = p.height();
    const bool shares = folds || down.used();  // what blocks have in common is made again for each
    const int64_t row =
        (Positions(p.width()) * 2 + (shares ? 2 * p.width().in * h.stride : 0)) * static_cast<int64_t>(sizeof(S));
    const int64_t rows = std::max<int64_t>(kBlockBytes / row, shares ? CeilDiv(2 * h.extent(), h.stride) : 2);
    return rows > h.out && (shares || p.depth().out > 1) ? h.out : std::min(rows, h.out * p.batch * p.channels);
  }

  ColumnScratch(const Problem& p, ScratchTaker& take)
      : down(p.height()),
        across(p.width()),
        folds(p.depth().kernel > 1 && !p.height().disjoint()),
        slides(!folds && !down.used() && Slides<S>(p.width())),
        pairs(p.width().stride == 2 && p.width().dilation == 1),
        out_rows(OutRows(p, down, folds)),
        in_rows(InRows(p.height(), std::min(out_rows, p.height().out))),
        pitch(Positions(p.width())),
        phases(p.width(), out_rows, LaneCount<S>()) {
    if (p.width().stride > 1) across.size = 1;
    const int64_t vector = LaneCount<S>();
    folded = take.Take<S>(folds ? in_rows * p.width().in + vector : 0);
    column_spans = take.Take<S>(down.used() ? in_rows * p.width().in + vector : 0);
    padded = take.Take<S>(out_rows * pitch + 2 * vector);
    sorted = take.Take<S>(across.used()                    ? out_rows * pitch + vector
                          : p.width().stride > 1 && !pairs ? phases.size()
                                                           : 0);
    special = take.Take<bool>(p.depth().kernel * in_rows);
    list = take.Take<const S*>(std::max(p.depth().kernel * p.height().kernel, p.width().kernel) + 1);
  }
};

template <class S>
class ColumnRunner {
 public:
  ColumnRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p),
        height_(p.height()),
        width_(p.width()),
        seen_(p.width()),
        rows_(p, args),
        take_(memory),
        s_(p, take_),
        has_empty_row_(p.height().has_empty_window()),
        lookahead_(p.depth().kernel == 1 ? Lookahead(rows_.x, rows_.x_end) : Lookahead()) {
    std::fill(s_.padded, s_.padded + s_.out_rows * s_.pitch + 2 * LaneCount<S>(), LowestKey<S>());
  }

  void Run(int64_t begin, int64_t end) {
    ForBlocksOfRows(rows_, s_.out_rows, begin, end, [&](const Block<S>& block) { Pool(block); });
  }

 private:
  void Pool(const Block<S>& block) {
    Watch<S> watch(p_.dtype);
    const bool has_rows = block.in.size() > 0 && block.depth.size() > 0;
    if (has_rows) {
      Down(block, watch);
      if (!s_.slides) Across(block.planes * block.oh.size(), rows_.y_row(block.r), watch);
      if (watch.Fired() == Alarm::kNone && !has_empty_row_) return;
    }
    PoolSpecialRows<S>(rows_, block, has_rows, s_.special, nullptr);
  }

  // The seen part of row h of the slice of depth tap kd.
  const S* Input(const Block<S>& block, int64_t kd, int64_t h) const {
    return rows_.row(block.plane, p_.depth().start(block.od) + kd * p_.depth().dilation, h) + seen_.skip;
  }

  void Down(const Block<S>& block, Watch<S>& watch) {
    const int64_t first = block.in.begin;
    const int64_t all =
        (block.in.size() - 1) * width_.in + seen_.count;  // from the first row seen to the last as one row
    if (s_.folds) {
      for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd)
        s_.list[kd - block.depth.begin] = Input(block, kd, first);
      MaxRows<S, MaxFlow::kRawToKeys>({s_.list, block.depth.size(), 1, all, 0, s_.folded, 0, 0, 1, 0, 0, &lookahead_},
                                      watch);
      DownFrom<MaxFlow::kKeysToKeys>(block, {0, 1}, watch);
    } else {
      DownFrom<MaxFlow::kRawToKeys>(block, block.depth, watch);
    }
  }

  template <MaxFlow kFlow>
  void DownFrom(const Block<S>& block, Range depth, Watch<S>& watch) {
    const int64_t first = block.in.begin;
    const auto source = [&](int64_t kd, int64_t h) {
      return kFlow == MaxFlow::kKeysToKeys ? s_.folded + (h - first) * width_.in : Input(block, kd, h);
    };
    const int64_t span_rows = block.in.size() - (s_.down.size - 1) * height_.dilation;
    const bool spans = s_.down.used() && span_rows > 0 && depth.size() == 1;
    if (spans) {
      for (int64_t t = 0; t < s_.down.size; ++t) s_.list[t] = source(depth.begin, first + t * height_.dilation);
      MaxRows<S, kFlow>({s_.list, s_.down.size, 1, (span_rows - 1) * width_.in + seen_.count, 0, s_.column_spans, 0, 0,
                         1, 0, 0, &lookahead_},
                        watch);
    }
    const Range whole = height_.interior();
    for (int64_t o = block.oh.begin; o < block.oh.end;) {
      const bool inside = o >= whole.begin && o < whole.end;
      const int64_t count = inside ? std::min(block.oh.end, whole.end) - o : 1;
      const Range h = height_.valid_taps(o);
      const bool from_spans = spans && h.size() >= s_.down.size;
      int64_t n = 0;
      if (from_spans) {
        for (; n < s_.down.count(h.size()); ++n) {
          const int64_t row = height_.start(o) + (h.begin + s_.down.tap(n, h.size())) * height_.dilation - first;
          s_.list[n] = s_.column_spans + row * width_.in;
        }
      } else {
        for (int64_t kd = depth.begin; kd < depth.end; ++kd) {
          for (int64_t kh = h.begin; kh < h.end; ++kh)
            s_.list[n++] = source(kd, height_.start(o) + kh * height_.dilation);
        }
      }
      if (s_.slides) {
        const MaxJob<S> straight = {s_.list,
                                    n,
                                    count,
                                    width_.in,
                                    height_.stride * width_.in,
                                    rows_.y_row(block.r + o - block.oh.begin),
                                    0,
                                    0,
                                    block.planes,
                                    p_.in_plane(),
                                    block.oh.size() * width_.out,
                                    &lookahead_};
        if (n == 3) SlideRows<S, 3>(straight, width_, watch);
        if (n > 0 && n != 3) SlideRows<S, 0>(straight, width_, watch);
        o += count;
        continue;
      }
      const bool shares = !from_spans && depth.size() == 1 && height_.stride == 1 && n > 1;
      if (shares) s_.list[n] = s_.list[n - 1] + height_.dilation * width_.in;
      const MaxJob<S> job = {s_.list,
                             n,
                             count,
                             seen_.count,
                             height_.stride * width_.in,
                             s_.padded + (o - block.oh.begin) * s_.pitch + seen_.first,
                             s_.pitch,
                             shares ? height_.dilation : 0,
                             block.planes,
                             p_.in_plane(),
                             block.oh.size() * s_.pitch,
                             &lookahead_};
      if (n > 0 && from_spans) MaxRows<S, MaxFlow::kKeysToKeys>(job, watch);
      if (n > 0 && !from_spans) MaxRows<S, kFlow>(job, watch);
      o += count;
    }
  }

  void Across(int64_t rows, S* y, Watch<S>& watch) {
    const int64_t k = width_.kernel;
    if (s_.pairs) return MaxOfPairs<S>(s_.padded, k, rows, width_.out, s_.pitch, y, watch);
    const S* from = s_.padded;
    int64_t n = k;
    int64_t pitch = s_.pitch;
    if (s_.across.used()) {
      for (int64_t t = 0; t < s_.across.size; ++t) s_.list[t] = s_.padded + t * width_.dilation;
      const int64_t all = rows * s_.pitch - (s_.across.size - 1) * width_.dilation;
      MaxRows<S, MaxFlow::kKeysToKeys>({s_.list, s_.across.size, 1, all, 0, s_.sorted, 0}, watch);
      n = s_.across.count(k);
      for (int64_t i = 0; i < n; ++i) s_.list[i] = s_.sorted + s_.across.tap(i, k) * width_.dilation;
    } else if (width_.stride == 1) {
      for (int64_t t = 0; t < k; ++t) s_.list[t] = from + t * width_.dilation;
    } else {
      SplitRows<S, false>(s_.phases, s_.padded, s_.pitch, 0, s_.pitch, rows, s_.sorted, watch, nullptr);
      for (int64_t t = 0; t < k; ++t) s_.list[t] = s_.sorted + s_.phases.at(t * width_.dilation);
      pitch = s_.phases.places;
    }
    MaxRows<S, MaxFlow::kKeysToY>({s_.list, n, rows, width_.out, pitch, y, width_.out}, watch);
  }

  const Problem& p_;
  const Axis& height_;
  const Axis& width_;
  const Seen seen_;
  Rows<S> rows_;
  ScratchTaker take_;
  ColumnScratch<S> s_;
  bool has_empty_row_;
  Lookahead lookahead_;
};

template <class S>
void RunColumns(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  ColumnRunner<S>(p, args, memory).Run(begin, end);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
