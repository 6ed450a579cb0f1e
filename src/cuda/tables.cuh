// Windows by table (adaptive and fractional pooling, a user's own starts), and averages of any window.
//
// Windows of different sizes leave nothing to unroll, so these kernels are short loops over what each window has; what
// makes them fast is how memory is touched. Channels last: a thread has 16 bytes of channels of one output (forward) or
// of one input (backward), and goes through the taps, or the outputs over that input, in row-major order. Channels
// first: a block holds a piece of x in shared memory (forward), or for every output that reaches a piece of dx what it
// adds and where (backward); everything that is read or written is a run.
//
// A winner is found by every rule at once: `Rules` says who wins among NaNs, so that no window has to be done again.
#pragma once

#include "cuda/device.cuh"
#include "cuda/generic.cuh"
#include "cuda/packs.cuh"
#include "cuda/staging.cuh"
#include "cuda/units.cuh"

namespace poolgrad::cuda {

inline constexpr int kTableThreads = 256;
inline constexpr int kTableAhead = 4;  // taps along a row that a thread asks for at once

// What a window has of an axis: tap 0 lies at `start`, and [begin, end) of the input is in it.
struct Span {
  int start, begin, end;
};

// Windows without dilation, in numbers of 32 bits. For host and device, so that pieces are cut by what kernels will do.
struct TableAxis {
  int in, out, kernel, stride, pad_lo, pad_hi;
  int32_t form, list;
  bool sized;
  FastDiv by_out, by_in;  // of kAdaptive; else by_in divides by the stride

  __host__ __device__ static int Over(const FastDiv& by, int n) {
    uint32_t rest = static_cast<uint32_t>(n);
    return static_cast<int>(by.take(&rest));
  }
  __host__ __device__ const uint16_t* entries() const {
    return reinterpret_cast<const uint16_t*>(reinterpret_cast<const char*>(this) + list);
  }
  __host__ __device__ int start(int o) const {
    if (form == kRegular) return o * stride - pad_lo;
    return form == kAdaptive ? Over(by_out, o * in) : entries()[o];
  }
  __host__ __device__ int end(int o) const {
    if (form == kAdaptive) return Over(by_out, (o + 1) * in + out - 1);
    return start(o) + (sized ? entries()[out + o] : kernel);
  }
  __host__ __device__ Span span(int o) const {
    Span s{start(o), 0, end(o)};
    s.begin = s.start > 0 ? s.start : 0;
    if (s.end > in) s.end = in;
    return s;
  }
  // [*begin, *end) of the input is all that outputs [first, last] reach.
  __host__ __device__ void reach(int first, int last, int* begin, int* end_of_all) const {
    *begin = span(first).begin;
    int most = span(last).end;
    for (int o = first; sized && o < last; ++o) most = end(o) > most ? end(o) : most;
    *end_of_all = most > *begin ? most : *begin;
  }
  // Outputs from the first to the last with a tap on input i; with sizes, some between them may have none.
  __host__ __device__ void covering(int i, int* begin, int* end_of_all) const {
    if (form == kAdaptive) {
      *begin = Over(by_in, i * out);
      *end_of_all = Over(by_in, (i + 1) * out + in - 1);
    } else if (form == kListed) {
      *begin = FirstFrom(entries(), out, i - kernel + 1);
      *end_of_all = FirstFrom(entries(), out, i + 1);
    } else {
      const int over = i + pad_lo, low = over - kernel + 1;
      *begin = low > 0 ? Over(by_in, low + stride - 1) : 0;
      const int high = over < 0 ? 0 : Over(by_in, over) + 1;
      *end_of_all = high < out ? high : out;
    }
  }
  // What an average counts.
  __device__ int counted(int o, bool padding) const {
    if (form != kRegular) return end(o) - start(o);
    const int low = max(start(o), padding ? -pad_lo : 0), high = min(end(o), padding ? in + pad_hi : in);
    return max(0, high - low);
  }
};

template <class T>
struct TableParams {
  const T* source;
  T* result;
  uint8_t* routes;
  TableAxis axis[3];
  FastDiv out[3], in[3];  // divide by the sizes
  FastDiv across;         // channels last: groups of channels at a place
  int channels;
  uint32_t threads;
  FastDiv kernel[2];  // of height and width
  uint32_t taps;
  int bits;
  uint32_t none;
  int64_t line_bytes;
  int divisor, gradient_divisor;  // 0: the taps that count
  uint32_t nan_wins;              // see Rules
  bool last_wins, relu, count_padding, ignore_nan;
  // Channels first.
  Pieces cut;
  FastDiv padded;    // outputs of a line, rounded up to whole bytes of routes
  int rows_at_once;  // backward: rows of inputs that the threads of a block do at once
  int rows_place;    // backward: where the table of rows lies
  uint16_t lists[kListEntries];
};

// ---- who wins ----

// nan_wins has a bit for each way a comparison can have a NaN: the challenger only, the best so far only, both.
template <class T>
struct Contest {
  using V = Wide<T>;
  V best;
  T winner;  // its bits
  uint32_t code;

