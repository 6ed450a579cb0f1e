// Which windows by table and averages are compiled for their axes (tables_known.cuh), and how they are cut.
#pragma once

#include <numeric>

#include "cuda/tables/tables_form.h"
#include "cuda/tables/tables_launch.cuh"

namespace poolgrad::cuda {

// Taps inside.
inline int SmallestWindow(const TableAxis& a, int dilation) {
  int least = a.in;
  for (int o = 0; o < a.out; ++o) {
    const Span s = a.span(o);
    const int cut = static_cast<int>(CeilDiv(s.begin - s.start, dilation));
    least = std::min(least, static_cast<int>(CeilDiv(std::max(0, s.end - s.start), dilation)) - cut);
  }
  return std::max(0, least);
}

template <class T>
TableForm TableFormOf(const Problem& p, const TableParams<T>& v, bool forward, TableOp what) {
  TableForm f{};
  for (int i = 0; i < 3; ++i) {
    const TableAxis& a = v.axis[i];
    f.in[i] = a.in, f.out[i] = a.out, f.kernel[i] = static_cast<int>(p.axis[i].kernel), f.form[i] = a.form;
    f.dilation[i] = static_cast<int>(p.axis[i].dilation);
    if (a.form == kRegular) f.stride[i] = a.stride, f.pad_lo[i] = a.pad_lo, f.pad_hi[i] = a.pad_hi;
    f.least[i] = SmallestWindow(a, f.dilation[i]), f.over[i] = static_cast<int>(std::max<int64_t>(1, MostOver(a)));
  }
  f.what = what, f.bits = v.bits;
  f.divisor = forward ? v.divisor : v.gradient_divisor;
  f.count_padding = v.count_padding, f.backward = !forward, f.last = p.channels_last();
  f.vector = f.abreast = 1;
  return f;
}

inline bool IsWhole(const Pieces& cut, const int (&depths)[3]) {
  return cut.depths_each == depths[0] && cut.rows_each == depths[1];
}

// So many that the last of several goes has work for all, too.
inline int EvenThreads(int64_t items) { return TableThreads(CeilDiv(items, CeilDiv(items, kTableThreads))); }

// `rows` of a piece are unrolled where it is not too long for the caches of instructions, and leaves the block's
// threads something to do.
inline bool Unrolls(const TableForm& f, int rows, int64_t columns) {
  const int64_t work = f.backward ? f.over[2] * f.over[1] * 2 : f.kernel[2];
  if (f.dilation[0] * f.dilation[1] != 1) return false;
  if (!f.backward && f.least[0] == 0) return false;  // windows without a depth are settled, too
  if (!f.backward && (f.in[1] * f.out[1] > kTableUnrolledPairs || (f.in[0] > 1 && f.out[1] > kTableUnrolledDeep))) {
    return false;
  }
  return rows == (f.backward ? f.in[1] : f.out[1]) && f.form[1] != kListed && f.in[1] <= kTableUnrolledRows &&
         f.in[1] * work <= kTableUnrolledTaps && columns >= table_unrolled_columns;
}

// Elements that all windows have side by side in whole vectors.
template <class T>
int ReadAtOnce(const TableForm& f, const TableAxis& w) {
  int at_once = 16 / static_cast<int>(sizeof(T));
  if (f.least[2] != f.kernel[2] || f.dilation[2] != 1) return 1;
  for (const int n : {f.in[2], f.kernel[2]}) at_once = std::gcd(at_once, n);
  for (int o = 0; o < w.out; ++o) at_once = std::gcd(at_once, w.span(o).begin);
  return at_once;
}

// False: it is not compiled for its axes.
template <class T>
bool KnowForward(TableJob<T>& job, TableForm& f) {
  TableParams<T>& v = job.params;
  const bool average = f.what == TableOp::kAverage;
  if (!job.staged) return false;
  if (!average && std::min({f.least[0], f.least[1], f.least[2]}) == 0) return false;
  f.whole = IsWhole(v.cut, f.out);
  int64_t items = int64_t{v.cut.planes_each} * v.cut.depths_each * v.padded.divisor;
  f.unrolled = f.kernel[2] <= kTableKnownRow && Unrolls(f, v.cut.rows_each, items);
  if (f.unrolled) v.strip = f.out[1], v.strips = FastDiv(1);
  items *= v.strips.divisor;
  // Few outputs are shared by lanes, which read side by side.
  const int per_byte = v.bits < 8 ? 8 / v.bits : 1;
  while (!average && !f.unrolled && (items << f.log_sharers) < kTableFewest && (per_byte << f.log_sharers) < 32 &&
         v.taps >= uint32_t{8} << f.log_sharers) {
    ++f.log_sharers;
  }
  while (2 * f.abreast <= std::min(1 << f.log_sharers, f.least[2])) f.abreast *= 2;
  if (f.abreast == 1 && f.kernel[2] <= kTableKnownRow) f.vector = ReadAtOnce<T>(f, v.axis[2]);
  job.threads = EvenThreads(items << f.log_sharers);
  return true;
}

// Of channels that are last, as many as fill aligned vectors of up to 16 bytes.
template <class T>
int ChannelsAtOnce(const Problem& p) {
  return static_cast<int>(std::gcd(p.channels, int64_t{16 / sizeof(T)}));
}

template <class T>
bool KnowLastForward(const Problem& p, TableJob<T>& job, TableForm& f) {
  TableParams<T>& v = job.params;
  if (p.channels * f.in[2] >= int64_t{1} << 30 || v.taps >= 1 << 16) return false;
  if (std::min({f.least[0], f.least[1], f.least[2]}) == 0) return false;
  f.vector = ChannelsAtOnce<T>(p);
  const bool routes = f.what == TableOp::kRoutes;
  // Signals of halves: what lanes share is more than what they do.
  const bool shares = routes && p.channels > 1 && f.vector * f.bits < 8;
  if (shares && sizeof(T) == 2 && f.kernel[0] * f.kernel[1] == 1) return false;
  // Lanes that share a byte of routes are neighbours.
  while (shares && f.vector * f.bits << f.log_sharers < 8) ++f.log_sharers;
  const int64_t sharers = int64_t{1} << f.log_sharers, across = CeilDiv(p.channels / f.vector, sharers) * sharers;
  const int64_t columns = p.batch * f.out[0] * f.out[2] * across;
  // Blocks that fetch windows pay where threads are fewer still, and have 128 bytes of channels to fetch.
  const int64_t filled = std::min<int64_t>(p.channels * sizeof(T), kTableRunBytes);
  if (f.vector * sizeof(T) == 16 && FetchedByBlocks(p, 3 * columns * f.out[1] * kTableRunBytes / filled)) return false;
  f.whole = true;
  f.unrolled = f.kernel[2] <= kTableKnownPacks &&
               Unrolls(f, f.out[1], columns / std::max<int64_t>(1, enough_threads / kTableThreads));
  const int64_t threads = columns * (f.unrolled ? 1 : f.out[1]);
  if (threads >= kFastThreads) return false;
  v.across = FastDiv(across), v.threads = static_cast<uint32_t>(threads);
  job.blocks = CeilDiv(threads, kTableThreads), job.threads = kTableThreads, job.shared_bytes = 0;
  return true;
}

// Rows to a thread of those of a block that has so many columns of `rows`.
inline int RowsEach(int64_t columns, int rows) {
  const int64_t strips = std::clamp<int64_t>(2 * kTableThreads / std::max<int64_t>(1, columns), 1, CeilDiv(rows, 4));
  return static_cast<int>(CeilDiv(rows, strips)) | (rows > 1 ? 1 : 0);  // an odd number keeps banks apart
}

// What an input costs: asking the outputs over it, and loading those that begin with its row.
inline double KnownCost(const TableForm& f) {
  const double loaded = f.over[0] * f.over[2] * static_cast<double>(f.out[1]) / f.in[1];
  const int over = f.over[0] * f.over[1] * f.over[2];
  return kKnownCost[0] + (f.unrolled ? kKnownCost[1] * over : kKnownCost[2] * over + kKnownCost[3] * loaded);
}

// Whether looking up all outputs over an input is less than finding where rows of them begin and end (in bf16 138x138
// to 83x51 0.22 to 0.30 of copy, 90x86 to 81x14 0.21 to 0.34; 185x113 to 59x138 would be 0.20 to 0.18).
inline bool LooksUp(const TableForm& f) {
  if (f.what != TableOp::kAverage || f.unrolled || f.signal) return false;
  return f.over[0] * f.over[1] * f.over[2] <= 4 ? f.in[1] < kTableSame * f.out[1] : f.in[1] < 3 * f.out[1];
}

template <class T>
bool KnowFirstBackward(const Problem& p, TableJob<T>& job, TableForm& f) {
  TableParams<T>& v = job.params;
  const TableAxis *a = v.axis, &d = a[0], &h = a[1], &w = a[2];
  // Where outputs are looked up, lines and slices end with one that gives nothing.
  const auto outputs = [&](int64_t planes, int depths, int rows) {
    const int64_t lines = std::max<int64_t>(1, OutputsOver(h, rows)) + f.looks_up;
    return planes * std::max<int64_t>(1, OutputsOver(d, depths)) * lines * (w.out + f.looks_up);
  };
  const auto written = [&](int64_t planes, int depths, int rows) {
    return CeilDiv(planes * depths * rows * w.in * static_cast<int64_t>(sizeof(T)) + 32, 16) * 16;
  };
  const int64_t given = p.kind == POOLGRAD_MAX ? sizeof(Given<false>) : sizeof(Given<true>);
  const auto lines = [&](int rows) { return f.looks_up * rows * f.over[1] * static_cast<int64_t>(sizeof(int)); };
  const auto bytes = [&](int64_t planes, int depths, int rows) {
    return written(planes, depths, rows) + CeilDiv(outputs(planes, depths, rows) * given, 16) * 16 + lines(rows);
  };
  const Pieces& cut = v.cut;
  int64_t columns = 0;
  const auto lay = [&](bool looks_up) {
    f.looks_up = looks_up;
    CutTable(v.cut, d.in, h.in, p.batch * p.channels, staged_bytes, bytes);
    v.rows_place = static_cast<int>(written(cut.planes_each, cut.depths_each, cut.rows_each));
    job.shared_bytes = static_cast<size_t>(bytes(cut.planes_each, cut.depths_each, cut.rows_each));
    v.spans_place = static_cast<int>(static_cast<int64_t>(job.shared_bytes) - lines(cut.rows_each));
    job.blocks = BlocksOf(cut);
    f.whole = IsWhole(cut, f.in);
    columns = int64_t{cut.planes_each} * cut.depths_each * w.in;
    f.unrolled = !looks_up && Unrolls(f, cut.rows_each, columns);
  };
  lay(false);
  if (LooksUp(f)) lay(true);
  v.strip = f.unrolled ? cut.rows_each : RowsEach(columns, cut.rows_each);
  v.strips = FastDiv(CeilDiv(cut.rows_each, v.strip));
  if (f.what == TableOp::kRoutes && !TablesClear(p) && Scatters(p)) {
    if (KnownCost(f) > kScatterCost[0] + kScatterCost[1] * p.out_plane() / p.in_plane()) return false;
  }
  job.threads = TableThreads(columns * v.strips.divisor);
  return KeptOver(f, sizeof(T)) <= kTableKnownOver && job.shared_bytes <= static_cast<size_t>(kStagedBytesMost) &&
         job.blocks < kFastThreads;
}

template <class T>
bool KnowLastBackward(const Problem& p, TableJob<T>& job, TableForm& f) {
  TableParams<T>& v = job.params;
  if (p.channels * f.in[2] >= int64_t{1} << 30) return false;
  if (f.what == TableOp::kRoutes && Scatters(p)) return false;
  f.vector = ChannelsAtOnce<T>(p);
  if (KeptOver(f, sizeof(T)) > kTableKnownOver) return false;
  const int64_t across = p.channels / f.vector, columns = p.batch * f.in[0] * f.in[2] * across;
  f.whole = true;
  f.unrolled = Unrolls(f, f.in[1], columns / std::max<int64_t>(1, enough_threads / kTableThreads));
  v.run = f.unrolled ? f.in[1]
                     : static_cast<int>(CeilDiv(f.in[1], std::clamp<int64_t>(enough_threads / columns, 1, f.in[1])));
  if (!f.unrolled) v.run = std::min(v.run, kTableRunDown);
  v.runs = FastDiv(CeilDiv(f.in[1], v.run));
  v.across = FastDiv(across);
  const int64_t threads = columns * v.runs.divisor;
  if (threads >= kFastThreads) return false;
  v.threads = static_cast<uint32_t>(threads);
  job.blocks = CeilDiv(threads, kTableThreads), job.threads = kTableThreads, job.shared_bytes = 0;
  return true;
}

// Null: the kernel without constants it shall be, or compiling failed.
template <class T>
std::shared_ptr<const void> MakeKnownTable(const Problem& original, poolgrad_op op, const TableCompiler& compile) {
  const bool forward = op != POOLGRAD_OP_BACKWARD, max = original.kind == POOLGRAD_MAX;
  Problem p = original;
  // The rows of a signal are short columns: a thread goes along it, unless neighbours would write far apart.
  const bool signal = !forward && p.axis[0].in == 1 && p.axis[1].in == 1 && p.axis[0].out == 1 && p.axis[1].out == 1 &&
                      (!p.channels_last() || p.channels * SizeOf(p.dtype) >= kTableSignalBytes);
  if (signal) std::swap(p.axis[1], p.axis[2]);
  auto job = std::make_shared<TableJob<T>>();
  job->params = MakeTableParams<T>(p);
  TableParams<T>& v = job->params;
  // Bytes of a plane are counted in 31 bits.
  if (p.in_plane() * static_cast<int64_t>(sizeof(T)) >= int64_t{1} << 31 || (forward && v.exact)) return nullptr;
  for (int i = 0; i < 3; ++i) {
    if (v.axis[i].sized) return nullptr;
  }
  TableForm f = TableFormOf(p, v, forward,
                            !max                        ? TableOp::kAverage
                            : op == POOLGRAD_OP_FORWARD ? TableOp::kMax
                                                        : TableOp::kRoutes);
  f.signal = signal;
  if ((!forward || !max) && IsDilated(f)) return nullptr;
  if (forward && p.channels_last()) {
    if (!KnowLastForward(p, *job, f)) return nullptr;
  } else if (forward) {
    CutForward(p, *job);
    if (job->blocks >= kFastThreads || !KnowForward(*job, f)) return nullptr;
  } else {
    if (f.bits > 16) return nullptr;
    if (!(p.channels_last() ? KnowLastBackward(p, *job, f) : KnowFirstBackward(p, *job, f))) return nullptr;
  }
  job->known = compile(f);
  if (!job->known) return nullptr;
  if (!IsDilated(f)) job->plain = MakeTableJob<T>(original, forward);
  return job;
}

#define POOLGRAD_CUDA_TABLES(T)                                                                                    \
  template <>                                                                                                      \
  std::shared_ptr<const void> MakeTables<T>(const Problem& p, bool forward) {                                      \
    return MakeTableJob<T>(p, forward);                                                                            \
  }                                                                                                                \
  template <>                                                                                                      \
  std::shared_ptr<const void> MakeKnownTables<T>(const Problem& p, poolgrad_op op, const TableCompiler& compile) { \
    return MakeKnownTable<T>(p, op, compile);                                                                      \
  }                                                                                                                \
  template <>                                                                                                      \
  cudaError_t RunTables<T>(const Problem& p, bool forward, const Args& args, void* stream) {                       \
    return LaunchTable<T>(p, forward, args, stream);                                                               \
  }

}  // namespace poolgrad::cuda
