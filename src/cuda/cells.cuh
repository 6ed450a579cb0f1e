// Backward from routes for the windows of windows.cuh: a gather without atomics.
//
// Input i is tap r + t*stride of output q - t, where q = (i + pad) / stride and r is the remainder, for every t with a tap there:
// all inputs of one cell (the same q on every axis) are covered by the same few outputs. A thread owns a strip of cells one below
// the other, loads each output's dy and code once, and adds them in row-major order of outputs, from +0: the order that defines
// dx's bits. An output outside the problem counts as dy = 0, which adds nothing.
#pragma once

#include "cuda/packs.cuh"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"
#include "cuda/windows.cuh"

namespace poolgrad::cuda {

template <class T>
struct CellParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  uint32_t threads;
  FastDiv across, columns, strips, depths;  // channel vectors, column groups, strips of cells, cells along depth
  int in[3], out[3], pad[3];
  int first[3];  // the first cell of each axis
  int cells_h;   // one past the last cell along height
  int rows;      // cells in a strip
  int64_t x_plane, x_depth, x_row, x_column;
  int64_t y_plane, y_depth, y_row, y_column;
  int64_t route_plane, route_depth, route_row, line_bytes;
  // staged mode
  int planes_per_block;
  int64_t planes;
};

// The two values of a pair of halves, or the one of a float.
template <class T>
__device__ void WidenWord(uint32_t word, float* out) {
  if constexpr (std::is_same_v<T, float>) {
    out[0] = __uint_as_float(word);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xFFFF0000u);
  } else {
    const float2 two = __half22float2(PackOfTwo<HalfOps>::AsTwo(word));
    out[0] = two.x, out[1] = two.y;
  }
}

template <class T>
__device__ uint32_t NarrowWord(const float* in) {
  if constexpr (std::is_same_v<T, float>) {
    return __float_as_uint(in[0]);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return PackOfTwo<BfloatOps>::AsReg(__floats2bfloat162_rn(in[0], in[1]));
  } else {
    return PackOfTwo<HalfOps>::AsReg(__floats2half2_rn(in[0], in[1]));
  }
}

template <class T, class W, Mode kMode, int kPad, int kLastVector>
struct Cells {
  static constexpr SmallWindowTuning kTuning = BackwardTuning(Describe<T, W, kMode>());
  static constexpr bool kSplit = kTuning.split;
  static constexpr bool kLast = kMode == Mode::kLast;
  static constexpr bool kVector = kMode == Mode::kFirst;
  static constexpr bool kShared = kMode == Mode::kFirstStaged;
  // Windows over a cell, per axis.
  static constexpr int TD = (W::KD + W::SD - 1) / W::SD, TH = (W::KH + W::SH - 1) / W::SH, TW = (W::KW + W::SW - 1) / W::SW;
  static constexpr int kChannels = kLast ? kLastVector : 1;                              // elements at one place
  // Cells along the width. Aligned rows: as many as make 16 bytes of dx, so that the stores of a warp leave no gaps.
  static constexpr int kAligned = 16 / (W::SW * static_cast<int>(sizeof(T)));
  static constexpr int kGroup = kLast ? 1 : kVector ? (kAligned > 4 ? 4 : kAligned) : W::kBits == 2 ? 4 : 2;
  static constexpr int kPhase = kVector ? kPad : 0;  // aligned rows start inside a cell; the others at the start of one
  // Inputs along the width. Split: one, each of a cell's columns having a thread of its own.
  static constexpr int kColumns = kSplit ? 1 : W::SW * kGroup;
  static constexpr int kPerWord = 4 / sizeof(T);
  static constexpr int kMask = (1 << W::kBits) - 1;

