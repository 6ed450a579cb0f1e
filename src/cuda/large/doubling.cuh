// Forward for windows of 13x13 that move by one over planes that fit into shared memory, the largest of spatial pyramid
// pooling: rows first, then columns, each by doubling. What separable.cuh does for any such window, it does in 0.68 to
// 0.95 of the time (64x256x40x40 on an H200), because the compiler knows the window and runs are as long as it.
//
// A maximum over 13 is that of 8 and 8 overlapping by 3, one of 8 that of 4 and 4, and so on: 4 comparisons instead of
// 12 for each output of a run held in registers. The earlier part keeps a tie, so the first maximum in row-major order
// wins. Each value carries the place it came from: its column in the row pass, its row in the column pass.
//
// A block holds whole planes in shared memory, with margins of -inf so that no run has to look where it is: several
// planes (channels first), or a few channels of one (channels last, where the row pass reads x directly: neighbouring
// channels are neighbours in memory). A word there is a float, or the halves of two planes or channels, which are
// compared as a pair. A block that sees a NaN, and a run with an output of -inf, are left to the exact rules.
#pragma once

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/tuning.h"
#include "cuda/fast.h"

namespace poolgrad::cuda {

template <class T>
struct DoublingParams {
  Geo<int64_t> g;
  const T* x;
  T* y;
  uint8_t* routes;
  int height, width, out_h, out_w, pad_h, pad_w;
  int packs;       // words of planes, or of channels, that a block holds
  int64_t units;   // planes in all: batch * channels
  int channels;    // channels last: of a sample; the lanes of a block are of one sample
  int in_pitch;    // words from a staged row of x to the next (channels first)
  int row_pitch;   // words from a reduced row to the next
  int plane_rows;  // reduced rows of a plane, with margins
  bool whole;      // channels first: rows of whole vectors of 4
  FastDiv by_packs, by_width, by_vectors, by_height, by_out_w;
  FastDiv row_runs, column_runs;
};

// In place: value[i] becomes the maximum of kWindow values from i on, and place[i] where the first such maximum was.
template <class P, bool kPlaces, int kWindow, int kRun>
__device__ void Double(typename P::Reg (&value)[kRun + kWindow - 1], uint32_t (&place)[kRun + kWindow - 1]) {
  int covered = 1;
#pragma unroll
  for (int round = 0; round < 5; ++round) {
    if (covered >= kWindow) continue;
    const int step = covered * 2 <= kWindow ? covered : kWindow - covered;
    covered += step;
#pragma unroll
    for (int i = 0; i < kRun + kWindow - 1; ++i) {
      if (i + covered <= kRun + kWindow - 1) {
        const auto m = P::Greater(value[i + step], value[i]);
        value[i] = P::Choose(m, value[i + step], value[i]);
        if constexpr (kPlaces) place[i] = P::ChooseTap(m, place[i + step], place[i]);
      }
    }
  }
}

template <class T, int kWindow, bool kLast, bool kRoutes>
struct Doubling {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  using Taps = std::conditional_t<P::kElements == 1, uint8_t, uint16_t>;  // a byte for each element of a word
  static constexpr int kThreads = DoublingThreads(kLast);
  static constexpr int kRun = kDoublingRun, kSpan = kRun + kWindow - 1, kElements = P::kElements;

  // One output by the exact rules; its routes are whole bytes.
  __device__ __noinline__ static void Exact(const DoublingParams<T>& p, int64_t unit, int oh, int ow) {
    const int64_t sample = kLast ? unit / p.channels : 0, c = kLast ? unit % p.channels : 0;
    const T* plane = p.x + (kLast ? sample * p.height * p.width * p.channels + c : unit * p.height * p.width);
    const int64_t line = kLast ? (sample * p.out_h + oh) * p.out_w + ow : unit * p.out_h + oh;
    const int64_t at = kLast ? c : ow;
    const uint32_t code = SelectAlone(p.g, plane, 0, oh, ow, p.y ? p.y + line * p.g.line + at : nullptr);
    if constexpr (kRoutes) p.routes[line * p.g.line_bytes + at] = static_cast<uint8_t>(code);
  }

