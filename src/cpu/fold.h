// Kernels of this floor are made for the folded problem (spec/fold.h).
#pragma once

#include "spec/fold.h"
#include "spec/kernel.h"

namespace poolgrad {

using MakeFn = decltype(Algorithm::make);

Made MakeFolded(bool (*fold)(Problem*, poolgrad_op), MakeFn make, const Problem& problem, poolgrad_op op,
                const Host& host);

template <auto kMake, auto kFold = Fold>
Made AsFolded(const Problem& problem, poolgrad_op op, const Host& host) {
#ifdef POOLGRAD_SMALL  // which does without fold.cc, for size
  return kMake(problem, op, host);
#else
  return MakeFolded(kFold, kMake, problem, op, host);
#endif
}

}  // namespace poolgrad