  // The outputs over the columns, from kLow to kHigh, relative to the thread's first cell.
  static constexpr int Low() {
    int low = 0;
    for (int j = 0; j < kColumns; ++j) {
      for (int t = 0; (j + kPhase) % W::SW + t * W::SW < W::KW; ++t) {
        const int o = (j + kPhase) / W::SW - t;
        if (o < low) low = o;
      }
    }
    return low;
  }
  static_assert(!kSplit || TW == 1);
  static constexpr int kLow = Low();
  static constexpr int kHigh = (kColumns - 1 + kPhase) / W::SW;
  static constexpr int kOver = kHigh - kLow + 1;
  static constexpr int kCodeWords = kLast ? (kChannels * W::kBits + 31) / 32 : 1;

  // Where to load place `at` from: clamped loads are made even when it lies outside.
  __device__ static int Place(int at, int size) { return kTuning.clamped ? Inside(at, size) : at; }

  // dy and codes of one output row (at one depth) over the thread's columns.
  struct Outputs {
    float dy[kOver][kChannels];
    uint32_t code[kOver][kCodeWords];

    // Whether output `o` (from kLow) chose `tap` for channel c.
    __device__ bool Chose(int o, int c, int tap) const {
      const int shift = kLast ? c * W::kBits : 0;
      const uint32_t word = code[o][shift / 32];
      return ((word ^ static_cast<uint32_t>(tap) << (shift % 32)) & static_cast<uint32_t>(kMask) << (shift % 32)) == 0;
    }
  };

