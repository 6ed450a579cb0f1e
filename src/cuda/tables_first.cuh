// Windows by table and averages, channels first: a block holds a piece of x in shared memory (forward), or for every
// output that reaches a piece of dx what it adds and where (backward).
#pragma once

#include "cuda/tables.cuh"

namespace poolgrad::cuda {

// Where a piece of x lies in shared memory, or, not staged, all of it in global memory.
template <class T, bool kStaged>
struct PieceOfX {
  const T* run;                  // of depth `depth` of the piece's first plane
  const T* global;               // slabs: of their first row
  const unsigned char* shared;   // slabs: null if there are none
  int depth, row, width, plane;  // plane: elements
  int slab_bytes, slice;

  __device__ PieceOfX(const TableParams<T>& p, const Piece& piece, unsigned char* memory) {
    const TableAxis *a = p.axis, &d = a[0], &h = a[1];
    width = a[2].in, slice = h.in * width, plane = d.in * slice;
    depth = row = 0, shared = nullptr, slab_bytes = p.cut.slab_bytes[0];
    run = p.source + piece.plane * plane;
    if constexpr (!kStaged) return;
    const bool all_depths = piece.depths == d.out, all_rows = piece.rows == h.out;
    if (all_depths && all_rows) {
      run = StageIn(run, piece.planes * plane, memory);
      return;
    }
    int depths_end;
    d.reach(piece.depth, piece.depth + piece.depths - 1, &depth, &depths_end);
    if (all_rows) {
      run = StageIn(run + static_cast<int64_t>(depth) * slice, (depths_end - depth) * slice, memory);
      return;
    }
    int rows_end;
    h.reach(piece.row, piece.row + piece.rows - 1, &row, &rows_end);
    global = run + static_cast<int64_t>(depth) * slice + static_cast<int64_t>(row) * width;
    shared = memory;
    for (int i = 0; i < depths_end - depth; ++i) {
      AskFor(global + static_cast<int64_t>(i) * slice, (rows_end - row) * width, memory + i * slab_bytes);
    }
    WaitFor();
  }
  // Where row 0 of a depth is (or would be).
  __device__ const T* Depth(int of_plane, int at) const {
    if (kStaged && shared) {
      const T* slab = global + static_cast<int64_t>(at - depth) * slice;
      return reinterpret_cast<const T*>(shared + (at - depth) * slab_bytes + Misalignment(slab)) - row * width;
    }
    return run + (of_plane * plane + (at - depth) * slice);
  }
};

// visit(w, row[w]) for [begin, end) of a row. `wide`, of long rows in shared memory: four in one load where they lie
// aligned, because lanes whose windows begin a long way apart meet in the same banks. kAgain: four at once elsewhere,
// too, behind the end the last one again, which no maximum minds.
template <bool kAgain, class T, class F>
__device__ void ForRow(const T* row, int begin, int end, bool wide, F&& visit) {
  int w = begin;
  if (wide) {
    using Four = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
    const int head = static_cast<int>(-reinterpret_cast<uintptr_t>(row + begin) % sizeof(Four) / sizeof(T));
    for (const int aligned = min(end, begin + head); w < aligned; ++w) visit(w, row[w]);
#pragma unroll 2
    for (; w + 4 <= end; w += 4) {
      const Four words = *reinterpret_cast<const Four*>(row + w);
      T four[4];
      memcpy(four, &words, sizeof four);
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(w + i, four[i]);
    }
  }
  if constexpr (kAgain) {
    for (; w < end; w += 4) {
      T four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = row[min(w + i, end - 1)];
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(min(w + i, end - 1), four[i]);
    }
  } else {
#pragma unroll 4
    for (; w < end; ++w) visit(w, row[w]);
  }
}

// p.sharers neighbouring lanes share an output: they take the rows of its window in turn.
template <class T, TableOp kOp, bool kStaged>
__global__ void __launch_bounds__(kTableThreads) TableFirstForward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  using V = Wide<T>;
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].out, a[1].out);
  // The windows of the piece by axis: width, height, depth.
  Span* spans = reinterpret_cast<Span*>(table_shared + p.spans_place);
  if constexpr (kStaged && kOp != TableOp::kAverage) {
    const int most = max(a[2].out, max(piece.rows, piece.depths));
    for (int i = threadIdx.x; i < most; i += blockDim.x) {
      if (i < a[2].out) spans[i] = a[2].span(i);
      if (i < piece.rows) spans[a[2].out + i] = a[1].span(piece.row + i);
      if (i < piece.depths) spans[a[2].out + piece.rows + i] = a[0].span(piece.depth + i);
    }
  }
  const PieceOfX<T, kStaged> x(p, piece, table_shared);
  const int64_t first_line = (piece.plane * a[0].out + piece.depth) * a[1].out + piece.row;
  const int sharers = kOp == TableOp::kAverage ? 1 : 1 << p.log_sharers;
  const int sharer = static_cast<int>(threadIdx.x) & (sharers - 1);
  const int items = piece.planes * piece.depths * piece.rows * static_cast<int>(p.padded.divisor);
  const int at_once = static_cast<int>(blockDim.x) >> p.log_sharers;
  const int per_byte = p.bits < 8 ? 8 / p.bits : 1;
  for (int first = 0; first < items; first += at_once) {  // all lanes: they share outputs, and bytes of routes
    const int item = first + (static_cast<int>(threadIdx.x) >> p.log_sharers);
    uint32_t ow = static_cast<uint32_t>(item);
    const uint32_t line = p.padded.take(&ow);
    const bool valid = item < items && static_cast<int>(ow) < a[2].out;
    uint32_t row = line, depth;
    uint32_t plane = p.out[1].take(&row);
    depth = plane, plane = p.out[0].take(&depth);
    const int od = piece.depth + static_cast<int>(depth), oh = piece.row + static_cast<int>(row);
    Duel duel;
    V sum = 0;
    if (valid && kOp == TableOp::kAverage) {
      const Span d = a[0].span(od), h = a[1].span(oh), w = a[2].span(ow);
      for (int at_d = d.begin; at_d < d.end; ++at_d) {
        const T* slice = x.Depth(plane, at_d);
        for (int at_h = h.begin; at_h < h.end; ++at_h) {
          ForRow<false>(slice + at_h * x.width, w.begin, w.end, kStaged && p.wide,
                        [&](int, T bits) { sum += Widened(bits); });
        }
      }
    } else if (valid) {
      const Span w = kStaged ? spans[ow] : a[2].span(ow);
      const Span h = kStaged ? spans[a[2].out + row] : a[1].span(oh);
      const Span d = kStaged ? spans[a[2].out + piece.rows + depth] : a[0].span(od);
      const int height = h.end - h.begin;
      int at_d = d.begin, at_h = h.begin + sharer;
      while (height > 0) {
        while (at_h >= h.end) at_h -= height, ++at_d;
        if (at_d >= d.end) break;
        const T* from = x.Depth(plane, at_d) + at_h * x.width;
        const uint32_t first_tap = ((at_d - d.start) * a[1].kernel + at_h - h.start) * a[2].kernel - w.start;
        ForRow<true>(from, w.begin, w.end, kStaged && p.wide,
                     [&](int at, T bits) { duel.Meet(Widened(bits), first_tap + at); });
        at_h += sharers;
      }
    }
    T* y = p.result ? p.result + (first_line + line) * a[2].out + ow : nullptr;
    if constexpr (kOp == TableOp::kAverage) {
      if (!valid) continue;
      const int taps = Counted(p, p.divisor, od, oh, ow);
      *y = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum, static_cast<V>(taps)));
    } else {
      for (int step = sharers / 2; step > 0; step /= 2) {
        const float other = __shfl_down_sync(~0u, duel.best, step);
        const uint32_t other_tap = __shfl_down_sync(~0u, duel.tap, step);
        duel.watched = Pack<float>::Watch(duel.watched, __shfl_down_sync(~0u, duel.watched, step));
        if (other > duel.best || (other == duel.best && other_tap < duel.tap)) duel.best = other, duel.tap = other_tap;
      }
      uint32_t code = 0;
      if (valid && sharer == 0) {
        T winner = Narrowed<T>(duel.best);
        code = duel.tap;
        if (p.exact || duel.Exceptional()) {
          const T* from = p.source + (piece.plane + plane) * x.plane;
          code = ExactOutput(p, from, 1, od, oh, ow, &winner);
        }
        if (y) *y = winner;
      }
      if constexpr (kOp == TableOp::kRoutes) {
        for (int step = 1; step < per_byte; step *= 2) {
          code |= __shfl_down_sync(~0u, code, step << p.log_sharers) << (step * p.bits);
        }
        if (!valid || sharer != 0) continue;
        uint8_t* codes = p.routes + (first_line + line) * p.line_bytes;
        if (per_byte == 1) {
          StoreWideCode(codes + ow * (p.bits / 8), p.bits, code);
        } else if (ow % per_byte == 0) {
          codes[ow / per_byte] = static_cast<uint8_t>(code);
        }
      }
    }
  }
}

