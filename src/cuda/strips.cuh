// How the small-window kernels of both directions share out their work: strips of rows, one below the other, of a group
// of columns. A kernel finds its strip by dividing its thread's number.
#pragma once

#include <algorithm>

#include "cuda/device.cuh"
#include "cuda/fast.h"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

struct Grid {
  int64_t blocks = 0;  // 0: there would be too many threads
  int threads = 0;     // of a block
  int64_t shared_bytes = 0;
};

struct Strips {
  int64_t across;   // channel vectors, 1 when channels are first
  int64_t columns;  // groups of columns
  int64_t rows;     // to be cut into strips
  int64_t depths;
  int64_t numbers;  // planes, or samples when channels are last

  // At most `most` rows, the strips of one plane about equally long, and whole groups of `ahead` rows.
  int RowsPerStrip(int64_t most, int ahead) const {
    const int64_t equal = CeilDiv(rows, CeilDiv(rows, std::max<int64_t>(1, most)));
    return static_cast<int>(CeilDiv(equal, ahead) * ahead);
  }

  template <class Params>
  void Describe(int strip_rows, Params* s) const {
    s->rows = strip_rows;
    s->across = FastDiv(across), s->columns = FastDiv(columns), s->depths = FastDiv(depths);
    s->strips = FastDiv(CeilDiv(rows, strip_rows));
  }

  // A thread for each strip; strips are shorter when there are not enough threads.
  template <class Params>
  Grid Plain(int block, const SmallWindowTuning& tuning, Params* s) const {
    const int64_t others = across * columns * depths * numbers;
    Describe(RowsPerStrip(std::min<int64_t>(tuning.rows, rows * others / enough_threads), tuning.ahead), s);
    const int64_t threads = others * s->strips.divisor;
    if (threads >= kFastThreads) return {};
    s->threads = static_cast<uint32_t>(threads);
    return {CeilDiv(threads, block), block, 0};
  }

  // A block for each piece. Strips are short enough to keep `busy` of its threads so.
  template <class Params>
  Grid Staged(int block, int busy, const SmallWindowTuning& tuning, int64_t bytes, Params* s) const {
    Pieces& pieces = s->pieces;
    Strips piece = *this;
    piece.rows = pieces.rows_each, piece.depths = pieces.depths_each;
    const int64_t all = piece.rows * columns * piece.depths * pieces.planes_each;
    piece.Describe(piece.RowsPerStrip(std::min<int64_t>(tuning.rows, all / busy), tuning.ahead), s);
    const int64_t blocks = CeilDiv(numbers, pieces.planes_each) * pieces.depths.divisor * pieces.rows.divisor;
    if (blocks >= kFastThreads) return {};
    const int64_t strips = columns * s->strips.divisor * piece.depths * pieces.planes_each;
    return {blocks, static_cast<int>(std::clamp<int64_t>(CeilDiv(strips, 32) * 32, 64, block)), bytes};
  }
};

}  // namespace poolgrad::cuda
