// Forward, with or without routes, for the windows of windows.cuh: a thread owns a strip, the same columns of several
// output rows one below the other, and keeps the reduced rows that the next output row needs again.
//
// Each input row is first reduced along the width (which tap column won), then the rows along height and depth in
// row-major order, the earlier keeping a tie: exactly "first in row-major order". Values outside the input are -inf and
// lose to anything but -inf; a strip that saw a NaN, or that ends with an output of -inf, is done again by the exact
// rules.
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
  uint32_t threads;  // strips in all
  FastDiv across, columns, strips,
      depths;  // channel vectors (1 when channels are first), column groups, strips, output depths
  int in[3], out[3];
  int stride_d, pad[3];
  int rows;                                   // outputs in a strip
  int64_t x_plane, x_depth, x_row, x_column;  // steps of the input; x_plane: a sample when channels are last
  int64_t y_row;                              // from an output row to the next
  int64_t route_row, line_bytes;
  int64_t line_row;  // route lines from an output row to the next
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
  static constexpr SmallWindowTuning kTuning = ForwardTuning(Describe<T, W, kMode>(), kRoutes);
  static constexpr bool kLast = kMode == Mode::kLast;
  // Outputs of a thread in one row: elements of a 16-byte vector, or neighbours along the width.
  static constexpr int kOutputs = kMode == Mode::kLast ? 16 / sizeof(T) : kVector ? 4 : W::kBits == 2 ? 4 : 2;
  static constexpr int kPacks = kOutputs / P::kElements;
  static constexpr int kKept = W::KH > W::SH ? W::KH - W::SH : 0;  // reduced rows that serve the next output row too
  static constexpr int kRowElements = W::SW * (kOutputs - 1) + W::KW;
  static constexpr int kMain = W::SW * kOutputs;  // elements of the aligned part of a row
  static constexpr int kRight = kRowElements - kPad - kMain > 0 ? kRowElements - kPad - kMain : 0;

  static constexpr int kNew = W::KH - kKept;    // input rows that an output row adds
  static constexpr int kAhead = kTuning.ahead;  // output rows whose inputs are asked for together
  static constexpr int kRegisters = kLast ? 4 * W::KW : kVector ? kPad + kMain * sizeof(T) / 4 + kRight : kRowElements;

  struct Reduced {
    Reg value[kPacks];
    uint32_t tap[kPacks];
  };

  // An input row as it was loaded, -inf where it lies outside.
  struct Raw {
    uint32_t words[kRegisters];
  };

  // One input row's values, tap column by tap column.
  struct Row {
    Reg tap[W::KW][kPacks];
  };

  // row: where the thread's first column would be. Columns and rows outside the input are not read.
  __device__ static Raw Load(const T* row, bool row_valid, int column, int width, int64_t step) {
    Raw raw;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) raw.words[i] = P::ToBits(P::Fill());
    const auto inside = [&](int at) {
      return row_valid && static_cast<unsigned>(column + at) < static_cast<unsigned>(width);
    };
    constexpr int kSize = sizeof(T);
    if constexpr (kLast) {
#pragma unroll
      for (int k = 0; k < W::KW; ++k) LoadWordsIf<false, 16>(inside(k), row + k * step, raw.words + 4 * k);
    } else if constexpr (kVector) {
      LoadWordsIf<false, kMain * kSize>(row_valid, row + kPad, raw.words + kPad);
#pragma unroll
      for (int i = 0; i < kPad; ++i) LoadWordsIf<false, kSize>(inside(i), row + i, raw.words + i);
#pragma unroll
      for (int i = 0; i < kRight; ++i) {
        constexpr int kFrom = kPad + kMain;
        LoadWordsIf<false, kSize>(inside(kFrom + i), row + kFrom + i, raw.words + kRegisters - kRight + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) LoadWordsIf<kShared, kSize>(inside(i), row + i, raw.words + i);
    }
    return raw;
  }

  // Channels first: every tap column picked out of the row's registers.
  __device__ static Row Pick(const Raw& raw) {
    Row out;
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
        if constexpr (kLast) {
          out.tap[k][i] = P::FromBits(raw.words[4 * k + i]);
        } else if constexpr (sizeof(T) == 4) {
          out.tap[k][i] = P::FromBits(raw.words[reg(W::SW * i + k)]);
        } else {
          const int a = W::SW * 2 * i + k, b = a + W::SW;
          out.tap[k][i] = __byte_perm(raw.words[reg(a)], raw.words[reg(b)],
                                      (half(a) ? 0x32u : 0x10u) | (half(b) ? 0x7600u : 0x5400u));
        }
      }
    }
    return out;
  }

  __device__ static Reduced Reduce(const Row& row) {
    Reduced out;
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
      out.value[i] = best;
      if constexpr (kRoutes) out.tap[i] = tap;
    }
    return out;
  }

  __device__ static void StoreOutputs(T* y, uint8_t* routes, const Reduced& best, int left) {
    if (y) {
      if constexpr (kMode == Mode::kLast || kVector) {
        uint32_t words[kPacks];
#pragma unroll
        for (int i = 0; i < kPacks; ++i) words[i] = P::ToBits(best.value[i]);
        StoreWords<kOutputs* static_cast<int>(sizeof(T))>(y, words);
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

  // The strip again, by the exact rules.
  __device__ __noinline__ static void Exact(const StripParams<T>& p, int64_t number, int od, int oh, int ow,
                                            int channel, int rows, int count) {
    const T* plane = p.x + number * p.x_plane + channel;
    int64_t line = (number * p.out[0] + od) * p.out[1] + oh;
    if (kLast) line = line * p.out[2] + ow;
    const int at = kLast ? channel : ow;
#pragma unroll 1
    for (int r = 0; r < rows; ++r, line += p.line_row) {
      uint8_t* routes = kRoutes ? p.routes + line * p.line_bytes + at * W::kBits / 8 : nullptr;
      uint32_t gathered = 0;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        T* y = p.y ? p.y + line * p.g.line + at + i : nullptr;
        const uint32_t code = SelectAlone(p.g, plane + (kLast ? i : 0), od, oh + r, kLast ? ow : ow + i, y);
        if constexpr (!kRoutes) continue;
        constexpr int kPerByte = 8 / W::kBits;
        gathered |= code << (i % kPerByte * W::kBits);
        if (i % kPerByte == kPerByte - 1 || i == count - 1) {
          routes[i / kPerByte] = static_cast<uint8_t>(gathered);
          gathered = 0;
        }
      }
    }
  }

  // plane: the first element of this thread's plane (or sample, at its channels), in global or shared memory.
  __device__ static void Run(const StripParams<T>& p, const T* plane, int64_t number, int od, int oh, int ow,
                             int channel) {
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
    const T* next =
        plane + depth * p.x_depth + ih * p.x_row + (kLast ? column * p.x_column : column);  // row ih, first depth
    const auto load = [&](int kd, const T* row, bool wanted) {
      // A window of one depth always lies inside.
      const bool valid = wanted && static_cast<unsigned>(ih) < static_cast<unsigned>(p.in[1]) &&
                         (W::KD == 1 || static_cast<unsigned>(depth + kd) < static_cast<unsigned>(p.in[0]));
      return Load(row + (W::KD == 1 ? 0 : kd * p.x_depth), valid, column, p.in[2], p.x_column);
    };
    const auto reduce = [&](const Raw& raw) {
      const Row row = Pick(raw);
      if constexpr (kRegisters <= W::KW * kPacks) {  // whichever are fewer
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) watched = P::Watch(watched, P::FromBits(raw.words[i]));
      } else {
#pragma unroll
        for (int i = 0; i < W::KW * kPacks; ++i) watched = P::Watch(watched, row.tap[i / kPacks][i % kPacks]);
      }
      return Reduce(row);
    };
    Raw raw[W::KD][kAhead * kNew];
    const auto ask = [&](int left_rows) {  // the inputs of the next kAhead output rows
#pragma unroll
      for (int i = 0; i < kAhead * kNew; ++i) {
#pragma unroll
        for (int kd = 0; kd < W::KD; ++kd) raw[kd][i] = load(kd, next, i / kNew < left_rows);
        next += p.x_row, ++ih;
      }
    };
    Reduced reduced[W::KD][kKept + kAhead * kNew];
    {
      Raw first[W::KD][kKept > 0 ? kKept : 1];
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
#pragma unroll
        for (int kd = 0; kd < W::KD; ++kd) first[kd][i] = load(kd, next, true);
        next += p.x_row, ++ih;
      }
      ask(rows);
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
#pragma unroll
        for (int kd = 0; kd < W::KD; ++kd) reduced[kd][i] = reduce(first[kd][i]);
      }
    }
