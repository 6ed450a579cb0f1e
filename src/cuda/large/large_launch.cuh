// Launching the kernels whose windows are loops. Included by one file per element type.
#pragma once

#include "cuda/large/doubling.cuh"
#include "cuda/large/planes.cuh"
#include "cuda/large/separable.cuh"
#include "cuda/large/vectors.cuh"

namespace poolgrad::cuda {

template <class T>
cudaError_t RunSeparableWindow(const Problem& p, const Args& args, void* stream) {
  if (static_cast<const SeparableShape*>(args.layout)->doubles) return LaunchDoubling<T, 13>(p, args, stream);
  if (!MovesByOne(p)) return LaunchSeparable<T, kSeparableRun, false>(p, args, stream);
  return LongestRun(p) == kSeparableLongRun ? LaunchSeparable<T, kSeparableLongRun, true>(p, args, stream)
                                            : LaunchSeparable<T, kSeparableRun, true>(p, args, stream);
}

#define POOLGRAD_CUDA_LARGE(T)                                                                \
  template <>                                                                                 \
  cudaError_t RunVectors<T>(const Problem& p, bool forward, const Args& args, void* stream) { \
    return LaunchVectors<T>(p, forward, args, stream);                                        \
  }                                                                                           \
  template <>                                                                                 \
  cudaError_t RunPlanes<T>(const Problem& p, bool forward, const Args& args, void* stream) {  \
    return LaunchPlanes<T>(p, forward, args, stream);                                         \
  }                                                                                           \
  template <>                                                                                 \
  cudaError_t RunSeparable<T>(const Problem& p, const Args& args, void* stream) {             \
    return RunSeparableWindow<T>(RowsOfSignals(p), args, stream);                             \
  }

}  // namespace poolgrad::cuda
