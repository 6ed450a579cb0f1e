// The functional form: pool, pull a gradient back, push a tangent forward. The worked example of docs/derivation.md.
#include <cstdio>
#include <vector>

#include "poolgrad/poolgrad.hpp"

int main() {
  const poolgrad::Plan pool(
      poolgrad::Problem::max<float>(poolgrad::Layout::channels_first, {1, 1, 3, 3}).kernel(2).stride(1));
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8, 9};

  auto [y, pullback] = poolgrad::vjp(pool, x);
  const auto dx = pullback(std::vector<float>{1, 10, 100, 1000});
  const auto [same_y, ty] = poolgrad::jvp(pool, x, dx);

  std::printf("y  = %g %g %g %g\n", y[0], y[1], y[2], y[3]);
  std::printf("dx = %g %g %g | %g %g %g | %g %g %g\n", dx[0], dx[1], dx[2], dx[3], dx[4], dx[5], dx[6], dx[7], dx[8]);
  std::printf("ty = %g %g %g %g\n", ty[0], ty[1], ty[2], ty[3]);
  std::printf("kept for backward: %zu bytes\n", pullback.routes().size());

  const bool right = y == std::vector<float>{5, 6, 8, 9} && dx == std::vector<float>{0, 0, 0, 0, 1, 10, 0, 100, 1000} &&
                     ty == std::vector<float>{1, 10, 100, 1000} && same_y == y;
  return right ? 0 : 1;
}
