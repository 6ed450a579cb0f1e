// What each framework means by pooling: the rules and limits that a dialect fills in.
#pragma once

#include "poolgrad/poolgrad.h"

namespace poolgrad {

struct Dialect {
  poolgrad_ties ties;     // for ranks 1 and 2
  poolgrad_ties ties_3d;  // for rank 3
  poolgrad_nan nan;
  poolgrad_rounding ceil;      // which of the two ceils plain `ceil` is
  bool count_padding;          // average: padding counts in the divisor unless the problem says otherwise
  bool whole_window_gradient;  // average: the gradient divides by the whole window
  bool may_crop;               // negative padding allowed
  bool may_be_empty;           // a window longer than the padded input gives an empty result, not an error
  enum { kAny, kHalfWindow, kUnderWindow } pad_limit;
};

const Dialect& DialectOf(poolgrad_dialect dialect);

}  // namespace poolgrad
