// The backward side of the CPU kernels: which there are, fastest first, and why each may refuse.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/gather-inl.h"
#include "cpu/backward/pixels.h"
#include "cpu/backward/planes.h"
#include "cpu/backward/ring.h"
#include "cpu/backward/scatter-inl.h"
#include "cpu/backward/single-inl.h"
#include "cpu/backward/tiling-inl.h"
#include "cpu/backward/from_x.h"
#include "cpu/cpu.h"
#include "cpu/backward/winners-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

RunFn SelectGatherRows(const Problem&, poolgrad_op) { return nullptr; }
RunFn SelectScatter(const Problem&) { return nullptr; }
RunFn SelectWinners(const Problem&) { return nullptr; }
RunFn SelectTiling(const Problem&, poolgrad_op) { return nullptr; }
RunFn SelectSingle(const Problem&, poolgrad_op) { return nullptr; }

#else

template <class T, bool kAdd, Match kMatch, void (*kSpread)(const void*, int64_t, void*)>
void RunGatherRows(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Gather<T, kAdd, kMatch>(p, args, kSpread, scratch).Run(begin, end);
}

#ifdef POOLGRAD_SMALL

// The WebAssembly build has to stay small: sums alone, of averages and of single winners; the rest is left to the
// reference.
template <class T>
RunFn GradientRows(const Problem& p) {
  if (p.kind == POOLGRAD_AVERAGE) return RunGatherRows<T, true, Match::kAll, SpreadSum<T> >;
  return p.routes.masks ? nullptr : RunGatherRows<T, true, Match::kCode, SpreadSum<T> >;
}

template <class Bits>
RunFn UnpoolRows(const Problem&) {
  return nullptr;
}

#else

// Backward: sums, unless no two windows share an input.
template <class T>
RunFn GradientRows(const Problem& p) {
  if (p.kind == POOLGRAD_AVERAGE) return RunGatherRows<T, true, Match::kAll, SpreadSum<T> >;
  if (p.routes.masks) return RunGatherRows<T, true, Match::kMask, SpreadSum<T> >;
  if (!p.disjoint()) return RunGatherRows<T, true, Match::kCode, SpreadSum<T> >;
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;
  if constexpr (sizeof(T) == 2) {
    return RunGatherRows<Bits, false, Match::kCode, SpreadHalfBits<T> >;
  } else {
    return RunGatherRows<Bits, false, Match::kCode, SpreadSum<T> >;
  }
}

template <class Bits>
RunFn UnpoolRows(const Problem& p) {
  return p.routes.masks ? RunGatherRows<Bits, false, Match::kMask, SpreadCopy<Bits> >
                        : RunGatherRows<Bits, false, Match::kCode, SpreadCopy<Bits> >;
}

#endif  // POOLGRAD_SMALL

RunFn SelectGatherRows(const Problem& p, poolgrad_op op) {
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
    if (op == POOLGRAD_OP_UNPOOL) return UnpoolRows<typename UnsignedOfSize<sizeof(T)>::Type>(p);
    if constexpr (!std::is_integral_v<T>) return GradientRows<T>(p);
    return nullptr;
  });
}

template <class T>
void RunScatter(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Scatter<T>(p, args, scratch).Run(begin, end);
}

RunFn SelectScatter(const Problem& p) {
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) return RunScatter<T>;
    return nullptr;
  });
}

template <class Bits>
void RunWinners(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Winners<Bits>(p, args, scratch).Run(begin, end);
}

RunFn SelectWinners(const Problem& p) {
  switch (SizeOf(p.dtype)) {
    case 4:
      return RunWinners<uint32_t>;
#ifndef POOLGRAD_SMALL
    case 1:
      return RunWinners<uint8_t>;
    case 2:
      return RunWinners<uint16_t>;
    case 8:
      return RunWinners<uint64_t>;
#endif
    default:
      return nullptr;
  }
}

template <class T>
void RunTiling(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Tiling<T>(p, args, scratch).Run(begin, end);
}