  // Nothing has won: the start of rule `ignore`, and windows without a tap.
  __device__ void Clear(uint32_t none) { winner = LowestOf<T>(), best = Widened(winner), code = none; }
  __device__ void Take(T bits, V v, uint32_t tap) { winner = bits, best = v, code = tap; }
  __device__ void Meet(const TableParams<T>& p, T bits, uint32_t tap) {
    const V v = Widened(bits);
    bool wins = p.last_wins ? v >= best : v > best;
    if (!(v <= best) && !wins) wins = p.nan_wins >> ((v != v ? 1 : 0) + (best != best ? 2 : 0)) & 1u;
    if (wins) Take(bits, v, tap);
  }
  __device__ void Rectify(const TableParams<T>& p) {
    if (p.relu && !(best > V{0}) && best == best) winner = Narrowed<T>(V{0}), code = p.none;
  }
};

enum class TableOp { kMax, kRoutes, kAverage };

template <class T>
__device__ int Counted(const TableParams<T>& p, int divisor, int od, int oh, int ow) {
  if (divisor != 0) return divisor;
  return p.axis[0].counted(od, p.count_padding) * p.axis[1].counted(oh, p.count_padding) *
         p.axis[2].counted(ow, p.count_padding);
}

// ---- channels last ----

// kVector: 16 aligned bytes of channels; else four, of which `count` are there.
template <class T, bool kVector>
struct ChannelGroup {
  static constexpr int kN = kVector ? 16 / static_cast<int>(sizeof(T)) : 4;

  // The first one always is.
  __device__ static void Load(bool valid, const T* at, int count, T (&to)[kN]) {
    if constexpr (kVector) {
      uint32_t words[4] = {};
      LoadWordsIf<16>(valid, at, words);
      memcpy(to, words, 16);
    } else {
#pragma unroll
      for (int i = 0; i < kN; ++i) to[i] = valid && i < count ? at[i] : T{};
    }
  }
  __device__ static void Store(T* at, int count, const T (&from)[kN]) {
    if constexpr (kVector) {
      uint4 words;
      memcpy(&words, from, 16);
      *reinterpret_cast<uint4*>(at) = words;
    } else {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (i < count) at[i] = from[i];
      }
    }
  }
  // `at` is where the line begins. Groups begin at whole bytes.
  __device__ static void StoreCodes(uint8_t* at, int bits, int c, int count, const uint32_t (&codes)[kN]) {
    if (bits > 8) {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (i < count) StoreWideCode(at + (c + i) * (bits / 8), bits, codes[i]);
      }
      return;
    }
    uint64_t packed = 0;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i < count) packed |= static_cast<uint64_t>(codes[i]) << (i * bits);
    }
    at += c * bits / 8;
    const int bytes = (count * bits + 7) / 8;
    if constexpr (kVector) {
      if (bytes == 8) *reinterpret_cast<uint64_t*>(at) = packed;
      if (bytes == 4) *reinterpret_cast<uint32_t*>(at) = static_cast<uint32_t>(packed);
      if (bytes == 2) *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(packed);
      if (bytes == 1) *at = static_cast<uint8_t>(packed);
    } else {
      for (int b = 0; b < bytes; ++b) at[b] = static_cast<uint8_t>(packed >> (8 * b));
    }
  }
  __device__ static void LoadCodes(const uint8_t* at, int bits, int c, int count, uint32_t (&codes)[kN]) {
    if (!kVector || bits > 8) {
#pragma unroll
      for (int i = 0; i < kN; ++i) codes[i] = i < count ? CodeAt(bits, at, c + i) : 0;
      return;
    }
    at += c * bits / 8;
    const int bytes = kN * bits / 8;
    uint64_t packed = bytes == 8   ? *reinterpret_cast<const uint64_t*>(at)
                      : bytes == 4 ? *reinterpret_cast<const uint32_t*>(at)
                      : bytes == 2 ? *reinterpret_cast<const uint16_t*>(at)
                                   : *at;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      codes[i] = static_cast<uint32_t>(packed) & ((1u << bits) - 1u);
      packed >>= bits;
    }
  }
};

