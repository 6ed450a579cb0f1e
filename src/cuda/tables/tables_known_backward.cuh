// Windows by table and averages, compiled for their axes, backward: a thread has a column of inputs and keeps what the
// outputs over its row give; with each row of outputs that begins, a row of them is loaded and the oldest forgotten.
#pragma once

#include "cuda/tables/tables_first.cuh"
#include "cuda/tables/tables_known.cuh"

namespace poolgrad::cuda {

// Goes down rows [first, end) of inputs. load(oh, &row) loads the outputs that begin with a row, which has `start` and
// `end`; visit(at, next, rows) has rows [at, next) of the inputs and those outputs that may lie over them, in order:
// one row, or of averages that have long columns all under the same outputs, which get the same.
template <TableForm f, class Row, class Load, class Visit>
__device__ void GoDown(const KnownAxis<f, 1>& h, int first, int end, Load&& load, Visit&& visit) {
  constexpr int kOver = f.over[1];
  Row rows[kOver];
#pragma unroll
  for (int i = 0; i < kOver; ++i) rows[i].start = rows[i].end = 0;
  const auto begin_outputs = [&](auto oh) {
#pragma unroll
    for (int i = 0; i + 1 < kOver; ++i) rows[i] = rows[i + 1];
    load(oh, rows[kOver - 1]);
    rows[kOver - 1].start = h.start(oh), rows[kOver - 1].end = h.end(oh);
  };
  if constexpr (f.unrolled) {
    using Known = KnownAxis<f, 1>;
    Unrolled<0, (Known::StartOf(0) < f.in[1] ? Known::StartOf(0) : f.in[1])>([&](auto at) { visit(at, at + 1, rows); });
    Unrolled<0, f.out[1]>([&](auto oh) {
      constexpr int kOh = decltype(oh)::value, kFrom = Known::StartOf(kOh),
                    kNext = kOh + 1 < f.out[1] ? Known::StartOf(kOh + 1) : f.in[1];
      begin_outputs(oh);
      Unrolled<(kFrom > 0 ? kFrom : 0), (kNext < f.in[1] ? kNext : f.in[1])>([&](auto at) { visit(at, at + 1, rows); });
    });
  } else {
    int oh = h.covering(first).begin, at = first;
    const auto visit_all = [&](int next) {
#pragma unroll 1
      while (at < next) {
        int same = at + 1;
        if constexpr (f.what == TableOp::kAverage && f.in[1] >= kTableSame * f.out[1]) {
          same = next;
#pragma unroll
          for (const Row& row : rows) same = at < row.end ? min(same, row.end) : same;
        }
        visit(at, same, rows);
        at = same;
      }
    };
    visit_all(oh < f.out[1] ? min(h.start(oh), end) : end);
#pragma unroll 1
    for (; at < end; ++oh) {
      begin_outputs(oh);
      visit_all(oh + 1 < f.out[1] ? min(h.start(oh + 1), end) : end);
    }
  }
}

// visit(row, depth, column) of every output that may lie over row `at` of the inputs, in order.
template <TableForm f, class Row, class Visit>
__device__ void ForOver(int at, const Row (&rows)[f.over[1]], Visit&& visit) {
#pragma unroll
  for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
    for (int h = 0; h < f.over[1]; ++h) {
      if (at >= rows[h].end) continue;
#pragma unroll
      for (int w = 0; w < f.over[2]; ++w) visit(rows[h], d, w);
    }
  }
}

// What an average gives to each input under it.
template <TableForm f>
__device__ float ShareOf(float dy, int counted) {
  return Quotient(dy, static_cast<float>(f.divisor != 0 ? f.divisor : counted));
}

// ---- channels first ----

// The outputs that reach a block's piece, in slices of lines; kNone: each line ends with one that gives nothing, and
// each slice, of which there is one at least, with a line of them.
template <class T, TableForm f, int kNone>
struct PieceOutputs {
  static constexpr int kLine = f.out[2] + kNone;
  Interval depths{0, f.out[0]}, rows{0, f.out[1]};
  int lines, slices;

