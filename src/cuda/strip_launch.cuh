// Choosing and launching a strip kernel. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/strip.cuh"
#include "cuda/strips.cuh"

namespace poolgrad::cuda {

// Everything but the mode's own numbers.
template <class T>
StripParams<T> MakeStrip(const Problem& p, const Args& args) {
  StripParams<T> s{};
  s.g = MakeGeo<int64_t>(p);
  s.x = static_cast<const T*>(args.source);
  s.y = static_cast<T*>(args.result);
  s.routes = args.routes;
  for (int i = 0; i < 3; ++i) {
    s.in[i] = static_cast<int>(p.axis[i].in);
    s.out[i] = static_cast<int>(p.axis[i].out);
    s.pad[i] = static_cast<int>(p.axis[i].pad_lo);
  }
  s.stride_d = static_cast<int>(p.axis[0].stride);
  s.x_plane = p.channels_last() ? s.g.x_n : s.g.x_c;
  s.x_depth = s.g.x_axis[0], s.x_row = s.g.x_axis[1], s.x_column = s.g.x_axis[2];
  s.y_row = s.g.y_axis[1];
  s.line_bytes = p.routes.line_bytes;
  s.line_row = p.channels_last() ? p.axis[2].out : 1;
  s.route_row = s.line_row * s.line_bytes;
  s.planes = p.batch * p.channels;
  return s;
}

template <class T, class W, Mode kMode, int kPad, bool kRoutes>
cudaError_t LaunchStripForm(const Problem& p, const Args& args, void* stream) {
  using S = Strip<T, W, kMode, kPad, kRoutes>;
  StripParams<T> s = MakeStrip<T>(p, args);
  constexpr bool kLast = kMode == Mode::kLast;
  const int64_t across = kLast ? p.channels / S::kOutputs : 1;
  const int64_t columns = kLast ? p.axis[2].out : CeilDiv(p.axis[2].out, S::kOutputs);
  const int64_t numbers = kLast ? p.batch : p.batch * p.channels;
  const Strips strips{
      .across = across, .columns = columns, .rows = p.axis[1].out, .depths = p.axis[0].out, .numbers = numbers};
  if constexpr (kMode == Mode::kFirstStaged) {
    return strips.LaunchStaged<kStripThreads>(StagedStripKernel<T, W, kRoutes>,
                                              p.in_plane() * static_cast<int64_t>(sizeof(T)), kStagedStripBytes,
                                              S::kTuning, stream, &s);
  } else {
    return strips.LaunchPlain<kStripThreads>(StripKernel<T, W, kMode, kPad, kRoutes>, S::kTuning, stream, &s);
  }
}

template <class T, class W, Mode kMode, int kPad>
cudaError_t LaunchStrip(const Problem& p, const Args& args, void* stream) {
  return args.routes ? LaunchStripForm<T, W, kMode, kPad, true>(p, args, stream)
                     : LaunchStripForm<T, W, kMode, kPad, false>(p, args, stream);
}

// The aligned mode's rows and vectors: every row, and every thread's part of it, begins at a multiple of its vector.
template <class T, class W>
bool RowsAligned(const Problem& p, const void* x, const void* y, const void* routes) {
  const int64_t in = p.axis[2].in, out = p.axis[2].out;
  const int64_t load = std::min<int64_t>(16, 4 * W::SW * sizeof(T)), store = 4 * sizeof(T);
  return out % 4 == 0 && W::SW * out <= in && in * sizeof(T) % load == 0 && Aligned(x, load) && Aligned(y, store) &&
         Aligned(routes, 4);
}

template <class T, class W>
cudaError_t RunStripWindow(const Problem& p, const Args& args, void* stream) {
  if (p.channels_last()) {
    if (!Aligned(args.source, 16) || !Aligned(args.result, 16) || !Aligned(args.routes, 8))
      return cudaErrorNotSupported;
    return LaunchStrip<T, W, Mode::kLast, 0>(p, args, stream);
  }
  const int64_t pad = p.axis[2].pad_lo;
  if (RowsAligned<T, W>(p, args.source, args.result, args.routes)) {
    if constexpr (W::SW == 1) {
      if (pad == 1) return LaunchStrip<T, W, Mode::kFirst, 1>(p, args, stream);
    } else {
      if (pad == 0) return LaunchStrip<T, W, Mode::kFirst, 0>(p, args, stream);
      if constexpr (W::KW > W::SW) {
        if (pad == 1) return LaunchStrip<T, W, Mode::kFirst, 1>(p, args, stream);
      }
    }
  }
  if constexpr (sizeof(T) == 2 && W::KD == 1 && W::KH > 1) {  // floats are as fast read one by one from global memory
    const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
    if (plane_bytes + 16 <= kStagedBytesMost) return LaunchStrip<T, W, Mode::kFirstStaged, 0>(p, args, stream);
  }
  return LaunchStrip<T, W, Mode::kFirstOdd, 0>(p, args, stream);
}

#define POOLGRAD_CUDA_STRIP(T)                                                                \
  template <>                                                                                 \
  cudaError_t RunStrip<T>(const Problem& p, const Args& args, void* stream) {                 \
    cudaError_t error = cudaErrorNotSupported;                                                \
    VisitWindow(p, [&](auto w) { error = RunStripWindow<T, decltype(w)>(p, args, stream); }); \
    return error;                                                                             \
  }

}  // namespace poolgrad::cuda
