// Kernels of this floor are made for the folded problem (spec/fold.h).
#pragma once

#include "spec/fold.h"
#include "spec/kernel.h"

namespace poolgrad {

using MakeFn = decltype(Algorithm::make);

using FoldFn = decltype(&Folded);

Made MakeFolded(FoldFn fold, MakeFn make, const Problem& problem, poolgrad_op op, const Host& host);

template <auto kMake, auto kFold = Folded>
Made AsFolded(const Problem& problem, poolgrad_op op, const Host& host) {
#ifdef POOLGRAD_SMALL  // which does without fold.cc, for size
  return kMake(problem, op, host);
#else
  return MakeFolded(kFold, kMake, problem, op, host);
#endif
}

}  // namespace poolgrad
