// One axis of a window as the kernels for any window see it. Only start() knows where a window lies.
#pragma once

#include <algorithm>
#include <numeric>

#include "cuda/device.cuh"

namespace poolgrad::cuda {

struct WindowAxis {
  int in, out, kernel, stride, dilation, pad;
  // The inputs that a tile's windows reach, numbered from 0: window o's tap k is number o * per_output + k * per_tap.
  // Usually they are all inputs from the first window's start on; where windows leave gaps (`packed`), only the taps.
  int per_output, per_tap;
  bool packed;
  // The outputs with a tap on one input: from the first on every `every`th, each with its tap `tap_step` lower.
  int every, tap_step;
  FastDiv by_kernel, by_stride, by_dilation;

  explicit WindowAxis(const Axis& a)
      : in(static_cast<int>(a.in)),
        out(static_cast<int>(a.out)),
        kernel(static_cast<int>(a.kernel)),
        stride(static_cast<int>(a.stride)),
        dilation(static_cast<int>(a.dilation)),
        pad(static_cast<int>(a.pad_lo)),
        by_kernel(a.kernel),
        by_stride(a.stride),
        by_dilation(a.dilation) {
    const int common = std::gcd(stride, dilation);
    every = dilation / common;
    tap_step = stride / common;
    packed = stride > kernel;
    per_output = packed ? kernel : stride;
    per_tap = packed ? 1 : dilation;
  }
  WindowAxis() = default;

  __host__ __device__ int start(int o) const { return o * stride - pad; }
  __host__ __device__ int extent() const { return (kernel - 1) * dilation + 1; }
  // How many inputs `outputs` windows one after the other reach.
  int64_t reach(int64_t outputs) const {
    return packed ? outputs * kernel : (outputs - 1) * stride + int64_t{kernel - 1} * dilation + 1;
  }
  // The input that has number `row` in a tile whose first window is `first`.
  __device__ int place(int first, int row) const {
    if (!packed) return start(first) + row;
    uint32_t tap = static_cast<uint32_t>(row);
    const int o = static_cast<int>(by_kernel.take(&tap));
    return start(first + o) + static_cast<int>(tap) * dilation;
  }
  // The outputs with a tap on input i: how many, the first, and its tap.
  __device__ int covers(int i, int* first, int* tap) const {
    const int reach = i + pad;
    if (reach < 0) return 0;
    uint32_t past = static_cast<uint32_t>(max(0, reach - extent() + stride));  // rounded up
    int o = static_cast<int>(by_stride.take(&past));
    uint32_t rest = static_cast<uint32_t>(reach);
    const int last = min(out - 1, static_cast<int>(by_stride.take(&rest)));
    uint32_t distance = static_cast<uint32_t>(reach - o * stride);
    if (dilation == 1) {
      *first = o, *tap = static_cast<int>(distance);
      return max(0, last - o + 1);
    }
    for (int tries = 0; o <= last && tries < every; ++o, ++tries) {
      distance = static_cast<uint32_t>(reach - o * stride);
      *tap = static_cast<int>(by_dilation.take(&distance));
      *first = o;
      if (distance == 0) return (last - o) / every + 1;
    }
    return 0;
  }
  // At most so many of them for any input.
  int64_t most_covers() const { return std::min<int64_t>(out, CeilDiv(kernel, tap_step)); }
  // Outputs whose window reaches over an input of [begin, end), as [*first, *last).
  __device__ void covering(int begin, int end, int* first, int* last) const {
    const int low = begin + pad - extent() + 1, high = end - 1 + pad;
    *first = low > 0 ? (low + stride - 1) / stride : 0;
    *last = high < 0 ? 0 : min(out, high / stride + 1);
  }
};

}  // namespace poolgrad::cuda
