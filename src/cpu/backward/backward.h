// The backward kernels, by name; backward.cc says which comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "spec/kernel.h"

namespace poolgrad {

// Zeros that will soon be added to. Lines are asked for a little ahead, and a memset is short (a long one is `rep
// stosb`): memory is written 1.5 times as fast so, by one core and by two (AVX-512).
inline void ZeroAhead(void* at, int64_t bytes) {
  constexpr int64_t kLine = 64, kBlock = 512, kAhead = 2048;
  auto* to = static_cast<std::byte*>(at);
  for (; bytes > 0; bytes -= kBlock, to += kBlock) {
    const int64_t n = std::min(bytes, kBlock);
    for (int64_t i = 0; i < n; i += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(to + i) + kAhead), 1, 3);
    }
    std::memset(to, 0, static_cast<size_t>(n));
  }
}

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
