// Forward for large windows that move by one (5x5 and up, stride 1): rows first, then columns, each by doubling.
//
// A maximum over 13 is that of 8 and 8 overlapping by 3, one of 8 that of 4 and 4, and so on: 4 comparisons instead of 12 for
// each output of a run held in registers. The earlier part keeps a tie, so the first maximum in row-major order wins. Each value
// carries the place it came from: its column in the row pass, its row in the column pass.
//
// A block holds whole planes in shared memory: several planes (channels first), or a few channels of one (channels last, where
// the row pass reads x directly: neighbouring channels are neighbours in memory). A block that sees a NaN, and an output of -inf,
// are left to the exact rules.
#pragma once

#include <algorithm>

#include "cuda/exact.cuh"
#include "cuda/fast.h"
#include "cuda/packs.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

template <class T>
struct SeparableParams {
  Geo<int64_t> g;
  const T* x;
  T* y;
  uint8_t* routes;
  int height, width, out_h, out_w, pad_h, pad_w;
  int lanes;          // planes, or channels, that a block holds
  int64_t units;      // of them in all: batch * channels
  int channels;       // channels last: of a sample; the lanes of a block are of one sample
  int pitch;          // of a row in shared memory, in elements
  int plane;          // from a plane to the next (channels first), in elements
  int column;         // from a column to the next: 1, or the lanes
  FastDiv by_lanes, by_width, by_height, by_out_w;
  FastDiv row_runs, column_runs;
};

// In place: value[i] becomes the maximum of kWindow values from i on, and place[i] where the first such maximum was.
template <int kWindow, int kRun>
__device__ void Double(float (&value)[kRun + kWindow - 1], int (&place)[kRun + kWindow - 1]) {
  int covered = 1;
#pragma unroll
  for (int round = 0; round < 5; ++round) {
    if (covered >= kWindow) continue;
    const int step = covered * 2 <= kWindow ? covered : kWindow - covered;
    covered += step;
#pragma unroll
    for (int i = 0; i < kRun + kWindow - 1; ++i) {
      if (i + covered <= kRun + kWindow - 1) {
        const bool m = value[i + step] > value[i];
        value[i] = m ? value[i + step] : value[i];
        place[i] = m ? place[i + step] : place[i];
      }
    }
  }
}

