// Windows by table and averages, channels first: a block holds a piece of x in shared memory (forward), or for every
// output that reaches a piece of dx what it adds and where (backward).
#pragma once

#include "cuda/tables/tables.cuh"

namespace poolgrad::cuda {

// Where a piece of x lies in shared memory, or, not staged, all of it in global memory.
template <class T, bool kStaged>
struct PieceOfX {
  const T* global;                      // of row `row` of depth `depth` of the piece's first plane
  const unsigned char* memory;          // shared; null: not staged
  int depth, row, width, plane, slice;  // plane, slice: elements
  int slab_bytes;                       // 0: it is one run

  __device__ PieceOfX(const TableParams<T>& p, const Piece& piece, unsigned char* shared) : memory(shared) {
    const TableAxis *a = p.axis, &d = a[0], &h = a[1];
    width = a[2].in, slice = h.in * width, plane = d.in * slice;
    depth = row = slab_bytes = 0;
    global = p.source + piece.plane * plane;
    if constexpr (!kStaged) return;
    const bool all_depths = piece.depths == d.out, all_rows = piece.rows == h.out;
    if (all_depths && all_rows) {
      StageIn(global, piece.planes * plane, shared);
      return;
    }
    int depths_end;
    d.reach(piece.depth, piece.depth + piece.depths - 1, &depth, &depths_end);
    global += static_cast<int64_t>(depth) * slice;
    if (all_rows) {
      StageIn(global, (depths_end - depth) * slice, shared);
      return;
    }
    int rows_end;
    h.reach(piece.row, piece.row + piece.rows - 1, &row, &rows_end);
    global += static_cast<int64_t>(row) * width;
    slab_bytes = p.cut.slab_bytes[0];
    for (int i = 0; i < depths_end - depth; ++i) {
      AskFor(global + static_cast<int64_t>(i) * slice, (rows_end - row) * width, shared + i * slab_bytes);
    }
    WaitFor();
  }
  // Where row 0 of a depth is (or would be).
  __device__ const T* Depth(int of_plane, int at) const {
    if constexpr (!kStaged) return global + (of_plane * plane + at * slice);
    const int from = at - depth;
    int offset = (of_plane * plane + from * slice) * static_cast<int>(sizeof(T)) + Misalignment(global);
    if (slab_bytes != 0) {
      offset = from * slab_bytes + Misalignment(global + static_cast<int64_t>(from) * slice) -
               row * width * static_cast<int>(sizeof(T));
    }
    return reinterpret_cast<const T*>(memory + offset);
  }
};

// visit(i, row[i]) for the first `size` of a row. `wide`, of long rows in shared memory: four in one load where they
// lie aligned, because lanes whose windows begin a long way apart meet in the same banks. kAgain: four at once
// elsewhere, too, behind the end the last one again, which no maximum minds.
template <bool kAgain, class T, class F>
__device__ void ForRow(const T* row, int size, bool wide, F&& visit) {
  int i = 0;
  if (wide) {
    using Four = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
    const int head = static_cast<int>(-reinterpret_cast<uintptr_t>(row) % sizeof(Four) / sizeof(T));
    for (const int aligned = min(size, head); i < aligned; ++i) visit(i, row[i]);
#pragma unroll 2
    for (; i + 4 <= size; i += 4) {
      const Four words = *reinterpret_cast<const Four*>(row + i);
      T four[4];
      memcpy(four, &words, sizeof four);
#pragma unroll
      for (int k = 0; k < 4; ++k) visit(i + k, four[k]);
    }
  }
  if constexpr (kAgain) {
    for (; i < size; i += 4) {
      T four[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) four[k] = row[min(i + k, size - 1)];
#pragma unroll
      for (int k = 0; k < 4; ++k) visit(min(i + k, size - 1), four[k]);
    }
  } else {
#pragma unroll 4
    for (; i < size; ++i) visit(i, row[i]);
  }
}

// Stores what has won, and its code; all lanes of a warp come here. 1 << log_sharers of them have one output, whose
// plane of x is at `plane`.
template <class T, TableOp kOp>
__device__ void SettleDuel(const TableParams<T>& p, int bits, int log_sharers, Duel duel, bool valid, int sharer,
                           const T* plane, int od, int oh, int ow, T* y, uint8_t* codes) {
  for (int step = 1 << log_sharers >> 1; step > 0; step /= 2) {
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
      T exact;
      code = ExactOutput(p, plane, 1, od, oh, ow, &exact);
      winner = exact;
    }
    if (p.result) *y = winner;
  }
  if constexpr (kOp == TableOp::kRoutes) {
    const int per_byte = bits < 8 ? 8 / bits : 1;
    for (int step = 1; step < per_byte; step *= 2) {
      code |= __shfl_down_sync(~0u, code, step << log_sharers) << (step * bits);
    }
    if (!valid || sharer != 0) return;
    if (per_byte == 1) {
      StoreWideCode(codes + ow * (bits / 8), bits, code);
    } else if ((ow * bits & 7) == 0) {
      codes[ow * bits >> 3] = static_cast<uint8_t>(code);
    }
  }
}