  // Channels first: x into shared memory, kPer columns of a row at a time, and margins of -inf on both sides of a row.
  // Lanes beyond the last plane are zero.
  template <int kPer>
  __device__ static Reg Stage(const DoublingParams<T>& p, const T* x, int lanes, uint32_t* in) {
    const int rows = p.packs * p.height, plane = p.height * p.width, margin = p.in_pitch - p.width;
    for (int i = threadIdx.x; i < rows; i += kThreads) {
      for (int m = 0; m < margin; ++m) in[i * p.in_pitch + (m < p.pad_w ? m : m + p.width)] = P::ToBits(P::Fill());
    }
    Reg watched = P::FromBits(0);
    const int count = rows * (p.width / kPer);
#pragma unroll(kPer == 1 ? 4 : 2)
    for (int i = threadIdx.x; i < count; i += kThreads) {
      uint32_t column = i;
      const uint32_t row = (kPer == 1 ? p.by_width : p.by_vectors).take(&column);  // of all packs
      uint32_t words[kPer] = {};
      if constexpr (kElements == 1) {
        LoadWordsIf<4 * kPer>(static_cast<int>(row) < lanes * p.height, x + kPer * i, words);
      } else {
        uint32_t in_plane = row;
        const int lane = 2 * static_cast<int>(p.by_height.take(&in_plane));
        const T* from = x + lane * plane + static_cast<int>(in_plane) * p.width + kPer * static_cast<int>(column);
        uint32_t low[(kPer + 1) / 2] = {}, high[(kPer + 1) / 2] = {};
        LoadWordsIf<2 * kPer>(lane < lanes, from, low);
        LoadWordsIf<2 * kPer>(lane + 1 < lanes, from + plane, high);
#pragma unroll
        for (int k = 0; k < kPer; ++k) words[k] = __byte_perm(low[k / 2], high[k / 2], k % 2 ? 0x7632 : 0x5410);
      }
      uint32_t* to = in + row * p.in_pitch + p.pad_w + kPer * column;
#pragma unroll
      for (int k = 0; k < kPer; ++k) {
        to[k] = words[k];
        watched = P::Watch(watched, P::FromBits(words[k]));
      }
    }
    return watched;
  }

  // One word's values and codes. Its second half is the next channel, or the same place of the next plane, if that
  // exists.
  __device__ static void Store(const DoublingParams<T>& p, T* y, uint8_t* routes, bool both, Reg value,
                               const uint32_t (&code)[kElements]) {
    if (y) {
      const uint32_t bits = P::ToBits(value);
      if constexpr (kElements == 2 && kLast) {
        StoreWords<4>(y, &bits);
      } else {
        StoreElement(y, bits);
        if (kElements == 2 && both) StoreElement(y + p.out_h * p.out_w, bits >> 16);
      }
    }
    if constexpr (kRoutes) {
      if constexpr (kElements == 2 && kLast) {
        *reinterpret_cast<uint16_t*>(routes) = static_cast<uint16_t>(code[0] | code[1] << 8);
      } else {
        routes[0] = static_cast<uint8_t>(code[0]);
        if (kElements == 2 && both) routes[p.out_h * p.out_w] = static_cast<uint8_t>(code[kElements - 1]);
      }
    }
  }

