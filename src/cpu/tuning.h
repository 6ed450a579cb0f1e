// Every measured number of the CPU floor that cuts work into pieces, in one place. A kernel reads them when it is made
// and keeps what it chose, so tests shrink them to reach every path with small problems.
#pragma once

#include <cstdint>

namespace poolgrad {

inline constexpr int64_t kNever = int64_t{1} << 62;

// Whether lines that are written past the caches leave faster. On a Xeon of 16 cores that has Ice Lake's instruction
// sets backward is 1.2 to 1.7 times as fast in the mean; on one of Skylake's it takes 1.0 to 2.1 times as long
// (docs/performance/x86-avx512.md). One of these sets tells them apart.
inline bool GainsPastCaches() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512vbmi2") != 0;
#else
  return false;
#endif
}

struct CpuTuning {
  // plan: what is worth sharing at all, a thread of its own where it is shared, and a task, in bytes of values pooled
  // (Plan::Work). Values take about 75 ns for each KiB. Waking a thread took 2 us where it was still looking for work,
  // 5 to 10 where it had slept for 0.1 ms, and 20 to 40 where the processor had slept, too; but where some are woken,
  // more cost little: x comes from memory, of which one thread gets little, and who calls does what others have not
  // begun. With 32 in place of 128 KiB to a thread small problems drawn at random (24 windows, f32, 16 cores, calls
  // that follow each other) took, in the mean, 0.61 of their time for values, 0.77 with routes and 0.81 backward; on
  // two threads those of 10 to 30 us 0.72, 0.87 and 0.94; with 16 KiB longer than with 32. Beginning a task takes 0.3
  // to 5 us.
  int64_t bytes_shared = 128 << 10;
  int64_t bytes_per_thread = 32 << 10;
  int64_t bytes_per_task = 256 << 10;

  // Backward from x: bytes of x, dy and dx of one piece. Windows across the edge of a band are done in both its pieces,
  // and their winners looked at one by one, which costs more than a piece that does not fit the cache: bands are only
  // as small as it takes to keep the threads busy. What fits the caches is dealt out to the threads once; less than
  // piece_worth is one piece.
  int64_t piece_least = 384 << 10;
  int64_t piece_most = 8 << 20;
  int64_t piece_small_share = 1 << 20;
  int64_t piece_worth = 64 << 10;

  // Backward, sums (backward/sums.h): how much of them should stay in the first-level cache, and has to stay in the
  // second; the least that is worth a unit of its own; and outputs whose codes become places together.
  int64_t sums_cache = 48 << 10;
  int64_t sums_cache_2 = 256 << 10;
  int64_t sums_least = 16 << 10;
  int64_t sums_piece = 2048;
  int64_t sums_near = 0xFFFF;  // places that reach no further have 16 bits
  // From so many bytes of dx on it is written past the caches (backward/past-inl.h), and so much is put aside for it.
  int64_t past_caches = GainsPastCaches() ? 8 << 20 : kNever;
  int64_t past_aside = 2 << 10;

  // Averages and tables (lanes/layout.h): what is transposed at once, and how much of it is kept.
  int64_t lanes_tile = 16 << 10;
  int64_t lanes_cache = 256 << 10;

  // Forward. What a block of rows of the general kernels keeps in L1, and what a piece of a row may take of L2 before
  // rows are cut.
  int64_t forward_values_block = 24 << 10;
  int64_t forward_routes_block = 40 << 10;
  int64_t forward_piece = 256 << 10;
  // Up to so many taps for each input, windows are read whole, tap by tap, channels last: by fwd_cl_rows; with routes
  // by fwd_exact, too. (19 kinds of windows, f32 and bf16, with routes: up to 1 tap 1.0 to 6.6 times as fast as what
  // they got, mostly fwd_routes; 1 to 1.5 taps 1.1 to 1.5; 1.5 to 4 taps 0.7 to 1.4.)
  double forward_few = 1.5;
  // fwd_cl_rows: accumulators within L2, with room for the rows that pass by. fwd_large: the ring of reduced rows,
  // half of L2 (a ring of 1 MiB: 1.0 to 1.36 times as slow), and from so many bytes of y on its lines are asked for,
  // with routes (channels last, AVX-512, k5 to k31 at stride 1, 56x56 to 128x128: 1.1 to 1.2 times as fast; in scratch,
  // which fwd_transposed has of up to 1 MiB, 0.85). Channels first, the least row and plane in bytes: smaller ones are
  // better turned over, since few vectors of a row are full and blocks of planes stay in L2 (56x56 0.6 to 0.9, 64x64
  // f32 1.25, 96x96 bf16 1.15 to 1.25, 128x128 1.2 to 1.5 times as fast as by fwd_transposed and fwd_values).
  int64_t forward_kept = 256 << 10;
  int64_t forward_ring = 512 << 10;
  int64_t forward_asks = (1 << 20) + 1;
  int64_t large_row = 192;
  int64_t large_plane = 16 << 10;
  int64_t forward_sweep_codes = 16 << 10;  // fwd_cf_routes3x3: of a block
  // fwd_transposed: the fewest planes; the longest rows, in bytes, and those of signals and of windows of several
  // slices, or else the fewest taps; of windows by table, inputs of a row that are too many (twice as many of a byte
  // each); and what a block of planes takes of L2.
  int64_t transposed_planes = 8;
  int64_t transposed_row = 32;
  int64_t transposed_far = 96;
  int64_t transposed_taps = 121;
  int64_t transposed_table = 96;
  int64_t transposed_block = 256 << 10;
  // fwd_cl_cut: the least that is copied of a position, in bytes.
  int64_t cut_channels = 128;
  // Outputs between two looks at the Watch, where windows share nothing.
  int64_t forward_looks = 8192;
};

// The numbers in use. Only tests change them, and only while no plan is being made.
inline CpuTuning& Tuning() {
  static CpuTuning tuning;
  return tuning;
}

}  // namespace poolgrad