  __device__ PieceOutputs(const KnownAxes<f>& a, const Piece& piece) {
    if constexpr (!f.whole) {
      if (piece.depths < f.in[0]) {
        depths = {a.d.covering(piece.depth).begin, a.d.covering(piece.depth + piece.depths - 1).end};
      }
      if (piece.rows < f.in[1]) rows = {a.h.covering(piece.row).begin, a.h.covering(piece.row + piece.rows - 1).end};
    }
    lines = f.whole ? f.out[1] : max(0, rows.end - rows.begin);
    slices = f.whole ? f.out[0] : max(kNone, depths.end - depths.begin);
  }
  __device__ int slice_entries() const { return (lines + kNone) * kLine; }
  // make(entry, value, code); a thread stays with a column, or several.
  template <class Make>
  __device__ void Load(const TableParams<T>& p, const KnownAxes<f>& a, const Piece& piece, Make&& make) const {
    const int across = min(kLine, static_cast<int>(blockDim.x)), group = threadIdx.x / across;
    const int groups = blockDim.x / across, all = f.whole ? f.out[1] + kNone : lines + kNone;
    if (group == groups) return;
    const int64_t first_line = piece.plane * f.out[0] * f.out[1];
    for (int ow = threadIdx.x - group * across; ow < kLine; ow += across) {
      const int counted = ow < f.out[2] ? a.w.counted(ow) : 0;
      for (int first = 0; first < (f.whole ? 1 : slices); ++first) {
        for (int number = group; number < (f.whole ? piece.planes * slices * all : all); number += groups) {
          const int slice = f.whole ? number / all : first, row = f.whole ? number - slice * all : number;
          const int entry = (first * all + number) * kLine + ow;
          const int oh = rows.begin + row, od = depths.begin + (f.whole ? slice % f.out[0] : slice);
          if (kNone != 0 && (ow == f.out[2] || row == lines || od >= depths.end)) {
            make(entry, 0.0f, 0);
            continue;
          }
          const int line = f.whole ? slice * f.out[1] + row : od * f.out[1] + oh;
          const float dy = Widened(p.source[(first_line + line) * f.out[2] + ow]);
          if constexpr (f.what == TableOp::kAverage) {
            make(entry, ShareOf<f>(dy, a.d.counted(od) * a.h.counted(oh) * counted), 0);
          } else if constexpr (f.signal) {
            const uint8_t* codes = p.routes + (piece.plane + line / f.out[1]) * p.line_bytes;
            make(entry, dy, static_cast<int>(CodeAt(f.bits, codes, line % f.out[1])));
          } else {
            make(entry, dy, static_cast<int>(CodeAt(f.bits, p.routes + (first_line + line) * p.line_bytes, ow)));
          }
        }
      }
    }
  }
};

// Averages: a thread has a column of inputs and looks the outputs over each of them up. `at` of a row: where the lines
// of those begin, in bytes.
template <class T, TableForm f>
__device__ void RunTableFirstLookingUp(const TableParams<T>& p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  struct alignas(f.over[1] % 4 == 0 ? 16 : f.over[1] % 2 == 0 ? 8 : 4) Lines {
    int at[f.over[1]];
  };
  const KnownAxes<f> a(p);
  const Piece piece(p.cut, f.in[0], f.in[1]);
  const PieceOutputs<T, f, 1> outputs(a, piece);
  unsigned char* shares = table_shared + p.rows_place;
  auto* over_row = reinterpret_cast<Lines*>(table_shared + p.spans_place);
  outputs.Load(p, a, piece, [&](int entry, float share, int) { reinterpret_cast<float*>(shares)[entry] = share; });
  const int depths = f.whole ? f.in[0] : piece.depths, rows = f.whole ? f.in[1] : piece.rows;
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    const Interval over = a.h.covering(piece.row + row);
#pragma unroll
    for (int h = 0; h < f.over[1]; ++h) {
      const int oh = over.begin + h, line = oh < over.end ? oh - outputs.rows.begin : outputs.lines;
      over_row[row].at[h] = line * outputs.kLine * static_cast<int>(sizeof(float));
    }
  }
  T* dx = p.result + ((piece.plane * f.in[0] + piece.depth) * f.in[1] + piece.row) * f.in[2];
  T* staged = reinterpret_cast<T*>(table_shared + Misalignment(dx));
  __syncthreads();
  const uint32_t items = static_cast<uint32_t>(piece.planes * depths * f.in[2]) * p.strips.divisor;
  for (uint32_t item = threadIdx.x; item < items; item += blockDim.x) {
    const int at_w = static_cast<int>(item % f.in[2]);
    uint32_t strip = item / f.in[2];
    const int number = static_cast<int>(p.strips.take(&strip)), plane = f.whole ? number / f.in[0] : 0;
    const Interval over_w = a.w.covering(at_w), over_d = a.d.covering(piece.depth + number - plane * depths);
    int column[f.over[0]][f.over[2]];  // where it begins, in bytes
#pragma unroll
    for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
      for (int w = 0; w < f.over[2]; ++w) {
        const int od = over_d.begin + d, ow = over_w.begin + w;
        const bool lies = od < over_d.end && ow < over_w.end;
        const int slice = lies ? plane * outputs.slices + od - outputs.depths.begin : 0;
        column[d][w] = (slice * outputs.slice_entries() + (lies ? ow : f.out[2])) * static_cast<int>(sizeof(float));
      }
    }
    const int first = static_cast<int>(strip) * p.strip, end = min(first + p.strip, rows);
    T* to = staged + number * rows * f.in[2] + at_w;
