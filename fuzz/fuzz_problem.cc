// Fuzzes the library from its text form down: the first line of the input is a problem in its one-line form, the rest
// fills x, dy, tx and hostile routes. Whatever parses must survive formatting; whatever resolves and is small enough is
// run by every algorithm in both directions and compared with the reference, under AddressSanitizer and UBSan.
//
// An input that begins with a zero byte is instead the bytes of a poolgrad_problem, for the numbers that no text would
// hold: making a plan of it may fail, with a sentence, but nothing else.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "support/harness.h"

namespace {

using poolgrad::Problem;

[[noreturn]] void Fail(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::abort();
}

// How much one run of the slowest reference operation visits.
int64_t Work(const Problem& p) {
  int64_t covers = 1;
  for (const poolgrad::Axis& a : p.axis) covers *= std::min(a.out, (a.extent() - 1) / a.stride + 1);
  return p.x_elements() * std::max<int64_t>(1, covers) * p.taps();
}

// About a millisecond of the reference is always worth it. Problems so large that kernels change their ways are run as
// long as they take no more than half of the time; a finding that is run again is never refused for that.
class Patience {
 public:
  bool Has(const Problem& p) const {
    if (p.x_elements() > 1 << 16 || p.y_elements() > 1 << 16 || p.taps() > 1024) return false;
    const bool small = p.x_elements() <= 2048 && p.y_elements() <= 2048 && Work(p) <= 300'000;
    return small || (Work(p) <= 3'000'000 && spent_ * 2 <= Clock::now() - start_);
  }
  template <class Body>
  void Spend(const Body& body) {
    const auto begin = Clock::now();
    body();
    spent_ += Clock::now() - begin;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Clock::duration spent_{0};
};
Patience patience;

void PlanRawBytes(const uint8_t* data, size_t size) {
  poolgrad_problem problem;
  poolgrad_problem_init(&problem);
  const size_t header = sizeof problem.struct_size;
  std::memcpy(reinterpret_cast<char*>(&problem) + header, data, std::min(size, sizeof problem - header));
  for (int i = 0; i < 3; ++i) problem.starts[i] = problem.sizes[i] = nullptr;  // pointers are the caller's word
  poolgrad_plan* plan = nullptr;
  if (poolgrad_plan_create(&problem, nullptr, &plan) != POOLGRAD_OK) {
    if (plan || !*poolgrad_last_error()) Fail("a plan was refused without a sentence, or not refused whole");
    return;
  }
  size_t needed = 0;
  if (poolgrad_plan_explain(plan, nullptr, 0, &needed) != POOLGRAD_OK || needed == 0)
    Fail("a plan cannot explain itself");
  poolgrad_plan_destroy(plan);
}

void PoolText(std::string_view text, std::span<const uint8_t> bytes) {
  const auto raw = poolgrad::ParseProblem(text);
  if (!raw.ok()) {
    if (raw.status().sentence().empty()) Fail("a text was refused without a sentence");
    return;
  }
  const auto problem = poolgrad::Resolve(*raw);
  if (!problem.ok()) return;
  const std::string formatted = poolgrad::FormatProblem(*raw);
  const auto again = poolgrad::ParseProblem(formatted);
  if (!again.ok() || poolgrad::FormatProblem(*again) != formatted) Fail("the text form does not survive: " + formatted);
  if (problem->device != POOLGRAD_CPU || !patience.Has(*problem)) return;
  const auto check = [&] {
    const auto checked = poolgrad::oracle::CheckProblemOnBytes(*raw, *problem, bytes, poolgrad::oracle::QuickEffort());
    if (!checked.failure.empty()) Fail(checked.failure);
  };
  if (problem->x_elements() <= 2048) return check();
  patience.Spend(check);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 0) {
    PlanRawBytes(data + 1, size - 1);
    return 0;
  }
  const auto* text = reinterpret_cast<const char*>(data);
  const auto* newline = size == 0 ? nullptr : static_cast<const char*>(std::memchr(text, '\n', size));
  const size_t length = newline ? static_cast<size_t>(newline - text) : size;
  const size_t rest = newline ? length + 1 : size;
  PoolText({text, length}, {data + rest, size - rest});
  return 0;
}
