// Windows by table and averages, compiled for their axes: where windows begin and end is known, so that a thread that
// stays with one column goes down the rows and looks at each once (tables_known_forward.cuh,
// tables_known_backward.cuh). This is what they know of the axes.
#pragma once

#include "cuda/tables/tables.cuh"
#include "cuda/tables/tables_form.h"

namespace poolgrad::cuda {

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
  __device__ constexpr operator int() const { return kNumber; }
};

// visit(Constant<i>) for i in [kBegin, kEnd).
template <int kBegin, int kEnd, class F>
__device__ void Unrolled(F&& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>{});
    Unrolled<kBegin + 1, kEnd>(visit);
  }
}

// As TableAxis; lists are still looked up.
template <TableForm f, int i>
struct KnownAxis {
  static constexpr bool kListed = f.form[i] == poolgrad::cuda::kListed,
                        kAdaptive = f.form[i] == poolgrad::cuda::kAdaptive;
  static constexpr int kDilation = f.dilation[i];
  const TableAxis& axis;

  __device__ static constexpr int StartOf(int o) {
    if constexpr (kAdaptive) return static_cast<int>(static_cast<uint32_t>(o * f.in[i]) / f.out[i]);
    return o * f.stride[i] - f.pad_lo[i];
  }
  __device__ static constexpr int EndOf(int o) {
    if constexpr (kAdaptive)
      return static_cast<int>(static_cast<uint32_t>((o + 1) * f.in[i] + f.out[i] - 1) / f.out[i]);
    const int end = StartOf(o) + (f.kernel[i] - 1) * kDilation + 1;
    return end < f.in[i] ? end : f.in[i];
  }
  __device__ constexpr int start(int o) const {
    if constexpr (kListed) return axis.start(o);
    return StartOf(o);
  }
  __device__ constexpr int begin(int o) const {
    const int at = start(o);
    return f.form[i] == kRegular && at < 0 ? 0 : at;
  }
  // Where the first of its taps is that is inside.
  __device__ constexpr int first(int o) const {
    const int at = start(o);
    return f.form[i] == kRegular && at < 0 ? at + (kDilation - 1 - at) / kDilation * kDilation : at;
  }
  __device__ constexpr int end(int o) const {
    if constexpr (kListed) return axis.start(o) + f.kernel[i];
    return EndOf(o);
  }
  // What an average counts.
  __device__ constexpr int counted(int o) const {
    if constexpr (f.form[i] != kRegular) return end(o) - start(o);
    const int low = start(o), high = low + f.kernel[i];
    const int least = f.count_padding ? -f.pad_lo[i] : 0, most = f.count_padding ? f.in[i] + f.pad_hi[i] : f.in[i];
    const int count = (high < most ? high : most) - (low > least ? low : least);
    return count > 0 ? count : 0;
  }
  __device__ Interval covering(int at) const {
    Interval o;
    if constexpr (kAdaptive) {
      o.begin = static_cast<int>(static_cast<uint32_t>(at * f.out[i]) / f.in[i]);
      o.end = static_cast<int>(static_cast<uint32_t>((at + 1) * f.out[i] + f.in[i] - 1) / f.in[i]);
    } else if constexpr (f.in[i] == 1 && f.out[i] == 1 && StartOf(0) <= 0 && EndOf(0) > 0) {
      o = {0, 1};
    } else {
      axis.covering(at, &o.begin, &o.end);
    }
    return o;
  }
};

template <TableForm f>
struct KnownAxes {
  KnownAxis<f, 0> d;
  KnownAxis<f, 1> h;
  KnownAxis<f, 2> w;
  template <class T>
  __device__ explicit KnownAxes(const TableParams<T>& p) : d{p.axis[0]}, h{p.axis[1]}, w{p.axis[2]} {}
};

}  // namespace poolgrad::cuda
