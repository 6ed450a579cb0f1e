// Pooling on a CUDA stream: the same contract as the CPU kernels, in one launch instead of a split among threads.
//
// Holds no CUDA header, so that the plan can be compiled by any C++ compiler. All pointers in Args are device pointers
// of the device `problem.device_index`. A launch allocates nothing, waits for nothing and uses no atomic operation, so
// it can be captured in a CUDA graph; it leaves the caller's current device as it was, and takes every error it causes
// out of the runtime's error state. Scratch is the caller's device memory.
//
// The bits of every result equal the reference's (a NaN made by an addition is only promised to be a NaN).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "spec/kernel.h"

namespace poolgrad {

struct CudaKernel {
  // `scratch` is device memory, 64-byte aligned, scratch_bytes long; may be null when scratch_bytes is 0.
  Status (*launch)(const Problem& problem, poolgrad_op op, const Args& args, void* scratch, void* stream) = nullptr;
  int64_t scratch_bytes = 0;
  std::shared_ptr<const void> layout = {};  // what was chosen when it was made, for its launches to read
  std::string note = {};                    // for explain; where there is no launch, why not

  Status Launch(const Problem& problem, poolgrad_op op, Args args, void* scratch, void* stream) const {
    args.layout = layout.get();
    return launch(problem, op, args, scratch, stream);
  }
};

struct CudaAlgorithm {
  const char* name;
  // Null when it takes the problem; else why not, e.g. "the windows overlap".
  const char* (*refuse)(const Problem& problem, poolgrad_op op);
  // Of a problem that is not refused. A kernel that has to be compiled first may still not come about.
  CudaKernel (*make)(const Problem& problem, poolgrad_op op);
};

// Fastest first; the last one refuses only what has no meaning (a gradient of integers, routes of an average).
std::span<const CudaAlgorithm> CudaAlgorithms();

// Ok when device `device_index` exists and can run this build; else a sentence saying what was found.
Status CheckCudaDevice(int device_index);

// Null, or why the windows of the problem cannot be pooled here. Adaptive windows always can.
const char* CudaRefusesTables(const Problem& problem);

Status CudaRoutesToIndices(const Problem& problem, const uint8_t* routes, poolgrad_numbering numbering,
                           int64_t* indices, void* stream);

}  // namespace poolgrad