  __device__ static void LoadOutputs(const CellParams<T>& p, const T* dy, const uint8_t* routes, bool row_valid, int column,
                                     Outputs* out) {
    if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        const int ow = column + kLow + o;
        const bool valid = row_valid && static_cast<unsigned>(ow) < static_cast<unsigned>(p.out[2]);
        constexpr int kWords = kChannels / kPerWord;
        uint32_t words[kWords];
        uint32_t codes[kCodeWords];
        if (kTuning.clamped || valid) {
          const int64_t from = Place(ow, p.out[2]);
          LoadWords<false, kWords * 4>(dy + from * p.y_column, words);
          LoadWords<false, kChannels * W::kBits / 8>(routes + from * p.line_bytes, codes);
        }
#pragma unroll
        for (int i = 0; i < kWords; ++i) WidenWord<T>(valid ? words[i] : 0u, &out->dy[o][i * kPerWord]);
#pragma unroll
        for (int i = 0; i < kCodeWords; ++i) out->code[o][i] = kTuning.clamped || valid ? codes[i] : 0u;
      }
    } else {
      const auto single = [&](int o) {  // o relative to kLow
        const int ow = column + kLow + o;
        const bool valid = row_valid && static_cast<unsigned>(ow) < static_cast<unsigned>(p.out[2]);
        const int from = Place(ow, p.out[2]);
        const uint32_t bits = kTuning.clamped || valid ? LoadElement<T, false>(dy + from) : 0u;
        const uint32_t byte = kTuning.clamped || valid ? __ldg(routes + from * W::kBits / 8) : 0u;
        float wide[kPerWord];
        WidenWord<T>(valid ? bits : 0u, wide);
        out->dy[o][0] = wide[0];
        out->code[o][0] = W::kBits == 8 ? byte : byte >> (from * W::kBits & 7);
      };
      if constexpr (kVector) {  // [0, kGroup) in whole words, the others one by one
        constexpr int kWords = kGroup / kPerWord;
        constexpr int kCodeBytes = kGroup * W::kBits / 8 > 0 ? kGroup * W::kBits / 8 : 1;
        uint32_t words[kWords];
        uint32_t codes[1];
        if (kTuning.clamped || row_valid) {
          LoadWords<false, kWords * 4>(dy + column, words);
          LoadWords<false, kCodeBytes>(routes + column * W::kBits / 8, codes);
        } else {
          codes[0] = 0;
        }
        if constexpr (kGroup * W::kBits < 8) codes[0] >>= column * W::kBits & 7;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          float wide[kPerWord];
          WidenWord<T>(row_valid ? words[i] : 0u, wide);
#pragma unroll
          for (int j = 0; j < kPerWord; ++j) out->dy[i * kPerWord + j - kLow][0] = wide[j];
        }
#pragma unroll
        for (int o = 0; o < kGroup; ++o) out->code[o - kLow][0] = codes[0] >> (o * W::kBits);
#pragma unroll
        for (int o = 0; o < kOver; ++o) {
          if (o + kLow < 0 || o + kLow >= kGroup) single(o);
        }
      } else {
#pragma unroll
        for (int o = 0; o < kOver; ++o) single(o);
      }
    }
  }

  __device__ static void StoreRow(const CellParams<T>& p, T* row, int column, const float (*sum)[kChannels]) {
    if constexpr (kLast) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
        uint32_t words[kChannels / kPerWord];
#pragma unroll
        for (int i = 0; i < kChannels / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[j][i * kPerWord]);
        StoreResult<kTuning.streamed, kChannels * static_cast<int>(sizeof(T))>(row + (column + j) * p.x_column, words);
      }
    } else {
      uint32_t words[kColumns / kPerWord];
#pragma unroll
      for (int i = 0; i < kColumns / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[i * kPerWord][0]);
      if constexpr (kVector) {
        StoreResult<kTuning.streamed, kColumns * static_cast<int>(sizeof(T))>(row + column, words);
      } else {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
          StoreElement(row + column + j, kPerWord == 2 && j % 2 ? words[j / kPerWord] >> 16 : words[j / kPerWord]);
        }
      }
    }
  }

  // dy, routes: of this thread's plane (at its channels); dx: the same, in global or shared memory.
  __device__ static void Run(const CellParams<T>& p, const T* dy, const uint8_t* routes, T* dx, int qd, int qh, int qw) {
    int column = kVector ? qw * W::SW : qw * W::SW - p.pad[2];  // the first input column
    int phase = 0;
    if constexpr (kSplit) {  // qw is the input column
      column = qw;
      phase = (column + p.pad[2]) % W::SW;
      qw = (column + p.pad[2]) / W::SW;
    }
    Outputs over[TD][TH];  // over[a][b]: depth qd - (TD-1) + a, row qh - (TH-1) + b
    const auto load = [&](int a, int b) {
      const int od = qd - (TD - 1) + a, oh = qh - (TH - 1) + b;
      const bool valid = static_cast<unsigned>(oh) < static_cast<unsigned>(p.out[1]) &&
                         static_cast<unsigned>(od) < static_cast<unsigned>(p.out[0]);
      const int64_t depth = Place(od, p.out[0]), row = Place(oh, p.out[1]);
      LoadOutputs(p, dy + depth * p.y_depth + row * p.y_row, routes + depth * p.route_depth + row * p.route_row, valid, qw,
                  &over[a][b]);
    };
#pragma unroll
    for (int a = 0; a < TD; ++a) {
#pragma unroll
      for (int b = 0; b < TH - 1; ++b) load(a, b);
    }
    const int end = min(qh + p.rows, p.cells_h);
    constexpr int kUnrolled = W::kTaps > 9 && kTuning.clamped ? 1 : 2;
#pragma unroll kUnrolled
    for (; qh < end; ++qh) {
#pragma unroll
      for (int a = 0; a < TD; ++a) load(a, TH - 1);
#pragma unroll
      for (int rd = 0; rd < W::SD; ++rd) {
        const int d = qd * W::SD + rd - p.pad[0];
#pragma unroll
        for (int rh = 0; rh < W::SH; ++rh) {
          const int h = qh * W::SH + rh - p.pad[1];
          if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0]) ||
              static_cast<unsigned>(h) >= static_cast<unsigned>(p.in[1])) {
            continue;
          }
          float sum[kColumns][kChannels] = {};
#pragma unroll
          for (int td = TD - 1; td >= 0; --td) {
#pragma unroll
            for (int th = TH - 1; th >= 0; --th) {
              const int kd = rd + td * W::SD, kh = rh + th * W::SH;
              if (kd >= W::KD || kh >= W::KH) continue;
              const Outputs& from = over[TD - 1 - td][TH - 1 - th];
#pragma unroll
              for (int j = 0; j < kColumns; ++j) {
#pragma unroll
                for (int tw = TW - 1; tw >= 0; --tw) {
                  const int kw = (kSplit ? phase : (j + kPhase) % W::SW) + tw * W::SW;
                  if (!kSplit && kw >= W::KW) continue;
                  const int o = (j + kPhase) / W::SW - tw - kLow;
#pragma unroll
                  for (int c = 0; c < kChannels; ++c) {
                    if (from.Chose(o, c, (kd * W::KH + kh) * W::KW + kw)) sum[j][c] = __fadd_rn(sum[j][c], from.dy[o][c]);
                  }
                }
              }
            }
          }
          StoreRow(p, dx + d * p.x_depth + h * p.x_row, column, sum);
        }
      }
