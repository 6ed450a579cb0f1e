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
__device__ float ShareOf(const KnownAxes<f>& a, float dy, int od, int oh, int ow) {
  const int taps = f.divisor != 0 ? f.divisor : a.d.counted(od) * a.h.counted(oh) * a.w.counted(ow);
  return Quotient(dy, static_cast<float>(taps));
}

template <class T, TableForm f>
__device__ void RunTableFirstBackward(const TableParams<T>& p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  constexpr bool kAverage = f.what == TableOp::kAverage;
  constexpr int kNever = -(1 << 30);
  using Entry = Given<kAverage>;  // its target: the code
  const KnownAxes<f> a(p);
  const Piece piece(p.cut, f.in[0], f.in[1]);
  // The outputs that reach the piece: what they give, and their codes.
  Interval over_d{0, f.out[0]}, over_h{0, f.out[1]};
  if constexpr (!f.whole) {
    if (piece.depths < f.in[0]) {
      over_d = {a.d.covering(piece.depth).begin, a.d.covering(piece.depth + piece.depths - 1).end};
    }
    if (piece.rows < f.in[1]) over_h = {a.h.covering(piece.row).begin, a.h.covering(piece.row + piece.rows - 1).end};
  }
  const int lines = f.whole ? f.out[1] : max(0, over_h.end - over_h.begin);
  const int slices = f.whole ? f.out[0] : max(0, over_d.end - over_d.begin);
  auto* given = reinterpret_cast<Entry*>(table_shared + p.rows_place);
  const int count = piece.planes * slices * lines * f.out[2];
  const int64_t first_line = piece.plane * f.out[0] * f.out[1];
  for (int item = threadIdx.x; item < count; item += blockDim.x) {
    const int ow = item % f.out[2], number = item / f.out[2];
    int line = number, oh = 0, od = 0;
    if constexpr (!f.whole || kAverage) {
      const int slice = number / lines;
      oh = over_h.begin + number % lines, od = over_d.begin + (f.whole ? slice % f.out[0] : slice);
      if constexpr (!f.whole) line = od * f.out[1] + oh;
    }
    const float dy = Widened(p.source[(first_line + line) * f.out[2] + ow]);
    if constexpr (kAverage) {
      given[item].value = ShareOf(a, dy, od, oh, ow);
    } else if constexpr (f.signal) {
      const uint8_t* codes = p.routes + (piece.plane + line / f.out[1]) * p.line_bytes;
      given[item] = {dy, static_cast<int>(CodeAt(f.bits, codes, line % f.out[1]))};
    } else {
      given[item] = {dy, static_cast<int>(CodeAt(f.bits, p.routes + (first_line + line) * p.line_bytes, ow))};
    }
  }
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
        const int slice = lies[d][w] ? plane * slices + over_depth.begin + d - over_d.begin : 0;
        from[d][w] = (slice * lines - over_h.begin) * f.out[2] + (lies[d][w] ? over_w.begin + w : 0);
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
                lies[d][w] ? ShareOf(a, element(next.words[d][w], k), over_d.begin + d, oh, over_w.begin + w) : 0;
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
  } else {
    RunTableFirstBackward<T, f>(p);
  }
}

}  // namespace poolgrad::cuda