template <class T, TableOp kOp, bool kVector>
__global__ void __launch_bounds__(kTableThreads) TableLastForward(const __grid_constant__ TableParams<T> p) {
  using Group = ChannelGroup<T, kVector>;
  using V = Wide<T>;
  constexpr int kN = Group::kN;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t group = thread;
  const uint32_t line = p.across.take(&group);
  uint32_t ow = line, oh, od;
  uint32_t n = p.out[2].take(&ow);
  oh = n, n = p.out[1].take(&oh);
  od = n, n = p.out[0].take(&od);
  const int c = static_cast<int>(group) * kN, count = min(kN, p.channels - c);
  const Span d = p.axis[0].span(od), h = p.axis[1].span(oh), w = p.axis[2].span(ow);
  const int64_t row_step = static_cast<int64_t>(p.axis[2].in) * p.channels;
  const T* sample = p.source + static_cast<int64_t>(n) * p.axis[0].in * p.axis[1].in * row_step + c;
  const auto row_at = [&](int at_d, int at_h) {
    return sample + (static_cast<int64_t>(at_d) * p.axis[1].in + at_h) * row_step;
  };
  Contest<T> contest[kN];
  V sum[kN] = {};
  if constexpr (kOp != TableOp::kAverage) {
    const bool any = d.begin < d.end && h.begin < h.end && w.begin < w.end;
    T first[kN];
    Group::Load(any, row_at(d.begin, h.begin) + static_cast<int64_t>(w.begin) * p.channels, count, first);
    const uint32_t tap =
        ((d.begin - d.start) * p.axis[1].kernel + h.begin - h.start) * p.axis[2].kernel + w.begin - w.start;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      contest[i].Clear(p.none);
      if (any && !p.ignore_nan) contest[i].Take(first[i], Widened(first[i]), tap);
    }
  }
  for (int at_d = d.begin; at_d < d.end; ++at_d) {
    for (int at_h = h.begin; at_h < h.end; ++at_h) {
      const T* row = row_at(at_d, at_h);
      const uint32_t first_tap = ((at_d - d.start) * p.axis[1].kernel + at_h - h.start) * p.axis[2].kernel - w.start;
      for (int at_w = w.begin; at_w < w.end; at_w += kTableAhead) {
        T x[kTableAhead][kN];
#pragma unroll
        for (int k = 0; k < kTableAhead; ++k) {
          Group::Load(at_w + k < w.end, row + static_cast<int64_t>(at_w + k) * p.channels, count, x[k]);
        }
#pragma unroll
        for (int k = 0; k < kTableAhead; ++k) {
          if (at_w + k >= w.end) break;
#pragma unroll
          for (int i = 0; i < kN; ++i) {
            if constexpr (kOp == TableOp::kAverage) {
              sum[i] += Widened(x[k][i]);
            } else {
              contest[i].Meet(p, x[k][i], first_tap + at_w + k);
            }
          }
        }
      }
    }
  }
  T y[kN];
  if constexpr (kOp == TableOp::kAverage) {
    const int taps = Counted(p, p.divisor, od, oh, ow);
#pragma unroll
    for (int i = 0; i < kN; ++i) y[i] = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum[i], static_cast<V>(taps)));
  } else {
    uint32_t codes[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      contest[i].Rectify(p);
      y[i] = contest[i].winner, codes[i] = contest[i].code & p.none;
    }
    if constexpr (kOp == TableOp::kRoutes) Group::StoreCodes(p.routes + line * p.line_bytes, p.bits, c, count, codes);
    if (!p.result) return;  // backward from x wants routes only
  }
  Group::Store(p.result + static_cast<int64_t>(line) * p.channels + c, count, y);
}

