// Backward from routes for windows that move by one: up to 7x7 with channels last, 3x3 and 5x5 on aligned rows.
//
// Every input is under KH*KW windows, too many to keep in registers. So a thread goes down a strip of output rows
// instead, each loaded once, and keeps the sums of the KH input rows it reaches: row by row, and along a row from the
// left, so that every sum is made in row-major order of outputs, from +0. When the next output row no longer reaches an
// input row, it is stored. What binds is the comparing of codes with taps, so two are compared at once. It has the face
// of Cells (a strip of cells, which are inputs here), and CellKernel runs either.
#pragma once

#include "cuda/cells.cuh"

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

template <class T, Form F>
using CellsOf = std::conditional_t<F.rolls(), Roll<T, F>, Cells<T, F>>;

template <class T, Form F>
__device__ void RunCells(const CellParams& p) {
  using C = CellsOf<T, F>;
  const uint32_t thread = blockIdx.x * kCellThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread;
  const StripOf strip(p, p.across.take(&channel));
  const int64_t number = strip.number;
  const int64_t c = static_cast<int64_t>(channel) * C::kChannels;
  const int qd = p.first[0] + static_cast<int>(strip.depth), od = qd - (C::TD - 1);
  typename C::Depths at;
#pragma unroll
  for (int rd = 0; rd < F.stride[0]; ++rd) {
    at.dx[rd] = static_cast<T*>(p.dx) + number * p.x_plane + c + (qd * F.stride[0] + rd - p.pad[0]) * p.x_depth;
  }
  C::Run(p, static_cast<const T*>(p.dy) + number * p.y_plane + od * p.y_depth + c,
         p.routes + number * p.route_plane + od * p.route_depth + c * F.bits / 8, at, qd,
         p.first[1] + static_cast<int>(strip.strip) * p.rows,
         (C::kVector || C::kSplit ? 0 : p.first[2]) + static_cast<int>(strip.column) * C::kGroup,
         p.channels - static_cast<int>(c));
}

