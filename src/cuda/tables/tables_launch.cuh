// Cuts a problem for tables.cuh, once when a plan is made, and launches it.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>

#include "cuda/common/device.cuh"
#include "cuda/common/tuning.h"
#include "cuda/fast.h"
#include "cuda/tables/tables_cleared.cuh"
#include "cuda/tables/tables_first.cuh"
#include "cuda/tables/tables_last.cuh"
#include "cuda/tables/tables_put.cuh"
#include "spec/rules.h"

namespace poolgrad::cuda {

template <class T>
struct TableJob {
  TableParams<T> params{};  // without pointers
  bool staged = true;
  bool clears = false;  // tables_cleared.cuh
  bool scatters = false;
  bool puts = false;    // and its windows share no input (tables_put.cuh)
  bool planes = false;  // averages of whole planes, channels first
  int few = 0;          // channels last, backward: outputs over an input along the depth, where there are two at most
  int64_t blocks = 0;
  int threads = kTableThreads;
  size_t shared_bytes = 0;
  const void* known = nullptr;        // a kernel compiled for its axes (tables_known.cuh),
  std::shared_ptr<const void> plain;  // and the job for pointers that it cannot take
};

inline uint32_t NanWins(poolgrad_nan rule) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto bit = [&](float v, float best) { return Compare(v, best, rule) == Standing::kBeats ? 1u : 0u; };
  return bit(nan, 0.0f) << 1 | bit(0.0f, nan) << 2 | bit(nan, nan) << 3;
}

// The most that `each` of `all` neighbours together touch, where touched(first, last) says what some do.
template <class F>
int64_t MostTouched(int all, int each, F&& touched) {
  int64_t most = 0;
  for (int first = 0; first < all; first += each) {
    most = std::max<int64_t>(most, touched(first, std::min(first + each, all) - 1));
  }
  return most;
}

// Inputs that outputs [first, last] reach; outputs that reach inputs [first, last].
inline int64_t Reached(const TableAxis& a, int first, int last) {
  int begin, end;
  a.reach(first, last, &begin, &end);
  return end - begin;
}
inline int64_t Covering(const TableAxis& a, int first, int last) {
  int begin, end, unused;
  a.covering(first, &begin, &unused);
  a.covering(last, &unused, &end);
  return std::max(0, end - begin);
}

template <class T>
TableParams<T> MakeTableParams(const Problem& p) {
  TableParams<T> v{};
  for (int i = 0; i < 3; ++i) {
    const Axis& from = p.axis[i];
    const auto to = [](int64_t n) { return static_cast<int>(n); };
    // Scattered windows may be dilated: an axis knows how far they reach.
    const int64_t reach = from.table ? from.kernel : from.extent();
    v.axis[i] = {to(from.in), to(from.out), to(reach), to(from.stride), to(from.pad_lo), to(from.pad_hi), 0, 0,
                 false,       {},           {}};
    v.out[i] = FastDiv(from.out), v.in[i] = FastDiv(from.in), v.dilation[i] = FastDiv(from.dilation);
  }
  FillLists(p, v.axis, v.lists);
  for (int i = 0; i < 3; ++i) {
    TableAxis& a = v.axis[i];
    a.by_out = FastDiv(a.out), a.by_in = FastDiv(a.form == kAdaptive ? a.in : a.stride);
  }
  v.out_plane = FastDiv(p.out_plane());
  v.channels = static_cast<int>(p.channels), v.by_channels = FastDiv(p.channels);
  v.kernel[0] = FastDiv(p.axis[1].kernel), v.kernel[1] = FastDiv(p.axis[2].kernel);
  v.taps = static_cast<uint32_t>(p.taps());
  v.bits = p.kind == POOLGRAD_MAX ? p.routes.bits : 8;
  v.none = p.kind == POOLGRAD_MAX ? p.routes.none() : 0;
  v.line_bytes = p.routes.line_bytes;
  v.divisor = static_cast<int>(p.divisor);
  v.gradient_divisor = static_cast<int>(p.whole_window_gradient ? p.taps() : p.divisor);
  v.nan_wins = NanWins(p.nan);
  v.last_wins = p.ties == POOLGRAD_TIES_LAST;
  v.ignore_nan = p.nan == POOLGRAD_NAN_IGNORE;
  v.relu = p.relu;
  v.exact = p.relu || v.last_wins;
  v.count_padding = p.count_padding;
  return v;
}