// Few outputs with long windows, which are too few threads to keep memory busy: a block has one output and 128 bytes of
// channels. All of its threads fetch places of the window, some stages ahead, and one for each channel goes through
// them in order.
inline constexpr int kTableRunBytes = 128, kTablePlaces = 32, kTableStages = 4;
static_assert(kTableThreads == kTablePlaces * kTableRunBytes / 16);

template <int kPending>
__device__ void WaitForAllBut() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
  __syncthreads();
}

// A place of a window's box, in row-major order.
struct BoxCursor {
  int w, h, d, width, height;
  __device__ BoxCursor(int index, int box_width, int box_height) : width(box_width), height(box_height) {
    w = index % width, h = index / width % height, d = index / width / height;
  }
  __device__ void Advance(int by) {
    for (w += by; w >= width; w -= width) {
      if (++h == height) h = 0, ++d;
    }
  }
};

template <class T, TableOp kOp>
__global__ void __launch_bounds__(kTableThreads) TableLastStaged(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  using V = Wide<T>;
  constexpr int kN = 16 / static_cast<int>(sizeof(T)), kChannels = kTableRunBytes / static_cast<int>(sizeof(T));
  const TableAxis* a = p.axis;
  uint32_t run = blockIdx.x;
  const uint32_t line = p.across.take(&run);
  uint32_t ow = line, oh, od;
  uint32_t n = p.out[2].take(&ow);
  oh = n, n = p.out[1].take(&oh);
  od = n, n = p.out[0].take(&od);
  const Span d = a[0].span(od), h = a[1].span(oh), w = a[2].span(ow);
  const int width = max(0, w.end - w.begin), height = max(0, h.end - h.begin);
  const int places = width * height * max(0, d.end - d.begin);
  const int thread = static_cast<int>(threadIdx.x), first_channel = static_cast<int>(run) * kChannels;

  const int c = first_channel + thread % 8 * kN;
  const T* sample = p.source + static_cast<int64_t>(n) * a[0].in * a[1].in * a[2].in * p.channels + c;
  int asked = thread / 8;
  BoxCursor next(places > 0 ? asked : 0, max(1, width), max(1, height));
  const auto ask = [&](int stage) {
    if (asked < places && c < p.channels) {
      const int64_t place =
          (static_cast<int64_t>(d.begin + next.d) * a[1].in + h.begin + next.h) * a[2].in + w.begin + next.w;
      CopyAsync(table_shared + (stage % kTableStages * kTablePlaces + thread / 8) * kTableRunBytes + thread % 8 * 16,
                sample + place * p.channels);
    }
    asked += kTablePlaces;
    next.Advance(kTablePlaces);
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  };
  Contest<T> contest;
  contest.Clear(p.none);
  V sum = 0;
  bool started = p.ignore_nan;
  BoxCursor at(0, max(1, width), max(1, height));
  const bool mine = thread < kChannels && first_channel + thread < p.channels;
  for (int s = 0; s < kTableStages - 1; ++s) ask(s);
  for (int s = 0; s * kTablePlaces < places; ++s) {
    WaitForAllBut<kTableStages - 2>();
    ask(s + kTableStages - 1);
    if (!mine) continue;
    const T* from =
        reinterpret_cast<const T*>(table_shared + s % kTableStages * kTablePlaces * kTableRunBytes) + thread;
    const int count = min(kTablePlaces, places - s * kTablePlaces);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const T bits = from[i * kChannels];
      if constexpr (kOp == TableOp::kAverage) {
        sum += Widened(bits);
      } else {
        const uint32_t tap = ((d.begin - d.start + at.d) * a[1].kernel + h.begin - h.start + at.h) * a[2].kernel +
                             w.begin - w.start + at.w;
        if (!started) contest.Take(bits, Widened(bits), tap);
        started = true;
        contest.Meet(p, bits, tap);
        at.Advance(1);
      }
    }
  }
  if (thread >= kChannels) return;
  T y;
  if constexpr (kOp == TableOp::kAverage) {
    const int taps = Counted(p, p.divisor, od, oh, ow);
    y = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum, static_cast<V>(taps)));
  } else {
    contest.Rectify(p);
    y = contest.winner;
  }
  const int64_t first = static_cast<int64_t>(line) * p.channels + first_channel;
  if (mine && (kOp == TableOp::kAverage || p.result)) p.result[first + thread] = y;
  if constexpr (kOp == TableOp::kRoutes) {
    const int per_byte = p.bits < 8 ? 8 / p.bits : 1, channel = first_channel + thread;
    uint8_t* codes = p.routes + line * p.line_bytes;
    uint32_t code = mine ? contest.code & p.none : 0;
    for (int step = 1; step < per_byte; step *= 2) code |= __shfl_down_sync(~0u, code, step) << (step * p.bits);
    if (!mine) return;
    if (per_byte == 1) {
      StoreWideCode(codes + static_cast<int64_t>(channel) * (p.bits / 8), p.bits, code);
    } else if (channel % per_byte == 0) {
      codes[channel / per_byte] = static_cast<uint8_t>(code);
    }
  }
}