// The same, a block holding its piece of dy, codes and dx in shared memory: all that it reads and writes are runs.
template <class T, Form F>
__device__ void RunStagedCells(const CellParams& p, unsigned char* shared) {
  using C = Cells<T, F>;
  shared += kReadBefore;
  constexpr int SD = C::SD, SH = C::SH, TD = C::TD, TH = C::TH;
  const Pieces& pieces = p.pieces;
  const Piece piece(pieces, p.cells_d, p.cells_h - p.first[1]);
  const int qd = p.first[0] + piece.depth, qh = p.first[1] + piece.row;
  const bool slabs = pieces.rows.divisor > 1;
  const T* dy = static_cast<const T*>(p.dy) + piece.plane * p.y_plane;
  const uint8_t* codes = p.routes + piece.plane * p.route_plane;
  unsigned char* shared_codes = shared + pieces.place[0];
  Courier courier;
  Staged<T, TD> in = {};
  Staged<uint8_t, TD> in_codes = {};
  if (!C::kSharedOutputs) {  // read where they are
  } else if (slabs) {
    const int low = max(0, qh - (TH - 1)), high = min(p.out[1], qh + piece.rows);
#pragma unroll
    for (int a = 0; a < TD; ++a) {
      const int od = qd - (TD - 1) + a;
      if (static_cast<unsigned>(od) >= static_cast<unsigned>(p.out[0])) continue;
      in.AskSlab(courier, a, dy + od * p.y_depth, p.y_row, low, high, shared + a * pieces.slab_bytes[0]);
      in_codes.AskSlab(courier, a, codes + od * p.route_depth, p.route_row, low, high,
                       shared_codes + a * pieces.slab_bytes[1]);
    }
  } else {
    const int low = max(0, qd - (TD - 1)), high = min(p.out[0], qd + piece.depths);
    in.AskRun(courier, dy, piece, p.y_plane, p.y_depth, low, high, shared);
    in_codes.AskRun(courier, codes, piece, p.route_plane, p.route_depth, low, high, shared_codes);
  }
  // Inputs of the piece: whole planes, a run of depths, or rows of each depth of a cell.
  const int low_d = max(0, qd * SD - p.pad[0]), high_d = min(p.in[0], (qd + piece.depths) * SD - p.pad[0]);
  const int low_h = max(0, qh * SH - p.pad[1]), high_h = min(p.in[1], (qh + piece.rows) * SH - p.pad[1]);
  T* dx = static_cast<T*>(p.dx) + piece.plane * p.x_plane;
  unsigned char* shared_dx = shared + pieces.place[1];
  const auto slab = [&](int rd) { return dx + (qd * SD + rd - p.pad[0]) * p.x_depth + low_h * p.x_row; };
  T* run = dx + low_d * p.x_depth;
  // Where row 0 of each depth of the piece's first cell is, or would be (modulo 2^32).
  const uint32_t x_row = static_cast<uint32_t>(p.x_row) * C::kSize,
                 x_depth = static_cast<uint32_t>(p.x_depth) * C::kSize;
  uint32_t first_dx[SD];
#pragma unroll
  for (int rd = 0; rd < SD; ++rd) {
    first_dx[rd] =
        Kept(slabs ? SharedAddress(shared_dx + rd * pieces.slab_bytes[2] + Misalignment(slab(rd))) - low_h * x_row
                   : SharedAddress(shared_dx + Misalignment(run)) + (qd * SD + rd - p.pad[0] - low_d) * x_depth);
  }
  courier.Wait();
  const uint32_t strips = p.columns.divisor * p.strips.divisor * p.depths.divisor * piece.planes;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    const StripOf strip(p, i);
    const int row = static_cast<int>(strip.strip) * p.rows, depth = static_cast<int>(strip.depth), d = qd + depth;
    if (row >= piece.rows || depth >= piece.depths) continue;
    typename C::Depths at;
    at.end = qh + piece.rows;
#pragma unroll
    for (int a = 0; a < TD; ++a) {
      const uint32_t od = d - (TD - 1) + a;
      at.dy[a] =
          slabs ? in.slab[a]
                : in.run + (strip.number * static_cast<uint32_t>(p.y_plane) + od * static_cast<uint32_t>(p.y_depth)) *
                               C::kSize;
      at.routes[a] = slabs ? in_codes.slab[a]
                           : in_codes.run + strip.number * static_cast<uint32_t>(p.route_plane) +
                                 od * static_cast<uint32_t>(p.route_depth);
    }
    const uint32_t beyond = strip.number * static_cast<uint32_t>(p.x_plane) * C::kSize + depth * SD * x_depth;
#pragma unroll
    for (int rd = 0; rd < SD; ++rd) at.shared_dx[rd] = first_dx[rd] + (slabs ? 0 : beyond);
    const int64_t plane = strip.number, od = d - (TD - 1);
    uint32_t column = strip.column, channel = 0;
    if constexpr (C::kFlat) channel = column, column = p.by_channels.take(&channel);
    C::Run(p, dy + plane * p.y_plane + od * p.y_depth, codes + plane * p.route_plane + od * p.route_depth, at, d,
           qh + row, p.first[2] + static_cast<int>(column) * C::kGroup, static_cast<int>(channel));
  }
  courier.Made();
  if (!slabs) {
    const int64_t count = piece.planes > 1 ? piece.planes * p.x_plane : (high_d - low_d) * p.x_depth;
    courier.Send(shared_dx, run, static_cast<int>(count));
    courier.Leave();
    return;
  }
  for (int rd = 0; rd < SD; ++rd) {
    const int d = qd * SD + rd - p.pad[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
    courier.Send(shared_dx + rd * pieces.slab_bytes[2], slab(rd), (high_h - low_h) * static_cast<int>(p.x_row));
  }
  courier.Leave();
}

// A kernel's body.
template <class T, Form F>
__device__ void RunCellsForm(const CellParams& p) {
  if constexpr (Cells<T, F>::kShared) {
    extern __shared__ __align__(16) unsigned char cells_shared[];
    RunStagedCells<T, F>(p, cells_shared);
  } else {
    RunCells<T, F>(p);
  }
}

}  // namespace poolgrad::cuda
