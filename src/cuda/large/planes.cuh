// Channels first, global pooling: one window over the whole plane, one output per plane.
//
// Forward: a block holds many planes in shared memory, and a thread reduces one (or a few neighbouring threads share
// it, taking its vectors in turn; then the lower place keeps a tie). Threads a plane apart read at once, so a plane
// must be an odd number of vectors long, or they would all ask the same memory banks: vectors are the largest that
// divide a plane, which makes it so, and planes of whole 16-byte vectors are moved 16 bytes apart where it does not.
// Halves are compared in pairs.
//
// Backward: dx is zero but for one element per plane. A block clears a run of dx in shared memory, puts in the
// gradients that land there, and writes it out in whole vectors.
#pragma once

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/words.cuh"
#include "cuda/fast.h"

namespace poolgrad::cuda {

template <class T>
struct PlaneParams {
  Geo<int64_t> g;
  const T* source;
  T* result;
  uint8_t* routes;
  int size;        // elements of a plane
  int sharers;     // threads of a plane, a power of two up to 32
  int per_block;   // planes
  int pitch;       // bytes from a plane to the next in shared memory
  FastDiv pieces;  // 16-byte pieces of a plane, where the pitch is not its size
  int64_t planes;
  int code_bytes;
  int64_t elements;
  int run;  // elements of dx that a block writes
};

__device__ inline void StoreCode(uint8_t* at, int bytes, uint32_t code) {
  for (int b = 0; b < bytes; ++b) at[b] = static_cast<uint8_t>(code >> (8 * b));
}

// kVector: bytes of a vector; 2 for planes of an odd number of halves, which are read in pairs that may belong half to
// a neighbour.
template <class T, bool kRoutes, int kVector>
__global__ void __launch_bounds__(kPlaneThreads) PlaneForwardKernel(const __grid_constant__ PlaneParams<T> p) {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  constexpr int kWords = kVector > 4 ? kVector / 4 : 1;
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.per_block;
  const int planes = static_cast<int>(min(static_cast<int64_t>(p.per_block), p.planes - first));
  const T* x = p.source + first * p.size;
  const int plane = threadIdx.x / p.sharers, sharer = threadIdx.x % p.sharers;
  const unsigned char* mine = shared + Misalignment(x) + plane * p.pitch;
  if (kVector == 16 && p.pitch != p.size * static_cast<int>(sizeof(T))) {
    StageApart(x, planes * static_cast<int>(p.pieces.divisor), p.pieces, shared);
  } else {
    StageIn(x, planes * p.size, shared);
  }
  const int odd = kVector == 2 && reinterpret_cast<uintptr_t>(mine) % 4 != 0;  // the first half is the neighbour's
  const int vectors = kVector == 2 ? (p.size + odd + 1) / 2 : p.size * static_cast<int>(sizeof(T)) / kVector;
  const int last = kVector == 2 && (p.size + odd) % 2 != 0 ? vectors - 1 : -1;  // its second half is the neighbour's
  const auto* from = reinterpret_cast<const uint32_t*>(mine - 2 * odd);
  Reg best = P::Fill(), watched = P::FromBits(0);
  uint32_t tap = 0;  // which word
#pragma unroll 4
  for (int v = sharer; v < (plane < planes ? vectors : 0); v += p.sharers) {
    uint32_t words[kWords];
    if constexpr (kWords == 4) {
      const uint4 w = reinterpret_cast<const uint4*>(from)[v];
      words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
    } else if constexpr (kWords == 2) {
      const uint2 w = reinterpret_cast<const uint2*>(from)[v];
      words[0] = w.x, words[1] = w.y;
    } else {
      words[0] = from[v];
    }
    if constexpr (kVector == 2) {
      if (v < odd) words[0] = (words[0] & 0xFFFF0000u) | (P::ToBits(P::Fill()) & 0xFFFFu);
      if (v == last) words[0] = (words[0] & 0xFFFFu) | (P::ToBits(P::Fill()) & 0xFFFF0000u);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const Reg value = P::FromBits(words[i]);
      watched = P::Watch(watched, value);
      const auto m = P::Greater(value, best);
      best = P::Choose(m, value, best);
      tap = P::ChooseTap(m, P::Tap(v * kWords + i), tap);
    }
  }
  bool exceptional = P::Watched(watched);
  float value;
  int place;
  if constexpr (P::kElements == 1) {
    value = best, place = static_cast<int>(tap);
  } else {
    float two[2];
    WidenWord<T>(P::ToBits(best), two);
    const int low = static_cast<int>(2 * (tap & 0xFFFFu)) - odd, high = static_cast<int>(2 * (tap >> 16)) + 1 - odd;
    const bool second = two[1] > two[0] || (two[1] == two[0] && high < low);
    value = second ? two[1] : two[0], place = second ? high : low;
  }
  for (int step = 1; step < p.sharers; step *= 2) {
    const float other = __shfl_down_sync(~0u, value, step);
    const int other_place = __shfl_down_sync(~0u, place, step);
    exceptional = __shfl_down_sync(~0u, static_cast<int>(exceptional), step) != 0 || exceptional;
    if (other > value || (other == value && other_place < place)) value = other, place = other_place;
  }
  if (sharer != 0 || plane >= planes) return;
  const int64_t line = first + plane;
  uint32_t code = place;
  if (exceptional || value == LowestOf<float>()) {
    code = SelectAlone(p.g, p.source + line * p.size, 0, 0, 0, p.result ? p.result + line : nullptr);
  } else if (p.result) {
    p.result[line] = Narrowed<T>(value);
  }
  if constexpr (kRoutes) StoreCode(p.routes + line * p.code_bytes, p.code_bytes, code);
}

template <class T>
__global__ void __launch_bounds__(kPlaneThreads) PlaneBackwardKernel(const __grid_constant__ PlaneParams<T> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * p.run;
  const int count = static_cast<int>(min(static_cast<int64_t>(p.run), p.elements - begin));
  // The planes of this run: whole ones, or those that it cuts.
  const int64_t first = p.per_block > 0 ? static_cast<int64_t>(blockIdx.x) * p.per_block : begin / p.size;
  const int planes = p.per_block > 0 ? count / p.size : static_cast<int>((begin + count - 1) / p.size - first) + 1;
  T* dx = p.result + begin;
  T* staged = reinterpret_cast<T*>(shared + Misalignment(dx));
  for (int i = threadIdx.x; i < (count * static_cast<int>(sizeof(T)) + 31) / 16; i += kPlaneThreads) {
    reinterpret_cast<uint4*>(shared)[i] = uint4{};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < planes; i += kPlaneThreads) {
    const int64_t plane = first + i;
    const uint32_t code =
        p.code_bytes == 1 ? __ldg(p.routes + plane) & p.g.none : CodeAt(p.g.bits, p.routes + plane * p.code_bytes, 0);
    const int64_t at = plane * p.size + code - begin;
    if (code < static_cast<uint32_t>(p.size) && at >= 0 && at < count) {
      staged[at] = Narrowed<T>(__fadd_rn(Widened(p.source[plane]), 0.0f));  // sums start from +0
    }
  }
  __syncthreads();
  StageOut(shared, dx, count);
}

template <class T, int kVector>
cudaError_t LaunchPlaneForward(const PlaneParams<T>& v, const Args& args, void* stream) {
  const auto kernel = args.routes ? PlaneForwardKernel<T, true, kVector> : PlaneForwardKernel<T, false, kVector>;
  return Launch(kernel, CeilDiv(v.planes, v.per_block), kPlaneThreads, static_cast<size_t>(v.per_block) * v.pitch + 32,
                stream, v);
}

template <class T>
cudaError_t LaunchPlanes(const Problem& p, bool forward, const Args& args, void* stream) {
  PlaneParams<T> v{};
  v.g = MakeGeo<int64_t>(p);
  v.source = static_cast<const T*>(args.source);
  v.result = static_cast<T*>(args.result);
  v.routes = args.routes;
  v.size = static_cast<int>(p.in_plane());
  v.planes = p.batch * p.channels;
  v.code_bytes = static_cast<int>(p.routes.line_bytes);
  v.elements = p.x_elements();
  const int64_t plane_bytes = v.size * static_cast<int64_t>(sizeof(T));
  if (!forward) {
    constexpr int64_t kRun = kPlaneRunBytes / static_cast<int64_t>(sizeof(T));
    v.per_block =
        static_cast<int>(std::min<int64_t>(kRun / v.size / 8 * 8, kPlaneThreads));  // eights: whole 16-byte pieces
    v.run = static_cast<int>(v.per_block > 0 ? v.per_block * int64_t{v.size} : kRun);
    return Launch(PlaneBackwardKernel<T>, CeilDiv(v.elements, v.run), kPlaneThreads,
                  static_cast<size_t>(v.run * sizeof(T) + 32), stream, v);
  }
  int64_t vector = 16;
  while (plane_bytes % vector != 0 || !Aligned(args.source, vector)) vector /= 2;
  const bool apart = vector == 16 && plane_bytes / 16 % 2 == 0;
  v.pitch = static_cast<int>(plane_bytes + (apart ? 16 : 0));
  v.pieces = FastDiv(std::max<int64_t>(1, plane_bytes / 16));
  v.sharers = 1;
  while (v.sharers < 32 && kPlaneThreads / v.sharers * plane_bytes > kPlaneBytes) v.sharers *= 2;
  v.per_block = kPlaneThreads / v.sharers;
  switch (vector) {
    case 16:
      return LaunchPlaneForward<T, 16>(v, args, stream);
    case 8:
      return LaunchPlaneForward<T, 8>(v, args, stream);
    case 4:
      return LaunchPlaneForward<T, 4>(v, args, stream);
    default:
      if constexpr (sizeof(T) == 2) return LaunchPlaneForward<T, 2>(v, args, stream);
      return cudaErrorNotSupported;
  }
}

}  // namespace poolgrad::cuda
