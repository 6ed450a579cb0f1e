// Max pooling of channels first (and of a single channel last): a block of rows of one plane at a time, in L1.
//
//   expand   input rows to keys, padded, sorted by phase                                (expand-inl.h)
//   across   each row reduced along the width: reduced[row][ow]
//   down     each output row is the best of the reduced rows it covers; to y and routes
//
// Large windows at stride 1 are reduced by doubling: the best of 1, 2, 4, ... neighbours, in place, and a window of k taps is
// the best of two overlapping spans of p < k <= 2p. Overlapping is harmless: a maximum met twice ties with itself. A window
// that padding clips to fewer rows is taken from the spans that fit it, before they double.
//
// Codes count rows from the block's first row (see RowCode); where spans double along the width, columns likewise.

// Per-target include guard
#if defined(POOLGRAD_CPU_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_PLANES_INL_H_
#undef POOLGRAD_CPU_PLANES_INL_H_
#else
#define POOLGRAD_CPU_PLANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/exact-inl.h"
#include "cpu/expand-inl.h"
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

// How a problem is cut, and the scratch for it.
template <class S>
struct PlaneScratch {
  int64_t slices;    // depth taps
  int64_t out_rows;  // per block
  int64_t in_rows;   // per block and slice
  bool doubles_down, doubles_across;  // across only where down too, so that codes are of one kind
  Expansion expansion;
  int64_t row_pitch, slice_pitch;  // of reduced rows; expanded rows have the same
  int64_t code_pitch;
  S* keys;
  Row<S> reduced;
  Code<S>* places;  // the code of every place of the block; doubles_across only
  Code<S>* out_codes;
  Code<S>* exact_codes;  // of one row
  bool* special;
  Row<S>* list;
  const S** taps;
  Code<S>* tap_codes;
  Code<S>* row_codes;

  // Input rows per slice so that a block stays within `kBlockBytes`.
  static int64_t InRows(const Problem& p, bool with_codes) {
    constexpr int64_t kBlockBytes = 40 << 10;
    const Axis& h = p.height();
    if (h.stride > h.extent()) return std::min(h.extent(), h.in);
    const Expansion one(p.width(), 1, 0);
    const int64_t row_bytes = p.depth().kernel * one.places * static_cast<int64_t>(sizeof(S)) * (one.stride + (with_codes ? 2 : 1));
    const int64_t wanted = std::max(2 * h.extent(), kBlockBytes / std::max<int64_t>(1, row_bytes));
    return std::min({wanted, h.in, (h.out - 1) * h.stride + h.extent()});
  }

  PlaneScratch(const Problem& p, bool with_codes, ScratchTaker& take)
      : slices(p.depth().kernel), in_rows(InRows(p, with_codes)),
        doubles_down(p.height().stride == 1 && p.height().kernel > 4 && slices == 1),
        doubles_across(p.width().stride == 1 && p.width().kernel > 4 && doubles_down),
        expansion(p.width(), slices * in_rows, LaneCount<S>()) {
    const Axis& h = p.height();
    out_rows = in_rows >= h.in ? h.out : std::max<int64_t>(1, (in_rows - h.extent()) / h.stride + 1);
    row_pitch = expansion.places;
    slice_pitch = in_rows * row_pitch;
    code_pitch = p.width().out + LaneCount<uint8_t>();
    keys = take.Take<S>(expansion.size());
    const int64_t size = slices * slice_pitch + LaneCount<S>();
    reduced.keys = take.Take<S>(size);
    reduced.codes = take.Take<Code<S>>(with_codes ? size : 0);
    places = take.Take<Code<S>>(with_codes && doubles_across ? size : 0);
    out_codes = take.Take<Code<S>>(with_codes ? out_rows * code_pitch : 0);
    exact_codes = take.Take<Code<S>>(with_codes ? code_pitch : 0);
    special = take.Take<bool>(slices * in_rows);
    list = take.Take<Row<S>>(slices * h.kernel);
    taps = take.Take<const S*>(p.width().kernel);
    tap_codes = take.Take<Code<S>>(p.width().kernel);
    row_codes = take.Take<Code<S>>(slices * h.kernel);
  }
};

