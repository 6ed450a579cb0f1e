// Backward from routes for windows that move by one: up to 7x7 with channels last, 3x3 and 5x5 on aligned rows.
//
// Every input is under KH*KW windows, too many to keep in registers. So a thread goes down a strip of output rows
// instead, each loaded once, and keeps the sums of the KH input rows it reaches: row by row, and along a row from the
// left, so that every sum is made in row-major order of outputs, from +0. When the next output row no longer reaches an
// input row, it is stored. What binds is the comparing of codes with taps, so two are compared at once. It has the face
// of Cells (a strip of cells, which are inputs here), and CellKernel runs either.
#pragma once

#include "cuda/small/cells.cuh"

namespace poolgrad::cuda {

template <class T, Form F>
struct Roll {
  static constexpr SmallWindowTuning kTuning = BackwardTuning(F);
  static constexpr bool kSplit = false;
  static constexpr bool kLast = F.last(), kVector = !kLast;
  static constexpr int kChannels = F.vector;
  static constexpr int kGroup = F.group();  // inputs along the width
  static constexpr int TD = 1;
  static constexpr int KH = F.kernel[1], KW = F.kernel[2], kSide = (KW - 1) / 2, kBits = F.bits;
  static constexpr int kSize = sizeof(T), kPerWord = 4 / kSize;
  static constexpr int kAhead = kTuning.ahead;
  static constexpr int kOver = kGroup + KW - 1;     // outputs along the width that reach the inputs
  static constexpr int kSums = kGroup * kChannels;  // of one input row
  // A row of outputs as loaded. Channels last: the dy words of each place, then the codes of each. Aligned rows: the
  // outputs left of the group, the group, and those right of it; a word of codes for each of the three.
  static constexpr int kPlaceWords = kLast ? kChannels / kPerWord : 1;
  static constexpr int kSideWords = (kSide * kSize + 3) / 4, kGroupWords = kGroup * kSize / 4;
  static constexpr int kDyWords = kLast ? kOver * kPlaceWords : kGroupWords + 2 * kSideWords;
  static constexpr int kCodeWords = kLast ? kOver : 3;

  struct Raw {
    uint32_t dy[kDyWords], code[kCodeWords];
  };

  // `column`: the first output that reaches the inputs (channels last), or the group's first column.
  __device__ static Raw Load(const CellParams& p, const T* dy, const uint8_t* routes, bool row_valid, int column) {
    Raw raw = {};
    if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        const bool valid = row_valid && static_cast<unsigned>(column + o) < static_cast<unsigned>(p.out[2]);
        LoadWordsIf<kPlaceWords * 4>(valid, dy + (column + o) * p.y_column, raw.dy + o * kPlaceWords);
        LoadWordsIf<kChannels * kBits / 8>(valid, routes + (column + o) * p.line_bytes, raw.code + o);
      }
    } else {
      // Half a byte on one side comes with its neighbour.
      constexpr int kSideBytes = kSide * kBits >= 8 ? kSide * kBits / 8 : 1;
      const bool left = row_valid && column > 0, right = row_valid && column + kGroup < p.out[2];
      const uint8_t* codes = routes + column * kBits / 8;
      LoadWordsIf<kGroup * kSize>(row_valid, dy + column, raw.dy + kSideWords);
      LoadWordsIf<kGroup * kBits / 8>(row_valid, codes, raw.code + 1);
      LoadWordsIf<kSide * kSize>(left, dy + column - kSide, raw.dy);
      LoadWordsIf<kSideBytes>(left, codes - kSideBytes, raw.code);
      LoadWordsIf<kSide * kSize>(right, dy + column + kGroup, raw.dy + kSideWords + kGroupWords);
      LoadWordsIf<kSideBytes>(right, codes + kGroup * kBits / 8, raw.code + 2);
    }
    return raw;
  }

  // Adds what a row of outputs sends to the KH input rows it reaches.
  __device__ static void Add(const Raw& raw, float (&sum)[KH][kSums]) {
    if constexpr (kLast) {
      using Codes = ChannelCodes<kBits, kChannels>;
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        float value[kChannels];
        uint32_t pairs[Codes::kPairs];
#pragma unroll
        for (int i = 0; i < kPlaceWords; ++i) WidenWord<T>(raw.dy[o * kPlaceWords + i], value + i * kPerWord);
        Codes::Unpack(raw.code[o], pairs);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const int kw = KW - 1 - (o - j);
          if (kw < 0 || kw >= KW) continue;
#pragma unroll
          for (int kh = 0; kh < KH; ++kh) {
            float* to = &sum[kh][j * kChannels];
#pragma unroll
            for (int i = 0; i < Codes::kPairs; ++i) {
              const int a = Codes::First(i), b = Codes::Second(i);
              AddWhere(pairs[i], kh * KW + kw, value[a], value[b], to + a, to + b);
            }
          }
        }
      }
    } else {
      float value[kOver];
      const auto part = [&](int first, int count, const uint32_t* words) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          float wide[kPerWord];
          WidenWord<T>(words[i / kPerWord], wide);
          value[first + i] = wide[i % kPerWord];
        }
      };
      part(0, kSide, raw.dy);
      part(kSide, kGroup, raw.dy + kSideWords);
      part(kSide + kGroup, kSide, raw.dy + kSideWords + kGroupWords);
      uint32_t pairs[kOver - 1];  // of outputs o and o + 1
      if constexpr (kBits == 8) {
        static_assert(kSide == 2);
        pairs[0] = __byte_perm(raw.code[0], kCodeBias, 0x5150);
        pairs[2] = __byte_perm(raw.code[1], kCodeBias, 0x5150);
        pairs[4] = __byte_perm(raw.code[1], kCodeBias, 0x5352);
        pairs[6] = __byte_perm(raw.code[2], kCodeBias, 0x5150);
      } else {
        static_assert(kSide == 1);
        // Half a byte for each output: the high half of the left byte, four, and the low half of the right byte.
        const uint32_t codes = raw.code[0] >> 4 | raw.code[1] << 4 | raw.code[2] << 20;
#pragma unroll
        for (int o = 0; o < kOver; o += 2) {
          pairs[o] = (codes >> (4 * o) & 0xFu) | (o < 3 ? codes << (12 - 4 * o) : codes >> (4 * o - 12)) & 0xF0000u |
                     kCodeBias;
        }
      }
