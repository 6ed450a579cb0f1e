// What the host's side of every kernel shares: a problem as kernel parameters, and launching a kernel of this file's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda/common/geo.cuh"
#include "cuda/common/runtime.h"

namespace poolgrad::cuda {

template <class T>
struct DeviceType {
  using Type = T;
};
template <>
struct DeviceType<F16> {
  using Type = __half;
};
template <>
struct DeviceType<BF16> {
  using Type = __nv_bfloat16;
};
template <class T>
using OnDevice = typename DeviceType<T>::Type;

template <class I>
Geo<I> MakeGeo(const Problem& p) {
  Geo<I> g{};
  const auto to = [](int64_t v) { return static_cast<I>(v); };
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    g.axis[i] = {to(a.in), to(a.out), to(a.kernel), to(a.stride), to(a.dilation), to(a.pad_lo), to(a.pad_hi)};
  }
  const auto strides = [&](int64_t Axis::*size, I* n, I* c, I* axis) {
    int64_t step = 1;
    if (p.channels_last()) *c = to(step), step *= p.channels;
    for (int i = 2; i >= 0; --i) axis[i] = to(step), step *= p.axis[i].*size;
    if (!p.channels_last()) *c = to(step), step *= p.channels;
    *n = to(step);
  };
  strides(&Axis::in, &g.x_n, &g.x_c, g.x_axis);
  strides(&Axis::out, &g.y_n, &g.y_c, g.y_axis);
  g.batch = to(p.batch);
  g.channels = to(p.channels);
  g.line = to(p.routes.line);
  g.line_bytes = to(p.routes.line_bytes);
  g.mask_bytes = to(p.routes.mask_bytes());
  g.divisor = to(p.divisor);
  g.bits = p.routes.bits;
  g.none = p.routes.none();
  g.nan = p.nan;
  g.ties = p.ties;
  g.channels_last = p.channels_last();
  g.masks = p.routes.masks;
  g.count_padding = p.count_padding;
  g.whole_window_gradient = p.whole_window_gradient;
  g.relu = p.relu;
  return g;
}

// ---- windows by table ----

inline bool IsAdaptive(const Axis& a) {
  for (int64_t o = 0; o < a.out; ++o) {
    if (a.start(o) != o * a.in / a.out || a.start(o) + a.size(o) != CeilDiv((o + 1) * a.in, a.out)) return false;
  }
  return true;
}

inline bool HasSizes(const Axis& a) {
  for (int64_t o = 0; o < a.out; ++o) {
    if (a.size(o) != a.kernel) return true;
  }
  return false;
}

// Sets form and list of every axis; the lists are written to `lists`. False if they do not fit there.
template <class A>
bool FillLists(const Problem& p, A* axes, uint16_t* lists) {
  int64_t used = 0;
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    axes[i].form = !a.table ? kRegular : IsAdaptive(a) ? kAdaptive : kListed;
    if (axes[i].form != kListed) continue;
    axes[i].sized = HasSizes(a);
    axes[i].list =
        static_cast<int32_t>(reinterpret_cast<const char*>(lists + used) - reinterpret_cast<const char*>(&axes[i]));
    if (a.in > 0xFFFF || used + a.out * (axes[i].sized ? 2 : 1) > kListEntries) return false;
    for (int64_t o = 0; o < a.out; ++o) lists[used++] = static_cast<uint16_t>(a.start(o));
    for (int64_t o = 0; axes[i].sized && o < a.out; ++o) lists[used++] = static_cast<uint16_t>(a.size(o));
  }
  return true;
}

// Of a problem whose lists fit, as the plan has seen to (CudaRefusesTables).
template <class I>
ListedGeo<I> MakeListedGeo(const Problem& p) {
  ListedGeo<I> g{MakeGeo<I>(p), {}};
  if (p.by_table()) FillLists(p, g.axis, g.lists);
  return g;
}

// 32-bit numbers hold every window position of the problem.
inline bool FitsWindow32(const Problem& p) {
  constexpr int64_t limit = int64_t{1} << 29;
  for (const Axis& a : p.axis) {
    for (const int64_t size : {a.in, a.out, a.kernel, a.stride, a.dilation, a.extent(), a.pad_lo, a.pad_hi}) {
      if (size > limit || size < -limit) return false;
    }
    if (a.out * a.stride > limit) return false;
  }
  return p.taps() < limit;
}

// 32-bit indices hold every element, byte and window position of the problem.
inline bool FitsInt32(const Problem& p) {
  constexpr int64_t limit = int64_t{1} << 30;
  return FitsWindow32(p) && p.x_elements() < limit && p.y_elements() < limit && p.routes.bytes() < limit &&
         p.divisor < limit;
}

template <class... Params>
cudaError_t Launch(void (*kernel)(Params...), int64_t blocks, int threads, size_t shared_bytes, void* stream,
                   std::type_identity_t<Params>... params) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&params))...};
  return LaunchPointers(AddressOf(kernel), blocks, threads, shared_bytes, stream, pointers);
}

}  // namespace poolgrad::cuda
