// Windows by table and averages, compiled for their axes: where windows begin and end is known, so that a thread that
// stays with one column goes down the rows and looks at each once.
//
// Forward, channels first: what a column of outputs has of a row of inputs is found once and serves all windows that
// have the row. Backward, either layout: a thread has a column of inputs and keeps what the outputs over its row give;
// with each row of outputs that begins, a row of them is loaded and the oldest forgotten.
#pragma once

#include "cuda/tables/tables_first.cuh"
#include "cuda/tables/tables_form.h"
#include "cuda/tables/tables_last.cuh"

namespace poolgrad::cuda {

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
  __device__ constexpr operator int() const { return kNumber; }
};

// visit(Constant<i>) for i in [kBegin, kEnd).
template <int kBegin, int kEnd, class F>
__device__ void Unrolled(F&& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>{});
    Unrolled<kBegin + 1, kEnd>(visit);
  }
}

// As TableAxis; lists are still looked up.
template <TableForm f, int i>
struct KnownAxis {
  static constexpr bool kListed = f.form[i] == poolgrad::cuda::kListed,
                        kAdaptive = f.form[i] == poolgrad::cuda::kAdaptive;
  const TableAxis& axis;

  __device__ static constexpr int StartOf(int o) {
    if constexpr (kAdaptive) return static_cast<int>(static_cast<uint32_t>(o * f.in[i]) / f.out[i]);
    return o * f.stride[i] - f.pad_lo[i];
  }
  __device__ static constexpr int EndOf(int o) {
    if constexpr (kAdaptive)
      return static_cast<int>(static_cast<uint32_t>((o + 1) * f.in[i] + f.out[i] - 1) / f.out[i]);
    const int end = StartOf(o) + f.kernel[i];
    return end < f.in[i] ? end : f.in[i];
  }
  __device__ constexpr int start(int o) const {
    if constexpr (kListed) return axis.start(o);
    return StartOf(o);
  }
  __device__ constexpr int begin(int o) const {
    const int at = start(o);
    return f.form[i] == kRegular && at < 0 ? 0 : at;
  }
  __device__ constexpr int end(int o) const {
    if constexpr (kListed) return axis.start(o) + f.kernel[i];
    return EndOf(o);
  }
  // What an average counts.
  __device__ constexpr int counted(int o) const {
    if constexpr (f.form[i] != kRegular) return end(o) - start(o);
    const int low = start(o), high = low + f.kernel[i];
    const int least = f.count_padding ? -f.pad_lo[i] : 0, most = f.count_padding ? f.in[i] + f.pad_hi[i] : f.in[i];
    const int count = (high < most ? high : most) - (low > least ? low : least);
    return count > 0 ? count : 0;
  }
  __device__ Interval covering(int at) const {
    Interval o;
    if constexpr (kAdaptive) {
      o.begin = static_cast<int>(static_cast<uint32_t>(at * f.out[i]) / f.in[i]);
      o.end = static_cast<int>(static_cast<uint32_t>((at + 1) * f.out[i] + f.in[i] - 1) / f.in[i]);
    } else if constexpr (f.in[i] == 1 && f.out[i] == 1) {
      o = {0, 1};
    } else {
      axis.covering(at, &o.begin, &o.end);
    }
    return o;
  }
};

template <TableForm f>
struct KnownAxes {
  KnownAxis<f, 0> d;
  KnownAxis<f, 1> h;
  KnownAxis<f, 2> w;
  template <class T>
  __device__ explicit KnownAxes(const TableParams<T>& p) : d{p.axis[0]}, h{p.axis[1]}, w{p.axis[2]} {}
};

// ---- forward ----

// What a column of outputs has of a row of inputs: the values of an average, else the first of the greatest.
template <class T, TableForm f>
struct KnownRow {
  static constexpr bool kAverage = f.what == static_cast<int>(TableOp::kAverage);
  static constexpr int kTaps = f.kernel[2], kLeast = f.least[2];
  float value[kAverage ? kTaps : 1];
  uint32_t at;

