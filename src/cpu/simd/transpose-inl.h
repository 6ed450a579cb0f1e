// Matrices of elements turned over, whatever the elements are: by their size.

// Per-target include guard
#if defined(POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#undef POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#else
#define POOLGRAD_CPU_SIMD_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/simd/order-inl.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

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

// Asks for what is `ahead` elements further on.
template <class T>
HWY_INLINE void Ask(const T* at, int64_t ahead) {
  const auto bytes = static_cast<uintptr_t>(ahead) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + bytes), 0, 2);
}

template <class U>
HWY_INLINE void TransposeSquare(const U* HWY_RESTRICT from, int64_t from_step, U* HWY_RESTRICT to, int64_t to_step,
                                int64_t ahead) {
  const hn::CappedTag<U, 16 / sizeof(U)> d;
  constexpr int kSide = 16 / sizeof(U);
  hn::Vec<decltype(d)> v[kSide];
  for (int i = 0; ahead > 0 && i < kSide; ++i) Ask(from + i * from_step, ahead);
  for (int i = 0; i < kSide; ++i) v[i] = hn::LoadU(d, from + i * from_step);
  TransposeInBlocks(d, v);
  for (int i = 0; i < kSide; ++i) hn::StoreU(v[i], d, to + i * to_step);
}

// Whether vectors hold lines of 64 bytes. Then squares have whole lines on the side of planes: 16 bytes of each of many
// planes take longer, most where planes are a power of two apart.
inline constexpr bool kLines = hn::MaxLanes(hn::ScalableTag<uint8_t>()) == 64;

// Such a square turned over: kLanes planes, of each a line of elements, become lanes (kToLanes), or lanes planes. Small
// elements that follow each other in a plane go together as one lane of W.
template <class U>
struct Lines {
  using W = std::conditional_t<sizeof(U) == 8, uint64_t, uint32_t>;
  static constexpr int kTogether = sizeof(W) / sizeof(U);
  static constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<W>()), kPositions = kLanes * kTogether;

  template <bool kToLanes>
  static HWY_INLINE void Turn(const U* HWY_RESTRICT from, int64_t from_step, U* HWY_RESTRICT to, int64_t to_step,
                              int64_t ahead) {
    const hn::ScalableTag<W> d;
    const hn::Repartition<U, decltype(d)> line;
    VecOf<W> v[kLanes];
    for (int i = 0; kToLanes && ahead > 0 && i < kLanes; ++i) Ask(from + i * from_step, ahead);
    POOLGRAD_UNROLL for (int i = 0; i < kLanes; ++i) {
      if constexpr (kToLanes) {
        v[i] = hn::BitCast(d, hn::LoadU(line, from + i * from_step));
      } else {
        v[i] = Join(from + i * kTogether * from_step, from_step, std::make_integer_sequence<int, kTogether>());
      }
    }
    TransposeVectors<W>(v);
    POOLGRAD_UNROLL for (int i = 0; i < kLanes; ++i) {
      if constexpr (kToLanes) {
        Part(v[i], to + i * kTogether * to_step, to_step, std::make_integer_sequence<int, kTogether>());
      } else {
        hn::StoreU(hn::BitCast(line, v[i]), line, to + i * to_step);
      }
    }
  }

 private:
  template <int... kI>
  static HWY_INLINE VecOf<W> Join(const U* from, int64_t step, std::integer_sequence<int, kI...>) {
    const hn::ScalableTag<W> d;
    const hn::Rebind<U, decltype(d)> narrow;
    auto joined = hn::Zero(d);
    if constexpr (kTogether == 1) {
      joined = hn::LoadU(d, from);
    } else {
      ((joined =
            hn::Or(joined, hn::ShiftLeft<8 * sizeof(U) * kI>(hn::PromoteTo(d, hn::LoadU(narrow, from + kI * step))))),
       ...);
    }
    return joined;
  }
  template <int... kI>
  static HWY_INLINE void Part(VecOf<W> v, U* to, int64_t step, std::integer_sequence<int, kI...>) {
    const hn::Rebind<U, hn::ScalableTag<W>> narrow;
    if constexpr (kTogether == 1) {
      hn::StoreU(v, narrow, to);
    } else {
      (hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<8 * sizeof(U) * kI>(v)), narrow, to + kI * step), ...);
    }
  }
};

#ifdef POOLGRAD_SMALL  // one loop each

inline constexpr bool kOneOrder = true;

template <class U>
void TransposeFew(const U* from, int64_t rows, int64_t columns, int64_t from_step, U* to, int64_t to_step) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
  }
}

