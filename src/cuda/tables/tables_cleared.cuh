// Maxima of windows that have many inputs each, backward, either layout, dilated or not: most of dx is 0. A block
// clears its piece of dx, and then, while that is in the cache, the outputs over it put in what they give.
#pragma once

#include "cuda/tables/tables.cuh"

namespace poolgrad::cuda {

// Codes and dy of one plane, or of one channel of a sample.
template <class T, bool kLast>
struct OutputsOf {
  const T* dy;
  const uint8_t* routes;
  int64_t line_bytes;
  int bits, channel, channels, width;

  // line: of the plane's rows of outputs.
  __device__ uint32_t Code(int line, int ow) const {
    if constexpr (kLast) return CodeAt(bits, routes + (line * width + ow) * line_bytes, channel);
    return CodeAt(bits, routes + line * line_bytes, ow);
  }
  __device__ float Dy(int line, int ow) const {
    return Widened(dy[kLast ? static_cast<int64_t>(line * width + ow) * channels + channel : line * width + ow]);
  }
};

// Of the outputs with the same target the first puts their sum there, added in their order.
template <class T, bool kLast>
__global__ void __launch_bounds__(kTableThreads) TableCleared(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  const Piece piece(p.cut, p.axis[0].in, p.axis[1].in);
  const int channels = kLast ? p.channels : 1, width_in = p.axis[2].in, width = p.axis[2].out;
  const int64_t before = (piece.plane * p.axis[0].in + piece.depth) * p.axis[1].in + piece.row;  // rows of inputs
  ClearRun(p.result + before * width_in * channels, piece.planes * piece.depths * piece.rows * width_in * channels);
  const BlockAxes a(p, piece, table_shared, true);
  const float per_lines = 1.0f / static_cast<float>(a.outs[1]), per_depths = 1.0f / static_cast<float>(a.outs[0]);
  const int count = piece.planes * a.outs[0] * a.outs[1] * a.outs[2] * channels;
  // The number of the tap of an output on an input, or -1.
  const auto tap_on = [&](int axis, const Span& window, int here) {
    if (here >= window.end) return -1;
    uint32_t rest = static_cast<uint32_t>(here - window.start), tap = rest;
    if (p.dilation[axis].divisor > 1 && (tap = p.dilation[axis].take(&rest), rest != 0)) return -1;
    return static_cast<int>(tap);
  };
  __syncthreads();
  for (int item = threadIdx.x; item < count; item += blockDim.x) {
    uint32_t channel = 0, number = static_cast<uint32_t>(item);
    if constexpr (kLast) channel = number, number = p.by_channels.take(&channel);
    uint32_t ow = number;
    number = p.out[2].take(&ow);  // few enough for the quotients of floats
    const int of_depth = static_cast<int>((static_cast<float>(number) + 0.5f) * per_lines);
    const int oh = static_cast<int>(number) - of_depth * a.outs[1];
    const int plane = static_cast<int>((static_cast<float>(of_depth) + 0.5f) * per_depths);
    const int od = of_depth - plane * a.outs[0];
    const int64_t lines_before = (piece.plane + plane) * p.axis[0].out * p.axis[1].out;
    const OutputsOf<T, kLast> outputs{p.source + lines_before * width * channels,
                                      p.routes + lines_before * (kLast ? width : 1) * p.line_bytes,
                                      p.line_bytes,
                                      p.bits,
                                      static_cast<int>(channel),
                                      channels,
                                      width};
    const auto line = [&](int of_depths, int of_lines) {
      return (a.first_out[0] + of_depths) * p.axis[1].out + a.first_out[1] + of_lines;
    };
    const uint32_t code = outputs.Code(line(od, oh), ow);
    uint32_t kw = code, kh;
    uint32_t kd = p.kernel[1].take(&kw);
    kh = kd, kd = p.kernel[0].take(&kh);
    // Codes may be anything: also taps that this window does not have.
    const Span on_d = a.window[0][od], on_h = a.window[1][oh], on_w = a.window[2][ow];
    const int d = on_d.start + static_cast<int>(kd * p.dilation[0].divisor);
    const int h = on_h.start + static_cast<int>(kh * p.dilation[1].divisor);
    const int w = on_w.start + static_cast<int>(kw * p.dilation[2].divisor);
    const int in_depth = d - a.first_in[0], in_row = h - a.first_in[1];
    if (code >= p.taps || d >= on_d.end || h >= on_h.end || w >= on_w.end || w < 0 || in_depth < 0 ||
        in_depth >= a.ins[0] || in_row < 0 || in_row >= a.ins[1]) {
      continue;
    }
    const Interval over_d = a.over[0][in_depth], over_h = a.over[1][in_row], over_w = a.over[2][w];
    float sum = 0;
    bool first = true, mine = false;  // mine: this output has been met
    for (int od2 = over_d.begin; od2 < over_d.end && first; ++od2) {
      const int tap_d = tap_on(0, a.window[0][od2], d);
      for (int oh2 = over_h.begin; oh2 < over_h.end && first; ++oh2) {
        const int tap_h = tap_on(1, a.window[1][oh2], h), at = line(od2, oh2);
        for (int ow2 = over_w.begin; ow2 < over_w.end && first; ++ow2) {
          if (od2 == od && oh2 == oh && ow2 == static_cast<int>(ow)) {
            mine = true;
          } else {
            const int tap_w = tap_on(2, a.window[2][ow2], w);
            const uint32_t tap = (tap_d * p.kernel[0].divisor + tap_h) * p.kernel[1].divisor + tap_w;
            if ((tap_d | tap_h | tap_w) < 0 || outputs.Code(at, ow2) != tap) continue;
          }
          first = mine;
          sum += outputs.Dy(at, ow2);
        }
      }
    }
    if (!first) continue;
    const int64_t row = before + (static_cast<int64_t>(plane) * p.axis[0].in + in_depth) * p.axis[1].in + in_row;
    p.result[(row * width_in + w) * channels + channel] = Narrowed<T>(sum);
  }
}

}  // namespace poolgrad::cuda
