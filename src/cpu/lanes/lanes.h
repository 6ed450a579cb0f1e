// The kernels whose lanes are planes or channels, by name.
#pragma once

#include "cpu/lanes/layout.h"
#include "spec/kernel.h"

namespace poolgrad {

// Forward and backward (average-inl.h); and forward, of planes that are one window each (planes-inl.h).
MakeKernel MakeAverage, MakeAveragePlanes;

// What an element type has on an instruction set: null where forward/table.h has none.
struct LaneRuns {
  int64_t lanes = 0, size = 0;  // of a vector of sums, and of one of these in bytes
  RunFn average = nullptr, planes = nullptr;
  int64_t (*average_scratch)(const Problem&, const void* layout) = nullptr;
};

LaneRuns RunsOn(const Problem& p, const Host& host);

// Rows of every lane are held in scratch: of few planes, that may be many times the data.
inline int64_t MostScratch(const Problem& p) { return 24 * (p.x_bytes() + p.y_bytes()) + (8 << 20); }

}  // namespace poolgrad
