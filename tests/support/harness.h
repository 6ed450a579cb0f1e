// Differential checking: one problem with its data, pooled by the reference once, then by every algorithm that accepts
// it, on every SIMD target of this machine, split among threads in several ways, and through the C ABI; all compared
// bit for bit. Every array lies between pages that nobody may touch, flush with one of them, so that a byte read or
// written beyond an array ends the program there and then; outputs are poisoned first. No test framework in here.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "spec/kernel.h"
#include "support/guarded.h"

namespace poolgrad::oracle {

// Ends the program, printing what was in work, unless it is destroyed within `seconds` of processor time (SIGPROF) and
// twelve times that by the clock (SIGALRM): a busy machine is no endless loop, and threads that wait for ever burn no
// time.
class TimeLimit {
 public:
  TimeLimit(const char* what, unsigned seconds);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
};

struct Data {
  std::vector<uint8_t> x, tx, dy;
  std::vector<uint8_t> routes;   // of x, by the reference
  std::vector<uint8_t> hostile;  // routes of `routes`' size with any content
  std::vector<uint8_t> bias;     // of a problem that has one
};

// How large the result of `op` is.
int64_t ResultBytes(const Problem& p, poolgrad_op op);
bool ReadsRoutes(poolgrad_op op);

// Whether the bits of a result may differ where both sides are NaN: a sum's NaN has no defined payload.
bool MakesSums(const Problem& p, poolgrad_op op);

// "" or which element differs and how. Equal means the same bits, or (nan_is_nan) two NaNs.
std::string Difference(poolgrad_dtype dtype, const uint8_t* expected, const uint8_t* got, int64_t bytes,
                       bool nan_is_nan);

// What an operation leaves behind.
struct Outcome {
  std::vector<uint8_t> result;
  std::vector<uint8_t> routes;  // forward_routes only
};

// The reference's outcome; empty result for an operation that the problem does not have.
Outcome RunReference(const Problem& p, poolgrad_op op, Data& data, std::vector<uint8_t>& routes);

// The SIMD targets that this machine can run, best first, by Highway's bits.
std::vector<int64_t> SimdTargets();
const char* SimdTargetName(int64_t target);
void UseSimdTarget(int64_t target);  // and no other; 0: whatever the machine has
std::span<const Algorithm> SimdAlgorithms(poolgrad_op op);

// How much to run. The fuzzer and the emulator do less per problem, so that they see more of them.
struct Effort {
  std::vector<int> splits;  // tasks that each kernel is cut into, and threads that each plan runs on
  bool threads;             // let some of those tasks really run at once
};
inline Effort FullEffort() { return {{1, 2, 5}, true}; }
inline Effort QuickEffort() { return {{1, 3}, false}; }

struct Checked {
  std::string failure;   // "" or a sentence
  bool refused = false;  // the problem does not resolve; nothing was run
  int64_t comparisons = 0;
};

// The whole of it, for one problem and one seed of data.
Checked CheckProblem(const poolgrad_problem& raw, uint64_t data_seed, const Effort& effort = FullEffort());

// The same for a problem that resolved to `problem`, with every array filled from `bytes`, over and over.
Checked CheckProblemOnBytes(const poolgrad_problem& raw, const Problem& problem, std::span<const uint8_t> bytes,
                            const Effort& effort);

// How often each kernel ran for each type since ForgetRuns: "fwd_routes f32" -> times.
const std::map<std::string, int64_t>& Runs();
void ForgetRuns();

// From now on a crash, or a sanitizer's report, ends by printing the problem that was being checked.
void ReportCrashes();

}  // namespace poolgrad::oracle
