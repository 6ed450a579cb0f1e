// relu after any forward kernel: one pass over y and its routes. Rectifying keeps the order of values, so it may wait
// until the winners are known (spec/rules.h, PassesRelu): what is not above 0, and no NaN, becomes +0 without a route.
// A bias is added before; -inf, which nobody or nothing won, stays.
#pragma once

#include "cuda/common/device.cuh"

namespace poolgrad::cuda {

inline constexpr int kRectifiedTogether = 8;  // outputs of a thread: whole bytes of codes of any width

struct RectifyParams {
  int64_t groups, per_line, line, line_bytes;
  int code_bytes;  // of codes of a byte or more; 0: less
  int bits;
  int mask_bytes;  // sets of ties; 0: codes
  int64_t channels, lines_of_plane;
  bool channels_last;
};

template <class T>
__global__ void RectifyKernel(RectifyParams p, T* y, uint8_t* routes, const T* bias) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (group >= p.groups) return;
  const int64_t line = group / p.per_line, first = group % p.per_line * kRectifiedTogether;
  uint8_t* codes = routes ? routes + line * p.line_bytes : nullptr;
  const int n = static_cast<int>(p.line - first < kRectifiedTogether ? p.line - first : kRectifiedTogether);
  uint32_t dropped = 0;
  for (int i = 0; i < n; ++i) {
    T& value = y[line * p.line + first + i];
    auto v = Widened(value);
    if constexpr (!std::is_integral_v<T>) {
      if (bias && v != Widened(LowestOf<T>())) {
        const int64_t channel = p.channels_last ? first + i : line / p.lines_of_plane % p.channels;
        value = Narrowed<T>(v + Widened(bias[channel]));
        v = Widened(value);
      }
    }
    if (v > decltype(v){0} || v != v) continue;
    value = T{};
    dropped |= 1u << i;
  }
  if (!codes || dropped == 0) return;
  for (int i = 0; i < n; ++i) {
    if (!(dropped >> i & 1u)) continue;
    const int64_t at = first + i;
    if (p.mask_bytes > 0) {
      for (int b = 0; b < p.mask_bytes; ++b) codes[at * p.mask_bytes + b] = 0;
    } else if (p.code_bytes > 0) {
      for (int b = 0; b < p.code_bytes; ++b) codes[at * p.code_bytes + b] = 0xFF;
    } else {
      const int64_t bit = at * p.bits;
      codes[bit / 8] = static_cast<uint8_t>(codes[bit / 8] | ((1u << p.bits) - 1u) << (bit % 8));
    }
  }
}

template <class T>
cudaError_t RunRectify(const Problem& p, const Args& args, void* stream) {
  const RouteFormat& f = p.routes;
  RectifyParams r{};
  r.line = f.line;
  r.per_line = CeilDiv(f.line, kRectifiedTogether);
  r.groups = f.lines * r.per_line;
  r.line_bytes = f.line_bytes;
  r.bits = f.bits;
  r.code_bytes = f.masks ? 0 : f.bits / 8;
  r.mask_bytes = f.masks ? static_cast<int>(f.mask_bytes()) : 0;
  r.channels = p.channels;
  r.channels_last = p.channels_last();
  r.lines_of_plane = p.out_plane() / p.width().out;
  constexpr int kThreads = 256;
  const int64_t blocks = CeilDiv(r.groups, kThreads);
  return Launch(RectifyKernel<T>, blocks, kThreads, 0, stream, r, static_cast<T*>(args.result), args.routes,
                p.bias ? static_cast<const T*>(args.bias) : nullptr);
}

}  // namespace poolgrad::cuda