// The average of whole planes that are long and aligned: a block has 32 planes, which its threads fetch side by side,
// 128 bytes of each at a time and some stages ahead, and one thread for each adds them up.
inline constexpr int kTablePitch = kTableRunBytes + 16;  // threads that read their planes at once meet no bank twice

template <class T>
__global__ void __launch_bounds__(kTableThreads) TablePlaneAverages(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  using V = Wide<T>;
  constexpr int kN = 16 / static_cast<int>(sizeof(T));
  const int thread = static_cast<int>(threadIdx.x), size = p.axis[2].in, pieces = size / kN;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTablePlaces;
  const int64_t fetched = first + thread / 8, added = first + thread;
  const T* from = p.source + fetched * size;
  int asked = thread % 8;
  const auto ask = [&](int stage) {
    if (fetched < p.cut.planes && asked < pieces) {
      CopyAsync(table_shared + (stage % kTableStages * kTablePlaces + thread / 8) * kTablePitch + thread % 8 * 16,
                from + asked * kN);
    }
    asked += 8;
    CommitAsked();
  };
  V sum = 0;
  for (int s = 0; s < kTableStages - 1; ++s) ask(s);
  for (int s = 0; s * 8 < pieces; ++s) {
    WaitForAllBut<kTableStages - 2>();
    ask(s + kTableStages - 1);
    if (thread >= kTablePlaces) continue;
    const unsigned char* row = table_shared + (s % kTableStages * kTablePlaces + thread) * kTablePitch;
    const int count = min(8, pieces - s * 8);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const uint4 words = *reinterpret_cast<const uint4*>(row + 16 * i);
      T x[kN];
      memcpy(x, &words, 16);
#pragma unroll
      for (int k = 0; k < kN; ++k) sum += Widened(x[k]);
    }
  }
  if (thread >= kTablePlaces || added >= p.cut.planes) return;
  p.result[added] = Narrowed<T>(Quotient(sum, static_cast<V>(Counted(p, p.divisor, 0, 0, 0))));
}

