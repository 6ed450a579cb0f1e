// Matrices of elements turned over, whatever the elements are: by their size.

// Per-target include guard
#if defined(POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#undef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#else
#define POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// A square of as many elements as 16 bytes hold, by rounds of a perfect shuffle.
template <class U>
HWY_INLINE void TransposeSquare(const U* HWY_RESTRICT from, int64_t from_step, U* HWY_RESTRICT to, int64_t to_step) {
  const hn::CappedTag<U, 16 / sizeof(U)> d;
  constexpr int kSide = 16 / sizeof(U);
  hn::Vec<decltype(d)> a[kSide], b[kSide];
  for (int i = 0; i < kSide; ++i) a[i] = hn::LoadU(d, from + i * from_step);
  for (int side = kSide; side > 1; side /= 2) {
    for (int i = 0; i < kSide / 2; ++i) {
      b[2 * i] = hn::InterleaveLower(d, a[i], a[i + kSide / 2]);
      b[2 * i + 1] = hn::InterleaveUpper(d, a[i], a[i + kSide / 2]);
    }
    for (int i = 0; i < kSide; ++i) a[i] = b[i];
  }
  for (int i = 0; i < kSide; ++i) hn::StoreU(a[i], d, to + i * to_step);
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

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
