// Channels first, global pooling: one window over the whole plane, one output per plane.
//
// Forward: a block holds many planes in shared memory; a few neighbouring threads share a plane, each taking a run of it, and the
// earlier keeps a tie. Each thread starts its run at a place of its own and wraps around once, so that threads that are a whole
// plane apart do not all ask the same memory bank. Backward: dx is zero but for one element per plane; a thread writes vectors of
// 16 bytes.
#pragma once

#include "cuda/cells.cuh"
#include "cuda/exact.cuh"
#include "cuda/fast.h"
#include "cuda/packs.cuh"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

template <class T>
struct PlaneParams {
  Geo<int64_t> g;
  const T* source;
  T* result;
  uint8_t* routes;
  int size;     // elements of a plane
  int sharers;  // threads of a plane, a power of two up to 32
  int64_t planes;
  int code_bytes;
  FastDiv by_size;
  int64_t elements;
};

__device__ inline void StoreCode(uint8_t* at, int bytes, uint32_t code) {
  for (int b = 0; b < bytes; ++b) at[b] = static_cast<uint8_t>(code >> (8 * b));
}

template <class T, bool kRoutes>
__global__ void __launch_bounds__(kPlaneThreads, 6) PlaneForwardKernel(const __grid_constant__ PlaneParams<T> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int per_block = kPlaneThreads / p.sharers;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * per_block;
  const int planes = static_cast<int>(min(static_cast<int64_t>(per_block), p.planes - first));
  const T* staged = StageIn(p.source + first * p.size, planes * p.size, shared);
  const int plane = threadIdx.x / p.sharers, sharer = threadIdx.x % p.sharers;
  const T* x = staged + plane * p.size;
  const int length = (p.size + p.sharers - 1) / p.sharers;
  const int begin = min(sharer * length, p.size), end = plane < planes ? min(begin + length, p.size) : begin;
  const int middle = end > begin ? begin + plane % (end - begin) : begin;
  const float lowest = LowestOf<float>();
  float watched = 0;
  struct Best {
    float value;
    int tap;
  };
  const auto scan = [&](int from, int to) {
    Best best{lowest, from};
#pragma unroll 8
    for (int i = from; i < to; ++i) {
      const float v = Widened(x[i]);
      watched = Pack<float>::Watch(watched, v);
      if (v > best.value) best.value = v, best.tap = i;
    }
    return best;
  };
  const Best late = scan(middle, end);
  Best best = scan(begin, middle);
  if (late.value > best.value || middle == begin) best = late;
  for (int step = 1; step < p.sharers; step *= 2) {  // the lower lane's run comes first
    const Best other{__shfl_down_sync(~0u, best.value, step), __shfl_down_sync(~0u, best.tap, step)};
    const float other_watched = __shfl_down_sync(~0u, watched, step);
    if (sharer % (2 * step) == 0) {
      if (other.value > best.value) best = other;
      watched = Pack<float>::Watch(watched, other_watched);
    }
  }
  if (sharer != 0 || plane >= planes) return;
  const int64_t line = first + plane;
  if (watched != watched || best.value == lowest) {
    SelectRun<T, int64_t>(p.g, p.source, p.result, kRoutes ? p.routes : nullptr, line, 0, 1);
    return;
  }
  if (p.result) p.result[line] = x[best.tap];
  if constexpr (kRoutes) StoreCode(p.routes + line * p.code_bytes, p.code_bytes, static_cast<uint32_t>(best.tap));
}

// A thread writes several vectors of 16 bytes, a block's width apart, having asked for all their gradients and codes first.
inline constexpr int kPlaneVectors = 4;

template <class T, class I>
__global__ void __launch_bounds__(kPlaneThreads, 6) PlaneBackwardKernel(const __grid_constant__ PlaneParams<T> p) {
  constexpr int kElements = 16 / sizeof(T), kPerWord = 4 / sizeof(T);
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kPlaneVectors * kPlaneThreads + threadIdx.x) * kElements;
  struct Winner {
    float dy;
    uint32_t at;  // in the plane
  };
  const auto load = [&](int64_t plane) {
    plane = min(plane, p.planes - 1);
    const uint32_t code = p.code_bytes == 1 ? __ldg(p.routes + plane) : CodeAt(p.g.bits, p.routes + plane * p.code_bytes, 0);
    return Winner{__fadd_rn(Widened(p.source[plane]), 0.0f), code};  // sums start from +0
  };
  uint32_t at[kPlaneVectors];
  Winner winner[kPlaneVectors], next[kPlaneVectors];
#pragma unroll
  for (int v = 0; v < kPlaneVectors; ++v) {
    const int64_t element = min(begin + v * kPlaneThreads * kElements, p.elements - 1);
    int64_t plane;
    if constexpr (sizeof(I) == 4) {
      at[v] = static_cast<uint32_t>(element);
      plane = p.by_size.take(&at[v]);
    } else {
      plane = element / p.size;
      at[v] = static_cast<uint32_t>(element - plane * p.size);
    }
    winner[v] = load(plane);
    next[v] = load(plane + 1);
  }
#pragma unroll
  for (int v = 0; v < kPlaneVectors; ++v) {
    const int64_t element = begin + v * kPlaneThreads * kElements;
    if (element >= p.elements) return;
    const uint32_t here = winner[v].at - at[v], there = next[v].at + p.size - at[v];  // the winners' places in this vector
    float sum[kElements];
#pragma unroll
    for (uint32_t i = 0; i < kElements; ++i) sum[i] = here == i ? winner[v].dy : there == i ? next[v].dy : 0.0f;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = NarrowWord<T>(&sum[i * kPerWord]);
    if (element + kElements <= p.elements) {
      StoreWords<16>(p.result + element, words);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (element + i < p.elements) p.result[element + i] = Narrowed<T>(sum[i]);
      }
    }
  }
}

template <class T>
cudaError_t LaunchPlanes(const Problem& p, bool forward, const Args& args, void* stream) {
  constexpr int64_t kElements = 16 / sizeof(T);
  PlaneParams<T> v{};
  v.g = MakeGeo<int64_t>(p);
  v.source = static_cast<const T*>(args.source);
  v.result = static_cast<T*>(args.result);
  v.routes = args.routes;
  v.size = static_cast<int>(p.in_plane());
  v.planes = p.batch * p.channels;
  v.code_bytes = static_cast<int>(p.routes.line_bytes);
  v.elements = p.x_elements();
  v.by_size = FastDiv(v.size);
  if (!forward) {
    if (!Aligned(args.result, 16)) return cudaErrorNotSupported;
    const auto kernel = v.elements < kFastThreads ? PlaneBackwardKernel<T, int32_t> : PlaneBackwardKernel<T, int64_t>;
    return Launch(kernel, CeilDiv(v.elements, kPlaneVectors * kPlaneThreads * kElements), kPlaneThreads, 0, stream, v);
  }
  const int64_t plane_bytes = v.size * static_cast<int64_t>(sizeof(T));
  v.sharers = 1;
  while (v.sharers < 32 && kPlaneThreads / v.sharers * plane_bytes > kPlaneBytes) v.sharers *= 2;
  const int64_t per_block = kPlaneThreads / v.sharers;
  const auto kernel = args.routes ? PlaneForwardKernel<T, true> : PlaneForwardKernel<T, false>;
  return Launch(kernel, CeilDiv(v.planes, per_block), kPlaneThreads, static_cast<size_t>(per_block * plane_bytes + 16), stream, v);
}

}  // namespace poolgrad::cuda
