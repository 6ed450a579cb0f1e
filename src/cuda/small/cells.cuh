// Backward from routes for one form of a small window: a gather without atomics.
//
// Input i lies r + t*stride behind the start of output q - t, where q = (i + pad) / stride and r is the remainder: all
// inputs of one cell (the same q on every axis) are covered by the same few outputs. A thread owns a strip of cells one
// below the other, loads each output's dy and code once, and adds them in row-major order of outputs, from +0: the
// order that defines dx's bits. An output outside the problem counts as dy = 0, which adds nothing.
#pragma once

#include "cuda/common/packs.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/words.cuh"

namespace poolgrad::cuda {

struct CellParams {
  const void* dy;
  const uint8_t* routes;
  void* dx;
  uint32_t threads;
  FastDiv across, columns, strips, depths;  // channel vectors, column groups, strips of cells, cells along depth
  int in[3], out[3], pad[3];
  int first[3];  // the first cell of each axis
  int cells_h;   // one past the last cell along height
  int cells_d;   // cells along depth
  int rows;      // cells in a strip
  int64_t x_plane, x_depth, x_row, x_column;
  int64_t y_plane, y_depth, y_row, y_column;
  int64_t route_plane, route_depth, route_row, line_bytes;
  int channels;
  Pieces pieces;       // staged modes
  FastDiv by_vectors;  // of a place's channels
};

template <class T, Form F>
struct Cells {
  static constexpr int KD = F.kernel[0], KH = F.kernel[1], KW = F.kernel[2], SD = F.stride[0], SH = F.stride[1],
                       SW = F.stride[2], DD = F.dilation[0], DH = F.dilation[1], DW = F.dilation[2];
  static constexpr int kBits = F.bits, kSize = F.size;
  static constexpr SmallWindowTuning kTuning = BackwardTuning(F);
  static constexpr bool kSplit = F.split();
  static constexpr bool kLast = F.last();
  static constexpr bool kWhole = F.whole();
  static constexpr bool kVector = F.mode == Mode::kFirst;
  static constexpr bool kShared = F.staged();
  static constexpr bool kFlat = F.mode == Mode::kLastStaged;  // a thread has some channels of a column of cells
  static constexpr bool kSharedOutputs = kShared && F.stages_outputs();
  static constexpr int TD = F.over(0), TH = F.over(1), TW = F.over(2);  // outputs over a cell, per axis
  static constexpr int kChannels = F.vector;                            // elements at one place
  static constexpr int kGroup = F.group();
  static constexpr int kPhase =
      kVector ? F.pad : 0;  // aligned rows start inside a cell; the others at the start of one
  // Inputs along the width. Split: one, each of a cell's columns having a thread of its own.
  static constexpr int kColumns = kSplit ? 1 : SW * kGroup;
  static constexpr int kPerWord = 4 / kSize;
  static constexpr int kMask = (1 << F.codes) - 1;

  // The tap that lies `distance` behind the start of a window along an axis; -1: none.
  __host__ __device__ static constexpr int TapAt(int axis, int distance) {
    const int dilation = axis == 0 ? DD : axis == 1 ? DH : DW, kernel = axis == 0 ? KD : axis == 1 ? KH : KW;
    return distance % dilation == 0 && distance / dilation < kernel ? distance / dilation : -1;
  }
  static constexpr int kHigh = (kColumns - 1 + kPhase) / SW;
  static constexpr int kLow = 1 - TW < 0 ? 1 - TW : 0;  // from kLow to kHigh: the outputs over the columns
  static constexpr int kOver = kHigh - kLow + 1;
  // The outputs, from kLow on, with a tap on one of the columns.
  static constexpr uint64_t Reaching() {
    if (kSplit) return (uint64_t{1} << kOver) - 1;
    uint64_t outputs = 0;
    for (int o = kLow; o <= kHigh; ++o) {
      for (int j = 0; j < kColumns; ++j) {
        const int t = (j + kPhase) / SW - o;
        if (t >= 0 && TapAt(2, (j + kPhase) % SW + t * SW) >= 0) outputs |= uint64_t{1} << (o - kLow);
      }
    }
    return outputs;
  }
  static constexpr uint64_t kReaching = Reaching();
  static_assert(kOver < 64);
  __device__ static constexpr bool Reaches(int o) { return kReaching >> (o - kLow) & 1; }
  // Words of codes of one place, or of a row where they come packed.
  static constexpr bool kPacked = F.packs_codes();
  static constexpr int kCodeWords = kPacked          ? (kOver * kBits + 31) / 32
                                    : kLast || kFlat ? (kChannels * kBits + 31) / 32
                                                     : 1;

