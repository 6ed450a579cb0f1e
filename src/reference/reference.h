// The definition of every operation: slow, obvious, one element at a time. The oracle of every test and the last resort
// of every plan.
#pragma once

#include <span>

#include "spec/kernel.h"

namespace poolgrad {

std::span<const Algorithm> ReferenceAlgorithms();

}  // namespace poolgrad