// Several planes to a block, or some depths of one, or some rows of one depth: the first that takes no more than is
// wanted. bytes(planes, depths, rows) says what a piece takes; `all` are the depths, rows and planes there are.
template <class F>
void CutTable(Pieces& cut, int all_depths, int all_rows, int64_t planes, int64_t wanted, F&& bytes) {
  cut.planes = planes, cut.planes_each = 1, cut.depths_each = all_depths, cut.rows_each = all_rows;
  if (bytes(1, all_depths, all_rows) <= wanted) {
    // Small problems get a block for as few planes as fill the device.
    const int64_t fill = std::max<int64_t>(1, planes * kTableThreads / enough_threads);
    while (cut.planes_each < fill && bytes(2 * cut.planes_each, all_depths, all_rows) <= wanted) cut.planes_each *= 2;
  } else {
    const auto halve = [](int& n) { n = (n + 1) / 2; };
    while (cut.depths_each > 1 && bytes(1, cut.depths_each, all_rows) > wanted) halve(cut.depths_each);
    if (bytes(1, cut.depths_each, all_rows) > wanted) {
      while (cut.rows_each > 1 && bytes(1, 1, cut.rows_each) > wanted) halve(cut.rows_each);
    }
  }
  cut.rows = FastDiv(CeilDiv(all_rows, cut.rows_each));
  cut.depths = FastDiv(CeilDiv(all_depths, cut.depths_each));
}

inline int64_t BlocksOf(const Pieces& cut) {
  return CeilDiv(cut.planes, cut.planes_each) * cut.rows.divisor * cut.depths.divisor;
}

inline int TableThreads(int64_t items) {
  return static_cast<int>(std::clamp<int64_t>(CeilDiv(items, 32) * 32, 64, kTableThreads));
}

// Rows of outputs to a thread, of blocks that have so many columns of `rows`: what they find out for a column serves
// more of them, but threads should be many, and none without work.
inline int StripRows(int64_t lines, int rows, int64_t block_bytes, int64_t taps) {
  int best = 1;
  double least = 0;
  for (int strips = 1; strips <= std::min(rows, 64); ++strips) {
    const int strip = static_cast<int>(CeilDiv(rows, strips));
    const int64_t items = lines * CeilDiv(rows, strip), threads = TableThreads(items);
    const double each =
        kTableColumnCost + static_cast<double>(strip) * (kTableOutputCost + kTableTapCost * static_cast<double>(taps));
    const double held = static_cast<double>(std::max<int64_t>(1, kSharedMost / (block_bytes + 1024)) * threads / 32);
    const double cost =
        static_cast<double>(CeilDiv(items, threads) * threads) * each * std::max(1.0, kTableWarps / held);
    if (strips > 1 && cost >= least) continue;
    least = cost, best = strip;
  }
  return best;
}

