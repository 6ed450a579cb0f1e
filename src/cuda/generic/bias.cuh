// The gradient of a bias: dy summed over the outputs of each channel that have a route, in the order of spec/rules.h
// (kBiasBlock), so that the bits are the reference's. A thread has one of a block's kBiasSums sums; a thread block has
// 32 channels or blocks side by side, whichever lie side by side in memory, folds their sums and leaves one of each
// block in scratch. Then a thread per channel adds those in order.
#pragma once

#include "cuda/common/device.cuh"
#include "spec/rules.h"

namespace poolgrad::cuda {

inline constexpr int kBiasSide = 32;  // of a square of threads
static_assert(kBiasSums == kBiasSide);

struct BiasParams {
  int64_t outputs;  // of a channel
  int64_t plane, channels, blocks, groups, line, line_bytes, taps;
  int bits, mask_bytes;
  bool last;
};

__device__ inline bool HasRoute(const BiasParams& p, const uint8_t* line, int64_t at) {
  if (p.mask_bytes == 0) return CodeAt(p.bits, line, at) < p.taps;
  for (int b = 0; b < p.mask_bytes; ++b) {
    const int64_t left = p.taps - 8 * b;
    if (line[at * p.mask_bytes + b] & (left < 8 ? (1u << left) - 1u : 0xFFu)) return true;
  }
  return false;
}

// quotient of numbers that mostly are small
__device__ inline int64_t Divided(int64_t n, int64_t d) {
  return (n | d) >> 32 ? n / d : static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
}

template <class T>
__global__ void __launch_bounds__(kBiasSide* kBiasSide)
    BiasBlocksKernel(BiasParams p, const T* dy, const uint8_t* routes, double* partial) {
  __shared__ double sums[kBiasSide][kBiasSide + 1];
  // Side by side: channels of one block (channels last), or sums of one channel's block.
  const int across = static_cast<int>(threadIdx.x % kBiasSide), down = static_cast<int>(threadIdx.x / kBiasSide);
  const int sum = p.last ? down : across, item = p.last ? across : down;
  const int64_t square = blockIdx.x;
  const int64_t channel = p.last ? square % p.groups * kBiasSide + item : (square * kBiasSide + item) % p.channels;
  const int64_t block = p.last ? square / p.groups : (square * kBiasSide + item) / p.channels;
  const bool used = channel < p.channels && block < p.blocks;
  double total = 0;
  if (used) {
    const int64_t end = min(block * kBiasBlock + kBiasBlock, p.outputs);
    for (int64_t i = block * kBiasBlock + sum; i < end; i += kBiasSums) {
      int64_t index = i * p.channels + channel, line = i, at = channel;
      if (!p.last) {
        const int64_t image = Divided(i, p.plane);
        const int64_t o = i - image * p.plane, row = Divided(o, p.line);
        index = (image * p.channels + channel) * p.plane + o;
        line = (image * p.channels + channel) * Divided(p.plane, p.line) + row;
        at = o - row * p.line;
      }
      if (HasRoute(p, routes + line * p.line_bytes, at)) total += static_cast<double>(Widened(dy[index]));
    }
  }
  sums[sum][item] = total;
  for (int half = kBiasSide / 2; half > 0; half /= 2) {
    __syncthreads();
    if (sum < half) sums[sum][item] += sums[sum + half][item];
  }
  if (used && sum == 0) partial[block * p.channels + channel] = sums[0][item];
}

template <class T>
__global__ void BiasTotalsKernel(BiasParams p, const double* partial, T* dbias) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= p.channels) return;
  double total = 0;
  for (int64_t block = 0; block < p.blocks; ++block) total += partial[block * p.channels + channel];
  dbias[channel] = Narrowed<T>(static_cast<Wide<T>>(total));
}

inline BiasParams BiasParamsOf(const Problem& p) {
  BiasParams b{};
  b.outputs = p.batch * p.out_plane();
  b.plane = p.out_plane();
  b.channels = p.channels;
  b.blocks = CeilDiv(b.outputs, kBiasBlock);
  b.groups = CeilDiv(p.channels, kBiasSide);
  b.line = p.routes.line;
  b.line_bytes = p.routes.line_bytes;
  b.taps = p.taps();
  b.bits = p.routes.bits;
  b.mask_bytes = p.routes.masks ? static_cast<int>(p.routes.mask_bytes()) : 0;
  b.last = p.channels_last();
  return b;
}

inline int64_t BiasScratchBytes(const Problem& p) {
  const BiasParams b = BiasParamsOf(p);
  return b.blocks * b.channels * static_cast<int64_t>(sizeof(double));
}

template <class T>
cudaError_t RunBiasGradient(const Problem& p, const Args& args, void* scratch, void* stream) {
  const BiasParams b = BiasParamsOf(p);
  auto* const partial = static_cast<double*>(scratch);
  const int64_t squares = b.last ? b.blocks * b.groups : CeilDiv(b.blocks * b.channels, kBiasSide);
  const cudaError_t error = Launch(BiasBlocksKernel<T>, squares, kBiasSide * kBiasSide, 0, stream, b,
                                   static_cast<const T*>(args.source), args.routes, partial);
  if (error != cudaSuccess) return error;
  return Launch(BiasTotalsKernel<T>, CeilDiv(b.channels, 256), 256, 0, stream, b, partial,
                static_cast<T*>(args.result));
}

}  // namespace poolgrad::cuda
