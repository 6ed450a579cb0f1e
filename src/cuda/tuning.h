// Every number that was chosen by measuring (on an H200), and why. Plain data: changing one changes speed, never a
// result.
#pragma once

#include <cstdint>

namespace poolgrad::cuda {

// Threads of a block. 256 leaves the register allocator room and still gives a multiprocessor several independent
// blocks, so that one block's loads hide another's stores.
inline constexpr int kStripThreads = 256;
inline constexpr int kCellThreads = 256;
inline constexpr int kVectorThreads = 128;
// Global pooling, channels first: small blocks, because a block waits for its planes and then reduces them.
inline constexpr int kPlaneThreads = 128;
// Separable windows, by layout. Channels last, a block has 8 words x rows x runs to do, which 320 divides more often
// than not.
constexpr int SeparableThreads(bool last) { return last ? 320 : 256; }
// One warp adds, the others fetch the next row and write finished ones.
inline constexpr int kRingThreads = 384;
// Outputs a thread reduces at once along an axis: longer runs share more partial maxima, and take more registers. 14
// divides 28 and leaves little of 40, the sizes where such windows are used.
inline constexpr int kSeparableRun = 14;
// Threads that fill the largest device of today about twice; under this, strips get shorter. The GPU tests set it to 1,
// so that small problems have long strips too; nothing else writes it.
inline int64_t enough_threads = 132 * 2048 * 2;
// Shared memory for the planes of one block of staged strips, and of staged cells. Fewer planes leave threads without a
// strip.
inline constexpr int64_t kStagedStripBytes = 48 << 10;
inline constexpr int64_t kStagedCellBytes = 48 << 10;
// Above this a single plane is not staged: one block on a multiprocessor could not overlap loading with computing.
inline constexpr int64_t kStagedBytesMost = 100 << 10;
// The same for global pooling's planes.
inline constexpr int64_t kPlaneBytes = 28 << 10;
// Bytes of dx that a block of global pooling's backward writes.
inline constexpr int64_t kPlaneRunBytes = 26 << 10;
// Taps that a thread of the channels-last kernels asks for at once. 7 leaves nothing over of 7, 14 and 49.
inline constexpr int kVectorAhead = 7;
// Places that a thread of the channels-last global backward writes; fewer below a quarter of enough threads, since it
// only stores.
inline constexpr int kOneWindowRun = 64;
// Words of channels that a block of the channels-last separable kernels holds: a sector of memory.
inline constexpr int64_t kSeparablePacks = 8;
// Shared memory of one block of the other separable kernels, the most of any, and of the ring.
inline constexpr int64_t kSeparableBytes = 48 << 10;
inline constexpr int64_t kSeparableBytesMost = 200 << 10;
inline constexpr int64_t kRingBytesMost = 200 << 10;

// Any window, forward: threads of a block and blocks of a multiprocessor (which bounds the registers), rows of inputs
// and outputs that a thread does at once, with single registers and with vectors of four, and shared memory of a block.
inline constexpr int kRowsThreads = 256;
inline constexpr int kRowsBlocks = 4, kRoutesBlocks = 3;
inline constexpr int kRowsAtOnce = 4, kVectorRowsAtOnce = 2, kOutputsAtOnce = 4, kVectorOutputsAtOnce = 1;
inline constexpr int64_t kRowsBytes = 40 << 10;
// Any window, backward: outputs that a lane asks for at once, and shared memory of one warp.
inline constexpr int kSumsAtOnce = 4;
// Any window, backward, where few outputs reach an input: shared memory of a block.
inline constexpr int64_t kGatherBytes = 40 << 10;

// What the choices for a small window's kernel depend on.
struct SmallWindow {
  bool last;    // channels last
  bool whole;   // whole vectors: channels last, or channels first with aligned rows
  bool halves;  // elements of 2 bytes
  int stride;   // along the width
  int taps;
  bool disjoint;  // no input has two windows
};

// How a small window's kernel is made.
struct SmallWindowTuning {
  // Output rows (or rows of cells) a thread does one below the other. Longer strips read fewer rows twice and pay the
  // index arithmetic once; shorter ones give more threads. Strips are cut shorter when the problem is too small to fill
  // the device.
  int rows;
  // Blocks that must fit on a multiprocessor, which bounds the registers; 0 leaves it to the compiler.
  int blocks;
  // Rows whose inputs are asked for together, before the first of them is used; those of the next rows are on their way
  // while these are reduced and stored. More bytes on their way, more registers.
  int ahead;
  bool streamed;  // dx is stored past the cache
  bool split;     // channels last: every column of a cell has a thread of its own
};

constexpr SmallWindowTuning ForwardTuning(SmallWindow w, bool routes) {
  SmallWindowTuning t{.rows = 4, .blocks = 0, .ahead = 2, .streamed = false, .split = false};
  if (w.taps > 9) {  // many rows stay in registers
    t.rows = w.whole ? 4 : 8;
    t.ahead = 1, t.blocks = 2;
  } else if (!w.whole && w.halves) {  // staged: the loads are of shared memory, and few registers matter more
    t.rows = 16, t.ahead = 1;
  } else if (w.whole && w.stride == 1) {
    if (w.last) t.rows = 8, t.ahead = 4;
    if (!w.last && w.halves && !routes) t.rows = 7, t.ahead = 7;
  }
  return t;
}

constexpr SmallWindowTuning BackwardTuning(SmallWindow w) {
  SmallWindowTuning t{.rows = 4, .blocks = 0, .ahead = 1, .streamed = false, .split = false};
  if (!w.whole) {
    t.rows = w.halves ? 8 : 2;
  } else if (w.stride == 1 && w.taps > 9) {  // every strip begins with rows that only warm it up, so they are long
    t.rows = w.last ? 40 : 20;
    t.ahead = w.last ? 1 : 2;
    t.blocks = w.last || w.halves ? 3 : 0;
  } else if (w.stride == 1) {
    t.rows = 14;
    t.ahead = w.last ? 2 : 4;
    t.blocks = w.last ? 0 : 3;
  } else if (w.disjoint) {  // mostly stores
    t.split = w.last && w.taps > 4;
    t.rows = w.last && !t.split ? 1 : 2;
    t.ahead = w.last ? 1 : 2;
    t.streamed = true;
  } else if (w.last) {
    t.rows = w.taps > 9 ? 8 : w.halves ? 4 : 2;
    t.ahead = w.taps > 9 ? 2 : 1;
    t.streamed = true;
  } else {
    t.rows = w.taps > 9 && !w.halves ? 2 : 4;
    t.ahead = w.taps > 9 ? 1 : 2;
  }
  return t;
}

}  // namespace poolgrad::cuda