  __device__ static void Run(const DoublingParams<T>& p, uint32_t* shared) {
    // Channels last: the lanes are channels [c, c + lanes) of one sample. Channels first: planes from `first` on.
    const int all_lanes = p.packs * kElements;
    const int blocks_per_sample = kLast ? p.channels / all_lanes : 1;
    const int64_t sample = kLast ? blockIdx.x / blocks_per_sample : 0;
    const int c = kLast ? static_cast<int>(blockIdx.x % blocks_per_sample) * all_lanes : 0;
    const int64_t first = kLast ? sample * p.channels + c : static_cast<int64_t>(blockIdx.x) * all_lanes;
    const int lanes = kLast ? all_lanes : static_cast<int>(min(static_cast<int64_t>(all_lanes), p.units - first));
    uint32_t* in = shared;  // channels first only
    uint32_t* rows = kLast ? in : in + p.packs * p.height * p.in_pitch + kRun;
    const int plane = p.plane_rows * p.row_pitch;  // channels last: one for all packs
    auto* taps = reinterpret_cast<Taps*>(rows + (kLast ? plane : p.packs * plane));
    const int column_step = kLast ? p.packs : 1;

    // Margins above and below.
    for (int i = threadIdx.x; i < (p.plane_rows - p.height) * p.row_pitch; i += kThreads) {
      const int at = i < p.pad_h * p.row_pitch ? i : i + p.height * p.row_pitch;
      for (int k = 0; k < (kLast ? 1 : p.packs); ++k) rows[k * plane + at] = P::ToBits(P::Fill());
    }
    Reg watched = P::FromBits(0);
    if constexpr (!kLast) {
      const T* x = p.x + first * p.height * p.width;
      watched = p.whole ? Stage<4>(p, x, lanes, in) : Stage<1>(p, x, lanes, in);
      __syncthreads();
    }
    Reg value[kSpan];
    uint32_t place[kSpan];
    // Rows: threads side by side take packs (channels last), or rows (channels first; the pitch keeps them in different
    // banks).
    const int row_count = p.packs * p.height * static_cast<int>(p.row_runs.divisor);
    for (int i = threadIdx.x; i < row_count; i += kThreads) {
      uint32_t pack, row, run;
      if constexpr (kLast) {
        pack = i, row = p.by_packs.take(&pack), run = p.by_height.take(&row);
      } else {
        row = i, run = p.by_height.take(&row), pack = p.row_runs.take(&run);
      }
      const int begin = static_cast<int>(run) * kRun;
      if constexpr (kLast) {
        const T* x = p.x + ((sample * p.height + row) * p.width + begin - p.pad_w) * p.channels + c + pack * kElements;
#pragma unroll
        for (int j = 0; j < kSpan; ++j) {
          uint32_t word = P::ToBits(P::Fill());
          LoadWordsIf<4>(static_cast<unsigned>(begin + j - p.pad_w) < static_cast<unsigned>(p.width), x, &word);
          value[j] = P::FromBits(word);
          x += p.channels;
        }
#pragma unroll
        for (int j = 0; j < kSpan; ++j) watched = P::Watch(watched, value[j]);
      } else {
        const uint32_t* from = in + (pack * p.height + row) * p.in_pitch + begin;
#pragma unroll
        for (int j = 0; j < kSpan; ++j) value[j] = P::FromBits(from[j]);
      }
#pragma unroll
      for (int j = 0; j < kSpan; ++j) place[j] = P::Tap(j);
      Double<P, kRoutes, kWindow, kRun>(value, place);
      const int to = (kLast ? static_cast<int>(pack) : static_cast<int>(pack) * plane) + (row + p.pad_h) * p.row_pitch +
                     begin * column_step;
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (begin + j >= p.out_w) continue;
        rows[to + j * column_step] = P::ToBits(value[j]);
        const uint32_t tap = place[j] - P::Tap(j);
        if constexpr (kRoutes) taps[to + j * column_step] = static_cast<Taps>(kElements == 1 ? tap : tap | tap >> 8);
      }
    }
    if (__syncthreads_or(P::Watched(watched))) {
      for (int i = threadIdx.x; i < lanes * p.out_h * p.out_w; i += kThreads) {
        Exact(p, first + i / (p.out_h * p.out_w), i / p.out_w % p.out_h, i % p.out_w);
      }
      return;
    }