// A thread has a column of outputs, some rows one below the other: what the column has of an input row is found once.
// Where a block has few outputs, 1 << p.log_sharers neighbouring lanes share one: they take the rows of its window in
// turn.
template <class T, TableOp kOp, bool kStaged>
struct TableColumns {
  using V = Wide<T>;
  static constexpr bool kAverage = kOp == TableOp::kAverage;
  const TableParams<T>& p;
  const Piece& piece;
  const PieceOfX<T, kStaged>& x;
  const Span* spans;  // of the piece's outputs by axis: width, height, depth

  __device__ Span Window(int axis, int o) const {
    if constexpr (!kStaged)
      return p.axis[axis].window((axis == 2 ? 0 : axis == 1 ? piece.row : piece.depth) + o, p.count_padding);
    return spans[o + (axis < 2 ? p.axis[2].out : 0) + (axis < 1 ? piece.rows : 0)];
  }

  // What a window has of a row of inputs: `size` from `begin` on, where they are few at most kTaps.
  template <int kTaps>
  struct Columns {
    int size, offset[kTaps == 0 ? 1 : kTaps];
    __device__ explicit Columns(const Span& w) : size(w.end - w.begin) {
#pragma unroll
      for (int i = 0; i < kTaps; ++i) offset[i] = min(i, size - 1);  // no maximum minds one that comes twice
    }
    // visit(number, value); row: where the first one is.
    template <class F>
    __device__ void Visit(const T* row, bool wide, F&& visit) const {
      if constexpr (kTaps == 0) {
        ForRow<!kAverage>(row, size, wide, visit);
      } else {
        T bits[kTaps];
        bits[0] = row[0];
#pragma unroll
        for (int i = 1; i < kTaps; ++i) bits[i] = row[offset[i]];
#pragma unroll
        for (int i = 0; i < kTaps; ++i) {
          if (!kAverage || i < size) visit(i, bits[i]);
        }
      }
    }
  };

