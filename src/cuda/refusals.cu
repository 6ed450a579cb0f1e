// Why the kernels whose windows are loops do not take a problem; and what the plans of large windows keep.
#include <algorithm>

#include "cuda/any/any_tiles.h"
#include "cuda/fast.h"
#include "cuda/large/doubling.cuh"
#include "cuda/large/separable.cuh"

namespace poolgrad::cuda {

const char* RefuseVectors(const Problem& p) {
  if (!p.channels_last()) return "channels are first";
  for (const Axis& a : p.axis) {
    if (a.out != 1 || a.kernel != a.in || a.pad_lo != 0 || (a.dilation != 1 && a.kernel > 1))
      return "the window is not the whole plane";
  }
  if (p.channels % (16 / SizeOf(p.dtype)) != 0) return "the channels do not fill 16-byte vectors";
  if (p.routes.bits > 8) return "the window has more taps than a byte holds";
  if (!FitsWindow32(p)) return "the window reaches past 2^30";
  return nullptr;
}

const char* RefusePlanes(const Problem& p, bool forward) {
  if (p.channels_last()) return "channels are last";
  for (const Axis& a : p.axis) {
    if (a.out != 1 || a.kernel != a.in || a.pad_lo != 0 || (a.dilation != 1 && a.kernel > 1))
      return "the window is not the whole plane";
  }
  if (p.in_plane() < 8) return "a plane is shorter than a 16-byte vector";
  if (forward && p.in_plane() * SizeOf(p.dtype) > 24 << 10) return "the planes do not fit into shared memory";
  return nullptr;
}

const char* RefuseSeparable(const Problem& p) {
  const Axis &h = p.axis[1], &w = p.axis[2];
  if (p.axis[0].kernel != 1 || p.axis[0].in != 1 || p.axis[0].out != 1) return "the window has a depth";
  if (std::max(Sharing(h), Sharing(w)) < 4) return "few windows overlap";
  if (h.dilation != 1 || w.dilation != 1) return "the window is dilated";
  if (h.kernel > 255 || w.kernel > 255) return "the window is longer than 255";
  if (p.routes.bits != 8 && p.routes.bits != 16) return "its routes are one or two bytes";
  if (p.channels_last() && p.channels % (kSeparablePacks * (4 / SizeOf(p.dtype))) != 0)
    return "the channels do not fill a sector";
  if (!FitsWindow32(p)) return "the window reaches past 2^29";
  return ShapeSeparable(p, LongestRun(p)).packs == 0 ? "a tile does not fit into shared memory" : nullptr;
}

std::shared_ptr<const void> MakeSeparable(const Problem& p) {
  SeparableShape shape = ShapeSeparable(p, LongestRun(p));
  shape.doubles = !RefuseDoubling(p);
  return std::make_shared<SeparableShape>(shape);
}

const char* RefuseDoubling(const Problem& p) {
  const Axis &h = p.axis[1], &w = p.axis[2];
  if (h.kernel != 13 || w.kernel != 13) return "the window is not 13x13";
  if (h.stride != 1 || w.stride != 1) return "the window does not move by one";
  if (h.pad_lo < 0 || w.pad_lo < 0) return "the input is cropped";
  if (h.out > h.in || w.out > w.in) return "the output is larger than the input";
  if (p.routes.bits != 8) return "its routes are bytes";
  const DoublingShape shape = ShapeDoubling(p);
  if (shape.packs == 0) return "a plane does not fit into shared memory";
  return !p.channels_last() && shape.bytes > shape.packs * kSeparableBytes ? "planes of this size are faster in tiles"
                                                                           : nullptr;
}

const char* RefuseAny(const Problem& p) {
  if (!FitsWindow32(p)) return "the window reaches past 2^29";
  constexpr int64_t limit = int64_t{1} << 27;
  const int64_t channels = p.channels_last() ? p.channels : 1;
  if (p.axis[2].in * channels > limit || p.axis[2].out * channels > limit) return "a row has more than 2^27 elements";
  if (p.axis[2].kernel > 1 << 16 || p.axis[0].kernel * p.axis[1].kernel > 1 << 16) {
    return "the window has more than 2^16 rows or columns";
  }
  return nullptr;
}

bool TablesClear(const Problem& p) {
  int64_t intervals = 0;  // of up to 16 bytes, in shared memory
  for (const Axis& a : p.axis) intervals += a.in + a.out;
  return p.kind == POOLGRAD_MAX && table_cleared * p.out_plane() <= p.in_plane() && intervals <= 4096;
}

const char* RefuseTables(const Problem& p, bool forward) {
  constexpr int64_t limit = int64_t{1} << 30;
  for (const Axis& a : p.axis) {
    if (a.table && (a.in + 1) * (a.out + 1) >= limit) return "an axis is too long for numbers of 32 bits";
    const bool sized = a.table && !IsAdaptive(a) && HasSizes(a);
    if (sized && p.kind == POOLGRAD_AVERAGE && !forward && !p.channels_last()) {
      return "windows of listed sizes may skip an input that lies between theirs";
    }
  }
  if (!FitsWindow32(p) || p.divisor >= limit) return "the window reaches past 2^29";
  const int64_t groups = p.channels_last() ? CeilDiv(p.channels, 4) : p.channels;
  if (p.batch * groups * std::max(p.in_plane(), p.out_plane()) >= kFastThreads) return "it has more than 2^31 threads";
  return nullptr;
}

const char* RefuseGather(const Problem& p) {
  if (const char* reason = RefuseAny(p)) return reason;
  if (p.routes.bits > 8) return "the window has more taps than a byte holds";
  const Covers covers(p);
  const int64_t most = p.channels_last() || p.dtype != POOLGRAD_F32 ? 30 : kGatherFloats;
  return covers.width > 5 || covers.all > most ? "many windows overlap; adding in their order is faster" : nullptr;
}

}  // namespace poolgrad::cuda
