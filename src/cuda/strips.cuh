// How the small-window kernels of both directions share out their work: strips of rows, one below the other, of a group
// of columns. Cuts a problem into strips, and launches a kernel that finds its strip by dividing its thread's number.
#pragma once

#include <algorithm>

#include "cuda/device.cuh"
#include "cuda/fast.h"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

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
  template <int kThreads, class Kernel, class Params>
  cudaError_t LaunchPlain(Kernel kernel, const SmallWindowTuning& tuning, void* stream, Params* s) const {
    const int64_t others = across * columns * depths * numbers;
    Describe(RowsPerStrip(std::min<int64_t>(tuning.rows, rows * others / enough_threads), tuning.ahead), s);
    const int64_t threads = others * s->strips.divisor;
    if (threads >= kFastThreads) return cudaErrorNotSupported;
    s->threads = static_cast<uint32_t>(threads);
    return Launch(kernel, CeilDiv(threads, kThreads), kThreads, 0, stream, *s);
  }

  // A block for as many planes as fit into `bytes` of shared memory, at least one; fewer when there would not be two
  // blocks for every multiprocessor. Strips are short enough to keep a block's threads busy.
  template <int kThreads, class Kernel, class Params>
  cudaError_t LaunchStaged(Kernel kernel, int64_t plane_bytes, int64_t bytes, const SmallWindowTuning& tuning,
                           void* stream, Params* s) const {
    const int64_t enough_blocks = std::max<int64_t>(1, enough_threads / 2048);
    const int64_t planes = std::max<int64_t>(1, std::min(bytes / plane_bytes, numbers / enough_blocks));
    s->planes_per_block = static_cast<int>(planes);
    Describe(RowsPerStrip(std::min<int64_t>(tuning.rows, rows * columns * depths * planes / kThreads), tuning.ahead),
             s);
    return Launch(kernel, CeilDiv(numbers, planes), kThreads, static_cast<size_t>(planes * plane_bytes + 16), stream,
                  *s);
  }
};

}  // namespace poolgrad::cuda
