// What the host's side of every kernel shares: a problem as kernel parameters, launching, and the error sentences.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "cuda/cuda.h"
#include "cuda/geo.cuh"

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

// ---- launching ----

// Makes `device` current for as long as it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    status_ = cudaGetDevice(&before_);
    if (status_ == cudaSuccess && before_ != device) {
      status_ = cudaSetDevice(device);
      changed_ = status_ == cudaSuccess;
    }
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t status_;
};

// The sentence for a runtime error; takes the error out of the runtime's state.
Status ErrorStatus(cudaError_t error, const std::string& while_doing);

inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

// Launches on the current device a kernel that was compiled ahead, or while the program runs. Grids are
// one-dimensional; `blocks` of 0 launches nothing.
inline cudaError_t LaunchPointers(const void* kernel, int64_t blocks, int threads, size_t shared_bytes, void* stream,
                                  void** params) {
  if (blocks <= 0) return cudaSuccess;
  if (blocks > kMaxBlocks) return cudaErrorInvalidConfiguration;
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), params,
                          shared_bytes, static_cast<cudaStream_t>(stream));
}

template <class... Params>
cudaError_t Launch(void (*kernel)(Params...), int64_t blocks, int threads, size_t shared_bytes, void* stream,
                   std::type_identity_t<Params>... params) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&params))...};
  return LaunchPointers(reinterpret_cast<const void*>(kernel), blocks, threads, shared_bytes, stream, pointers);
}

inline bool Aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace poolgrad::cuda