#pragma unroll 1
    for (int r = 0; r < rows; r += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead * kNew; ++i) {
#pragma unroll
        for (int kd = 0; kd < W::KD; ++kd) reduced[kd][kKept + i] = reduce(raw[kd][i]);
      }
      ask(rows - r - kAhead);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (kAhead > 1 && r + u >= rows) break;
        Reduced best = reduced[0][u * kNew];
#pragma unroll
        for (int k = 1; k < W::KD * W::KH; ++k) {
          const Reduced& other = reduced[k / W::KH][u * kNew + k % W::KH];
#pragma unroll
          for (int i = 0; i < kPacks; ++i) {
            const auto m = P::Greater(other.value[i], best.value[i]);
            best.value[i] = P::Choose(m, other.value[i], best.value[i]);
            if constexpr (kRoutes) best.tap[i] = P::ChooseTap(m, other.tap[i] + P::Tap(k * W::KW), best.tap[i]);
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
      }
#pragma unroll
      for (int kd = 0; kd < W::KD; ++kd) {
#pragma unroll
        for (int i = 0; i < kKept; ++i) reduced[kd][i] = reduced[kd][i + kAhead * kNew];
      }
    }
    if (P::Exceptional(watched, lowest)) Exact(p, number, od, oh, ow, channel, rows, min(left, kOutputs));
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
__global__ void __launch_bounds__(kStripThreads, (Strip<T, W, Mode::kFirstStaged, 0, kRoutes>::kTuning.blocks))
    StagedStripKernel(const __grid_constant__ StripParams<T> p) {
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