RunFn SelectTiling(const Problem& p, poolgrad_op op) {
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
#ifndef POOLGRAD_SMALL
    if (op == POOLGRAD_OP_UNPOOL) return RunTiling<typename UnsignedOfSize<sizeof(T)>::Type>;
#else
    if (op == POOLGRAD_OP_UNPOOL) return nullptr;
#endif
    if constexpr (!std::is_integral_v<T>) return RunTiling<T>;
    return nullptr;
  });
}

RunFn SelectSingle(const Problem& p, poolgrad_op op) {
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
#ifndef POOLGRAD_SMALL
    if (op == POOLGRAD_OP_UNPOOL) return RunSingle<typename UnsignedOfSize<sizeof(T)>::Type>;
#else
    if (op == POOLGRAD_OP_UNPOOL) return nullptr;
#endif
    if constexpr (!std::is_integral_v<T>) return RunSingle<T>;
    return nullptr;
  });
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {
namespace {

HWY_EXPORT(SelectGatherRows);

// Bytes of a lane of SelectGatherRows' kernel: sums are made in the wide type, picked values keep their own.
int64_t GatherLaneBytes(const Problem& p, poolgrad_op op) {
  const bool picks = op == POOLGRAD_OP_UNPOOL || (p.kind == POOLGRAD_MAX && !p.routes.masks && p.disjoint());
  return picks ? SizeOf(p.dtype) : std::max<int64_t>(4, SizeOf(p.dtype));
}

GatherTiles GatherRowsTiles(const Problem& p, poolgrad_op op) {
  const int64_t lane = GatherLaneBytes(p, op);
  const int64_t words = p.kind == POOLGRAD_AVERAGE ? 0 : p.routes.masks ? CeilDiv(p.taps(), 8 * lane) : 1;
  return LayOutGather(p, lane, words);
}

const char* RefuseGatherRows(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (op != POOLGRAD_OP_BACKWARD && op != POOLGRAD_OP_UNPOOL) return "it does backward and unpool only";
  if (!POOLGRAD_DISPATCH(SelectGatherRows, host.simd)(p, op)) return "this processor has no vector instructions we know";
  if (p.kind == POOLGRAD_MAX && !p.routes.masks) {
    const int64_t lane = GatherLaneBytes(p, op);
    if (lane < 4 && p.taps() >= int64_t{1} << (8 * lane)) return "a tap's number does not fit a lane";
    if (p.taps() >= int64_t{1} << 31) return "a tap's number does not fit a lane";
  }
  const auto rows = [](const Axis& a) { return std::min(a.kernel, std::max<int64_t>(1, a.out)); };
  const bool too_tall = rows(p.depth()) > kMostSlots || rows(p.height()) > kMostSlots / rows(p.depth());
  if (too_tall || p.width().kernel > kMostSlots || p.width().extent() > kMostGatherScratch) {
    return "the window is too large to keep its rows at hand";
  }
  if (GatherRowsTiles(p, op).bytes > kMostGatherScratch) return "its rows are too long to keep at hand";
  return nullptr;
}

Kernel MakeGatherRows(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  const GatherTiles t = GatherRowsTiles(p, op);
  return {POOLGRAD_DISPATCH(SelectGatherRows, host.simd)(p, op), t.units(), t.bytes};
}

HWY_EXPORT(SelectScatter);

int64_t ScatterBytes(const Problem& p) {
  const ScatterTiles t = LayOutScatter(p);
  return SizeOf(p.dtype) == 8 ? ScatterScratch<double>(p, t, nullptr).bytes
                              : ScatterScratch<float>(p, t, nullptr).bytes;
}

const char* RefuseScatter(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseAllButBackward(p, op)) return reason;
  if (p.disjoint()) return "no two windows share an input";
  if (p.taps() > kMostScatterTaps || p.routes.bits > 8) return "the window has too many taps";
  int64_t reach = p.channels_last() ? p.channels : 1;
  for (int i = 2; i >= 0; --i) {
    const Axis& a = p.axis[i];
    if (a.extent() >= kScatterReach || a.out * a.stride >= kScatterReach) return "the windows span too much";
    if (reach * std::max(a.extent(), a.in) >= kScatterReach) return "the windows span too much";
    reach *= a.in;
  }
  const ScatterTiles t = LayOutScatter(p);
  if (t.together * t.kept * t.row * 4 > kMostSumBytes) return "the rows of sums do not stay in cache";
  if (!POOLGRAD_DISPATCH(SelectScatter, host.simd)(p)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakeScatter(const Problem& p, poolgrad_op, [[maybe_unused]] const Host& host) {
  return {POOLGRAD_DISPATCH(SelectScatter, host.simd)(p), LayOutScatter(p).units(), ScatterBytes(p)};
}

HWY_EXPORT(SelectWinners);

const char* RefuseWinners(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (op != POOLGRAD_OP_GATHER) return "it does gather only";
  if (const char* reason = RefuseManyWinners(p)) return reason;
  if (p.taps() > kMostWinnerTaps) return "the window has too many taps";
  if (!POOLGRAD_DISPATCH(SelectWinners, host.simd)(p)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakeWinners(const Problem& p, poolgrad_op, [[maybe_unused]] const Host& host) {
  const WinnerTiles t = LayOutWinners(p);
  return {POOLGRAD_DISPATCH(SelectWinners, host.simd)(p), t.rows, t.bytes};
}

HWY_EXPORT(SelectTiling);
HWY_EXPORT(SelectSingle);

// What single windows and tiling windows have in common: null, or why not.
const char* RefuseUnshared(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (op != POOLGRAD_OP_BACKWARD && op != POOLGRAD_OP_UNPOOL) return "it does backward and unpool only";
  if (const char* reason = RefuseManyWinners(p)) return reason;
  if (p.y_elements() == 0) return "there is no output";
  if (!p.disjoint()) return "windows share inputs";
  return nullptr;
}

const char* RefuseSingle(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseUnshared(p, op, host)) return reason;
  if (p.out_plane() != 1) return "a plane has more than one window";
  if (p.channels_last() && p.channels > 1) return "channels are innermost";
  if (p.taps() > kMostWinnerTaps || p.in_plane() >= int64_t{1} << 31)
    return "the window is too large for a table of its taps";
  if (!POOLGRAD_DISPATCH(SelectSingle, host.simd)(p, op)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakeSingle(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  return {POOLGRAD_DISPATCH(SelectSingle, host.simd)(p, op), p.batch * p.channels, (p.taps() + 1) * 4};
}

const char* RefuseTiling(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseUnshared(p, op, host)) return reason;
  const Axis& w = p.width();
  if (!p.channels_last() || p.channels == 1) {
    if (w.kernel > 4) return "the window is wider than four";
    if (w.stride != w.kernel || w.dilation != 1 || w.pad_lo != 0) return "the windows do not tile the width";
  }
  if (SizeOf(p.dtype) < 4 && p.taps() >= int64_t{1} << (8 * SizeOf(p.dtype)))
    return "a tap's number does not fit a lane";
  if (p.channels > kMostTilingChannels) return "there are too many channels";
  if (!POOLGRAD_DISPATCH(SelectTiling, host.simd)(p, op)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakeTiling(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  const int64_t images = p.channels_last() ? p.batch : p.batch * p.channels;
  const int64_t rows = p.depth().out * p.height().out;
  return {POOLGRAD_DISPATCH(SelectTiling, host.simd)(p, op), images * rows, TilingScratch(p)};
}

template <auto kRefuse, auto kMake>
Made Either(const Problem& p, poolgrad_op op, const Host& host) {
  if (const char* reason = kRefuse(p, op, host)) return reason;
  return kMake(p, op, host);
}

constexpr Algorithm kBackward[] = {
    {"single_window", Either<RefuseSingle, MakeSingle>},
    {"tiling_windows", Either<RefuseTiling, MakeTiling>},
    {"pixels", Either<RefusePixels, MakePixels>},
    {"scatter_planes", Either<RefusePlaneScatter, MakePlaneScatter>},
    {"ring_of_sums", Either<RefuseRing, MakeRing>},
    {"scatter", Either<RefuseScatter, MakeScatter>},
    {"gather_rows", Either<RefuseGatherRows, MakeGatherRows>},
    {"routes_at_once", MakeBackwardX},
    {"take_winners", Either<RefuseWinners, MakeWinners>},
};

}  // namespace

std::span<const Algorithm> BackwardAlgorithms() { return kBackward; }

}  // namespace poolgrad
#endif  // HWY_ONCE
