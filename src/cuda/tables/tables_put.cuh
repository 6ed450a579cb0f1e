// Maxima of windows that share no input, backward, channels first or last in no whole vectors: every output has its
// target to itself. A block clears its piece of dx in shared memory and puts there what the outputs that reach it give.
#pragma once

#include "cuda/tables/tables.cuh"

namespace poolgrad::cuda {

inline constexpr int kPutAtOnce = 4;  // outputs of a thread

template <class T, bool kLast>
__global__ void __launch_bounds__(kTablePutThreads) TablePut(const __grid_constant__ TableParams<T> p) {
  extern __shared__ __align__(16) unsigned char table_shared[];
  const Piece piece(p.cut, p.axis[0].in, p.axis[1].in);
  const BlockOutputs a(p, piece);
  const int channels = kLast ? p.channels : 1, width = p.axis[2].in * channels;
  const int size = piece.planes * piece.depths * piece.rows * width;
  const int count = piece.planes * a.outs[0] * a.outs[1] * a.outs[2] * channels;
  T* dx = p.result + ((piece.plane * p.axis[0].in + piece.depth) * p.axis[1].in + piece.row) * width;
  T* staged = reinterpret_cast<T*>(table_shared + Misalignment(dx));
  const int step = static_cast<int>(blockDim.x);
  const int first[] = {piece.depth, piece.row, 0}, inputs[] = {piece.depths, piece.rows, p.axis[2].in};
  for (int begin = 0; begin == 0 || begin < count; begin += kPutAtOnce * step) {
    // All is asked for before the first code is looked at.
    uint32_t dy[kPutAtOnce] = {}, codes[kPutAtOnce] = {};
    int shift[kPutAtOnce], start[kPutAtOnce][3], base[kPutAtOnce];
#pragma unroll
    for (int i = 0; i < kPutAtOnce; ++i) {
      const int item = begin + i * step + static_cast<int>(threadIdx.x);
      const bool there = item < count;
      uint32_t ow = there ? static_cast<uint32_t>(item) : 0, channel = 0, oh, od = 0, plane = 0;
      if constexpr (kLast) channel = ow, ow = p.by_channels.take(&channel);
      oh = p.out[2].take(&ow);
      if (a.outs[0] == p.axis[0].out && a.outs[1] == p.axis[1].out) {  // else of one plane
        od = p.out[1].take(&oh), plane = p.out[0].take(&od);
      } else if (a.outs[0] > 1) {
        od = oh / static_cast<uint32_t>(a.outs[1]), oh -= od * static_cast<uint32_t>(a.outs[1]);
      }
      const int at[] = {a.first_out[0] + static_cast<int>(od), a.first_out[1] + static_cast<int>(oh),
                        static_cast<int>(ow)};
      const int64_t line = ((piece.plane + plane) * p.axis[0].out + at[0]) * p.axis[1].out + at[1];
      const int64_t output = line * p.axis[2].out + ow;
      const uint8_t* routes = p.routes + (kLast ? output : line) * p.line_bytes;
      const uint32_t number = kLast ? channel : ow, bit = number * static_cast<uint32_t>(p.bits);
      LoadWordsIf<sizeof(T)>(there, p.source + output * channels + channel, &dy[i]);
      if (p.bits <= 8) LoadWordsIf<1>(there, routes + (bit >> 3), &codes[i]);
      if (p.bits > 8 && there) codes[i] = CodeAt(p.bits, routes, number);
      shift[i] = p.bits < 8 ? static_cast<int>(bit & 7) : 0;
#pragma unroll
      for (int k = 0; k < 3; ++k) start[i][k] = at[k] * p.axis[k].stride - p.axis[k].pad_lo - first[k];
      base[i] = static_cast<int>(plane * piece.depths * piece.rows) * width + static_cast<int>(channel);
      if (!there) start[i][2] = INT32_MIN / 2;
    }
    if (begin == 0) {
      for (int i = threadIdx.x; i < (size * static_cast<int>(sizeof(T)) + 31) / 16; i += step) {
        reinterpret_cast<uint4*>(table_shared)[i] = make_uint4(0, 0, 0, 0);
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kPutAtOnce; ++i) {
      const uint32_t code = codes[i] >> shift[i] & p.none;
      uint32_t tap[] = {0, 0, code};
      tap[1] = p.kernel[1].take(&tap[2]), tap[0] = p.kernel[0].take(&tap[1]);
      // Codes may be anything: also taps that this window does not have.
      bool lands = code < p.taps;
      int in[3];
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        in[k] = start[i][k] + static_cast<int>(tap[k] * p.dilation[k].divisor);
        lands = lands && static_cast<unsigned>(in[k]) < static_cast<unsigned>(inputs[k]);
      }
      if (!lands) continue;
      T value;
      memcpy(&value, &dy[i], sizeof value);
      // A sum of one, which knows no -0.
      staged[base[i] + (in[0] * inputs[1] + in[1]) * width + in[2] * channels] = Narrowed<T>(0.0f + Widened(value));
    }
  }
  __syncthreads();
  StageOut(table_shared, dx, size);
}

}  // namespace poolgrad::cuda
