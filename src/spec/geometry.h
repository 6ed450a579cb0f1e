// Window arithmetic, forward and inverse. The only place that does any.
//
// One axis at a time. A regular axis: output o's window starts at o*stride - pad_lo and has `kernel` taps, `dilation`
// apart. An axis by table: start and number of taps are listed for every output (adaptive and fractional pooling, or a
// user's own windows); `kernel` is then the largest number, in which taps are numbered, dilation is 1, and stride means
// nothing. A tap is valid when it lands inside [0, in). Padding is never a candidate, so a window may have no valid
// tap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

namespace poolgrad {

// [begin, end); empty when end <= begin.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end > begin ? end - begin : 0; }
};

// a / b. On x86 before Ice Lake numbers of 64 bits take 42 to 95 cycles, of 32 bits 26; laying out a plan's kernels is
// a hundred or two of them.
inline constexpr int64_t Quotient(int64_t a, int64_t b) {
#ifdef __x86_64__
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
#endif
  return a / b;
}
inline constexpr int64_t CeilDiv(int64_t a, int64_t b) {  // b > 0, any a
  const int64_t q = Quotient(a, b);
  return q + (a - q * b > 0);
}
inline constexpr int64_t FloorDiv(int64_t a, int64_t b) {  // b > 0, any a
  const int64_t q = Quotient(a, b);
  return q - (a - q * b < 0);
}

// The windows of an axis by table. Starts never fall.
struct AxisTable {
  std::vector<int64_t> starts, sizes;         // of every output
  std::vector<int64_t> first_over, end_over;  // of every input: the outputs that may cover it
};

struct Axis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_lo = 0;
  int64_t pad_hi = 0;
  std::shared_ptr<const AxisTable> table = nullptr;  // null: regular
  // A part of a longer axis: where the whole input lies, and the whole with its padding, counted from the part's first
  // input. For what an average divides by; taps outside the part are not candidates, whatever lies there. Empty: it is
  // the whole.
  Range whole = {}, whole_padded = {};

  int64_t extent() const { return (kernel - 1) * dilation + 1; }

  // Where output o's tap 0 lands (may lie outside the input).
  int64_t start(int64_t o) const { return table ? table->starts[Index(o)] : o * stride - pad_lo; }

  // How many taps output o has.
  int64_t size(int64_t o) const { return table ? table->sizes[Index(o)] : kernel; }

  // The inputs between the first and the last that windows `outputs` reach; not by table.
  Range inputs(Range outputs) const {
    return {std::clamp<int64_t>(start(outputs.begin), 0, in),
            std::clamp<int64_t>(start(outputs.end - 1) + extent(), 0, in)};
  }

  // The taps of output o that land inside the input.
  Range valid_taps(int64_t o) const { return taps_within(o, 0, in); }

  // The taps of output o that an average counts: those inside the input, or with `padding` those inside it or its
  // padding.
  Range counted_taps(int64_t o, bool padding) const {
    if (table) return {0, size(o)};
    const Range r = whole.size() > 0 ? (padding ? whole_padded : whole)
                    : padding        ? Range{-pad_lo, in + pad_hi}
                                     : Range{0, in};
    return taps_within(o, r.begin, r.end);
  }

  // Outputs whose window reaches over input i. With dilation > 1, or by table, some of them have no tap exactly there:
  // ask tap_at.
  Range covering(int64_t i) const {
    if (table) return {table->first_over[Index(i)], table->end_over[Index(i)]};
    const int64_t reach = i + pad_lo;  // o*stride <= reach and o*stride + extent > reach
    return {std::max<int64_t>(0, CeilDiv(reach - extent() + 1, stride)), std::min(out, FloorDiv(reach, stride) + 1)};
  }

  // Which tap of output o lands on input i; -1 when none does.
  int64_t tap_at(int64_t o, int64_t i) const {
    const int64_t distance = i - start(o);
    if (distance < 0 || distance >= (table ? size(o) : extent()) || distance % dilation != 0) return -1;
    return distance / dilation;
  }

  // Outputs whose every tap is valid: no clipping needed there.
  Range interior() const {
    if (table) return {0, 0};
    const int64_t begin = std::min(out, std::max<int64_t>(0, CeilDiv(pad_lo, stride)));
    const int64_t last_start = in - extent();  // start(o) <= last_start
    const int64_t end = last_start < 0 ? begin : std::min(out, FloorDiv(last_start + pad_lo, stride) + 1);
    return {begin, std::max(begin, end)};
  }

  // An axis by table over `in` inputs, as the regular axis that it is if it is one. starts never fall, sizes are at
  // least 1, and there is at least one window.
  static Axis ByTable(int64_t in, std::vector<int64_t> starts, std::vector<int64_t> sizes);

  // The windows `outputs` over the inputs `inputs` of this axis, as an axis of its own: taps keep their numbers, and
  // those that land outside `inputs` are padding. `outputs` is not empty.
  Axis Part(Range outputs, Range inputs) const {
    if (table) return PartOfTable(outputs, inputs);
    Axis part = *this;
    part.in = inputs.size();
    part.out = outputs.size();
    part.pad_lo = inputs.begin - start(outputs.begin);
    part.pad_hi = std::max<int64_t>(0, start(outputs.end - 1) + extent() - inputs.end);
    return part;
  }

  // Windows do not share inputs: every input has at most one writer.
  bool disjoint() const {
    if (!table) return stride >= extent() || out <= 1;
    for (int64_t o = 0; o + 1 < out; ++o) {
      if (start(o) + size(o) > start(o + 1)) return false;
    }
    return true;
  }

  // Some window has no valid tap (or may have: gaps wider than the input are searched only up to a point).
  bool has_empty_window() const {
    if (out == 0) return false;
    if (in == 0) return true;
    if (!table && dilation <= in) return start(0) + (kernel - 1) * dilation < 0 || start(out - 1) >= in;
    return FindsEmptyWindow();
  }

 private:
  static size_t Index(int64_t i) { return static_cast<size_t>(i); }
  Axis PartOfTable(Range outputs, Range inputs) const;
  bool FindsEmptyWindow() const;

  Range taps_within(int64_t o, int64_t lo, int64_t hi) const {
    const int64_t s = start(o);
    const int64_t taps = size(o);
    const int64_t begin = s >= lo ? 0 : CeilDiv(lo - s, dilation);
    const int64_t end = s >= hi ? 0 : s + (taps - 1) * dilation < hi ? taps : CeilDiv(hi - s, dilation);
    return {std::min(begin, taps), std::max(std::min(begin, taps), end)};
  }
};

// The inputs that taps can land on, every `apart`-th from `first` on, as an axis of their own: windows have the same
// taps.
struct ThinAxis {
  Axis axis;
  int64_t first = 0, apart = 1;

  explicit ThinAxis(const Axis& a) : axis(a) {
    const int64_t common = a.kernel > 1 ? std::gcd(a.stride, a.dilation) : a.stride;
    if (a.table || common == 1) return;
    const int64_t begin = -a.pad_lo - FloorDiv(-a.pad_lo, common) * common;
    if (begin >= a.in) return;
    first = begin;
    apart = common;
    axis.in = CeilDiv(a.in - first, apart);
    axis.stride = a.stride / apart;
    axis.dilation = a.kernel > 1 ? a.dilation / apart : 1;
    axis.pad_lo = (a.pad_lo + first) / apart;
    axis.pad_hi = std::max<int64_t>(0, axis.start(a.out - 1) + axis.extent() - axis.in);
  }

  int64_t At(int64_t i) const { return first + i * apart; }  // where its input i is
};

}  // namespace poolgrad
