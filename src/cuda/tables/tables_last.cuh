// Windows by table and averages, channels last: a thread has 16 bytes of channels of one output (forward) or of one
// input (backward).
#pragma once

#include "cuda/tables/tables.cuh"

namespace poolgrad::cuda {

// kVector: 16 aligned bytes of channels; else four, of which `count` are there.
template <class T, bool kVector>
struct ChannelGroup {
  static constexpr int kN = kVector ? 16 / static_cast<int>(sizeof(T)) : 4;
  using Codes = std::conditional_t<kN == 4, uint32_t, uint64_t>;  // of up to 8 bits each, side by side

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
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) packed |= codes[i] << (i * bits);
    }
    at += c * bits / 8;
    for (int b = 0; 8 * b < count * bits; ++b) at[b] = static_cast<uint8_t>(packed >> (8 * b));
  }
  __device__ static Codes LoadCodes(const uint8_t* at, int bits, int c, int count) {
    Codes packed = 0;
    if constexpr (kVector) {
      at += c * bits / 8;
      const int bytes = kN * bits / 8;
      packed = bytes == 4   ? *reinterpret_cast<const uint32_t*>(at)
               : bytes == 2 ? *reinterpret_cast<const uint16_t*>(at)
                            : *at;
      if constexpr (kN == 8) {
        if (bytes == 8) packed = *reinterpret_cast<const uint64_t*>(at);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (i < count) packed |= static_cast<Codes>(CodeAt(bits, at, c + i)) << (i * bits);
      }
    }
    return packed;
  }
  // Of any number of bits.
  __device__ static void LoadCodes(const uint8_t* at, int bits, int c, int count, uint32_t (&codes)[kN]) {
    if (bits > 8) {
#pragma unroll
      for (int i = 0; i < kN; ++i) codes[i] = i < count ? CodeAt(bits, at, c + i) : 0;
      return;
    }
    Codes packed = LoadCodes(at, bits, c, count);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      codes[i] = static_cast<uint32_t>(packed) & ((1u << bits) - 1u);
      packed >>= bits;
    }
  }
};

// The codes of kN channels from `c` on, of the line that begins at `at`. Where 1 << log_sharers neighbouring lanes have
// a byte of them, all lanes of the warp come here; some are only `there` for that.
template <int kN>
__device__ void StoreCodes(uint8_t* at, int bits, int c, const uint32_t (&codes)[kN], int log_sharers, bool there) {
  if (bits > 8) {
#pragma unroll
    for (int i = 0; i < kN; ++i) StoreWideCode(at + (c + i) * (bits / 8), bits, codes[i]);
    return;
  }
  uint64_t packed = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) packed |= static_cast<uint64_t>(codes[i]) << (i * bits);
  at += c * bits / 8;
  const int filled = kN * bits;
  if (filled == 64) *reinterpret_cast<uint64_t*>(at) = packed;
  if (filled == 32) *reinterpret_cast<uint32_t*>(at) = static_cast<uint32_t>(packed);
  if (filled == 16) *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(packed);
  if (filled > 8) return;
  uint32_t byte = there ? static_cast<uint32_t>(packed) : 0;
  for (int step = 1; step < 1 << log_sharers; step *= 2) byte |= __shfl_down_sync(~0u, byte, step) << (step * filled);
  if (there && c * bits % 8 == 0) *at = static_cast<uint8_t>(byte);
}

