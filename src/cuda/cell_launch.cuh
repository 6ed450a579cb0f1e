// The cell kernels, and choosing and launching one. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/cells.cuh"
#include "cuda/fast.h"
#include "cuda/roll.cuh"
#include "cuda/strip_launch.cuh"

namespace poolgrad::cuda {

template <class T, class W, Mode kMode, int kPad, int kLastVector>
__global__ void __launch_bounds__(kCellThreads, (CellForm<T, W, kMode, kPad, kLastVector>::kTuning.blocks))
    CellKernel(const __grid_constant__ CellParams<T> p) {
  using C = CellForm<T, W, kMode, kPad, kLastVector>;
  const uint32_t thread = blockIdx.x * kCellThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread, column, strip, depth;
  uint32_t rest = p.across.take(&channel);
  column = rest, rest = p.columns.take(&column);
  strip = rest, rest = p.strips.take(&strip);
  depth = rest, rest = p.depths.take(&depth);
  const int64_t number = rest;
  const int64_t c = static_cast<int64_t>(channel) * C::kChannels;
  C::Run(p, p.dy + number * p.y_plane + c, p.routes + number * p.route_plane + c * W::kBits / 8,
         p.dx + number * p.x_plane + c, p.first[0] + static_cast<int>(depth),
         p.first[1] + static_cast<int>(strip) * p.rows,
         (C::kVector || C::kSplit ? 0 : p.first[2]) + static_cast<int>(column) * C::kGroup);
}

// A block makes whole planes of dx in shared memory, then writes them in one run.
template <class T, class W>
__global__ void __launch_bounds__(kCellThreads) StagedCellKernel(const __grid_constant__ CellParams<T> p) {
  using C = Cells<T, W, Mode::kFirstStaged, 0, 1>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.planes_per_block;
  const int planes = static_cast<int>(min(static_cast<int64_t>(p.planes_per_block), p.planes - first));
  T* dx = p.dx + first * p.x_plane;
  T* staged = reinterpret_cast<T*>(shared + Misalignment(dx));
  const uint32_t strips = planes * p.columns.divisor * p.strips.divisor * p.depths.divisor;
  for (uint32_t i = threadIdx.x; i < strips; i += kCellThreads) {
    uint32_t column = i, strip, depth;
    uint32_t rest = p.columns.take(&column);
    strip = rest, rest = p.strips.take(&strip);
    depth = rest, rest = p.depths.take(&depth);
    C::Run(p, p.dy + (first + rest) * p.y_plane, p.routes + (first + rest) * p.route_plane, staged + rest * p.x_plane,
           p.first[0] + static_cast<int>(depth), p.first[1] + static_cast<int>(strip) * p.rows,
           p.first[2] + static_cast<int>(column) * C::kGroup);
  }
  StageOut(shared, dx, planes * static_cast<int>(p.x_plane));
}

template <class T, class W, Mode kMode, int kPad, int kLastVector>
cudaError_t LaunchCells(const Problem& p, const Args& args, void* stream) {
  using C = CellForm<T, W, kMode, kPad, kLastVector>;
  constexpr bool kLast = kMode == Mode::kLast;
  const Geo<int64_t> g = MakeGeo<int64_t>(p);
  CellParams<T> s{};
  s.dy = static_cast<const T*>(args.source);
  s.routes = args.routes;
  s.dx = static_cast<T*>(args.result);
  const int64_t stride[] = {W::SD, W::SH, W::SW};
  int64_t cells[3];  // from the first cell with an input to the last
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    s.in[i] = static_cast<int>(a.in), s.out[i] = static_cast<int>(a.out), s.pad[i] = static_cast<int>(a.pad_lo);
    s.first[i] = static_cast<int>(a.pad_lo / stride[i]);
    cells[i] = (a.in - 1 + a.pad_lo) / stride[i] + 1 - s.first[i];
  }
  if (C::kVector) cells[2] = p.axis[2].out;
  s.cells_h = static_cast<int>(s.first[1] + cells[1]);
  s.x_plane = kLast ? g.x_n : g.x_c;
  s.x_depth = g.x_axis[0], s.x_row = g.x_axis[1], s.x_column = g.x_axis[2];
  s.y_plane = kLast ? g.y_n : g.y_c;
  s.y_depth = g.y_axis[0], s.y_row = g.y_axis[1], s.y_column = g.y_axis[2];
  s.line_bytes = p.routes.line_bytes;
  s.route_row = (kLast ? p.axis[2].out : 1) * s.line_bytes;
  s.route_depth = p.axis[1].out * s.route_row;
  s.route_plane = p.axis[0].out * s.route_depth;
  s.planes = p.batch * p.channels;

  const Strips strips{.across = kLast ? p.channels / C::kChannels : 1,
                      .columns = C::kSplit ? p.axis[2].in : CeilDiv(cells[2], C::kGroup),
                      .rows = cells[1],
                      .depths = cells[0],
                      .numbers = kLast ? p.batch : p.batch * p.channels};
  if constexpr (kMode == Mode::kFirstStaged) {
    return strips.LaunchStaged<kCellThreads>(StagedCellKernel<T, W>, p.in_plane() * static_cast<int64_t>(sizeof(T)),
                                             kStagedCellBytes, C::kTuning, stream, &s);
  } else {
    return strips.LaunchPlain<kCellThreads>(CellKernel<T, W, kMode, kPad, kLastVector>, C::kTuning, stream, &s);
  }
}

template <class T, class W>
cudaError_t RunCellsWindow(const Problem& p, const Args& args, void* stream) {
  // Channels of a thread: 16 bytes, but fewer where several rows of several windows have to stay in registers.
  constexpr int kVector = sizeof(T) == 4 || W::kTaps > 9 || W::SW == 1 ? 4 : 8;
  if (p.channels_last()) {
    if (!Aligned(args.source, 16) || !Aligned(args.result, 16) || !Aligned(args.routes, 8))
      return cudaErrorNotSupported;
    return LaunchCells<T, W, Mode::kLast, 0, kVector>(p, args, stream);
  }
  const int64_t pad = p.axis[2].pad_lo;
  if (W::SW * p.axis[2].out == p.axis[2].in && RowsAligned<T, W>(p, args.result, args.source, args.routes)) {
    if constexpr (W::SW == 1) {
      if (pad == W::KW / 2) return LaunchCells<T, W, Mode::kFirst, W::KW / 2, 1>(p, args, stream);
    } else {
      if (pad == 0) return LaunchCells<T, W, Mode::kFirst, 0, 1>(p, args, stream);
      if constexpr (W::KW > W::SW) {
        if (pad == 1) return LaunchCells<T, W, Mode::kFirst, 1, 1>(p, args, stream);
      }
    }
  }
  if constexpr (std::is_same_v<W, Window5x5s1>) {
    return cudaErrorNotSupported;
  } else {
    if constexpr (W::KD == 1 && W::KH > 1) {
      const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
      if (plane_bytes + 16 <= kStagedBytesMost) return LaunchCells<T, W, Mode::kFirstStaged, 0, 1>(p, args, stream);
    }
    return LaunchCells<T, W, Mode::kFirstOdd, 0, 1>(p, args, stream);
  }
}

#define POOLGRAD_CUDA_CELLS(T)                                                                        \
  template <>                                                                                         \
  cudaError_t RunCells<T>(const Problem& p, const Args& args, void* stream) {                         \
    cudaError_t error = cudaErrorNotSupported;                                                        \
    VisitBackwardWindow(p, [&](auto w) { error = RunCellsWindow<T, decltype(w)>(p, args, stream); }); \
    return error;                                                                                     \
  }

}  // namespace poolgrad::cuda
