// Forward, with or without routes, for one form of a small window: a thread owns a strip, the same columns of several
// output rows one below the other, and keeps the reduced rows that the next output row needs again.
//
// Each input row is first reduced along the width (which tap column won), then the rows along height and depth in
// row-major order, the earlier keeping a tie: exactly "first in row-major order". Values outside the input are -inf and
// lose to anything but -inf; a strip that saw a NaN, or that ends with an output of -inf, is done again by the exact
// rules.
#pragma once

#include "cuda/common/exact.cuh"
#include "cuda/small/strip_row.cuh"

namespace poolgrad::cuda {

template <class T, Form F>
struct Strip : StripRow<T, F> {
  using R = StripRow<T, F>;
  using P = typename R::P;
  using Reg = typename R::Reg;
  using R::DD, R::DH, R::KD, R::KH, R::KW, R::SD, R::SH, R::SW, R::kAhead, R::kAll, R::kApart, R::kAsks, R::kBits,
      R::kDeep, R::kFlat, R::kKept, R::kLast, R::kNew, R::kOutputs, R::kPacks, R::kPad, R::kRegisters, R::kRoutes,
      R::kShared, R::kSize, R::kTouched, R::kVector, R::kWhole, R::Follow, R::Load, R::LoadShared, R::NeedsRow, R::Pick,
      R::Reduce;
  using typename R::Columns;
  using typename R::Raw;
  using typename R::Reduced;
  using typename R::Row;

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
          if constexpr (F.relu) Rectify<P, kRoutes>(best.value, best.tap, p.g.none);
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
};

}  // namespace poolgrad::cuda