template <class T, bool kAverage, bool kVector>
__global__ void __launch_bounds__(kTableThreads) TableLastBackward(const __grid_constant__ TableParams<T> p) {
  using Group = ChannelGroup<T, kVector>;
  using V = Wide<T>;
  constexpr int kN = Group::kN;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t group = thread;
  const uint32_t place = p.across.take(&group);
  uint32_t at[3];
  uint32_t n = place;
#pragma unroll
  for (int i = 2; i >= 0; --i) at[i] = n, n = p.in[i].take(&at[i]);
  const int c = static_cast<int>(group) * kN, count = min(kN, p.channels - c);
  int begin[3], end[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) p.axis[i].covering(at[i], &begin[i], &end[i]);
  V sum[kN] = {};
  // The tap of output o on this input, or -1.
  const auto tap_on = [&](int i, int o) {
    const int here = static_cast<int>(at[i]);
    return p.axis[i].sized && here >= p.axis[i].end(o) ? -1 : here - p.axis[i].start(o);
  };
  for (int od = begin[0]; od < end[0]; ++od) {
    const int kd = tap_on(0, od);
    if (kd < 0) continue;
    for (int oh = begin[1]; oh < end[1]; ++oh) {
      const int kh = tap_on(1, oh);
      if (kh < 0) continue;
      const int64_t line = ((static_cast<int64_t>(n) * p.axis[0].out + od) * p.axis[1].out + oh) * p.axis[2].out;
      for (int ow = begin[2]; ow < end[2]; ++ow) {
        const int kw = tap_on(2, ow);
        if (kw < 0) continue;
        T dy[kN];
        Group::Load(true, p.source + (line + ow) * p.channels + c, count, dy);
        if constexpr (kAverage) {
          const V taps = static_cast<V>(Counted(p, p.gradient_divisor, od, oh, ow));
#pragma unroll
          for (int i = 0; i < kN; ++i) sum[i] += Quotient(Widened(dy[i]), taps);
        } else {
          const uint32_t tap = (kd * p.axis[1].kernel + kh) * p.axis[2].kernel + kw;
          uint32_t codes[kN];
          Group::LoadCodes(p.routes + (line + ow) * p.line_bytes, p.bits, c, count, codes);
#pragma unroll
          for (int i = 0; i < kN; ++i) {
            if (codes[i] == tap) sum[i] += Widened(dy[i]);
          }
        }
      }
    }
  }
  T dx[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) dx[i] = Narrowed<T>(sum[i]);
  Group::Store(p.result + static_cast<int64_t>(place) * p.channels + c, count, dx);
}

// ---- channels first ----

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

