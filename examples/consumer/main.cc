// What a user's program looks like: one header, one line of text for the problem, a gradient.
#include <cstdio>
#include <poolgrad/poolgrad.hpp>
#include <vector>

int main() {
  const poolgrad::Plan pool("max f32 nchw 1x1x4x4 k2");
  std::vector<float> x(16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 16);
  auto [y, pullback] = poolgrad::vjp(pool, x);
  const auto dx = pullback(y);
  float gave = 0, received = 0;
  for (const float v : y) gave += v;
  for (const float v : dx) received += v;
  std::printf("poolgrad %s on %s: y sums to %g, its gradient to %g\n", poolgrad_version(), poolgrad_simd_target(), gave,
              received);
  return gave == received ? 0 : 1;
}
