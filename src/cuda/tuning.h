// Every number that was chosen by measuring, and why. Plain data: changing one changes speed, never a result.
#pragma once

#include <cstdint>

namespace poolgrad::cuda {

// Threads of a block. 256 leaves the register allocator room and still gives a multiprocessor several independent blocks, so
// that one block's loads hide another's stores.
inline constexpr int kStripThreads = 256;
inline constexpr int kCellThreads = 256;
inline constexpr int kVectorThreads = 256;
inline constexpr int kPlaneThreads = 256;
inline constexpr int kSeparableThreads = 256;
// One warp adds, the others fetch the next row and write finished ones.
inline constexpr int kRingThreads = 128;
// Outputs a thread reduces at once along an axis: longer runs share more partial maxima, and take more registers. 14 divides 28
// and leaves little of 40, the sizes where such windows are used.
inline constexpr int kSeparableRun = 14;

struct Tuning {
  // Output rows (or rows of cells) a thread does one below the other. Longer strips read fewer rows twice and pay the index
  // arithmetic once; shorter ones give more threads. Strips are cut shorter when the problem is too small to fill the device.
  int strip_rows_last = 8;
  int strip_rows_first = 8;
  int cell_rows_last = 8;
  int cell_rows_first = 8;
  // Threads that fill the largest device of today about twice; under this, strips get shorter.
  int64_t enough_threads = 132 * 2048 * 2;
  // Shared memory for the planes of one block: small enough for several blocks on a multiprocessor.
  int staged_bytes = 24 << 10;
  // Above this a single plane is not staged: one block on a multiprocessor could not overlap loading with computing.
  int staged_bytes_most = 100 << 10;
  // The same for global pooling's planes.
  int plane_bytes = 28 << 10;
  // Inputs along the width that a thread of the channels-last gather does: neighbours often have the same window.
  int vector_run = 8;
  // Shared memory of one block of the separable kernels, and of the ring.
  int separable_bytes = 72 << 10;
  int separable_bytes_most = 200 << 10;
  int ring_bytes_most = 200 << 10;
};

// The values in use. The device benchmark varies them; nothing else writes them.
inline Tuning tuning;

}  // namespace poolgrad::cuda