template <class T, int kWindow, bool kLast, bool kRoutes>
__global__ void __launch_bounds__(kSeparableThreads) SeparableKernel(const __grid_constant__ SeparableParams<T> p) {
  constexpr int kRun = kSeparableRun, kSpan = kRun + kWindow - 1;
  extern __shared__ __align__(16) unsigned char shared[];
  const int whole = kLast ? p.height * p.pitch : p.lanes * p.plane;  // elements of a buffer
  T* in = reinterpret_cast<T*>(shared);  // channels first only
  T* rows = kLast ? in : in + whole;
  auto* taps = reinterpret_cast<uint8_t*>(rows + whole);
  const float lowest = LowestOf<float>();

  // Channels last: the lanes are channels [c, c + lanes) of one sample. Channels first: planes from `first` on.
  const int blocks_per_sample = kLast ? p.channels / p.lanes : 1;
  const int64_t sample = kLast ? blockIdx.x / blocks_per_sample : 0;
  const int c = kLast ? static_cast<int>(blockIdx.x % blocks_per_sample) * p.lanes : 0;
  const int64_t first = kLast ? 0 : static_cast<int64_t>(blockIdx.x) * p.lanes;
  const int lanes = kLast ? p.lanes : static_cast<int>(min(static_cast<int64_t>(p.lanes), p.units - first));

  float watched = 0;
  if constexpr (!kLast) {
    const T* x = p.x + first * p.height * p.width;
    const int count = lanes * p.height * p.width;
#pragma unroll 8
    for (int i = threadIdx.x; i < count; i += kSeparableThreads) {
      uint32_t column = i;
      uint32_t row = p.by_width.take(&column);
      const uint32_t lane = p.by_height.take(&row);
      const T value = x[i];
      in[lane * p.plane + row * p.pitch + column] = value;
      watched = Pack<float>::Watch(watched, Widened(value));
    }
    __syncthreads();
  }

  const auto line_of = [&](int lane, int oh, int ow) {  // of the routes
    return kLast ? (sample * p.out_h + oh) * p.out_w + ow : (first + lane) * p.out_h + oh;
  };
  float value[kSpan];
  int place[kSpan];
  // Rows: threads side by side take lanes (channels last), or rows (channels first; the pitch keeps them in different banks).
  {
    const int count = lanes * p.height * static_cast<int>(p.row_runs.divisor);
    for (int i = threadIdx.x; i < count; i += kSeparableThreads) {
      uint32_t lane, row, run;
      if constexpr (kLast) {
        lane = i, row = p.by_lanes.take(&lane), run = p.by_height.take(&row);
      } else {
        row = i, run = p.by_height.take(&row), lane = p.row_runs.take(&run);
      }
      const int offset = (kLast ? lane : lane * p.plane) + row * p.pitch;
      const int begin = static_cast<int>(run) * kRun;
      const T* x = kLast ? p.x + ((sample * p.height + row) * p.width) * p.channels + c + lane : in + offset;
      const int64_t step = kLast ? p.channels : 1;
#pragma unroll
      for (int j = 0; j < kSpan; ++j) {
        const int w = begin + j - p.pad_w;
        const float loaded = Widened(x[Inside(w, p.width) * step]);  // always, so that no load waits behind a branch
        value[j] = static_cast<unsigned>(w) < static_cast<unsigned>(p.width) ? loaded : lowest;
        place[j] = j;
      }
      if constexpr (kLast) {
#pragma unroll
        for (int j = 0; j < kSpan; ++j) watched = Pack<float>::Watch(watched, value[j]);
      }
      Double<kWindow, kRun>(value, place);
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        if (begin + j < p.out_w) {
          rows[offset + (begin + j) * p.column] = Narrowed<T>(value[j]);
          if constexpr (kRoutes) taps[offset + (begin + j) * p.column] = static_cast<uint8_t>(place[j] - j);
        }
      }
    }
  }
  if (__syncthreads_or(watched != watched)) {  // one output each: routes of these windows are whole bytes
    const int count = lanes * p.out_h * p.out_w;
    for (int i = threadIdx.x; i < count; i += kSeparableThreads) {
      uint32_t ow, oh, lane;
      if constexpr (kLast) {
        lane = i, ow = p.by_lanes.take(&lane), oh = p.by_out_w.take(&ow);
      } else {
        ow = i, oh = p.by_out_w.take(&ow), lane = oh / p.out_h, oh -= lane * p.out_h;
      }
      SelectRun<T, int64_t>(p.g, p.x, p.y, kRoutes ? p.routes : nullptr, line_of(lane, oh, ow), kLast ? c + lane : ow, 1);
    }
    return;
  }

  // Columns: threads side by side take lanes, or columns.
  const int count = lanes * p.out_w * static_cast<int>(p.column_runs.divisor);
  for (int i = threadIdx.x; i < count; i += kSeparableThreads) {
    uint32_t lane, ow, run;
    if constexpr (kLast) {
      lane = i, ow = p.by_lanes.take(&lane), run = p.by_out_w.take(&ow);
    } else {
      ow = i, run = p.by_out_w.take(&ow), lane = p.column_runs.take(&run);
    }
    const int offset = (kLast ? lane : lane * p.plane) + ow * p.column;
    const int begin = static_cast<int>(run) * kRun;
#pragma unroll
    for (int j = 0; j < kSpan; ++j) {
      const int h = begin + j - p.pad_h;
      const float loaded = Widened(rows[offset + Inside(h, p.height) * p.pitch]);
      value[j] = static_cast<unsigned>(h) < static_cast<unsigned>(p.height) ? loaded : lowest;
      place[j] = j;
    }
    Double<kWindow, kRun>(value, place);
    const int64_t line = line_of(lane, begin, ow), line_step = kLast ? p.out_w : 1;
    const int64_t at = kLast ? c + lane : ow;
    uint32_t unwon = 0;  // outputs of -inf
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if (begin + j >= p.out_h) continue;
      if (value[j] == lowest) unwon |= 1u << j;
      if (p.y) p.y[(line + j * line_step) * p.g.line + at] = Narrowed<T>(value[j]);
      if constexpr (kRoutes) {
        const int row = min(max(begin + place[j] - p.pad_h, 0), p.height - 1);
        p.routes[(line + j * line_step) * p.g.line_bytes + at] =
            static_cast<uint8_t>((place[j] - j) * kWindow + taps[offset + row * p.pitch]);
      }
    }
    for (; unwon != 0; unwon &= unwon - 1) {
      SelectRun<T, int64_t>(p.g, p.x, p.y, kRoutes ? p.routes : nullptr, line + (__ffs(unwon) - 1) * line_step, at, 1);
    }
  }
}