#pragma unroll
      for (int o = 1; o < kOver - 1; o += 2) pairs[o] = __byte_perm(pairs[o - 1], pairs[o + 1], 0x5432);
        // Tap column by tap column, from the last: for each sum that is from the leftmost output on.
#pragma unroll
      for (int kw = KW - 1; kw >= 0; --kw) {
#pragma unroll
        for (int j = 0; j < kGroup; j += 2) {
          const int o = j + KW - 1 - kw;
#pragma unroll
          for (int kh = 0; kh < KH; ++kh) {
            AddWhere(pairs[o], kh * KW + kw, value[o], value[o + 1], &sum[kh][j], &sum[kh][j + 1]);
          }
        }
      }
    }
  }

  // As Cells::Run: cells (qd, qh, qw) and those below it, or the groups that begin at input column qw.
  struct Depths {
    T* dx[1];
  };
  __device__ static void Run(const CellParams& p, const T* dy, const uint8_t* routes, const Depths& at, int qd, int qh,
                             int qw, int) {
    const int column = kLast ? qw - (KW - 1) : qw;  // of outputs
    const int end = min(qh + p.rows, p.cells_h);
    int oh = qh - (KH - 1);
    const T* next_dy = dy + oh * p.y_row;
    const uint8_t* next_routes = routes + oh * p.route_row;
    T* to = at.dx[0] + (qh - p.pad[1]) * p.x_row + (kLast ? (qw - p.pad[2]) * p.x_column : column);
    const bool second = kLast && qw + 1 - p.pad[2] < p.in[2];
    const bool depth_valid = static_cast<unsigned>(qd) < static_cast<unsigned>(p.out[0]);
    Raw raw[kAhead];
    const auto ask = [&](int from) {  // output rows `from` and on
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const bool valid =
            depth_valid && from + i < end && static_cast<unsigned>(from + i) < static_cast<unsigned>(p.out[1]);
        raw[i] = Load(p, next_dy, next_routes, valid, column);
        next_dy += p.y_row, next_routes += p.route_row;
      }
    };
    float sum[KH][kSums] = {};
    ask(oh);
#pragma unroll 1
    for (; oh < end; oh += kAhead) {
      Raw now[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) now[i] = raw[i];
      ask(oh + kAhead);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        Add(now[i], sum);
        if (oh + i >= qh && oh + i < end) {
          constexpr int kWords = kSums / kPerWord, kStored = kLast ? kPlaceWords : kWords;
          uint32_t words[kWords];
#pragma unroll
          for (int w = 0; w < kWords; ++w) words[w] = NarrowWord<T>(&sum[0][w * kPerWord]);
          StoreResult<kTuning.streamed, kStored * 4>(to, words);
          if (kLast && kGroup == 2 && second)
            StoreResult<kTuning.streamed, kStored * 4>(to + p.x_column, words + kWords - kStored);
          to += p.x_row;
        }
#pragma unroll
        for (int kh = 0; kh < KH; ++kh) {
#pragma unroll
          for (int c = 0; c < kSums; ++c) sum[kh][c] = kh + 1 < KH ? sum[kh + 1 < KH ? kh + 1 : 0][c] : 0.0f;
        }
      }
    }
  }
};

}  // namespace poolgrad::cuda
