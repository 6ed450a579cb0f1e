// Launching the kernels whose windows are loops. Included by one file per element type.
#pragma once

#include "cuda/planes.cuh"
#include "cuda/ring.cuh"
#include "cuda/separable.cuh"
#include "cuda/vectors.cuh"

namespace poolgrad::cuda {

template <class T>
cudaError_t RunSeparableWindow(const Problem& p, const Args& args, void* stream) {
  switch (p.axis[2].kernel) {
    case 5:
      return LaunchSeparable<T, 5>(p, args, stream);
    case 7:
      return LaunchSeparable<T, 7>(p, args, stream);
    case 9:
      return LaunchSeparable<T, 9>(p, args, stream);
    case 13:
      return LaunchSeparable<T, 13>(p, args, stream);
    default:
      return cudaErrorNotSupported;
  }
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
    return RunSeparableWindow<T>(p, args, stream);                                            \
  }                                                                                           \
  template <>                                                                                 \
  cudaError_t RunRing<T>(const Problem& p, const Args& args, void* stream) {                  \
    return LaunchRing<T>(p, args, stream);                                                    \
  }

}  // namespace poolgrad::cuda
