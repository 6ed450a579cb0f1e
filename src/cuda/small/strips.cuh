// How the small-window kernels of both directions share out their work: strips of rows, one below the other, of a group
// of columns. A kernel finds its strip by dividing its thread's number.
#pragma once

#include <algorithm>
#include <array>

#include "cuda/common/device.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "cuda/fast.h"

namespace poolgrad::cuda {

struct Grid {
  int64_t blocks = 0;  // 0: there would be too many threads
  int threads = 0;     // of a block
  int64_t shared_bytes = 0;
  double cost = 0;  // staged: to be compared with another cut into pieces
};

struct Strips {
  int64_t across;   // channel vectors, 1 when channels are first
  int64_t columns;  // groups of columns
  int64_t rows;     // to be cut into strips
  int64_t depths;
  int64_t numbers;   // planes, or samples when channels are last
  int64_t deep = 1;  // depths of a strip

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

  // A thread for each strip; strips are shorter when there are not enough threads, three eighths of what is enough
  // elsewhere: with more of them a strip's start costs more than they hide (3x3/2 bf16 channels last, backward: 0.51 of
  // copy became 0.66).
  template <class Params>
  Grid Plain(int block, const SmallWindowTuning& tuning, Params* s) const {
    const int64_t others = across * columns * depths * numbers;
    const int64_t enough = std::max<int64_t>(1, enough_threads * 3 / 8);
    Describe(RowsPerStrip(std::min<int64_t>(tuning.rows, rows * others / enough), tuning.ahead), s);
    const int64_t threads = others * s->strips.divisor;
    if (threads >= kFastThreads) return {};
    s->threads = static_cast<uint32_t>(threads);
    return {CeilDiv(threads, block), block, 0};
  }

  // An array in shared memory: from one group of columns to the next, and from a row to the next. 0: it is elsewhere.
  struct Apart {
    int64_t column_bytes, row_bytes;
  };
  using Arrays = std::array<Apart, 2>;

  // How many words of one bank the threads of a warp ask for at once, their strips having `rows` rows.
  int Conflicts(int rows, const Apart& apart) const {
    std::array<std::array<uint64_t, 32>, 32> asked;  // by bank, each word once
    std::array<int, 32> count{};
    int most = 1;
    int64_t column = 0, row = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const auto word = static_cast<uint64_t>(column * apart.column_bytes + row * apart.row_bytes) / 4;
      if (++column == columns) column = 0, row += rows;
      auto& words = asked[word % 32];
      int& n = count[word % 32];
      if (std::find(words.begin(), words.begin() + n, word) == words.begin() + n)
        words[static_cast<size_t>(n++)] = word;
      most = std::max(most, n);
    }
    return most;
  }

  // A block for each piece. Strips are as long as makes its threads finish soonest, each beginning with `warm_up` rows
  // that another strip has as well. met: the arrays in which threads may meet. size: bytes of an element. rows_moved:
  // one by one.
  template <class Params>
  Grid Staged(int warm_up, const Arrays& met, int size, const SmallWindowTuning& tuning, int64_t bytes,
              int64_t rows_moved, Params* s) const {
    constexpr int kRowMoved = 600;  // what moving a row costs, in bytes
    constexpr int kStart = 2;       // what finding a strip costs, in rows
    constexpr int kHidden = 2;      // so many conflicts take no longer than the computing
    Pieces& pieces = s->pieces;
    Strips piece = *this;
    piece.rows = pieces.rows_each, piece.depths = CeilDiv(pieces.depths_each, deep);
    const int64_t others = columns * piece.depths * pieces.planes_each;
    const auto strips = [&](int rows) { return others * CeilDiv(piece.rows, rows); };
    int best = 0, before = 0;
    int64_t least = 0;
    for (int most = tuning.ahead; most <= std::max(tuning.rows, tuning.ahead); most += tuning.ahead) {
      const int rows = piece.RowsPerStrip(most, tuning.ahead);
      const int64_t rounds = CeilDiv(strips(rows), kStagedThreads) * (rows + warm_up + kStart);
      if (rows == before || (best > 0 && rounds * kHidden > least)) continue;
      before = rows;
      const int64_t time = rounds * std::max({kHidden, Conflicts(rows, met[0]), Conflicts(rows, met[1])});
      if (best == 0 || time <= least) best = rows, least = time;
    }
    piece.Describe(best, s);
    const int64_t blocks =
        CeilDiv(numbers, pieces.planes_each) * pieces.depths.divisor * pieces.rows.divisor * pieces.columns.divisor;
    if (blocks >= kFastThreads) return {};
    const int64_t threads = std::clamp<int64_t>(CeilDiv(strips(best), 32) * 32, 64, kStagedThreads);
    // Fitted to 79 cells in six sizes each: all bytes are moved and computed on, which takes longer where threads have
    // nothing to do or are too few to hide waits, and the last blocks end alone.
    const double held =
        static_cast<double>(std::max<int64_t>(1, std::min(kSharedMost / (bytes + 1024), 1024 / threads)));
    const double busy = std::min(1.0, held * static_cast<double>(threads) / 800);
    const double computed = static_cast<double>(CeilDiv(strips(best), threads) * threads * (best + warm_up + kStart)) /
                            static_cast<double>(strips(best) * best);
    const double cost = static_cast<double>(blocks * (bytes + kRowMoved * rows_moved)) *
                        (1 + 4.0 / size * computed / busy) * (1 + 13.2 * held / static_cast<double>(blocks));
    return {blocks, static_cast<int>(threads), bytes, cost};
  }
};

}  // namespace poolgrad::cuda
