// Every number that was chosen by measuring (on an H200), and why. Plain data: changing one changes speed, never a
// result.
#pragma once

#include <cstdint>

#include "cuda/common/forms.cuh"

namespace poolgrad::cuda {

// Threads of a block. 256 leaves the register allocator room and still gives a multiprocessor several independent
// blocks, so that one block's loads hide another's stores.
inline constexpr int kStripThreads = 256;
inline constexpr int kCellThreads = 256;
// Marching along the depth: threads of a block, and blocks of a multiprocessor, which leaves 128 registers.
inline constexpr int kMarchThreads = 128, kMarchBlocks = 4;
// The most of a staged piece: its block loads, computes and stores one after the other, so that many small ones overlap
// better (0.60 to 0.73 of copy for 2x2/1 on odd rows).
inline constexpr int kStagedThreads = 128;
inline constexpr int kVectorThreads = 128;
// Global pooling, channels first: small blocks, because a block waits for its planes and then reduces them.
inline constexpr int kPlaneThreads = 128;
// Large windows, forward: threads of a block, and blocks of a multiprocessor, which bounds the registers.
inline constexpr int kSeparableThreads = 256, kSeparableBlocks = 3;
// Windows of 13x13 by doubling, by layout. Channels last, a block has 8 words x rows x runs to do, which 320 divides
// more often than not.
constexpr int DoublingThreads(bool last) { return last ? 320 : 256; }
// Outputs that its threads reduce at once along an axis: 14 divides 28 and leaves little of 40, the sizes where such
// windows are used.
inline constexpr int kDoublingRun = 14;
// Taps of signals of halves up to which a kernel that has one row of them is slower than those for any window.
inline constexpr int64_t kSeparableSignal = 64;
// Channels first, how many windows lie over an input, from which separable maxima pay (5x18/4x5 in f32 0.19 of copy,
// and 0.32 by rows.cuh, 4x7/1x7 0.31 and 0.55, 7x7/2 0.31 and 0.38; 5x4/1 with routes 0.27 and 0.26).
inline constexpr double kSeparableOverlapping = 14;
// Outputs a thread reduces at once along an axis: longer runs share more of their maxima, and take more registers. The
// longer where the window has so many taps.
inline constexpr int kSeparableRun = 8, kSeparableLongRun = 16;
// Outputs of a tile along an axis, at most. The GPU tests lower it, so that small planes are cut into tiles.
inline int64_t separable_tile = 128;
// Threads that fill the largest device of today about twice; under this, strips get shorter. The GPU tests set it to 1,
// so that small problems have long strips too; nothing else writes it.
inline int64_t enough_threads = 132 * 2048 * 2;
// Compiling a kernel for a window takes about half a second, once: not for problems whose time is that of launching.
// The GPU tests set it to 0.
inline int64_t bytes_worth_compiling = 1 << 20;
// Shared memory of a block of staged strips or cells. The GPU tests lower it, so that small planes are cut into pieces.
// With 36 KB six fit on a multiprocessor; 256 bytes are for what is read beyond.
inline int64_t staged_bytes = (36 << 10) - 256;
// Shared memory of a multiprocessor.
inline constexpr int64_t kSharedMost = 227 << 10;
// The most that a piece of one row may take: one block on a multiprocessor could not overlap loading with computing.
inline constexpr int64_t kStagedBytesMost = 100 << 10;
// Shared memory of a block of global pooling's planes.
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
// Shared memory of one block of the other separable kernels, and the most of any.
inline constexpr int64_t kSeparableBytes = 48 << 10;
inline constexpr int64_t kSeparableBytesMost = 200 << 10;

// Any window, forward: threads of a block and blocks of a multiprocessor (which bounds the registers), rows of inputs
// and outputs that a thread does at once, with single registers and with vectors of four, and shared memory of a block.
inline constexpr int kRowsThreads = 256;
inline constexpr int kRowsBlocks = 4, kRoutesBlocks = 3;
inline constexpr int kRowsAtOnce = 4, kVectorRowsAtOnce = 2, kOutputsAtOnce = 4, kVectorOutputsAtOnce = 1;
inline constexpr int64_t kRowsBytes = 40 << 10;
// Where windows share so few rows that a thread has whole ones: how many do, at most, forward and with routes (where
// tiles hold fewer threads, and hold the columns, too); outputs of a thread at once; threads from which it pays (the
// GPU tests lower it; 27x27/27 with 3,000 0.25 times as fast, 4x4x4/5 with 27,000 0.7, 11x11/11 with 46,000 1.2); and
// inputs between two threads' windows, in all rows that a thread reads at once (signals of halves, 1x31/31, 248, 0.45
// times as fast; 1x18/14, 112, 3 times; f32, 1x31/31, 124, 0.94, with routes 1.4).
inline constexpr double kApartShared[] = {1.4, 2};
inline constexpr int kApartAtOnce = 4, kVectorApartAtOnce = 1;
// Inputs between two threads' windows, of all planes at once, from which they have two and one of floats and halves:
// more would leave the L1 before they are used (in f32 14x14/14 0.60 of copy and 0.71, 12x12/12 0.40 and 0.51, signals
// 20/20 with dilation 2 0.35 and 0.60; 5x5/5 with two 0.85, 1x1/1 0.52 and 0.35).
inline constexpr int64_t kApartFar[] = {12, 18};
inline int64_t apart_fewest = 40000;
inline constexpr int64_t kApartReach = 128;
// Any window, backward: most threads of a block, blocks of so many on a multiprocessor, which bounds the registers, and
// outputs to a lane, at most. Kernels that know their window may have more of either, by the values that a lane has: up
// to 4, 8 and 16; and lanes may have so many channels of each output.
inline constexpr int kSumsThreads = 128, kSumsBlocks = 5, kSumsEach = 4;
inline constexpr int kSumsKnownBlocks[] = {6, 4, 3}, kSumsMost = 8, kSumsVector = 4;
// Instructions for an output of a lane, and for a row of 32 inputs that are written; what a warp waits for a row that
// it loads, for an addition and for what it writes, in the instructions that others may issue; with parameters and
// compiled for the window. For a line of memory; and of each further channel of a vector so much more of a wait. Fitted
// to 110 and 140 times of 100 windows in several tiles, which they tell within 14 and 12 % (root of the mean square).
struct SumsPrices {
  double output, write, load_wait, add_wait, write_wait;
};
inline constexpr SumsPrices kSumsPrices[] = {{1, 46, 10500, 350, 2500}, {78, 27, 2900, 215, 400}};
inline constexpr double kSumsLineCost = 3.9, kSumsVectorWait = 0.39;
// Neighbouring channels that a warp should have, and what having fewer costs beside.
inline constexpr int64_t kSumsSector = 8;
inline constexpr double kSumsPartMargin = 1.3;
// Outputs over an input from which summing, compiled for the window, is faster than looking at all of them (7x7/1 in
// f32, channels last, 0.32 and 0.37 of copy, 6x6/1 0.44 and 0.38); likewise in volumes (3x4x5/1 in f32 0.16 and 0.26,
// 3x3x3/1 0.46 and 0.38); and where so many of them lie along the width, channels first and last (3x15/1 0.29 and
// 0.41).
inline constexpr int64_t kSumsCovers = 49, kSumsDeepCovers = 50, kSumsWide[] = {15, 27}, kSumsWideCovers = 27;
// Up to which looking at them is, channels last and in whole vectors.
inline constexpr int64_t kGatherCovers = 9;
// Where nothing is compiled for the window: up to which looking at them is faster, in whole vectors or in pairs of
// halves; and one by one, in planes (3x3/1 in f32, channels first, 0.27 of copy against 0.21, 5x5/2 0.26 and 0.27,
// 7x7/2 0.23 and 0.27), in volumes (3x3x3/2 0.19 and 0.35, 2x2x2/1 0.22 and 0.24; dilated ones in vectors, too: 3x3x3/1
// 0.04 and 0.10) and in signals (4/1 0.20 and 0.28).
inline constexpr int64_t kGatherMost = 30, kGatherSingle = 9, kGatherDeepSingle = 3, kGatherSignalSingle = 2;
// Dilated, many may lie over an input of which few have it: how many do (3x3x3/3 with dilation 3 in f32 and bf16 0.29
// 0.14 of copy to 0.71 0.57, 3x3x3/2 with dilation 1x2x2, 3.4, 0.24 0.12 to 0.50 0.34).
inline constexpr double kGatherDilated = 4.5;
// Any window, backward, where few outputs reach an input: shared memory of a block.
inline constexpr int64_t kGatherBytes = 40 << 10;

// Windows by table and averages.
inline constexpr int kTableThreads = 256;
// Channels first, forward: instructions that a thread needs for a column, an output and a tap, about, and warps that a
// multiprocessor should hold.
inline constexpr double kTableColumnCost = 150, kTableOutputCost = 40, kTableTapCost = 8, kTableWarps = 20;
// Channels first, backward of averages: rows of a window from which it pays to keep the sum from row to row.
inline constexpr int64_t kTableTall = 6;
// Channels last, forward: taps from which whole blocks fetch a window, where outputs are few (at 100 taps it took twice
// as long as a thread for 16 bytes of channels, at 400 three quarters of its time).
inline constexpr int64_t kTableLong = 256;
// Backward: inputs for each output from which dx is cleared first (the GPU tests lower it), and blocks that it is cut
// into then if it is large.
inline int64_t table_cleared = 256;
inline constexpr int64_t kTableClearedBlocks = 132 * 8;
// Taps from which windows that are alike and hardly overlap are taken, too: forward (9x9/7 0.66 of copy became 0.80),
// dilated, and where their axes are not constants (20x8 0.51 would become 0.38); with routes, where unrolled they would
// spill registers, of floats and halves; backward, the GPU tests lower them.
inline constexpr int64_t kTableLargeForward = 65, kTableLargeDilated = 12, kTableLargeUnknown = 200;
inline constexpr int64_t kTableLargeRoutes[] = {121, 169};
inline int64_t table_large_backward = 64, table_large_last = 144;
// How many may overlap, forward: along an axis, and in all where channels are first or windows dilated (40 windows
// drawn between these: 1.6 times as fast in the mean, 0.73 to 5.2), twice as many if along one axis they do not; and
// where lanes meet in banks (10x9/4x9 of 24 columns, 2.5, in bf16 0.31 to 0.13 of copy; 12x12/8 of 40, 2.25, 0.29 to
// 0.53).
inline constexpr double kTableApart = 1.4, kTableOverlapping = 4.5, kTableMeeting = 2.4;
// The same backward, along an axis: channels first; last, and dilated; in all, of few channels that are last (of three
// 29x3/28x1 gains, 5x5x5/3 loses).
inline constexpr double kTableFirstBackward = 4, kTableLastBackward[] = {2.1, 1.5}, kTableFewBackward = 3.2;
// Where nothing is compiled for the window, backward: inputs for each output of floats and halves; with routes, taps of
// a window, and how many windows may overlap in all where it has no more than the first.
inline constexpr int64_t kTableUncompiled[] = {6, 8}, kTableUncompiledTaps[] = {16, 128};
inline constexpr double kTableUncompiledAll = 2.3;
// Forward, nothing compiled, channels first: inputs between neighbouring windows from which threads that have one each
// read too far apart, of planes and of signals, and how many windows may overlap along an axis then.
inline constexpr int64_t kTableStrides[] = {16, 28};
inline constexpr double kTableFarApart = 1.5;
// Backward, windows that share no input: inputs for each output, of floats and halves, from which dx is put. Channels
// first and few that are last, faster than by kernels compiled for the window (64 times of 25 windows drawn: 0.9 to 1.8
// times as fast, 1.2 in the mean; below, 3x3/3 with dilation 2 in bf16, 10, 0.81); channels first and last where
// nothing is compiled (1x3/3 channels first 1.2 to 1.5 and 0.7 to 0.95 times as fast as by gather.cuh; dilated ones 1.6
// to 6.7). Where pieces of dx are small, an output is looked at for several of them: for two, or as long as there are
// so many inputs to each look. And threads of a block, which waits for its codes and then for its dx (256 take 1.0 to
// 1.3 times as long).
inline constexpr double kTablePutKnown[2][2] = {{6, 12}, {12, 16}}, kTablePut[2][2] = {{2, 3.5}, {2, 8}};
inline constexpr double kTablePutLooks = 4;
inline constexpr int kTablePutThreads = 128;
// Compiled for their axes: columns of a window that are loaded at once, channels first and last.
inline constexpr int kTableKnownRow = 40, kTableKnownPacks = 8;
// Backward of averages: inputs to an output down a column from which they are not added again for each.
inline constexpr int kTableSame = 8;
// Registers for the outputs over an input at most (KeptOver), and threads up to which lanes share an output.
inline constexpr int kTableKnownOver = 54, kTableFewest = 64;
// Rows that are unrolled, and what is done for them in all; rows of inputs times outputs, and outputs of volumes.
inline constexpr int kTableUnrolledRows = 32, kTableUnrolledTaps = 160, kTableUnrolledPairs = 512,
                     kTableUnrolledDeep = 8;
// Channels last, backward: rows to a thread where they are not, and bytes of channels from which a thread goes along a
// signal.
inline constexpr int kTableRunDown = 16;
inline constexpr int64_t kTableSignalBytes = 32;
// Channels first, backward of maxima: what an input costs, by the time that copying it takes. Where known: and for each
// output over it, unrolled or not, and each that is loaded; where outputs are scattered: and for each of them.
inline constexpr double kKnownCost[] = {1.25, 0.13, 0.25, 0.45}, kScatterCost[] = {1.2, 8.5};
// Columns of a block from which rows are unrolled (the GPU tests lower it).
inline int64_t table_unrolled_columns = kTableThreads / 2;
// Inputs along the width that a thread of the channels-last backward does; twice as many of long rows.
inline constexpr int64_t kTableRun = 8, kTableLongRow = 64;

// Small windows: which form a problem gets.
// Channels last, staged: taps along the width, each an address, and registers that several channels may take.
inline constexpr int64_t kFlatWidthMost = 8;
inline constexpr int kFlatRegistersMost = 64;
// Signals whose channels have fewer bytes in all are staged: neighbouring threads would be far apart.
inline constexpr int64_t kFewChannelBytes = 64;
// Channels first: taps along the width from which outputs share them, and registers of their rows, of halves and of
// floats.
inline constexpr int kRunTaps = 6;
inline constexpr int kRunRegistersMost[] = {60, 28};
// Registers of rows that outputs share along the depth, and with routes.
inline constexpr int kDeepRegistersMost[] = {64, 84};
// Registers of rows beyond which so much is spilled that loops are faster (channels last, with routes: 4x4x4/1 0.04 of
// copy, 3x3x3/1 with dilation 2 0.11).
inline constexpr int kReducedMost = 128;
// Marching: rows of a thread at most, and registers of what it has asked for and not made yet, by direction; more rows
// share more of what is read (3x3x3/1 in f32 with one, two, three and four 0.46 0.54 0.56 0.58 of copy forward, 0.33
// 0.37 0.42 0.32 backward). Depths of a thread: places are counted from its first, in 16 bits.
inline constexpr int kMarchRowsMost[] = {4, 3}, kMarchRegistersMost[] = {88, 70};
inline constexpr int64_t kMarchDepthsMost = 64;
inline constexpr int64_t kMarchPlacesMost = 32;  // of a row: bits of a word
// Whether windows march wherever they can. The GPU tests set it at times; nothing else writes it.
inline bool march_always = false;

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
};