template <class T>
void CutForward(const Problem& p, TableJob<T>& job) {
  TableParams<T>& v = job.params;
  const TableAxis *a = v.axis, &d = a[0], &h = a[1];
  const int64_t row = int64_t{a[2].in} * static_cast<int64_t>(sizeof(T)), slice = h.in * row;
  const auto reached = [](const TableAxis& axis, int each) {
    return MostTouched(axis.out, each, [&](int first, int last) { return Reached(axis, first, last); });
  };
  const auto slab = [&](int rows) { return CeilDiv(reached(h, rows) * row + 31, 16) * 16; };
  const auto spans = [&](int depths, int rows) {
    return static_cast<int64_t>(sizeof(Span)) * (a[2].out + rows + depths);
  };
  const auto piece = [&](int64_t planes, int depths, int rows) {
    if (rows < h.out) return reached(d, depths) * slab(rows);
    return CeilDiv((depths == d.out ? planes * d.in : reached(d, depths)) * slice + 32, 16) * 16;
  };
  const auto bytes = [&](int64_t planes, int depths, int rows) {
    return piece(planes, depths, rows) + spans(depths, rows);
  };
  CutTable(v.cut, d.out, h.out, p.batch * p.channels, staged_bytes, bytes);
  const int64_t taken = bytes(v.cut.planes_each, v.cut.depths_each, v.cut.rows_each);
  job.staged = taken <= kStagedBytesMost;
  job.shared_bytes = job.staged ? static_cast<size_t>(taken) : 0;
  v.cut.slab_bytes[0] = v.cut.rows_each < h.out && job.staged ? static_cast<int>(slab(v.cut.rows_each)) : 0;
  const int per_byte = v.bits < 8 ? 8 / v.bits : 1;
  v.padded = FastDiv(CeilDiv(a[2].out, per_byte) * per_byte);
  const int64_t lines = int64_t{v.cut.planes_each} * v.cut.depths_each * v.padded.divisor;
  v.strip = StripRows(lines, v.cut.rows_each, taken, p.taps());
  v.strips = FastDiv(CeilDiv(v.cut.rows_each, v.strip));
  const int64_t items = lines * v.strips.divisor;
  v.few = a[2].kernel > 8 ? 0 : a[2].kernel > 5 ? 8 : std::max(2, a[2].kernel);
  v.spans_place = static_cast<int>(piece(v.cut.planes_each, v.cut.depths_each, v.cut.rows_each));
  // Averages only gain where their windows begin in the same banks.
  const int64_t apart = a[2].in / a[2].out * static_cast<int64_t>(sizeof(T));
  v.wide = a[2].kernel >= 12 && (p.kind == POOLGRAD_MAX || (a[2].in % a[2].out == 0 && apart % 64 == 0));
  // Where a block has few outputs, lanes share them, as long as each has two rows of a window.
  while (p.kind == POOLGRAD_MAX && (items << v.log_sharers) < kTableThreads && (per_byte << v.log_sharers) < 32 &&
         int64_t{d.kernel} * h.kernel >= int64_t{4} << v.log_sharers) {
    ++v.log_sharers;
  }
  job.threads = TableThreads(items << v.log_sharers);
  job.blocks = BlocksOf(v.cut);
}

// Outputs over one input, at most. Of a list: from one on, those that begin before it ends, were it the longest.
inline int64_t MostOver(const TableAxis& a) {
  if (a.form == kAdaptive) return a.out <= a.in ? std::min(a.out, 2) : CeilDiv(a.out, a.in) + 1;
  if (a.form == kRegular) return std::min<int64_t>(a.out, CeilDiv(a.kernel, a.stride));
  int most = 0;
  for (int o = 0; o < a.out; ++o) most = std::max(most, FirstFrom(a.entries(), a.out, a.start(o) + a.kernel) - o);
  return most;
}

// The outputs over pieces of so many inputs, at most; of a whole axis all of them.
inline int64_t OutputsOver(const TableAxis& a, int inputs) {
  if (inputs == a.in) return a.out;
  return MostTouched(a.in, inputs, [&](int first, int last) { return Covering(a, first, last); });
}

// What BlockAxes take, of pieces of so many depths and rows.
template <class T>
int64_t TablesBytes(const TableParams<T>& v, int depths, int rows, bool width) {
  const TableAxis* a = v.axis;
  const int64_t outs = OutputsOver(a[0], depths) + OutputsOver(a[1], rows) + (width ? a[2].out : 0);
  const int64_t ins = int64_t{depths} + rows + (width ? a[2].in : 0);
  return outs * static_cast<int64_t>(sizeof(Span)) + ins * static_cast<int64_t>(sizeof(Interval));
}

// Few outputs, each over many inputs. Of channels that are last, a few that fill no words: a thread for each input is
// slower (tables_known.cuh, 22x22 to 12x4 of three 0.21 of copy, 0.49 here).
inline bool Scatters(const Problem& p) {
  if (p.kind != POOLGRAD_MAX || (p.channels_last() && !HasFewOddChannels(p))) return false;
  return (p.channels_last() ? 4 : 2) * p.out_plane() <= p.in_plane();
}