  static constexpr int kAhead = kTuning.ahead;  // rows of outputs that are asked for together
  // Words of dy, and of codes, that a row of outputs is loaded as: by place (channels last, element by element where
  // they are odd), whole vectors and then the outputs beside them (aligned rows), or element by element.
  static constexpr int kPlaceWords = !kLast ? 1 : kWhole ? kChannels / kPerWord : kChannels;
  static constexpr int kGroupWords = kVector ? kGroup / kPerWord : 0;
  static constexpr int kSingles = kVector ? kOver - kGroup : kLast ? 0 : kOver;
  static constexpr int kFlatWords = F.even ? kChannels / kPerWord : kChannels;  // flat, of dy of one place
  static constexpr bool kDyPairs = kPacked && kSize == 2;                       // dy comes as words of two neighbours
  static constexpr int kDyWords = kLast      ? kOver * kPlaceWords
                                  : kFlat    ? kOver * kFlatWords
                                  : kDyPairs ? (kOver + 1) / 2
                                             : kGroupWords + kSingles;
  static constexpr int kRawPlace = kWhole ? kCodeWords : kBits == 8 ? kChannels : 1;  // of codes, channels last
  static constexpr int kCodeBytes = (kChannels * kBits + 7) / 8;                      // flat, of one place
  static constexpr int kRawCodes = kPacked ? kCodeWords + 1
                                   : kLast ? kOver * kRawPlace
                                   : kFlat ? kOver * kCodeBytes
                                           : (kVector ? 1 : 0) + kSingles;

  // A row of outputs as it was loaded: nothing, which adds nothing, where it lies outside.
  struct Raw {
    uint32_t dy[kDyWords], code[kRawCodes];
    uint32_t first_bit;  // where packed codes begin, modulo 32, and a single flat one in its byte
  };

  // Channels last: the codes of several channels are compared in pairs, where they are wide enough to gain by it.
  static constexpr bool kPaired = kLast && kWhole && kBits >= 4 && !kSplit;
  // Packed: those of neighbouring outputs, pair o being o and o + 1.
  static constexpr bool kPairs = F.pairs_codes();
  static constexpr int kCodes = kPairs ? kOver - 1 : kPaired ? kChannels / 2 : kCodeWords;

  // dy and codes of one output row (at one depth) over the thread's columns.
  struct Outputs {
    float dy[kOver][kChannels];
    uint32_t code[kPacked ? 1 : kOver][kCodes];

    // Whether output `o` (from kLow) chose `tap` for channel c.
    __device__ bool Chose(int o, int c, int tap) const {
      const int shift = kPacked ? o * kBits : kLast || kFlat ? c * kBits : 0;
      const uint32_t word = code[kPacked ? 0 : o][shift / 32];
      return ((word ^ static_cast<uint32_t>(tap) << (shift % 32)) & static_cast<uint32_t>(kMask) << (shift % 32)) == 0;
    }
  };