#pragma unroll 4
    for (int row = first; row < end; ++row) {
      const Lines lines = over_row[row];
      float sum = 0;
#pragma unroll
      for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
        for (const int line : lines.at) {
#pragma unroll
          for (int w = 0; w < f.over[2]; ++w) sum += *reinterpret_cast<const float*>(shares + (column[d][w] + line));
        }
      }
      to[row * f.in[2]] = Narrowed<T>(sum);
    }
  }
  __syncthreads();
  StageOut(table_shared, dx, piece.planes * depths * rows * f.in[2]);
}

template <class T, TableForm f>
__device__ void RunTableFirstBackward(const TableParams<T>& p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  constexpr bool kAverage = f.what == TableOp::kAverage;
  constexpr int kNever = -(1 << 30);
  using Entry = Given<kAverage>;  // its target: the code
  const KnownAxes<f> a(p);
  const Piece piece(p.cut, f.in[0], f.in[1]);
  const PieceOutputs<T, f, 0> outputs(a, piece);
  auto* given = reinterpret_cast<Entry*>(table_shared + p.rows_place);
  outputs.Load(p, a, piece, [&](int entry, float value, int code) {
    given[entry].value = value;
    if constexpr (!kAverage) given[entry].target = code;
  });
  const int depths = f.whole ? f.in[0] : piece.depths, rows = f.whole ? f.in[1] : piece.rows;
  T* dx = p.result + ((piece.plane * f.in[0] + piece.depth) * f.in[1] + piece.row) * f.in[2];
  T* staged = reinterpret_cast<T*>(table_shared + Misalignment(dx));
  __syncthreads();
  struct Row {
    float value[f.over[0]][f.over[2]];
    int code[f.over[0]][f.over[2]];  // less the tap's column and depth
    int start, end;
  };
  const int strips = f.unrolled ? 1 : static_cast<int>(p.strips.divisor);
  const uint32_t items = static_cast<uint32_t>(piece.planes * depths * strips * f.in[2]);
  for (uint32_t item = threadIdx.x; item < items; item += blockDim.x) {
    const int at_w = static_cast<int>(item % f.in[2]);
    uint32_t number = item / f.in[2], strip = 0;
    if constexpr (!f.unrolled) strip = number, number = p.strips.take(&strip);
    const int plane = f.whole ? static_cast<int>(number / f.in[0]) : 0;
    const int depth = static_cast<int>(number) - plane * depths, at_d = piece.depth + depth;
    const Interval over_w = a.w.covering(at_w), over_depth = a.d.covering(at_d);
    const int first = static_cast<int>(strip) * p.strip, end = f.unrolled ? rows : min(first + p.strip, rows);
    T* to = staged + (static_cast<int>(number) * rows - piece.row) * f.in[2] + at_w;
    // The tap's depth and column, and which outputs there are: for the others any is read and forgotten.
    int before[f.over[0]][f.over[2]], from[f.over[0]][f.over[2]];
    bool lies[f.over[0]][f.over[2]];
#pragma unroll
    for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
      for (int w = 0; w < f.over[2]; ++w) {
        lies[d][w] = over_depth.begin + d < over_depth.end && over_w.begin + w < over_w.end;
        const int slice = lies[d][w] ? plane * outputs.slices + over_depth.begin + d - outputs.depths.begin : 0;
        from[d][w] = (slice * outputs.lines - outputs.rows.begin) * f.out[2] + (lies[d][w] ? over_w.begin + w : 0);
        before[d][w] = kAverage || !lies[d][w] ? 0
                                               : (at_d - a.d.start(over_depth.begin + d)) * f.kernel[1] * f.kernel[2] +
                                                     at_w - a.w.start(over_w.begin + w);
      }
    }
    const auto load = [&](int oh, Row& row) {
#pragma unroll
      for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
        for (int w = 0; w < f.over[2]; ++w) {
          const Entry entry = given[from[d][w] + oh * f.out[2]];
          if constexpr (kAverage) {
            row.value[d][w] = lies[d][w] ? entry.value : 0;  // nothing changes a sum by it
          } else {
            row.value[d][w] = entry.value;
            row.code[d][w] = lies[d][w] ? entry.target - before[d][w] : kNever;
          }
        }
      }
    };
    const auto visit = [&](int at, int next, const Row(&over)[f.over[1]]) {
      float sum = 0;
      ForOver<f>(at, over, [&](const Row& row, int d, int w) {
        if (kAverage || row.code[d][w] == (at - row.start) * f.kernel[2]) sum += row.value[d][w];
      });
      const T value = Narrowed<T>(sum);
      for (; at < next; ++at) to[at * f.in[2]] = value;
    };
    GoDown<f, Row>(a.h, piece.row + first, piece.row + end, load, visit);
  }
  __syncthreads();
  StageOut(table_shared, dx, piece.planes * depths * rows * f.in[2]);
}

