// Forward, with or without routes, for the windows of windows.cuh: a thread owns a strip, the same columns of several output
// rows one below the other, and keeps the reduced rows that the next output row needs again.
//
// Each input row is first reduced along the width (which tap column won), then the rows along height and depth in row-major
// order, the earlier keeping a tie: exactly "first in row-major order". Values outside the input are -inf and lose to anything
// but -inf; a strip that saw a NaN, or that ends with an output of -inf, is done again by the exact rules.
#pragma once

#include "cuda/exact.cuh"
#include "cuda/packs.cuh"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"
#include "cuda/windows.cuh"

namespace poolgrad::cuda {

template <class T>
struct StripParams {
  Geo<int64_t> g;  // for the exact path
  const T* x;
  T* y;  // null: only routes are wanted
  uint8_t* routes;
  uint32_t threads;                         // strips in all
  FastDiv across, columns, strips, depths;  // channel vectors (1 when channels are first), column groups, strips, output depths
  int in[3], out[3];
  int stride_d, pad[3];
  int rows;                                   // outputs in a strip
  int64_t x_plane, x_depth, x_row, x_column;  // steps of the input; x_plane: a sample when channels are last
  int64_t y_row;                              // from an output row to the next
  int64_t route_row, line_bytes;
  int64_t line_row;  // route lines from an output row to the next
  int64_t c;
  // staged mode
  int planes_per_block;
  int64_t planes;
};

template <class T, class W, Mode kMode, int kPad, bool kRoutes>
struct Strip {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr bool kShared = kMode == Mode::kFirstStaged;
  static constexpr bool kVector = kMode == Mode::kFirst;
  static constexpr SmallWindowTuning kTuning = ForwardTuning(Describe<T, W, kMode>());
  // Outputs of a thread in one row: elements of a 16-byte vector, or neighbours along the width.
  static constexpr int kOutputs = kMode == Mode::kLast ? 16 / sizeof(T) : kVector ? 4 : W::kBits == 2 ? 4 : 2;
  static constexpr int kPacks = kOutputs / P::kElements;
  static constexpr int kKept = W::KH > W::SH ? W::KH - W::SH : 0;  // reduced rows that serve the next output row too
  static constexpr int kRowElements = W::SW * (kOutputs - 1) + W::KW;
  static constexpr int kMain = W::SW * kOutputs;  // elements of the aligned part of a row
  static constexpr int kRight = kRowElements - kPad - kMain > 0 ? kRowElements - kPad - kMain : 0;

  struct Reduced {
    Reg value[kPacks];
    uint32_t tap[kPacks];
  };

  // Where to load place `at` from: clamped loads are made even when it lies outside.
  __device__ static int Place(int at, int size) { return kTuning.clamped ? Inside(at, size) : at; }

  // One input row's values, tap column by tap column.
  struct Row {
    Reg tap[W::KW][kPacks];
  };

  __device__ static void LoadLast(const T* row, bool row_valid, int column, int width, int64_t step, Row* out, Reg* watched) {
    uint32_t words[W::KW][4];
#pragma unroll
    for (int k = 0; k < W::KW; ++k) LoadWords<false, 16>(row + Inside(column + k, width) * step, words[k]);
#pragma unroll
    for (int k = 0; k < W::KW; ++k) {
      const bool valid = row_valid && static_cast<unsigned>(column + k) < static_cast<unsigned>(width);
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        out->tap[k][i] = valid ? P::FromBits(words[k][i]) : P::Fill();
        *watched = P::Watch(*watched, out->tap[k][i]);
      }
    }
  }

  // Channels first: the row as registers, then every tap column picked out of them.
  __device__ static void LoadFirst(const T* row, bool row_valid, int column, int width, Row* out, Reg* watched) {
    constexpr int kRegisters = kVector ? kPad + kMain * sizeof(T) / 4 + kRight : kRowElements;
    uint32_t words[kRegisters];
    const uint32_t fill = P::ToBits(P::Fill());
    const auto element = [&](int at) {
      const bool valid = row_valid && static_cast<unsigned>(column + at) < static_cast<unsigned>(width);
      const uint32_t bits = kTuning.clamped || valid ? LoadElement<T, kShared>(row + Place(column + at, width)) : fill;
      return valid ? bits : fill;
    };
    if constexpr (kVector) {
#pragma unroll
      for (int i = 0; i < kPad; ++i) words[i] = element(i);
      constexpr int kMainBytes = kMain * static_cast<int>(sizeof(T));
      if (kTuning.clamped || row_valid) LoadWords<kShared, kMainBytes>(row + column + kPad, words + kPad);
#pragma unroll
      for (int i = 0; i < kMainBytes / 4; ++i) words[kPad + i] = row_valid ? words[kPad + i] : fill;
#pragma unroll
      for (int i = 0; i < kRight; ++i) words[kRegisters - kRight + i] = element(kPad + kMain + i);
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) words[i] = element(i);
    }
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) *watched = P::Watch(*watched, P::FromBits(words[i]));

    // Where element `at` of the row is: a register, and which half of it.
    const auto reg = [&](int at) {
      if (!kVector || sizeof(T) == 4 || at < kPad) return at;
      return at - kPad < kMain ? kPad + (at - kPad) / 2 : kPad + kMain / 2 + (at - kPad - kMain);
    };
    const auto half = [&](int at) {
      return kVector && sizeof(T) == 2 && at >= kPad && at - kPad < kMain ? (at - kPad) % 2 : 0;
    };
