// Matrices of elements turned over, whatever the elements are: by their size.

// Per-target include guard
#if defined(POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#undef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#else
#define POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Squares of as many elements as 16 bytes hold, one in every block of that size, by rounds of a perfect shuffle.
template <class D>
HWY_INLINE void TransposeInBlocks(D d, hn::Vec<D>* v) {
  constexpr int kSide = 16 / sizeof(hn::TFromD<D>);
  hn::Vec<D> shuffled[kSide];
  POOLGRAD_UNROLL for (int side = kSide; side > 1; side /= 2) {
    POOLGRAD_UNROLL for (int i = 0; i < kSide / 2; ++i) {
      shuffled[2 * i] = hn::InterleaveLower(d, v[i], v[i + kSide / 2]);
      shuffled[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kSide / 2]);
    }
    POOLGRAD_UNROLL for (int i = 0; i < kSide; ++i) v[i] = shuffled[i];
  }
}

template <class U>
HWY_INLINE void TransposeSquare(const U* HWY_RESTRICT from, int64_t from_step, U* HWY_RESTRICT to, int64_t to_step) {
  const hn::CappedTag<U, 16 / sizeof(U)> d;
  constexpr int kSide = 16 / sizeof(U);
  hn::Vec<decltype(d)> v[kSide];
  for (int i = 0; i < kSide; ++i) v[i] = hn::LoadU(d, from + i * from_step);
  TransposeInBlocks(d, v);
  for (int i = 0; i < kSide; ++i) hn::StoreU(v[i], d, to + i * to_step);
}

// to[c * to_step + r] = from[r * from_step + c].
template <class U>
void Transpose(const U* HWY_RESTRICT from, int64_t rows, int64_t columns, int64_t from_step, U* HWY_RESTRICT to,
               int64_t to_step) {
  constexpr int64_t kSide = 16 / sizeof(U);
  if (rows < kSide || columns < kSide) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
    }
    return;
  }
  const auto within = [](int64_t at, int64_t size) { return at + kSide <= size ? at : size - kSide; };  // some again
  for (int64_t r = 0; r < rows; r += kSide) {
    const int64_t row = within(r, rows);
    for (int64_t c = 0; c < columns; c += kSide) {
      const int64_t column = within(c, columns);
      TransposeSquare(from + row * from_step + column, from_step, to + column * to_step + row, to_step);
    }
  }
}

// As many vectors as a vector has lanes: lane l of vector p changes places with lane p of vector l. W has 4 or 8 bytes.
template <class W>
HWY_INLINE void TransposeVectors(VecOf<W>* v) {
  const hn::ScalableTag<W> d;
  constexpr int kInBlock = 16 / sizeof(W);
  constexpr int kBlocks = hn::MaxLanes(d) / kInBlock;
  POOLGRAD_UNROLL for (int b = 0; b < kBlocks; ++b) TransposeInBlocks(d, v + b * kInBlock);
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

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