  KnownRow() = default;
  // size: of the column's windows.
  __device__ KnownRow(const T* row, int size, float* watched) : at(0) {
    float v[kTaps];
    if constexpr (f.vector > 1) {
      using Words = std::conditional_t<f.vector * sizeof(T) == 16, uint4,
                                       std::conditional_t<f.vector * sizeof(T) == 8, uint2, uint32_t>>;
#pragma unroll
      for (int k = 0; k < kTaps; k += f.vector) {
        const Words words = *reinterpret_cast<const Words*>(row + k);
        T bits[f.vector];
        memcpy(bits, &words, sizeof words);
#pragma unroll
        for (int i = 0; i < f.vector; ++i) v[k + i] = Widened(bits[i]);
      }
    } else {
      // No maximum minds one that comes twice.
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        v[k] = k < kLeast || (kAverage && k < size) ? Widened(row[k])
               : kAverage                           ? 0.0f
                                                    : Widened(row[min(k, size - 1)]);
      }
    }
    value[0] = v[0];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      if constexpr (kAverage) {
        value[k] = v[k];
      } else {
        *watched = Pack<float>::Watch(*watched, v[k]);
        if (v[k] > value[0]) value[0] = v[k], at = static_cast<uint32_t>(k);
      }
    }
  }
};

// A window so far. Sums have one order: that of its taps.
template <class T, TableForm f>
struct KnownWindow {
  using Row = KnownRow<T, f>;
  float best = Row::kAverage ? 0.0f : LowestOf<float>();
  uint32_t tap = 0;

  // first_tap: of the row's first.
  __device__ void Meet(const Row& row, uint32_t first_tap, int size) {
    if constexpr (Row::kAverage) {
#pragma unroll
      for (int k = 0; k < Row::kTaps; ++k) {
        if (k < Row::kLeast || k < size) best += row.value[k];
      }
    } else {
      if (row.value[0] > best) best = row.value[0], tap = row.at + first_tap;
    }
  }
};

// The same of 16 bytes of channels.
template <class T, TableForm f>
struct KnownPacksRow {
  using P = Pack<T>;
  static constexpr bool kAverage = f.what == static_cast<int>(TableOp::kAverage);
  static constexpr int kTaps = f.kernel[2], kLeast = f.least[2];
  uint32_t word[kAverage ? kTaps : 1][4], at[4];

  KnownPacksRow() = default;
  // step: elements from a place to the next.
  __device__ KnownPacksRow(const T* row, int step, int size, typename P::Reg* watched) {
    uint32_t words[kTaps][4];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) LoadVector(row + (k < kLeast ? k : max(0, min(k, size - 1))) * step, words[k]);
#pragma unroll
    for (int i = 0; i < 4; ++i) word[0][i] = words[0][i], at[i] = 0;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kAverage) {
          word[k][i] = words[k][i];
        } else {
          const typename P::Reg v = P::FromBits(words[k][i]);
          *watched = P::Watch(*watched, v);
          if (k == 0) continue;
          const auto greater = P::Greater(v, P::FromBits(word[0][i]));
          word[0][i] = P::ToBits(P::Choose(greater, v, P::FromBits(word[0][i])));
          at[i] = P::ChooseTap(greater, P::Tap(k), at[i]);
        }
      }
    }
  }
};

template <class T, TableForm f>
struct KnownPacksWindow {
  using P = Pack<T>;
  using Row = KnownPacksRow<T, f>;
  static constexpr int kN = 16 / static_cast<int>(sizeof(T));
  typename P::Reg best[4];
  uint32_t taps[4];
  float sum[Row::kAverage ? kN : 1];

