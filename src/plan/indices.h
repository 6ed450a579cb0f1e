// Routes in other notations: framework indices and the Jacobian. On the CPU, one pass over the outputs.
#pragma once

#include "base/status.h"
#include "spec/problem.h"

namespace poolgrad {

void RoutesToIndices(const Problem& p, const uint8_t* routes, poolgrad_numbering numbering, int64_t* indices,
                     Range outputs);
Status RoutesFromIndices(const Problem& p, const int64_t* indices, poolgrad_numbering numbering, uint8_t* routes);
Status UnpoolIndices(const Problem& p, const void* y, const int64_t* indices, poolgrad_numbering numbering,
                     const int64_t* index_shape, void* x);
// How many entries it has. What is null is not written.
int64_t Jacobian(const Problem& p, const uint8_t* routes, int64_t* row_start, int64_t* columns, double* values);

}  // namespace poolgrad
