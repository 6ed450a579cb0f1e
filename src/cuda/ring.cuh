// Backward from routes for windows that overlap a lot: one adder per plane, in the order of the outputs.
//
// A lane of a warp owns a plane (a channel of one sample) and goes through its outputs in row-major order, adding each
// dy where its route points: exactly the order that defines dx's bits, without looking at every window over every
// input. Only the rows that windows can still reach are kept, in a ring in shared memory. While one warp adds row r,
// the others fetch row r + 1 of dy and codes, and write the rows that no later window reaches. A code that names no
// input of its window is passed over.
#pragma once

#include <algorithm>

#include "cuda/device.cuh"
#include "cuda/fast.h"
#include "cuda/packs.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

inline constexpr int kRingLanes = 32;

template <class T>
struct RingParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  int height, width, out_h, out_w;
  int kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w, taps;
  uint32_t tap_multiplier;  // code / kernel_w = code * tap_multiplier >> 24, for codes under 256
  int ring;                 // rows kept
  int64_t units;            // planes: batch * channels
  int64_t channels;         // channels last: lanes of a block are of one sample
  int64_t line_bytes;
  int dy_pitch, code_pitch;  // from a lane's (channels first) or column's (channels last) staged values to the next
};

template <class T, bool kLast>
__global__ void __launch_bounds__(kRingThreads) RingKernel(const __grid_constant__ RingParams<T> p) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int kHelpers = kRingThreads - kRingLanes;
  // ring[row % p.ring][column][lane]; a pitch of 33 lets a row be read along the width too.
  constexpr int kLanePitch = kLast ? kRingLanes : kRingLanes + 1;
  float* ring = reinterpret_cast<float*>(shared);
  const int ring_row = p.width * kLanePitch;
  float* dy_rows = ring + p.ring * ring_row;  // two of [column][lane] or [lane][column]
  const int dy_size = kLast ? p.out_w * p.dy_pitch : kRingLanes * p.dy_pitch;
  auto* code_rows = reinterpret_cast<uint8_t*>(dy_rows + 2 * dy_size);
  const int code_size = kLast ? p.out_w * p.code_pitch : kRingLanes * p.code_pitch;

  const int64_t groups = kLast ? (p.channels + kRingLanes - 1) / kRingLanes : 1;
  const int64_t sample = kLast ? blockIdx.x / groups : 0;
  const int64_t first = kLast ? blockIdx.x % groups * kRingLanes : static_cast<int64_t>(blockIdx.x) * kRingLanes;
  const int lanes = static_cast<int>(min(static_cast<int64_t>(kRingLanes), (kLast ? p.channels : p.units) - first));

  // Element (row, column) of lane l: base + (row * columns + column) * step + l (channels last), or in the lane's own
  // plane.
  const auto y_index = [&](int row, int column, int lane) {
    return kLast ? ((sample * p.out_h + row) * p.out_w + column) * p.channels + first + lane
                 : ((first + lane) * p.out_h + row) * p.out_w + column;
  };
  const auto x_index = [&](int row, int column, int lane) {
    return kLast ? ((sample * p.height + row) * p.width + column) * p.channels + first + lane
                 : ((first + lane) * p.height + row) * p.width + column;
  };
  // Staged row: neighbours in memory go to neighbouring threads.
  const auto fetch = [&](int row, int worker, int workers) {
    float* dy = dy_rows + (row & 1) * dy_size;
    uint8_t* code = code_rows + (row & 1) * code_size;
    const int inner = kLast ? kRingLanes : p.out_w, outer = kLast ? p.out_w : kRingLanes;
    int in = worker % inner, out = worker / inner;
    const int in_step = workers % inner, out_step = workers / inner;
    constexpr int kBatch = 8;  // read all before any is stored: a read after a store would wait for it
    for (int i = worker; i < inner * outer; i += kBatch * workers) {
      float value[kBatch];
      uint32_t tap[kBatch];
      int at_dy[kBatch], at_code[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int lane = kLast ? in : out, column = kLast ? out : in;
        const bool wanted = i + b * workers < inner * outer && lane < lanes;
        const int64_t at = wanted ? y_index(row, column, lane) : y_index(row, 0, 0);
        value[b] = Widened(p.dy[at]);
        tap[b] = __ldg(p.routes + at);
        at_dy[b] = wanted ? out * p.dy_pitch + in : -1;
        at_code[b] = out * p.code_pitch + in;
        in += in_step, out += out_step;
        if (in >= inner) in -= inner, ++out;
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (at_dy[b] < 0) continue;
        dy[at_dy[b]] = value[b];
        code[at_code[b]] = static_cast<uint8_t>(tap[b]);
      }
    }
  };
  // Writes input row `row` and clears its place in the ring.
  const auto flush = [&](int row, int worker, int workers) {
    if (row < 0 || row >= p.height) return;
    float* from = ring + row % p.ring * ring_row;
    const int inner = kLast ? kRingLanes : p.width, outer = kLast ? p.width : kRingLanes;
    int in = worker % inner, out = worker / inner;
    const int in_step = workers % inner, out_step = workers / inner;
#pragma unroll 4
    for (int i = worker; i < inner * outer; i += workers) {
      const int lane = kLast ? in : out, column = kLast ? out : in;
      float* sum = from + column * kLanePitch + lane;
      if (lane < lanes) p.dx[x_index(row, column, lane)] = Narrowed<T>(*sum);
      *sum = 0;
      in += in_step, out += out_step;
      if (in >= inner) in -= inner, ++out;
    }
  };

  for (int i = threadIdx.x; i < p.ring * ring_row; i += kRingThreads) ring[i] = 0;
  fetch(0, threadIdx.x, kRingThreads);
  __syncthreads();
  int flushed = 0;  // input rows before this one are written
  const int lane = threadIdx.x;
  const int worker = static_cast<int>(threadIdx.x) - kRingLanes;
  for (int row = 0; row < p.out_h; ++row) {
    const int start = row * p.stride_h - p.pad_h;
    if (worker < 0) {
      const float* dy = dy_rows + (row & 1) * dy_size;
      const uint8_t* code = code_rows + (row & 1) * code_size;
      const int turn = start > 0 ? start / p.ring * p.ring : 0;  // input row `turn` is in the ring's first place
      // A batch of columns is read before any of it is added: reads after an addition would have to wait for it.
      constexpr int kBatch = 8;
      for (int begin = 0; begin < p.out_w; begin += kBatch) {
        float value[kBatch];
        int to[kBatch];  // -1: nothing to add
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int column = min(begin + i, p.out_w - 1);
          value[i] = dy[kLast ? column * p.dy_pitch + lane : lane * p.dy_pitch + column];
          const uint32_t tap = code[kLast ? column * p.code_pitch + lane : lane * p.code_pitch + column];
          const uint32_t kh = tap * p.tap_multiplier >> 24, kw = tap - kh * p.kernel_w;
          const int h = start + static_cast<int>(kh) * p.dilation_h;
          const int w = column * p.stride_w - p.pad_w + static_cast<int>(kw) * p.dilation_w;
          const int slot = h - turn < p.ring ? h - turn : h - turn - p.ring;
          const bool lands = lane < lanes && begin + i < p.out_w && tap < static_cast<uint32_t>(p.taps) &&
                             static_cast<unsigned>(h) < static_cast<unsigned>(p.height) &&
                             static_cast<unsigned>(w) < static_cast<unsigned>(p.width);
          to[i] = lands ? slot * ring_row + w * kLanePitch + lane : -1;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (to[i] >= 0) ring[to[i]] = __fadd_rn(ring[to[i]], value[i]);
        }
      }
    } else {
      if (row + 1 < p.out_h) fetch(row + 1, worker, kHelpers);
      for (int done = flushed; done < min(start, p.height); ++done) flush(done, worker, kHelpers);
    }
    flushed = max(flushed, min(start, p.height));
    __syncthreads();
  }
  for (; flushed < p.height; ++flushed) flush(flushed, threadIdx.x, kRingThreads);
}

