// A small pooling told in full: every window and its winner, the Jacobian, and the sums that make the gradient.
// Computed in f64 by the library itself; which inputs a window covers is read off the Jacobian of average pooling over
// the same window, so that no window arithmetic is repeated here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support.h"

namespace poolgrad::cli {

constexpr int64_t kLargestTrace = 256;  // elements of x or y; more is no longer read by anybody

// A sparse matrix by rows, as poolgrad_jacobian gives it.
struct Csr {
  std::vector<int64_t> row_start, columns;
  std::vector<double> values;
};

// Whether the gradient is no derivative by intent: averages of the tfjs dialect, which divide by the whole window
// backward, whatever they divided by forward (docs/problem.md).
bool DividesByWholeWindow(const poolgrad_problem& problem);

class Trace {
 public:
  // The problem's own type is replaced by f64. x and dy must have the problem's sizes.
  Trace(const poolgrad_problem& problem, std::vector<double> x, std::vector<double> dy);

  std::string Input() const { return Grid(x_, InShape(), winners_); }
  std::string Windows() const;
  std::string Output() const { return Grid(y_, OutShape(), {}); }
  std::string Jacobian() const;  // empty when it is too wide to print
  std::string Sums() const;
  std::string Gradient() const;
  std::string Everything() const;

  static int64_t XElements(const poolgrad_problem& problem);
  static int64_t YElements(const poolgrad_problem& problem);

 private:
  std::vector<int64_t> InShape() const;
  std::vector<int64_t> OutShape() const;
  bool HasShares() const;  // dx is made of fractions of dy
  std::string Name(const char* array, int64_t element, const std::vector<int64_t>& spatial) const;
  std::string Grid(const std::vector<double>& values, const std::vector<int64_t>& spatial,
                   const std::vector<bool>& highlighted, bool shares = false) const;

  Plan plan_;
  std::vector<double> x_, y_, dy_, dx_;
  std::vector<bool> winners_;
  Csr selection_, windows_;
  std::vector<double> shares_;  // of dy, that dx gets: the selection's, but for such averages
};

}  // namespace poolgrad::cli
