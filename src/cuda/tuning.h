// Every number that was chosen by measuring (on an H200), and why. Plain data: changing one changes speed, never a result.
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
inline constexpr int kRingThreads = 384;
// Outputs a thread reduces at once along an axis: longer runs share more partial maxima, and take more registers. 14 divides 28
// and leaves little of 40, the sizes where such windows are used.
inline constexpr int kSeparableRun = 14;
// Threads that fill the largest device of today about twice; under this, strips get shorter. The GPU tests set it to 1, so that
// small problems have long strips too; nothing else writes it.
inline int64_t enough_threads = 132 * 2048 * 2;
// Shared memory for the planes of one block of staged strips, in elements (of 4 bytes: two blocks to a multiprocessor), and of
// staged cells, in bytes. Fewer planes leave threads without a strip.
inline constexpr int64_t kStagedStripElements = 24 << 10;
inline constexpr int64_t kStagedCellBytes = 48 << 10;
// Above this a single plane is not staged: one block on a multiprocessor could not overlap loading with computing.
inline constexpr int64_t kStagedBytesMost = 100 << 10;
// The same for global pooling's planes.
inline constexpr int64_t kPlaneBytes = 28 << 10;
// Inputs along the width that a thread of the channels-last gather does: neighbours often have the same window.
inline constexpr int kVectorRun = 8;
// Places that a thread of the channels-last global backward writes; fewer below a quarter of enough threads, since it only stores.
inline constexpr int kOneWindowRun = 64;
// Shared memory of one block of the separable kernels, and of the ring.
inline constexpr int64_t kSeparableBytes = 72 << 10;
inline constexpr int64_t kSeparableBytesMost = 200 << 10;
inline constexpr int64_t kRingBytesMost = 200 << 10;

// What the choices for a small window's kernel depend on.
struct SmallWindow {
  bool last;      // channels last
  bool whole;     // whole vectors: channels last, or channels first with aligned rows
  bool halves;    // elements of 2 bytes
  int stride;     // along the width
  int taps;
  bool disjoint;  // no input has two windows
};

// How a small window's kernel is made.
struct SmallWindowTuning {
  // Output rows (or rows of cells) a thread does one below the other. Longer strips read fewer rows twice and pay the index
  // arithmetic once; shorter ones give more threads. Strips are cut shorter when the problem is too small to fill the device.
  int rows;
  // Blocks that must fit on a multiprocessor, which bounds the registers; 0 leaves it to the compiler.
  int blocks;
  // Every load is made, of the nearest place inside, and what lies outside is replaced afterwards: no load waits behind a branch.
  // It costs instructions, which the halves of overlapping windows have none to spare of; see NOTES.md.
  bool clamped;
  bool streamed;  // dx is stored past the cache
  bool split;     // channels last: every column of a cell has a thread of its own
};

constexpr SmallWindowTuning ForwardTuning(SmallWindow w) {
  const bool clamped = w.last || (w.whole && !w.halves);
  SmallWindowTuning t{.rows = 8, .blocks = 0, .clamped = clamped, .streamed = false, .split = false};
  if (clamped) {
    t.rows = w.last && w.stride == 1 ? 8 : 4;
    t.blocks = w.taps > 9 ? 2 : 3;
  } else if (w.taps > 9) {
    t.rows = w.whole ? 2 : 8;
    t.blocks = w.whole ? 0 : 2;
  }
  return t;
}

constexpr SmallWindowTuning BackwardTuning(SmallWindow w) {
  const bool clamped = w.whole && (!w.halves || w.disjoint || (!w.last && w.stride > 1));
  SmallWindowTuning t{.rows = 8, .blocks = 0, .clamped = clamped, .streamed = false, .split = false};
  if (clamped) t.blocks = w.taps <= 9 && w.stride == 2 ? 4 : w.last ? 2 : 3;
  if (!w.whole) return t;
  if (w.stride == 1) {
    t.rows = 14;
  } else if (w.disjoint) {
    t.split = w.last && w.taps > 4;
    t.rows = w.last && !t.split ? 1 : 2;
    t.streamed = true;
  } else if (w.last) {
    t.rows = w.taps > 9 ? 8 : w.halves ? 4 : 2;
    t.streamed = true;
  } else {
    t.rows = w.taps > 9 ? 2 : 4;
  }
  return t;
}

}  // namespace poolgrad::cuda