    // Columns: threads side by side take packs, or columns.
    const int column_count = p.packs * p.out_w * static_cast<int>(p.column_runs.divisor);
    for (int i = threadIdx.x; i < column_count; i += kThreads) {
      uint32_t pack, ow, run;
      if constexpr (kLast) {
        pack = i, ow = p.by_packs.take(&pack), run = p.by_out_w.take(&ow);
      } else {
        ow = i, run = p.by_out_w.take(&ow), pack = p.column_runs.take(&run);
      }
      const int mine = min(kElements, lanes - static_cast<int>(pack) * kElements);
      if (mine <= 0) continue;
      const int begin = static_cast<int>(run) * kRun;
      const int from =
          (kLast ? static_cast<int>(pack) : static_cast<int>(pack) * plane) + begin * p.row_pitch + ow * column_step;
#pragma unroll
      for (int j = 0; j < kSpan; ++j) value[j] = P::FromBits(rows[from + j * p.row_pitch]), place[j] = P::Tap(j);
      Double<P, kRoutes, kWindow, kRun>(value, place);
      const int64_t unit = first + pack * kElements;
      // Routes are one byte for each output, so they lie as y does.
      const int64_t at = kLast ? ((sample * p.out_h + begin) * p.out_w + ow) * p.channels + c + pack * kElements
                               : (unit * p.out_h + begin) * p.out_w + ow;
      const int64_t step = kLast ? static_cast<int64_t>(p.out_w) * p.channels : p.out_w;
      T* y = p.y ? p.y + at : nullptr;
      uint8_t* routes = kRoutes ? p.routes + at : nullptr;
      Reg lowest = P::FromBits(0);
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (begin + j < p.out_h) {
          lowest = P::Lower(lowest, value[j]);
          uint32_t code[kElements];
#pragma unroll
          for (int e = 0; e < kElements; ++e) {
            const uint32_t k = place[j] >> (16 * e) & 0xFFFFu;
            if constexpr (kRoutes) code[e] = (k - j) * kWindow + (taps[from + k * p.row_pitch] >> (8 * e) & 0xFFu);
          }
          Store(p, y, routes, mine > 1, value[j], code);
        }
        if (y) y += step;
        if constexpr (kRoutes) routes += step;
      }
      if (P::Exceptional(P::FromBits(0), lowest)) {
#pragma unroll 1
        for (int j = 0; j < min(kRun, p.out_h - begin); ++j) {
          for (int e = 0; e < mine; ++e) Exact(p, unit + e, begin + j, ow);
        }
      }
    }
  }
};

template <class T, int kWindow, bool kLast, bool kRoutes>
__global__ void __launch_bounds__(DoublingThreads(kLast)) DoublingKernel(const __grid_constant__ DoublingParams<T> p) {
  extern __shared__ __align__(16) uint32_t doubling_words[];
  Doubling<T, kWindow, kLast, kRoutes>::Run(p, doubling_words);
}

// How a block is filled, or packs of 0 when a plane does not fit.
struct DoublingShape {
  int packs = 0, in_pitch = 0, row_pitch = 0, plane_rows = 0;
  int64_t bytes = 0;
};

