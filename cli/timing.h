// Times one call, many times: the median, and how far the middle half of the samples spreads around it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace poolgrad::cli {

struct Timing {
  double ms = 0;      // median
  double spread = 0;  // (third quartile - first quartile) / median
  int64_t samples = 0;
};

// Calls call(i) for i = 0, 1, 2, ... for about `seconds`. Before that, `sets` calls do not count: so many buffers take
// turns, and what it costs a core to see one for the first time is no part of a call. A sample is as many calls as fill
// 20 µs, so that the clock's own cost does not matter.
template <class Call>
Timing Measure(double seconds, int64_t sets, Call call) {
  using Clock = std::chrono::steady_clock;
  auto since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };
  constexpr double kShortestSample = 20e-6;
  constexpr size_t kFewestSamples = 5;
  constexpr double kPatience = 8;  // times `seconds`: what calls before the first sample, or slow ones, may take

  int64_t i = 0;
  auto start = Clock::now();
  while (i == 0 || (i < sets && since(start) < kPatience * seconds)) call(i++);
  start = Clock::now();
  call(i++);
  const int64_t repeats =
      std::max<int64_t>(1, static_cast<int64_t>(kShortestSample / std::max(since(start), 1e-9)) + 1);
  std::vector<double> samples;
  const auto begin = Clock::now();
  for (double elapsed = 0; elapsed < seconds || (samples.size() < kFewestSamples && elapsed < kPatience * seconds);
       elapsed = since(begin)) {
    start = Clock::now();
    for (int64_t r = 0; r < repeats; ++r) call(i++);
    samples.push_back(since(start) / static_cast<double>(repeats));
  }
  std::sort(samples.begin(), samples.end());
  auto quantile = [&](double q) {
    return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  const double median = quantile(0.5);
  return {median * 1e3, (quantile(0.75) - quantile(0.25)) / median, static_cast<int64_t>(samples.size())};
}

}  // namespace poolgrad::cli
