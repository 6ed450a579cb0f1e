// The list of SIMD ways to pool forward, fastest first, each with its reasons to refuse.
#include "cpu/forward/forward.h"

#include <algorithm>

#include "cpu/cpu.h"

namespace poolgrad {
namespace {

Kernel Make(ForwardWay way, const Problem& p, poolgrad_op op, const Host& host) {
  const bool routes = op == POOLGRAD_OP_FORWARD_ROUTES;
  switch (p.dtype) {
    case POOLGRAD_F32: return MakeForwardF32(way, p, routes, host.simd);
    case POOLGRAD_F64: return MakeForwardF64(way, p, routes, host.simd);
    case POOLGRAD_F16:
    case POOLGRAD_BF16: {
      const Kernel kernel = HasHalfFmax() ? MakeForwardHalfFmax(way, p, routes) : Kernel{};
      return kernel.run ? kernel : MakeForwardHalf(way, p, routes, host.simd);
    }
    default: return MakeForwardInt(way, p, routes, host.simd);
  }
}

bool IsPlanar(const Problem& p) { return !p.channels_last() || p.channels == 1; }

// Whether the signs of a few values, some here and some there in what the units read, are all plus.
template <class Bits>
bool SeesNoSign(const Problem& p, const Args& args, int64_t begin, int64_t end, int64_t units) {
  constexpr int64_t kRun = 64 / sizeof(Bits);            // a line
  constexpr int64_t kApart = (32 << 10) / sizeof(Bits);  // far enough to cost nothing beside the pooling
  const auto* x = static_cast<const Bits*>(args.source);
  const auto place = [&](int64_t unit) { return p.x_elements() / units * unit + p.x_elements() % units * unit / units; };
  const int64_t first = place(begin);
  const int64_t last = place(end);
  const int64_t runs = std::clamp<int64_t>((last - first) / kApart, 1, 16);
  Bits seen = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t at = first + (last - first) / runs * i;
    const int64_t n = std::min(kRun, last - at);
    for (int64_t k = 0; k < n; ++k) seen |= x[at + k];
  }
  return seen >> (8 * sizeof(Bits) - 1) == 0;
}

// Behind a rectifier values are never negative: then their bits can be compared. For halves that is cheaper than making keys; for
// f32 it saves looking for -0 where +0 won, which among many taps is rare.
void AddShortcut(ForwardWay way, const Problem& p, bool routes, const Host& host, Kernel* kernel) {
  for (const Axis& a : p.axis) {
    if (a.has_empty_window()) return;
  }
  const bool half = p.dtype == POOLGRAD_F16 || p.dtype == POOLGRAD_BF16;
  if (!half && (p.dtype != POOLGRAD_F32 || (IsPlanar(p) && p.taps() > 16))) return;
  const Kernel bits = half ? MakeForwardBits16(way, p, routes, host.simd) : MakeForwardBits32(way, p, routes, host.simd);
  if (!bits.run) return;
  kernel->shortcut = {half ? SeesNoSign<uint16_t> : SeesNoSign<uint32_t>, bits.run};
  kernel->scratch_bytes = std::max(kernel->scratch_bytes, bits.scratch_bytes);
}

template <ForwardWay kWay>
Kernel Make(const Problem& p, poolgrad_op op, const Host& host) {
  Kernel kernel = Make(kWay, p, op, host);
  AddShortcut(kWay, p, op == POOLGRAD_OP_FORWARD_ROUTES, host, &kernel);
  return kernel;
}

// What every SIMD way of max pooling asks for.
const char* RefuseMax(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_FORWARD_ROUTES) return "it only pools forward";
  if (p.kind != POOLGRAD_MAX) return "it does max pooling only";
  const int64_t lane_taps = SizeOf(p.dtype) == 1 ? 127 : SizeOf(p.dtype) == 2 ? 32767 : int64_t{1} << 30;
  if (p.taps() > lane_taps) return "a window has more taps than a lane of this type can number";
  if (p.y_elements() > 0 && Make(ForwardWay::kExact, p, op, host).run == nullptr) {
    return "this processor has none of the SIMD instruction sets that were built";
  }
  return nullptr;
}

// What the ways that only compare keys ask for besides.
const char* RefuseFast(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseMax(p, op, host)) return reason;
  if (p.routes.masks) return "it keeps one winner, not a set of ties";
  if (p.width().has_empty_window()) return "a window has no valid tap along the width";
  return nullptr;
}

// Every window of this axis lies inside the input, and together they have no gaps or overlaps.
bool Tiles(const Axis& a) {
  return a.kernel == a.stride && a.dilation == 1 && a.pad_lo == 0 && a.interior().size() == a.out;
}

const char* RefuseGlobal(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  for (const Axis& a : p.axis) {
    if (a.kernel != a.in || a.out != 1 || a.dilation != 1 || a.pad_lo != 0) return "the window is not the whole plane";
  }
  const bool routes = op == POOLGRAD_OP_FORWARD_ROUTES;
  if (!IsPlanar(p) && routes && p.taps() > 255) return "a tap's number does not fit a byte";
  if (p.y_elements() == 0 || Make(ForwardWay::kGlobal, p, op, host).run) return nullptr;
  return IsPlanar(p) ? "a plane is shorter than a vector" : "it was left out to keep the library small";
}