// What an output adds: to the input at `target` of its plane, or as an average to all under its window.
template <bool kAverage>
struct Given {
  float value;
  int target;
};
template <>
struct Given<true> {
  float value;
};

// The outputs over a row of inputs: `lines` of each of `depths`, and where they begin among those of the piece.
struct RowAbove {
  int first, depths, lines, offset;  // offset: of the row in its plane
};

// The outputs that reach a piece of dx, in row-major order: what they give.
template <class T, bool kAverage>
struct Outputs {
  int begin[2], depths, lines, count;  // first depth and line

  __device__ Outputs(const TableParams<T>& p, const Piece& piece) {
    int end[2], unused;
    p.axis[0].covering(piece.depth, &begin[0], &unused);
    p.axis[0].covering(piece.depth + piece.depths - 1, &unused, &end[0]);
    p.axis[1].covering(piece.row, &begin[1], &unused);
    p.axis[1].covering(piece.row + piece.rows - 1, &unused, &end[1]);
    depths = max(0, end[0] - begin[0]), lines = max(0, end[1] - begin[1]);
    count = piece.planes * depths * lines * p.axis[2].out;
  }
  // Where output (od, oh, 0) of a plane is.
  __device__ int At(int plane, int od, int oh, int width) const {
    return ((plane * depths + od - begin[0]) * lines + oh - begin[1]) * width;
  }
  __device__ void Make(const TableParams<T>& p, const Piece& piece, Given<kAverage>* given) const {
    const TableAxis* a = p.axis;
    for (int item = threadIdx.x; item < count; item += blockDim.x) {
      uint32_t ow = static_cast<uint32_t>(item);
      const int number = static_cast<int>(p.out[2].take(&ow));
      const int of_depth = number / lines, oh = begin[1] + number % lines;
      const int plane = of_depth / depths, od = begin[0] + of_depth % depths;
      const int64_t line = ((piece.plane + plane) * a[0].out + od) * a[1].out + oh;
      const float dy = Widened(p.source[line * a[2].out + ow]);
      if constexpr (kAverage) {
        given[item].value = Quotient(dy, static_cast<float>(Counted(p, p.gradient_divisor, od, oh, ow)));
      } else {
        const uint32_t code = CodeAt(p.bits, p.routes + line * p.line_bytes, ow);
        uint32_t kw = code, kh;
        uint32_t kd = p.kernel[1].take(&kw);
        kh = kd, kd = p.kernel[0].take(&kh);
        // Codes may be anything: also taps that this window does not have.
        const Span on_d = a[0].span(od), on_h = a[1].span(oh), on_w = a[2].span(ow);
        const int d = on_d.start + static_cast<int>(kd), h = on_h.start + static_cast<int>(kh);
        const int w = on_w.start + static_cast<int>(kw);
        const bool lands = code < p.taps && d >= 0 && d < on_d.end && h >= 0 && h < on_h.end && w >= 0 && w < on_w.end;
        given[item] = {dy, lands ? (d * a[1].in + h) * a[2].in + w : -1};
      }
    }
  }
};