  __device__ KnownPacksWindow() {
#pragma unroll
    for (int i = 0; i < 4; ++i) best[i] = P::Fill(), taps[i] = 0;
#pragma unroll
    for (float& s : sum) s = 0;
  }
  __device__ void Meet(const Row& row, uint32_t first_tap, int size) {
    if constexpr (Row::kAverage) {
#pragma unroll
      for (int k = 0; k < Row::kTaps; ++k) {
        T x[kN];
        memcpy(x, row.word[k], 16);
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          if (k < Row::kLeast || k < size) sum[i] += Widened(x[i]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto greater = P::Greater(P::FromBits(row.word[0][i]), best[i]);
        best[i] = P::Choose(greater, P::FromBits(row.word[0][i]), best[i]);
        taps[i] = P::ChooseTap(greater, row.at[i] + P::Tap(first_tap), taps[i]);
      }
    }
  }
};

// Goes down all outputs of a column, over depths [begin, end), whose windows start at `start`. make(depth, row) finds
// what it has of a row of inputs; settle(window, oh) has met all of a window. Every row is found once.
template <TableForm f, class Window, class Make, class Settle>
__device__ void GoDownOutputs(int start, int begin, int end, int size, Make&& make, Settle&& settle) {
  using Known = KnownAxis<f, 1>;
  Window windows[f.out[1]];
#pragma unroll 1
  for (int depth = begin; depth < end; ++depth) {
    const uint32_t tap = (depth - start) * f.kernel[1] * f.kernel[2];
    Unrolled<0, f.in[1]>([&](auto r) {
      constexpr int kRow = decltype(r)::value;
      const typename Window::Row row = make(depth, kRow);
      Unrolled<0, f.out[1]>([&](auto oh) {
        constexpr int kOh = decltype(oh)::value, kStart = Known::StartOf(kOh);
        if constexpr (kRow >= kStart && kRow < Known::EndOf(kOh)) {
          windows[kOh].Meet(row, tap + (kRow - kStart) * f.kernel[2], size);
        }
        if constexpr (f.in[0] == 1 && kRow + 1 == Known::EndOf(kOh)) settle(windows[kOh], kOh);
      });
    });
  }
  Unrolled<0, f.out[1]>([&](auto oh) {
    if constexpr (f.in[0] > 1 || Known::EndOf(decltype(oh)::value) <= 0) settle(windows[oh], oh);
  });
}

template <class T, TableForm f>
__device__ T AverageOf(const KnownAxes<f>& a, float sum, int od, int oh, int ow) {
  const int taps = f.divisor != 0 ? f.divisor : a.d.counted(od) * a.h.counted(oh) * a.w.counted(ow);
  return Narrowed<T>(taps == 0 ? 0.0f : Quotient(sum, static_cast<float>(taps)));
}

// The inputs of a block, in shared memory.
template <class T, TableForm f>
struct KnownPiece {
  static constexpr int kSlice = f.in[1] * f.in[2], kPlane = f.in[0] * kSlice;
  const T* global;  // of the first row that is there
  int depth, row, slab_bytes;