constexpr SmallWindowTuning ForwardTuning(const Form& f) {
  SmallWindowTuning t{.rows = 4, .blocks = 0, .ahead = 2, .streamed = false};
  const bool halves = f.size == 2;
  if (f.staged()) {  // blocks that wait for their piece need others beside them
    t.rows = 16, t.ahead = 1;
    t.blocks = f.taps() <= 16 ? 4 : f.reduced() <= 48 ? 3 : 2;
  } else if (f.taps() > 9 || f.stride[1] > 3) {  // many rows stay in registers
    t.rows = f.whole() ? 4 : 8;
    t.ahead = 1, t.blocks = 2;
  } else if (!f.whole() && halves) {  // single elements: few registers matter more than loads ahead
    t.rows = 16, t.ahead = 1;
  } else if (f.whole() && f.stride[2] == 1 && !f.dilated()) {
    if (f.last()) t.rows = 8, t.ahead = 4;
    if (!f.last() && halves && !f.routes) t.rows = 7, t.ahead = 7;
  }
  return t;
}

constexpr SmallWindowTuning BackwardTuning(const Form& f) {
  SmallWindowTuning t{.rows = 4, .blocks = 0, .ahead = 1, .streamed = false};
  const bool halves = f.size == 2, last = f.last();
  const int taps = f.taps();
  if (!f.whole()) {
    t.rows = halves ? 8 : 2;
    // As many blocks as spill nothing, or little.
    const int registers = f.kept() + f.stride[2] * f.group() * f.vector;
    if (f.staged()) t.blocks = registers > 40 || (f.over(0) > 1 && taps > 9) ? 2 : registers > 26 ? 3 : 4;
    if (f.over(0) > 1) t.rows = 8;
    if (f.packs_codes()) t.rows = 16;
    if (f.mode == Mode::kLastStaged) t.rows = 8;
    if (f.packs_codes() && registers <= 20 && f.over(1) > 1) t.ahead = 2;
  } else if (f.rolls() && taps > 9) {  // every strip begins with rows that only warm it up, so they are long
    t.rows = last ? 40 : 20;
    t.ahead = last ? 1 : 2;
    t.blocks = last || halves ? 3 : 0;
  } else if (f.stride[2] == 1 && f.over(1) * f.over(2) > 1) {
    t.rows = 14;
    t.ahead = f.over(0) > 1 ? 1 : last ? 2 : 4;
    t.blocks = f.over(0) > 1 ? 2 : last ? 0 : 3;
  } else if (f.disjoint()) {  // mostly stores
    t.rows = last && !f.split() ? 1 : 2;
    t.ahead = last ? 1 : 2;
    t.streamed = true;
  } else if (last) {
    t.rows = taps > 9 ? 8 : halves ? 4 : 2;
    t.ahead = taps > 9 ? 2 : 1;
    t.streamed = true;
    if (halves && taps <= 9 && f.kept() <= 48) t.blocks = 3;
  } else {
    t.rows = taps > 9 && !halves ? 2 : 4;
    t.ahead = taps > 9 ? 1 : 2;
    // As many as spill nothing: left alone the compiler takes a fifth more registers than it needs. Dilated volumes
    // keep more than is counted (2x2x2/2 with dilation 3 spilled 392 bytes with 4).
    const bool scattered = f.over(0) > 1 && f.dilation[1] * f.dilation[2] > 1;
    if (f.kept() <= 40) t.blocks = scattered ? 2 : halves ? 3 : 4;
  }
  return t;
}

}  // namespace poolgrad::cuda
