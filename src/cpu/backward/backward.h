// The backward kernels, by name; backward.cc says which comes first.
#pragma once

#include "spec/kernel.h"

namespace poolgrad {

Made MakeDisjoint(const Problem& p, poolgrad_op op, const Host& host);   // disjoint.cc
Made MakeScatter(const Problem& p, poolgrad_op op, const Host& host);    // scatter.cc
Made MakeBackwardX(const Problem& p, poolgrad_op op, const Host& host);  // from_x.cc
Made MakeWinners(const Problem& p, poolgrad_op op, const Host& host);    // winners.cc

inline constexpr const char* kNoVectors = "this processor has no vector instructions we know";

// A run function of one instruction set, and the scratch it needs.
struct Selected {
  RunFn run = nullptr;
  int64_t bytes = 0;
};

struct SumsLayout;
Selected UnpoolBy(const Problem& p, const SumsLayout& l, const Host& host);  // unpool.cc

}  // namespace poolgrad
