// What device code shares: element types, a problem as kernel parameters, route codes, division.
//
// Includes nothing of the host's: kernels that are compiled while the program runs (compiled.h) are made of this file
// and those on top of it.
//
// Geometry comes in two index widths. Kernels that visit elements one by one are compiled for 32-bit indices, used
// whenever every array and window is small enough, and for 64-bit ones. The tiled kernels keep 64-bit base pointers and
// 32-bit offsets inside a tile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "poolgrad/poolgrad.h"

namespace poolgrad::cuda {

// ---- element types ----

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// What sums are made of.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

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

// The first of `count` numbers, which never fall, that is at least `least`; `count` if none is.
__host__ __device__ inline int FirstFrom(const uint16_t* numbers, int count, int least) {
  int begin = 0, end = count;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (numbers[middle] < least) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// How an axis says where its windows lie: by stride; by the formula of adaptive pooling; by a list.
enum AxisForm : int32_t { kRegular, kAdaptive, kListed };

template <class I>
struct GeoAxis {
  I in, out, kernel, stride, dilation, pad_lo, pad_hi;
  int32_t form = kRegular;
  int32_t list = 0;    // kListed: bytes from this axis to its starts, which lie behind it in the kernel's parameters
  bool sized = false;  // and sizes follow the starts; else all are `kernel`

  __device__ const uint16_t* entries() const {
    return reinterpret_cast<const uint16_t*>(reinterpret_cast<const char*>(this) + list);
  }
  __device__ I start(I o) const {
    if (form == kRegular) return o * stride - pad_lo;
    return form == kAdaptive ? static_cast<I>(static_cast<int64_t>(o) * in / out) : static_cast<I>(entries()[o]);
  }
  __device__ I size(I o) const {
    if (form == kAdaptive) return static_cast<I>((static_cast<int64_t>(o + 1) * in + out - 1) / out) - start(o);
    return form == kListed && sized ? static_cast<I>(entries()[out + o]) : kernel;
  }
  __device__ I extent() const { return (kernel - 1) * dilation + 1; }

  // Taps of output o that land in [lo, hi), as [*begin, *end). Those of tables are all inside the input.
  __device__ void taps(I o, I lo, I hi, I* begin, I* end) const {
    if (form != kRegular) {
      *begin = 0, *end = size(o);
      return;
    }
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
    if (form == kAdaptive) {
      *begin = static_cast<I>(static_cast<int64_t>(i) * out / in);
      *end = static_cast<I>((static_cast<int64_t>(i + 1) * out + in - 1) / in);
    } else if (form == kListed) {
      *begin = FirstFrom(entries(), static_cast<int>(out), static_cast<int>(i - kernel + 1));
      *end = FirstFrom(entries(), static_cast<int>(out), static_cast<int>(i + 1));
    } else {
      const I reach = i + pad_lo;
      const I low = reach - extent() + 1;
      *begin = low > 0 ? (low + stride - 1) / stride : 0;
      const I high = reach < 0 ? 0 : reach / stride + 1;
      *end = high < out ? high : out;
    }
  }

  // Which tap of output o lands on input i; -1 when none does.
  __device__ I tap_at(I o, I i) const {
    const I distance = i - start(o);
    if (distance < 0 || distance >= (form == kRegular ? extent() : size(o))) return -1;
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
  bool channels_last, masks, count_padding, whole_window_gradient, relu;
};

// Windows by table: lists of starts and sizes travel in the parameters, because the library has no device memory of its
// own. So many fit beside the rest in the 4 KB that every device takes.
inline constexpr int kListEntries = 1728;

template <class I>
struct ListedGeo : Geo<I> {
  uint16_t lists[kListEntries];
};

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

// `bits` (8, 16, 32) of a code to any address.
__device__ inline void StoreWideCode(uint8_t* at, int bits, uint32_t code) {
  *at = static_cast<uint8_t>(code);
  if (bits > 8) at[1] = static_cast<uint8_t>(code >> 8);
  if (bits > 16) at[2] = static_cast<uint8_t>(code >> 16), at[3] = static_cast<uint8_t>(code >> 24);
}

// ---- division by a number fixed for a launch; dividends below 2^31 ----

struct FastDiv {
  uint32_t divisor = 1, multiplier = 0, shift = 0;
  FastDiv() = default;
  __host__ __device__ constexpr explicit FastDiv(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    if (d == 1) return;
    while ((int64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  // quotient, and *n becomes the remainder
  __host__ __device__ uint32_t take(uint32_t* n) const {
    const uint32_t q = of(*n);
    *n -= q * divisor;
    return q;
  }
  __host__ __device__ uint32_t of(uint32_t n) const {
    const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32);
    return divisor == 1 ? n : (high + n) >> shift;
  }
};

// a / b as IEEE rounds it, whatever the compiler's flags.
__device__ inline float Quotient(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline double Quotient(double a, double b) { return __ddiv_rn(a, b); }

// A kernel that begins with this may be launched early (LaunchPointers): its blocks find their places while the kernel
// before it on the stream ends, and that of the next may do so from now on. Short kernels are 2 to 5 % faster one after
// the other.
__device__ inline void WaitForEarlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace poolgrad::cuda
