// The sub-commands as functions of their options. Which words set an option is main.cc's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poolgrad::cli {

struct DemoOptions {
  bool skip_speed = false;
  int threads = 0;  // here and below 0: all of the machine's
};
void RunDemo(const DemoOptions& options);  // demo.cc

struct ExplainOptions {
  std::string problem, values, gradient, algorithm;
};
void RunExplain(const ExplainOptions& options);  // explain.cc

struct CheckOptions {
  std::string problem;
  int64_t samples = 200;
  uint64_t seed = 1;
};
void RunCheck(const CheckOptions& options);  // explain.cc

struct PoolOptions {
  std::string input, output, window, kind = "max", layout = "nchw", dtype, algorithm;
  std::string x, routes, indices, numbering = "torch", shape, bias, dbias;
  int threads = 0;
};
void RunForward(const PoolOptions& options);   // pool_files.cc
void RunBackward(const PoolOptions& options);  // pool_files.cc

struct BenchOptions {
  std::vector<std::string> cases, layouts, ops;  // empty: all
  std::vector<std::string> dtypes{"f32", "bf16", "f16"};
  std::string family = "peers", algorithm, problem;
  int count = 50;     // of random cases
  uint64_t seed = 1;  // that draws them
  int threads = 0;
  double seconds = 0.2;   // for each cell
  double copy_gbps = 0;   // 0: measure it
  int64_t cache_mib = 0;  // 0: ask the system
  bool json = false, bandwidth_only = false, list = false, rectified = false;
};
void RunBench(BenchOptions options);  // bench.cc

}  // namespace poolgrad::cli
