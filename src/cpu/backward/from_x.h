// Backward from (dy, x): the gradient for a caller who kept no routes. Routes are found for a piece of the problem with
// a forward kernel, used at once by a backward kernel, and live only in scratch that stays in cache.
#pragma once

#include "spec/kernel.h"

namespace poolgrad {

Made MakeBackwardX(const Problem& problem, poolgrad_op op, const Host& host);

}  // namespace poolgrad