  // dy, routes: of the row; column: the thread's first cell; left: its channels, when they are last.
  __device__ static Raw Load(const CellParams& p, const T* dy, const uint8_t* routes, bool row_valid, int column,
                             int left) {
    Raw raw = {};
    const auto inside = [&](int ow) {
      return row_valid && static_cast<unsigned>(ow) < static_cast<unsigned>(p.out[2]);
    };
    if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        if (!Reaches(kLow + o)) continue;
        const int ow = column + kLow + o;
        const T* from = dy + ow * p.y_column;
        const uint8_t* codes = routes + ow * p.line_bytes;
        if constexpr (kWhole) {
          LoadWordsIf<kPlaceWords * 4>(inside(ow), from, raw.dy + o * kPlaceWords);
          LoadWordsIf<kChannels * kBits / 8>(inside(ow), codes, raw.code + o * kCodeWords);
        } else {
#pragma unroll
          for (int c = 0; c < kChannels; ++c) {
            LoadWordsIf<kSize>(inside(ow) && c < left, from + c, raw.dy + o * kPlaceWords + c);
            if (c < kRawPlace) LoadWordsIf<1>(inside(ow) && c < left, codes + c, raw.code + o * kRawPlace + c);
          }
        }
      }
    } else {
      if constexpr (kVector) {
        constexpr int kCodeBytes = kGroup * kBits / 8 > 0 ? kGroup * kBits / 8 : 1;
        LoadWordsIf<kGroupWords * 4>(row_valid, dy + column, raw.dy);
        LoadWordsIf<kCodeBytes>(row_valid, routes + column * kBits / 8, raw.code);
      }
      int single = 0;
#pragma unroll
      for (int o = kLow; o <= kHigh; ++o) {
        if (kVector && o >= 0 && o < kGroup) continue;
        const int ow = column + o;
        if (Reaches(o)) {
          LoadWordsIf<kSize>(inside(ow), dy + ow, raw.dy + kGroupWords + single);
          LoadWordsIf<1>(inside(ow), routes + ow * kBits / 8, raw.code + (kVector ? 1 : 0) + single);
        }
        ++single;
      }
    }
    return raw;
  }

  // Which of the outputs over a thread's columns there are: bits of words of two neighbours, or one flag for each.
  struct Columns {
    static constexpr int kFlags = kFlat ? kOver : kDyWords;
    uint32_t inside[kFlags];
    __device__ Columns(int column, int width) {
      const auto is = [&](int at) { return static_cast<unsigned>(column + kLow + at) < static_cast<unsigned>(width); };
#pragma unroll
      for (int i = 0; i < kFlags; ++i) {
        inside[i] = kDyPairs ? (is(2 * i) ? 0xFFFFu : 0u) | (is(2 * i + 1) ? 0xFFFF0000u : 0u) : uint32_t{is(i)};
      }
    }
  };

  // The same from shared memory: whole words of codes, which may begin before the row's and end after them; what lies
  // outside has no dy.
  __device__ static Raw LoadShared(const CellParams& p, uint32_t dy, uint32_t routes, bool row_valid, int column,
                                   int channel, const Columns& columns) {
    Raw raw = {};
    if constexpr (kFlat) {
      const auto step = static_cast<uint32_t>(p.channels * kSize), code_step = static_cast<uint32_t>(p.line_bytes);
      dy += static_cast<uint32_t>(column + kLow) * step + static_cast<uint32_t>(channel * kSize);
      routes += static_cast<uint32_t>(column + kLow) * code_step + static_cast<uint32_t>(channel * kBits / 8);
      raw.first_bit = static_cast<uint32_t>(channel * kBits & 7);
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        if (!Reaches(kLow + o)) continue;
        const bool valid = row_valid && columns.inside[o];
#pragma unroll
        for (int c = 0; c < kChannels; c += F.even ? 2 : 1) {  // those beyond the last may be anything
          constexpr int kBytes = F.even ? 2 * kSize : kSize;
          LoadSharedIf<kBytes>(valid, dy + o * step + c * kSize, raw.dy + o * kFlatWords + c * kFlatWords / kChannels);
        }
#pragma unroll
        for (int i = 0; i < kCodeBytes; ++i) {
          LoadSharedIf<1>(valid, routes + o * code_step + i, raw.code + o * kCodeBytes + i);
        }
      }
      return raw;
    }
    const uint32_t first = dy + static_cast<uint32_t>(column + kLow) * kSize;
    if constexpr (kDyPairs) {
      constexpr int kWords = kOver / 2 + 1;  // rows may begin with the second half of a word
      uint32_t words[kWords] = {};
#pragma unroll
      for (int i = 0; i < kWords; ++i) LoadSharedIf<4>(row_valid, (first & ~3u) + 4 * i, words + i);
#pragma unroll
      for (int i = 0; i < kDyWords; ++i) {
        raw.dy[i] = __funnelshift_r(words[i], words[i + 1 < kWords ? i + 1 : i], (first & 2) * 8) & columns.inside[i];
      }
    } else {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        if (!Reaches(kLow + o)) continue;
        LoadSharedIf<kSize>(row_valid && columns.inside[o], first + static_cast<uint32_t>(o * kSize), raw.dy + o);
      }
    }
    raw.first_bit =
        routes * 8 + static_cast<uint32_t>((column + kLow) * kBits);  // addresses have far fewer than 29 bits
