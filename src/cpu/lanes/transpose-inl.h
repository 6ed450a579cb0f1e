// As many vectors as a vector has lanes, rows becoming columns: lane l of vector p changes places with lane p of vector
// l.

// Per-target include guard
#if defined(POOLGRAD_CPU_LANES_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_LANES_TRANSPOSE_INL_H_
#undef POOLGRAD_CPU_LANES_TRANSPOSE_INL_H_
#else
#define POOLGRAD_CPU_LANES_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The first few, inside their blocks of 16 bytes.
template <class W>
HWY_INLINE void TransposeInBlocks(VecOf<W>* v) {
  const hn::ScalableTag<W> d;
  if constexpr (sizeof(W) == 8) {
    const auto a = v[0], b = v[1];
    v[0] = hn::InterleaveLower(d, a, b);
    v[1] = hn::InterleaveUpper(d, a, b);
  } else {
    const hn::Repartition<double, decltype(d)> d2;
    const auto low0 = hn::BitCast(d2, hn::InterleaveLower(d, v[0], v[1]));
    const auto high0 = hn::BitCast(d2, hn::InterleaveUpper(d, v[0], v[1]));
    const auto low1 = hn::BitCast(d2, hn::InterleaveLower(d, v[2], v[3]));
    const auto high1 = hn::BitCast(d2, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(d2, low0, low1));
    v[1] = hn::BitCast(d, hn::InterleaveUpper(d2, low0, low1));
    v[2] = hn::BitCast(d, hn::InterleaveLower(d2, high0, high1));
    v[3] = hn::BitCast(d, hn::InterleaveUpper(d2, high0, high1));
  }
}

// W has 4 or 8 bytes.
template <class W>
HWY_INLINE void Transpose(VecOf<W>* v) {
  const hn::ScalableTag<W> d;
  constexpr int kInBlock = 16 / sizeof(W);
  constexpr int kBlocks = hn::MaxLanes(d) / kInBlock;
  POOLGRAD_UNROLL for (int b = 0; b < kBlocks; ++b) TransposeInBlocks<W>(v + b * kInBlock);
  // Block b of vector (c, i) changes places with block c of vector (b, i).
  POOLGRAD_UNROLL for (int i = 0; i < kInBlock && kBlocks > 1; ++i) {
    VecOf<W>* u = v + i;
    if constexpr (kBlocks == 2) {
      const auto a = u[0], b = u[kInBlock];
      u[0] = hn::ConcatLowerLower(d, b, a);
      u[kInBlock] = hn::ConcatUpperUpper(d, b, a);
    } else if constexpr (kBlocks == 4) {
      const auto low0 = hn::ConcatLowerLower(d, u[2 * kInBlock], u[0]);
      const auto high0 = hn::ConcatUpperUpper(d, u[2 * kInBlock], u[0]);
      const auto low1 = hn::ConcatLowerLower(d, u[3 * kInBlock], u[kInBlock]);
      const auto high1 = hn::ConcatUpperUpper(d, u[3 * kInBlock], u[kInBlock]);
      u[0] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low1), low0);
      u[kInBlock] = hn::OddEvenBlocks(low1, hn::SwapAdjacentBlocks(low0));
      u[2 * kInBlock] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high1), high0);
      u[3 * kInBlock] = hn::OddEvenBlocks(high1, hn::SwapAdjacentBlocks(high0));
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