  template <int kTaps>
  __device__ void Run() const {
    const TableAxis* a = p.axis;
    const int64_t first_line = (piece.plane * a[0].out + piece.depth) * a[1].out + piece.row;
    const int sharers = kAverage ? 1 : 1 << p.log_sharers, sharer = static_cast<int>(threadIdx.x) & (sharers - 1);
    const int items = piece.planes * piece.depths * static_cast<int>(p.strips.divisor * p.padded.divisor);
    const int at_once = static_cast<int>(blockDim.x) >> p.log_sharers;
    for (int first = 0; first < items; first += at_once) {  // all lanes: they share outputs, and bytes of routes
      const int item = first + (static_cast<int>(threadIdx.x) >> p.log_sharers);
      uint32_t ow = static_cast<uint32_t>(item), strip, depth;
      strip = p.padded.take(&ow), depth = p.strips.take(&strip);
      const int plane = static_cast<int>(p.out[0].take(&depth)), first_row = static_cast<int>(strip) * p.strip;
      const bool there = item < items && static_cast<int>(ow) < a[2].out;
      const Span w = there ? Window(2, static_cast<int>(ow)) : Span{},
                 d = there ? Window(0, static_cast<int>(depth)) : Span{};
      const Columns<kTaps> columns(w);
      const bool any = w.begin < w.end && d.begin < d.end;
      const T* first_slice = x.Depth(plane, d.begin) + w.begin;
      const int64_t line = first_line + (plane * piece.depths + static_cast<int>(depth)) * piece.rows + first_row;
      T* y = p.result + line * a[2].out + ow;
      uint8_t* codes = p.routes + line * p.line_bytes;
#pragma unroll 1
      for (int row = first_row; row < first_row + p.strip; ++row, y += a[2].out, codes += p.line_bytes) {
        const bool valid = there && row < piece.rows;
        const Span h = valid ? Window(1, row) : Span{};
        Duel duel;
        V sum = 0;
        int skip = sharer;
        for (int at_d = any ? d.begin : d.end; at_d < d.end; ++at_d) {
          const T* slice = at_d == d.begin ? first_slice : x.Depth(plane, at_d) + w.begin;
          int at_h = h.begin + skip;
          const T* from = slice + at_h * x.width;
          uint32_t tap = ((at_d - d.start) * a[1].kernel + at_h - h.start) * a[2].kernel +
                         static_cast<uint32_t>(w.begin - w.start);
          for (; at_h < h.end; at_h += sharers, from += sharers * x.width, tap += sharers * a[2].kernel) {
            columns.Visit(from, kStaged && p.wide, [&](int at, T bits) {
              if constexpr (kAverage) {
                sum += Widened(bits);
              } else {
                duel.Meet(Widened(bits), tap + at);
              }
            });
          }
          skip = at_h - h.end;
        }
        if constexpr (kAverage) {
          const int taps = p.divisor != 0 ? p.divisor : d.counted * h.counted * w.counted;
          if (valid) {
            *y = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum, static_cast<V>(taps)));
          }
        } else {
          SettleDuel<T, kOp>(p, p.bits, p.log_sharers, duel, valid, sharer, p.source + (piece.plane + plane) * x.plane,
                             piece.depth + static_cast<int>(depth), piece.row + row, static_cast<int>(ow), y, codes);
        }
      }
    }
  }
};

// kFew: windows have up to eight columns. A kernel of its own, because it takes more registers.
template <class T, TableOp kOp, bool kStaged, bool kFew>
__global__ void __launch_bounds__(kTableThreads, kFew ? 4 : 0)
    TableFirstForward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].out, a[1].out);
  Span* spans = reinterpret_cast<Span*>(table_shared + p.spans_place);
  if constexpr (kStaged) {
    const int most = max(a[2].out, max(piece.rows, piece.depths));
    for (int i = threadIdx.x; i < most; i += blockDim.x) {
      if (i < a[2].out) spans[i] = a[2].window(i, p.count_padding);
      if (i < piece.rows) spans[a[2].out + i] = a[1].window(piece.row + i, p.count_padding);
      if (i < piece.depths) spans[a[2].out + piece.rows + i] = a[0].window(piece.depth + i, p.count_padding);
    }
  }
  const PieceOfX<T, kStaged> x(p, piece, table_shared);
  const TableColumns<T, kOp, kStaged> columns{p, piece, x, spans};
  if constexpr (kFew) {
    if (p.few == 2) return columns.template Run<2>();
    if (p.few == 3) return columns.template Run<3>();
    if (p.few == 4) return columns.template Run<4>();
    if (p.few == 5) return columns.template Run<5>();
    columns.template Run<8>();
  } else {
    columns.template Run<0>();
  }
}

// The average of whole planes that are long: a block has some, which its threads fetch side by side, a run of each at a
// time and some stages ahead, and one thread for each adds them up. What is fetched is aligned, so that a plane may
// begin within its first 16 bytes and end within its last.
inline constexpr int kTablePlaneStage = 512;  // pieces of 16 bytes to a stage

