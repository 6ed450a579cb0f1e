// A row of inputs as a strip (strip.cuh) sees it: loaded from global or shared memory, picked apart into tap columns,
// reduced along the width, and the better of two rows. And what strips are told.
#pragma once

#include "cuda/common/geo.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"

namespace poolgrad::cuda {

struct StripParams {
  Geo<int64_t> g;  // for the exact path
  const void* x;
  void* y;  // null: only routes are wanted
  uint8_t* routes;
  uint32_t threads;  // strips in all
  FastDiv across, columns, strips,
      depths;  // channel vectors (1 when channels are first), column groups, strips, output depths
  int in[3], out[3];
  int channels, pad[3];
  int rows;                                   // outputs in a strip
  int64_t x_plane, x_depth, x_row, x_column;  // steps of the input; x_plane: a sample when channels are last
  int64_t y_row;                              // from an output row to the next
  int64_t line;                               // outputs of a route line
  int64_t route_row, line_bytes;
  int64_t line_row;  // route lines from an output row to the next
  // Staged modes. There a row is a line, also where channels are last.
  Pieces pieces;
  FastDiv by_line_bytes, by_vectors;  // the second: of a place's channels
  int place_bytes;                    // of a place's codes, where channels are last
};

template <class T, Form F>
struct StripRow {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr int KD = F.kernel[0], KH = F.kernel[1], KW = F.kernel[2], SD = F.stride[0], SH = F.stride[1],
                       SW = F.stride[2], DD = F.dilation[0], DH = F.dilation[1], DW = F.dilation[2];
  static constexpr int kPad = F.pad, kBits = F.bits, kSize = F.size;
  static constexpr bool kRoutes = F.routes;
  static constexpr bool kMaxima = F.relu && !F.routes;  // nothing depends on which zero won, nor on -inf
  static constexpr bool kShared = F.staged();
  static constexpr bool kFlat = F.mode == Mode::kLastStaged;  // a row's columns are its places' channels
  static constexpr bool kApart = F.apart();
  static constexpr bool kAll = kFlat && !F.ragged;  // every thread has all of its outputs
  static constexpr bool kVector = F.mode == Mode::kFirst;
  static constexpr bool kLast = F.last();
  static constexpr bool kWhole = F.whole();
  static constexpr SmallWindowTuning kTuning = ForwardTuning(F);
  static constexpr int kOutputs = F.outputs();  // of a thread in one row
  static constexpr int kPacks = (kOutputs + P::kElements - 1) / P::kElements;
  static constexpr int kExtent = F.extent(1), kExtentD = F.extent(0), kExtentW = F.extent(2);
  static constexpr int kDeep = F.deep, kTouched = F.touched();  // depths of a thread's outputs, and of their inputs
  static_assert(kDeep == 1 || DD == 1);
  static constexpr int kNew = SH;                                // input rows from an output row to the next
  static constexpr int kKept = kExtent > SH ? kExtent - SH : 0;  // reduced rows that the next one needs too
  static constexpr int kRowElements = SW * (kOutputs - 1) + F.extent(2);
  static constexpr int kMain = SW * kOutputs;  // elements of the aligned part of a row
  static constexpr int kRight = kRowElements - kPad - kMain > 0 ? kRowElements - kPad - kMain : 0;

  static constexpr int kAhead = kTuning.ahead;  // output rows whose inputs are asked for together
  static constexpr int kTapWords = kWhole || F.even ? kOutputs * kSize / 4 : kOutputs;  // channels last, of one place
  static constexpr bool kPairs = kShared && !kFlat && kSize == 2;  // a row comes as words of two neighbours
  // Registers of an input row as it is loaded.
  static constexpr int kRegisters = kLast || kFlat ? kTapWords * KW
                                    : kVector      ? kPad + kMain * kSize / 4 + kRight
                                    : kPairs       ? (kRowElements + 1) / 2
                                                   : kRowElements;

  // Rows of global memory are asked for ahead unless that takes too many registers: then each is reduced as it comes.
  static constexpr bool kAsks = !kShared && kTouched * kAhead * kNew * kRegisters <= 80;

  // Input rows, counted from a strip's first, that some output needs; and elements of a row that one of the thread's
  // outputs needs, the second 64 beginning with element 64.
  static constexpr uint64_t Rows() {
    uint64_t rows = 0;
    for (int row = 0; row < 64; ++row) {
      for (int k = 0; k < KH; ++k) rows |= uint64_t{row >= k * DH && (row - k * DH) % SH == 0} << row;
    }
    return rows;
  }
  static constexpr uint64_t Elements(int from) {
    uint64_t elements = 0;
    for (int j = 0; j < kOutputs; ++j) {
      for (int k = 0; k < KW; ++k) {
        const int at = j * SW + k * DW - from;
        if (at >= 0 && at < 64) elements |= uint64_t{1} << at;
      }
    }
    return elements;
  }
  static constexpr uint64_t kRows = Rows(), kElements = Elements(0), kElementsMore = Elements(64);
  static_assert(kKept + kAhead * kNew <= 64 && (kLast || kRowElements <= 128));
  __device__ static constexpr bool NeedsRow(int row) { return kRows >> row & 1; }
  __device__ static constexpr bool NeedsElement(int at) {
    return at < 64 ? kElements >> at & 1 : kElementsMore >> (at - 64) & 1;
  }

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
    Reg tap[KW][kPacks];
  };

