// Choosing the tiles of the kernels for any window, and launching them. Included by one file per element type.
#pragma once

#include <algorithm>

#include "cuda/any_tiles.h"
#include "cuda/fast.h"
#include "cuda/rows.cuh"
#include "cuda/sums.cuh"

namespace poolgrad::cuda {

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
  const RowsTile tile = ChooseRowsTile(s.axis, shape);
  if (tile.bytes == 0) return cudaErrorNotSupported;
  s.tile[0] = static_cast<int>(tile.d), s.tile[1] = static_cast<int>(tile.h), s.tile[2] = static_cast<int>(tile.w);
  s.tile_planes = static_cast<int>(tile.planes), s.tile_units = static_cast<int>(tile.units);
  s.padded_units = static_cast<int>(tile.padded_units);
  s.rows[0] = static_cast<int>(s.axis[0].reach(tile.d)), s.rows[1] = static_cast<int>(s.axis[1].reach(tile.h));
  s.line_units = static_cast<int>(tile.line);
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
  s.by_rows_h = FastDiv(s.rows[1]), s.by_tile_d = FastDiv(tile.d);
  const int64_t tiles_c = CeilDiv(units, tile.units), tiles_w = CeilDiv(p.axis[2].out, tile.w),
                tiles_h = CeilDiv(s.axis[1].out, tile.h), tiles_d = CeilDiv(p.axis[0].out, tile.d);
  s.tiles_c = FastDiv(tiles_c), s.tiles_w = FastDiv(tiles_w), s.tiles_h = FastDiv(tiles_h),
  s.tiles_d = FastDiv(tiles_d);
  const int64_t blocks = tiles_c * tiles_w * tiles_h * tiles_d * CeilDiv(plane_groups, tile.planes);
  if (blocks >= kFastThreads) return cudaErrorNotSupported;
  const auto kernel = routes ? RowsKernel<T, kV, kPlanes, true> : RowsKernel<T, kV, kPlanes, false>;
  return Launch(kernel, blocks, s.threads, static_cast<size_t>(tile.bytes + 8 * s.table), stream, s);
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

template <class T>
SumsAxes AxesOf(const Problem& p, bool march_planes) {
  const bool last = p.channels_last();
  const Geo<int64_t> g = MakeGeo<int64_t>(p);
  const int64_t route_row = (last ? p.axis[2].out : 1) * p.routes.line_bytes;
  SumsAxes s;
  for (int i = 0; i < 3; ++i) s.axis[i] = WindowAxis(p.axis[i]);
  s.planes = last ? p.batch : p.batch * p.channels;
  s.x_plane = last ? g.x_n : g.x_c, s.y_plane = last ? g.y_n : g.y_c;
  s.route_plane = route_row * p.axis[1].out * p.axis[0].out;
  s.x_step[0] = g.x_axis[0], s.y_step[0] = g.y_axis[0], s.route_step[0] = route_row * p.axis[1].out;
  s.x_step[1] = g.x_axis[1], s.y_step[1] = g.y_axis[1], s.route_step[1] = route_row;
  const auto single = [](const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.pad == 0 && a.in == a.out; };
  if (!single(s.axis[0])) return s;
  if (march_planes) {  // depth, if any, is a matter of planes, and those are marched through
    const int64_t planes = s.planes * s.axis[0].in;
    if (planes >= 1 << 30) return s;
    s.axis[0].in = s.axis[0].out = static_cast<int>(planes);
    s.planes = 1;
  } else {  // march down the height
    s.planes *= s.axis[0].in;
    s.x_plane = s.x_step[0], s.y_plane = s.y_step[0], s.route_plane = s.route_step[0];
    s.axis[0] = s.axis[1];
    s.x_step[0] = s.x_step[1], s.y_step[0] = s.y_step[1], s.route_step[0] = s.route_step[1];
    s.axis[1] = WindowAxis(Axis{});
  }
  return s;
}

template <class T>
cudaError_t RunAnyBackward(const Problem& p, const Args& args, void* stream) {
  using S = typename SumOf<T>::Type;
  const int64_t channels = p.channels_last() ? p.channels : 1;
  const bool single_rows = p.axis[1].in == 1 && p.axis[1].out == 1;
  const SumsAxes axes = AxesOf<T>(p, single_rows);
  const SumsTile tile = ChooseSumsTile(axes, channels, sizeof(S));
  if (tile.bytes == 0) return cudaErrorNotSupported;
  SumsParams<T> s{};
  s.dy = static_cast<const T*>(args.source), s.routes = args.routes, s.dx = static_cast<T*>(args.result);
  for (int i = 0; i < 3; ++i) s.axis[i] = axes.axis[i];
  for (int i = 0; i < 2; ++i) {
    s.x_step[i] = axes.x_step[i], s.y_step[i] = axes.y_step[i], s.route_step[i] = axes.route_step[i];
  }
  s.planes = axes.planes;
  s.x_plane = axes.x_plane, s.y_plane = axes.y_plane, s.route_plane = axes.route_plane;
  s.column = static_cast<int>(channels);
  s.bits = p.routes.bits;
  s.route_column_bits = static_cast<int>(p.channels_last() ? 8 * p.routes.line_bytes : p.routes.bits);
  s.channels = static_cast<int>(channels);
  s.taps = static_cast<uint32_t>(p.taps());
  s.tile_p = static_cast<int>(tile.p);
  s.tile_b = static_cast<int>(tile.b), s.tile_w = static_cast<int>(tile.w), s.tile_c = static_cast<int>(tile.c);
  s.ring = std::min(s.axis[0].extent(), s.axis[0].in);
  s.block = static_cast<int>(CeilDiv(tile.b * tile.w * tile.c, 4) * 4);
  s.wide = static_cast<int>(tile.wide), s.apart = static_cast<int>(tile.apart);
  s.by_channels = FastDiv(tile.c), s.by_wide = FastDiv(tile.wide);
  const int64_t in_w = s.axis[2].in, in_b = s.axis[1].in;
  s.contiguous = tile.c == channels;
  s.merged = s.contiguous && tile.w == in_w && (in_b == 1 || axes.x_step[1] == in_w * channels);
  constexpr int64_t kVector = 16 / sizeof(T);
  const auto whole = [&](int64_t v) { return v % kVector == 0; };
  const bool places = whole(axes.x_step[0]) && whole(axes.x_plane) && Aligned(args.result, 16);
  if (s.merged) {
    s.vector = places && whole(tile.b * in_w * channels) && whole(in_b * in_w * channels);
  } else if (s.contiguous) {
    s.vector = places && whole(axes.x_step[1]) && whole(tile.w * channels) && whole(in_w * channels);
  } else {
    s.vector = whole(channels) && whole(tile.c) && Aligned(args.result, 16);
  }
  s.by_vectors_c = FastDiv(s.vector && !s.contiguous ? tile.c / kVector : 1);
  // The march is cut into parts where there would not be warps enough, but no more than a device holds at once.
  const int64_t tiles_c = CeilDiv(channels, tile.c), tiles_w = CeilDiv(in_w, tile.w), tiles_b = CeilDiv(in_b, tile.b);
  const int64_t others = tiles_c * tiles_w * tiles_b * CeilDiv(axes.planes, tile.p);
  // Warps that a multiprocessor holds when a block has so many of them: registers allow 16.
  const auto held = [&](int64_t warps) {
    return std::min(16 / warps, kSharedMost / (tile.bytes * warps + 1024)) * warps;
  };
  const int64_t warps = held(4) >= std::max(held(2), held(1)) ? 4 : held(2) >= held(1) ? 2 : 1;
  const int64_t enough = enough_threads / 4096 * held(warps);
  const int64_t shortest = s.axis[0].extent() == 1 ? 1 : 2 * s.axis[0].extent();
  const int64_t parts = std::clamp<int64_t>(enough / others, 1, std::max<int64_t>(1, s.axis[0].in / shortest));
  s.tile_m = static_cast<int>(CeilDiv(s.axis[0].in, parts));
  const int64_t tiles_m = CeilDiv(s.axis[0].in, s.tile_m);
  s.tiles_c = FastDiv(tiles_c), s.tiles_w = FastDiv(tiles_w), s.tiles_b = FastDiv(tiles_b),
  s.tiles_m = FastDiv(tiles_m);
  s.jobs = others * tiles_m;
  if (s.jobs >= kFastThreads) return cudaErrorNotSupported;
  s.warps = static_cast<int>(warps);
  const auto kernel = p.routes.bits > 8 ? SumsKernel<T, true> : SumsKernel<T, false>;
  return Launch(kernel, CeilDiv(s.jobs, s.warps), 32 * s.warps, static_cast<size_t>(tile.bytes * s.warps), stream, s);
}

#define POOLGRAD_CUDA_ANY_FORWARD(T)                                              \
  template <>                                                                     \
  cudaError_t RunAnyWindow<T>(const Problem& p, const Args& args, void* stream) { \
    return RunAnyForward<T>(p, args, stream);                                     \
  }
#define POOLGRAD_CUDA_ANY_BACKWARD(T)                                               \
  template <>                                                                       \
  cudaError_t RunAnyGradient<T>(const Problem& p, const Args& args, void* stream) { \
    return RunAnyBackward<T>(p, args, stream);                                      \
  }

}  // namespace poolgrad::cuda