#pragma unroll
    for (int i = 0; i < kRawCodes; ++i) LoadSharedIf<4>(row_valid, (raw.first_bit >> 5 << 2) + 4 * i, raw.code + i);
    return raw;
  }

  // Codes o and o + 1 of packed ones, as AddWhere wants them.
  __device__ static uint32_t PairAt(const uint32_t (&words)[kCodeWords], int o) {
    const int a = o * kBits, b = a + kBits, shift = b % 32 - 16;
    const uint32_t first = words[a / 32] >> (a % 32);
    const uint32_t second = shift < 0 ? words[b / 32] << -shift : words[b / 32] >> shift;
    return (first & kMask) | (second & kMask << 16) | kCodeBias;
  }

  __device__ static Outputs Unpack(const Raw& raw, int column) {
    Outputs out;
    if constexpr (kPacked) {
      uint32_t words[kCodeWords];
#pragma unroll
      for (int i = 0; i < kCodeWords; ++i) words[i] = __funnelshift_r(raw.code[i], raw.code[i + 1], raw.first_bit);
#pragma unroll
      for (int i = 0; i < kCodes; ++i) out.code[0][i] = kPairs ? PairAt(words, i) : words[i];
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        float wide[kPerWord];
        WidenWord<T>(raw.dy[kDyPairs ? o / 2 : o], wide);
        out.dy[o][0] = wide[kDyPairs ? o % 2 : 0];
      }
    } else if constexpr (kLast) {
#pragma unroll
      for (int o = 0; o < kOver; ++o) {
        if constexpr (!kWhole) {
          uint32_t codes = raw.code[o * kRawPlace];
#pragma unroll
          for (int c = 0; c < kChannels; ++c) {
            float wide[kPerWord];
            WidenWord<T>(raw.dy[o * kPlaceWords + c], wide);
            out.dy[o][c] = wide[0];
            if (c > 0 && kBits == 8) codes |= raw.code[o * kRawPlace + (kBits == 8 ? c : 0)] << (8 * c);
          }
          out.code[o][0] = codes;
          continue;
        }
#pragma unroll
        for (int i = 0; i < (kWhole ? kPlaceWords : 0); ++i) {
          WidenWord<T>(raw.dy[o * kPlaceWords + i], &out.dy[o][i * kPerWord]);
        }
        if constexpr (kPaired) {
          static_assert(kCodeWords == 1);
          ChannelCodes<kBits, kChannels>::Unpack(raw.code[o], out.code[o]);
        } else if constexpr (kWhole) {
#pragma unroll
          for (int i = 0; i < kCodeWords; ++i) out.code[o][i] = raw.code[o * kCodeWords + i];
        }
      }
    } else {
      int single = 0;
#pragma unroll
      for (int o = kLow; o <= kHigh; ++o) {
        float wide[kPerWord];
        if constexpr (kFlat) {
          uint32_t codes = 0;
#pragma unroll
          for (int i = 0; i < kCodeBytes; ++i) codes |= raw.code[(o - kLow) * kCodeBytes + i] << (8 * i);
          out.code[o - kLow][0] = kChannels == 1 ? codes >> raw.first_bit : codes;
#pragma unroll
          for (int c = 0; c < kChannels; ++c) {
            constexpr bool kTwo = F.even && kPerWord == 2;  // to a word
            WidenWord<T>(raw.dy[(o - kLow) * kFlatWords + (kTwo ? c / 2 : c)], wide);
            out.dy[o - kLow][c] = wide[kTwo ? c % 2 : 0];
          }
        } else if (kVector && o >= 0 && o < kGroup) {
          WidenWord<T>(raw.dy[o / kPerWord], wide);
          out.dy[o - kLow][0] = wide[o % kPerWord];
          const uint32_t codes = kGroup * kBits < 8 ? raw.code[0] >> (column * kBits & 7) : raw.code[0];
          out.code[o - kLow][0] = codes >> (o * kBits);
        } else {
          WidenWord<T>(raw.dy[kGroupWords + single], wide);
          out.dy[o - kLow][0] = wide[0];
          out.code[o - kLow][0] = raw.code[(kVector ? 1 : 0) + single] >> ((column + o) * kBits & 7);
          ++single;
        }
      }
    }
    return out;
  }

  __device__ static void StoreRow(const CellParams& p, T* row, int column, int left, const float (*sum)[kChannels]) {
    if constexpr (kLast && !kWhole) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          if (c < left) row[(column + j) * p.x_column + c] = Narrowed<T>(sum[j][c]);
        }
      }
    } else if constexpr (kLast) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
        uint32_t words[kChannels / kPerWord];