template <class S, bool kRoutes>
class PlaneRunner {
 public:
  PlaneRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p), height_(p.height()), width_(p.width()), rows_(p, args), take_(memory), s_(p, kRoutes, take_),
        has_empty_row_(p.height().has_empty_window()) {
    std::fill(s_.keys, s_.keys + s_.expansion.size(), LowestKey<S>());
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end;) {
      const int64_t group = r / height_.out;  // (plane, od)
      const int64_t oh = r - group * height_.out;
      const int64_t count = std::min({s_.out_rows, end - r, height_.out - oh});
      Block(rows_.plane(group / p_.depth().out), group % p_.depth().out, {oh, oh + count}, r);
      r += count;
    }
  }

 private:
  // Output rows `oh` of one plane and depth; `r` is the number of the first among all rows.
  void Block(const S* plane, int64_t od, Range oh, int64_t r) {
    const int64_t first = std::max<int64_t>(0, height_.start(oh.begin));
    const int64_t last = std::min(height_.in, height_.start(oh.end - 1) + height_.extent());
    const Range d = p_.depth().valid_taps(od);
    Watch<S> watch(p_.dtype);
    const bool has_rows = last > first && d.size() > 0;
    if (has_rows) {
      for (int64_t kd = d.begin; kd < d.end; ++kd) {
        ExpandRows<S>(s_.expansion, Input(plane, od, kd, first), width_.in, last - first, s_.keys + kd * s_.slice_pitch, watch);
        Across(kd, first, last - first);
      }
      Down(d, oh, first, last - first, r, watch);
    }
    const bool special = has_rows && watch.Fired() != Alarm::kNone && FindSpecialRows(plane, od, d, first, last - first);
    for (int64_t o = oh.begin; o < oh.end; ++o, ++r) {
      uint8_t* routes = kRoutes ? rows_.route_row(r) : nullptr;
      const OutCodes<S> codes = OutCodesOf<S>(p_, s_.out_codes) + (o - oh.begin) * s_.code_pitch;
      if (!has_rows || (special && SeesSpecialRow(d, o, first)) || (has_empty_row_ && height_.valid_taps(o).size() == 0)) {
        RunExactRow<S>(p_, plane, od, o, {0, width_.out}, rows_.y_row(r), routes, kRoutes ? s_.exact_codes : nullptr);
      } else if (kRoutes) {
        PackRow(p_, codes, {0, width_.out}, routes);
      }
    }
  }

  const S* Input(const S* plane, int64_t od, int64_t kd, int64_t h) const {
    return rows_.row(plane, p_.depth().start(od) + kd * p_.depth().dilation, h);
  }

  // The code of row h, where the block begins at row `first`.
  RowCode<Code<S>> CodeOf(int64_t h, int64_t first, int64_t step) const {
    const int64_t origin = FloorDiv(first, height_.dilation) * height_.dilation;
    return {h - origin, step, height_.dilation, width_.kernel};
  }

  void Across(int64_t kd, int64_t first, int64_t rows) {
    if (s_.doubles_across) return DoubleAcross(first, rows);
    for (int64_t k = 0; k < width_.kernel; ++k) {
      const int64_t kw = rows_.backwards ? width_.kernel - 1 - k : k;
      s_.taps[k] = s_.keys + kd * s_.slice_pitch + s_.expansion.at(kw * width_.dilation);
      s_.tap_codes[k] = static_cast<Code<S>>(kw);
    }
    const Row<S> to = s_.reduced + kd * s_.slice_pitch;
    Watch<S> unused(p_.dtype);
    const int64_t size = (rows - 1) * s_.row_pitch + width_.out;  // what lies between the rows is computed and not used
    ReduceTaps<S, kRoutes, Flow::kKeysToRow>({s_.taps, s_.tap_codes, width_.kernel, 1, size, 0, 0,
                                              s_.keys + s_.expansion.size(), to.keys, {to.codes},
                                              s_.reduced.keys + s_.slices * s_.slice_pitch + LaneCount<S>()},
                                             unused);
    if constexpr (kRoutes && kIsInt<S>) {
      for (int64_t row = 0; row < rows; ++row) {
        CorrectPadding(to + row * s_.row_pitch, [&](int64_t, int64_t kw) { return static_cast<Code<S>>(kw); });
      }
    }
    if constexpr (kRoutes) {
      if (s_.doubles_down) AddRowCodes(first, rows);
    }
  }

  // Rows that double downwards need codes that count rows.
  void AddRowCodes(int64_t first, int64_t rows) {
    RowCode<Code<S>> code = CodeOf(first, first, 1);
    for (int64_t row = 0; row < rows; ++row, code.Advance()) {
      Code<S>* codes = s_.reduced.codes + row * s_.row_pitch;
      for (int64_t o = 0; o < width_.out; ++o) codes[o] = static_cast<Code<S>>(codes[o] + code.value());
    }
  }

  void DoubleAcross(int64_t first, int64_t rows) {
    if constexpr (kRoutes) FillPlaces(first, rows);
    const int64_t size = rows * s_.row_pitch;
    const int64_t step = width_.dilation;
    Row<S> from = {s_.keys, s_.places};
    for (int64_t p = 1;; p *= 2) {
      const bool last = 2 * p >= width_.kernel;
      MeetTwo(from, (last ? width_.kernel - p : p) * step, size - ((last ? width_.kernel : 2 * p) - 1) * step);
      from = s_.reduced;
      if (last) break;
    }
    if constexpr (kRoutes && kIsInt<S>) {
      for (int64_t row = 0; row < rows; ++row) {
        const Code<S>* places = s_.places + row * s_.row_pitch;
        CorrectPadding(s_.reduced + row * s_.row_pitch, [&](int64_t o, int64_t kw) { return places[o + kw * width_.dilation]; });
      }
    }
  }

  // reduced[j] = the best of from[j] and from[j + offset], for j < length.
  void MeetTwo(Row<S> from, int64_t offset, int64_t length) {
    if (length <= 0) return;
    Row<S> two[] = {from, from + offset};
    if (rows_.backwards) std::swap(two[0], two[1]);
    MeetRows<S, kRoutes, Meeting::kToRow>({two, 2, 1, length, 0, 0, 0, s_.reduced.keys, {s_.reduced.codes}, nullptr});
  }

  void FillPlaces(int64_t first, int64_t rows) {
    const int64_t phase = first - FloorDiv(first, height_.dilation) * height_.dilation;
    if (phase == filled_phase_ && rows <= filled_rows_) return;
    filled_phase_ = phase;
    filled_rows_ = rows;
    RowCode<Code<S>> code = CodeOf(first, first, 1);
    Code<S>* to = s_.places;
    for (int64_t row = 0; row < rows; ++row, code.Advance()) {
      for (int64_t at = 0, number = 0, left = width_.dilation; at < s_.row_pitch; ++at) {
        *to++ = static_cast<Code<S>>(code.value() + number);
        if (--left == 0) {
          left = width_.dilation;
          ++number;
        }
      }
    }
  }

  // Integers have no key below their lowest value, so padding may tie with a row of lowest values and be preferred: then the
  // winner is the first valid tap (the last one for ties=last). code_of(ow, kw) is that tap's code.
  template <class CodeFn>
  void CorrectPadding(Row<S> row, const CodeFn& code_of) const {
    const Range whole = width_.interior();
    const auto correct = [&](int64_t o) {
      if (row.keys[o] != LowestKey<S>()) return;
      const Range valid = width_.valid_taps(o);
      row.codes[o] = code_of(o, rows_.backwards ? valid.end - 1 : valid.begin);
    };
    for (int64_t o = 0; o < whole.begin; ++o) correct(o);
    for (int64_t o = std::max(whole.begin, whole.end); o < width_.out; ++o) correct(o);
  }

  void Down(Range d, Range oh, int64_t first, int64_t rows, int64_t r, Watch<S>& watch) {
    const Range whole = height_.interior();
    if (!s_.doubles_down) {
      for (int64_t o = oh.begin; o < oh.end;) {
        const Range h = height_.valid_taps(o);
        const int64_t count = o >= whole.begin && o < whole.end ? std::min(oh.end, whole.end) - o : 1;
        int64_t n = 0;
        for (int64_t kd = d.begin; kd < d.end; ++kd) {
          for (int64_t kh = h.begin; kh < h.end; ++kh) {
            s_.row_codes[n] = static_cast<Code<S>>((kd * height_.kernel + kh) * width_.kernel);
            s_.list[n++] = s_.reduced + kd * s_.slice_pitch + (height_.start(o) + kh * height_.dilation - first) * s_.row_pitch;
          }
        }
        if (rows_.backwards) std::reverse(s_.row_codes, s_.row_codes + n);
        if (n > 0) Emit(n, o, count, oh.begin, first, r, watch);
        o += count;
      }
      return;
    }
    for (int64_t p = 1;; p *= 2) {
      const bool last = 2 * p >= height_.kernel;
      for (int64_t o = oh.begin; o < oh.end;) {
        const Range h = height_.valid_taps(o);
        const int64_t count = o >= whole.begin && o < whole.end ? std::min(oh.end, whole.end) - o : 1;
        const bool mine = h.size() > 0 && (h.size() <= 2 * p && (p == 1 || h.size() > p));
        if (mine) {
          const auto span = [&](int64_t kh) {
            return s_.reduced + (height_.start(o) + kh * height_.dilation - first) * s_.row_pitch;
          };
          s_.list[0] = span(h.begin);
          if (h.size() > 1) s_.list[1] = span(h.end - p);
          Emit(h.size() > 1 ? 2 : 1, o, count, oh.begin, first, r, watch);
        }
        o += count;
      }
      if (last) break;
      MeetTwo(s_.reduced, p * height_.dilation * s_.row_pitch, (rows - (2 * p - 1) * height_.dilation) * s_.row_pitch);
    }
  }

  // Output rows o .. o + count - 1 from the n rows in the list; those of the next output row lie a stride further.
  void Emit(int64_t n, int64_t o, int64_t count, int64_t block_begin, int64_t first, int64_t r, Watch<S>& watch) {
    if (rows_.backwards) std::reverse(s_.list, s_.list + n);
    S* y = rows_.y_row(r + o - block_begin);
    MeetJob<S> job = {s_.list, n, count, width_.out, height_.stride * s_.row_pitch, width_.out, s_.code_pitch,
                      y, OutCodesOf<S>(p_, s_.out_codes) + (o - block_begin) * s_.code_pitch,
                      y + count * width_.out, &watch};
    if (s_.doubles_down) {
      RowCode<Code<S>> base = CodeOf(height_.start(o), first, height_.stride);
      job.base = &base;
      job.starts = s_.doubles_across ? s_.places : nullptr;
      MeetRows<S, kRoutes, Meeting::kSpansToY>(job);
    } else {
      job.row_codes = s_.row_codes;
      MeetRows<S, kRoutes, Meeting::kToY>(job);
    }
  }

  bool FindSpecialRows(const S* plane, int64_t od, Range d, int64_t first, int64_t rows) {
    bool any = false;
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t row = 0; row < rows; ++row) {
        const bool special = HasSpecial<S>(Input(plane, od, kd, first + row), width_.in, p_.dtype);
        s_.special[kd * s_.in_rows + row] = special;
        any = any || special;
      }
    }
    return any;
  }

  bool SeesSpecialRow(Range d, int64_t o, int64_t first) const {
    const Range h = height_.valid_taps(o);
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        if (s_.special[kd * s_.in_rows + height_.start(o) + kh * height_.dilation - first]) return true;
      }
    }
    return false;
  }

  const Problem& p_;
  const Axis& height_;
  const Axis& width_;
  Rows<S> rows_;
  ScratchTaker take_;
  PlaneScratch<S> s_;
  bool has_empty_row_;
  int64_t filled_phase_ = -1;
  int64_t filled_rows_ = 0;
};

template <class S, bool kRoutes>
void RunPlanes(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  PlaneRunner<S, kRoutes>(p, args, memory).Run(begin, end);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
