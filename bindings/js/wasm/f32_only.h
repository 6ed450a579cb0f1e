// Included before the core's vector kernels: in this module they are made for f32 alone. All other types go through the
// reference, because every type more would cost as much as the whole module may weigh (300 kB), and TensorFlow.js
// computes in f32.
#pragma once

#include "base/dtype.h"

namespace poolgrad {

// Stands in for VisitDtype there: a type without a kernel gives the null that makes an algorithm refuse.
template <class F>
auto VisitF32(poolgrad_dtype dtype, F&& f) {
  using Result = decltype(f(float{}));
  return dtype == POOLGRAD_F32 ? f(float{}) : Result{};
}

}  // namespace poolgrad

#define VisitDtype VisitF32
