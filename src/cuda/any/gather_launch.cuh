// Choosing the tile of the gather, and launching it. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/any/any_tiles.h"
#include "cuda/any/gather.cuh"
#include "cuda/any/one_tap.cuh"
#include "cuda/fast.h"

namespace poolgrad::cuda {

template <class T, int kV, bool kPlanes, int kCovers>
cudaError_t LaunchGather(const Problem& p, const Args& args, void* stream) {
  using U = Unit<T, kV, kPlanes>;
  using K = Gather<T, kV, kPlanes, kCovers>;
  constexpr int64_t kAtOnce = kPlanes ? 2 : 1;
  const bool last = p.channels_last();
  const Geo<int64_t> g = MakeGeo<int64_t>(p);
  GatherParams<T> s{};
  s.dy = static_cast<const T*>(args.source), s.routes = args.routes, s.dx = static_cast<T*>(args.result);
  for (int i = 0; i < 3; ++i) s.axis[i] = WindowAxis(p.axis[i]);
  s.planes = last ? p.batch : p.batch * p.channels;
  s.x_plane = last ? g.x_n : g.x_c, s.x_depth = g.x_axis[0], s.y_plane = last ? g.y_n : g.y_c, s.y_depth = g.y_axis[0];
  s.x_row = static_cast<int>(g.x_axis[1] * sizeof(T)), s.y_row = static_cast<int>(g.y_axis[1] * sizeof(T));
  s.column = static_cast<int>(g.x_axis[2]);
  s.bits = p.routes.bits;
  s.route_column_bits = static_cast<int>(last ? 8 * p.routes.line_bytes : p.routes.bits);
  s.route_row = static_cast<int>((last ? p.axis[2].out : 1) * p.routes.line_bytes);
  s.route_depth = s.route_row * p.axis[1].out;
  s.route_plane = s.route_depth * p.axis[0].out;
  RowsFromPlanes(p, sizeof(T), kAtOnce, &s);
  const int64_t units = last ? p.channels / U::kPlaceElements : 1;
  s.units = static_cast<int>(units);
  const int64_t plane_groups = CeilDiv(s.planes, kAtOnce);
  const GatherTile tile = ChooseGatherTile(s.axis, units, plane_groups, last, kV > 1, 4 * K::kWords);
  if (tile.bytes == 0) return cudaErrorNotSupported;
  const int64_t sizes[] = {tile.d, tile.h, tile.w};
  int64_t tiles[3];
  for (int i = 0; i < 3; ++i) {
    s.tile[i] = static_cast<int>(sizes[i]);
    s.most[i] = static_cast<int>(MostCovering(s.axis[i], sizes[i]));
    tiles[i] = CeilDiv(s.axis[i].in, sizes[i]);
  }
  s.tile_planes = static_cast<int>(tile.planes), s.tile_units = static_cast<int>(tile.units);
  s.in_line = static_cast<int>(tile.w * tile.units), s.out_line = static_cast<int>(s.most[2] * tile.units);
  s.by_units = FastDiv(tile.units), s.by_in_line = FastDiv(s.in_line), s.by_out_line = FastDiv(s.out_line);
  // As many threads as whole rows of inputs take; outputs get what there is.
  s.in_count = static_cast<int>(kRowsThreads / s.in_line);
  s.threads = static_cast<int>(CeilDiv(std::max(s.in_count * s.in_line, s.out_line), 32) * 32);
  s.out_count = s.threads / s.out_line;
  const auto share = [](int64_t groups, int64_t rows, FastDiv* along, int* sheets) {
    *along = FastDiv(std::min(groups, rows));
    *sheets = static_cast<int>(groups / along->divisor);
  };
  share(s.in_count, tile.d * tile.h, &s.in_groups, &s.in_sheets);
  share(s.out_count, std::max<int64_t>(1, CeilDiv(s.most[1], 4)), &s.out_groups, &s.out_sheets);
  s.by_tile_h = FastDiv(tile.h), s.by_most_d = FastDiv(std::max(1, s.most[0]));
  const int64_t tiles_c = CeilDiv(units, tile.units);
  s.tiles_c = FastDiv(tiles_c), s.tiles_w = FastDiv(tiles[2]), s.tiles_h = FastDiv(tiles[1]),
  s.tiles_d = FastDiv(tiles[0]);
  const int64_t blocks = tiles_c * tiles[0] * tiles[1] * tiles[2] * CeilDiv(plane_groups, tile.planes);
  if (blocks >= kFastThreads) return cudaErrorNotSupported;
  return Launch(GatherKernel<T, kV, kPlanes, kCovers>, blocks, s.threads,
                static_cast<size_t>(tile.bytes + 4 + tile.d * tile.h * sizeof(typename K::Row)), stream, s);
}

template <class T, int kV, bool kPlanes>
cudaError_t RunGatherCovers(const Problem& p, const Args& args, void* stream) {
  const int64_t covers = WindowAxis(p.axis[2]).most_covers();
  if (covers <= 1) return LaunchGather<T, kV, kPlanes, 1>(p, args, stream);
  if (covers <= 2) return LaunchGather<T, kV, kPlanes, 2>(p, args, stream);
  if (covers <= 3) return LaunchGather<T, kV, kPlanes, 3>(p, args, stream);
  if (covers <= 5) return LaunchGather<T, kV, kPlanes, 5>(p, args, stream);
  return cudaErrorNotSupported;
}

template <class T>
cudaError_t LaunchOneTap(const Problem& p, const Args& args, void* stream) {
  OneTapParams<T> s{};
  s.dy = static_cast<const T*>(args.source), s.routes = args.routes, s.dx = static_cast<T*>(args.result);
  s.count = static_cast<uint32_t>(p.x_elements());
  s.line = FastDiv(p.channels_last() ? p.channels : p.axis[2].out);
  s.line_bytes = static_cast<int>(p.routes.line_bytes), s.bits = p.routes.bits;
  const int64_t blocks = CeilDiv(p.x_elements(), kRowsThreads * static_cast<int64_t>(16 / sizeof(T)));
  return Launch(OneTapKernel<T>, blocks, kRowsThreads, 0, stream, s);
}

#define POOLGRAD_CUDA_GATHER(T)                                                                   \
  template <>                                                                                     \
  cudaError_t RunGather<T>(const Problem& p, const Args& args, void* stream) {                    \
    constexpr int kElements = 16 / sizeof(T);                                                     \
    const bool aligned = Aligned(args.source, 16) && Aligned(args.result, 16);                    \
    if (aligned && IsOneTap(p)) return LaunchOneTap<T>(p, args, stream);                          \
    if (aligned && p.channels_last() && p.channels % kElements == 0 && Aligned(args.routes, 8)) { \
      return RunGatherCovers<T, 4, false>(p, args, stream);                                       \
    }                                                                                             \
    return RunGatherCovers<T, 1, sizeof(T) == 2>(p, args, stream);                                \
  }

}  // namespace poolgrad::cuda
