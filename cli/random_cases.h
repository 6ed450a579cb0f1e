// Windows drawn at random, so that a benchmark speaks of any window and not of a list.
#pragma once

#include <cstdint>
#include <vector>

#include "cases.h"

namespace poolgrad::cli {

// `count` cases of max pooling, the same for the same seed on every machine: rank 1 to 3; kernels of 1 to 31 per axis,
// small ones more often; strides 1 to kernel + 1; some dilated, padded or rounded up; channels 1 to 512, odd and even;
// sizes odd and even; x in f32 from 100 kB to 64 MB. Padding stays within half of the kernel, so that every framework
// takes them. Channels first; a benchmark sets layout and type.
std::vector<Case> RandomCases(int count, uint64_t seed);

}  // namespace poolgrad::cli
