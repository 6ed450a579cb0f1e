// Nothing but the caller's memory and the caller's threads: buffers, routes, scratch and loop are all brought along, as
// an engine with its own allocator and scheduler would do it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "poolgrad/poolgrad.hpp"

int main() {
  const poolgrad::Plan pool(
      poolgrad::Problem::max<float>(poolgrad::Layout::channels_last, {4, 56, 56, 32}).kernel(3).stride(2).pad(1));
  std::printf("%s", pool.explain().c_str());

  std::vector<float> x(static_cast<size_t>(pool.info().x_elements));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 1000);
  std::vector<float> y(static_cast<size_t>(pool.info().y_elements));
  std::vector<float> dx(x.size(), -1.0f);
  poolgrad::Routes routes = pool.make_routes();

  std::atomic<int64_t> tasks = 0;
  auto loop = [&](int64_t count, auto task) {  // two threads take turns at the tasks
    std::atomic<int64_t> next = 0;
    const auto work = [&] {
      for (int64_t i = next++; i < count; i = next++) {
        task(i);
        ++tasks;
      }
    };
    std::thread helper(work);
    work();
    helper.join();
  };
  const uint64_t bytes = pool.scratch_bytes(POOLGRAD_OP_BACKWARD, 2);
  const size_t rounded = (bytes + 64) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  const poolgrad::Exec exec = poolgrad::Exec().threads(2).parallel_for(loop);
  const poolgrad::Exec with_scratch = poolgrad::Exec(exec).scratch({memory, rounded});

  pool.forward(x, y, routes, exec);
  pool.backward(y, routes, dx, with_scratch);
  std::free(memory);

  double gave = 0, received = 0;
  for (const float v : y) gave += v;
  for (const float v : dx) received += v;
  std::printf("%lld tasks; dy sums to %.0f, dx to %.0f\n", static_cast<long long>(tasks), gave, received);
  return gave == received ? 0 : 1;
}
