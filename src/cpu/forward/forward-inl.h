// From a way and an element type to the kernel that runs it. POOLGRAD_SMALL (the WebAssembly build) leaves out the ways that
// cost more bytes than they are worth there. For bits (order-inl.h) there are the ways that gain from them: kPlanes does not,
// because zeros would tie with its padding. So it stays with keys for halves, for which zeros are no special values.

// Per-target include guard
#if defined(POOLGRAD_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_FORWARD_INL_H_
#undef POOLGRAD_CPU_FORWARD_INL_H_
#else
#define POOLGRAD_CPU_FORWARD_INL_H_
#endif

#include "cpu/forward/columns-inl.h"
#include "cpu/forward/forward.h"
#include "cpu/forward/global-inl.h"
#include "cpu/forward/global_last-inl.h"
#include "cpu/forward/interleaved-inl.h"
#include "cpu/forward/middles-inl.h"
#include "cpu/forward/planes-inl.h"
#include "cpu/forward/rows-inl.h"
#include "cpu/forward/stream-inl.h"
#include "cpu/forward/sweep-inl.h"
#include "cpu/forward/windows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Whether floats that are not negative are pooled as integers: where those have a maximum, and with routes a comparison too.
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
template <bool kRoutes>
inline constexpr bool kPoolsBits = true;
#elif HWY_TARGET == HWY_AVX2
template <bool kRoutes>
inline constexpr bool kPoolsBits = !kRoutes;
#else
template <bool kRoutes>
inline constexpr bool kPoolsBits = false;
#endif

template <class S, bool kRoutes>
Kernel MakeForward(ForwardWay way, const Problem& p) {
  const Rows<S> rows(p, Args{});
  Kernel kernel;
  kernel.units = rows.row_count();
  ScratchTaker take(nullptr);
  switch (way) {
    case ForwardWay::kWindows:
      if constexpr (kWholeWindows<S> && !kRoutes) return MakeWindows<S>(p);
      break;
    case ForwardWay::kStream: {
      if constexpr (!kWholeWindows<S> || kRoutes) {
        const StreamScratch<S> scratch(p, kRoutes, take);
        kernel.run = RunStream<S, kRoutes>;
      }
      break;
    }
#ifndef POOLGRAD_SMALL  // without these, problems are pooled in more general ways
    case ForwardWay::kMiddles: {
      if (p.channels < LaneCount<S>()) break;
      const MiddleScratch<S> scratch(p, kRoutes, take);
      kernel.run = RunMiddles<S, kRoutes>;
      kernel.tasks_per_thread = 2;
      break;
    }
    case ForwardWay::kShared: {
      const RingScratch<S> ring(p, RingTile<S>(p, kRoutes), kRoutes, take);
      kernel.run = RunShared<S, kRoutes>;
      break;
    }
    case ForwardWay::kInterleaved: {
      const InterleavedScratch<S> scratch(p, kRoutes, take);
      kernel.run = SelectInterleaved<S, kRoutes>(p);
      break;
    }
    case ForwardWay::kGlobal:
      kernel.tasks_per_thread = 1;  // long runs of addresses
      if (rows.inner > 1) {
        const GlobalScratch<S> scratch(p, kRoutes, take);
        kernel.units = p.batch * GlobalBlocks(p);
        kernel.run = RunGlobalLast<S, kRoutes>;
      } else if (p.in_plane() >= LaneCount<S>()) {
        kernel.run = RunGlobal<S, kRoutes>;
      }
      break;
#endif
    case ForwardWay::kColumns: {
      if constexpr (!kRoutes) {
        const ColumnScratch<S> scratch(p, take);
        kernel.run = RunColumns<S>;
      }
      break;
    }
#ifndef POOLGRAD_SMALL
    case ForwardWay::kSweep:
      if constexpr (kRoutes) kernel.run = SelectSweep<S>(p, take);
      break;
#endif
    case ForwardWay::kPlanes:
      if constexpr (kRoutes && !kIsBits<S> && !kByFmax<S>) kernel.run = SelectPlanes<S>(p, take);
      break;
    case ForwardWay::kExact:
      if constexpr (!kIsBits<S>) {
        take.Take<Code<S>>(kRoutes ? std::max(rows.inner, p.width().out) : 0);
        kernel.run = RunExact<S, kRoutes>;
      }
      break;
    default: break;
  }
  kernel.scratch_bytes = take.used();
  return kernel;
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class S>
Kernel MakeForward([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET == HWY_SCALAR
  return {};
#else
  return routes ? MakeForward<S, true>(way, p) : MakeForward<S, false>(way, p);
#endif
}

// The same over the bits of floats, none of which is negative: S is uint32_t or uint16_t.
template <class S>
Kernel MakeForwardBits([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kPoolsBits<true>) {
    if (routes) return MakeForward<S, true>(way, p);
  }
  if constexpr (kPoolsBits<false>) {
    if (!routes) return MakeForward<S, false>(way, p);
  }
#endif
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
