// How the small-window kernels of both directions share out their work: strips of rows, one below the other, of a group
// of columns. Cuts a problem into strips, and launches a kernel that finds its strip by dividing its thread's number.
#pragma once

#include <algorithm>

#include "cuda/device.cuh"
#include "cuda/fast.h"
#include "cuda/staging.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

// One parameter, by pointer.
inline cudaError_t LaunchOne(const void* kernel, int64_t blocks, int threads, int64_t shared_bytes, void* stream,
                             void* param) {
  void* pointers[] = {param};
  return LaunchPointers(kernel, blocks, threads, static_cast<size_t>(shared_bytes), stream, pointers);
}

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
  cudaError_t LaunchPlain(const void* kernel, int block, const SmallWindowTuning& tuning, void* stream,
                          Params* s) const {
    const int64_t others = across * columns * depths * numbers;
    Describe(RowsPerStrip(std::min<int64_t>(tuning.rows, rows * others / enough_threads), tuning.ahead), s);
    const int64_t threads = others * s->strips.divisor;
    if (threads >= kFastThreads) return cudaErrorNotSupported;
    s->threads = static_cast<uint32_t>(threads);
    return LaunchOne(kernel, CeilDiv(threads, block), block, 0, stream, s);
  }

  // A block for each piece. Strips are short enough to keep a block's threads busy.
  template <class Params>
  cudaError_t LaunchStaged(const void* kernel, int block, const SmallWindowTuning& tuning, int64_t bytes, void* stream,
                           Params* s) const {
    Pieces& pieces = s->pieces;
    Strips piece = *this;
    piece.rows = pieces.rows_each, piece.depths = pieces.depths_each;
    const int64_t all = piece.rows * columns * piece.depths * pieces.planes_each;
    piece.Describe(piece.RowsPerStrip(std::min<int64_t>(tuning.rows, all / block), tuning.ahead), s);
    const int64_t blocks = CeilDiv(numbers, pieces.planes_each) * pieces.depths.divisor * pieces.rows.divisor;
    if (blocks >= kFastThreads) return cudaErrorNotSupported;
    const int64_t strips = columns * s->strips.divisor * piece.depths * pieces.planes_each;
    return LaunchOne(kernel, blocks, static_cast<int>(std::clamp<int64_t>(CeilDiv(strips, 32) * 32, 64, block)), bytes,
                     stream, s);
  }
};

}  // namespace poolgrad::cuda