// How a block is filled, or lanes of 0 when a plane does not fit.
struct SeparableShape {
  int lanes = 0, pitch = 0, plane = 0;
  int64_t bytes = 0;
};

inline SeparableShape ShapeSeparable(const Problem& p) {
  const int64_t size = SizeOf(p.dtype), in_w = p.axis[2].in, in_h = p.axis[1].in;
  const int64_t width = std::max(in_w, p.axis[2].out);
  SeparableShape s;
  if (p.channels_last()) {
    const int64_t lanes = 32 / size;  // a sector of memory
    if (p.channels % lanes != 0) return s;
    // A row ends 32 bytes off a multiple of the banks' 128, so that neighbouring rows lie in different ones.
    const int64_t row = width * lanes * size, pitch = row + (32 + 128 - row % 128) % 128;
    const int64_t bytes = in_h * pitch / size * (size + 1);
    if (bytes > kSeparableBytesMost) return s;
    s.lanes = static_cast<int>(lanes), s.pitch = static_cast<int>(pitch / size), s.bytes = bytes;
    return s;
  }
  const int64_t per_word = 4 / size;
  const int64_t words = CeilDiv(width, per_word) | 1;  // an odd number of words: rows lie in different banks
  const int64_t pitch = words * per_word, plane = in_h * pitch;
  const int64_t plane_bytes = plane * (2 * size + 1);
  if (plane_bytes + 16 > kSeparableBytesMost) return s;
  s.lanes = static_cast<int>(std::clamp<int64_t>(kSeparableBytes / plane_bytes, 1, p.batch * p.channels));
  s.pitch = static_cast<int>(pitch), s.plane = static_cast<int>(plane), s.bytes = s.lanes * plane_bytes + 16;
  return s;
}

template <class T, int kWindow>
cudaError_t LaunchSeparable(const Problem& p, const Args& args, void* stream) {
  const SeparableShape shape = ShapeSeparable(p);
  SeparableParams<T> s{};
  s.g = MakeGeo<int64_t>(p);
  s.x = static_cast<const T*>(args.source);
  s.y = static_cast<T*>(args.result);
  s.routes = args.routes;
  s.height = static_cast<int>(p.axis[1].in), s.width = static_cast<int>(p.axis[2].in);
  s.out_h = static_cast<int>(p.axis[1].out), s.out_w = static_cast<int>(p.axis[2].out);
  s.pad_h = static_cast<int>(p.axis[1].pad_lo), s.pad_w = static_cast<int>(p.axis[2].pad_lo);
  s.lanes = shape.lanes;
  s.units = p.batch * p.channels;
  s.channels = static_cast<int>(p.channels);
  s.pitch = shape.pitch, s.plane = shape.plane;
  s.column = p.channels_last() ? shape.lanes : 1;
  s.by_lanes = FastDiv(s.lanes), s.by_width = FastDiv(s.width), s.by_height = FastDiv(s.height), s.by_out_w = FastDiv(s.out_w);
  s.row_runs = FastDiv(CeilDiv(s.out_w, kSeparableRun)), s.column_runs = FastDiv(CeilDiv(s.out_h, kSeparableRun));
  const auto launch = [&](auto last, int64_t blocks) {
    constexpr bool kLast = decltype(last)::value;
    const auto kernel = args.routes ? SeparableKernel<T, kWindow, kLast, true> : SeparableKernel<T, kWindow, kLast, false>;
    return Launch(kernel, blocks, kSeparableThreads, static_cast<size_t>(shape.bytes), stream, s);
  };
  if (!p.channels_last()) return launch(std::false_type{}, CeilDiv(s.units, s.lanes));
  return launch(std::true_type{}, p.batch * (p.channels / s.lanes));
}

}  // namespace poolgrad::cuda
