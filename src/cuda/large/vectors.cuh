// Global pooling, channels last: one window that is the whole input. A thread owns 16 bytes of channels and goes
// through the places (forward), or writes them at a run of places (backward).
#pragma once

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/words.cuh"
#include "cuda/fast.h"

namespace poolgrad::cuda {

template <class T>
struct VectorParams {
  Geo<int64_t> g;
  const T* source;
  T* result;
  uint8_t* routes;
  uint32_t threads;
  FastDiv across, columns, rows, depths;
  GeoAxis<int> axis[3];
  int64_t x_step[3], y_step[3], x_sample, y_sample;
  int64_t line_bytes;
  int bits;
  int run;  // inputs along the width (or places of the one window) that a thread of backward does
  int places;
};

// `bytes` (a power of two, at most 8) of codes.
__device__ inline uint64_t LoadCodes(const uint8_t* at, int bytes) {
  switch (bytes) {
    case 1:
      return *at;
    case 2:
      return *reinterpret_cast<const uint16_t*>(at);
    case 4:
      return *reinterpret_cast<const uint32_t*>(at);
    default:
      return *reinterpret_cast<const uint64_t*>(at);
  }
}

__device__ inline void StoreCodes(uint8_t* at, int bytes, uint64_t codes) {
  switch (bytes) {
    case 1:
      *at = static_cast<uint8_t>(codes);
      break;
    case 2:
      *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(codes);
      break;
    case 4:
      *reinterpret_cast<uint32_t*>(at) = static_cast<uint32_t>(codes);
      break;
    default:
      *reinterpret_cast<uint64_t*>(at) = codes;
  }
}

// One output's channels [c, c + 16 bytes) by the exact rules.
template <class T>
__device__ __noinline__ void ExactVector(const VectorParams<T>& p, int64_t sample, int64_t line, int od, int oh, int ow,
                                         int c) {
  constexpr int kElements = 16 / sizeof(T);
  uint64_t codes = 0;
#pragma unroll 1
  for (int i = 0; i < kElements; ++i) {
    T* y = p.result ? p.result + line * p.g.channels + c + i : nullptr;
    codes |= static_cast<uint64_t>(SelectAlone(p.g, p.source + sample * p.x_sample + c + i, od, oh, ow, y))
             << (i * p.bits);
  }
  if (p.routes) StoreCodes(p.routes + line * p.line_bytes + c * p.bits / 8, kElements * p.bits / 8, codes);
}

template <class T, bool kRoutes>
__global__ void __launch_bounds__(kVectorThreads) VectorForwardKernel(const __grid_constant__ VectorParams<T> p) {
  using P = Pack<T>;
  using Reg = typename P::Reg;
  constexpr int kElements = 16 / sizeof(T), kPacks = kElements / P::kElements;
  const uint32_t thread = blockIdx.x * kVectorThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread, ow, oh, od;
  uint32_t n = p.across.take(&channel);
  ow = n, n = p.columns.take(&ow);
  oh = n, n = p.rows.take(&oh);
  od = n, n = p.depths.take(&od);
  const int c = static_cast<int>(channel) * kElements;
  const int o[] = {static_cast<int>(od), static_cast<int>(oh), static_cast<int>(ow)};
  int begin[3], end[3];
  const T* corner = p.source + n * p.x_sample + c;  // tap 0's input, were it inside
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    p.axis[i].taps(o[i], 0, p.axis[i].in, &begin[i], &end[i]);
    corner += p.axis[i].start(o[i]) * p.x_step[i];
  }
  Reg best[kPacks], watched = P::FromBits(0);
  uint32_t tap[kPacks] = {};
#pragma unroll
  for (int i = 0; i < kPacks; ++i) best[i] = P::Fill();
  const int64_t step = p.x_step[2] * p.axis[2].dilation;
  for (int kd = begin[0]; kd < end[0]; ++kd) {
    for (int kh = begin[1]; kh < end[1]; ++kh) {
      const T* next =
          corner + kd * p.axis[0].dilation * p.x_step[0] + kh * p.axis[1].dilation * p.x_step[1] + begin[2] * step;
      const uint32_t first = (kd * p.axis[1].kernel + kh) * p.axis[2].kernel;
      // The next taps are on their way while these are compared.
      uint32_t asked[kVectorAhead][4];
      const auto ask = [&](int kw) {
#pragma unroll
        for (int k = 0; k < kVectorAhead; ++k) {
#pragma unroll
          for (int i = 0; i < 4; ++i) asked[k][i] = P::ToBits(P::Fill());
          LoadWordsIf<16>(kw + k < end[2], next, asked[k]);
          next += step;
        }
      };
      ask(begin[2]);
#pragma unroll 1
      for (int kw = begin[2]; kw < end[2]; kw += kVectorAhead) {
        uint32_t now[kVectorAhead][4];
        memcpy(now, asked, sizeof(now));
        ask(kw + kVectorAhead);
#pragma unroll
        for (int k = 0; k < kVectorAhead; ++k) {
#pragma unroll
          for (int i = 0; i < kPacks; ++i) {
            const Reg v = P::FromBits(now[k][i]);
            watched = P::Watch(watched, v);
            const auto m = P::Greater(v, best[i]);
            best[i] = P::Choose(m, v, best[i]);
            if constexpr (kRoutes) tap[i] = P::ChooseTap(m, P::Tap(first + kw + k), tap[i]);
          }
        }
      }
    }
  }
  Reg lowest = P::FromBits(0);
  uint32_t words[4];
  uint64_t codes = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    lowest = P::Lower(lowest, best[i]);
    words[i] = P::ToBits(best[i]);
    if constexpr (kRoutes) {
#pragma unroll
      for (int e = 0; e < P::kElements; ++e) {
        codes |= static_cast<uint64_t>(tap[i] >> (16 * e) & 0xFFFFu) << ((i * P::kElements + e) * p.bits);
      }
    }
  }
  const int64_t line = ((static_cast<int64_t>(n) * p.axis[0].out + o[0]) * p.axis[1].out + o[1]) * p.axis[2].out + o[2];
  if (P::Exceptional(watched, lowest)) {
    ExactVector(p, n, line, o[0], o[1], o[2], c);
    return;
  }
  if (p.result) StoreWords<16>(p.result + line * p.g.channels + c, words);
  if constexpr (kRoutes) StoreCodes(p.routes + line * p.line_bytes + c * p.bits / 8, kElements * p.bits / 8, codes);
}

