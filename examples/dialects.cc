// One input with a tie and a NaN, pooled as each framework would: who receives the gradient differs.
#include <cmath>
#include <cstdio>
#include <vector>

#include "poolgrad/poolgrad.hpp"

int main() {
  using poolgrad::Dialect;
  struct Named {
    Dialect dialect;
    const char* name;
    std::vector<int64_t> winners;  // expected: who wins {2, 2}, {1, NaN}, {NaN, 1} and {NaN, NaN}
  };
  const Named dialects[] = {
      {Dialect::standard, "default", {0, 3, 4, 6}},
      {Dialect::torch, "torch", {0, 3, 4, 7}},
      {Dialect::tensorflow, "tensorflow", {0, 2, 4, 6}},
      {Dialect::tfjs, "tfjs", {0, 2, 5, -1}},
      {Dialect::jax, "jax", {0, 3, 4, 6}},
      {Dialect::onnx, "onnx", {0, 3, 4, 6}},
  };
  const float nan = std::nanf("");
  const std::vector<float> x = {2, 2, 1, nan, nan, 1, nan, nan};

  int wrong = 0;
  for (const Named& named : dialects) {
    const poolgrad::Plan pool(
        poolgrad::Problem::max<float>(poolgrad::Layout::channels_first, {1, 1, 8}).kernel(2).dialect(named.dialect));
    const auto [y, routes] = pool.forward_routes(x);
    const auto winners = pool.indices(routes, poolgrad::Numbering::torch);
    std::printf("%-10s  y %4g %4g %4g %4g   winners %2lld %2lld %2lld %2lld\n", named.name, y[0], y[1], y[2], y[3],
                static_cast<long long>(winners[0]), static_cast<long long>(winners[1]),
                static_cast<long long>(winners[2]), static_cast<long long>(winners[3]));
    wrong += winners != named.winners;
  }
  return wrong;
}
