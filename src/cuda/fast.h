// The families of tiled kernels, each compiled once per element type. They return cudaErrorNotSupported, having launched nothing,
// when the pointers are not aligned as they need; the caller then takes the generic kernels.
#pragma once

#include <cuda_runtime.h>

#include "cuda/cuda.h"

namespace poolgrad::cuda {

// Thread numbers stay under this, so that they are divided in 32 bits.
inline constexpr int64_t kFastThreads = int64_t{1} << 31;

template <class T>
cudaError_t RunStrip(const Problem& p, const Args& args, void* stream);  // strip.cuh
template <class T>
cudaError_t RunCells(const Problem& p, const Args& args, void* stream);  // cells.cuh

}  // namespace poolgrad::cuda