// Backward of global pooling: a thread writes its channels at a run of places, all of them from the same dy and codes.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) OneWindowBackwardKernel(const __grid_constant__ VectorParams<T> p) {
  constexpr int kElements = 16 / sizeof(T), kPerWord = 4 / sizeof(T);
  const uint32_t thread = blockIdx.x * kVectorThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread, run;
  uint32_t n = p.across.take(&channel);
  run = n, n = p.columns.take(&run);
  const int c = static_cast<int>(channel) * kElements;
  uint32_t words[4];
  LoadVector(p.source + n * p.y_sample + c, words);
  const uint64_t codes = LoadCodes(p.routes + n * p.line_bytes + c * p.bits / 8, kElements * p.bits / 8);
  uint32_t code[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) code[i] = static_cast<uint32_t>(codes >> (i * p.bits)) & ((1u << p.bits) - 1u);
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // sums start from +0
    float sum[kPerWord];
    WidenWord<T>(words[i], sum);
#pragma unroll
    for (int e = 0; e < kPerWord; ++e) sum[e] = __fadd_rn(sum[e], 0.0f);
    words[i] = NarrowWord<T>(sum);
  }
  const uint32_t places = static_cast<uint32_t>(p.places);
  const uint32_t last = min((run + 1) * p.run, places);
  T* dx = p.result + n * p.x_sample + run * p.run * p.x_step[2] + c;
#pragma unroll 2
  for (uint32_t place = run * p.run; place < last; ++place) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kPerWord == 1) {
        out[i] = code[i] == place ? words[i] : 0u;
      } else {
        out[i] =
            (code[2 * i] == place ? words[i] & 0xFFFFu : 0u) | (code[2 * i + 1] == place ? words[i] & 0xFFFF0000u : 0u);
      }
    }
    StoreWords<16>(dx, out);
    dx += p.x_step[2];
  }
}

template <class T>
cudaError_t LaunchVectors(const Problem& p, bool forward, const Args& args, void* stream) {
  constexpr int64_t kElements = 16 / sizeof(T);
  if (!Aligned(args.source, 16) || !Aligned(args.result, 16) || !Aligned(args.routes, 8)) return cudaErrorNotSupported;
  VectorParams<T> v{};
  v.g = MakeGeo<int64_t>(p);
  v.source = static_cast<const T*>(args.source);
  v.result = static_cast<T*>(args.result);
  v.routes = args.routes;
  // The places follow one another, so they are one long row, and its taps.
  const int places = static_cast<int>(p.in_plane());
  v.axis[0] = v.axis[1] = {1, 1, 1, 1, 1, 0, 0};
  v.axis[2] = {places, 1, places, places, 1, 0, 0};
  for (int i = 0; i < 3; ++i) v.x_step[i] = v.g.x_axis[i], v.y_step[i] = v.g.y_axis[i];
  v.x_sample = v.g.x_n, v.y_sample = v.g.y_n;
  v.line_bytes = p.routes.line_bytes;
  v.bits = p.routes.bits;
  const int64_t across = p.channels / kElements;
  if (!forward) {
    v.places = places;
    const int64_t wanted =
        std::clamp<int64_t>(4 * int64_t{v.places} * across * p.batch / enough_threads, 1, kOneWindowRun);
    const int64_t runs = CeilDiv(v.places, wanted);
    v.run = static_cast<int>(CeilDiv(v.places, runs));
    v.across = FastDiv(across), v.columns = FastDiv(runs);
    const int64_t threads = across * runs * p.batch;
    if (threads >= kFastThreads) return cudaErrorNotSupported;
    v.threads = static_cast<uint32_t>(threads);
    return Launch(OneWindowBackwardKernel<T>, CeilDiv(threads, kVectorThreads), kVectorThreads, 0, stream, v);
  }
  v.across = FastDiv(across);
  const int64_t threads = across * p.batch;
  if (threads >= kFastThreads) return cudaErrorNotSupported;
  v.threads = static_cast<uint32_t>(threads);
  const auto kernel = args.routes ? VectorForwardKernel<T, true> : VectorForwardKernel<T, false>;
  return Launch(kernel, CeilDiv(threads, kVectorThreads), kVectorThreads, 0, stream, v);
}

}  // namespace poolgrad::cuda