// visit(w, row[w]) for [begin, end) of a row in shared memory. `wide`: four at once where they lie aligned, because
// lanes whose windows begin a long way apart meet in the same banks.
template <class T, class F>
__device__ void ForRow(const T* row, int begin, int end, bool wide, F&& visit) {
  int w = begin;
  if (wide) {
    constexpr int kBytes = 4 * static_cast<int>(sizeof(T));
    const int head = static_cast<int>(-reinterpret_cast<uintptr_t>(row + begin) % kBytes / sizeof(T));
    for (const int aligned = min(end, begin + head); w < aligned; ++w) visit(w, row[w]);
#pragma unroll 2
    for (; w + 4 <= end; w += 4) {
      std::conditional_t<sizeof(T) == 4, uint4, uint2> words =
          *reinterpret_cast<const std::conditional_t<sizeof(T) == 4, uint4, uint2>*>(row + w);
      T four[4];
      memcpy(four, &words, sizeof four);
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(w + i, four[i]);
    }
  }
#pragma unroll 4
  for (; w < end; ++w) visit(w, row[w]);
}

template <class T, TableOp kOp, bool kStaged>
__global__ void __launch_bounds__(kTableThreads) TableFirstForward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  using V = Wide<T>;
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].out, a[1].out);
  const PieceOfX<T, kStaged> x(p, piece, table_shared);
  const int64_t first_line = (piece.plane * a[0].out + piece.depth) * a[1].out + piece.row;
  const int items = piece.planes * piece.depths * piece.rows * static_cast<int>(p.padded.divisor);
  const int per_byte = p.bits < 8 ? 8 / p.bits : 1;
  const bool wide = kStaged && a[2].kernel >= 12;
  for (int first = 0; first < items; first += static_cast<int>(blockDim.x)) {  // all lanes: they share bytes of routes
    const int item = first + static_cast<int>(threadIdx.x);
    uint32_t ow = static_cast<uint32_t>(item);
    const uint32_t line = p.padded.take(&ow);
    const bool valid = item < items && static_cast<int>(ow) < a[2].out;
    uint32_t code = 0;
    if (valid) {
      uint32_t row = line, depth;
      uint32_t plane = p.out[1].take(&row);
      depth = plane, plane = p.out[0].take(&depth);
      const int od = piece.depth + static_cast<int>(depth), oh = piece.row + static_cast<int>(row);
      const Span d = a[0].span(od), h = a[1].span(oh), w = a[2].span(ow);
      T y;
      if constexpr (kOp == TableOp::kAverage) {
        V sum = 0;
        for (int at_d = d.begin; at_d < d.end; ++at_d) {
          const T* slice = x.Depth(plane, at_d);
          for (int at_h = h.begin; at_h < h.end; ++at_h) {
            const T* from = slice + at_h * x.width;
            ForRow(from, w.begin, w.end, wide, [&](int, T bits) { sum += Widened(bits); });
          }
        }
        const int taps = Counted(p, p.divisor, od, oh, ow);
        y = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum, static_cast<V>(taps)));
      } else {
        Contest<T> contest;
        contest.Clear(p.none);
        if (!p.ignore_nan && d.begin < d.end && h.begin < h.end && w.begin < w.end) {
          const T bits = x.Depth(plane, d.begin)[h.begin * x.width + w.begin];
          contest.Take(bits, Widened(bits),
                       ((d.begin - d.start) * a[1].kernel + h.begin - h.start) * a[2].kernel + w.begin - w.start);
        }
        for (int at_d = d.begin; at_d < d.end; ++at_d) {
          const T* slice = x.Depth(plane, at_d);
          for (int at_h = h.begin; at_h < h.end; ++at_h) {
            const T* from = slice + at_h * x.width;
            const uint32_t first_tap = ((at_d - d.start) * a[1].kernel + at_h - h.start) * a[2].kernel - w.start;
            ForRow(from, w.begin, w.end, wide, [&](int at_w, T bits) { contest.Meet(p, bits, first_tap + at_w); });
          }
        }
        contest.Rectify(p);
        y = contest.winner, code = contest.code & p.none;
      }
      if (kOp == TableOp::kAverage || p.result) p.result[(first_line + line) * a[2].out + ow] = y;
    }
    if constexpr (kOp == TableOp::kRoutes) {
      uint8_t* codes = p.routes + (first_line + line) * p.line_bytes;
      for (int step = 1; step < per_byte; step *= 2) code |= __shfl_down_sync(~0u, code, step) << (step * p.bits);
      if (!valid) continue;
      if (per_byte == 1) {
        StoreWideCode(codes + ow * (p.bits / 8), p.bits, code);
      } else if (ow % per_byte == 0) {
        codes[ow / per_byte] = static_cast<uint8_t>(code);
      }
    }
  }
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

