#include "random_cases.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "support.h"

namespace poolgrad::cli {
namespace {

// SplitMix64: a stream of numbers that is the same everywhere.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  // Every power of two as often as the next.
  double LogBetween(double low, double high) {
    return low * std::exp2(static_cast<double>(Next() >> 11) * 0x1p-53 * std::log2(high / low));
  }

 private:
  uint64_t state_;
};

int64_t DrawKernel(Draw& draw, int rank) {
  const int64_t most = rank == 3 ? 9 : 31;
  const int64_t tenth = draw.Between(0, 9);
  if (tenth < 7) return draw.Between(1, 4);
  return tenth < 9 ? draw.Between(2, 9) : draw.Between(3, most);
}

poolgrad_problem DrawProblem(Draw& draw) {
  constexpr int64_t kMostElements = (int64_t{64} << 20) / 4;
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  const int64_t tenth = draw.Between(0, 9);
  p.rank = tenth < 6 ? 2 : tenth < 8 ? 1 : 3;
  if (draw.OneIn(4)) p.rounding = POOLGRAD_ROUND_CEIL;
  const bool square = draw.OneIn(2), dilated = draw.OneIn(6), padded = draw.OneIn(2), tiles = draw.OneIn(3);
  int64_t least[3] = {1, 1, 1};  // inputs that hold the window twice
  for (int i = 0; i < p.rank; ++i) {
    const bool again = square && i > 0;
    p.kernel[i] = again ? p.kernel[0] : DrawKernel(draw, p.rank);
    p.stride[i] = again   ? p.stride[0]
                  : tiles ? p.kernel[i]
                          : draw.Between(1, std::min<int64_t>(p.kernel[i] + 1, draw.OneIn(2) ? 3 : 32));
    p.dilation[i] = dilated ? draw.Between(1, 3) : 1;
    p.pad_lo[i] = p.pad_hi[i] = padded ? draw.Between(0, p.kernel[i] / 2) : 0;
    least[i] = 2 * ((p.kernel[i] - 1) * p.dilation[i] + 1);
  }
  const int64_t elements = static_cast<int64_t>(draw.LogBetween(100e3 / 4, static_cast<double>(kMostElements)));
  p.channels = draw.OneIn(4)   ? draw.Between(1, 7)
               : draw.OneIn(2) ? int64_t{1} << draw.Between(3, 9)
                               : draw.Between(8, 512);
  // Space takes a part of the elements, the batch what is left.
  double space = draw.LogBetween(16, std::max(32.0, static_cast<double>(elements) / static_cast<double>(p.channels)));
  int64_t plane = 1;
  for (int i = 0; i < p.rank; ++i) {
    const double share = std::pow(space, 1.0 / (p.rank - i)) * draw.LogBetween(0.7, 1.4);
    p.in[i] = std::max<int64_t>(least[i], static_cast<int64_t>(share));
    space = std::max(1.0, space / static_cast<double>(p.in[i]));
    plane *= p.in[i];
  }
  while (p.channels > 1 && p.channels * plane > kMostElements) p.channels = (p.channels + 1) / 2;
  p.batch = std::clamp<int64_t>(elements / (p.channels * plane), 1, 256);
  return p;
}

}  // namespace

std::vector<Case> RandomCases(int count, uint64_t seed) {
  Draw draw(seed);
  std::vector<Case> cases;
  while (static_cast<int>(cases.size()) < count) {
    const poolgrad_problem p = DrawProblem(draw);
    double elements = static_cast<double>(p.batch) * static_cast<double>(p.channels);
    for (int i = 0; i < p.rank; ++i) elements *= static_cast<double>(p.in[i]);
    if (elements * 4 > 64e6 * 1.1 || elements * 4 < 90e3) continue;
    if (p.kernel[0] * std::max<int64_t>(1, p.kernel[1]) * std::max<int64_t>(1, p.kernel[2]) == 1)
      continue;  // no window
    cases.push_back({"random", "random_" + std::to_string(seed) + "_" + std::to_string(cases.size()), p});
  }
  return cases;
}

}  // namespace poolgrad::cli