// Maxima of windows that have many inputs each: most of dx is 0. A block clears its piece in shared memory, and the
// first output of those that have the same target puts the sum of them there.
template <class T>
__global__ void __launch_bounds__(kTableThreads) TableFirstScatter(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  auto* given = reinterpret_cast<Given<false>*>(table_shared + p.rows_place);
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].in, a[1].in);
  const Outputs<T, false> outputs(p, piece);
  const int width = a[2].out, size = piece.planes * piece.depths * piece.rows * a[2].in;
  T* dx = p.result + ((piece.plane * a[0].in + piece.depth) * a[1].in + piece.row) * a[2].in;
  T* staged = reinterpret_cast<T*>(table_shared + Misalignment(dx));
  for (int i = threadIdx.x; i < (size * static_cast<int>(sizeof(T)) + 31) / 16; i += blockDim.x) {
    reinterpret_cast<uint4*>(table_shared)[i] = make_uint4(0, 0, 0, 0);
  }
  outputs.Make(p, piece, given);
  __syncthreads();
  for (int item = threadIdx.x; item < outputs.count; item += blockDim.x) {
    const int target = given[item].target;
    if (target < 0) continue;
    uint32_t w = static_cast<uint32_t>(target), h;
    uint32_t d = p.in[2].take(&w);
    h = d, d = p.in[1].take(&h);
    const int in_depth = static_cast<int>(d) - piece.depth, in_row = static_cast<int>(h) - piece.row;
    if (in_depth < 0 || in_depth >= piece.depths || in_row < 0 || in_row >= piece.rows) continue;
    const int plane = item / (outputs.depths * outputs.lines * width);
    int begin[3], end[3];
    a[0].covering(d, &begin[0], &end[0]);
    a[1].covering(h, &begin[1], &end[1]);
    a[2].covering(w, &begin[2], &end[2]);
    float sum = 0;
    int first = -1;
    for (int od = begin[0]; od < end[0]; ++od) {
      for (int oh = begin[1]; oh < end[1]; ++oh) {
        const int line = outputs.At(plane, od, oh, width);
        for (int o = line + begin[2]; o < line + end[2]; ++o) {
          if (given[o].target != target) continue;
          if (first < 0) first = o;
          sum += given[o].value;
        }
      }
    }
    if (first == item)
      staged[((plane * piece.depths + in_depth) * piece.rows + in_row) * a[2].in + w] = Narrowed<T>(sum);
  }
  __syncthreads();
  StageOut(table_shared, dx, size);
}

