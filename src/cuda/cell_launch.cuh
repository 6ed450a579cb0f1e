// Choosing and launching a cell kernel. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/cells.cuh"
#include "cuda/fast.h"
#include "cuda/strip_launch.cuh"

namespace poolgrad::cuda {

template <class T, class W, Mode kMode, int kPad, int kLastVector>
cudaError_t LaunchCells(const Problem& p, const Args& args, void* stream) {
  using C = Cells<T, W, kMode, kPad, kLastVector>;
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

  const int64_t across = kLast ? p.channels / C::kChannels : 1;
  const int64_t columns = C::kSplit ? p.axis[2].in : CeilDiv(cells[2], C::kGroup);
  const int64_t numbers = kLast ? p.batch : p.batch * p.channels;
  const int64_t others = across * columns * cells[0] * numbers;
  s.rows = RowsPerStrip(cells[1], others, C::kTuning.rows);
  const int64_t strips = CeilDiv(cells[1], s.rows);
  s.across = FastDiv(across), s.columns = FastDiv(columns), s.strips = FastDiv(strips), s.depths = FastDiv(cells[0]);
  if constexpr (kMode == Mode::kFirstStaged) {
    const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
    s.planes_per_block = PlanesPerBlock(plane_bytes, numbers, kStagedCellBytes);
    const int64_t per_row = columns * cells[0] * s.planes_per_block;
    const int64_t in_block = std::max<int64_t>(1, std::min<int64_t>(C::kTuning.rows, cells[1] * per_row / kCellThreads));
    s.rows = static_cast<int>(CeilDiv(cells[1], CeilDiv(cells[1], in_block)));
    s.strips = FastDiv(CeilDiv(cells[1], s.rows));
    return Launch(StagedCellKernel<T, W>, CeilDiv(numbers, s.planes_per_block), kCellThreads,
                  static_cast<size_t>(s.planes_per_block * plane_bytes + 16), stream, s);
  } else {
    const int64_t threads = others * strips;
    if (threads >= kFastThreads) return cudaErrorNotSupported;
    s.threads = static_cast<uint32_t>(threads);
    return Launch(CellKernel<T, W, kMode, kPad, kLastVector>, CeilDiv(threads, kCellThreads), kCellThreads, 0, stream, s);
  }
}

template <class T, class W>
cudaError_t RunCellsWindow(const Problem& p, const Args& args, void* stream) {
  // Channels of a thread: 16 bytes, but fewer where several rows of several windows have to stay in registers.
  constexpr int kVector = sizeof(T) == 4 || W::kTaps > 9 || W::SW == 1 ? 4 : 8;
  if (p.channels_last()) {
    if (!Aligned(args.source, 16) || !Aligned(args.result, 16) || !Aligned(args.routes, 8)) return cudaErrorNotSupported;
    return LaunchCells<T, W, Mode::kLast, 0, kVector>(p, args, stream);
  }
  const int64_t pad = p.axis[2].pad_lo;
  if (W::SW * p.axis[2].out == p.axis[2].in && RowsAligned<T, W>(p, args.result, args.source, args.routes)) {
    if constexpr (W::SW == 1) {
      if (pad == 1) return LaunchCells<T, W, Mode::kFirst, 1, 1>(p, args, stream);
    } else {
      if (pad == 0) return LaunchCells<T, W, Mode::kFirst, 0, 1>(p, args, stream);
      if constexpr (W::KW > W::SW) {
        if (pad == 1) return LaunchCells<T, W, Mode::kFirst, 1, 1>(p, args, stream);
      }
    }
  }
  if constexpr (W::KD == 1 && W::KH > 1) {
    const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
    if (plane_bytes + 16 <= kStagedBytesMost) return LaunchCells<T, W, Mode::kFirstStaged, 0, 1>(p, args, stream);
  }
  return LaunchCells<T, W, Mode::kFirstOdd, 0, 1>(p, args, stream);
}

#define POOLGRAD_CUDA_CELLS(T)                                                                       \
  template <>                                                                                        \
  cudaError_t RunCells<T>(const Problem& p, const Args& args, void* stream) {                        \
    cudaError_t error = cudaErrorNotSupported;                                                       \
    VisitWindow(p, [&](auto w) { error = RunCellsWindow<T, decltype(w)>(p, args, stream); });        \
    return error;                                                                                    \
  }

}  // namespace poolgrad::cuda