  // Asks for them. The copy engine is 1.05 to 1.2 times as fast here as threads that copy (only long signals of floats
  // lose 7 %); to write dx it is slower (0.96 of copy to 0.60), because a block must wait for it before it ends.
  __device__ KnownPiece(const TableParams<T>& p, const KnownAxes<f>& a, const Piece& piece, Courier& courier,
                        unsigned char* shared)
      : global(p.source + piece.plane * kPlane), depth(0), row(0), slab_bytes(0) {
    if constexpr (f.whole) {
      courier.Ask(global, piece.planes * kPlane, shared);
    } else {
      depth = a.d.begin(piece.depth);
      const int depths = a.d.end(piece.depth + piece.depths - 1) - depth;
      global += depth * kSlice;
      if (piece.rows == f.out[1]) {
        courier.Ask(global, depths * kSlice, shared);
      } else {
        row = a.h.begin(piece.row);
        const int count = (a.h.end(piece.row + piece.rows - 1) - row) * f.in[2];
        global += row * f.in[2], slab_bytes = p.cut.slab_bytes[0];
        for (int i = 0; i < depths; ++i) courier.Ask(global + i * kSlice, max(0, count), shared + i * slab_bytes);
      }
    }
    courier.Wait();
  }
  // Bytes from the beginning of shared memory to row 0 of a depth (or where it would be).
  __device__ int Depth(int plane, int at) const {
    const int from = (plane * f.in[0] + at - depth) * kSlice;
    const int before = row * f.in[2] * static_cast<int>(sizeof(T));
    if (!f.whole && slab_bytes != 0) return (at - depth) * slab_bytes + Misalignment(global + from) - before;
    return from * static_cast<int>(sizeof(T)) + Misalignment(global) - before;
  }
};

template <class T, TableForm f>
__device__ void RunTableFirstForward(const TableParams<T>& p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  constexpr TableOp kOp = static_cast<TableOp>(f.what);
  constexpr bool kAverage = kOp == TableOp::kAverage;
  constexpr int kPerByte = f.bits < 8 ? 8 / f.bits : 1;
  constexpr uint32_t kPadded = (f.out[2] + kPerByte - 1) / kPerByte * kPerByte;
  using Window = KnownWindow<T, f>;
  Courier courier;
  const KnownAxes<f> a(p);
  const Piece piece(p.cut, f.out[0], f.out[1]);
  const KnownPiece<T, f> x(p, a, piece, courier, table_shared);
  const int depths = f.whole ? f.out[0] : piece.depths;
  const int64_t first_line = (piece.plane * f.out[0] + piece.depth) * f.out[1] + piece.row;
  const int log_sharers = kAverage || f.unrolled ? 0 : p.log_sharers, sharers = 1 << log_sharers;
  const int sharer = static_cast<int>(threadIdx.x) & (sharers - 1);
  const int strips = f.unrolled ? 1 : static_cast<int>(p.strips.divisor), strip_rows = f.unrolled ? f.out[1] : p.strip;
  const int items = piece.planes * depths * strips * static_cast<int>(kPadded);
  const int at_once = static_cast<int>(blockDim.x) >> log_sharers;
  for (int first = 0; first < items; first += at_once) {  // all lanes: they share outputs, and bytes of routes
    const int item = first + (static_cast<int>(threadIdx.x) >> log_sharers);
    uint32_t number = static_cast<uint32_t>(item), strip = 0;
    const int ow = static_cast<int>(number % kPadded);
    number /= kPadded;
    if constexpr (!f.unrolled) strip = number, number = p.strips.take(&strip);
    const int depth = f.out[0] == 1 ? 0 : static_cast<int>(number % f.out[0]);
    const int plane = static_cast<int>(number / f.out[0]), first_row = static_cast<int>(strip) * strip_rows;
    const bool there = item < items && ow < f.out[2];
    const int column = there ? ow : 0, od = piece.depth + (there ? depth : 0);
    const int begin_w = a.w.begin(column), size = a.w.end(column) - begin_w;
    const int begin_d = a.d.begin(od), end_d = a.d.end(od);
    const auto row_at = [&](int at_d, int at_h) {
      const int from = x.Depth(there ? plane : 0, at_d) + (at_h * f.in[2] + begin_w) * static_cast<int>(sizeof(T));
      return reinterpret_cast<const T*>(table_shared + from);
    };
    const int64_t line = first_line + (plane * depths + depth) * (f.whole ? f.out[1] : piece.rows) + first_row;
    T* y = p.result + line * f.out[2] + ow;
    uint8_t* codes = p.routes + line * p.line_bytes;
    float watched = 0;
    const auto settle = [&](const Window& window, int oh, bool valid) {
      const int lines = oh - (f.unrolled ? 0 : piece.row + first_row);
      if constexpr (kAverage) {
        if (valid) y[lines * f.out[2]] = AverageOf<T>(a, window.best, od, oh, column);
      } else {
        Duel duel;
        duel.best = window.best, duel.tap = window.tap, duel.watched = watched;
        SettleDuel<T, kOp>(p, f.bits, log_sharers, duel, valid, sharer, p.source + (piece.plane + plane) * x.kPlane, od,
                           oh, ow, y + lines * f.out[2], codes + lines * p.line_bytes);
      }
    };
    if constexpr (f.unrolled) {
      GoDownOutputs<f, Window>(
          a.d.start(od), begin_d, end_d, size,
          [&](int at_d, int row) { return typename Window::Row(row_at(at_d, 0) + row * f.in[2], size, &watched); },
          [&](const Window& window, int oh) { settle(window, oh, there); });
    } else {
#pragma unroll 1
      for (int row = first_row; row < first_row + strip_rows; ++row) {
        const bool valid = there && row < piece.rows;
        const int oh = piece.row + (valid ? row : 0), start_h = a.h.start(oh), begin_h = a.h.begin(oh);
        const int end_h = valid ? a.h.end(oh) : begin_h;
        Window window;
        int skip = sharer;
        watched = 0;
#pragma unroll 1
        for (int at_d = begin_d; at_d < end_d; ++at_d) {
          int at_h = begin_h + skip;
          const T* from = row_at(at_d, at_h);
          uint32_t tap = ((at_d - a.d.start(od)) * f.kernel[1] + at_h - start_h) * f.kernel[2];
          for (; at_h < end_h; at_h += sharers, from += sharers * f.in[2], tap += sharers * f.kernel[2]) {
            window.Meet(typename Window::Row(from, size, &watched), tap, size);
          }
          skip = at_h - end_h;
        }
        settle(window, oh, valid);
      }
    }
  }
}

// A thread has 16 bytes of channels of a column of outputs, or of one.
template <class T, TableForm f>
__device__ void RunTableLastForward(const TableParams<T>& p) {
  constexpr TableOp kOp = static_cast<TableOp>(f.what);
  constexpr int kN = 16 / static_cast<int>(sizeof(T));
  using Window = KnownPacksWindow<T, f>;
  using Row = typename Window::Row;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  const KnownAxes<f> a(p);
  uint32_t group = thread;
  uint32_t number = p.across.take(&group);
  const int ow = static_cast<int>(number % f.out[2]), c = static_cast<int>(group) * kN;
  number /= f.out[2];
  const int first_oh = f.unrolled ? 0 : static_cast<int>(number % f.out[1]);
  if constexpr (!f.unrolled) number /= f.out[1];
  const int od = static_cast<int>(number % f.out[0]);
  const int64_t n = number / f.out[0];
  const T* sample = p.source + n * f.in[0] * f.in[1] * f.in[2] * p.channels + c;
  const int begin_w = a.w.begin(ow), size = a.w.end(ow) - begin_w, row_step = f.in[2] * p.channels;
  const T* column = sample + begin_w * p.channels;
  typename Pack<T>::Reg watched = Pack<T>::FromBits(0);
  const auto settle = [&](const Window& window, int oh) {
    const int64_t line = (static_cast<int64_t>(number) * f.out[1] + oh) * f.out[2] + ow;
    if constexpr (kOp == TableOp::kAverage) {
      T y[kN];
#pragma unroll
      for (int i = 0; i < kN; ++i) y[i] = AverageOf<T>(a, window.sum[i], od, oh, ow);
      ChannelGroup<T, true>::Store(p.result + line * p.channels + c, kN, y);
    } else {
      SettlePacks<T, kOp>(p, f.bits, window.best, window.taps, watched, sample, od, oh, ow, line, c);
    }
  };
  if constexpr (f.unrolled) {
    GoDownOutputs<f, Window>(
        a.d.start(od), a.d.begin(od), a.d.end(od), size,
        [&](int at_d, int row) {
          return Row(column + (at_d * f.in[1] + row) * static_cast<int64_t>(row_step), p.channels, size, &watched);
        },
        settle);
  } else {
    const int start_h = a.h.start(first_oh), begin_h = a.h.begin(first_oh), end_h = a.h.end(first_oh);
    Window window;
#pragma unroll 1
    for (int at_d = a.d.begin(od); at_d < a.d.end(od); ++at_d) {
      const T* from = column + (at_d * f.in[1] + begin_h) * static_cast<int64_t>(row_step);
      uint32_t tap = ((at_d - a.d.start(od)) * f.kernel[1] + begin_h - start_h) * f.kernel[2];
#pragma unroll 2
      for (int at_h = begin_h; at_h < end_h; ++at_h, from += row_step, tap += f.kernel[2]) {
        window.Meet(Row(from, p.channels, size, &watched), tap, size);
      }
    }
    settle(window, first_oh);
  }
}

// ---- backward ----

// Goes down rows [first, end) of inputs. load(oh, &row) loads the outputs that begin with a row, which has `start` and
// `end`; visit(at, rows) has row `at` of the inputs and those outputs that may lie over it, in order.
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
    Unrolled<0, Known::StartOf(0)>([&](auto at) { visit(at, rows); });
    Unrolled<0, f.out[1]>([&](auto oh) {
      constexpr int kOh = decltype(oh)::value, kFrom = Known::StartOf(kOh),
                    kNext = kOh + 1 < f.out[1] ? Known::StartOf(kOh + 1) : f.in[1];
      begin_outputs(oh);
      Unrolled<(kFrom > 0 ? kFrom : 0), (kNext < f.in[1] ? kNext : f.in[1])>([&](auto at) { visit(at, rows); });
    });
  } else {
    int oh = h.covering(first).begin, at = first;
    for (const int start = oh < f.out[1] ? h.start(oh) : end; at < min(start, end); ++at) visit(at, rows);
#pragma unroll 1
    for (; at < end; ++oh) {
      begin_outputs(oh);
      const int next = oh + 1 < f.out[1] ? min(h.start(oh + 1), end) : end;
#pragma unroll 1
      for (; at < next; ++at) visit(at, rows);
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
  constexpr bool kAverage = f.what == static_cast<int>(TableOp::kAverage);
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
    const auto visit = [&](int at, const Row(&over)[f.over[1]]) {
      float sum = 0;
#pragma unroll
      for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
        for (int h = 0; h < f.over[1]; ++h) {
          if (at >= over[h].end) continue;
#pragma unroll
          for (int w = 0; w < f.over[2]; ++w) {
            if (kAverage || over[h].code[d][w] == (at - over[h].start) * f.kernel[2]) sum += over[h].value[d][w];
          }
        }
      }
      to[at * f.in[2]] = Narrowed<T>(sum);
    };
    GoDown<f, Row>(a.h, piece.row + first, piece.row + end, load, visit);
  }
  __syncthreads();
  StageOut(table_shared, dx, piece.planes * depths * rows * f.in[2]);
}

