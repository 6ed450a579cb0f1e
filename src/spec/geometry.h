// Window arithmetic, forward and inverse. The only place that does any.
//
// One axis at a time: output o's window starts at o*stride - pad_lo and has `kernel` taps, `dilation` apart. A tap is valid
// when it lands inside [0, in). Padding is never a candidate, so a window may have no valid tap.
#pragma once

#include <algorithm>
#include <cstdint>

namespace poolgrad {

// [begin, end); empty when end <= begin.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end > begin ? end - begin : 0; }
};

inline constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0); }   // b > 0, any a
inline constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }  // b > 0, any a

struct Axis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_lo = 0;
  int64_t pad_hi = 0;

  int64_t extent() const { return (kernel - 1) * dilation + 1; }

  // Where output o's tap 0 lands (may lie outside the input).
  int64_t start(int64_t o) const { return o * stride - pad_lo; }

  // The taps of output o that land inside the input.
  Range valid_taps(int64_t o) const { return taps_within(o, 0, in); }

  // The taps of output o that land inside the input or its padding (what a padding-counting average divides by).
  Range padded_taps(int64_t o) const { return taps_within(o, -pad_lo, in + pad_hi); }

  // Outputs whose window reaches over input i. With dilation > 1 some of them have no tap exactly there: ask tap_at.
  Range covering(int64_t i) const {
    const int64_t reach = i + pad_lo;  // o*stride <= reach and o*stride + extent > reach
    return {std::max<int64_t>(0, CeilDiv(reach - extent() + 1, stride)), std::min(out, FloorDiv(reach, stride) + 1)};
  }

  // Which tap of output o lands on input i; -1 when none does.
  int64_t tap_at(int64_t o, int64_t i) const {
    const int64_t distance = i - start(o);
    if (distance < 0 || distance >= extent() || distance % dilation != 0) return -1;
    return distance / dilation;
  }

  // Outputs whose every tap is valid: no clipping needed there.
  Range interior() const {
    const int64_t begin = std::min(out, std::max<int64_t>(0, CeilDiv(pad_lo, stride)));
    const int64_t last_start = in - extent();  // start(o) <= last_start
    const int64_t end = last_start < 0 ? begin : std::min(out, FloorDiv(last_start + pad_lo, stride) + 1);
    return {begin, std::max(begin, end)};
  }

  // The windows `outputs` over the inputs `inputs` of this axis, as an axis of its own: taps keep their numbers, and those that
  // land outside `inputs` are padding. `outputs` is not empty.
  Axis Part(Range outputs, Range inputs) const {
    Axis part = *this;
    part.in = inputs.size();
    part.out = outputs.size();
    part.pad_lo = inputs.begin - start(outputs.begin);
    part.pad_hi = std::max<int64_t>(0, start(outputs.end - 1) + extent() - inputs.end);
    return part;
  }

  // Windows do not share inputs: every input has at most one writer.
  bool disjoint() const { return stride >= extent() || out <= 1; }

  // Some window has no valid tap (or may have: gaps wider than the input are searched only up to a point).
  bool has_empty_window() const {
    if (out == 0) return false;
    if (in == 0) return true;
    if (dilation <= in) return start(0) + (kernel - 1) * dilation < 0 || start(out - 1) >= in;
    if (out > 4096) return true;
    for (int64_t o = 0; o < out; ++o) {
      if (valid_taps(o).size() == 0) return true;
    }
    return false;
  }

 private:
  Range taps_within(int64_t o, int64_t lo, int64_t hi) const {
    const int64_t s = start(o);
    const int64_t begin = s >= lo ? 0 : CeilDiv(lo - s, dilation);
    const int64_t end = s >= hi ? 0 : std::min(kernel, CeilDiv(hi - s, dilation));
    return {std::min(begin, kernel), std::max(std::min(begin, kernel), end)};
  }
};

}  // namespace poolgrad
