// Shorthand for tests that pool a handful of numbers through the public C++ face and look at what came out.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "poolgrad/poolgrad.hpp"

namespace poolgrad::oracle {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
using Floats = std::vector<float>;
using Indices = std::vector<int64_t>;

struct Pooled {
  Floats y;
  Indices winners;  // index inside the plane, -1 for no route
};

inline Pooled Pool(const std::string& text, const Floats& x) {
  const Plan plan(text);
  const auto [y, routes] = plan.forward_routes(x);
  return {y, plan.indices(routes, Numbering::torch)};
}

inline Floats Gradient(const std::string& text, const Floats& x, const Floats& dy) {
  return Plan(text).backward_x(dy, x);
}

// Output sizes of a problem, e.g. "2x3"; or the error's sentence.
inline std::string OutOf(const std::string& text) {
  try {
    const Problem problem = Problem::parse(text);
    const Plan plan(problem);
    std::string out;
    for (int i = 0; i < problem.raw().rank; ++i) out += (i ? "x" : "") + std::to_string(plan.info().out[i]);
    return out;
  } catch (const Error& error) {
    return error.what();
  }
}

inline Floats Iota(int64_t n) {
  Floats values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i + 1);
  return values;
}

}  // namespace poolgrad::oracle
