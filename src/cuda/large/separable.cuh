// Forward for large windows that overlap (stride well below the kernel): rows first, then columns, at a cost that
// hardly grows with the window.
//
// Windows one after the other share their middle. A run of outputs is reduced at once: its first inputs, which only the
// earlier windows see, then the middle that all see, then its last inputs, which only the later windows see. Maxima
// from the middle outwards give every window with about four comparisons, whatever its size. The earlier part keeps a
// tie, so the first maximum in row-major order wins. Each value carries the place it came from: its column in the row
// pass, its row in the column pass.
//
// A block does a tile of outputs: of one or several planes (channels first), or of a few channels of one sample
// (channels last, where the row pass reads x directly: neighbouring channels are neighbours in memory). A word of
// shared memory is a float, or the halves of two planes or channels, which are compared as a pair. A block that sees a
// NaN, and a run with an output of -inf, are left to the exact rules.
#pragma once

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/tuning.h"
#include "cuda/fast.h"

namespace poolgrad::cuda {

// One axis of a tile.
struct SeparableAxis {
  int in, out, kernel, stride, pad;
  int run;      // outputs that are reduced at once
  int tile;     // outputs of a tile, whole runs
  int reached;  // inputs that they see
};

template <class T>
struct SeparableParams {
  Geo<int64_t> g;
  const T* x;
  T* y;
  uint8_t* routes;
  SeparableAxis h, w;
  int packs;      // words of planes, or of channels, that a block holds
  int64_t units;  // planes in all: batch * channels
  int channels;   // channels last: of a sample; the lanes of a block are of one sample
  int in_pitch;   // words from a staged row of x to the next (channels first)
  int row_pitch;  // words from a reduced row to the next
  bool whole;     // channels first: rows of whole pieces of 4
  FastDiv by_packs, by_rows, by_tile_w, by_pieces;
  FastDiv row_runs, column_runs;
  FastDiv tiles_h, tiles_w;
};

// The first maxima of a run of windows, of the inputs that at(i) gives: into value[j], and where it is into place[j].
// Reads up to at(kernel + (kRun - 1) * stride - 1); what lies behind the last window is not used. kUnit: windows move
// by one, and the run is kRun long.
template <class P, bool kPlaces, bool kUnit, int kRun, class At>
__device__ void ReduceRun(const SeparableAxis& a, typename P::Reg (&value)[kRun], uint32_t (&place)[kRun], At&& at) {
  using Reg = typename P::Reg;
  const auto take = [](Reg v, uint32_t from, Reg* best, uint32_t* best_at) {
    const auto m = P::Greater(v, *best);
    *best = P::Choose(m, v, *best);
    if constexpr (kPlaces) *best_at = P::ChooseTap(m, from, *best_at);
  };
  const int stride = kUnit ? 1 : a.stride;
  const int own = kUnit ? kRun - 1 : a.run - 1;  // windows with inputs that the last one does not see
#pragma unroll
  for (int j = 0; j < kRun - 1; ++j) value[j] = at(j * stride), place[j] = P::Tap(j * stride);
  if (!kUnit && stride > 1) {
#pragma unroll
    for (int j = 0; j < kRun - 1; ++j) {
      if (j >= own) break;
#pragma unroll 1
      for (int i = j * stride + 1; i < (j + 1) * stride; ++i) take(at(i), P::Tap(i), &value[j], &place[j]);
    }
  }
  Reg middle = at(own * stride);
  uint32_t middle_at = P::Tap(own * stride);
  int i = own * stride + 1;
#pragma unroll 1
  for (; i + 4 <= a.kernel; i += 4) {
    Reg next[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) next[k] = at(i + k);
#pragma unroll
    for (int k = 0; k < 4; ++k) take(next[k], P::Tap(i + k), &middle, &middle_at);
  }
#pragma unroll 1
  for (; i < a.kernel; ++i) take(at(i), P::Tap(i), &middle, &middle_at);
  value[kRun - 1] = middle, place[kRun - 1] = middle_at;
#pragma unroll
  for (int j = kRun - 2; j >= 0; --j) {
    if (!kUnit && j >= own) {
      value[j] = middle, place[j] = middle_at;
    } else {
      take(value[j + 1], place[j + 1], &value[j], &place[j]);
    }
  }
  Reg behind = at(a.kernel);
  uint32_t behind_at = P::Tap(a.kernel);
#pragma unroll
  for (int j = 1; j < kRun; ++j) {
    if (!kUnit && j > own) break;
    if (!kUnit && stride > 1) {
#pragma unroll 1
      for (int k = 1; k < stride; ++k) {
        const int from = a.kernel + (j - 1) * stride + k;
        take(at(from), P::Tap(from), &behind, &behind_at);
      }
    }
    take(behind, behind_at, &value[j], &place[j]);
    if (j + 1 < kRun) {
      const int from = a.kernel + j * stride;
      take(at(from), P::Tap(from), &behind, &behind_at);
    }
  }
}

template <class T, int kRun, bool kUnit, bool kLast, bool kRoutes>
struct Separable {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  using Taps = std::conditional_t<P::kElements == 1, uint8_t, uint16_t>;  // a byte for each element of a word
  static constexpr int kThreads = kSeparableThreads, kElements = P::kElements;