template <class T, int kPlanes>
__global__ void __launch_bounds__(kTableThreads) TablePlaneAverages(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  using V = Wide<T>;
  constexpr int kN = 16 / static_cast<int>(sizeof(T)), kAtOnce = 8, kRun = kTablePlaneStage / kPlanes;
  constexpr int kPitch = 16 * (kRun + 1);  // threads that read their planes at once meet no bank twice
  const int thread = static_cast<int>(threadIdx.x), size = p.axis[2].in, pieces = (size + 2 * kN - 2) / kN;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kPlanes, added = first + thread;
  const auto lead = [&](int64_t plane) { return static_cast<int>(plane * size % kN); };
  const auto ask = [&](int stage) {
    for (int i = thread; i < kTablePlaneStage; i += kTableThreads) {
      const int of = i / kRun, piece = i % kRun;
      const int64_t plane = first + of;
      const int at = (stage * kRun + piece) * kN - lead(plane);
      if (plane >= p.cut.planes || at >= size) continue;
      unsigned char* to = table_shared + (stage % kTableStages * kPlanes + of) * kPitch + piece * 16;
      const T* from = p.source + plane * size + at;
      if (at + kN <= size || plane + 1 < p.cut.planes) {
        CopyAsync(to, from);
      } else {
        for (int k = 0; k < size - at; ++k) reinterpret_cast<T*>(to)[k] = from[k];
      }
    }
    CommitAsked();
  };
  V sum = 0;
  for (int s = 0; s < kTableStages - 1; ++s) ask(s);
  for (int s = 0; s * kRun < pieces; ++s) {
    WaitForAllBut<kTableStages - 2>();
    ask(s + kTableStages - 1);
    if (thread >= kPlanes) continue;
    const unsigned char* row = table_shared + (s % kTableStages * kPlanes + thread) * kPitch;
    for (int begin = 0; begin < kRun; begin += kAtOnce) {
      const int at = (s * kRun + begin) * kN - lead(added);
      T x[kAtOnce][kN];  // all loads before the first addition waits for one
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint4 words = *reinterpret_cast<const uint4*>(row + 16 * (begin + i));
        memcpy(x[i], &words, 16);
      }
      const auto add = [&](int begins, int ends) {
#pragma unroll
        for (int i = 0; i < kAtOnce * kN; ++i) {
          if (at + i >= begins && at + i < ends) sum += Widened(x[i / kN][i % kN]);
        }
      };
      if (at >= 0 && at + kAtOnce * kN <= size) {
        add(at, at + kAtOnce * kN);
      } else {
        add(0, size);
      }
    }
  }
  if (thread >= kPlanes || added >= p.cut.planes) return;
  p.result[added] = Narrowed<T>(Quotient(sum, static_cast<V>(Counted(p, p.divisor, 0, 0, 0))));
}

// The gradient of averages of whole planes: every input of a plane gets the same. A thread writes 16 bytes, of one
// plane, or the end of one and the beginning of the next ones.
template <class T>
__global__ void __launch_bounds__(kTableThreads) TablePlaneShares(const __grid_constant__ TableParams<T> p) {
  constexpr int kN = 16 / static_cast<int>(sizeof(T));
  const int64_t first = (int64_t{blockIdx.x} * kTableThreads + threadIdx.x) * kN, all = p.cut.planes * p.axis[2].in;
  if (first >= all) return;
  uint32_t place = static_cast<uint32_t>(first);
  const int64_t plane = p.in[2].take(&place);
  const int left = p.axis[2].in - static_cast<int>(place);  // of the plane
  const auto share = [&](int64_t of_plane) {                // a sum of one, which knows no -0
    return Narrowed<T>(0.0f + Quotient(Widened(p.source[of_plane]), static_cast<float>(p.gradient_divisor)));
  };
  T dx[kN];
  dx[0] = share(plane);
#pragma unroll
  for (int i = 1; i < kN; ++i) dx[i] = dx[0];
  if (left < kN && p.axis[2].in >= kN) {
    const T next = share(plane + 1 < p.cut.planes ? plane + 1 : plane);
#pragma unroll
    for (int i = 1; i < kN; ++i) dx[i] = i < left ? dx[0] : next;
  } else if (left < kN) {
#pragma unroll
    for (int i = 1; i < kN; ++i) {
      if (i >= left && first + i < all) dx[i] = share(plane + 1 + TableAxis::Over(p.in[2], i - left));
    }
  }
  if (first + kN <= all) {
    uint4 words;
    memcpy(&words, dx, 16);
    *reinterpret_cast<uint4*>(p.result + first) = words;
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (first + i < all) p.result[first + i] = dx[i];
    }
  }
}

