// Backward from routes for the windows of windows.cuh: a gather without atomics.
//
// Input i is tap r + t*stride of output q - t, where q = (i + pad) / stride and r is the remainder, for every t with a
// tap there: all inputs of one cell (the same q on every axis) are covered by the same few outputs. A thread owns a
// strip of cells one below the other, loads each output's dy and code once, and adds them in row-major order of
// outputs, from +0: the order that defines dx's bits. An output outside the problem counts as dy = 0, which adds
// nothing.
#pragma once

#include "cuda/packs.cuh"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"
#include "cuda/windows.cuh"
#include "cuda/words.cuh"

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

template <class T, class W, Mode kMode, int kPad, int kLastVector>
struct Cells {
  static constexpr SmallWindowTuning kTuning = BackwardTuning(Describe<T, W, kMode>());
  static constexpr bool kSplit = kTuning.split;
  static constexpr bool kLast = kMode == Mode::kLast;
  static constexpr bool kVector = kMode == Mode::kFirst;
  static constexpr bool kShared = kMode == Mode::kFirstStaged;
  // Windows over a cell, per axis.
  static constexpr int TD = (W::KD + W::SD - 1) / W::SD, TH = (W::KH + W::SH - 1) / W::SH,
                       TW = (W::KW + W::SW - 1) / W::SW;
  static constexpr int kChannels = kLast ? kLastVector : 1;  // elements at one place
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

  static constexpr int kAhead = kTuning.ahead;  // rows of outputs that are asked for together
  // Words of dy, and of codes, that a row of outputs is loaded as: by place (channels last), whole vectors and then the
  // outputs beside them (aligned rows), or element by element.
  static constexpr int kPlaceWords = kChannels / kPerWord > 0 ? kChannels / kPerWord : 1;
  static constexpr int kGroupWords = kVector ? kGroup / kPerWord : 0;
  static constexpr int kSingles = kVector ? kOver - kGroup : kLast ? 0 : kOver;
  static constexpr int kDyWords = kLast ? kOver * kPlaceWords : kGroupWords + kSingles;
  static constexpr int kRawCodes = kLast ? kOver * kCodeWords : (kVector ? 1 : 0) + kSingles;

  // A row of outputs as it was loaded: nothing, which adds nothing, where it lies outside.
  struct Raw {
    uint32_t dy[kDyWords], code[kRawCodes];
  };

  // Channels last: the codes of several channels are compared in pairs, where they are wide enough to gain by it.
  static constexpr bool kPaired = kLast && W::kBits >= 4 && !kSplit;
  static constexpr int kCodes = kPaired ? kChannels / 2 : kCodeWords;

  // dy and codes of one output row (at one depth) over the thread's columns.
  struct Outputs {
    float dy[kOver][kChannels];
    uint32_t code[kOver][kCodes];

    // Whether output `o` (from kLow) chose `tap` for channel c.
    __device__ bool Chose(int o, int c, int tap) const {
      const int shift = kLast ? c * W::kBits : 0;
      const uint32_t word = code[o][shift / 32];
      return ((word ^ static_cast<uint32_t>(tap) << (shift % 32)) & static_cast<uint32_t>(kMask) << (shift % 32)) == 0;
    }
  };

