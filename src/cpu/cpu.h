// SIMD kernels over Highway: what the plan may choose from on a CPU. A kernel is made for one instruction set
// (Host::simd) and keeps it.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "spec/kernel.h"

namespace poolgrad {

// Forward and forward with routes, max and average; fastest first.
std::span<const Algorithm> ForwardAlgorithms();

// Backward, backward from x, gather, unpool and the gradient of a bias; fastest first.
std::span<const Algorithm> BackwardAlgorithms();

// The kernel of the first that takes a problem; null where none does.
inline const Algorithm* MakeFirst(std::span<const Algorithm> list, const Problem& problem, poolgrad_op op,
                                  const Host& host, Kernel* kernel) {
  Wanted wanted(problem, op, host);
  for (const Algorithm& a : list) {
    if (!a.make(wanted, kernel)) return &a;
  }
  return nullptr;
}

struct SimdSet {
  int64_t simd = 0;           // for Host::simd
  const char* name = "none";  // as Highway names it: "NEON", "AVX2", "AVX3", ...
};

// Those that were built and that this processor has, best first.
std::vector<SimdSet> SimdSets();

// The best of them, or the one that the environment variable POOLGRAD_SIMD names.
Result<SimdSet> ChooseSimd();

}  // namespace poolgrad