inline DoublingShape ShapeDoubling(const Problem& p) {
  const int64_t elements = 4 / SizeOf(p.dtype);  // of a word
  const int64_t window = p.axis[2].kernel, in_h = p.axis[1].in;
  // Rows and columns that outputs look at. The last run looks further, at whatever is there, for outputs that do not
  // exist.
  const auto spanned = [&](const Axis& a) { return std::max(a.out + window - 1, a.pad_lo + a.in); };
  const int64_t rows = spanned(p.axis[1]);
  const int64_t further = CeilDiv(p.axis[1].out, kDoublingRun) * kDoublingRun - p.axis[1].out;
  DoublingShape s;
  s.plane_rows = static_cast<int>(rows);
  const int64_t word = 4 + elements;  // and its taps
  if (p.channels_last()) {
    const int64_t packs = kSeparablePacks;
    if (p.channels % (packs * elements) != 0) return s;
    // A row ends a place off a multiple of the banks' 128 bytes, so that neighbouring rows lie in different ones.
    const int64_t row = p.axis[2].out * packs, pitch = row + (packs + 32 - row % 32) % 32;
    s.bytes = std::max(rows * word, (rows + further) * 4) * pitch;
    if (s.bytes > kSeparableBytesMost) return s;
    s.packs = static_cast<int>(packs), s.row_pitch = static_cast<int>(pitch);
    return s;
  }
  // Odd pitches: rows lie in different banks.
  s.in_pitch = static_cast<int>(spanned(p.axis[2]) | 1);
  s.row_pitch = static_cast<int>(p.axis[2].out | 1);
  const int64_t pack_bytes = in_h * s.in_pitch * 4 + rows * s.row_pitch * word;
  const int64_t slack = kDoublingRun * 4 + std::max<int64_t>(0, further * 4 - rows * elements) * s.row_pitch;
  if (pack_bytes + slack > kSeparableBytesMost) return s;
  s.packs =
      static_cast<int>(std::clamp<int64_t>(kSeparableBytes / pack_bytes, 1, CeilDiv(p.batch * p.channels, elements)));
  s.bytes = s.packs * pack_bytes + slack;
  return s;
}

template <class T, int kWindow>
cudaError_t LaunchDoubling(const Problem& p, const Args& args, void* stream) {
  const DoublingShape shape = ShapeDoubling(p);
  constexpr int kElements = Pack<T>::kElements;
  if (p.channels_last() && (!Aligned(args.source, 4) || !Aligned(args.result, 4) || !Aligned(args.routes, 2))) {
    return cudaErrorNotSupported;
  }
  DoublingParams<T> s{};
  s.g = MakeGeo<int64_t>(p);
  s.x = static_cast<const T*>(args.source);
  s.y = static_cast<T*>(args.result);
  s.routes = args.routes;
  s.height = static_cast<int>(p.axis[1].in), s.width = static_cast<int>(p.axis[2].in);
  s.out_h = static_cast<int>(p.axis[1].out), s.out_w = static_cast<int>(p.axis[2].out);
  s.pad_h = static_cast<int>(p.axis[1].pad_lo), s.pad_w = static_cast<int>(p.axis[2].pad_lo);
  s.packs = shape.packs;
  s.units = p.batch * p.channels;
  s.channels = static_cast<int>(p.channels);
  s.in_pitch = shape.in_pitch, s.row_pitch = shape.row_pitch, s.plane_rows = shape.plane_rows;
  s.whole = s.width % 4 == 0 && Aligned(args.source, 4 * sizeof(T));
  s.by_width = FastDiv(s.width), s.by_vectors = FastDiv(std::max(1, s.width / 4));
  s.by_packs = FastDiv(s.packs), s.by_height = FastDiv(s.height), s.by_out_w = FastDiv(s.out_w);
  s.row_runs = FastDiv(CeilDiv(s.out_w, kDoublingRun)), s.column_runs = FastDiv(CeilDiv(s.out_h, kDoublingRun));
  const auto launch = [&](auto last, int64_t blocks) {
    constexpr bool kLast = decltype(last)::value;
    const auto kernel =
        args.routes ? DoublingKernel<T, kWindow, kLast, true> : DoublingKernel<T, kWindow, kLast, false>;
    return Launch(kernel, blocks, DoublingThreads(kLast), static_cast<size_t>(shape.bytes), stream, s);
  };
  if (!p.channels_last()) return launch(std::false_type{}, CeilDiv(s.units, s.packs * kElements));
  return launch(std::true_type{}, p.batch * (p.channels / (s.packs * kElements)));
}

}  // namespace poolgrad::cuda
