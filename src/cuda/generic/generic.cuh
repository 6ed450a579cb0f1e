// The last resort: every operation, type, layout, geometry and rule, one element (or one byte of routes) per thread.
#pragma once

#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"

namespace poolgrad::cuda {

inline constexpr int kGenericThreads = 256;

struct Pointers {
  const void* source;
  uint8_t* routes;
  void* result;
};

// The input element that thread work item `index` names.
template <class I>
struct InPlace {
  I n, c, at[3];
};

template <class I>
__device__ InPlace<I> PlaceOfInput(const Geo<I>& g, I index) {
  InPlace<I> q;
  if (g.channels_last) {
    q.c = index % g.channels;
    index /= g.channels;
  }
  for (int i = 2; i >= 0; --i) {
    q.at[i] = index % g.axis[i].in;
    index /= g.axis[i].in;
  }
  if (!g.channels_last) {
    q.c = index % g.channels;
    index /= g.channels;
  }
  q.n = index;
  return q;
}

// visit(output place, its index in memory, tap) for every output with a tap on q, in row-major order of outputs.
template <class I, class Visit>
__device__ void ForEachCover(const Geo<I>& g, const InPlace<I>& q, Visit&& visit) {
  I begin[3], end[3];
  for (int i = 0; i < 3; ++i) g.axis[i].covering(q.at[i], &begin[i], &end[i]);
  for (I od = begin[0]; od < end[0]; ++od) {
    const I kd = g.axis[0].tap_at(od, q.at[0]);
    if (kd < 0) continue;
    for (I oh = begin[1]; oh < end[1]; ++oh) {
      const I kh = g.axis[1].tap_at(oh, q.at[1]);
      if (kh < 0) continue;
      for (I ow = begin[2]; ow < end[2]; ++ow) {
        const I kw = g.axis[2].tap_at(ow, q.at[2]);
        if (kw < 0) continue;
        const OutPlace<I> o{q.n, q.c, {od, oh, ow}};
        const I index = q.n * g.y_n + q.c * g.y_c + od * g.y_axis[0] + oh * g.y_axis[1] + ow * g.y_axis[2];
        visit(o, index, (kd * g.axis[1].kernel + kh) * g.axis[2].kernel + kw);
      }
    }
  }
}

// Whether `tap` won output `index`.
template <class I>
__device__ bool Won(const Geo<I>& g, const uint8_t* routes, I index, I tap) {
  const uint8_t* line = routes + index / g.line * g.line_bytes;
  const I at = index % g.line;
  if (g.masks) return (line[at * g.mask_bytes + (tap >> 3)] >> (tap & 7)) & 1u;
  return CodeAt(g.bits, line, at) == static_cast<uint32_t>(tap);
}

// How many taps share output `index`.
template <class I>
__device__ I Winners(const Geo<I>& g, const uint8_t* routes, I index) {
  const uint8_t* mask = routes + index / g.line * g.line_bytes + index % g.line * g.mask_bytes;
  I count = 0;
  for (I b = 0; b < g.mask_bytes; ++b) count += __popc(mask[b]);
  return count;
}

// What an average divides by at output o.
template <class I>
__device__ I CountOf(const Geo<I>& g, const OutPlace<I>& o) {
  if (g.divisor != 0) return g.divisor;
  I count = 1;
  for (int i = 0; i < 3; ++i) {
    const GeoAxis<I>& a = g.axis[i];
    I begin, end;
    a.taps(o.at[i], g.count_padding ? -a.pad_lo : 0, g.count_padding ? a.in + a.pad_hi : a.in, &begin, &end);
    count *= end - begin;
  }
  return count;
}

// Of integers.
template <class V>
__device__ std::enable_if_t<std::is_integral_v<V>, V> Quotient(V a, V b) {
  return static_cast<V>(a / b);
}

enum class Generic { kForward, kBackward, kGather, kUnpool, kAverage, kAverageBackward };

template <Generic kOp, class T, class I>
__global__ void __launch_bounds__(kGenericThreads)
    GenericKernel(const __grid_constant__ ListedGeo<I> listed, Pointers p, I items, I per_item, I items_per_line) {
  const Geo<I>& g = listed;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kGenericThreads + threadIdx.x;
  if (thread >= static_cast<int64_t>(items)) return;
  const I item = static_cast<I>(thread);
  const T* source = static_cast<const T*>(p.source);
  T* result = static_cast<T*>(p.result);
  using V = Wide<T>;
  if constexpr (kOp == Generic::kForward) {
    const I line = item / items_per_line;
    const I at = item % items_per_line * per_item;
    SelectRun<T, I>(g, source, result, p.routes, line, at, min(per_item, static_cast<I>(g.line - at)));
  } else if constexpr (kOp == Generic::kGather || kOp == Generic::kAverage) {
    const OutPlace<I> o = PlaceOfLine(g, static_cast<I>(item / g.line), static_cast<I>(item % g.line));
    const T* plane = source + o.n * g.x_n + o.c * g.x_c;
    V sum = 0;
    if constexpr (kOp == Generic::kAverage) {
      ForEachTap(g, o, [&](I, I offset) {
        sum += Widened(plane[offset]);
        return true;
      });
      const I count = CountOf(g, o);
      result[item] = Narrowed<T>(count == 0 ? V{0} : Quotient(sum, static_cast<V>(count)));
    } else {
      // Integers are summed in 64 bits, so that only the result wraps around, after it was divided.
      using Sum = std::conditional_t<std::is_integral_v<V>, int64_t, V>;
      Sum total = 0;
      T single = Narrowed<T>(V{0});
      bool any = false;
      ForEachTap(g, o, [&](I tap, I offset) {
        if (!Won(g, p.routes, item, tap)) return true;
        single = plane[offset];
        total += static_cast<Sum>(Widened(single));
        any = true;
        return g.masks;
      });
      if (g.masks && g.ties == POOLGRAD_TIES_SPLIT && any)
        total = Quotient(total, static_cast<Sum>(Winners(g, p.routes, item)));
      result[item] = g.masks ? Narrowed<T>(static_cast<V>(total)) : single;
    }
  } else {
    const InPlace<I> q = PlaceOfInput(g, item);
    if constexpr (kOp == Generic::kUnpool) {
      T value = Narrowed<T>(V{0});
      ForEachCover(g, q, [&](const OutPlace<I>&, I index, I tap) {
        if (Won(g, p.routes, index, tap)) value = source[index];
      });
      result[item] = value;
    } else {
      V sum = 0;
      ForEachCover(g, q, [&](const OutPlace<I>& o, I index, I tap) {
        if constexpr (kOp == Generic::kAverageBackward) {
          const I count =
              g.whole_window_gradient ? g.axis[0].kernel * g.axis[1].kernel * g.axis[2].kernel : CountOf(g, o);
          sum += Quotient(Widened(source[index]), static_cast<V>(count));
        } else if (Won(g, p.routes, index, tap)) {
          const V dy = Widened(source[index]);
          sum += g.ties == POOLGRAD_TIES_SPLIT ? Quotient(dy, static_cast<V>(Winners(g, p.routes, index))) : dy;
        }
      });
      result[item] = Narrowed<T>(sum);
    }
  }
}

template <Generic kOp, class T, class I>
cudaError_t LaunchGeneric(const Problem& p, const Args& args, void* stream) {
  const ListedGeo<I> g = MakeListedGeo<I>(p);
  constexpr bool by_input = kOp == Generic::kBackward || kOp == Generic::kUnpool || kOp == Generic::kAverageBackward;
  int64_t per_item = 1;
  int64_t per_line = p.routes.line;
  int64_t items = by_input ? p.x_elements() : p.y_elements();
  if (kOp == Generic::kForward && items > 0) {  // one thread writes whole bytes of routes
    per_item = args.routes && p.routes.bits < 8 ? 8 / p.routes.bits : 1;
    per_line = CeilDiv(p.routes.line, per_item);
    items = p.routes.lines * per_line;
  }
  return Launch(GenericKernel<kOp, T, I>, CeilDiv(items, kGenericThreads), kGenericThreads, 0, stream, g,
                Pointers{args.source, args.routes, args.result}, static_cast<I>(items), static_cast<I>(per_item),
                static_cast<I>(per_line));
}

// The generic kernels of one element type; each type is compiled in a file of its own.
template <class T>
cudaError_t RunGeneric(const Problem& p, Generic op, const Args& args, void* stream);

template <class T, class I>
cudaError_t RunGenericWith(const Problem& p, Generic op, const Args& args, void* stream) {
  switch (op) {
    case Generic::kForward:
      return LaunchGeneric<Generic::kForward, T, I>(p, args, stream);
    case Generic::kGather:
      return LaunchGeneric<Generic::kGather, T, I>(p, args, stream);
    case Generic::kUnpool:
      return LaunchGeneric<Generic::kUnpool, T, I>(p, args, stream);
    default:
      break;
  }
  if constexpr (!std::is_integral_v<T>) {
    switch (op) {
      case Generic::kBackward:
        return LaunchGeneric<Generic::kBackward, T, I>(p, args, stream);
      case Generic::kAverage:
        return LaunchGeneric<Generic::kAverage, T, I>(p, args, stream);
      case Generic::kAverageBackward:
        return LaunchGeneric<Generic::kAverageBackward, T, I>(p, args, stream);
      default:
        break;
    }
  }
  return cudaErrorInvalidValue;
}

#define POOLGRAD_CUDA_GENERIC(T)                                                            \
  template <>                                                                               \
  cudaError_t RunGeneric<T>(const Problem& p, Generic op, const Args& args, void* stream) { \
    return FitsInt32(p) ? RunGenericWith<T, int32_t>(p, op, args, stream)                   \
                        : RunGenericWith<T, int64_t>(p, op, args, stream);                  \
  }

}  // namespace poolgrad::cuda
