// Which problems march along the depth (march.cuh), how, and what their launch is told.
#pragma once

#include <algorithm>
#include <optional>

#include "cuda/small/march.cuh"
#include "cuda/small/small_window_pieces.h"
#include "cuda/small/strips.cuh"

namespace poolgrad::cuda {

// The problem with the window's first axis of several taps as its depth: whole axes before it are more planes. Channels
// last the axes behind it move up, too, since lanes are channels; signals, channels first, march from one to the next.
inline Problem MarchProblem(const Problem& whole) {
  Problem p = whole;
  Axis single = p.axis[0];
  single.in = single.out = single.kernel = single.stride = single.dilation = 1;
  single.pad_lo = single.pad_hi = 0;
  const bool last = ChannelsLast(p);
  const auto plain = [](const Axis& a) { return a.kernel == 1 && a.stride == 1 && a.pad_lo == 0 && a.in == a.out; };
  for (int i = 0; i < 2 && plain(p.axis[0]); ++i) {
    p.batch *= p.axis[0].in;
    p.axis[0] = p.axis[1];
    p.axis[1] = last ? p.axis[2] : single;
    if (last) p.axis[2] = single;
  }
  const int64_t planes = p.batch * p.channels;
  if (!last && plain(p.axis[0]) && p.axis[0].in == 1 && planes < int64_t{1} << 30) {
    p.axis[0].in = p.axis[0].out = planes;
    p.batch = p.channels = 1;
  }
  return p;
}

// Registers of what a thread has asked for and not made yet.
inline int MarchRegisters(const Form& f, bool backward) {
  const int rows = f.run + f.kernel[1] - 1, packs = (f.vector * f.size + 3) / 4, more = f.even ? 0 : f.vector - 1;
  const int over = (f.kernel[2] + f.stride[2] - 1) / f.stride[2] + more, width = f.even ? packs : 1;
  if (backward) return rows * over * (width + 1) + f.kernel[0] * f.run * f.vector;
  return rows * (f.kernel[2] + more * f.stride[2]) * width + f.kernel[0] * f.run * packs * (f.routes ? 2 : 1);
}

// The form that marches, if the window allows it.
inline std::optional<Form> MarchForm(const Problem& whole, poolgrad_op op) {
  constexpr int64_t kStride = 16, kDilation = 1024;  // at most
  const bool backward = op == POOLGRAD_OP_BACKWARD;
  const Problem p = MarchProblem(whole);
  Form f{};
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    if (a.kernel > kMarchPlacesMost || a.stride > (i == 2 ? kStride : 1) || a.dilation > kDilation || a.pad_lo < 0) {
      return {};
    }
    f.kernel[i] = static_cast<int>(a.kernel), f.stride[i] = static_cast<int>(a.stride);
    f.dilation[i] = static_cast<int>(a.dilation);
  }
  // Wide planes share their maxima in other ways.
  const bool volume = f.kernel[0] > 1 && f.kernel[1] > 1 && f.kernel[2] > 1;
  if (p.routes.bits > 8 || f.taps() == 1 || f.taps() > (volume ? 128 : 64)) return {};
  if (backward && f.stride[2] > 1 && f.dilation[2] > 1) return {};
  const bool last = ChannelsLast(p);
  f.mode = last ? Mode::kLastMarch : Mode::kFirstMarch;
  f.size = static_cast<int>(SizeOf(p.dtype));
  f.codes = p.routes.bits, f.bits = BytePerCode(whole) && op != POOLGRAD_OP_FORWARD ? 8 : f.codes;
  f.routes = op != POOLGRAD_OP_FORWARD, f.relu = p.relu && !backward;
  if (!CountsBits(f, p)) return {};
  f.deep = 1;
  f.even = last && p.channels % 2 == 0;
  // Two columns otherwise, but not where they share nothing, nor where a byte would have codes of threads that are not
  // side by side.
  const bool apart = f.stride[2] > 1 ? backward || f.dilation[2] > 1
                                     : !last && f.dilation[2] > 1 && f.bits < 8 && f.routes && !backward;
  f.vector = !f.even && (apart || (backward ? p.axis[2].in : p.axis[2].out) == 1) ? 1 : 2;
  const int64_t rows = CeilDiv(backward ? p.axis[1].in : p.axis[1].out, f.dilation[1]);
  f.run = f.kernel[1] > 1 ? static_cast<int>(std::min<int64_t>(rows, kMarchRowsMost[backward])) : 1;
  const auto fits = [&] { return MarchRegisters(f, backward) <= kMarchRegistersMost[backward]; };
  while (f.run > 1 && !fits()) --f.run;
  if (!fits()) f.vector = 1, f.even = false;
  if (!fits() || f.kernel[2] + (f.vector - 1) * f.stride[2] > kMarchPlacesMost) return {};
  return f;
}