// False if what a single row needs does not fit.
template <class T>
bool CutScatter(const Problem& p, TableJob<T>& job) {
  TableParams<T>& v = job.params;
  const TableAxis *a = v.axis, &d = a[0], &h = a[1], &w = a[2];
  const int64_t beside = p.channels_last() ? p.channels : 1;
  const auto written = [&](int64_t planes, int depths, int rows) {
    return CeilDiv(planes * depths * rows * w.in * beside * static_cast<int64_t>(sizeof(T)) + 32, 16) * 16;
  };
  const auto given = [&](int64_t planes, int depths, int rows) {
    return CeilDiv(planes * OutputsOver(d, depths) * OutputsOver(h, rows) * w.out * beside *
                       static_cast<int64_t>(sizeof(Given<false>)),
                   16) *
           16;
  };
  job.puts = !p.by_table() && SharesNoInput(p);
  const auto bytes = [&](int64_t planes, int depths, int rows) {
    const int64_t puts = written(planes, depths, rows);
    return job.puts ? puts : puts + given(planes, depths, rows) + TablesBytes(v, depths, rows, false);
  };
  CutTable(v.cut, d.in, h.in, p.batch * p.channels / beside, staged_bytes, bytes);
  v.rows_place = static_cast<int>(written(v.cut.planes_each, v.cut.depths_each, v.cut.rows_each));
  v.spans_place = v.rows_place + static_cast<int>(given(v.cut.planes_each, v.cut.depths_each, v.cut.rows_each));
  const int64_t taken = bytes(v.cut.planes_each, v.cut.depths_each, v.cut.rows_each);
  job.shared_bytes = static_cast<size_t>(taken);
  job.blocks = BlocksOf(v.cut);
  return taken <= kStagedBytesMost;
}

// Pieces that leave the device several blocks to a multiprocessor, but not so small that outputs are met in many.
template <class T>
void CutCleared(const Problem& p, TableJob<T>& job) {
  TableParams<T>& v = job.params;
  const int64_t row = v.axis[2].in * (p.channels_last() ? p.channels : 1) * static_cast<int64_t>(sizeof(T));
  const int64_t wanted = std::clamp<int64_t>(p.x_bytes() / kTableClearedBlocks, staged_bytes / 4, staged_bytes * 7 / 4);
  CutTable(v.cut, v.axis[0].in, v.axis[1].in, p.batch * (p.channels_last() ? 1 : p.channels), wanted,
           [&](int64_t planes, int depths, int rows) { return planes * depths * rows * row; });
  // Of a plane as few as there can be, alike: outputs are met in all that their windows reach.
  const auto even = [](int& each, FastDiv& pieces, int all, int64_t most) {
    each = static_cast<int>(CeilDiv(all, CeilDiv(all, std::clamp<int64_t>(most, 1, all))));
    pieces = FastDiv(CeilDiv(all, each));
  };
  const int64_t slice = v.axis[1].in * row;
  if (v.cut.planes_each == 1) even(v.cut.depths_each, v.cut.depths, v.axis[0].in, wanted / slice);
  if (slice > wanted) even(v.cut.rows_each, v.cut.rows, v.axis[1].in, wanted / row);
  job.blocks = BlocksOf(v.cut);
  job.shared_bytes = static_cast<size_t>(TablesBytes(v, v.cut.depths_each, v.cut.rows_each, true));
}

// False if what a single row needs does not fit.
template <class T>
bool CutBackward(const Problem& p, TableJob<T>& job) {
  TableParams<T>& v = job.params;
  const TableAxis *a = v.axis, &d = a[0], &h = a[1], &w = a[2];
  const auto given = [&](int64_t planes, int depths, int rows) {
    const int64_t size = p.kind == POOLGRAD_AVERAGE ? sizeof(Given<true>) : sizeof(Given<false>);
    return CeilDiv((planes * OutputsOver(d, depths) * OutputsOver(h, rows) + 1) * w.out * size, 16) *
           16;  // one gives nothing
  };
  const auto rows_of = [](int64_t planes, int depths, int rows) { return planes * depths * rows; };
  // Beside what a piece takes, it is cut by what it writes: a block that does much waits once for little.
  const auto bytes = [&](int64_t planes, int depths, int rows) {
    const int64_t count = rows_of(planes, depths, rows);
    return std::max<int64_t>(
        given(planes, depths, rows) + count * sizeof(RowAbove) + TablesBytes(v, depths, rows, false),
        count * w.in * static_cast<int64_t>(sizeof(T)));
  };
  CutTable(v.cut, d.in, h.in, p.batch * p.channels, staged_bytes, bytes);
  const Pieces& cut = v.cut;
  v.rows_place = static_cast<int>(given(cut.planes_each, cut.depths_each, cut.rows_each));
  v.spans_place = v.rows_place + static_cast<int>(rows_of(cut.planes_each, cut.depths_each, cut.rows_each) *
                                                  int64_t{sizeof(RowAbove)});
  const int64_t taken = v.spans_place + TablesBytes(v, cut.depths_each, cut.rows_each, false);
  v.two = MostOver(w) <= 2 && MostOver(h) <= 2;
  job.shared_bytes = static_cast<size_t>(taken);
  v.half = FastDiv(CeilDiv(w.in, 2));
  v.tall = p.kind == POOLGRAD_AVERAGE && h.kernel >= kTableTall;
  v.rows_at_once = std::max(1, kTableThreads / static_cast<int>(v.half.divisor));
  job.blocks = BlocksOf(cut);
  return taken <= kStagedBytesMost;
}