  // dy, routes: of the row; column: the thread's first cell.
  __device__ static Raw Load(const CellParams<T>& p, const T* dy, const uint8_t* routes, bool row_valid, int column) {
    Raw raw = {};
    const auto inside = [&](int ow) {
      return row_valid && static_cast<unsigned>(ow) < static_cast<unsigned>(p.out[2]);
    };
    if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        const int ow = column + kLow + o;
        LoadWordsIf<false, kPlaceWords * 4>(inside(ow), dy + ow * p.y_column, raw.dy + o * kPlaceWords);
        LoadWordsIf<false, kChannels * W::kBits / 8>(inside(ow), routes + ow * p.line_bytes, raw.code + o * kCodeWords);
      }
    } else {
      if constexpr (kVector) {
        constexpr int kCodeBytes = kGroup * W::kBits / 8 > 0 ? kGroup * W::kBits / 8 : 1;
        LoadWordsIf<false, kGroupWords * 4>(row_valid, dy + column, raw.dy);
        LoadWordsIf<false, kCodeBytes>(row_valid, routes + column * W::kBits / 8, raw.code);
      }
      int single = 0;
#pragma unroll
      for (int o = kLow; o <= kHigh; ++o) {
        if (kVector && o >= 0 && o < kGroup) continue;
        const int ow = column + o;
        LoadWordsIf<false, static_cast<int>(sizeof(T))>(inside(ow), dy + ow, raw.dy + kGroupWords + single);
        LoadWordsIf<false, 1>(inside(ow), routes + ow * W::kBits / 8, raw.code + (kVector ? 1 : 0) + single);
        ++single;
      }
    }
    return raw;
  }

  __device__ static Outputs Unpack(const Raw& raw, int column) {
    Outputs out;
    if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
#pragma unroll
        for (int i = 0; i < kPlaceWords; ++i) WidenWord<T>(raw.dy[o * kPlaceWords + i], &out.dy[o][i * kPerWord]);
        if constexpr (kPaired) {
          static_assert(kCodeWords == 1);
          ChannelCodes<W::kBits, kChannels>::Unpack(raw.code[o], out.code[o]);
        } else {
#pragma unroll
          for (int i = 0; i < kCodeWords; ++i) out.code[o][i] = raw.code[o * kCodeWords + i];
        }
      }
    } else {
      int single = 0;
#pragma unroll
      for (int o = kLow; o <= kHigh; ++o) {
        float wide[kPerWord];
        if (kVector && o >= 0 && o < kGroup) {
          WidenWord<T>(raw.dy[o / kPerWord], wide);
          out.dy[o - kLow][0] = wide[o % kPerWord];
          const uint32_t codes = kGroup * W::kBits < 8 ? raw.code[0] >> (column * W::kBits & 7) : raw.code[0];
          out.code[o - kLow][0] = codes >> (o * W::kBits);
        } else {
          WidenWord<T>(raw.dy[kGroupWords + single], wide);
          out.dy[o - kLow][0] = wide[0];
          out.code[o - kLow][0] = raw.code[(kVector ? 1 : 0) + single] >> ((column + o) * W::kBits & 7);
          ++single;
        }
      }
    }
    return out;
  }

  __device__ static void StoreRow(const CellParams<T>& p, T* row, int column, const float (*sum)[kChannels]) {
    if constexpr (kLast) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
        uint32_t words[kChannels / kPerWord];
#pragma unroll
        for (int i = 0; i < kChannels / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[j][i * kPerWord]);
        StoreResult<kTuning.streamed, kChannels* static_cast<int>(sizeof(T))>(row + (column + j) * p.x_column, words);
      }
    } else {
      uint32_t words[kColumns / kPerWord];
#pragma unroll
      for (int i = 0; i < kColumns / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[i * kPerWord][0]);
      if constexpr (kVector) {
        StoreResult<kTuning.streamed, kColumns* static_cast<int>(sizeof(T))>(row + column, words);
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
  __device__ static void Run(const CellParams<T>& p, const T* dy, const uint8_t* routes, T* dx, int qd, int qh,
                             int qw) {
    int column = kVector ? qw * W::SW : qw * W::SW - p.pad[2];  // the first input column
    int phase = 0;
    if constexpr (kSplit) {  // qw is the input column
      column = qw;
      phase = (column + p.pad[2]) % W::SW;
      qw = (column + p.pad[2]) / W::SW;
    }
    const int od = qd - (TD - 1);
    int oh = qh - (TH - 1);  // the next output row to load
    const T* next_dy = dy + od * p.y_depth + oh * p.y_row;
    const uint8_t* next_routes = routes + od * p.route_depth + oh * p.route_row;
    const auto load = [&](int a, bool wanted) {
      const bool valid = wanted && static_cast<unsigned>(oh) < static_cast<unsigned>(p.out[1]) &&
                         static_cast<unsigned>(od + a) < static_cast<unsigned>(p.out[0]);
      return Load(p, next_dy + (TD == 1 ? 0 : a * p.y_depth), next_routes + (TD == 1 ? 0 : a * p.route_depth), valid,
                  qw);
    };
    const auto advance = [&] { next_dy += p.y_row, next_routes += p.route_row, ++oh; };
    Raw raw[TD][kAhead];
    const auto ask = [&](int left_rows) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int a = 0; a < TD; ++a) raw[a][i] = load(a, i < left_rows);
        advance();
      }
    };
    const int end = min(qh + p.rows, p.cells_h);
    Outputs over[TD][TH - 1 + kAhead];  // over[a][b]: depth qd - (TD-1) + a, row qh - (TH-1) + b
    {
      Raw first[TD][TH > 1 ? TH - 1 : 1];
#pragma unroll
      for (int b = 0; b < TH - 1; ++b) {
#pragma unroll
        for (int a = 0; a < TD; ++a) first[a][b] = load(a, true);
        advance();
      }
      ask(end - qh);
#pragma unroll
      for (int b = 0; b < TH - 1; ++b) {
#pragma unroll
        for (int a = 0; a < TD; ++a) over[a][b] = Unpack(first[a][b], qw);
      }
    }
#pragma unroll 1
    for (; qh < end; qh += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int a = 0; a < TD; ++a) over[a][TH - 1 + i] = Unpack(raw[a][i], qw);
      }
      ask(end - qh - kAhead);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (kAhead > 1 && qh + i >= end) break;
#pragma unroll
        for (int rd = 0; rd < W::SD; ++rd) {
          const int d = qd * W::SD + rd - p.pad[0];
#pragma unroll
          for (int rh = 0; rh < W::SH; ++rh) {
            const int h = (qh + i) * W::SH + rh - p.pad[1];
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
                Add(over[TD - 1 - td][TH - 1 - th + i], (kd * W::KH + kh) * W::KW, phase, sum);
              }
            }
            StoreRow(p, dx + d * p.x_depth + h * p.x_row, column, sum);
          }
        }
      }
#pragma unroll
      for (int a = 0; a < TD; ++a) {
#pragma unroll
        for (int b = 0; b < TH - 1; ++b) over[a][b] = over[a][b + kAhead];
      }
    }
  }

  // Adds what one row of outputs sends to one row of inputs; row_tap: the tap of its first column.
  __device__ static void Add(const Outputs& from, int row_tap, int phase, float (*sum)[kChannels]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int tw = TW - 1; tw >= 0; --tw) {
        const int kw = (kSplit ? phase : (j + kPhase) % W::SW) + tw * W::SW;
        if (!kSplit && kw >= W::KW) continue;
        const int o = (j + kPhase) / W::SW - tw - kLow;
        if constexpr (kPaired) {
          using Codes = ChannelCodes<W::kBits, kChannels>;
#pragma unroll
          for (int i = 0; i < Codes::kPairs; ++i) {
            const int a = Codes::First(i), b = Codes::Second(i);
            AddWhere(from.code[o][i], row_tap + kw, from.dy[o][a], from.dy[o][b], &sum[j][a], &sum[j][b]);
          }
        } else {
#pragma unroll
          for (int c = 0; c < kChannels; ++c) {
            if (from.Chose(o, c, row_tap + kw)) sum[j][c] = __fadd_rn(sum[j][c], from.dy[o][c]);
          }
        }
      }
    }
  }
};

}  // namespace poolgrad::cuda
