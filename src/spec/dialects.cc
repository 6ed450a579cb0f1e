#include "spec/dialects.h"

namespace poolgrad {
namespace {

constexpr auto kFirst = POOLGRAD_TIES_FIRST;
constexpr auto kLast = POOLGRAD_TIES_LAST;
constexpr auto kDrop = POOLGRAD_ROUND_CEIL_DROP;
constexpr auto kKeep = POOLGRAD_ROUND_CEIL_KEEP;

// Columns as in struct Dialect: ties, ties in 3-D, NaN, ceil, counts padding, whole-window gradient, crops, empty,
// pads. TensorFlow.js 3-D compares with >=, so the last of equals wins; its average gradient divides by the whole
// window although its forward pass does not. ONNX leaves ties and NaN open; ours are used. XLA pads by any amount,
// negative included; its maximum passes NaN on (only the comparison of its gradient, nan=greater_equal, does not), and
// Flax's averages count padding.
constexpr Dialect kDialects[] = {
    {kFirst, kFirst, POOLGRAD_NAN_PROPAGATE_FIRST, kDrop, false, false, false, false, Dialect::kAny},       // default
    {kFirst, kFirst, POOLGRAD_NAN_PROPAGATE_LAST, kDrop, true, false, false, false, Dialect::kHalfWindow},  // torch
    {kFirst, kFirst, POOLGRAD_NAN_FIRST_PLACE, kDrop, false, false, false, false, Dialect::kUnderWindow},  // tensorflow
    {kFirst, kLast, POOLGRAD_NAN_IGNORE, kKeep, false, true, false, true, Dialect::kAny},                  // tfjs
    {kFirst, kFirst, POOLGRAD_NAN_PROPAGATE_FIRST, kDrop, true, false, true, true, Dialect::kAny},         // jax
    {kFirst, kFirst, POOLGRAD_NAN_PROPAGATE_FIRST, kDrop, false, false, false, false, Dialect::kAny},      // onnx
};

}  // namespace

const Dialect& DialectOf(poolgrad_dialect dialect) { return kDialects[dialect]; }

}  // namespace poolgrad