// What an output adds: to the input at `target` of its plane, or as an average to all under its window.
template <bool kAverage>
struct alignas(8) Given {
  float value;
  int target;
};
template <>
struct alignas(4) Given<true> {
  float value;
};

// The outputs over a row of inputs: of each of `depths` the line that begins with `first` of those of the piece, and
// `second`, where there are two at most; either may be the line behind all, which gives nothing. Else `second` is how
// many lines there are.
struct alignas(16) RowAbove {
  int first, second, depths, offset;  // offset: of the row in its plane
};

// The outputs that reach a piece of dx, in row-major order: what they give. kLast: planes are samples, and channels,
// few of them, lie side by side.
template <class T, bool kAverage, bool kLast = false>
struct Outputs {
  BlockAxes a;
  int channels, count;

  __device__ Outputs(const TableParams<T>& p, const Piece& piece, unsigned char* tables)
      : a(p, piece, tables, false),
        channels(kLast ? p.channels : 1),
        count(piece.planes * a.outs[0] * a.outs[1] * a.outs[2] * channels) {}
  // Where output (od, oh, 0) of a plane is.
  __device__ int At(int plane, int od, int oh) const {
    return ((plane * a.outs[0] + od) * a.outs[1] + oh) * a.outs[2] * channels;
  }
  // The tables are there.
  __device__ void Make(const TableParams<T>& p, const Piece& piece, Given<kAverage>* given) const {
    const bool whole = a.Whole(p);  // else of one plane
    for (int item = threadIdx.x; item < count; item += blockDim.x) {
      uint32_t ow = static_cast<uint32_t>(item), channel = 0, oh, od = 0, plane = 0;
      if constexpr (kLast) channel = ow, ow = p.by_channels.take(&channel);
      oh = p.out[2].take(&ow);
      if (whole) {
        od = p.out[1].take(&oh), plane = p.out[0].take(&od);
      } else if (a.outs[0] > 1) {
        od = oh / static_cast<uint32_t>(a.outs[1]), oh -= od * static_cast<uint32_t>(a.outs[1]);
      }
      const int64_t line =
          ((piece.plane + plane) * p.axis[0].out + a.first_out[0] + static_cast<int>(od)) * p.axis[1].out +
          a.first_out[1] + static_cast<int>(oh);
      const int64_t output = line * p.axis[2].out + ow;
      const float dy = Widened(p.source[output * channels + channel]);
      const Span d = a.window[0][od], h = a.window[1][oh], w = p.axis[2].window(static_cast<int>(ow), p.count_padding);
      if constexpr (kAverage) {
        const int taps = p.gradient_divisor != 0 ? p.gradient_divisor : d.counted * h.counted * w.counted;
        given[item].value = Quotient(dy, static_cast<float>(taps));
      } else {
        const uint32_t code = CodeAt(p.bits, p.routes + (kLast ? output : line) * p.line_bytes, kLast ? channel : ow);
        uint32_t kw = code, kh;
        uint32_t kd = p.kernel[1].take(&kw);
        kh = kd, kd = p.kernel[0].take(&kh);
        // Codes may be anything: also taps that this window does not have.
        const int at_d = d.start + static_cast<int>(kd), at_h = h.start + static_cast<int>(kh);
        const int at_w = w.start + static_cast<int>(kw);
        const bool lands =
            code < p.taps && at_d >= 0 && at_d < d.end && at_h >= 0 && at_h < h.end && at_w >= 0 && at_w < w.end;
        given[item] = {dy, lands ? (at_d * p.axis[1].in + at_h) * p.axis[2].in + at_w : -1};
      }
    }
  }
};