#pragma unroll
        for (int i = 0; i < kChannels / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[j][i * kPerWord]);
        StoreResult<kTuning.streamed, kChannels * kSize>(row + (column + j) * p.x_column, words);
      }
    } else {
      uint32_t words[kColumns / kPerWord];
#pragma unroll
      for (int i = 0; i < kColumns / kPerWord; ++i) words[i] = NarrowWord<T>(&sum[i * kPerWord][0]);
      if constexpr (kVector) {
        StoreResult<kTuning.streamed, kColumns * kSize>(row + column, words);
      } else {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if (static_cast<unsigned>(column + j) >= static_cast<unsigned>(p.in[2])) continue;
          StoreElement(row + column + j, kPerWord == 2 && j % 2 ? words[j / kPerWord] >> 16 : words[j / kPerWord]);
        }
      }
    }
  }

  __device__ static void StoreShared(const CellParams& p, uint32_t row, int column, int channel,
                                     const float (*sum)[kChannels]) {
    const auto inside = [&](int j) { return static_cast<unsigned>(column + j) < static_cast<unsigned>(p.in[2]); };
    if constexpr (kFlat) {
      const uint32_t step = static_cast<uint32_t>(p.channels * kSize);
      row += static_cast<uint32_t>(column) * step + static_cast<uint32_t>(channel * kSize);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int c = 0; c < kChannels; c += F.even ? 2 : kPerWord) {
          const uint32_t at = row + j * step + c * kSize;
          const auto there = [&](int i) {
            return inside(j) && (!F.ragged || c + i == 0 || c + i < p.channels - channel);
          };
          const float pair[2] = {sum[j][c], c + 1 < kChannels ? sum[j][c + 1] : 0.0f};
          const uint32_t word = NarrowWord<T>(pair);
          if constexpr (F.even && kSize == 4) {
            StoreSharedPairIf(there(0), at, word, NarrowWord<T>(pair + 1));
          } else if constexpr (F.even) {
            StoreSharedIf<4>(there(0), at, word);
          } else {
#pragma unroll
            for (int i = 0; i < kPerWord; ++i) {
              if (c + i < kChannels) StoreSharedIf<kSize>(there(i), at + i * kSize, word >> (16 * i));
            }
          }
        }
      }
    } else {
      row += static_cast<uint32_t>(column) * kSize;
#pragma unroll
      for (int j = 0; j < kColumns; j += kPerWord) {
        const uint32_t word = NarrowWord<T>(&sum[j][0]);
#pragma unroll
        for (int i = 0; i < kPerWord; ++i) {
          StoreSharedIf<kSize>(inside(j + i), row + (j + i) * kSize, word >> (16 * i));
        }
      }
    }
  }

  // left: the thread's channels, or (flat) its first one, when they are last.
  // dy, routes: of this thread's plane (at its channels), at row 0 of the first depth over the cell. Staged: of every
  // depth over it, in shared memory. dx: where row 0 of each depth of the cell is, or would be, in global or shared
  // memory.
  struct Depths {
    T* dx[SD];
    uint32_t shared_dx[SD], dy[TD], routes[TD];  // addresses in shared memory
    int end;                                     // one past the last row of cells
  };
  __device__ static void Run(const CellParams& p, const T* dy, const uint8_t* routes, const Depths& at, int qd, int qh,
                             int qw, int left) {
    int column = kVector ? qw * SW : qw * SW - p.pad[2];  // the first input column
    int split_taps[TW] = {};
    if constexpr (kSplit) {  // qw is the input column
      column = qw;
      qw = (column + p.pad[2]) / SW;
#pragma unroll
      for (int tw = 0; tw < TW; ++tw) split_taps[tw] = TapAt(2, (column + p.pad[2]) % SW + tw * SW);
    }
    const int od = qd - (TD - 1);
    int oh = qh - (TH - 1);                                                // the next output row to load
    using Offset = std::conditional_t<kSharedOutputs, uint32_t, int64_t>;  // shared: bytes, modulo 2^32
    constexpr bool kCut = F.cut && kSharedOutputs;
    const Offset dy_step = static_cast<Offset>(kCut ? p.pieces.pitch[0] : p.y_row * (kSharedOutputs ? kSize : 1));
    const Offset routes_step = static_cast<Offset>(kCut ? p.pieces.pitch[1] : p.route_row);
    const auto dx_step = static_cast<uint32_t>(F.cut ? p.pieces.pitch[2] : p.x_row * kSize);
    Offset next_dy = oh * dy_step, next_routes = oh * routes_step;
    const Columns columns(qw, p.out[2]);
    const auto load = [&](int a, bool wanted) {
      const bool valid = wanted && static_cast<unsigned>(oh) < static_cast<unsigned>(p.out[1]) &&
                         static_cast<unsigned>(od + a) < static_cast<unsigned>(p.out[0]);
      if constexpr (kSharedOutputs) {
        return LoadShared(p, at.dy[a] + next_dy, at.routes[a] + next_routes, valid, qw, left, columns);
      } else {
        return Load(p, dy + (TD == 1 ? 0 : a * p.y_depth) + next_dy,
                    routes + (TD == 1 ? 0 : a * p.route_depth) + next_routes, valid, qw, left);
      }
    };
    const auto advance = [&] { next_dy += dy_step, next_routes += routes_step, ++oh; };
    const int end = min(qh + p.rows, kShared ? at.end : p.cells_h);
    // One row of inputs, if it is there: rd, rh count from the cell's first.
    const auto store = [&](int row, int rd, int rh, const float(*sum)[kChannels]) {
      const int d = qd * SD + rd - p.pad[0], h = row * SH + rh - p.pad[1];
      if (static_cast<unsigned>(d) < static_cast<unsigned>(p.in[0]) &&
          static_cast<unsigned>(h) < static_cast<unsigned>(p.in[1])) {
        if constexpr (kShared) {
          StoreShared(p, at.shared_dx[rd] + h * dx_step, column, left, sum);
        } else {
          StoreRow(p, at.dx[rd] + h * p.x_row, column, left, sum);
        }
      }
    };
    Raw raw[TD][kAhead];
    const auto ask = [&](int left_rows) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int a = 0; a < TD; ++a) raw[a][i] = load(a, i < left_rows);
        advance();
      }
    };
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
        for (int rd = 0; rd < SD; ++rd) {
#pragma unroll
          for (int rh = 0; rh < SH; ++rh) {
            float sum[kColumns][kChannels] = {};
#pragma unroll
            for (int td = TD - 1; td >= 0; --td) {
#pragma unroll
              for (int th = TH - 1; th >= 0; --th) {
                const int kd = TapAt(0, rd + td * SD), kh = TapAt(1, rh + th * SH);
                if (kd < 0 || kh < 0) continue;
                Add(over[TD - 1 - td][TH - 1 - th + i], (kd * KH + kh) * KW, split_taps, sum);
              }
            }
            store(qh + i, rd, rh, sum);
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

  // Adds what one row of outputs sends to one row of inputs; row_tap: the tap of its first column; split_taps: where
  // one column is the thread's, its taps in the outputs over it, -1 for none.
  __device__ static void Add(const Outputs& from, int row_tap, const int (&split_taps)[TW], float (*sum)[kChannels]) {
#pragma unroll
    for (int j = 0; j < kColumns; j += kPairs ? 2 : 1) {
#pragma unroll
      for (int tw = TW - 1; tw >= 0; --tw) {
        const int kw = kSplit ? split_taps[tw] : TapAt(2, (j + kPhase) % SW + tw * SW);
        if (!(kSplit && KW == SW && DW == 1) && kw < 0) continue;
        const int o = (j + kPhase) / SW - tw - kLow;
        if constexpr (kPairs) {
          if (j + 1 < kColumns) {
            AddWhere(from.code[0][o], row_tap + kw, from.dy[o][0], from.dy[o + 1][0], sum[j], sum[j + 1]);
          } else {  // of an odd number the last: there may be no output after its own
            const bool second = o + 1 == kOver;
            AddWhereOne(from.code[0][second ? o - 1 : o], row_tap + kw, second, from.dy[o][0], sum[j]);
          }
        } else if constexpr (kPaired) {
          using Codes = ChannelCodes<kBits, kChannels>;
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