template <class T, bool kAverage>
__global__ void __launch_bounds__(kTableThreads) TableFirstBackward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  auto* given = reinterpret_cast<Given<kAverage>*>(table_shared);
  auto* above = reinterpret_cast<RowAbove*>(table_shared + p.rows_place);
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].in, a[1].in);
  const Outputs<T, kAverage> outputs(p, piece);
  const int lines = outputs.lines, width = a[2].out;
  outputs.Make(p, piece, given);
  const int rows = piece.planes * piece.depths * piece.rows;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    uint32_t row = static_cast<uint32_t>(i), depth;
    uint32_t plane = p.in[1].take(&row);
    depth = plane, plane = p.in[0].take(&depth);
    const int d = piece.depth + static_cast<int>(depth), h = piece.row + static_cast<int>(row);
    int first[2], last[2];
    a[0].covering(d, &first[0], &last[0]);
    a[1].covering(h, &first[1], &last[1]);
    above[i] = {outputs.At(static_cast<int>(plane), first[0], first[1], width), last[0] - first[0], last[1] - first[1],
                (d * a[1].in + h) * a[2].in};
  }
  __syncthreads();

  // A thread stays with one column, or, where rows are longer than a block, with every so many.
  T* dx = p.result + ((piece.plane * a[0].in + piece.depth) * a[1].in + piece.row) * a[2].in;
  uint32_t column = threadIdx.x;
  const int my_row = p.rows_at_once > 1 ? static_cast<int>(p.in[2].take(&column)) : 0;
  if (my_row >= p.rows_at_once) return;
  for (int w = static_cast<int>(column); w < a[2].in; w += static_cast<int>(blockDim.x)) {
    int first, last;
    a[2].covering(w, &first, &last);
    RowAbove before{-1, 0, 0, 0};
    float sum = 0;
    for (int row = my_row; row < rows; row += p.rows_at_once) {
      const RowAbove r = above[row];
      // An average gives the same to all inputs under the same windows.
      const bool same = kAverage && r.first == before.first && r.depths == before.depths && r.lines == before.lines;
      if (!same) sum = 0;
      before = r;
      for (int d = 0; d < r.depths && !same; ++d) {
        for (int h = 0; h < r.lines; ++h) {
          const Given<kAverage>* line = given + r.first + (d * lines + h) * width;
          for (int o = first; o < last; ++o) {
            if constexpr (kAverage) {
              sum += line[o].value;
            } else {
              const Given<false> g = line[o];
              if (g.target == r.offset + w) sum += g.value;
            }
          }
        }
      }
      dx[static_cast<int64_t>(row) * a[2].in + w] = Narrowed<T>(sum);
    }
  }
}

}  // namespace poolgrad::cuda
