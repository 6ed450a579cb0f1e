// Windows by table (adaptive and fractional pooling, a user's own starts), and averages of any window.
//
// Windows of different sizes leave nothing to unroll, so these kernels are short loops over what each window has; what
// makes them fast is how memory is touched. Channels last: a thread has 16 bytes of channels of one output (forward) or
// of one input (backward), and goes through the taps, or the outputs over that input, in row-major order. Channels
// first: a block holds a piece of x in shared memory (forward), or for every output that reaches a piece of dx what it
// adds and where (backward); everything that is read or written is a run.
//
// A winner is found by every rule at once: `nan_wins` says who wins where a NaN takes part, so that no window has to be
// done again.
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
  uint32_t nan_wins;              // see Contest
  bool last_wins, relu, count_padding, ignore_nan;
  bool exact;  // the fast comparison never holds
  // Channels last, backward: inputs of a run, and runs of a row.
  int run;
  FastDiv runs;
  // Channels first.
  Pieces cut;
  FastDiv padded;    // outputs of a line, rounded up to whole bytes of routes
  int rows_at_once;  // backward: rows of inputs that the threads of a block do at once
  int rows_place;    // backward: where the table of rows lies
  int spans_place;   // forward: and that of windows
  int log_sharers;
  bool wide;  // forward: rows are read four at a time
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

// One output by every rule, from global memory: where there is a NaN, or nothing above -inf, or a rule that the fast
// comparison (`>`, the first tap wins a tie) does not know. `step`: elements from a place of the plane to the next.
template <class T>
__device__ __noinline__ uint32_t ExactOutput(const TableParams<T>& p, const T* plane, int step, int od, int oh, int ow,
                                             T* y) {
  const TableAxis* a = p.axis;
  const Span d = a[0].span(od), h = a[1].span(oh), w = a[2].span(ow);
  Contest<T> contest;
  contest.Clear(p.none);
  bool started = p.ignore_nan;
#pragma unroll 1
  for (int at_d = d.begin; at_d < d.end; ++at_d) {
#pragma unroll 1
    for (int at_h = h.begin; at_h < h.end; ++at_h) {
      const T* row = plane + (static_cast<int64_t>(at_d) * a[1].in + at_h) * a[2].in * step;
#pragma unroll 1
      for (int at_w = w.begin; at_w < w.end; ++at_w) {
        const uint32_t tap =
            ((at_d - d.start) * a[1].kernel + at_h - h.start) * a[2].kernel + static_cast<uint32_t>(at_w - w.start);
        const T bits = row[static_cast<int64_t>(at_w) * step];
        if (!started) contest.Take(bits, Widened(bits), tap);
        started = true;
        contest.Meet(p, bits, tap);
      }
    }
  }
  contest.Rectify(p);
  *y = contest.winner;
  return contest.code & p.none;
}

// The fast comparison of one output.
struct Duel {
  float best = LowestOf<float>(), watched = 0;
  uint32_t tap = 0;
  __device__ void Meet(float v, uint32_t number) {
    watched = Pack<float>::Watch(watched, v);
    if (v > best) best = v, tap = number;
  }
  __device__ bool Exceptional() const { return Pack<float>::Exceptional(watched, best); }
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
  using P = Pack<T>;
  constexpr bool kPacked = kVector && kOp != TableOp::kAverage;
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
  typename P::Reg best[4], watched = P::FromBits(0);
  uint32_t taps[4] = {};
  Duel duel[kN];
  V sum[kN] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) best[i] = P::Fill();
  for (int at_d = d.begin; at_d < d.end; ++at_d) {
    for (int at_h = h.begin; at_h < h.end; ++at_h) {
      const T* at = sample + (static_cast<int64_t>(at_d) * p.axis[1].in + at_h) * row_step +
                    static_cast<int64_t>(w.begin) * p.channels;
      const uint32_t first_tap = ((at_d - d.start) * p.axis[1].kernel + at_h - h.start) * p.axis[2].kernel - w.start;
      for (int at_w = w.begin; at_w < w.end; at_w += kTableAhead, at += kTableAhead * p.channels) {
        if constexpr (kPacked) {
          uint32_t words[kTableAhead][4];
#pragma unroll
          for (int k = 0; k < kTableAhead; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) words[k][i] = P::ToBits(P::Fill());
            LoadWordsIf<16>(at_w + k < w.end, at + k * p.channels, words[k]);
          }
#pragma unroll
          for (int k = 0; k < kTableAhead; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const typename P::Reg v = P::FromBits(words[k][i]);
              watched = P::Watch(watched, v);
              const auto greater = P::Greater(v, best[i]);
              best[i] = P::Choose(greater, v, best[i]);
              if constexpr (kOp == TableOp::kRoutes) {
                taps[i] = P::ChooseTap(greater, P::Tap(first_tap + at_w + k), taps[i]);
              }
            }
          }
        } else {
          T x[kTableAhead][kN];
#pragma unroll
          for (int k = 0; k < kTableAhead; ++k) Group::Load(at_w + k < w.end, at + k * p.channels, count, x[k]);
#pragma unroll
          for (int k = 0; k < kTableAhead; ++k) {
            if (at_w + k >= w.end) break;
#pragma unroll
            for (int i = 0; i < kN; ++i) {
              if constexpr (kOp == TableOp::kAverage) {
                sum[i] += Widened(x[k][i]);
              } else {
                duel[i].Meet(Widened(x[k][i]), first_tap + at_w + k);
              }
            }
          }
        }
      }
    }
  }
  T y[kN];
  if constexpr (kOp == TableOp::kAverage) {
    const int counted = Counted(p, p.divisor, od, oh, ow);
#pragma unroll
    for (int i = 0; i < kN; ++i) y[i] = Narrowed<T>(counted == 0 ? V{0} : Quotient(sum[i], static_cast<V>(counted)));
  } else {
    uint32_t codes[kN];
    bool exact = p.exact;
    if constexpr (!kPacked) {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        y[i] = Narrowed<T>(duel[i].best), codes[i] = duel[i].tap;
        exact = exact || (i < count && duel[i].Exceptional());
      }
    } else {
      uint32_t words[4];
      bool lowest = false;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        lowest = lowest || P::Lowest(best[i]);
        words[i] = P::ToBits(best[i]);
#pragma unroll
        for (int e = 0; e < P::kElements; ++e) {
          codes[i * P::kElements + e] = P::kElements == 1 ? taps[i] : taps[i] >> (16 * e) & 0xFFFFu;
        }
      }
      memcpy(y, words, 16);
      exact = exact || lowest || P::Watched(watched);
    }
    if (exact) {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (i < count) codes[i] = ExactOutput(p, sample + i, p.channels, od, oh, ow, &y[i]);
      }
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