// A thread has f.vector channels.
template <class T, TableForm f>
__device__ void RunTableLastBackward(const TableParams<T>& p) {
  constexpr bool kAverage = f.what == TableOp::kAverage;
  constexpr int kN = f.vector, kBytes = kN * static_cast<int>(sizeof(T)), kWords = (kBytes + 3) / 4;
  constexpr int kCodeBytes = kN * f.bits < 8 ? 1 : kN * f.bits / 8, kCodeWords = (kCodeBytes + 3) / 4;
  constexpr uint32_t kMask = (1u << f.bits) - 1u, kOnes = ~0u / kMask;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  const KnownAxes<f> a(p);
  uint32_t group = thread, strip = 0;
  uint32_t number = p.across.take(&group);
  const int at_w = static_cast<int>(number % f.in[2]);
  number /= f.in[2];
  if constexpr (!f.unrolled) strip = number, number = p.runs.take(&strip);
  const int at_d = static_cast<int>(number % f.in[0]);
  const int64_t n = number / f.in[0];
  const int c = static_cast<int>(group) * kN;
  const int first = f.unrolled ? 0 : static_cast<int>(strip) * p.run,
            end = f.unrolled ? f.in[1] : min(first + p.run, f.in[1]);
  const Interval over_w = a.w.covering(at_w), over_d = a.d.covering(at_d);
  const int64_t line = ((n * f.out[0] + over_d.begin) * f.out[1]) * f.out[2] + over_w.begin;
  const T* dy = p.source + line * p.channels + c;
  const uint8_t* routes = p.routes + line * p.line_bytes + c * f.bits / 8;
  const uint32_t mask = kN * f.bits < 8 ? kMask << c * f.bits % 8 : kMask;
  T* to = p.result + (number * static_cast<int64_t>(f.in[1]) * f.in[2] + at_w) * p.channels + c;
  const int step = f.in[2] * p.channels;
  int before[f.over[0]][f.over[2]];  // the tap's depth and column
  bool lies[f.over[0]][f.over[2]];
#pragma unroll
  for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
    for (int w = 0; w < f.over[2]; ++w) {
      lies[d][w] = over_d.begin + d < over_d.end && over_w.begin + w < over_w.end;
      before[d][w] = kAverage || !lies[d][w] ? 0
                                             : (at_d - a.d.start(over_d.begin + d)) * f.kernel[1] * f.kernel[2] + at_w -
                                                   a.w.start(over_w.begin + w);
    }
  }
  struct Loaded {
    uint32_t words[f.over[0]][f.over[2]][kWords], codes[f.over[0]][f.over[2]][kCodeWords];
  };
  struct Row {
    float share[f.over[0]][f.over[2]][kAverage ? kN : 1];
    Loaded loaded;
    int start, end;
  };
  const auto ask = [&](int oh, Loaded& loaded) {
#pragma unroll
    for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
      for (int w = 0; w < f.over[2]; ++w) {
        const int64_t at = (d * f.out[1] + oh) * f.out[2] + w;
#pragma unroll
        for (int i = 0; i < kWords; ++i) loaded.words[d][w][i] = 0;  // nothing changes a sum by it
        LoadWordsIf<kBytes>(lies[d][w] && oh < f.out[1], dy + at * p.channels, loaded.words[d][w]);
        if constexpr (!kAverage) {
#pragma unroll
          for (int i = 0; i < kCodeWords; ++i) loaded.codes[d][w][i] = 0;
          LoadWordsIf<kCodeBytes>(lies[d][w] && oh < f.out[1], routes + at * p.line_bytes, loaded.codes[d][w]);
        }
      }
    }
  };
  const auto element = [](const uint32_t(&words)[kWords], int k) {
    T bits[kN];
    memcpy(bits, words, kBytes);
    return Widened(bits[k]);
  };
  Loaded next;
  ask(f.unrolled ? 0 : a.h.covering(first).begin, next);
  const auto load = [&](int oh, Row& row) {
    if constexpr (kAverage) {
#pragma unroll
      for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
        for (int w = 0; w < f.over[2]; ++w) {
#pragma unroll
          for (int k = 0; k < kN; ++k) {
            row.share[d][w][k] =
                lies[d][w] ? ShareOf<f>(element(next.words[d][w], k),
                                        a.d.counted(over_d.begin + d) * a.h.counted(oh) * a.w.counted(over_w.begin + w))
                           : 0;
          }
        }
      }
    } else {
      row.loaded = next;
    }
    ask(oh + 1, next);
  };
  const auto visit = [&](int at, int next, const Row(&over)[f.over[1]]) {
    float sum[kN] = {};
    ForOver<f>(at, over, [&](const Row& row, int d, int w) {
      if constexpr (kAverage) {
#pragma unroll
        for (int k = 0; k < kN; ++k) sum[k] += row.share[d][w][k];
      } else {
        const uint32_t wanted = static_cast<uint32_t>((at - row.start) * f.kernel[2] + before[d][w]) * kOnes;
#pragma unroll
        for (int k = 0; k < kN; ++k) {
          const uint32_t differs = row.loaded.codes[d][w][k * f.bits / 32] ^ wanted;
          if ((differs & mask << k * f.bits % 32) == 0) sum[k] += element(row.loaded.words[d][w], k);
        }
      }
    });
    T dx[kN];
#pragma unroll
    for (int k = 0; k < kN; ++k) dx[k] = Narrowed<T>(sum[k]);
    uint32_t words[kWords];
    memcpy(words, dx, kBytes);
    for (; at < next; ++at) StoreWords<kBytes>(to + static_cast<int64_t>(at) * step, words);
  };
  GoDown<f, Row>(a.h, first, end, load, visit);
}

template <class T, TableForm f>
__device__ void RunTableBackward(const TableParams<T>& p) {
  if constexpr (f.last) {
    RunTableLastBackward<T, f>(p);
  } else if constexpr (f.looks_up) {
    RunTableFirstLookingUp<T, f>(p);
  } else {
    RunTableFirstBackward<T, f>(p);
  }
}

}  // namespace poolgrad::cuda