template <class T, bool kAverage>
__global__ void __launch_bounds__(kTableThreads) TableFirstBackward(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  auto* given = reinterpret_cast<Given<kAverage>*>(table_shared);
  auto* above = reinterpret_cast<RowAbove*>(table_shared + p.rows_place);
  const TableAxis* a = p.axis;
  const Piece piece(p.cut, a[0].in, a[1].in);
  int begin[2], end[2], unused;  // outputs that reach the piece, along depth and height
  a[0].covering(piece.depth, &begin[0], &unused);
  a[0].covering(piece.depth + piece.depths - 1, &unused, &end[0]);
  a[1].covering(piece.row, &begin[1], &unused);
  a[1].covering(piece.row + piece.rows - 1, &unused, &end[1]);
  const int depths = max(0, end[0] - begin[0]), lines = max(0, end[1] - begin[1]), width = a[2].out;

  const int outputs = piece.planes * depths * lines * width;
  for (int item = threadIdx.x; item < outputs; item += blockDim.x) {
    uint32_t ow = static_cast<uint32_t>(item);
    const int number = static_cast<int>(p.out[2].take(&ow));
    const int of_depth = number / lines, oh = begin[1] + number % lines;
    const int plane = of_depth / depths, od = begin[0] + of_depth % depths;
    const int64_t line = ((piece.plane + plane) * a[0].out + od) * a[1].out + oh;
    const float dy = Widened(p.source[line * width + ow]);
    if constexpr (kAverage) {
      given[item].value = Quotient(dy, static_cast<float>(Counted(p, p.gradient_divisor, od, oh, ow)));
    } else {
      const uint32_t code = CodeAt(p.bits, p.routes + line * p.line_bytes, ow);
      uint32_t kw = code, kh;
      uint32_t kd = p.kernel[1].take(&kw);
      kh = kd, kd = p.kernel[0].take(&kh);
      // Codes may be anything: also taps that this window does not have.
      const int d = a[0].start(od) + static_cast<int>(kd), h = a[1].start(oh) + static_cast<int>(kh);
      const int w = a[2].start(ow) + static_cast<int>(kw);
      const bool lands = code < p.taps && d >= 0 && d < a[0].span(od).end && h >= 0 && h < a[1].span(oh).end &&
                         w >= 0 && w < a[2].span(ow).end;
      given[item] = {dy, lands ? (d * a[1].in + h) * a[2].in + w : -1};
    }
  }
  const int rows = piece.planes * piece.depths * piece.rows;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    uint32_t row = static_cast<uint32_t>(i), depth;
    uint32_t plane = p.in[1].take(&row);
    depth = plane, plane = p.in[0].take(&depth);
    const int d = piece.depth + static_cast<int>(depth), h = piece.row + static_cast<int>(row);
    int first[2], last[2];
    a[0].covering(d, &first[0], &last[0]);
    a[1].covering(h, &first[1], &last[1]);
    above[i] = {(static_cast<int>(plane) * depths + first[0] - begin[0]) * lines + first[1] - begin[1],
                last[0] - first[0], last[1] - first[1], (d * a[1].in + h) * a[2].in};
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
    for (int row = my_row; row < rows; row += p.rows_at_once) {
      const RowAbove r = above[row];
      float sum = 0;
      for (int d = 0; d < r.depths; ++d) {
        for (int h = 0; h < r.lines; ++h) {
          const Given<kAverage>* line = given + (r.first + d * lines + h) * width;
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
