// The kernels whose lanes are planes or channels, by name.
#pragma once

#include "cpu/lanes/layout.h"
#include "spec/kernel.h"

namespace poolgrad {

// Forward and backward; average-inl.h.
Made MakeAverage(const Problem& p, poolgrad_op op, const Host& host);

// Max pooling forward of what fwd_exact takes; `exact` does the rows that rules decide. tables-inl.h.
Made MakeTables(const Problem& p, const Host& host, const Kernel& exact);

struct TablesLayout {
  LaneLayout lanes;
  Kernel exact;
};

// Rows of every lane are held in scratch: of few planes, that may be many times the data.
inline int64_t MostScratch(const Problem& p) { return 24 * (p.x_bytes() + p.y_bytes()) + (8 << 20); }

}  // namespace poolgrad
