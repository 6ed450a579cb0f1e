// The differential check as a plain program, for machines that have nothing else: bare servers, emulators, sanitizers.
//
//   differential SECONDS SEED [quick]
//       draws problems until the time is up; prints "N passed, M failed". quick: less of each
//   differential "PROBLEM" DATA_SEED
//       runs one problem again, as a failure printed it
//   differential --targets
//       names the SIMD targets that this machine can run, each forced by POOLGRAD_SIMD
//
// The exit status is 0 when nothing failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/harness.h"
#include "support/random_problem.h"

namespace {

using poolgrad::oracle::Checked;
using poolgrad::oracle::CheckProblem;

int RunAgain(const char* text, uint64_t data_seed) {
  const auto problem = poolgrad::ParseProblem(text);
  if (!problem.ok()) {
    std::fprintf(stderr, "%s\n", problem.status().sentence().c_str());
    return 2;
  }
  const Checked checked = CheckProblem(*problem, data_seed);
  if (checked.refused) {
    std::fprintf(stderr, "%s\n", poolgrad::Resolve(*problem).status().sentence().c_str());
    return 2;
  }
  std::printf("%s\n", checked.failure.empty() ? "passed" : checked.failure.c_str());
  return checked.failure.empty() ? 0 : 1;
}

int ListTargets() {
  int ignored = 0;
  for (const int64_t target : poolgrad::oracle::SimdTargets()) {
    const char* name = poolgrad::oracle::SimdTargetName(target);
    setenv("POOLGRAD_SIMD", name, 1);
    const bool took_effect = std::strcmp(poolgrad_simd_target(), name) == 0;
    std::printf("%s%s\n", name, took_effect ? "" : ": POOLGRAD_SIMD did not force it");
    ignored += !took_effect;
  }
  unsetenv("POOLGRAD_SIMD");
  return ignored == 0 ? 0 : 1;
}

int RunFor(double seconds, uint64_t seed, const poolgrad::oracle::Effort& effort) {
  poolgrad::oracle::XorShift random(seed);
  int64_t passed = 0, failed = 0, refused = 0, comparisons = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    const poolgrad_problem problem = poolgrad::oracle::DrawProblem(random);
    const Checked checked = CheckProblem(problem, random.Next() >> 1, effort);
    comparisons += checked.comparisons;
    if (checked.refused) {
      ++refused;
    } else if (checked.failure.empty()) {
      ++passed;
    } else if (++failed <= 10) {
      std::printf("%s\n", checked.failure.c_str());
    }
  }
  std::printf("%lld problems refused, %lld results compared, seed %llu\n%lld passed, %lld failed\n",
              static_cast<long long>(refused), static_cast<long long>(comparisons),
              static_cast<unsigned long long>(seed), static_cast<long long>(passed), static_cast<long long>(failed));
  return failed == 0 && passed > refused ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  poolgrad::oracle::ReportCrashes();
  if (argc == 2 && std::strcmp(argv[1], "--targets") == 0) {
    return ListTargets();
  }
  const bool quick = argc == 4 && std::strcmp(argv[3], "quick") == 0;
  if (argc != 3 && !quick) {
    std::fprintf(
        stderr,
        "usage: differential SECONDS SEED [quick] | differential \"PROBLEM\" DATA_SEED | differential --targets\n");
    return 2;
  }
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  char* end = nullptr;
  const double seconds = std::strtod(argv[1], &end);
  if (*end != '\0') return RunAgain(argv[1], seed);
  return RunFor(seconds, seed, quick ? poolgrad::oracle::QuickEffort() : poolgrad::oracle::FullEffort());
}
