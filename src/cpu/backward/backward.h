// What backward kernels ask of a problem before anything of their own. Each returns null, or why not.
#pragma once

#include "spec/problem.h"

namespace poolgrad {

// For kernels that read routes with one tap per output.
inline const char* RefuseManyWinners(const Problem& p) {
  if (p.kind == POOLGRAD_AVERAGE) return "an average has no single winner per window";
  if (p.routes.masks) return "the routes are sets of taps";
  return nullptr;
}

// The same, and nothing but backward from routes.
inline const char* RefuseAllButBackward(const Problem& p, poolgrad_op op) {
  return op == POOLGRAD_OP_BACKWARD ? RefuseManyWinners(p) : "it does backward only";
}

}  // namespace poolgrad
