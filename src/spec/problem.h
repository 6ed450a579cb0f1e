// A problem, checked and resolved: what every kernel gets. And its one-line text form (docs/problem.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "spec/geometry.h"
#include "spec/routes.h"

namespace poolgrad {

struct Problem {
  poolgrad_kind kind = POOLGRAD_MAX;
  poolgrad_dtype dtype = POOLGRAD_F32;
  poolgrad_layout layout = POOLGRAD_CHANNELS_FIRST;
  poolgrad_dialect dialect = POOLGRAD_DIALECT_DEFAULT;
  poolgrad_ties ties = POOLGRAD_TIES_FIRST;           // never DEFAULT
  poolgrad_nan nan = POOLGRAD_NAN_PROPAGATE_FIRST;    // never DEFAULT
  poolgrad_rounding rounding = POOLGRAD_ROUND_FLOOR;  // never DEFAULT or CEIL
  poolgrad_device device = POOLGRAD_CPU;
  int device_index = 0;
  bool may_compile = true;  // a kernel for this window, while the program runs
  int rank = 2;
  int64_t batch = 1;
  int64_t channels = 1;
  Axis axis[3];  // depth, height, width; the unused leading ones are a single tap over a single element
  RouteFormat routes;
  bool relu = false;                   // max: y is never below 0, and a window without a tap above 0 has no route
  bool bias = false;                   // relu: it is of x + bias[channel]
  bool count_padding = false;          // average
  bool whole_window_gradient = false;  // average: backward divides by taps() whatever forward divided by (tfjs)
  int64_t divisor = 0;                 // average; 0: none

  const Axis& depth() const { return axis[0]; }
  const Axis& height() const { return axis[1]; }
  const Axis& width() const { return axis[2]; }
  bool channels_last() const { return layout == POOLGRAD_CHANNELS_LAST; }
  int64_t taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
  int64_t in_plane() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t out_plane() const { return axis[0].out * axis[1].out * axis[2].out; }
  int64_t x_elements() const { return batch * channels * in_plane(); }
  int64_t y_elements() const { return batch * channels * out_plane(); }
  int64_t x_bytes() const { return x_elements() * SizeOf(dtype); }
  int64_t y_bytes() const { return y_elements() * SizeOf(dtype); }
  int64_t result_elements(poolgrad_op op) const {
    if (op == POOLGRAD_OP_BIAS_GRADIENT) return channels;
    const bool like_x = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X || op == POOLGRAD_OP_UNPOOL;
    return like_x ? x_elements() : y_elements();
  }
  // Some axis lists its windows.
  bool by_table() const { return axis[0].table || axis[1].table || axis[2].table; }
  // Every axis' windows are disjoint: every input has at most one writer.
  bool disjoint() const { return axis[0].disjoint() && axis[1].disjoint() && axis[2].disjoint(); }
};

// Checks everything; the error names the argument, its value and what was expected.
Result<Problem> Resolve(const poolgrad_problem& raw);

// Sets the lines of p->routes after batch, channels or axes were changed (parts of a problem).
void SetRouteLines(Problem* p);

// What an average divides by, forward, at output (od, oh, ow).
int64_t AverageCount(const Problem& p, int64_t od, int64_t oh, int64_t ow);

// What poolgrad_problem_init gives.
poolgrad_problem DefaultProblem();

Result<poolgrad_problem> ParseProblem(std::string_view text);
std::string FormatProblem(const poolgrad_problem& raw);

// The words of the text form and of every message.
const char* Name(poolgrad_dtype v);
const char* Name(poolgrad_kind v);
const char* Name(poolgrad_layout v);
const char* Name(poolgrad_dialect v);
const char* Name(poolgrad_padding v);
const char* Name(poolgrad_rounding v);
const char* Name(poolgrad_ties v);
const char* Name(poolgrad_nan v);
const char* Name(poolgrad_op v);

}  // namespace poolgrad
