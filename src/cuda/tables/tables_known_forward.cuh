// Windows by table and averages, compiled for their axes, forward: what a column of outputs has of a row of inputs is
// found once and serves all windows that have the row.
#pragma once

#include "cuda/tables/tables_first.cuh"
#include "cuda/tables/tables_known.cuh"
#include "cuda/tables/tables_last.cuh"

namespace poolgrad::cuda {

// So many columns are loaded at once, of so many at most.
constexpr int AtOnce(int columns, int most) {
  const int times = (columns + most - 1) / most;
  return (columns + times - 1) / times;
}

// What a column of outputs has of a row of inputs: the values of an average, else the first of the greatest. Lanes that
// share an output have every f.abreast-th of its taps; of wide windows it is some of them.
template <class T, TableForm f>
struct KnownRow {
  static constexpr bool kAverage = f.what == TableOp::kAverage;
  static constexpr int kStep = f.abreast * f.dilation[2], kColumns = (f.kernel[2] + f.abreast - 1) / f.abreast;
  static constexpr int kTaps = AtOnce(kColumns, kTableKnownRow);
  static constexpr bool kWhole = kTaps == kColumns;
  static constexpr int kLeast = kWhole ? f.least[2] / f.abreast : 1;
  float value[kAverage ? kTaps : 1];
  uint32_t at;

