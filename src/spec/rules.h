// Who wins a window. One scalar definition, which every kernel's vector form must equal bit for bit.
//
// Taps are visited in row-major order. `Compare` says how a tap's value v stands against the best so far; the tie rule
// says what a tie does: `first` keeps the earlier, `last` takes the later, `split` and `all` keep the set.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "poolgrad/poolgrad.h"

namespace poolgrad {

enum class Standing { kLoses, kTies, kBeats };

// V is a wide type: float, double or an integer.
template <class V>
Standing Compare(V v, V best, poolgrad_nan rule) {
  if constexpr (std::is_floating_point_v<V>) {
    const bool v_nan = v != v;
    const bool best_nan = best != best;
    if (v_nan || best_nan) {
      switch (rule) {
        case POOLGRAD_NAN_PROPAGATE_LAST:
          return v_nan ? Standing::kBeats : Standing::kLoses;
        case POOLGRAD_NAN_FIRST_PLACE:
        case POOLGRAD_NAN_IGNORE:
          return Standing::kLoses;
        case POOLGRAD_NAN_GREATER_EQUAL:
          return Standing::kBeats;
        default:
          return v_nan && !best_nan ? Standing::kBeats : Standing::kLoses;  // propagate_first
      }
    }
  }
  return v > best ? Standing::kBeats : v == best ? Standing::kTies : Standing::kLoses;
}

// The `ignore` rule starts from -inf with no route, and that start competes like a tap without a number; the other
// rules start from the first valid tap. Integers have nothing below their lowest value, so they always start from the
// first valid tap.
template <class V>
constexpr bool StartsFromLowest(poolgrad_nan rule) {
  return std::is_floating_point_v<V> && rule == POOLGRAD_NAN_IGNORE;
}

// Whether a winner outlives the rectifier (relu): it is above 0, or a NaN that its rule let win. What does not becomes
// +0 without a route, whatever its own sign. Rectifying keeps the order of values, so it may wait until a window's
// winner is known.
template <class V>
constexpr bool PassesRelu(V best) {
  return best > V{0} || best != best;
}

// How a bias' gradient is summed. The outputs of a channel, image after image and row-major in each, are cut into
// blocks of kBiasBlock. Output i of a block is added to sum i % kBiasSums of it, in order; then the upper half of these
// sums is added to the lower, sum by sum, until one is left; then the blocks' sums are added in order. All from +0 and
// in f64, since batches are long, and rounded at the end.
inline constexpr int64_t kBiasBlock = 4096;
inline constexpr int64_t kBiasSums = 32;

inline double FoldBiasSums(double* sums) {
  for (int64_t half = kBiasSums / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// y of a window that nobody won.
template <class V>
constexpr V Lowest() {
  if constexpr (std::is_floating_point_v<V>) {
    return -std::numeric_limits<V>::infinity();
  } else {
    return std::numeric_limits<V>::lowest();
  }
}

}  // namespace poolgrad