inline bool IsGlobal(const Problem& p) {
  return std::none_of(std::begin(p.axis), std::end(p.axis),
                      [](const Axis& a) { return a.table || a.out != 1 || a.kernel != a.in || a.pad_lo != 0; });
}

// One window over everything is one long row.
inline Problem FoldedGlobal(const Problem& p) {
  if (!IsGlobal(p)) return p;
  Problem folded = p;
  Axis& w = folded.axis[2];
  w.in = w.kernel = w.stride = p.in_plane();
  w.pad_hi = 0;
  folded.axis[0] = folded.axis[1] = Axis{};
  return folded;
}

template <class T>
std::shared_ptr<const void> MakeTableJob(const Problem& original, bool forward) {
  auto job = std::make_shared<TableJob<T>>();
  job->clears = !forward && TablesClear(original);
  const Problem p = job->clears ? original : FoldedGlobal(original);
  job->params = MakeTableParams<T>(p);
  job->planes = IsGlobal(p) && p.kind == POOLGRAD_AVERAGE && !p.channels_last();
  if (job->planes && job->params.gradient_divisor == 0) job->params.gradient_divisor = static_cast<int>(p.in_plane());
  job->scatters = !forward && !job->clears && (Scatters(p) || Puts(p)) && CutScatter(p, *job);
  if (job->clears) {
    CutCleared(p, *job);
  } else if (p.channels_last() && !job->scatters) {
    const TableAxis* a = job->params.axis;
    const bool sized = a[0].sized || a[1].sized || a[2].sized;
    if (!forward && !sized && p.routes.bits <= 8 && MostOver(a[1]) <= 2 && MostOver(a[2]) <= 2 && MostOver(a[0]) <= 2) {
      job->few = static_cast<int>(std::max<int64_t>(1, MostOver(a[0])));
    }
    return job;
  } else if (forward) {
    CutForward(p, *job);
  } else if (!job->scatters && !CutBackward(p, *job)) {
    return nullptr;
  }
  return job->blocks < kFastThreads ? job : nullptr;
}

// Channels last, forward: a quarter of the threads that the device has are too few, if each of them reads a lot.
inline bool FetchedByBlocks(const Problem& p, int64_t threads) {
  return threads < enough_threads / 8 && p.taps() >= kTableLong;
}

template <class T>
using TableKernel = void (*)(TableParams<T>);

template <class T, TableOp kOp>
TableKernel<T> ForwardKernel(bool channels_last, bool staged, bool vector, bool few) {
  if (channels_last && staged) return TableLastStaged<T, kOp>;
  if (channels_last) return vector ? TableLastForward<T, kOp, true> : TableLastForward<T, kOp, false>;
  if (staged && few) return TableFirstForward<T, kOp, true, true>;
  return staged ? TableFirstForward<T, kOp, true, false> : TableFirstForward<T, kOp, false, false>;
}

template <class T, bool kAverage>
TableKernel<T> BackwardKernel(bool channels_last, bool vector, int few) {
  if (!channels_last) return TableFirstBackward<T, kAverage>;
  if (few == 1)
    return vector ? TableLastBackwardFew<T, kAverage, true, 1> : TableLastBackwardFew<T, kAverage, false, 1>;
  if (few == 2)
    return vector ? TableLastBackwardFew<T, kAverage, true, 2> : TableLastBackwardFew<T, kAverage, false, 2>;
  return vector ? TableLastBackward<T, kAverage, true> : TableLastBackward<T, kAverage, false>;
}

