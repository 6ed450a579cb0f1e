// Choosing the tiles of the kernels for any window, and launching them. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/any/any_tiles.h"
#include "cuda/any/apart.cuh"
#include "cuda/any/rows.cuh"
#include "cuda/any/sums_launch.h"
#include "cuda/fast.h"

namespace poolgrad::cuda {

// A thread for every kEach outputs of a column.
template <class T, int kV, bool kPlanes, int kEach>
cudaError_t LaunchApart(RowsParams<T> s, const RowsShape& shape, void* stream) {
  const int64_t units = shape.Padded(shape.units), columns = shape.last ? s.axis[2].out : shape.Whole(s.axis[2].out);
  s.by_units = FastDiv(units), s.by_line = FastDiv(columns * units);
  s.tiles_h = FastDiv(CeilDiv(s.axis[1].out, kEach)), s.tiles_d = FastDiv(s.axis[0].out);
  const int64_t blocks = CeilDiv(ApartThreads(s.axis, shape, kEach), kRowsThreads);
  if (blocks * kRowsThreads >= kFastThreads) return cudaErrorNotSupported;
  const auto kernel = s.routes ? ApartKernel<T, kV, kPlanes, true, kEach> : ApartKernel<T, kV, kPlanes, false, kEach>;
  return Launch(kernel, blocks, kRowsThreads, 0, stream, s);
}

template <class T, int kV, bool kPlanes>
cudaError_t LaunchRows(const Problem& p, const Args& args, void* stream) {
  using U = Unit<T, kV, kPlanes>;
  constexpr int64_t kAtOnce = kPlanes ? 2 : 1;
  const bool last = p.channels_last(), routes = args.routes != nullptr;
  const Geo<int64_t> g = MakeGeo<int64_t>(p);
  RowsParams<T> s{};
  s.g = g;
  s.x = static_cast<const T*>(args.source), s.y = static_cast<T*>(args.result), s.routes = args.routes;
  for (int i = 0; i < 3; ++i) s.axis[i] = WindowAxis(p.axis[i]);
  s.last = last;
  s.planes = last ? p.batch : p.batch * p.channels;
  s.x_plane = last ? g.x_n : g.x_c, s.x_depth = g.x_axis[0], s.y_plane = last ? g.y_n : g.y_c, s.y_depth = g.y_axis[0];
  s.x_row = static_cast<int>(g.x_axis[1] * sizeof(T)), s.y_row = static_cast<int>(g.y_axis[1] * sizeof(T));
  s.column = static_cast<int>(g.x_axis[2]);
  s.bits = p.routes.bits;
  s.route_column_bits = static_cast<int>(last ? 8 * p.routes.line_bytes : p.routes.bits);
  s.route_row = static_cast<int>((last ? p.axis[2].out : 1) * p.routes.line_bytes);
  s.route_depth = s.route_row * p.axis[1].out;
  s.route_plane = s.route_depth * p.axis[0].out;
  s.rows_are_planes = RowsFromPlanes(p, sizeof(T), kAtOnce, &s);
  const int64_t units = last ? p.channels / U::kPlaceElements : 1;
  s.units = static_cast<int>(units);
  const int64_t reg = sizeof(typename Pack<T>::Reg), place = Pack<T>::kElements == 1 ? 2 : 4;
  const int64_t plane_groups = CeilDiv(s.planes, kAtOnce);
  const RowsShape shape{.units = units,
                        .planes = plane_groups,
                        .vectors = kV > 1,
                        .last = last,
                        .word = kV * (reg + (routes ? place : 0)),
                        .per_byte = routes && kV == 1 && s.bits < 8 ? 8 / s.bits : 1,
                        .at_once = RowsThenColumns<T, kV, kPlanes, true>::kOutputs};
  constexpr bool kFewer = kV == 1 && std::is_floating_point_v<Wide<T>> && sizeof(T) != 8;  // has kernels for fewer
  const int64_t each = kV > 1 ? kVectorApartAtOnce : kFewer ? ApartAtOnce(s.axis, kAtOnce) : kApartAtOnce;
  if (p.taps() <= 1 << 16 && RunsApart(s.axis, shape, each, kAtOnce, routes)) {
    if constexpr (kFewer) {
      if (each == 1) return LaunchApart<T, kV, kPlanes, 1>(s, shape, stream);
      if (each == 2) return LaunchApart<T, kV, kPlanes, 2>(s, shape, stream);
    }
    return LaunchApart < T, kV, kPlanes, kV == 1 ? kApartAtOnce : kVectorApartAtOnce > (s, shape, stream);
  }
  const RowsTile tile = ChooseRowsTile(s.axis, shape);
  if (tile.bytes == 0) return cudaErrorNotSupported;
  s.tile[0] = static_cast<int>(tile.d), s.tile[1] = static_cast<int>(tile.h), s.tile[2] = static_cast<int>(tile.w);
  s.tile_planes = static_cast<int>(tile.planes), s.tile_units = static_cast<int>(tile.units);
  s.rows[0] = static_cast<int>(s.axis[0].reach(tile.d)), s.rows[1] = static_cast<int>(s.axis[1].reach(tile.h));
  s.row_words = static_cast<int>(tile.line * kV);
  s.tap_words = s.axis[1].per_tap * s.row_words, s.output_words = s.axis[1].per_output * s.row_words;
  s.by_units = FastDiv(tile.padded_units), s.by_line = FastDiv(tile.line);
  using K = RowsThenColumns<T, kV, kPlanes, true>;
  const int64_t groups = kRowsThreads / tile.line, rows = int64_t{s.rows[0]} * s.rows[1];
  s.groups = static_cast<int>(groups), s.threads = static_cast<int>(CeilDiv(groups * tile.line, 32) * 32);
  const auto share = [&](int64_t count, FastDiv* along, int* sheets) {
    *along = FastDiv(std::min(groups, count));
    *sheets = static_cast<int>(groups / along->divisor);
  };
  share(CeilDiv(rows, K::kRows), &s.input_groups, &s.input_sheets);
  share(CeilDiv(tile.h, K::kOutputs), &s.output_groups, &s.output_sheets);
  s.table = static_cast<int>(CeilDiv(rows, K::kRows) * K::kRows + K::kRows) / 2 * 2;
  s.values = 8 * s.table;
  s.places = s.values + static_cast<int>(tile.planes * rows * s.row_words * reg);
  s.by_rows_h = FastDiv(s.rows[1]), s.by_tile_d = FastDiv(tile.d);
  const int64_t tiles_c = CeilDiv(units, tile.units), tiles_w = CeilDiv(p.axis[2].out, tile.w),
                tiles_h = CeilDiv(s.axis[1].out, tile.h), tiles_d = CeilDiv(p.axis[0].out, tile.d);
  s.tiles_c = FastDiv(tiles_c), s.tiles_w = FastDiv(tiles_w), s.tiles_h = FastDiv(tiles_h),
  s.tiles_d = FastDiv(tiles_d);
  const int64_t blocks = tiles_c * tiles_w * tiles_h * tiles_d * CeilDiv(plane_groups, tile.planes);
  if (blocks >= kFastThreads) return cudaErrorNotSupported;
  const auto kernel = routes ? RowsKernel<T, kV, kPlanes, true> : RowsKernel<T, kV, kPlanes, false>;
  return Launch(kernel, blocks, s.threads, static_cast<size_t>(s.values + tile.bytes), stream, s);
}

// Vectors of channels where they are whole and aligned; else registers of one, or of two planes.
template <class T>
cudaError_t RunAnyForward(const Problem& p, const Args& args, void* stream) {
  if constexpr (sizeof(T) != 8) {
    constexpr int kElements = 4 * Pack<T>::kElements;
    constexpr int kBytes = kElements * static_cast<int>(sizeof(T));
    if (p.channels_last() && p.channels % kElements == 0 && Aligned(args.source, kBytes) &&
        Aligned(args.result, kBytes) && Aligned(args.routes, 8)) {
      return LaunchRows<T, 4, false>(p, args, stream);
    }
  }
  return LaunchRows<T, 1, Pack<T>::kElements == 2>(p, args, stream);
}

// ---- backward ----

template <class T, int kEach, int kWide, int kFlat>
__global__ void __launch_bounds__(kSumsThreads, kSumsBlocks) SumsKernel(const __grid_constant__ SumsParams p) {
  RunSums<T, kEach, 1, kWide, kFlat>(p);
}

template <class T>
auto SumsKernelFor(const SumsForm& form) {
  return form.each < kSumsEach ? SumsKernel<T, 1, -1, -1>
         : form.bits > 8       ? SumsKernel<T, kSumsEach, 1, -1>
         : form.flat           ? SumsKernel<T, kSumsEach, 0, 1>
                               : SumsKernel<T, kSumsEach, 0, 0>;
}

#define POOLGRAD_CUDA_ANY_FORWARD(T)                                              \
  template <>                                                                     \
  cudaError_t RunAnyWindow<T>(const Problem& p, const Args& args, void* stream) { \
    return RunAnyForward<T>(p, args, stream);                                     \
  }
#define POOLGRAD_CUDA_ANY_BACKWARD(T)                 \
  template <>                                         \
  const void* SumsKernelOf<T>(const SumsForm& form) { \
    return AddressOf(SumsKernelFor<T>(form));         \
  }

}  // namespace poolgrad::cuda
