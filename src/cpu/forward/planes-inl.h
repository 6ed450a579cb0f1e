// Max pooling with routes of channels first (and of a single channel last): across first, then down, a block of rows at
// a time, in L1.
//
//   split    input rows to keys, padded, sorted by phase                                (split-inl.h)
//   across   each input row reduced along the width, with the number of its best column
//   down     each row of outputs: the best of the reduced rows it sees; to y and codes
//
// Across before down keeps the first of equal taps in row-major order. Windows of many taps are put together from
// spans, in both directions (see Spans). Numbers count from the first tap of a row, a span, a window: whoever puts such
// together adds where they begin.
//
// Reduced rows are sorted by phase of the height's stride, so that the rows of outputs which see them follow each other
// without gaps: down is one long row.

// Per-target include guard
#if defined(POOLGRAD_CPU_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_PLANES_INL_H_
#undef POOLGRAD_CPU_PLANES_INL_H_
#else
#define POOLGRAD_CPU_PLANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/blocks-inl.h"
#include "cpu/forward/contest-inl.h"
#include "cpu/forward/exact-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/forward/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/forward/split-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Rows of keys and numbers in scratch.
template <class S, class C>
struct Reduced {
  S* keys;
  C* codes;
};

// A window that reaches over an end of the width, and the first of its taps in order of preference that does not.
template <class C>
struct ClippedWindow {
  int64_t ow;
  C tap;
};

// How a problem is cut, and the scratch for it.
template <class S, class C>
struct PlaneScratch {
  Spans down, across;
  int64_t out_rows;     // per block; of several planes where planes are small
  int64_t planes;       // that many at most
  int64_t in_rows;      // per plane and slice
  int64_t phase_pitch;  // of reduced rows: from phase to phase of the height
  int64_t plane_pitch;  // and from plane to plane, or slice to slice
  Phases phases;        // of the width, all input rows of a block
  S* keys;
  Reduced<S, C> wide;  // spans along the width, as wide as split rows
  Reduced<S, C> reduced;
  Reduced<S, C> spans;  // of reduced rows
  C* out_codes;
  Code<S>* exact_codes;  // of one row
  bool* special;
  Contender<S, C>* list;
  const S** taps;
  Code<S>* tap_numbers;
  ClippedWindow<C>* clipped;  // integers
  int64_t clipped_count = 0;

  static int64_t OutRows(const Problem& p, const Spans& down, const Spans& across) {
    constexpr int64_t kBlockBytes = 40 << 10;
    const Axis& h = p.height();
    const int64_t pair = sizeof(S) + sizeof(C);
    const int64_t width = Positions(p.width());
    const int64_t in_row = width * static_cast<int64_t>(sizeof(S)) + p.width().out * pair * (down.used() ? 2 : 1) +
                           (across.used() ? width * pair : 0);
    const int64_t fit = kBlockBytes / (in_row * p.depth().kernel);
    const int64_t rows = std::max((fit - h.extent()) / h.stride + 1, CeilDiv(2 * h.extent(), h.stride));
    const bool small = p.depth().in == 1 && p.depth().kernel == 1 && fit >= 2 * h.in;  // several planes fit
    return small ? std::min(fit / h.in, p.batch * p.channels) * h.out : std::min(rows, h.out);
  }

  PlaneScratch(const Problem& p, ScratchTaker& take)
      : down(p.height()),
        across(p.width()),
        out_rows(OutRows(p, down, across)),
        planes(std::max<int64_t>(1, out_rows / p.height().out)),
        in_rows(InRows(p.height(), std::min(out_rows, p.height().out))),
        phases(p.width(), planes * p.depth().kernel * in_rows, 4 * LaneCount<S>()) {
    const int64_t slack = 4 * LaneCount<S>() + LaneCount<uint8_t>();
    if (p.width().stride > 1) across.size = 1;
    if (p.depth().kernel > 1) down.size = 1;
    phase_pitch = CeilDiv(in_rows, p.height().stride) * p.width().out + LaneCount<S>();
    plane_pitch = p.height().stride * phase_pitch;
    const auto take_rows = [&](bool wanted, int64_t size) {
      return Reduced<S, C>{take.Take<S>(wanted ? size + slack : 0), take.Take<C>(wanted ? size + slack : 0)};
    };
    keys = take.Take<S>(phases.size() + slack);
    wide = take_rows(across.used(), phases.places * planes * in_rows);
    reduced = take_rows(true, planes * p.depth().kernel * plane_pitch);
    spans = take_rows(down.used(), planes * plane_pitch);
    out_codes = take.Take<C>(out_rows * p.width().out + slack);
    exact_codes = take.Take<Code<S>>(p.width().out);
    special = take.Take<bool>(p.depth().kernel * in_rows);
    list = take.Take<Contender<S, C>>(std::max(p.depth().kernel * p.height().kernel, p.width().kernel));
    taps = take.Take<const S*>(p.width().kernel);
    tap_numbers = take.Take<Code<S>>(p.width().kernel);
    clipped = take.Take<ClippedWindow<C>>(kIsInt<S> ? p.width().out - p.width().interior().size() : 0);
  }
};