// A thread has 16 bytes of channels.
template <class T, TableForm f>
__device__ void RunTableLastBackward(const TableParams<T>& p) {
  constexpr bool kAverage = f.what == static_cast<int>(TableOp::kAverage);
  constexpr int kN = 16 / static_cast<int>(sizeof(T)), kCodeBytes = kN * f.bits / 8, kCodeWords = (kCodeBytes + 3) / 4;
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
    uint32_t words[f.over[0]][f.over[2]][4], codes[f.over[0]][f.over[2]][kCodeWords];
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
        for (int i = 0; i < 4; ++i) loaded.words[d][w][i] = 0;  // nothing changes a sum by it
        LoadWordsIf<16>(lies[d][w] && oh < f.out[1], dy + at * p.channels, loaded.words[d][w]);
        if constexpr (!kAverage) {
#pragma unroll
          for (int i = 0; i < kCodeWords; ++i) loaded.codes[d][w][i] = 0;
          LoadWordsIf<kCodeBytes>(lies[d][w] && oh < f.out[1], routes + at * p.line_bytes, loaded.codes[d][w]);
        }
      }
    }
  };
  const auto element = [](const uint32_t(&words)[4], int k) {
    T bits[kN];
    memcpy(bits, words, 16);
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
  const auto visit = [&](int at, const Row(&over)[f.over[1]]) {
    float sum[kN] = {};
#pragma unroll
    for (int d = 0; d < f.over[0]; ++d) {
#pragma unroll
      for (int h = 0; h < f.over[1]; ++h) {
        if (at >= over[h].end) continue;
#pragma unroll
        for (int w = 0; w < f.over[2]; ++w) {
          if constexpr (kAverage) {
#pragma unroll
            for (int k = 0; k < kN; ++k) sum[k] += over[h].share[d][w][k];
          } else {
            const uint32_t wanted = static_cast<uint32_t>((at - over[h].start) * f.kernel[2] + before[d][w]) * kOnes;
#pragma unroll
            for (int k = 0; k < kN; ++k) {
              const uint32_t differs = over[h].loaded.codes[d][w][k * f.bits / 32] ^ wanted;
              if ((differs & kMask << k * f.bits % 32) == 0) sum[k] += element(over[h].loaded.words[d][w], k);
            }
          }
        }
      }
    }
    T dx[kN];
#pragma unroll
    for (int k = 0; k < kN; ++k) dx[k] = Narrowed<T>(sum[k]);
    uint4 words;
    memcpy(&words, dx, 16);
    *reinterpret_cast<uint4*>(to + static_cast<int64_t>(at) * step) = words;
  };
  GoDown<f, Row>(a.h, first, end, load, visit);
}

template <class T, TableForm f>
__device__ void RunTableForm(const TableParams<T>& p) {
  if constexpr (!f.backward && f.last) {
    RunTableLastForward<T, f>(p);
  } else if constexpr (!f.backward) {
    RunTableFirstForward<T, f>(p);
  } else if constexpr (f.last) {
    RunTableLastBackward<T, f>(p);
  } else {
    RunTableFirstBackward<T, f>(p);
  }
}

}  // namespace poolgrad::cuda