// Whether it is faster than the form that keeps rows: measured on 120 windows in f32 and bf16
// (docs/performance/h200.md).
inline bool PrefersMarch(const Form& march, const Form& kept, bool backward) {
  if (march_always) return true;
  const bool last = march.mode == Mode::kLastMarch, halves = march.size == 2;
  const int taps = march.taps(), axes = (march.kernel[0] > 1) + (march.kernel[1] > 1) + (march.kernel[2] > 1);
  const bool dilated = march.dilation[0] > 1 || march.dilation[1] > 1;
  const int rows = march.extent(0) * march.extent(1);  // that would be kept
  if (backward) {
    if (kept.rolls() && taps < 36) return false;
    if (march.even) return axes > 1 || taps > 9 || (dilated && taps > 3);
    if (last) return taps >= 16 || (axes > 1 && taps >= 6);
    return (axes > 1 && taps > 16) || (dilated && rows >= 5 && (march.dilation[2] > 1 || march.kernel[2] == 1));
  }
  if (axes == 1) return false;
  if (last && taps >= 36) return true;
  if (march.even) {
    if (kept.mode != Mode::kLast && (taps >= 9 || axes == 3)) return true;  // each thread would have single channels
    if (axes == 2 && kept.kernel[0] > 1 && kept.kernel[1] > 1) return true;
    return halves ? (axes == 3 && taps >= 28) || (dilated && taps >= 18) : axes == 3 || (dilated && taps > 4);
  }
  const bool single = last && kept.mode == Mode::kLastOdd;  // channels, read one by one
  if (single && (axes == 3 || (taps >= 9 && !march.routes))) return true;
  if (axes == 3 && taps >= (halves && !last ? 28 : 18)) return true;
  const bool alone = march.vector == 1 && march.routes;  // and codes are put together lane by lane
  return !last && dilated && rows > 12 && !alone;
}

inline Grid PrepareMarch(const Form& f, const Problem& p, bool backward, MarchParams* params) {
  MarchParams& s = *params;
  s.g = MakeGeo<int64_t>(p);
  for (int i = 0; i < 3; ++i) {
    s.in[i] = static_cast<int>(p.axis[i].in), s.out[i] = static_cast<int>(p.axis[i].out);
    s.pad[i] = static_cast<int>(p.axis[i].pad_lo);
  }
  const bool last = f.mode == Mode::kLastMarch;
  s.channels = static_cast<int>(p.channels);
  s.x_plane = p.channels_last() ? s.g.x_n : s.g.x_c, s.y_plane = p.channels_last() ? s.g.y_n : s.g.y_c;
  s.x_depth = s.g.x_axis[0], s.x_row = s.g.x_axis[1], s.x_column = s.g.x_axis[2];
  s.y_depth = s.g.y_axis[0], s.y_row = s.g.y_axis[1], s.y_column = s.g.y_axis[2];
  s.line_bytes = p.routes.line_bytes;
  s.route_row = (p.channels_last() ? p.axis[2].out : 1) * s.line_bytes;
  s.route_depth = p.axis[1].out * s.route_row, s.route_plane = p.axis[0].out * s.route_depth;
  const auto size = [&](int axis) { return backward ? p.axis[axis].in : p.axis[axis].out; };
  const int64_t next = f.stride[2] == 1 ? f.dilation[2] : 1;
  const int64_t columns = f.even || f.vector == 1 ? size(2) : CeilDiv(size(2), 2 * next) * next;
  const int64_t unit = f.routes && !backward && f.bits < 8 ? 4 : 1;  // lanes that may share a byte of codes
  const int64_t lanes = CeilDiv(last ? p.channels / (f.even ? 2 : 1) : columns, unit) * unit;
  if (lanes >= kFastThreads) return {};
  s.lanes = FastDiv(lanes), s.columns = FastDiv(last ? columns : 1);
  const int64_t row_groups = CeilDiv(CeilDiv(size(1), f.dilation[1]), f.run);
  s.row_groups = static_cast<int>(row_groups);
  s.groups = FastDiv(row_groups * f.dilation[1]);
  // Segments of the depth begin with the depths that only they need, so they are long, but fill the device.
  const int64_t length = CeilDiv(size(0), f.dilation[0]), planes = p.batch * (last ? 1 : p.channels);
  const int64_t others = int64_t{s.lanes.divisor} * s.columns.divisor * s.groups.divisor * f.dilation[0] * planes;
  const int64_t enough = std::max<int64_t>(1, enough_threads * 3 / 8);
  const int64_t parts = std::clamp<int64_t>(CeilDiv(enough, others), CeilDiv(length, kMarchDepthsMost),
                                            CeilDiv(length, std::min<int64_t>(f.kernel[0], kMarchDepthsMost)));
  s.depths = static_cast<int>(CeilDiv(length, parts));
  s.depth_parts = static_cast<int>(CeilDiv(length, s.depths));
  s.segments = FastDiv(int64_t{s.depth_parts} * f.dilation[0]);
  const int64_t threads = others * s.depth_parts;
  if (others >= kFastThreads || threads >= kFastThreads) return {};
  s.threads = static_cast<uint32_t>(threads);
  return {CeilDiv(threads, kMarchThreads), kMarchThreads, 0};
}

inline void Point(const Args& args, MarchParams* s) {
  s->source = args.source, s->result = args.result, s->routes = args.routes;
}

}  // namespace poolgrad::cuda