template <class T>
cudaError_t LaunchTable(const Problem& p, bool forward, const Args& args, void* stream) {
  const auto& job = *static_cast<const TableJob<T>*>(args.layout);
  TableParams<T> v = job.params;
  v.source = static_cast<const T*>(args.source);
  v.result = static_cast<T*>(args.result);
  v.routes = args.routes;
  if (job.known) {
    const bool aligned = Aligned(args.source, 16) && Aligned(args.result, 16) && Aligned(args.routes, 16);
    if (!aligned && (p.channels_last() || forward)) {
      if (!job.plain) return cudaErrorNotSupported;
      Args again = args;
      again.layout = job.plain.get();
      return LaunchTable<T>(p, forward, again, stream);
    }
    void* pointers[] = {&v};
    return LaunchPointers(job.known, job.blocks, job.threads, job.shared_bytes, stream, pointers);
  }
  const bool average = p.kind == POOLGRAD_AVERAGE, last = p.channels_last();
  if (job.clears) {
    return Launch(last ? TableCleared<T, true> : TableCleared<T, false>, job.blocks, kTableThreads, job.shared_bytes,
                  stream, v);
  }
  bool vector = false, staged = job.staged;
  int64_t blocks = job.blocks;
  int threads = job.threads;
  size_t shared_bytes = job.shared_bytes;
  if (job.scatters && job.puts) {
    return Launch(last ? TablePut<T, true> : TablePut<T, false>, blocks, kTablePutThreads, shared_bytes, stream, v);
  }
  if (job.scatters) {
    return Launch(last ? TableScatter<T, true> : TableScatter<T, false>, blocks, threads, shared_bytes, stream, v);
  }
  if (last) {
    constexpr int64_t kVector = 16 / sizeof(T);
    vector = p.channels % kVector == 0 && Aligned(args.source, 16) && Aligned(args.result, 16) &&
             Aligned(args.routes, 8) && p.taps() < 1 << 16;
    const int64_t across = CeilDiv(p.channels, vector ? kVector : 4);
    int64_t places = p.out_plane() * p.batch;
    if (!forward) {  // runs of them, which share what is found once
      const int64_t row = v.axis[2].in, rows = p.batch * v.axis[0].in * v.axis[1].in;
      v.run = static_cast<int>(std::clamp<int64_t>(rows * row * across / enough_threads, 1,
                                                   row < kTableLongRow ? kTableRun : 2 * kTableRun));
      v.runs = FastDiv(CeilDiv(row, v.run));
      places = rows * v.runs.divisor;
    }
    staged = forward && vector && FetchedByBlocks(p, places * across);
    const int64_t runs = CeilDiv(across, kTableRunBytes / 16);
    v.across = FastDiv(staged ? runs : across);
    v.threads = static_cast<uint32_t>(places * across);
    threads = kTableThreads;
    blocks = staged ? places * runs : CeilDiv(places * across, kTableThreads);
    shared_bytes = staged ? kTableStages * kTablePlaces * kTableRunBytes : 0;
  }
  const TableKernel<T> kernel = !forward && average ? BackwardKernel<T, true>(last, vector, job.few)
                                : !forward          ? BackwardKernel<T, false>(last, vector, job.few)
                                : average     ? ForwardKernel<T, TableOp::kAverage>(last, staged, vector, v.few > 0)
                                : args.routes ? ForwardKernel<T, TableOp::kRoutes>(last, staged, vector, v.few > 0)
                                              : ForwardKernel<T, TableOp::kMax>(last, staged, vector, v.few > 0);
  const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
  if (job.planes && !forward && Aligned(args.result, 16)) {
    return Launch(TablePlaneShares<T>, CeilDiv(v.cut.planes * plane_bytes, int64_t{16} * kTableThreads), kTableThreads,
                  0, stream, v);
  }
  if (job.planes && forward && plane_bytes >= 2048 && Aligned(args.source, 16)) {
    // A block for as few planes as leave every multiprocessor some.
    const int each = v.cut.planes < enough_threads / 64 ? 8 : 32;
    return Launch(each == 8 ? TablePlaneAverages<T, 8> : TablePlaneAverages<T, 32>, CeilDiv(v.cut.planes, each),
                  kTableThreads, static_cast<size_t>(kTableStages * (kTablePlaneStage + each) * 16), stream, v);
  }
  return Launch(kernel, blocks, threads, shared_bytes, stream, v);
}

}  // namespace poolgrad::cuda
