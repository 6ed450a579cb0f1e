// Whole planes between global and shared memory. Planes of a channels-first array follow one another, so a block's
// share is one contiguous run of bytes, moved in 16-byte pieces whatever the rows' alignment; the run keeps its place
// modulo 16.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "cuda/packs.cuh"

namespace poolgrad::cuda {

// Bytes to add to a 16-byte aligned shared address so that it is congruent to `global` modulo 16.
template <class T>
__device__ int Misalignment(const T* global) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(global) & 15);
}

// [head, head + 16 * pieces) is the 16-byte aligned part of `count` elements; the rest lies before and after it.
template <class T>
struct Run16 {
  int head, pieces;
  __device__ Run16(const T* global, int count) {
    head = static_cast<int>(((16 - Misalignment(global)) & 15) / sizeof(T));
    if (head > count) head = count;
    pieces = static_cast<int>((count - head) * sizeof(T) / 16);
  }
};

// shared + Misalignment(global) becomes a copy of global[0, count). Ends with a barrier. Returns the first element.
template <class T>
__device__ T* StageIn(const T* global, int count, unsigned char* shared) {
  T* to = reinterpret_cast<T*>(shared + Misalignment(global));
  const Run16<T> run(global, count);
  constexpr int kPer16 = 16 / sizeof(T);
  for (int i = threadIdx.x; i < run.pieces; i += blockDim.x) {
    __pipeline_memcpy_async(to + run.head + i * kPer16, global + run.head + i * kPer16, 16);
  }
  __pipeline_commit();
  for (int i = threadIdx.x; i < run.head; i += blockDim.x) to[i] = global[i];
  for (int i = run.head + run.pieces * kPer16 + threadIdx.x; i < count; i += blockDim.x) to[i] = global[i];
  __pipeline_wait_prior(0);
  __syncthreads();
  return to;
}

// The same for planes of whole 16-byte pieces, aligned, which are moved 16 bytes apart.
template <class T>
__device__ void StageApart(const T* global, int pieces, const FastDiv& per_plane, unsigned char* shared) {
  const auto* from = reinterpret_cast<const uint4*>(global);
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) {
    uint32_t rest = i;
    const uint32_t plane = per_plane.take(&rest);
    __pipeline_memcpy_async(reinterpret_cast<uint4*>(shared) + i + plane, from + i, 16);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}

// The other way; begins with a barrier. `shared` is what StageIn's `shared` was.
template <class T>
__device__ void StageOut(const unsigned char* shared, T* global, int count) {
  const T* from = reinterpret_cast<const T*>(shared + Misalignment(global));
  const Run16<T> run(global, count);
  constexpr int kPer16 = 16 / sizeof(T);
  __syncthreads();
  for (int i = threadIdx.x; i < run.pieces; i += blockDim.x) {
    *reinterpret_cast<uint4*>(global + run.head + i * kPer16) =
        *reinterpret_cast<const uint4*>(from + run.head + i * kPer16);
  }
  for (int i = threadIdx.x; i < run.head; i += blockDim.x) global[i] = from[i];
  for (int i = run.head + run.pieces * kPer16 + threadIdx.x; i < count; i += blockDim.x) global[i] = from[i];
}

}  // namespace poolgrad::cuda