// Rows the ring must hold: those an output row can reach, and those of the row before that are being written.
inline int64_t RingRows(const Problem& p) { return std::min(p.axis[1].in, p.axis[1].extent() + p.axis[1].stride); }

struct RingShape {
  int dy_pitch, code_pitch;
  int64_t bytes;
};

inline RingShape ShapeRing(const Problem& p) {
  const bool last = p.channels_last();
  const int64_t out_w = p.axis[2].out, lane_pitch = last ? kRingLanes : kRingLanes + 1;
  RingShape s;
  s.dy_pitch = static_cast<int>(last ? kRingLanes : out_w | 1);
  s.code_pitch = static_cast<int>(last ? kRingLanes : (CeilDiv(out_w, 4) | 1) * 4);
  const int64_t rows = last ? out_w : kRingLanes;
  s.bytes = RingRows(p) * p.axis[2].in * lane_pitch * 4 + 2 * rows * (s.dy_pitch * 4 + s.code_pitch);
  return s;
}

template <class T>
cudaError_t LaunchRing(const Problem& p, const Args& args, void* stream) {
  const RingShape shape = ShapeRing(p);
  const Axis &h = p.axis[1], &w = p.axis[2];
  RingParams<T> s{};
  s.dy = static_cast<const T*>(args.source);
  s.routes = args.routes;
  s.dx = static_cast<T*>(args.result);
  s.height = static_cast<int>(h.in), s.width = static_cast<int>(w.in);
  s.out_h = static_cast<int>(h.out), s.out_w = static_cast<int>(w.out);
  s.kernel_w = static_cast<int>(w.kernel);
  s.stride_h = static_cast<int>(h.stride), s.stride_w = static_cast<int>(w.stride);
  s.dilation_h = static_cast<int>(h.dilation), s.dilation_w = static_cast<int>(w.dilation);
  s.pad_h = static_cast<int>(h.pad_lo), s.pad_w = static_cast<int>(w.pad_lo);
  s.taps = static_cast<int>(p.taps());
  s.tap_multiplier = static_cast<uint32_t>(CeilDiv(int64_t{1} << 24, w.kernel));
  s.ring = static_cast<int>(RingRows(p));
  s.units = p.batch * p.channels, s.channels = p.channels;
  s.dy_pitch = shape.dy_pitch, s.code_pitch = shape.code_pitch;
  const int64_t blocks = p.channels_last() ? p.batch * CeilDiv(p.channels, kRingLanes) : CeilDiv(s.units, kRingLanes);
  const auto kernel = p.channels_last() ? RingKernel<T, true> : RingKernel<T, false>;
  return Launch(kernel, blocks, kRingThreads, static_cast<size_t>(shape.bytes), stream, s);
}

}  // namespace poolgrad::cuda
