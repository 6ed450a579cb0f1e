// One axis of a window as the kernels for any window see it. Only start() knows where a window lies.
#pragma once

#include "cuda/common/geo.cuh"

namespace poolgrad::cuda {

struct WindowAxis {
  int in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
  // The inputs that a tile's windows reach, numbered from 0: window o's tap k is number o * per_output + k * per_tap.
  // Usually they are all inputs from the first window's start on, or every `step`th, where all windows skip the others;
  // where windows leave gaps, only the taps, and the step is 0.
  int per_output = 1, per_tap = 1, step = 1;
  // The outputs with a tap on one input: from the first on every `every`th, each with its tap `tap_step` lower.
  int every = 1, tap_step = 1;
  FastDiv by_kernel, by_stride, by_dilation;

  template <class A>  // spec's Axis, which kernels that are compiled for a plan do not know
  requires(!std::is_same_v<A, WindowAxis>) explicit WindowAxis(const A& a);
  WindowAxis() = default;

  __host__ __device__ int start(int o) const { return o * stride - pad; }
  __host__ __device__ int extent() const { return (kernel - 1) * dilation + 1; }
  // How many inputs `outputs` windows one after the other reach.
  int64_t reach(int64_t outputs) const {
    return step == 0 ? outputs * kernel : (outputs - 1) * per_output + int64_t{kernel - 1} * per_tap + 1;
  }
  // The input that has number `row` in a tile whose first window is `first`.
  __device__ int place(int first, int row) const {
    if (step > 0) return start(first) + row * step;
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
  int64_t most_covers() const { return out < (kernel - 1) / tap_step + 1 ? out : (kernel - 1) / tap_step + 1; }
  // Outputs whose window reaches over an input of [begin, end), as [*first, *last).
  __host__ __device__ void covering(int begin, int end, int* first, int* last) const {
    const int low = begin + pad - extent() + 1, high = end - 1 + pad;
    *first = low > 0 ? (low + stride - 1) / stride : 0;
    *last = high < 0 ? 0 : high / stride + 1 < out ? high / stride + 1 : out;
  }
};

// All but where the axis begins and ends.
__host__ __device__ constexpr WindowAxis WindowOf(int kernel, int stride, int dilation) {
  WindowAxis a{};
  a.kernel = kernel, a.stride = stride, a.dilation = dilation;
  int common = stride;
  for (int rest = dilation; rest != 0;) {
    const int next = common % rest;
    common = rest, rest = next;
  }
  a.every = dilation / common;
  a.tap_step = stride / common;
  a.step = a.tap_step > kernel ? 0 : common;
  a.per_output = a.step == 0 ? kernel : a.tap_step;
  a.per_tap = a.step == 0 ? 1 : a.every;
  a.by_kernel = FastDiv(kernel), a.by_stride = FastDiv(stride), a.by_dilation = FastDiv(dilation);
  return a;
}

template <class A>
requires(!std::is_same_v<A, WindowAxis>) WindowAxis::WindowAxis(const A& a)
    : WindowAxis(WindowOf(static_cast<int>(a.kernel), static_cast<int>(a.stride), static_cast<int>(a.dilation))) {
  in = static_cast<int>(a.in), out = static_cast<int>(a.out), pad = static_cast<int>(a.pad_lo);
}

}  // namespace poolgrad::cuda