// What was asked for since the last time is a group; groups arrive in order.
__device__ inline void CommitAsked() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
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
    CommitAsked();
  };
  Duel duel;
  V sum = 0;
  BoxCursor at(0, max(1, width), max(1, height));
  uint32_t tap = ((d.begin - d.start) * a[1].kernel + h.begin - h.start) * a[2].kernel + w.begin - w.start;
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
        duel.Meet(Widened(bits), tap++);
        if (++at.w == width) {
          at.w = 0, tap += a[2].kernel - width;
          if (++at.h == height) at.h = 0, tap += (a[1].kernel - height) * a[2].kernel;
        }
      }
    }
  }
  if (thread >= kChannels) return;
  T y;
  if constexpr (kOp == TableOp::kAverage) {
    const int taps = Counted(p, p.divisor, od, oh, ow);
    y = Narrowed<T>(taps == 0 ? V{0} : Quotient(sum, static_cast<V>(taps)));
  } else {
    y = Narrowed<T>(duel.best);
    if (mine && (p.exact || duel.Exceptional())) {
      duel.tap = ExactOutput(p, sample - c + first_channel + thread, p.channels, od, oh, ow, &y);
    }
  }
  const int64_t first = static_cast<int64_t>(line) * p.channels + first_channel;
  if (mine && (kOp == TableOp::kAverage || p.result)) p.result[first + thread] = y;
  if constexpr (kOp == TableOp::kRoutes) {
    const int per_byte = p.bits < 8 ? 8 / p.bits : 1, channel = first_channel + thread;
    uint8_t* codes = p.routes + line * p.line_bytes;
    uint32_t code = mine ? duel.tap : 0;
    for (int step = 1; step < per_byte; step *= 2) code |= __shfl_down_sync(~0u, code, step) << (step * p.bits);
    if (!mine) return;
    if (per_byte == 1) {
      StoreWideCode(codes + static_cast<int64_t>(channel) * (p.bits / 8), p.bits, code);
    } else if (channel % per_byte == 0) {
      codes[channel / per_byte] = static_cast<uint8_t>(code);
    }
  }
}

// A thread has a run of inputs along the width.
template <class T, bool kAverage, bool kVector>
__global__ void __launch_bounds__(kTableThreads, 3) TableLastBackward(const __grid_constant__ TableParams<T> p) {
  using Group = ChannelGroup<T, kVector>;
  using V = Wide<T>;
  constexpr int kN = Group::kN;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t group = thread, run;
  const uint32_t row = p.across.take(&group);
  run = row;
  const uint32_t number = p.runs.take(&run);  // of the row
  uint32_t at[2] = {0, number};
  uint32_t n = p.in[1].take(&at[1]);
  at[0] = n, n = p.in[0].take(&at[0]);
  const int c = static_cast<int>(group) * kN, count = min(kN, p.channels - c);
  int begin[2], end[2];
  p.axis[0].covering(at[0], &begin[0], &end[0]);
  p.axis[1].covering(at[1], &begin[1], &end[1]);
  // The tap of output o on input `here`, or -1.
  const auto tap_on = [&](int i, int o, int here) {
    return p.axis[i].sized && here >= p.axis[i].end(o) ? -1 : here - p.axis[i].start(o);
  };
  const int first = static_cast<int>(run) * p.run, last = min(first + p.run, p.axis[2].in);
  T* to = p.result + (static_cast<int64_t>(number) * p.axis[2].in + first) * p.channels + c;
  T dx[kN];
  int before = -1, before_end = -1;
  for (int w = first; w < last; ++w, to += p.channels) {
    int from, upto;
    p.axis[2].covering(w, &from, &upto);
    // An average gives the same to all inputs under the same windows.
    if (!kAverage || p.axis[2].sized || from != before || upto != before_end) {
      before = from, before_end = upto;
      V sum[kN] = {};
      for (int od = begin[0]; od < end[0]; ++od) {
        const int kd = tap_on(0, od, at[0]);
        if (kd < 0) continue;
        for (int oh = begin[1]; oh < end[1]; ++oh) {
          const int kh = tap_on(1, oh, at[1]);
          if (kh < 0) continue;
          const int64_t line = ((static_cast<int64_t>(n) * p.axis[0].out + od) * p.axis[1].out + oh) * p.axis[2].out;
          for (int ow = from; ow < upto; ++ow) {
            const int kw = tap_on(2, ow, w);
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
#pragma unroll
      for (int i = 0; i < kN; ++i) dx[i] = Narrowed<T>(sum[i]);
    }
    Group::Store(to, count, dx);
  }
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
