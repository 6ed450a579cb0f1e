// Forward, with or without routes, for one form of a small window: a thread owns a strip, the same columns of several
// output rows one below the other, and keeps the reduced rows that the next output row needs again.
//
// Each input row is first reduced along the width (which tap column won), then the rows along height and depth in
// row-major order, the earlier keeping a tie: exactly "first in row-major order". Values outside the input are -inf and
// lose to anything but -inf; a strip that saw a NaN, or that ends with an output of -inf, is done again by the exact
// rules.
#pragma once

#include "cuda/common/exact.cuh"
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
struct Strip {
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

  // To shared memory; y: whether values are wanted.
  __device__ static void StoreShared(bool y, uint32_t to, uint32_t routes, const Reduced& best, int left) {
    if constexpr (F.even) {
#pragma unroll
      for (int i = 0; i < kOutputs; i += 2) {
        const uint32_t bits = P::ToBits(best.value[i / P::kElements]);
        if constexpr (kSize == 2) {
          StoreSharedIf<4>(y && (!F.ragged || i < left), to + i * kSize, bits);
        } else {
          StoreSharedPairIf(y && (!F.ragged || i < left), to + i * kSize, bits, P::ToBits(best.value[i + 1]));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        const uint32_t bits = P::ToBits(best.value[i / P::kElements]);
        StoreSharedIf<kSize>(y && (kAll || i < left), to + i * kSize, P::kElements == 2 && i % 2 ? bits >> 16 : bits);
      }
    }
    if constexpr (kRoutes) {
      if constexpr (kBits < 8 && !kApart) {
        auto codes = [] {
          if constexpr (kOutputs * kBits > 32) {
            return uint64_t{0};
          } else {
            return uint32_t{0};
          }
        }();
        using Codes = decltype(codes);
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          codes |= static_cast<Codes>(P::template Codes<kBits>(best.tap[i])) << (i * P::kElements * kBits);
        }
        constexpr int kPerByte = 8 / kBits;
        const int count = kAll ? kOutputs : min(left, kOutputs);
        codes &= static_cast<Codes>((uint64_t{1} << (count * kBits)) - 1u);
#pragma unroll
        for (int i = 0; i < kOutputs; i += kPerByte)
          StoreSharedIf<1>(kAll || i < left, routes + i / kPerByte, static_cast<uint32_t>(codes >> (8 * i / kPerByte)));
      } else {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          const uint32_t code = best.tap[i / P::kElements] >> (i % P::kElements * 16);
          StoreSharedIf<1>(kAll || i < left, routes + i, code);
        }
      }
    }
  }

  __device__ static void StoreOutputs(T* y, uint8_t* routes, const Reduced& best, int left) {
    if (y) {
      if constexpr (kWhole) {
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
      constexpr int kCodeBits = kOutputs * kBits;
      uint32_t words[(kCodeBits + 31) / 32] = {};
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int shift = i * P::kElements * kBits;
        words[shift / 32] |= P::template Codes<kBits>(best.tap[i]) << (shift % 32);
      }
      if constexpr (kWhole) {
        StoreWords<kCodeBits / 8>(routes, words);
      } else if constexpr (kBits < 8) {
        static_assert(kCodeBits == 8);
        *routes = static_cast<uint8_t>(words[0] & ((1u << (min(left, kOutputs) * kBits)) - 1u));
      } else {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) {
          if (i < left) routes[i] = static_cast<uint8_t>(words[0] >> (8 * i));
        }
      }
    }
  }

  // The strip again, by the exact rules. shared_y, shared_routes: of its first output, staged.
  __device__ __noinline__ static void Exact(const StripParams& p, int64_t number, int od, int oh, int ow, int channel,
                                            int rows, int count, uint32_t shared_y, uint32_t shared_routes) {
    const T* plane = static_cast<const T*>(p.x) + number * p.x_plane + channel;
    int64_t line = (number * p.out[0] + od) * p.out[1] + oh;
    if (kLast) line = line * p.out[2] + ow;
    const int at = kLast ? channel : ow;
#pragma unroll 1
    for (int r = 0; r < rows; ++r, line += p.line_row) {
      const int64_t byte = line * p.line_bytes + at * kBits / 8, element = line * p.line + at;
      T* y = static_cast<T*>(p.y) + (p.y ? element : 0);
      uint8_t* routes = p.routes + (kRoutes ? byte : 0);
      if constexpr (kShared) {
        y = p.y ? static_cast<T*>(__cvta_shared_to_generic(shared_y + YStep(p) * r)) : nullptr;
        routes = static_cast<uint8_t*>(__cvta_shared_to_generic(shared_routes + RouteStep(p) * r));
      }
      uint32_t gathered = 0;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        constexpr bool kChannels = kLast || kFlat;  // which the outputs are
        const uint32_t code =
            SelectAlone(p.g, plane + (kChannels ? i : 0), od, oh + r, kChannels ? ow : ow + i, y ? y + i : nullptr);
        if constexpr (!kRoutes) continue;
        constexpr int kPerByte = kApart ? 1 : 8 / kBits;
        gathered |= code << (i % kPerByte * kBits);
        if (i % kPerByte == kPerByte - 1 || i == count - 1) {
          routes[i / kPerByte] = static_cast<uint8_t>(gathered);
          gathered = 0;
        }
      }
    }
  }

  // From a row of outputs to the next, in shared memory.
  __device__ static uint32_t YStep(const StripParams& p) {
    return F.cut ? static_cast<uint32_t>(p.pieces.pitch[2]) : static_cast<uint32_t>(p.y_row) * kSize;
  }
  __device__ static uint32_t RouteStep(const StripParams& p) {
    return static_cast<uint32_t>(F.cut ? p.pieces.pitch[1] : kApart ? p.y_row : p.route_row);
  }

  // plane: the first element of this thread's plane (or sample, at its channels). Staged: where row 0 of the window's
  // depths would be in shared memory, instead, and where the strip's first line of outputs is.
  struct Shared {
    uint32_t depth[kTouched];          // addresses in shared memory, here and below
    uint32_t y[kDeep], routes[kDeep];  // of each depth of outputs
    int end, depth_end;                // one past the last row and depth of outputs
    int depth_past;                    // one past the last depth of inputs that is there
  };
  __device__ static void Run(const StripParams& p, const T* plane, const Shared& staged, int64_t number, int od, int oh,
                             int ow, int channel) {
    const int column = ow * SW - (kVector ? kPad : p.pad[2]);
    const int depth = od * SD - p.pad[0];
    int ih = oh * SH - p.pad[1];
    // Route lines: places when channels are last, rows when they are first.
    T* y = nullptr;
    uint8_t* routes = nullptr;
    uint32_t shared_y[kDeep] = {}, shared_routes[kDeep] = {};
    if constexpr (kShared) {
      const int at = kFlat ? ow * p.channels + channel : ow;
      const int code = kFlat ? ow * p.place_bytes + channel * kBits / 8 : kApart ? ow : ow * kBits / 8;
#pragma unroll
      for (int a = 0; a < kDeep; ++a) {
        shared_y[a] = staged.y[a] + static_cast<uint32_t>(at) * kSize;
        shared_routes[a] = staged.routes[a] + static_cast<uint32_t>(code);
      }
    } else {
      int64_t line = (number * p.out[0] + od) * p.out[1] + oh;
      if (kLast) line = line * p.out[2] + ow;
      const int64_t at = kLast ? channel : ow;
      if (p.y) y = static_cast<T*>(p.y) + line * p.line + at;
      if (kRoutes) routes = p.routes + line * p.line_bytes + at * kBits / 8;
    }
    uint32_t first_y[kDeep], first_routes[kDeep];
#pragma unroll
    for (int a = 0; a < kDeep; ++a) first_y[a] = shared_y[a], first_routes[a] = shared_routes[a];
    const int depths = min(kDeep, (kShared ? staged.depth_end : p.out[0]) - od);  // of its outputs
    const int depth_past = kShared && kDeep > 1 ? staged.depth_past : p.in[0];
    const int left = kLast && kWhole ? kOutputs : kLast || kFlat ? p.channels - channel : static_cast<int>(p.line) - ow;
    const int rows = min(p.rows, (kShared ? staged.end : p.out[1]) - oh);

    uint32_t live[kPacks];  // the bits of outputs past the line's end, which may see no input at all, are 0
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      live[i] = P::kElements == 1 ? (i < left ? ~0u : 0u)
                                  : (2 * i < left ? 0xFFFFu : 0u) | (2 * i + 1 < left ? 0xFFFF0000u : 0u);
      if constexpr (kShared) live[i] = Kept(live[i]);
    }
    Reg watched = P::FromBits(0);
    Reg lowest = P::FromBits(0);
    const int64_t first_column = kLast ? column * p.x_column : column;
    const T* next = kShared ? nullptr : plane + depth * p.x_depth + ih * p.x_row + first_column;  // row ih, first depth
    const uint32_t row_bytes = static_cast<uint32_t>(F.cut ? p.pieces.pitch[0] : p.x_row * kSize);
    uint32_t next_row = static_cast<uint32_t>(ih) * row_bytes + (kFlat ? 0u : static_cast<uint32_t>(column) * kSize);
    const Columns columns(p, column, channel);
    const auto load = [&](int kd, bool wanted) {
      // A window of one depth always lies inside; of several outputs some may not be there.
      const bool there = kTouched == 1 || (F.inside && kDeep == 1) ||
                         static_cast<unsigned>(depth + kd * DD) < static_cast<unsigned>(depth_past);
      const bool valid = wanted && there && (F.inside || static_cast<unsigned>(ih) < static_cast<unsigned>(p.in[1]));
      if constexpr (kShared) {
        return LoadShared(staged.depth[kd] + next_row, valid, columns);
      } else {
        return Load(next + (kTouched == 1 ? 0 : kd * DD * p.x_depth), valid, column, p.in[2], p.x_column, left);
      }
    };
    const auto advance = [&] {
      if constexpr (kShared) {
        next_row += row_bytes;
      } else {
        next += p.x_row;
      }
      ++ih;
    };
    const auto reduce = [&](const Raw& raw) {
      const Row row = Pick(raw);
      if constexpr (kFlat && F.ragged) {  // channels beyond the last may be anything
#pragma unroll
        for (int i = 0; i < KW * kPacks; ++i) {
          const uint32_t there = P::ToBits(row.tap[i / kPacks][i % kPacks]) & live[i % kPacks];
          watched = P::Watch(watched, P::FromBits(there));
        }
      } else if constexpr (kRegisters <= KW * kPacks) {  // whichever are fewer
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) watched = P::Watch(watched, P::FromBits(raw.words[i]));
      } else {
#pragma unroll
        for (int i = 0; i < KW * kPacks; ++i) watched = P::Watch(watched, row.tap[i / kPacks][i % kPacks]);
      }
      return Reduce(row);
    };
    Raw raw[kAsks ? kTouched : 1][kAsks ? kAhead * kNew : 1];
    const auto ask = [&](int left_rows) {  // the inputs of the next kAhead output rows
#pragma unroll
      for (int i = 0; i < kAhead * kNew; ++i) {
#pragma unroll
        for (int kd = 0; kd < kTouched; ++kd) {
          if (NeedsRow(kKept + i)) raw[kd][i] = load(kd, i / kNew < left_rows);
        }
        advance();
      }
    };
    Reduced reduced[kTouched][kKept + kAhead * kNew];
    {
      Raw first[kTouched][kKept > 0 ? kKept : 1];
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
#pragma unroll
        for (int kd = 0; kd < kTouched; ++kd) {
          if (NeedsRow(i)) first[kd][i] = load(kd, true);
        }
        advance();
      }
      if constexpr (kAsks) ask(rows);
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
#pragma unroll
        for (int kd = 0; kd < kTouched; ++kd) {
          if (NeedsRow(i)) reduced[kd][i] = reduce(first[kd][i]);
        }
      }
    }
