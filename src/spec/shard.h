// A problem split in space among ranks: what each owns, reads and sends. Nothing but geometry: no transport, no
// arithmetic on data.
#pragma once

#include "base/status.h"
#include "spec/problem.h"

namespace poolgrad {

// How the axes are cut, as the caller gave it (poolgrad_shard_of).
struct Cuts {
  const int64_t* parts;
  const int64_t* const* cuts;
};

struct Shard {
  poolgrad_shard boxes = {};
  poolgrad_problem forward, backward;
};

Result<Shard> ShardOf(const poolgrad_problem& whole, const Cuts& cuts, const int64_t* at);

// The box of inputs or outputs that `from` sends to `to`, per axis.
Status HaloOf(const poolgrad_problem& whole, const Cuts& cuts, const int64_t* from, const int64_t* to,
              poolgrad_halo halo, int64_t* begin, int64_t* end);

}  // namespace poolgrad
