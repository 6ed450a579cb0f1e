// The benchmark as a function, so that demo can run one case of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poolgrad::cli {

struct BenchOptions {
  std::vector<std::string> cases, layouts, ops;  // empty: all
  std::vector<std::string> dtypes{"f32", "bf16", "f16"};
  std::string family = "peers", algorithm, problem;
  int count = 50;         // of random cases
  uint64_t seed = 1;      // that draws them
  int threads = 0;        // 0: all of the machine's
  double seconds = 0.2;   // for each cell
  double copy_gbps = 0;   // 0: measure it
  int64_t cache_mib = 0;  // 0: ask the system
  bool json = false, bandwidth_only = false, list = false, rectified = false;
};

void RunBench(BenchOptions options);

}  // namespace poolgrad::cli