#pragma unroll
    for (int k = 0; k < W::KW; ++k) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if constexpr (sizeof(T) == 4) {
          out->tap[k][i] = P::FromBits(words[reg(W::SW * i + k)]);
        } else {
          const int a = W::SW * 2 * i + k, b = a + W::SW;
          out->tap[k][i] = __byte_perm(words[reg(a)], words[reg(b)], (half(a) ? 0x32u : 0x10u) | (half(b) ? 0x7600u : 0x5400u));
        }
      }
    }
  }

  __device__ static void Reduce(const Row& row, Reduced* out) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      Reg best = row.tap[0][i];
      uint32_t tap = 0;
#pragma unroll
      for (int k = 1; k < W::KW; ++k) {
        const auto m = P::Greater(row.tap[k][i], best);
        best = P::Choose(m, row.tap[k][i], best);
        if constexpr (kRoutes) tap = P::ChooseTap(m, P::Tap(k), tap);
      }
      out->value[i] = best;
      if constexpr (kRoutes) out->tap[i] = tap;
    }
  }

  __device__ static void StoreOutputs(T* y, uint8_t* routes, const Reduced& best, int left) {
    if (y) {
      if constexpr (kMode == Mode::kLast || kVector) {
        uint32_t words[kPacks];
#pragma unroll
        for (int i = 0; i < kPacks; ++i) words[i] = P::ToBits(best.value[i]);
        StoreWords<kOutputs * static_cast<int>(sizeof(T))>(y, words);
      } else {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          const uint32_t bits = P::ToBits(best.value[i / P::kElements]);
          if (i < left) StoreElement(y + i, P::kElements == 2 && i % 2 ? bits >> 16 : bits);
        }
      }
    }
    if constexpr (kRoutes) {
      constexpr int kCodeBits = kOutputs * W::kBits;
      uint32_t words[(kCodeBits + 31) / 32] = {};
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int shift = i * P::kElements * W::kBits;
        words[shift / 32] |= P::template Codes<W::kBits>(best.tap[i]) << (shift % 32);
      }
      if constexpr (kMode == Mode::kLast || kVector) {
        StoreWords<kCodeBits / 8>(routes, words);
      } else if constexpr (W::kBits < 8) {
        static_assert(kCodeBits == 8);
        *routes = static_cast<uint8_t>(words[0] & ((1u << (min(left, kOutputs) * W::kBits)) - 1u));
      } else {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          if (i < left) routes[i] = static_cast<uint8_t>(words[0] >> (8 * i));
        }
      }
    }
  }

  // plane: the first element of this thread's plane (or sample, at its channels), in global or shared memory.
  __device__ static void Run(const StripParams<T>& p, const T* plane, int64_t number, int od, int oh, int ow, int channel) {
    constexpr bool kLast = kMode == Mode::kLast;
    const int column = ow * W::SW - (kVector ? kPad : p.pad[2]);
    const int depth = od * p.stride_d - p.pad[0];
    int ih = oh * W::SH - p.pad[1];
    // Route lines: places when channels are last, rows when they are first.
    int64_t line = (number * p.out[0] + od) * p.out[1] + oh;
    if (kLast) line = line * p.out[2] + ow;
    const int64_t at = kLast ? channel : ow;
    T* y = p.y ? p.y + line * p.g.line + at : nullptr;
    uint8_t* routes = kRoutes ? p.routes + line * p.line_bytes + at * W::kBits / 8 : nullptr;
    const int left = kLast ? kOutputs : p.out[2] - ow;
    const int rows = min(p.rows, p.out[1] - oh);

    Reg watched = P::FromBits(0);
    Reg lowest = P::FromBits(0);
    Reduced kept[W::KD][W::KH];
    const auto load = [&](int kd, int kh) {
      const int d = depth + kd, h = ih + kh;
      const bool valid = static_cast<unsigned>(h) < static_cast<unsigned>(p.in[1]) &&
                         (W::KD == 1 || static_cast<unsigned>(d) < static_cast<unsigned>(p.in[0]));
      // A window of one depth always lies inside.
      const T* row = plane + (W::KD == 1 ? d : Place(d, p.in[0])) * p.x_depth + Place(h, p.in[1]) * p.x_row;
      Row values;
      if constexpr (kLast) {
        LoadLast(row, valid, column, p.in[2], p.x_column, &values, &watched);
      } else {
        LoadFirst(row, valid, column, p.in[2], &values, &watched);
      }
      Reduce(values, &kept[kd][kh]);
    };
#pragma unroll
    for (int kd = 0; kd < W::KD; ++kd) {
#pragma unroll
      for (int kh = 0; kh < kKept; ++kh) load(kd, kh);
    }
    constexpr int kUnrolled = W::kTaps > 9 && kTuning.clamped ? 1 : 2;
#pragma unroll kUnrolled
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int kd = 0; kd < W::KD; ++kd) {
#pragma unroll
        for (int kh = kKept; kh < W::KH; ++kh) load(kd, kh);
      }
      Reduced best = kept[0][0];