  // A tile's first output, and the inputs before its first window.
  struct Tile {
    int oh, ow, ih, iw;
    int64_t first, sample;  // plane (channels first); sample, and its first channel
    int c, lanes;           // planes or channels that exist
  };

  // One output by the exact rules.
  __device__ __noinline__ static void Exact(const SeparableParams<T>& p, int64_t unit, int oh, int ow) {
    const int64_t sample = kLast ? unit / p.channels : 0, c = kLast ? unit % p.channels : 0;
    const int64_t plane = static_cast<int64_t>(p.h.in) * p.w.in;
    const T* x = p.x + (kLast ? sample * plane * p.channels + c : unit * plane);
    const int64_t at =
        kLast ? ((sample * p.h.out + oh) * p.w.out + ow) * p.channels + c : (unit * p.h.out + oh) * p.w.out + ow;
    const uint32_t code = SelectAlone(p.g, x, 0, oh, ow, p.y ? p.y + at : nullptr);
    if constexpr (kRoutes) StoreCode(p, at, code);
  }

  // Codes lie as y does, a byte or two each.
  __device__ static void StoreCode(const SeparableParams<T>& p, int64_t at, uint32_t code) {
    if (p.g.bits == 8) {
      p.routes[at] = static_cast<uint8_t>(code);
    } else {
      reinterpret_cast<uint16_t*>(p.routes)[at] = static_cast<uint16_t>(code);
    }
  }

