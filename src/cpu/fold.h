// Kernels of this floor are made for the folded problem (spec/fold.h).
#pragma once

#include <memory>
#include <utility>

#include "spec/fold.h"
#include "spec/kernel.h"

namespace poolgrad {

template <auto kMake, auto kFold = Fold>
Made AsFolded(const Problem& problem, poolgrad_op op, const Host& host) {
  Problem folded = problem;
  if (!kFold(&folded, op)) return kMake(problem, op, host);
  Made made = kMake(folded, op, host);
  if (!made.refusal) made.kernel.as = std::make_shared<const Problem>(std::move(folded));
  return made;
}

}  // namespace poolgrad