// Stores what has won kN channels from `c` on, and its codes, of output `line`; `sample`: of x, from c on.
template <class T, TableOp kOp, int kN, int kWords>
__device__ void SettlePacks(const TableParams<T>& p, int bits, const typename Pack<T>::Reg (&best)[kWords],
                            const uint32_t (&taps)[kWords], typename Pack<T>::Reg watched, const T* sample, int od,
                            int oh, int ow, int64_t line, int c, int log_sharers = 0, bool there = true) {
  using P = Pack<T>;
  T y[kN];
  uint32_t codes[kN], words[kWords];
  bool exact = p.exact || P::Watched(watched);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    exact = exact || P::Lowest(best[i]);
    words[i] = P::ToBits(best[i]);
#pragma unroll
    for (int e = 0; e < P::kElements && i * P::kElements + e < kN; ++e) {
      codes[i * P::kElements + e] = P::kElements == 1 ? taps[i] : taps[i] >> (16 * e) & 0xFFFFu;
    }
  }
  if (exact) {
    memcpy(y, words, sizeof y);
#pragma unroll
    for (int i = 0; i < kN; ++i) codes[i] = ExactOutput(p, sample + i, p.channels, od, oh, ow, &y[i]);
    memcpy(words, y, sizeof y);
  }
  if constexpr (kOp == TableOp::kRoutes) StoreCodes(p.routes + line * p.line_bytes, bits, c, codes, log_sharers, there);
  // Backward from x wants routes only.
  if (p.result && there) StoreWords<kN* static_cast<int>(sizeof(T))>(p.result + line * p.channels + c, words);
}

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
    if constexpr (kPacked) return SettlePacks<T, kOp, kN>(p, p.bits, best, taps, watched, sample, od, oh, ow, line, c);
    uint32_t codes[kN];
    bool exact = p.exact;
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      y[i] = Narrowed<T>(duel[i].best), codes[i] = duel[i].tap;
      exact = exact || (i < count && duel[i].Exceptional());
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
    if (kOp == TableOp::kAverage && count == kTablePlaces) {  // all loads before the first addition waits for one
      V values[kTablePlaces];
#pragma unroll
      for (int i = 0; i < kTablePlaces; ++i) values[i] = Widened(from[i * kChannels]);
#pragma unroll
      for (int i = 0; i < kTablePlaces; ++i) sum += values[i];
      continue;
    }
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

// The inputs of a thread: a run along the width, of one group of channels.
template <class T, bool kVector>
struct RunOfInputs {
  static constexpr int kN = ChannelGroup<T, kVector>::kN;
  uint32_t n, at[2];  // sample, depth and height
  int first, last;    // along the width
  int c, count;
  T* to;

  __device__ RunOfInputs(const TableParams<T>& p, uint32_t thread) {
    uint32_t group = thread, run;
    run = p.across.take(&group);
    const uint32_t number = p.runs.take(&run);  // of the row
    at[1] = number, n = p.in[1].take(&at[1]);
    at[0] = n, n = p.in[0].take(&at[0]);
    c = static_cast<int>(group) * kN, count = min(kN, p.channels - c);
    first = static_cast<int>(run) * p.run, last = min(first + p.run, p.axis[2].in);
    to = p.result + (static_cast<int64_t>(number) * p.axis[2].in + first) * p.channels + c;
  }
};

// Where at most two outputs lie over an input along every axis: what the outputs over the run's next input give is kept
// from one input to the next, so that each is loaded once. kDepths: outputs over an input along the depth, at most.
template <class T, bool kAverage, bool kVector, int kDepths>
__global__ void __launch_bounds__(kTableThreads, kDepths == 1 ? 3 : 2)
    TableLastBackwardFew(const __grid_constant__ TableParams<T> p) {
  using Group = ChannelGroup<T, kVector>;
  constexpr int kN = Group::kN, kLines = 2 * kDepths;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  const RunOfInputs<T, kVector> run(p, thread);
  const TableAxis *a = p.axis, &w = a[2];
  // The lines of outputs over the row, in order: where they are, the tap of their first column, what an average counts.
  int64_t line[kLines];
  int tap[kLines], counted[kLines];
  Interval over[2];
  a[0].covering(run.at[0], &over[0].begin, &over[0].end);
  a[1].covering(run.at[1], &over[1].begin, &over[1].end);
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    const int od = over[0].begin + i / 2, oh = over[1].begin + i % 2;
    const bool there = od < over[0].end && oh < over[1].end;
    line[i] = there ? ((static_cast<int64_t>(run.n) * a[0].out + od) * a[1].out + oh) * w.out : -1;
    if constexpr (kAverage) {
      counted[i] = a[0].counted(od, p.count_padding) * a[1].counted(oh, p.count_padding);
    } else {
      tap[i] = there ? ((static_cast<int>(run.at[0]) - a[0].start(od)) * a[1].kernel + static_cast<int>(run.at[1]) -
                        a[1].start(oh)) *
                           w.kernel
                     : 0;
    }
  }
  // A column of outputs: of each line what it gives.
  struct Column {
    T dy[kLines][kAverage ? 1 : kN];
    float share[kLines][kAverage ? kN : 1];
    typename Group::Codes codes[kAverage ? 1 : kLines];
    int start;
  };
  const auto load = [&](int ow) {
    Column column;
    column.start = w.start(ow);
    const int across = kAverage ? w.counted(ow, p.count_padding) : 0;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      T dy[kN] = {};
      if constexpr (!kAverage) column.codes[i] = 0;
      if (line[i] >= 0) {
        Group::Load(true, p.source + (line[i] + ow) * p.channels + run.c, run.count, dy);
        if constexpr (!kAverage) {
          column.codes[i] = Group::LoadCodes(p.routes + (line[i] + ow) * p.line_bytes, p.bits, run.c, run.count);
        }
      }
#pragma unroll
      for (int k = 0; k < kN; ++k) {
        if constexpr (kAverage) {
          const int taps = p.gradient_divisor != 0 ? p.gradient_divisor : counted[i] * across;
          column.share[i][k] = line[i] >= 0 ? Quotient(Widened(dy[k]), static_cast<float>(taps)) : 0;
        } else {
          column.dy[i][k] = dy[k];
        }
      }
    }
    return column;
  };
  int from, upto;  // the outputs over the input before; where the first of them ends, and the next one begins
  w.covering(run.first, &from, &upto);
  constexpr int kNever = 1 << 30;
  const auto end_of = [&](int o) { return o < w.out ? w.end(o) : kNever; };
  const auto start_of = [&](int o) { return o < w.out ? w.start(o) : kNever; };
  int ends = end_of(from), begins = start_of(upto);
  Column left = {}, right = {};
  if (from < upto) left = load(from);
  if (from + 1 < upto) right = load(from + 1);
  T* to = run.to;
  T dx[kN];
  bool changed = true;