  // row: where the thread's first column would be. Columns and rows outside the input are not read. `left`: the
  // thread's channels, when they are last.
  __device__ static Raw Load(const T* row, bool row_valid, int column, int width, int64_t step, int left) {
    Raw raw;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) raw.words[i] = P::ToBits(P::Fill());
    const auto inside = [&](int at) {
      return row_valid && static_cast<unsigned>(column + at) < static_cast<unsigned>(width);
    };
    if constexpr (kLast && kWhole) {
#pragma unroll
      for (int k = 0; k < KW; ++k) {
        LoadWordsIf<kTapWords * 4>(inside(k * DW), row + k * DW * step, raw.words + kTapWords * k);
      }
    } else if constexpr (kLast) {
#pragma unroll
      for (int k = 0; k < KW; ++k) {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          LoadWordsIf<kSize>(inside(k * DW) && i < left, row + k * DW * step + i, raw.words + kOutputs * k + i);
        }
      }
    } else if constexpr (kVector) {
      LoadWordsIf<kMain * kSize>(row_valid, row + kPad, raw.words + kPad);
#pragma unroll
      for (int i = 0; i < kPad; ++i) LoadWordsIf<kSize>(inside(i), row + i, raw.words + i);
#pragma unroll
      for (int i = 0; i < kRight; ++i) {
        constexpr int kFrom = kPad + kMain;
        LoadWordsIf<kSize>(inside(kFrom + i), row + kFrom + i, raw.words + kRegisters - kRight + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRowElements; ++i) {
        if (NeedsElement(i)) LoadWordsIf<kSize>(inside(i), row + i, raw.words + i);
      }
    }
    return raw;
  }

  // Which elements of a thread's rows lie inside the input: bits of words of two neighbours, or one flag for each.
  // Outputs beyond the line's end may read what follows it, and are not stored.
  struct Columns {
    uint32_t inside[kRegisters];
    uint32_t first, step;  // flat: where the first tap is in a row, and from one to the next
    __device__ Columns(const StripParams& p, int column, int channel) {
      const auto is = [&](int at) { return static_cast<unsigned>(at) < static_cast<unsigned>(p.in[2]); };
      if constexpr (kFlat) {
        step = static_cast<uint32_t>(p.channels * DW * kSize);
        first = static_cast<uint32_t>(column * p.channels + channel) * kSize;
#pragma unroll
        for (int k = 0; k < KW; ++k) inside[k] = is(column + k * DW);
      } else {
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) {
          inside[i] = kPairs ? (is(column + 2 * i) ? 0xFFFFu : 0u) | (is(column + 2 * i + 1) ? 0xFFFF0000u : 0u)
                             : uint32_t{is(column + i)};
        }
      }
    }
  };

  // The same from shared memory.
  __device__ static Raw LoadShared(uint32_t row, bool row_valid, const Columns& columns) {
    Raw raw;
    const uint32_t fill = P::ToBits(P::Fill());
    if constexpr (kPairs) {
      constexpr int kWords = kRowElements / 2 + 1;  // rows may begin with the second half of a word
      uint32_t words[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = fill;
        const bool needed = (i > 0 && NeedsElement(2 * i - 1)) || NeedsElement(2 * i) || NeedsElement(2 * i + 1);
        if (needed) LoadSharedIf<4>(row_valid, (row & ~3u) + 4 * i, words + i);
      }
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) {
        raw.words[i] = __funnelshift_r(words[i], words[i + 1 < kWords ? i + 1 : i], (row & 2) * 8);
        if (!F.inside) raw.words[i] = (raw.words[i] & columns.inside[i]) | (fill & ~columns.inside[i]);
      }
    } else if constexpr (kFlat) {
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) {
        constexpr int kBytes = F.even ? 4 : kSize;
        const bool valid = row_valid && (F.inside || columns.inside[i / kTapWords]);
        const uint32_t at = row + columns.first + i / kTapWords * columns.step + i % kTapWords * kBytes;
        if constexpr (F.even && kSize == 4) {
          if (i % 2) continue;
          raw.words[i] = raw.words[i + 1] = fill;
          LoadSharedIf<8>(valid, at, raw.words + i);
        } else {
          raw.words[i] = fill;
          LoadSharedIf<kBytes>(valid, at, raw.words + i);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) {
        raw.words[i] = fill;
        if (NeedsElement(i)) {
          LoadSharedIf<kSize>(row_valid && (F.inside || columns.inside[i]), row + i * kSize, raw.words + i);
        }
      }
    }
    return raw;
  }

  // Every tap column picked out of the row's registers.
  __device__ static Row Pick(const Raw& raw) {
    Row out;
    // Where element `at` of the row is: a register, and which half of it.
    const auto reg = [&](int at) {
      if (kPairs) return at / 2;
      if (!kVector || sizeof(T) == 4 || at < kPad) return at;
      return at - kPad < kMain ? kPad + (at - kPad) / 2 : kPad + kMain / 2 + (at - kPad - kMain);
    };
    const auto half = [&](int at) {
      if (kPairs) return at % 2;
      return kVector && sizeof(T) == 2 && at >= kPad && at - kPad < kMain ? (at - kPad) % 2 : 0;
    };
#pragma unroll
    for (int k = 0; k < KW; ++k) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if constexpr ((kLast || kFlat) && (kWhole || F.even || sizeof(T) == 4)) {
          out.tap[k][i] = P::FromBits(raw.words[kTapWords * k + i]);
        } else if constexpr (kLast || kFlat) {
          const int first = kTapWords * k + 2 * i;  // of an odd number the last stands alone
          out.tap[k][i] =
              2 * i + 1 < kOutputs ? __byte_perm(raw.words[first], raw.words[first + 1], 0x5410) : raw.words[first];
        } else if constexpr (sizeof(T) == 4) {
          out.tap[k][i] = P::FromBits(raw.words[reg(SW * i + k * DW)]);
        } else {
          const int a = SW * 2 * i + k * DW, b = a + SW;
          const bool as_loaded = reg(a) == reg(b) && half(a) == 0 && half(b) == 1;
          out.tap[k][i] = as_loaded ? raw.words[reg(a)]
                                    : __byte_perm(raw.words[reg(a)], raw.words[reg(b)],
                                                  (half(a) ? 0x32u : 0x10u) | (half(b) ? 0x7600u : 0x5400u));
        }
      }
    }
    return out;
  }

  // A maximum and where it was found.
  struct Best {
    Reg value;
    uint32_t at;
    // What lies behind it wins if it is greater, what lies before it unless it is less.
    __device__ void Behind(Reg v, uint32_t place) {
      if constexpr (kMaxima) {
        value = P::Max(v, value);
      } else {
        const auto m = P::Greater(v, value);
        value = P::Choose(m, v, value);
        if constexpr (kRoutes) at = P::ChooseTap(m, place, at);
      }
    }
    __device__ void Before(Reg v, uint32_t place) {
      Best earlier = {v, place};
      earlier.Behind(value, at);
      *this = earlier;
    }
  };

  // Windows of neighbouring packs share their middle, from the last one's first tap to the first one's last: it is
  // compared once, then maxima grow to the left and to the right, if those are fewer comparisons.
  static constexpr int kStep = SW * P::kElements;  // taps from a pack's window to the next one's
  static constexpr int kMiddle = KW - kStep * (kPacks - 1);
  static constexpr bool kShares = !kLast && !kFlat && DW == 1 && kPacks > 1 && kMiddle > 0 &&
                                  kMiddle - 1 + 2 * kStep*(kPacks - 1) - 1 + kPacks - 1 < kPacks*(KW - 1);

  __device__ static Reduced Reduce(const Row& row) {
    Reduced out;
    if constexpr (kShares) {
      const auto value = [&](int at) {
        return at < KW ? row.tap[at][0] : row.tap[KW - kStep + (at - KW) % kStep][(at - KW) / kStep + 1];
      };
      constexpr int kFirst = kStep * (kPacks - 1);
      Best left[kPacks];
      left[kPacks - 1] = {value(kFirst), P::Tap(kFirst)};
#pragma unroll
      for (int at = kFirst + 1; at < KW; ++at) left[kPacks - 1].Behind(value(at), P::Tap(at));
#pragma unroll
      for (int i = kPacks - 2; i >= 0; --i) {
        left[i] = left[i + 1];
#pragma unroll
        for (int at = kStep * (i + 1) - 1; at >= kStep * i; --at) left[i].Before(value(at), P::Tap(at));
      }
      Best right = {value(KW), P::Tap(KW)};
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (i > 0) {
#pragma unroll
          for (int at = KW + kStep * (i - 1); at < KW + kStep * i; ++at) {
            if (at > KW) right.Behind(value(at), P::Tap(at));
          }
          left[i].Behind(right.value, right.at);
        }
        out.value[i] = left[i].value;
        if constexpr (kRoutes) out.tap[i] = left[i].at - P::Tap(kStep * i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        Best best = {row.tap[0][i], 0};
#pragma unroll
        for (int k = 1; k < KW; ++k) best.Behind(row.tap[k][i], P::Tap(k));
        out.value[i] = best.value;
        if constexpr (kRoutes) out.tap[i] = best.at;
      }
    }
    return out;
  }

  // The better of two, the other one's taps being `taps` later.
  __device__ static void Follow(Reduced* best, const Reduced& other, int taps) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      Best both = {best->value[i], best->tap[i]};
      both.Behind(other.value[i], kRoutes ? other.tap[i] + P::Tap(taps) : 0);
      best->value[i] = both.value, best->tap[i] = both.at;
    }
  }
};

}  // namespace poolgrad::cuda
