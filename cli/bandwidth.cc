// Plain loops over big arrays, one slice per thread; see bandwidth.h. Threads stay alive between passes and meet at a
// barrier, so that a pass holds no thread creation. The best pass counts: it is the limit that a kernel is held
// against.
#include "bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace poolgrad::cli {
namespace {

constexpr int kPasses = 40;  // about a quarter of a second, to outlast a passing disturbance

using Clock = std::chrono::steady_clock;

// Seconds of the fastest of kPasses runs of pass(thread) on all threads at once.
template <class Pass>
double BestSeconds(int threads, Pass pass) {
  std::barrier meet(threads);
  double best = 1e30;
  auto work = [&](int thread) {
    for (int i = 0; i < kPasses; ++i) {
      meet.arrive_and_wait();
      const auto start = Clock::now();
      pass(thread);
      meet.arrive_and_wait();
      if (thread == 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (auto& t : others) t.join();
  return best;
}

struct Slice {
  int64_t begin, end;
};
Slice SliceOf(int thread, int threads, int64_t count) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

void Sum4(const uint64_t* __restrict a, const uint64_t* __restrict b, const uint64_t* __restrict c,
          const uint64_t* __restrict d, uint64_t* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

void Spread4(const uint64_t* __restrict in, uint64_t* __restrict a, uint64_t* __restrict b, uint64_t* __restrict c,
             uint64_t* __restrict d, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t v = in[i];
    a[i] = v;
    b[i] = v + 1;
    c[i] = v + 2;
    d[i] = v + 3;
  }
}

}  // namespace

int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  largest = std::max<int64_t>(largest, sysconf(_SC_LEVEL3_CACHE_SIZE));  // x86 answers this even where /sys is bare
#endif
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string text;
    if (!(file >> text)) continue;
    int64_t bytes = std::atoll(text.c_str());
    if (text.back() == 'K') bytes <<= 10;
    if (text.back() == 'M') bytes <<= 20;
    largest = std::max(largest, bytes);
  }
  return largest > 0 ? largest : int64_t{32} << 20;
}

Bandwidth MeasureBandwidth(int threads, int64_t cache_bytes) {
  // Five arrays serve all three loops: copy uses the first four as two long ones.
  const int64_t array_bytes = (cache_bytes + (cache_bytes >> 2)) / 4096 * 4096 + 4096;
  const int64_t words = array_bytes / 8;
  const Buffer memory(5 * array_bytes);
  std::memset(memory.data(), 1, static_cast<size_t>(memory.bytes()));
  auto array = [&](int i) { return memory.as<uint64_t>() + i * words; };
  const double gigabytes = static_cast<double>(array_bytes) / 1e9;

  Bandwidth result;
  result.copy_gbps = 4 * gigabytes / BestSeconds(threads, [&](int thread) {
                       const auto [begin, end] = SliceOf(thread, threads, 2 * words);
                       std::memcpy(array(2) + begin, array(0) + begin, static_cast<size_t>(end - begin) * 8);
                     });
  result.read_heavy_gbps =
      5 * gigabytes / BestSeconds(threads, [&](int thread) {
        const auto [begin, end] = SliceOf(thread, threads, words);
        Sum4(array(0) + begin, array(1) + begin, array(2) + begin, array(3) + begin, array(4) + begin, end - begin);
      });
  result.write_heavy_gbps =
      5 * gigabytes / BestSeconds(threads, [&](int thread) {
        const auto [begin, end] = SliceOf(thread, threads, words);
        Spread4(array(0) + begin, array(1) + begin, array(2) + begin, array(3) + begin, array(4) + begin, end - begin);
      });
  return result;
}

}  // namespace poolgrad::cli