  KnownRow() = default;
  // size: of the column's windows, what the lane has of them.
  __device__ KnownRow(const T* row, int size, float* watched) : at(0) {
    float v[kTaps];
    if constexpr (f.vector > 1) {
#pragma unroll
      for (int k = 0; k < kTaps; k += f.vector) {
        const auto words = *reinterpret_cast<const VectorOf<f.vector * sizeof(T)>*>(row + k);
        T bits[f.vector];
        memcpy(bits, &words, sizeof words);
#pragma unroll
        for (int i = 0; i < f.vector; ++i) v[k + i] = Widened(bits[i]);
      }
    } else {
      // No maximum minds one that comes twice.
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        v[k] = k < kLeast || (kAverage && k < size) ? Widened(row[k * kStep])
               : kAverage                           ? 0.0f
                                                    : Widened(row[min(k, size - 1) * kStep]);
      }
    }
    value[0] = v[0];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      if constexpr (kAverage) {
        value[k] = v[k];
      } else {
        *watched = Pack<float>::Watch(*watched, v[k]);
        if (v[k] > value[0]) value[0] = v[k], at = static_cast<uint32_t>(k * f.abreast);
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

// The same of f.vector channels, from a place on: of windows that are too wide to be loaded at once, some columns.
template <class T, TableForm f>
struct KnownPacksRow {
  using P = Pack<T>;
  static constexpr bool kAverage = f.what == TableOp::kAverage;
  static constexpr int kBytes = f.vector * static_cast<int>(sizeof(T)), kWords = (kBytes + 3) / 4;
  static constexpr int kTaps = AtOnce(f.kernel[2], kTableKnownPacks);
  static constexpr bool kWhole = kTaps == f.kernel[2];
  static constexpr int kLeast = kWhole ? f.least[2] : 1;
  uint32_t word[kAverage ? kTaps : 1][kWords], at[kWords];

  KnownPacksRow() = default;
  // step: elements from a place to the next.
  __device__ KnownPacksRow(const T* row, int step, int size, typename P::Reg* watched) {
    uint32_t words[kTaps][kWords];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      LoadVector<kBytes>(row + (k < kLeast ? k : max(0, min(k, size - 1))) * step, words[k]);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[0][i] = words[0][i], at[i] = 0;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
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
  typename P::Reg best[Row::kWords];
  uint32_t taps[Row::kWords];
  float sum[Row::kAverage ? f.vector : 1];

  __device__ KnownPacksWindow() {
#pragma unroll
    for (int i = 0; i < Row::kWords; ++i) best[i] = P::Fill(), taps[i] = 0;
#pragma unroll
    for (float& s : sum) s = 0;
  }
  __device__ void Meet(const Row& row, uint32_t first_tap, int size) {
    if constexpr (Row::kAverage) {
#pragma unroll
      for (int k = 0; k < Row::kTaps; ++k) {
        T x[f.vector];
        memcpy(x, row.word[k], Row::kBytes);
#pragma unroll
        for (int i = 0; i < f.vector; ++i) {
          if (k < Row::kLeast || k < size) sum[i] += Widened(x[i]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < Row::kWords; ++i) {
        const auto greater = P::Greater(P::FromBits(row.word[0][i]), best[i]);
        best[i] = P::Choose(greater, P::FromBits(row.word[0][i]), best[i]);
        taps[i] = P::ChooseTap(greater, row.at[i] + P::Tap(first_tap), taps[i]);
      }
    }
  }
};

// visit(first) for all that Rows have of so many columns.
template <class Row, class Visit>
__device__ void ForColumns(int size, Visit&& visit) {
  if constexpr (Row::kWhole) {
    visit(0);
  } else {
#pragma unroll 1
    for (int k = 0; k < size; k += Row::kTaps) visit(k);
  }
}

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
  constexpr TableOp kOp = f.what;
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
  constexpr int kBelow = (1 << f.log_sharers) / f.abreast;  // lanes that share an output have every kBelow-th row
  const int sharer = static_cast<int>(threadIdx.x) & ((1 << f.log_sharers) - 1), beside = sharer % f.abreast;
  const int strips = f.unrolled ? 1 : static_cast<int>(p.strips.divisor), strip_rows = f.unrolled ? f.out[1] : p.strip;
  const int items = piece.planes * depths * strips * static_cast<int>(kPadded);
  const int at_once = static_cast<int>(blockDim.x) >> f.log_sharers;
  for (int first = 0; first < items; first += at_once) {  // all lanes: they share outputs, and bytes of routes
    const int item = first + (static_cast<int>(threadIdx.x) >> f.log_sharers);
    uint32_t number = static_cast<uint32_t>(item), strip = 0;
    const int ow = static_cast<int>(number % kPadded);
    number /= kPadded;
    if constexpr (!f.unrolled) strip = number, number = p.strips.take(&strip);
    const int depth = f.out[0] == 1 ? 0 : static_cast<int>(number % f.out[0]);
    const int plane = static_cast<int>(number / f.out[0]), first_row = static_cast<int>(strip) * strip_rows;
    const bool there = item < items && ow < f.out[2];
    const int column = there ? ow : 0, od = piece.depth + (there ? depth : 0);
    constexpr int kStep = Window::Row::kStep;
    const int begin_w = a.w.first(column) + beside * a.w.kDilation,
              size = (a.w.end(column) - begin_w + kStep - 1) / kStep;
    const int begin_d = a.d.first(od), end_d = a.d.end(od), first_tap = (begin_w - a.w.start(column)) / a.w.kDilation;
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
        duel.best = window.best, duel.tap = window.tap + first_tap, duel.watched = watched;
        SettleDuel<T, kOp>(p, f.bits, f.log_sharers, duel, valid, sharer, p.source + (piece.plane + plane) * x.kPlane,
                           od, oh, ow, y + lines * f.out[2], codes + lines * p.line_bytes);
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
        const int oh = piece.row + (valid ? row : 0), begin_h = a.h.first(oh);
        const int rows = valid ? (a.h.end(oh) - begin_h + a.h.kDilation - 1) / a.h.kDilation : 0;
        const int tap_h = (begin_h - a.h.start(oh)) / a.h.kDilation;
        Window window;
        int skip = sharer / f.abreast;
        watched = 0;
#pragma unroll 1
        for (int at_d = begin_d; at_d < end_d; at_d += a.d.kDilation) {
          const T* from = row_at(at_d, begin_h + skip * a.h.kDilation);
          uint32_t tap = ((at_d - a.d.start(od)) / a.d.kDilation * f.kernel[1] + tap_h + skip) * f.kernel[2];
          for (; skip < rows; skip += kBelow, from += kBelow * a.h.kDilation * f.in[2], tap += kBelow * f.kernel[2]) {
            ForColumns<typename Window::Row>(size, [&](int k) {
              window.Meet(typename Window::Row(from + k * kStep, size - k, &watched), tap + k * f.abreast, size - k);
            });
          }
          skip -= rows;
        }
        settle(window, oh, valid);
      }
    }
  }
}

// A thread has f.vector channels of a column of outputs, or of one.
template <class T, TableForm f>
__device__ void RunTableLastForward(const TableParams<T>& p) {
  constexpr TableOp kOp = f.what;
  constexpr int kN = f.vector;
  constexpr bool kShares = f.log_sharers > 0;  // lanes do bytes of routes
  using Window = KnownPacksWindow<T, f>;
  using Row = typename Window::Row;
  uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (!kShares && thread >= p.threads) return;
  bool there = thread < p.threads;
  if (!there) thread = 0;
  const KnownAxes<f> a(p);
  uint32_t group = thread;
  uint32_t number = p.across.take(&group);
  const int ow = static_cast<int>(number % f.out[2]);
  int c = static_cast<int>(group) * kN;
  if (kShares && c >= p.channels) there = false, c = 0;
  number /= f.out[2];
  const int first_oh = f.unrolled ? 0 : static_cast<int>(number % f.out[1]);
  if constexpr (!f.unrolled) number /= f.out[1];
  const int od = static_cast<int>(number % f.out[0]);
  const int64_t n = number / f.out[0];
  const T* sample = p.source + n * f.in[0] * f.in[1] * f.in[2] * p.channels + c;
  const int begin_w = a.w.first(ow), size = (a.w.end(ow) - begin_w + a.w.kDilation - 1) / a.w.kDilation;
  const int row_step = f.in[2] * p.channels, step = a.w.kDilation * p.channels;
  const T* column = sample + begin_w * p.channels;
  typename Pack<T>::Reg watched = Pack<T>::FromBits(0);
  const auto settle = [&](const Window& window, int oh) {
    const int64_t line = (static_cast<int64_t>(number) * f.out[1] + oh) * f.out[2] + ow;
    if constexpr (kOp == TableOp::kAverage) {
      T y[kN];
#pragma unroll
      for (int i = 0; i < kN; ++i) y[i] = AverageOf<T>(a, window.sum[i], od, oh, ow);
      uint32_t words[Row::kWords];
      memcpy(words, y, Row::kBytes);
      StoreWords<Row::kBytes>(p.result + line * p.channels + c, words);
    } else {
      uint32_t taps[Row::kWords];
#pragma unroll
      for (int i = 0; i < Row::kWords; ++i)
        taps[i] = window.taps[i] + Pack<T>::Tap((begin_w - a.w.start(ow)) / a.w.kDilation);
      SettlePacks<T, kOp, kN>(p, f.bits, window.best, taps, watched, sample, od, oh, ow, line, c, f.log_sharers, there);
    }
  };
  if constexpr (f.unrolled) {
    GoDownOutputs<f, Window>(
        a.d.start(od), a.d.first(od), a.d.end(od), size,
        [&](int at_d, int row) {
          return Row(column + (at_d * f.in[1] + row) * static_cast<int64_t>(row_step), step, size, &watched);
        },
        settle);
  } else {
    const int begin_h = a.h.first(first_oh), end_h = a.h.end(first_oh);
    const int tap_h = (begin_h - a.h.start(first_oh)) / a.h.kDilation;
    Window window;
#pragma unroll 1
    for (int at_d = a.d.first(od); at_d < a.d.end(od); at_d += a.d.kDilation) {
      const T* from = column + (at_d * f.in[1] + begin_h) * static_cast<int64_t>(row_step);
      uint32_t tap = ((at_d - a.d.start(od)) / a.d.kDilation * f.kernel[1] + tap_h) * f.kernel[2];
#pragma unroll 2
      for (int at_h = begin_h; at_h < end_h; at_h += a.h.kDilation) {
        ForColumns<Row>(size,
                        [&](int k) { window.Meet(Row(from + k * step, step, size - k, &watched), tap + k, size - k); });
        from += a.h.kDilation * row_step, tap += f.kernel[2];
      }
    }
    settle(window, first_oh);
  }
}

template <class T, TableForm f>
__device__ void RunTableForward(const TableParams<T>& p) {
  if constexpr (f.last) {
    RunTableLastForward<T, f>(p);
  } else {
    RunTableFirstForward<T, f>(p);
  }
}

}  // namespace poolgrad::cuda