// Maxima of windows that have many inputs each: most of dx is 0. A block clears its piece in shared memory, and the
// first output of those that have the same target puts the sum of them there.
template <class T, bool kLast>
__global__ void __launch_bounds__(kTableThreads) TableScatter(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  auto* given = reinterpret_cast<Given<false>*>(table_shared + p.rows_place);
  const Piece piece(p.cut, p.axis[0].in, p.axis[1].in);
  const Outputs<T, false, kLast> outputs(p, piece, table_shared + p.spans_place);
  const BlockAxes& a = outputs.a;
  const int channels = outputs.channels, width = p.axis[2].in * channels;
  const int size = piece.planes * piece.depths * piece.rows * width;
  T* dx = p.result + ((piece.plane * p.axis[0].in + piece.depth) * p.axis[1].in + piece.row) * width;
  T* staged = reinterpret_cast<T*>(table_shared + Misalignment(dx));
  for (int i = threadIdx.x; i < (size * static_cast<int>(sizeof(T)) + 31) / 16; i += blockDim.x) {
    reinterpret_cast<uint4*>(table_shared)[i] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  outputs.Make(p, piece, given);
  __syncthreads();
  const bool whole = a.Whole(p);
  for (int item = threadIdx.x; item < outputs.count; item += blockDim.x) {
    const int target = given[item].target;
    if (target < 0) continue;
    uint32_t w = static_cast<uint32_t>(target), h;
    uint32_t d = p.in[2].take(&w);
    h = d, d = p.in[1].take(&h);
    const int in_depth = static_cast<int>(d) - piece.depth, in_row = static_cast<int>(h) - piece.row;
    if (in_depth < 0 || in_depth >= piece.depths || in_row < 0 || in_row >= piece.rows) continue;
    uint32_t channel = 0, number = static_cast<uint32_t>(item);
    if constexpr (kLast) channel = number, number = p.by_channels.take(&channel);
    const int plane = whole ? TableAxis::Over(p.out_plane, static_cast<int>(number)) : 0;
    const Interval over_d = a.over[0][in_depth], over_h = a.over[1][in_row];
    Interval over_w;
    p.axis[2].covering(static_cast<int>(w), &over_w.begin, &over_w.end);
    float sum = 0;
    int first = -1;
    for (int od = over_d.begin; od < over_d.end; ++od) {
      for (int oh = over_h.begin; oh < over_h.end; ++oh) {
        const int line = outputs.At(plane, od, oh) + static_cast<int>(channel);
        for (int o = line + over_w.begin * channels; o < line + over_w.end * channels; o += channels) {
          if (given[o].target != target) continue;
          if (first < 0) first = o;
          sum += given[o].value;
        }
      }
    }
    if (first == item) {
      const int place = ((plane * piece.depths + in_depth) * piece.rows + in_row) * width;
      staged[place + w * channels + channel] = Narrowed<T>(sum);
    }
  }
  __syncthreads();
  StageOut(table_shared, dx, size);
}

// A thread stays with two columns of inputs, half a row apart, or, where rows are longer than two blocks, with every so
// many.
template <class T, bool kAverage>
struct TableGather {
  const TableParams<T>& p;
  const Outputs<T, kAverage>& outputs;
  const Given<kAverage>* given;
  const RowAbove* above;
  int rows;
  T* dx;

  // kTwo: at most two outputs lie over an input along the width, and along the height.
  template <bool kTwo>
  __device__ void Run() const {
    const int width = p.axis[2].in, half = static_cast<int>(p.half.divisor);
    const int step = outputs.a.outs[2], slice = outputs.a.outs[1] * step, nothing = outputs.count;
    uint32_t column = threadIdx.x;
    const int group = p.rows_at_once > 1 ? static_cast<int>(p.half.take(&column)) : 0;
    if (group >= p.rows_at_once) return;
    // Neighbouring threads write neighbouring rows, or, where windows are tall, a thread does rows under the same ones.
    const int each = (rows + p.rows_at_once - 1) / p.rows_at_once;
    const int first_row = p.tall ? group * each : group, row_step = p.tall ? 1 : p.rows_at_once;
    const int end_row = p.tall ? min(rows, first_row + each) : rows;
    for (int w = static_cast<int>(column); w < half; w += static_cast<int>(blockDim.x)) {
      int begin[2], across[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        p.axis[2].covering(min(w + c * half, width - 1), &begin[c], &across[c]);
        across[c] -= begin[c];
      }
      const bool both = w + half < width;
      T* to = dx + first_row * width + w;
      RowAbove before{-1, 0, 0, 0};
      float sum[2] = {};
#pragma unroll 1
      for (int row = first_row; row < end_row; row += row_step, to += row_step * width) {
        const RowAbove r = above[row];
        // An average gives the same to all inputs under the same windows.
        const bool same = kAverage && r.first == before.first && r.second == before.second && r.depths == before.depths;
        before = r;
        if (!same) {
          sum[0] = sum[1] = 0;
          const Given<kAverage>*line = given + r.first, *below = given + r.second;
#pragma unroll 1
          for (int d = 0; d < r.depths; ++d) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const auto add = [&](const Given<kAverage>& g) {
                if constexpr (kAverage) {
                  sum[c] += g.value;
                } else {
                  if (g.target == r.offset + w + c * half) sum[c] += g.value;
                }
              };
              const bool one = across[c] > 0, two = across[c] > 1;
              if constexpr (kTwo) {
                if (one) add(line[begin[c]]);
                if (two) add(line[begin[c] + 1]);
                if (one) add(below[begin[c]]);
                if (two) add(below[begin[c] + 1]);
              } else {
                const Given<kAverage>* at = line + begin[c];
#pragma unroll 1
                for (int h = 0; h < r.second; ++h, at += step) {
                  for (int o = 0; o < across[c]; ++o) add(at[o]);
                }
              }
            }
            if (r.first != nothing) line += slice;
            if (r.second != nothing) below += slice;
          }
        }
        to[0] = Narrowed<T>(sum[0]);
        if (both) to[half] = Narrowed<T>(sum[1]);
      }
    }
  }
};