template <class S, class C>
class PlaneRunner {
 public:
  PlaneRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p),
        height_(p.height()),
        width_(p.width()),
        seen_(p.width()),
        rows_(p, args),
        take_(memory),
        s_(p, take_),
        has_empty_row_(p.height().has_empty_window()),
        lookahead_(p.depth().kernel == 1 ? Lookahead(rows_.x, rows_.x_end) : Lookahead()) {
    std::fill(s_.keys, s_.keys + s_.phases.size(), LowestKey<S>());
    if constexpr (kIsInt<S>) ListClippedWindows();
  }

  void Run(int64_t begin, int64_t end) {
    ForBlocksOfRows(rows_, s_.out_rows, begin, end, [&](const Block<S>& block) { Pool(block); });
  }

 private:
  void Pool(const Block<S>& block) {
    Watch<S> watch(p_.dtype);
    const bool has_rows = block.in.size() > 0 && block.depth.size() > 0;
    if (has_rows) {
      for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd) {
        const S* from = rows_.row(block.plane, p_.depth().start(block.od) + kd * p_.depth().dilation, block.in.begin);
        const Reduced<S, C> to = {s_.reduced.keys + kd * s_.plane_pitch, s_.reduced.codes + kd * s_.plane_pitch};
        Split(from, block, watch);
        Across(block, to);
      }
      if (s_.down.used()) SpanRows(block, watch);
      Down(block, watch);
      PackRows(rows_, s_.out_codes, width_.out, block.r, block.planes * block.oh.size());
      if (watch.Fired() == Alarm::kNone && !has_empty_row_) return;
    }
    PoolSpecialRows(rows_, block, has_rows, s_.special, s_.exact_codes);
  }

  // The rows that the block sees, from the first one on, plane by plane; where they are whole planes, all at once.
  void Split(const S* from, const Block<S>& block, Watch<S>& watch) {
    const int64_t rows = block.in.size();
    const int64_t together = rows == height_.in ? block.planes : 1;
    for (int64_t p = 0; p < block.planes; p += together) {
      SplitRows<S, true>(s_.phases, from + p * p_.in_plane() + seen_.skip, seen_.count, seen_.first, width_.in,
                         together * rows, s_.keys + p * rows * s_.phases.places, watch, &lookahead_);
    }
  }

  // Where row number `row` of the block is among the reduced rows.
  int64_t Place(int64_t row) const { return row % height_.stride * s_.phase_pitch + row / height_.stride * width_.out; }
  // How many of the first n rows have this phase.
  int64_t RowsOf(int64_t phase, int64_t n) const { return CeilDiv(n - phase, height_.stride); }

  // Lists n sources in order of preference.
  template <class Put>
  void List(int64_t n, const Put& put) const {
    for (int64_t i = 0; i < n; ++i) put(i, rows_.backwards ? n - 1 - i : i);
  }

  void Across(const Block<S>& block, Reduced<S, C> to) {
    const int64_t rows = block.in.size();
    const int64_t places = s_.phases.places;
    const int64_t taps = s_.across.used() ? s_.across.size : width_.kernel;
    List(taps, [&](int64_t i, int64_t kw) {
      s_.taps[i] = s_.keys + s_.phases.at(kw * width_.dilation);
      s_.tap_numbers[i] = static_cast<Code<S>>(kw);
    });
    if (s_.across.used()) {
      const int64_t all = block.planes * rows * places;
      BestOfTaps<S, C>(
          {s_.taps, s_.tap_numbers, taps, 1, all - (taps - 1) * width_.dilation, 0, s_.wide.keys, s_.wide.codes, 0});
      const int64_t n = s_.across.count(width_.kernel);
      List(n, [&](int64_t i, int64_t span) {
        const int64_t tap = s_.across.tap(span, width_.kernel);
        s_.list[i] = {s_.wide.keys + tap * width_.dilation, s_.wide.codes + tap * width_.dilation, static_cast<C>(tap)};
      });
    }
    Watch<S> unused(p_.dtype);
    for (int64_t phase = 0; phase < std::min(height_.stride, rows); ++phase) {
      S* keys = to.keys + phase * s_.phase_pitch;
      C* codes = to.codes + phase * s_.phase_pitch;
      const int64_t count = RowsOf(phase, rows);
      const int64_t pitch = height_.stride * places;
      if (s_.across.used()) {
        BestOfRows<S, C, false>({s_.list, s_.across.count(width_.kernel), count, width_.out, pitch, keys, codes,
                                 width_.out, block.planes, rows * places, s_.plane_pitch},
                                unused);
        Forward(s_.list, s_.across.count(width_.kernel), places);
      } else {
        BestOfTaps<S, C>({s_.taps, s_.tap_numbers, taps, count, width_.out, pitch, keys, codes, width_.out,
                          block.planes, rows * places, s_.plane_pitch});
        for (int64_t t = 0; t < taps; ++t) s_.taps[t] += places;
      }
      if constexpr (kIsInt<S>) {
        for (int64_t p = 0; p < block.planes; ++p) {
          for (int64_t row = 0; row < count; ++row) CorrectPadding(keys, codes, p * s_.plane_pitch + row * width_.out);
        }
      }
    }
  }

  static void Forward(Contender<S, C>* list, int64_t n, int64_t elements) {
    for (int64_t i = 0; i < n; ++i) {
      list[i].keys += elements;
      list[i].codes += elements;
    }
  }

  // Integers have no key below their lowest value, so padding may tie with a row of lowest values and be preferred:
  // then the winner is the first valid tap (the last one for ties=last).
  void CorrectPadding(const S* keys, C* codes, int64_t row) const {
    for (int64_t i = 0; i < s_.clipped_count; ++i) {
      const ClippedWindow<C> window = s_.clipped[i];
      C& code = codes[row + window.ow];
      code = keys[row + window.ow] == LowestKey<S>() ? window.tap : code;  // no jump: zeros are common and come as they like
    }
  }

  void ListClippedWindows() {
    const Range whole = width_.interior();
    for (int64_t o = 0; o < width_.out; ++o) {
      if (o >= whole.begin && o < whole.end) o = whole.end;
      if (o >= width_.out) break;
      const Range valid = width_.valid_taps(o);
      s_.clipped[s_.clipped_count++] = {o, static_cast<C>(rows_.backwards ? valid.end - 1 : valid.begin)};
    }
  }

  Contender<S, C> RowAt(const Reduced<S, C>& from, int64_t place, int64_t tap) const {
    return {from.keys + place, from.codes + place, static_cast<C>(tap)};
  }

  // spans[row] = the best of reduced rows row, row + dilation, ...; numbers count from that row.
  void SpanRows(const Block<S>& block, Watch<S>& watch) {
    const int64_t rows = block.in.size() - (s_.down.size - 1) * height_.dilation;
    for (int64_t phase = 0; phase < std::min(height_.stride, rows); ++phase) {
      List(s_.down.size, [&](int64_t i, int64_t t) {
        s_.list[i] = RowAt(s_.reduced, Place(phase + t * height_.dilation), t * width_.kernel);
      });
      BestOfRows<S, C, false>(
          {s_.list, s_.down.size, RowsOf(phase, rows), width_.out, width_.out, s_.spans.keys + phase * s_.phase_pitch,
           s_.spans.codes + phase * s_.phase_pitch, width_.out, block.planes, s_.plane_pitch, s_.plane_pitch},
          watch);
    }
  }

  void Down(const Block<S>& block, Watch<S>& watch) {
    const Range whole = height_.interior();
    for (int64_t o = block.oh.begin; o < block.oh.end;) {
      const bool inside = o >= whole.begin && o < whole.end;
      const int64_t count = inside ? std::min(block.oh.end, whole.end) - o : 1;
      const Range h = height_.valid_taps(o);
      const int64_t first = height_.start(o) - block.in.begin;
      int64_t n = 0;
      if (s_.down.used() && h.size() >= s_.down.size) {
        n = s_.down.count(h.size());
        List(n, [&](int64_t i, int64_t span) {
          const int64_t kh = h.begin + s_.down.tap(span, h.size());
          s_.list[i] = RowAt(s_.spans, Place(first + kh * height_.dilation), kh * width_.kernel);
        });
      } else {
        n = block.depth.size() * h.size();
        List(n, [&](int64_t i, int64_t at) {
          const int64_t kd = block.depth.begin + at / h.size();
          const int64_t kh = h.begin + at % h.size();
          s_.list[i] = RowAt(s_.reduced, kd * s_.plane_pitch + Place(first + kh * height_.dilation),
                             (kd * height_.kernel + kh) * width_.kernel);
        });
      }
      const int64_t row = (o - block.oh.begin) * width_.out;
      if (n > 0) {
        BestOfRows<S, C, true>(
            {s_.list, n, count, width_.out, width_.out, rows_.y_row(block.r) + row, s_.out_codes + row, width_.out,
             block.planes, s_.plane_pitch, block.oh.size() * width_.out},
            watch);
      }
      o += count;
    }
  }

  const Problem& p_;
  const Axis& height_;
  const Axis& width_;
  const Seen seen_;
  Rows<S> rows_;
  ScratchTaker take_;
  PlaneScratch<S, C> s_;
  bool has_empty_row_;
  Lookahead lookahead_;
};

template <class S, class C>
void RunPlanesWith(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  PlaneRunner<S, C>(p, args, memory).Run(begin, end);
}

// The kernel, and the scratch it needs.
template <class S>
RunFn SelectPlanes(const Problem& p, ScratchTaker& take) {
  if (p.taps() <= 255) {
    const PlaneScratch<S, uint8_t> scratch(p, take);
    return RunPlanesWith<S, uint8_t>;
  }
  if constexpr (sizeof(S) == 1) {
    return nullptr;
  } else {
    const PlaneScratch<S, Code<S>> scratch(p, take);
    return RunPlanesWith<S, Code<S>>;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