#else

inline constexpr bool kOneOrder = false;

// Fewer rows or columns than a square has. Of the result, only what lies between its first and its last element is
// written.
template <class U>
HWY_NOINLINE void TransposeFew(const U* HWY_RESTRICT from, int64_t rows, int64_t columns, int64_t from_step,
                               U* HWY_RESTRICT to, int64_t to_step) {
  constexpr int64_t kSide = 16 / sizeof(U);
  const hn::CappedTag<U, kSide> d;
  const U* const from_end = from + (rows - 1) * from_step + columns;
  U* const to_end = to + (columns - 1) * to_step + rows;
  const int64_t down = std::min(kSide, rows);
  for (int64_t c = 0; c < columns; c += kSide) {
    const int64_t across = std::min(kSide, columns - c);
    for (int64_t r = 0; r < rows; r += kSide) {
      const int64_t row = std::min(r, rows - down);  // some again
      const U* x = from + row * from_step + c;
      U* y = to + c * to_step + row;
      hn::Vec<decltype(d)> v[kSide];
      _Pragma("GCC unroll 8") for (int64_t i = 0; i < kSide; ++i, x += from_step) {
        v[i] = i >= down ? hn::Zero(d) : LoadFirst(d, x, x + kSide <= from_end ? kSide : across);
      }
      TransposeInBlocks(d, v);
      _Pragma("GCC unroll 8") for (int64_t i = 0; i < kSide; ++i, y += to_step) {
        if (i >= across) break;
        StoreFirst(d, v[i], y, y + kSide <= to_end ? kSide : down);  // too much is written over by the next column
      }
    }
  }
}

#endif

// to[c * to_step + r] = from[r * from_step + c]. What lies between the columns of the result may be written too.
// `near`: down columns, so that lines of the result are filled while they are in the cache, and what is `ahead`
// elements further on, if it is not 0, is asked for; else rows are read a few at a time, as memory likes it best.
template <class U>
HWY_NOINLINE void Transpose(const U* HWY_RESTRICT from, int64_t rows, int64_t columns, int64_t from_step,
                            U* HWY_RESTRICT to, int64_t to_step, bool near, int64_t ahead = 0) {
  constexpr int64_t kSide = 16 / sizeof(U);
  if (rows < kSide || columns < kSide) return TransposeFew(from, rows, columns, from_step, to, to_step);
  if constexpr (kLines) {
    constexpr int64_t kLanes = Lines<U>::kLanes, kPositions = Lines<U>::kPositions, kAhead = 4 * kPositions;
    if (rows >= kLanes && columns >= kPositions && columns >= rows) {  // to lanes
      for (int64_t c = 0; c < columns; c += kPositions) {
        const int64_t position = std::min(c, columns - kPositions);  // some again
        for (int64_t r = 0; r < rows; r += kLanes) {
          const int64_t plane = std::min(r, rows - kLanes);
          Lines<U>::template Turn<true>(from + plane * from_step + position, from_step, to + position * to_step + plane,
                                        to_step, near ? ahead : kAhead);
        }
      }
      return;
    }
    if (rows >= kPositions && columns >= kLanes) {
      for (int64_t r = 0; r < rows; r += kPositions) {
        const int64_t position = std::min(r, rows - kPositions);
        for (int64_t c = 0; c < columns; c += kLanes) {
          const int64_t plane = std::min(c, columns - kLanes);
          Lines<U>::template Turn<false>(from + position * from_step + plane, from_step,
                                         to + plane * to_step + position, to_step, 0);
        }
      }
      return;
    }
  }
  const auto row = [=](int64_t r) { return std::min(r, rows - kSide); };  // some again
  const auto column = [=](int64_t c) { return std::min(c, columns - kSide); };
  for (int64_t c = 0; (near || kOneOrder) && c < columns; c += kSide) {
    const U* const x = from + column(c);
    U* const y = to + column(c) * to_step;
    for (int64_t r = 0; r < rows; r += kSide) {
      TransposeSquare(x + row(r) * from_step, from_step, y + row(r), to_step, ahead);
    }
  }
#ifndef POOLGRAD_SMALL
  for (int64_t r = 0; !near && r < rows; r += kSide) {
    const U* const x = from + row(r) * from_step;
    U* const y = to + row(r);
    for (int64_t c = 0; c < columns; c += kSide) {
      TransposeSquare(x + column(c), from_step, y + column(c) * to_step, to_step, 0);
    }
  }
#endif
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
