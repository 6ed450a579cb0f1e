// poolgrad explain and poolgrad check: what a problem means, and evidence that its gradient is right.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "commands.h"
#include "support.h"
#include "terminal.h"
#include "trace.h"

namespace poolgrad::cli {
namespace {

// 1 ... count in an order that looks random and is always the same, so that winners sit in different places.
std::vector<double> Shuffled(int64_t count, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  std::mt19937_64 random(seed);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
  return values;
}

std::vector<double> ParseNumbers(const std::string& text, int64_t count, const char* option) {
  std::vector<double> numbers;
  const char* at = text.c_str();
  while (true) {
    while (*at == ' ' || *at == ',' || *at == '\n' || *at == '\t') ++at;
    if (*at == '\0') break;
    char* end = nullptr;
    numbers.push_back(std::strtod(at, &end));
    if (end == at) throw Failure(std::string(option) + " has '" + at + "' where a number was expected");
    at = end;
  }
  if (static_cast<int64_t>(numbers.size()) != count) {
    throw Failure(std::string(option) + " has " + std::to_string(numbers.size()) + " numbers; expected " +
                  std::to_string(count) + ", one for each element");
  }
  return numbers;
}

}  // namespace

void RunExplain(const ExplainOptions& options) {
  const poolgrad_problem problem = ParseProblem(options.problem);
  const Plan plan(problem, options.algorithm);
  std::fputs(plan.Explain().c_str(), stdout);
  const int64_t x_elements = plan.info().x_elements, y_elements = plan.info().y_elements;
  const bool small = x_elements > 0 && y_elements > 0 && x_elements <= kLargestTrace && y_elements <= kLargestTrace;
  if (!small) {
    if (!options.values.empty() || !options.gradient.empty()) {
      throw Failure("--values and --dy need 1 to " + std::to_string(kLargestTrace) +
                    " inputs and outputs; this problem has " + std::to_string(x_elements) + " and " +
                    std::to_string(y_elements));
    }
    return;
  }
  const auto x =
      options.values.empty() ? Shuffled(x_elements, 1) : ParseNumbers(options.values, x_elements, "--values");
  const auto dy = options.gradient.empty() ? std::vector<double>(static_cast<size_t>(y_elements), 1.0)
                                           : ParseNumbers(options.gradient, y_elements, "--dy");
  std::printf("\n%s", Trace(problem, x, dy).Everything().c_str());
}

// f(x) = <dy, pool(x)> is linear around an x whose elements all differ by at least one, so the central difference with
// a step of a quarter is exact up to rounding, whatever the tie rule.
void RunCheck(const CheckOptions& options) {
  poolgrad_problem problem = ParseProblem(options.problem);
  problem.dtype = POOLGRAD_F64;
  const Plan plan(problem);
  const poolgrad_info& info = plan.info();
  auto x = Shuffled(info.x_elements, options.seed);
  std::mt19937_64 random(options.seed + 1);
  std::vector<double> dy(static_cast<size_t>(info.y_elements)), y(dy.size()), dx(x.size());
  for (double& v : dy) v = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
  const Buffer kept(info.route_bytes);
  void* routes = problem.kind == POOLGRAD_MAX ? kept.data() : nullptr;
  Forward(plan, x.data(), y.data(), routes, nullptr);
  Check(poolgrad_backward(plan.get(), dy.data(), routes, dx.data(), nullptr));

  const int64_t checked = std::min(options.samples, info.x_elements);
  constexpr double kStep = 0.25, kTolerance = 1e-9;
  auto value = [&] {
    Forward(plan, x.data(), y.data(), nullptr, nullptr);
    double sum = 0;
    for (size_t o = 0; o < y.size(); ++o) {
      if (std::isfinite(y[o])) sum += dy[o] * y[o];  // a window without taps is -inf whatever x does
    }
    return sum;
  };
  double worst = 0;
  Progress progress("checking", checked);
  for (int64_t i = 0; i < checked; ++i) {
    const auto at = static_cast<size_t>(checked == info.x_elements ? i : static_cast<int64_t>(random() % x.size()));
    const double kept_x = x[at];
    x[at] = kept_x + kStep;
    const double above = value();
    x[at] = kept_x - kStep;
    const double below = value();
    x[at] = kept_x;
    worst = std::max(worst, std::abs((above - below) / (2 * kStep) - dx[at]));
    progress.Set(i + 1);
  }
  // Rounding grows with the sum's size: its terms are at most the largest x, and there are as many as outputs.
  const double scale = std::max(1.0, static_cast<double>(x.size()) * std::sqrt(static_cast<double>(y.size()) + 1));
  const bool good = worst <= kTolerance * scale;
  std::printf(
      "%s\n%lld of %lld inputs checked in f64: the analytic gradient and the central difference differ by at most "
      "%.3g: %s\n",
      FormatProblem(problem).c_str(), static_cast<long long>(checked), static_cast<long long>(info.x_elements), worst,
      good ? "they agree" : "THEY DISAGREE");
  if (!good) {
    throw Failure(
        std::string("the gradient of this problem does not agree with finite differences") +
        (DividesByWholeWindow(problem)
             ? ", and is not meant to: averages of the tfjs dialect divide dy by the whole window, also where "
               "forward divided by less"
             : ""));
  }
}

}  // namespace poolgrad::cli