#pragma unroll
      for (int k = 1; k < W::KD * W::KH; ++k) {
        const Reduced& next = kept[k / W::KH][k % W::KH];
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          const auto m = P::Greater(next.value[i], best.value[i]);
          best.value[i] = P::Choose(m, next.value[i], best.value[i]);
          if constexpr (kRoutes) best.tap[i] = P::ChooseTap(m, next.tap[i] + P::Tap(k * W::KW), best.tap[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        // Columns past the line's end may see no input at all.
        if (kLast || kVector || (i + 1) * P::kElements <= left) {
          lowest = P::Lower(lowest, best.value[i]);
        } else if (P::kElements == 2 && i * 2 < left) {
          lowest = P::Lower(lowest, P::FromBits(P::ToBits(best.value[i]) & 0xFFFFu));
        }
      }
      StoreOutputs(y, routes, best, left);
      if (y) y += p.y_row;
      if constexpr (kRoutes) routes += p.route_row;
#pragma unroll
      for (int kd = 0; kd < W::KD; ++kd) {
#pragma unroll
        for (int kh = 0; kh < kKept; ++kh) kept[kd][kh] = kept[kd][kh + W::SH];
      }
      ih += W::SH;
    }
    if (P::Exceptional(watched, lowest)) {
      for (int r = 0; r < rows; ++r) {
        SelectRun<T, int64_t>(p.g, p.x, p.y, kRoutes ? p.routes : nullptr, line + r * p.line_row, at, min(left, kOutputs));
      }
    }
  }
};

template <class T, class W, Mode kMode, int kPad, bool kRoutes>
__global__ void __launch_bounds__(kStripThreads, (Strip<T, W, kMode, kPad, kRoutes>::kTuning.blocks))
    StripKernel(const __grid_constant__ StripParams<T> p) {
  using S = Strip<T, W, kMode, kPad, kRoutes>;
  const uint32_t thread = blockIdx.x * kStripThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread, column, strip, od;
  uint32_t rest = p.across.take(&channel);
  column = rest, rest = p.columns.take(&column);
  strip = rest, rest = p.strips.take(&strip);
  od = rest, rest = p.depths.take(&od);
  const int64_t number = rest;  // of the plane, or of the sample
  const int c = kMode == Mode::kLast ? static_cast<int>(channel) * S::kOutputs : 0;
  const int ow = static_cast<int>(column) * (kMode == Mode::kLast ? 1 : S::kOutputs);
  S::Run(p, p.x + number * p.x_plane + c, number, static_cast<int>(od), static_cast<int>(strip) * p.rows, ow, c);
}

// A block holds whole planes of x in shared memory.
template <class T, class W, bool kRoutes>
__global__ void __launch_bounds__(kStripThreads) StagedStripKernel(const __grid_constant__ StripParams<T> p) {
  using S = Strip<T, W, Mode::kFirstStaged, 0, kRoutes>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.planes_per_block;
  const int planes = static_cast<int>(min(static_cast<int64_t>(p.planes_per_block), p.planes - first));
  const T* x = StageIn(p.x + first * p.x_plane, planes * static_cast<int>(p.x_plane), shared);
  const uint32_t strips = planes * p.columns.divisor * p.strips.divisor * p.depths.divisor;
  for (uint32_t i = threadIdx.x; i < strips; i += kStripThreads) {
    uint32_t column = i, strip, od;
    uint32_t rest = p.columns.take(&column);
    strip = rest, rest = p.strips.take(&strip);
    od = rest, rest = p.depths.take(&od);
    S::Run(p, x + rest * p.x_plane, first + rest, static_cast<int>(od), static_cast<int>(strip) * p.rows,
           static_cast<int>(column) * S::kOutputs, 0);
  }
}

}  // namespace poolgrad::cuda
