// Whole problems and their data, drawn from any source of numbers: our own xorshift (the differential driver),
// RapidCheck (which can then shrink them), or a fuzzer's bytes. Smaller numbers mean simpler problems, so that
// shrinking works.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "poolgrad/poolgrad.h"

namespace poolgrad::oracle {

class Draw {
 public:
  virtual ~Draw() = default;
  virtual int64_t Between(int64_t lo, int64_t hi) = 0;  // both included
  bool OneIn(int64_t n) { return Between(0, n - 1) == n - 1; }
  template <size_t N>
  int64_t Pick(const std::array<int64_t, N>& values) {
    return values[static_cast<size_t>(Between(0, N - 1))];
  }
};

// xorshift64*; the same numbers on every machine.
class XorShift final : public Draw {
 public:
  explicit XorShift(uint64_t seed);
  int64_t Between(int64_t lo, int64_t hi) override;
  uint64_t Next();

 private:
  uint64_t state_;
};

// A problem that is small enough to be pooled by the reference in about a millisecond. Nearly all resolve; a few do not
// (a padding that the dialect refuses, say), which the caller must expect.
poolgrad_problem DrawProblem(Draw& draw);

// Values of `dtype` for one tensor: a palette chosen by the seed (ties, all negative, none negative, NaN and
// infinities, denormals, any bits at all, ...) and then values of it.
std::vector<uint8_t> RandomValues(uint64_t seed, poolgrad_dtype dtype, int64_t elements);

// Values that sums are made of: mostly ordinary numbers of mixed magnitude, so that the order of a sum shows in its
// bits.
std::vector<uint8_t> RandomGradients(uint64_t seed, poolgrad_dtype dtype, int64_t elements);

std::vector<uint8_t> RandomBytes(uint64_t seed, int64_t bytes);

}  // namespace poolgrad::oracle
