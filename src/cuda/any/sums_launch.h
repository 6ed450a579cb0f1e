// How backward by summing (sums.cuh) shares out a problem among warps.
#pragma once

#include <cuda_runtime.h>

#include "cuda/any/any_tiles.h"
#include "cuda/common/device.cuh"
#include "cuda/fast.h"

namespace poolgrad::cuda {

inline SumsAxes AxesOf(const Problem& p, bool march_planes) {
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

struct SumsGrid {
  int64_t blocks = 0, shared_bytes = 0;  // no blocks: no tile fits, or there are too many
  int threads = 0;
};

// Everything about a launch but its pointers. known: of a kernel that is compiled for its form.
inline SumsGrid PrepareSums(const Problem& p, bool known, SumsParams* params) {
  const int64_t channels = p.channels_last() ? p.channels : 1, word = p.dtype == POOLGRAD_F64 ? 8 : 4;
  const bool single_rows = p.axis[1].in == 1 && p.axis[1].out == 1;
  const SumsAxes axes = AxesOf(p, single_rows);
  SumsParams& s = *params;
  s = {};
  const SumsShares shares = ChooseSums(axes, p.channels_last(), channels, p.routes.bits, word, known);
  const SumsForm& f = s.form = shares.form;
  if (f.planes == 0) return {};
  for (int i = 0; i < 3; ++i) s.axis[i] = axes.axis[i];
  for (int i = 0; i < 2; ++i) {
    s.x_step[i] = axes.x_step[i], s.y_step[i] = axes.y_step[i], s.route_step[i] = axes.route_step[i];
  }
  s.planes = axes.planes;
  s.x_plane = axes.x_plane, s.y_plane = axes.y_plane, s.route_plane = axes.route_plane;
  s.channels = static_cast<int>(channels);
  s.route_column_bits = static_cast<int>(p.channels_last() ? 8 * p.routes.line_bytes : p.routes.bits);
  s.taps = static_cast<uint32_t>(p.taps());
  s.by_channels = FastDiv(f.channels), s.by_groups = FastDiv(f.groups), s.by_columns = FastDiv(f.columns),
  s.by_span = BySpan(f);
  s.by_bytes[0] = ByBytes(f.kernel[1]), s.by_bytes[1] = ByBytes(f.kernel[2]);
  s.tile_m = static_cast<int>(shares.tile_m), s.warps = static_cast<int>(shares.warps);
  const int64_t tiles_c = CeilDiv(channels, int64_t{f.channels} * f.vector), tiles_w = CeilDiv(s.axis[2].in, f.columns),
                tiles_b = CeilDiv(s.axis[1].in, f.rows), tiles_m = CeilDiv(s.axis[0].in, s.tile_m);
  s.tiles_c = FastDiv(tiles_c), s.tiles_w = FastDiv(tiles_w), s.tiles_b = FastDiv(tiles_b),
  s.tiles_m = FastDiv(tiles_m);
  s.jobs = tiles_c * tiles_w * tiles_b * CeilDiv(axes.planes, f.planes) * tiles_m;
  if (s.jobs >= kFastThreads) return {};
  return {CeilDiv(s.jobs, shares.warps), SumsBytes(f, word) * shares.warps, 32 * s.warps};
}

}  // namespace poolgrad::cuda