#pragma unroll 1
  for (int at = run.first; at < run.last; ++at, to += p.channels) {
    while (from < upto && ends <= at) {
      left = right, changed = true;
      ends = end_of(++from);
    }
    while (begins <= at) {
      if (upto == from) {
        left = load(upto);
      } else {
        right = load(upto);
      }
      begins = start_of(++upto), changed = true;
    }
    if (!kAverage || changed) {
      changed = false;
      float sum[kN] = {};
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        if (line[i] < 0) continue;
        const auto add = [&](const Column& column) {
#pragma unroll
          for (int k = 0; k < kN; ++k) {
            if constexpr (kAverage) {
              sum[k] += column.share[i][k];
            } else {
              const uint32_t wanted = static_cast<uint32_t>(tap[i] + at - column.start), mask = (1u << p.bits) - 1u;
              if ((static_cast<uint32_t>(column.codes[i] >> (k * p.bits)) & mask) == wanted) {
                sum[k] += Widened(column.dy[i][k]);
              }
            }
          }
        };
        if (from < upto) add(left);
        if (from + 1 < upto) add(right);
      }
#pragma unroll
      for (int k = 0; k < kN; ++k) dx[k] = Narrowed<T>(sum[k]);
    }
    Group::Store(to, run.count, dx);
  }
}

// Any others, one input after the other.
template <class T, bool kAverage, bool kVector>
__global__ void __launch_bounds__(kTableThreads, 3) TableLastBackward(const __grid_constant__ TableParams<T> p) {
  using Group = ChannelGroup<T, kVector>;
  using V = Wide<T>;
  constexpr int kN = Group::kN;
  const uint32_t thread = blockIdx.x * kTableThreads + threadIdx.x;
  if (thread >= p.threads) return;
  const RunOfInputs<T, kVector> run(p, thread);
  const uint32_t n = run.n, (&at)[2] = run.at;
  const int c = run.c, count = run.count;
  int begin[2], end[2];
  p.axis[0].covering(at[0], &begin[0], &end[0]);
  p.axis[1].covering(at[1], &begin[1], &end[1]);
  // The tap of output o on input `here`, or -1.
  const auto tap_on = [&](int i, int o, int here) {
    return p.axis[i].sized && here >= p.axis[i].end(o) ? -1 : here - p.axis[i].start(o);
  };
  T* to = run.to;
  T dx[kN];
  int before = -1, before_end = -1;
  for (int w = run.first; w < run.last; ++w, to += p.channels) {
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

}  // namespace poolgrad::cuda