  // Channels first: the inputs of the tile into shared memory, kPer columns at a time, kAtOnce of those on their way;
  // -inf outside, and in words beyond the last plane. A last plane without another stands for it, too: -inf would be
  // left to the exact rules.
  template <int kPer>
  __device__ static Reg Stage(const SeparableParams<T>& p, const Tile& t, uint32_t* in) {
    constexpr int kAtOnce = kPer == 1 ? 8 : 4, kWords = kElements == 2 ? (kPer + 1) / 2 : kPer;
    Reg watched = P::Zero();
    const int before = t.iw & (kPer - 1);  // columns of the first piece that the tile does not see
    const int64_t plane = static_cast<int64_t>(p.h.in) * p.w.in;
    const int count = p.packs * p.h.reached * static_cast<int>(p.by_pieces.divisor);
#pragma unroll 1
    for (int begin = threadIdx.x; begin < count; begin += kAtOnce * kThreads) {
      uint32_t low[kAtOnce][kWords], high[kAtOnce][kElements == 2 ? kWords : 1];
      int to[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        uint32_t piece = static_cast<uint32_t>(begin + k * kThreads);
        uint32_t row = p.by_pieces.take(&piece);
        to[k] = static_cast<int>(row) * p.in_pitch + static_cast<int>(piece) * kPer;
        const int unit = static_cast<int>(p.by_rows.take(&row)) * kElements;
        const int ih = t.ih + static_cast<int>(row), iw = t.iw - before + static_cast<int>(piece) * kPer;
        const bool valid = unit < t.lanes && static_cast<unsigned>(ih) < static_cast<unsigned>(p.h.in) &&
                           static_cast<unsigned>(iw) < static_cast<unsigned>(p.w.in);
        const T* x = p.x + (t.first + unit) * plane + static_cast<int64_t>(ih) * p.w.in + iw;
#pragma unroll
        for (int i = 0; i < kWords; ++i) low[k][i] = P::ToBits(P::Fill());
        LoadWordsIf<kPer * sizeof(T)>(valid, x, low[k]);
        if constexpr (kElements == 2) {
#pragma unroll
          for (int i = 0; i < kWords; ++i) high[k][i] = P::Fill();
          LoadWordsIf<kPer * sizeof(T)>(valid, unit + 1 < t.lanes ? x + plane : x, high[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (begin + k * kThreads >= count) break;
#pragma unroll
        for (int i = 0; i < kPer; ++i) {
          uint32_t word = low[k][kElements == 2 ? i / 2 : i];
          if constexpr (kElements == 2) word = __byte_perm(word, high[k][i / 2], i % 2 ? 0x7632 : 0x5410);
          in[to[k] + i] = word;
          watched = P::Watch(watched, P::FromBits(word));
        }
      }
    }
    return watched;
  }

  // One word's values and codes, where that of output `at` lies. Its second half is the next channel, or the same place
  // of the next plane, if that exists.
  __device__ static void Store(const SeparableParams<T>& p, int64_t at, int64_t plane, bool both, Reg value,
                               const uint32_t (&code)[kElements]) {
    if (p.y) {
      const uint32_t bits = P::ToBits(value);
      if constexpr (kElements == 2 && kLast) {
        StoreWords<4>(p.y + at, &bits);
      } else {
        StoreElement(p.y + at, bits);
        if (kElements == 2 && both) StoreElement(p.y + at + plane, bits >> 16);
      }
    }
    if constexpr (kRoutes) {
      StoreCode(p, at, code[0]);
      if (kElements == 2 && both) StoreCode(p, kLast ? at + 1 : at + plane, code[kElements - 1]);
    }
  }

  __device__ static Tile Place(const SeparableParams<T>& p) {
    Tile t;
    uint32_t w = blockIdx.x, h = p.tiles_w.take(&w);
    const uint32_t group = p.tiles_h.take(&h);
    t.oh = static_cast<int>(h) * p.h.tile, t.ow = static_cast<int>(w) * p.w.tile;
    t.ih = t.oh * p.h.stride - p.h.pad, t.iw = t.ow * p.w.stride - p.w.pad;
    // Channels last: the lanes are channels [c, c + lanes) of one sample. Channels first: planes from `first` on.
    const int all = p.packs * kElements, groups = kLast ? p.channels / all : 1;
    t.sample = kLast ? group / groups : 0;
    t.c = kLast ? static_cast<int>(group % groups) * all : 0;
    t.first = kLast ? t.sample * p.channels + t.c : static_cast<int64_t>(group) * all;
    t.lanes = kLast ? all : static_cast<int>(min(static_cast<int64_t>(all), p.units - t.first));
    return t;
  }

  __device__ static void Run(const SeparableParams<T>& p, uint32_t* shared) {
    const Tile t = Place(p);
    uint32_t* in = shared;  // channels first only
    uint32_t* rows = kLast ? in : in + p.packs * p.h.reached * p.in_pitch + (kRun * p.w.stride + 3) / 4 * 4;
    const int plane = p.h.reached * p.row_pitch;  // channels last: one for all packs
    auto* taps = reinterpret_cast<Taps*>(rows + (kLast ? plane : p.packs * plane));
    const int column_step = kLast ? p.packs : 1;

    Reg watched = P::Zero();
    if constexpr (!kLast) {
      watched = p.whole ? Stage<4>(p, t, in) : Stage<1>(p, t, in);
      __syncthreads();
    }
    const int skipped = p.whole ? t.iw & 3 : 0;
    Reg value[kRun];
    uint32_t place[kRun];
    // Rows: threads side by side take packs (channels last), or rows (channels first; the pitch keeps them in different
    // banks).
    const int row_count = p.packs * p.h.reached * static_cast<int>(p.row_runs.divisor);
#pragma unroll 1
    for (int i = threadIdx.x; i < row_count; i += kThreads) {
      uint32_t pack, row, run;
      if constexpr (kLast) {
        pack = i, row = p.by_packs.take(&pack), run = p.by_rows.take(&row);
      } else {
        row = i, run = p.by_rows.take(&row), pack = p.row_runs.take(&run);
      }
      const int begin = static_cast<int>(run) * p.w.run;
      if constexpr (kLast) {
        const int ih = t.ih + static_cast<int>(row), iw = t.iw + begin * p.w.stride;
        const bool inside = static_cast<unsigned>(ih) < static_cast<unsigned>(p.h.in);
        const T* x = p.x + ((t.sample * p.h.in + ih) * p.w.in + iw) * p.channels + t.c + pack * kElements;
        ReduceRun<P, kRoutes, kUnit>(p.w, value, place, [&](int at) {
          uint32_t word = P::ToBits(P::Fill());
          LoadWordsIf<4>(inside && static_cast<unsigned>(iw + at) < static_cast<unsigned>(p.w.in),
                         x + static_cast<int64_t>(at) * p.channels, &word);
          const Reg v = P::FromBits(word);
          watched = P::Watch(watched, v);
          return v;
        });
      } else {
        const uint32_t* from = in + (pack * p.h.reached + row) * p.in_pitch + begin * p.w.stride + skipped;
        ReduceRun<P, kRoutes, kUnit>(p.w, value, place, [&](int at) { return P::FromBits(from[at]); });
      }
      const int to =
          (kLast ? static_cast<int>(pack) : static_cast<int>(pack) * plane) + row * p.row_pitch + begin * column_step;
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (!kUnit && j >= p.w.run) break;
        rows[to + j * column_step] = P::ToBits(value[j]);
        const uint32_t tap = place[j] - P::Tap(kUnit ? j : j * p.w.stride);
        if constexpr (kRoutes) taps[to + j * column_step] = static_cast<Taps>(kElements == 1 ? tap : tap | tap >> 8);
      }
    }
    if (__syncthreads_or(P::Watched(watched))) {
      for (int i = threadIdx.x; i < t.lanes * p.h.tile * p.w.tile; i += kThreads) {
        const int oh = t.oh + i / p.w.tile % p.h.tile, ow = t.ow + i % p.w.tile;
        if (oh < p.h.out && ow < p.w.out) Exact(p, t.first + i / (p.h.tile * p.w.tile), oh, ow);
      }
      return;
    }

    // Columns: threads side by side take packs, or columns.
    const int column_count = p.packs * p.w.tile * static_cast<int>(p.column_runs.divisor);
#pragma unroll 1
    for (int i = threadIdx.x; i < column_count; i += kThreads) {
      uint32_t pack, column, run;
      if constexpr (kLast) {
        pack = i, column = p.by_packs.take(&pack), run = p.by_tile_w.take(&column);
      } else {
        column = i, run = p.by_tile_w.take(&column), pack = p.column_runs.take(&run);
      }
      const int begin = static_cast<int>(run) * p.h.run, oh = t.oh + begin, ow = t.ow + static_cast<int>(column);
      const int mine = min(kElements, t.lanes - static_cast<int>(pack) * kElements);
      const int outputs = ow < p.w.out ? min(p.h.run, p.h.out - oh) : 0;
      if (mine <= 0 || outputs <= 0) continue;
      const int from = (kLast ? static_cast<int>(pack) : static_cast<int>(pack) * plane) +
                       begin * p.h.stride * p.row_pitch + column * column_step;
      ReduceRun<P, kRoutes, kUnit>(p.h, value, place,
                                   [&](int at) { return P::FromBits(rows[from + at * p.row_pitch]); });
      const int64_t unit = t.first + pack * kElements;
      int64_t at = kLast ? ((t.sample * p.h.out + oh) * p.w.out + ow) * p.channels + t.c + pack * kElements
                         : (unit * p.h.out + oh) * p.w.out + ow;
      const int64_t step = kLast ? static_cast<int64_t>(p.w.out) * p.channels : p.w.out;
      const int64_t out_plane = static_cast<int64_t>(p.h.out) * p.w.out;
      Reg lowest = P::Zero();
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (j >= outputs) break;
        lowest = P::Lower(lowest, value[j]);
        uint32_t code[kElements];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const int k = static_cast<int>(place[j] >> (16 * e) & 0xFFFFu);
          if constexpr (kRoutes) {
            code[e] =
                (k - (kUnit ? j : j * p.h.stride)) * p.w.kernel + (taps[from + k * p.row_pitch] >> (8 * e) & 0xFFu);
          }
        }
        Store(p, at, out_plane, mine > 1, value[j], code);
        at += step;
      }
      if (P::Exceptional(P::Zero(), lowest)) {
#pragma unroll 1
        for (int j = 0; j < outputs; ++j) {
          for (int e = 0; e < mine; ++e) Exact(p, unit + e, oh + j, ow);
        }
      }
    }
  }
};

template <class T, int kRun, bool kUnit, bool kLast, bool kRoutes>
__global__ void __launch_bounds__(kSeparableThreads, kSeparableBlocks)
    SeparableKernel(const __grid_constant__ SeparableParams<T> p) {
  extern __shared__ __align__(16) uint32_t separable_words[];
  Separable<T, kRun, kUnit, kLast, kRoutes>::Run(p, separable_words);
}

// How tiles are cut; packs of 0 when none fits.
struct SeparableShape {
  SeparableAxis h, w;
  int64_t packs = 0, in_pitch = 0, row_pitch = 0, bytes = 0;
  bool doubles = false;  // it goes by doubling.cuh
};

// Windows that begin before the first one ends, and so share inputs with it.
inline int64_t Sharing(const Axis& a) { return (a.kernel - 1) / a.stride + 1; }

inline bool MovesByOne(const Problem& p) {
  return p.axis[1].stride == 1 && p.axis[2].stride == 1 &&
         std::min(p.axis[1].kernel, p.axis[2].kernel) >= kSeparableRun;
}

inline int LongestRun(const Problem& p) {
  const int64_t least = std::min(p.axis[1].kernel, p.axis[2].kernel);
  return MovesByOne(p) && least >= kSeparableLongRun ? kSeparableLongRun : kSeparableRun;
}

inline SeparableShape ShapeSeparable(const Problem& p, int64_t longest_run) {
  const int64_t elements = 4 / SizeOf(p.dtype), word = 4 + elements;  // of a word; a reduced word and its taps
  const bool last = p.channels_last();
  const auto axis = [&](const Axis& a, int64_t tile) {
    const int64_t run = std::min(longest_run, Sharing(a));
    const int64_t outputs = std::min(CeilDiv(a.out, run), std::max<int64_t>(1, tile / run)) * run;
    const auto to = [](int64_t v) { return static_cast<int>(v); };
    return SeparableAxis{to(a.in),     to(a.out), to(a.kernel), to(a.stride),
                         to(a.pad_lo), to(run),   to(outputs),  to((outputs - 1) * a.stride + a.kernel)};
  };
  SeparableShape best;
  double least = 1e300;
  for (int64_t tile_h = 8; tile_h <= separable_tile; tile_h += 8) {
    for (int64_t tile_w = 8; tile_w <= separable_tile; tile_w += 8) {
      SeparableShape s;
      s.h = axis(p.axis[1], tile_h), s.w = axis(p.axis[2], tile_w);
      const int64_t rows = s.h.reached, further = longest_run * s.h.stride;  // rows that the last run looks at
      s.packs = last ? kSeparablePacks : 1;
      if (last) {
        // A row ends a place off a multiple of the banks' 128 bytes, so that neighbouring rows lie in different ones.
        const int64_t row = s.w.tile * s.packs;
        s.row_pitch = row + (s.packs + 32 - row % 32) % 32;
        s.bytes = std::max(rows * word, (rows + further) * 4) * s.row_pitch;
      } else {  // odd pitches: rows lie in different banks
        s.in_pitch = (s.w.reached + 6) | 1, s.row_pitch = s.w.tile | 1;
        s.bytes = (rows * s.in_pitch + longest_run * s.w.stride + 4) * 4 +
                  std::max(rows * word, (rows + further) * 4) * s.row_pitch;
      }
      if (s.bytes > kSeparableBytesMost) continue;
      const int64_t tiles = CeilDiv(p.axis[1].out, s.h.tile) * CeilDiv(p.axis[2].out, s.w.tile);
      const int64_t planes = CeilDiv(p.batch * p.channels, elements);
      if (!last && tiles == 1) s.packs = std::clamp<int64_t>(kSeparableBytes / s.bytes, 1, planes);
      if (!last) s.bytes *= s.packs;
      // What threads do, those that wait included: pieces of x, then runs along both axes.
      const auto rounds = [](int64_t tasks) { return static_cast<double>(CeilDiv(tasks, kSeparableThreads)); };
      const auto work = [](const SeparableAxis& a) { return a.kernel + 2.0 * a.run * (a.stride + 1); };
      const double each = rounds(s.packs * rows * s.w.tile / s.w.run) * work(s.w) +
                          rounds(s.packs * s.w.tile * s.h.tile / s.h.run) * work(s.h) +
                          2 * rounds(last ? 0 : s.packs * rows * s.w.reached);
      const double blocks = std::min(3.0, 220.0 * 1024 / static_cast<double>(s.bytes));
      const double price = static_cast<double>(tiles) / static_cast<double>(s.packs) * each * (1 + 2 / blocks);
      if (price < least) least = price, best = s;
    }
  }
  return best;
}

template <class T, int kRun, bool kUnit>
cudaError_t LaunchSeparable(const Problem& p, const Args& args, void* stream) {
  const auto& shape = *static_cast<const SeparableShape*>(args.layout);
  constexpr int kElements = Pack<T>::kElements;
  if (p.channels_last() && (!Aligned(args.source, 4) || !Aligned(args.result, 4))) return cudaErrorNotSupported;
  if (!Aligned(args.routes, p.routes.bits / 8)) return cudaErrorNotSupported;
  SeparableParams<T> s{};
  s.g = MakeGeo<int64_t>(p);
  s.x = static_cast<const T*>(args.source);
  s.y = static_cast<T*>(args.result);
  s.routes = args.routes;
  s.h = shape.h, s.w = shape.w;
  s.packs = static_cast<int>(shape.packs);
  s.units = p.batch * p.channels;
  s.channels = static_cast<int>(p.channels);
  s.in_pitch = static_cast<int>(shape.in_pitch), s.row_pitch = static_cast<int>(shape.row_pitch);
  s.whole = s.w.in % 4 == 0 && Aligned(args.source, 4 * sizeof(T));
  s.by_pieces = FastDiv(s.whole ? CeilDiv(s.w.reached + 3, 4) : s.w.reached);
  s.by_packs = FastDiv(s.packs), s.by_rows = FastDiv(s.h.reached), s.by_tile_w = FastDiv(s.w.tile);
  s.row_runs = FastDiv(s.w.tile / s.w.run), s.column_runs = FastDiv(s.h.tile / s.h.run);
  const int64_t tiles_h = CeilDiv(s.h.out, s.h.tile), tiles_w = CeilDiv(s.w.out, s.w.tile);
  s.tiles_h = FastDiv(tiles_h), s.tiles_w = FastDiv(tiles_w);
  const int64_t lanes = s.packs * kElements;
  const int64_t groups = p.channels_last() ? p.batch * (p.channels / lanes) : CeilDiv(s.units, lanes);
  const int64_t blocks = groups * tiles_h * tiles_w;
  if (blocks >= kFastThreads) return cudaErrorNotSupported;
  const auto launch = [&](auto last) {
    constexpr bool kLast = decltype(last)::value;
    const auto kernel =
        args.routes ? SeparableKernel<T, kRun, kUnit, kLast, true> : SeparableKernel<T, kRun, kUnit, kLast, false>;
    return Launch(kernel, blocks, kSeparableThreads, static_cast<size_t>(shape.bytes), stream, s);
  };
  return p.channels_last() ? launch(std::true_type{}) : launch(std::false_type{});
}

}  // namespace poolgrad::cuda