template <class T, bool kAverage>
__global__ void __launch_bounds__(kTableThreads) TableFirstBackward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  auto* given = reinterpret_cast<Given<kAverage>*>(table_shared);
  auto* above = reinterpret_cast<RowAbove*>(table_shared + p.rows_place);
  const Piece piece(p.cut, p.axis[0].in, p.axis[1].in);
  const Outputs<T, kAverage> outputs(p, piece, table_shared + p.spans_place);
  __syncthreads();
  outputs.Make(p, piece, given);
  const int rows = piece.planes * piece.depths * piece.rows;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    uint32_t row = static_cast<uint32_t>(i), depth;
    uint32_t plane = p.in[1].take(&row);
    depth = plane, plane = p.in[0].take(&depth);
    const Interval over_d = outputs.a.over[0][depth], over_h = outputs.a.over[1][row];
    const int d = piece.depth + static_cast<int>(depth), h = piece.row + static_cast<int>(row);
    const int lines = over_h.end - over_h.begin;
    const int first = outputs.At(static_cast<int>(plane), over_d.begin, over_h.begin);
    above[i] = {first, lines, over_d.end - over_d.begin, (d * p.axis[1].in + h) * p.axis[2].in};
    if (p.two) {
      above[i].first = lines > 0 ? first : outputs.count;
      above[i].second = lines > 1 ? first + outputs.a.outs[2] : outputs.count;
    }
  }
  for (int i = threadIdx.x; i < outputs.a.outs[2]; i += blockDim.x) {  // what gives nothing
    given[outputs.count + i].value = 0;
    if constexpr (!kAverage) given[outputs.count + i].target = -1;
  }
  __syncthreads();
  T* dx = p.result + ((piece.plane * p.axis[0].in + piece.depth) * p.axis[1].in + piece.row) * p.axis[2].in;
  const TableGather<T, kAverage> gather{p, outputs, given, above, rows, dx};
  if (p.two) return gather.template Run<true>();
  gather.template Run<false>();
}

}  // namespace poolgrad::cuda