const char* RefuseInterleaved(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (!IsPlanar(p)) return "it needs channels first";
  if (!Tiles(p.width())) return "windows do not tile the width";
  if (p.width().stride < 2 || p.width().stride > 4) return "the width's stride is not 2, 3 or 4";
  if (!p.height().disjoint() || !p.depth().disjoint()) return "windows share rows";
  return p.y_elements() > 0 && !Make(ForwardWay::kInterleaved, p, op, host).run ? "a row of outputs is shorter than a vector" : nullptr;
}

const char* RefuseWindows(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (op != POOLGRAD_OP_FORWARD) return "it keeps no routes";
  if (IsPlanar(p)) return "it needs channels last";
  return p.y_elements() > 0 && !Make(ForwardWay::kWindows, p, op, host).run ? "reading row after row is faster here" : nullptr;
}

const char* RefuseStream(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (IsPlanar(p)) return "it needs channels last";
  if (p.taps() > 255) return "a tap's number does not fit a byte";
  if (p.y_elements() > 0 && !Make(ForwardWay::kStream, p, op, host).run) return "reading whole windows is faster here";
  const bool share = CeilDiv(p.height().kernel, p.height().stride) > 3 && p.height().out > 1;
  return share && Make(ForwardWay::kShared, p, op, host).run ? "more than three windows share a row" : nullptr;
}

const char* RefuseMiddles(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (IsPlanar(p)) return "it needs channels last";
  if (p.depth().kernel > 1) return "windows are deeper than one slice";
  if (p.height().dilation > 1 || p.width().dilation > 1) return "windows are dilated";
  if (p.height().has_empty_window() || p.depth().has_empty_window()) return "a window has no valid tap";
  if (op == POOLGRAD_OP_FORWARD_ROUTES && p.taps() > 255) return "a tap's number does not fit a byte";
  if (p.y_elements() == 0 || Make(ForwardWay::kMiddles, p, op, host).run) return nullptr;
  return "there are fewer channels than lanes, or it was left out to keep the library small";
}

const char* RefuseShared(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (IsPlanar(p)) return "it needs channels last";
  return p.y_elements() > 0 && !Make(ForwardWay::kShared, p, op, host).run ? "it was left out to keep the library small" : nullptr;
}

const char* RefuseColumns(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (op != POOLGRAD_OP_FORWARD) return "it keeps no routes";
  return IsPlanar(p) ? nullptr : "it needs channels first";
}

const char* RefuseSweep(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (op != POOLGRAD_OP_FORWARD_ROUTES) return "it is for routes";
  if (!IsPlanar(p)) return "it needs channels first";
  if (p.dtype != POOLGRAD_F32) return "it is for f32";
  if (p.ties == POOLGRAD_TIES_LAST) return "it prefers the first of ties";
  const Axis& h = p.height();
  const Axis& w = p.width();
  if (h.kernel != 3 || w.kernel != 3 || p.depth().kernel != 1) return "a window is not three by three";
  if (h.stride != w.stride || h.stride > 2) return "the strides are not both 1 or both 2";
  if (h.stride == 2 && (h.dilation > 1 || w.dilation > 1)) return "windows at stride 2 are dilated";
  if (p.y_elements() == 0 || Make(ForwardWay::kSweep, p, op, host).run) return nullptr;
  return "rows are shorter than a vector or padded too far, vectors are longer than 16 bytes, or it was left out to keep "
         "the library small";
}

const char* RefusePlanes(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseFast(p, op, host)) return reason;
  if (op != POOLGRAD_OP_FORWARD_ROUTES) return "it is for routes";
  return IsPlanar(p) ? nullptr : "it needs channels first";
}

const char* RefuseAverage(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (op != POOLGRAD_OP_FORWARD) return "it only pools forward";
  if (p.kind != POOLGRAD_AVERAGE) return "it does average pooling only";
  return MakeForwardAverage(p, host.simd).run ? nullptr : "this processor has none of the SIMD instruction sets that were built";
}

Kernel MakeAverage(const Problem& p, poolgrad_op, const Host& host) { return MakeForwardAverage(p, host.simd); }

template <auto kRefuse, auto kMake>
Made Either(const Problem& p, poolgrad_op op, const Host& host) {
  if (const char* reason = kRefuse(p, op, host)) return reason;
  return kMake(p, op, host);
}

constexpr Algorithm kForward[] = {
    {"simd_global", Either<RefuseGlobal, Make<ForwardWay::kGlobal>>},
    {"simd_interleaved", Either<RefuseInterleaved, Make<ForwardWay::kInterleaved>>},
    {"simd_windows", Either<RefuseWindows, Make<ForwardWay::kWindows>>},
    {"simd_stream", Either<RefuseStream, Make<ForwardWay::kStream>>},
    {"simd_middles", Either<RefuseMiddles, Make<ForwardWay::kMiddles>>},
    {"simd_shared_rows", Either<RefuseShared, Make<ForwardWay::kShared>>},
    {"simd_columns", Either<RefuseColumns, Make<ForwardWay::kColumns>>},
    {"simd_sweep", Either<RefuseSweep, Make<ForwardWay::kSweep>>},
    {"simd_planes", Either<RefusePlanes, Make<ForwardWay::kPlanes>>},
    {"simd_average", Either<RefuseAverage, MakeAverage>},
    {"simd_exact", Either<RefuseMax, Make<ForwardWay::kExact>>},
};

}  // namespace

std::span<const Algorithm> ForwardAlgorithms() { return kForward; }

}  // namespace poolgrad
