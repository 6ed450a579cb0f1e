// What the backward kernels share; backward.cc says which comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/simd/targets.h"
#include "spec/kernel.h"

namespace poolgrad {

// Lines of dx are asked for a little before they are written: memory takes 1.5 times as much so, from one core and from
// two (AVX-512).
inline constexpr int64_t kBytesAhead = 2048;

inline void AskFor(const void* at, int64_t ahead, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const uintptr_t from = reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(ahead);
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(from + static_cast<uintptr_t>(i)), 1, 3);
  }
}

// Line by line: of more bytes compilers make `rep stos`, which takes 30 cycles to begin.
inline void ZeroAhead(void* at, int64_t bytes, int64_t ahead = kBytesAhead) {
  constexpr int64_t kLine = 64;
  auto* to = static_cast<std::byte*>(at);
  for (; bytes >= kLine; bytes -= kLine, to += kLine) {
    AskFor(to, ahead, 1);
    std::memset(to, 0, kLine);
  }
  std::memset(to, 0, static_cast<size_t>(bytes));
}

MakeKernel MakeDisjoint, MakeAverageApart, MakeBackwardX;

}  // namespace poolgrad