#pragma unroll 1
    for (int r = 0; r < rows; r += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead * kNew; ++i) {
#pragma unroll
        for (int kd = 0; kd < kTouched; ++kd) {
          if (!NeedsRow(kKept + i)) continue;
          if constexpr (kAsks) {
            reduced[kd][kKept + i] = reduce(raw[kd][i]);
          } else {
            reduced[kd][kKept + i] = reduce(load(kd, r + i / kNew < rows));
          }
        }
        if constexpr (!kAsks) advance();
      }
      if constexpr (kAsks) ask(rows - r - kAhead);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (kAhead > 1 && r + u >= rows) break;
        // The order of taps. Where several outputs share depths, the rows of each are compared once.
        const auto row = [&](int k) -> const Reduced& { return reduced[k / KH][u * kNew + k % KH * DH]; };
        Reduced of_depth[kTouched];
#pragma unroll
        for (int d = 0; d < (kDeep > 1 ? kTouched : 0); ++d) {
          of_depth[d] = row(d * KH);
#pragma unroll
          for (int k = 1; k < KH; ++k) Follow(&of_depth[d], row(d * KH + k), k * KW);
        }
#pragma unroll
        for (int at = 0; at < kDeep; ++at) {
          if (kDeep > 1 && at >= depths) break;
          Reduced best = kDeep > 1 ? of_depth[at * SD] : row(0);
#pragma unroll
          for (int k = 1; k < (kDeep > 1 ? KD : KD * KH); ++k) {
            Follow(&best, kDeep > 1 ? of_depth[at * SD + k] : row(k), k * (kDeep > 1 ? KH * KW : KW));
          }
#pragma unroll
          for (int i = 0; i < (F.relu ? 0 : kPacks); ++i) {
            lowest = P::Lower(lowest, kWhole ? best.value[i] : P::FromBits(P::ToBits(best.value[i]) & live[i]));
          }
          if constexpr (F.relu) Rectify(&best, p.g.none);
          if constexpr (kShared) {
            StoreShared(!kRoutes || p.y, shared_y[at], shared_routes[at], best, left);
            shared_y[at] += YStep(p), shared_routes[at] += RouteStep(p);
          } else {
            const int64_t lines = at * p.out[1];
            StoreOutputs(y ? y + lines * p.y_row : y, kRoutes ? routes + lines * p.route_row : routes, best, left);
          }
        }
        if constexpr (!kShared) {
          if (y) y += p.y_row;
          if constexpr (kRoutes) routes += p.route_row;
        }
      }
#pragma unroll
      for (int kd = 0; kd < kTouched; ++kd) {
#pragma unroll
        for (int i = 0; i < kKept; ++i) reduced[kd][i] = reduced[kd][i + kAhead * kNew];
      }
    }
    if (P::Exceptional(watched, lowest)) {
#pragma unroll
      for (int at = 0; at < kDeep; ++at) {
        if (at >= depths) break;
        Exact(p, number, od + at, oh, ow, channel, rows, min(left, kOutputs), first_y[at], first_routes[at]);
      }
    }
  }

  // relu: what is not above 0 becomes +0 without a route (a NaN is left to the exact path).
  __device__ static void Rectify(Reduced* best, uint32_t none) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const auto m = P::Greater(best->value[i], P::Zero());
      best->value[i] = P::Choose(m, best->value[i], P::Zero());
      if constexpr (kRoutes) best->tap[i] = P::ChooseTap(m, best->tap[i], P::Tap(none));
    }
  }
};

}  // namespace poolgrad::cuda
