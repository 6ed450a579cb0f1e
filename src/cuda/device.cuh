// What every kernel shares: a problem as kernel parameters, element types on the device, launching, and the error
// sentences.
//
// Geometry comes in two index widths. Kernels that visit elements one by one are compiled for 32-bit indices, used
// whenever every array and window is small enough, and for 64-bit ones. The tiled kernels keep 64-bit base pointers and
// 32-bit offsets inside a tile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "cuda/cuda.h"

namespace poolgrad {

// The device's halves are widened as the library's own are.
template <>
struct WideOf<__half> {
  using Type = float;
};
template <>
struct WideOf<__nv_bfloat16> {
  using Type = float;
};

}  // namespace poolgrad

namespace poolgrad::cuda {

// ---- element types ----

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

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

__device__ inline float Widened(__half v) { return __half2float(v); }
__device__ inline float Widened(__nv_bfloat16 v) { return __bfloat162float(v); }
template <class T>
__device__ std::enable_if_t<!kIsHalf<T>, T> Widened(T v) {
  return v;
}

template <class T>
__device__ T Narrowed(Wide<T> v) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(v);
  } else {
    return v;
  }
}

// y of a window that nobody won.
template <class T>
__device__ T LowestOf() {
  if constexpr (std::is_same_v<T, __half>) {
    return __ushort_as_half(0xFC00);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __ushort_as_bfloat16(0xFF80);
  } else if constexpr (std::is_same_v<T, float>) {
    return __int_as_float(0xFF800000);
  } else if constexpr (std::is_same_v<T, double>) {
    return __longlong_as_double(0xFFF0000000000000ll);
  } else {
    return static_cast<T>(std::is_signed_v<T> ? T(1) << (8 * sizeof(T) - 1) : 0);
  }
}

// ---- a problem as kernel parameters ----

template <class I>
struct GeoAxis {
  I in, out, kernel, stride, dilation, pad_lo, pad_hi;

  __device__ I start(I o) const { return o * stride - pad_lo; }
  __device__ I extent() const { return (kernel - 1) * dilation + 1; }

  // Taps of output o that land in [lo, hi), as [*begin, *end).
  __device__ void taps(I o, I lo, I hi, I* begin, I* end) const {
    const I s = start(o);
    I b = s >= lo ? 0 : (lo - s + dilation - 1) / dilation;
    I e = s >= hi ? 0 : (hi - s + dilation - 1) / dilation;
    b = b < kernel ? b : kernel;
    e = e < kernel ? e : kernel;
    *begin = b;
    *end = e > b ? e : b;
  }

  // Outputs whose window reaches over input i, as [*begin, *end).
  __device__ void covering(I i, I* begin, I* end) const {
    const I reach = i + pad_lo;
    const I low = reach - extent() + 1;
    *begin = low > 0 ? (low + stride - 1) / stride : 0;
    const I high = reach < 0 ? 0 : reach / stride + 1;
    *end = high < out ? high : out;
  }

  // Which tap of output o lands on input i; -1 when none does.
  __device__ I tap_at(I o, I i) const {
    const I distance = i - start(o);
    if (distance < 0 || distance >= extent()) return -1;
    if (dilation == 1) return distance;
    return distance % dilation != 0 ? -1 : distance / dilation;
  }
};

template <class I>
struct Geo {
  GeoAxis<I> axis[3];
  I batch, channels;
  I x_n, x_c, x_axis[3];  // strides of the input, in elements
  I y_n, y_c, y_axis[3];
  I line, line_bytes, mask_bytes;
  I divisor;
  int32_t bits;  // of a route code
  uint32_t none;
  int32_t nan, ties;
  bool channels_last, masks, count_padding, whole_window_gradient;
};

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

// ---- route codes ----

__device__ inline uint32_t CodeAt(int bits, const uint8_t* line, int64_t at) {
  switch (bits) {
    case 2:
      return (line[at >> 2] >> ((at & 3) * 2)) & 3u;
    case 4:
      return (line[at >> 1] >> ((at & 1) * 4)) & 15u;
    case 8:
      return line[at];
    case 16:
      return line[2 * at] | uint32_t{line[2 * at + 1]} << 8;
    default:
      return line[4 * at] | uint32_t{line[4 * at + 1]} << 8 | uint32_t{line[4 * at + 2]} << 16 |
             uint32_t{line[4 * at + 3]} << 24;
  }
}

// ---- division by a number fixed for a launch; dividends below 2^31 ----

struct FastDiv {
  uint32_t divisor = 1, multiplier = 0, shift = 0;
  FastDiv() = default;
  explicit FastDiv(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    if (d == 1) return;
    while ((int64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  // quotient, and *n becomes the remainder
  __device__ uint32_t take(uint32_t* n) const {
    const uint32_t q = divisor == 1 ? *n : (__umulhi(*n, multiplier) + *n) >> shift;
    *n -= q * divisor;
    return q;
  }
};

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

// Launches on the current device. Grids are one-dimensional; `blocks` of 0 launches nothing.
template <class... Params>
cudaError_t Launch(void (*kernel)(Params...), int64_t blocks, int threads, size_t shared_bytes, void* stream,
                   std::type_identity_t<Params>... params) {
  if (blocks <= 0) return cudaSuccess;
  if (blocks > kMaxBlocks) return cudaErrorInvalidConfiguration;
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&params))...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(threads)), pointers, shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

inline bool Aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace poolgrad::cuda
