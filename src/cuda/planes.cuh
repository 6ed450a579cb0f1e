// Channels first, global pooling: one window over the whole plane, one output per plane.
//
// Forward: a block holds many planes in shared memory; a few neighbouring threads share a plane, each taking a run of it, and the
// earlier keeps a tie. Each thread starts its run at a place of its own and wraps around once, so that threads that are a whole
// plane apart do not all ask the same memory bank. Backward: dx is zero but for one element per plane; a thread writes 16 bytes.
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
__global__ void __launch_bounds__(kPlaneThreads) PlaneForwardKernel(const __grid_constant__ PlaneParams<T> p) {
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

template <class T>
__global__ void __launch_bounds__(kPlaneThreads) PlaneBackwardKernel(const __grid_constant__ PlaneParams<T> p) {
  constexpr int kElements = 16 / sizeof(T), kPerWord = 4 / sizeof(T);
  const int64_t element = (static_cast<int64_t>(blockIdx.x) * kPlaneThreads + threadIdx.x) * kElements;
  if (element >= p.elements) return;
  int64_t plane;
  int at;
  if (p.elements < kFastThreads) {
    uint32_t rest = static_cast<uint32_t>(element);
    plane = p.by_size.take(&rest);
    at = static_cast<int>(rest);
  } else {
    plane = element / p.size;
    at = static_cast<int>(element - plane * p.size);
  }
  const auto load = [&](int64_t from, float* dy, uint32_t* code) {
    *dy = __fadd_rn(Widened(p.source[from]), 0.0f);  // sums start from +0
    *code = CodeAt(p.g.bits, p.routes + from * p.code_bytes, 0);
  };
  float dy, next_dy = 0;
  uint32_t code, next_code = 0;
  load(plane, &dy, &code);
  if (at + kElements > p.size && plane + 1 < p.planes) load(plane + 1, &next_dy, &next_code);
  float sum[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int here = at + i;
    const bool over = here >= p.size;
    sum[i] = static_cast<uint32_t>(over ? here - p.size : here) == (over ? next_code : code) ? (over ? next_dy : dy) : 0.0f;
  }
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
    return Launch(PlaneBackwardKernel<T>, CeilDiv(v.elements, kPlaneThreads * kElements), kPlaneThreads, 0, stream, v);
  }
  const int64_t plane_bytes = v.size * static_cast<int64_t>(sizeof(T));
  v.sharers = 1;
  while (v.sharers < 32 && kPlaneThreads / v.sharers * plane_bytes > tuning.plane_bytes) v.sharers *= 2;
  const int64_t per_block = kPlaneThreads / v.sharers;
  const auto kernel = args.routes ? PlaneForwardKernel<T, true> : PlaneForwardKernel<T, false>;
  return Launch(kernel, CeilDiv(v.planes, per_block), kPlaneThreads, static_cast<size_t>(per_block * plane_bytes + 16), stream, v);
}

}  // namespace poolgrad::cuda