#pragma unroll
      for (int a = 0; a < TD; ++a) {
#pragma unroll
        for (int b = 0; b < TH - 1; ++b) over[a][b] = over[a][b + 1];
      }
    }
  }
};

template <class T, class W, Mode kMode, int kPad, int kLastVector>
__global__ void __launch_bounds__(kCellThreads, (Cells<T, W, kMode, kPad, kLastVector>::kTuning.blocks))
    CellKernel(const __grid_constant__ CellParams<T> p) {
  using C = Cells<T, W, kMode, kPad, kLastVector>;
  const uint32_t thread = blockIdx.x * kCellThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread, column, strip, depth;
  uint32_t rest = p.across.take(&channel);
  column = rest, rest = p.columns.take(&column);
  strip = rest, rest = p.strips.take(&strip);
  depth = rest, rest = p.depths.take(&depth);
  const int64_t number = rest;
  const int64_t c = static_cast<int64_t>(channel) * C::kChannels;
  C::Run(p, p.dy + number * p.y_plane + c, p.routes + number * p.route_plane + c * W::kBits / 8, p.dx + number * p.x_plane + c,
         p.first[0] + static_cast<int>(depth), p.first[1] + static_cast<int>(strip) * p.rows,
         (C::kVector || C::kSplit ? 0 : p.first[2]) + static_cast<int>(column) * C::kGroup);
}

// A block makes whole planes of dx in shared memory, then writes them in one run.
template <class T, class W>
__global__ void __launch_bounds__(kCellThreads) StagedCellKernel(const __grid_constant__ CellParams<T> p) {
  using C = Cells<T, W, Mode::kFirstStaged, 0, 1>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.planes_per_block;
  const int planes = static_cast<int>(min(static_cast<int64_t>(p.planes_per_block), p.planes - first));
  T* dx = p.dx + first * p.x_plane;
  T* staged = reinterpret_cast<T*>(shared + Misalignment(dx));
  const uint32_t strips = planes * p.columns.divisor * p.strips.divisor * p.depths.divisor;
  for (uint32_t i = threadIdx.x; i < strips; i += kCellThreads) {
    uint32_t column = i, strip, depth;
    uint32_t rest = p.columns.take(&column);
    strip = rest, rest = p.strips.take(&strip);
    depth = rest, rest = p.depths.take(&depth);
    C::Run(p, p.dy + (first + rest) * p.y_plane, p.routes + (first + rest) * p.route_plane, staged + rest * p.x_plane,
           p.first[0] + static_cast<int>(depth), p.first[1] + static_cast<int>(strip) * p.rows,
           p.first[2] + static_cast<int>(column) * C::kGroup);
  }
  StageOut(shared, dx, planes * static_cast<int>(p.x_plane));
}

}  // namespace poolgrad::cuda
