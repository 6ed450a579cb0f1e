// The inner loops of fwd_values: the greatest of several rows of keys, lane by lane.
// Which tap won does not matter here, so rows may meet in any order, and neighbouring rows of outputs share what they
// have in common.
//
// Out of order, zeros of different sign may meet the wrong way round: Watch::SeeUnordered notices winners that are
// zero.

// Per-target include guard
#if defined(POOLGRAD_CPU_MAXIMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_MAXIMA_INL_H_
#undef POOLGRAD_CPU_MAXIMA_INL_H_
#else
#define POOLGRAD_CPU_MAXIMA_INL_H_
#endif

#include <cstdint>

#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// The greater of each pair of neighbours: those of `low` in the lower half.
template <class S>
HWY_INLINE VecOf<S> PairMax(VecOf<S> low, VecOf<S> high) {
#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
  if constexpr (kByFmax<S>) return HalfFmaxPairs(low, high);
  if constexpr (std::is_same_v<S, float>) return VecOf<S>(vpmaxq_f32(low.raw, high.raw));
  if constexpr (std::is_same_v<S, double>) return VecOf<S>(vpmaxq_f64(low.raw, high.raw));
  if constexpr (std::is_same_v<S, int32_t>) return VecOf<S>(vpmaxq_s32(low.raw, high.raw));
  if constexpr (std::is_same_v<S, int16_t> && !kByFmax<S>) return VecOf<S>(vpmaxq_s16(low.raw, high.raw));
  if constexpr (std::is_same_v<S, uint32_t>) return VecOf<S>(vpmaxq_u32(low.raw, high.raw));
  if constexpr (std::is_same_v<S, uint16_t>) return VecOf<S>(vpmaxq_u16(low.raw, high.raw));
  if constexpr (std::is_same_v<S, int8_t>) return VecOf<S>(vpmaxq_s8(low.raw, high.raw));
#else
  const hn::ScalableTag<S> d;
  return Greatest<S>(hn::ConcatOdd(d, high, low), hn::ConcatEven(d, high, low));
#endif
}

enum class MaxFlow { kRawToKeys, kKeysToKeys, kKeysToY };

// `runs` rows of `run` results each: element j of row r is the greatest of from[t][r * in_pitch + j], t < n. Sources
// may be read only inside their rows where they are raw; else up to a vector beyond.
template <class S>
struct MaxJob {
  const S* const* from;
  int64_t n;
  int64_t runs, run, in_pitch;
  S* to;
  int64_t out_pitch;
  // Result row r + gap would list the same sources but the first, and one more at the end, from[n]: both are made at
  // once. 0: every row by itself.
  int64_t gap = 0;
  int64_t planes = 1, in_plane = 0, out_plane = 0;  // all this for several planes, so far apart
  Lookahead* lookahead = nullptr;                   // kRawToKeys
};

// What becomes of a vector, or of the first n lanes of one.
template <class S, MaxFlow kFlow, int kChain>
HWY_INLINE void PutMax(VecOf<S> key, S* to, Watch<S>& watch) {
  if constexpr (kFlow == MaxFlow::kKeysToY) watch.template SeeUnordered<kChain>(key);
  hn::StoreU(kFlow == MaxFlow::kKeysToY ? watch.ToY(key) : key, hn::ScalableTag<S>(), to);
}

// `room`: elements that may be written, since what follows the first n is still to come.
template <class S, MaxFlow kFlow>
HWY_INLINE void PutFirst(VecOf<S> key, S* to, int64_t n, int64_t room, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  if constexpr (kFlow == MaxFlow::kKeysToY) {
    watch.SeeUnordered(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), key, hn::Set(d, S{1})));
    key = watch.ToY(key);
  }
  if (room >= LaneCount<S>()) return hn::StoreU(key, d, to);
  StoreFirst(d, key, to, n);
}

// Calls vector(j) for j = 0, lanes, ... and, where lanes do not divide the row, once more for the last whole vector of
// it.
template <class S, class Vector>
HWY_INLINE void ForRow(int64_t run, const Vector& vector) {
  const int64_t lanes = LaneCount<S>();
  int64_t j = 0;
  for (; j + lanes <= run; j += lanes) vector(j);
  if (j < run) vector(run - lanes);
}

// Rows shorter than a vector. Scratch can be read beyond them.
template <class S, MaxFlow kFlow>
HWY_NOINLINE void MaxShortRows(const MaxJob<S>& job, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const int64_t run = job.run;
  if (run >= LaneCount<S>()) __builtin_unreachable();  // or every load would ask
  const auto load = [&](const S* from) POOLGRAD_LAMBDA {
    if constexpr (kFlow != MaxFlow::kRawToKeys) return hn::LoadU(d, from);
    const auto key = watch.KeyOf(LoadFirst(d, from, run));
    watch.See(key);
    return key;
  };
  for (int64_t p = 0; p < job.planes; ++p) {
    for (int64_t r = 0; r < job.runs; ++r) {
      const int64_t base = p * job.in_plane + r * job.in_pitch;
      auto v = load(job.from[0] + base);
      for (int64_t t = 1; t < job.n; ++t) v = Greatest<S>(load(job.from[t] + base), v);
      const bool follows = kFlow == MaxFlow::kKeysToY && job.out_pitch == job.run;
      const int64_t room = follows ? (job.runs - r) * job.run : 0;
      PutFirst<S, kFlow>(v, job.to + p * job.out_plane + r * job.out_pitch, run, room, watch);
    }
  }
}

// Functions and not lambdas inside lambdas: with those GCC would keep the watch in memory.
template <class S, MaxFlow kFlow, int kChain>
HWY_INLINE VecOf<S> LoadKey(const S* from, Watch<S>& watch) {
  const auto raw = hn::LoadU(hn::ScalableTag<S>(), from);
  if constexpr (kFlow != MaxFlow::kRawToKeys) return raw;
  const auto key = watch.KeyOf(raw);
  watch.template See<kChain>(key);
  return key;
}

template <class S, MaxFlow kFlow, int kChain>
HWY_INLINE VecOf<S> GreatestAt(const S* const* from, int64_t first, int64_t end, int64_t at, Watch<S>& watch) {
  auto v = LoadKey<S, kFlow, kChain>(from[first] + at, watch);
  for (int64_t t = first + 1; t < end; ++t) v = Greatest<S>(LoadKey<S, kFlow, kChain>(from[t] + at, watch), v);
  return v;
}

template <class S, MaxFlow kFlow, int kN>
HWY_NOINLINE void MaxRowsN(const MaxJob<S>& job, Watch<S>& shared_watch) {
  Watch<S> watch = shared_watch;
  const int64_t n = kN > 0 ? kN : job.n;
  const int64_t run = job.run;
  const int64_t runs = job.runs, gap = job.gap, in_pitch = job.in_pitch, out_pitch = job.out_pitch;
  const S* known[kN > 0 ? kN + 1 : 1] = {};
  for (int t = 0; t < kN; ++t) known[t] = job.from[t];
  if (kN > 0 && gap > 0) known[kN] = job.from[kN];
  const S* const* from = kN > 0 ? known : job.from;
  const auto look = [&](int64_t at) POOLGRAD_LAMBDA {
    if constexpr (kFlow == MaxFlow::kRawToKeys) job.lookahead->At(from[n - 1] + at);
  };
  for (int64_t p = 0; p < job.planes; ++p) {
    int64_t base = p * job.in_plane;
    S* to = job.to + p * job.out_plane;
    int64_t r = 0;
    // Two rows at a time: what they share is made once, and the watch has two chains to wait for.
    for (; gap > 0 && r + 2 * gap <= runs; r += 2 * gap, base += gap * in_pitch, to += gap * out_pitch) {
      for (int64_t i = 0; i < gap; ++i, base += in_pitch, to += out_pitch) {
        S* lower = to + gap * out_pitch;
        look(base + run + gap * in_pitch);
        ForRow<S>(run, [&](int64_t j) POOLGRAD_LAMBDA {
          const auto both = GreatestAt<S, kFlow, 0>(from, 1, n, base + j, watch);
          const auto first = LoadKey<S, kFlow, 1>(from[0] + base + j, watch);
          const auto last = LoadKey<S, kFlow, 2>(from[n] + base + j, watch);
          PutMax<S, kFlow, 0>(Greatest<S>(first, both), to + j, watch);
          PutMax<S, kFlow, 1>(Greatest<S>(last, both), lower + j, watch);
        });
      }
    }
    for (; kFlow == MaxFlow::kKeysToY && r + 2 <= runs; r += 2, base += 2 * in_pitch, to += 2 * out_pitch) {
      ForRow<S>(run, [&](int64_t j) POOLGRAD_LAMBDA {
        PutMax<S, kFlow, 0>(GreatestAt<S, kFlow, 0>(from, 0, n, base + j, watch), to + j, watch);
        PutMax<S, kFlow, 1>(GreatestAt<S, kFlow, 1>(from, 0, n, base + in_pitch + j, watch), to + out_pitch + j, watch);
      });
    }
    for (; r < runs; ++r, base += in_pitch, to += out_pitch) {
      look(base + run);
      ForRow<S>(run, [&](int64_t j) POOLGRAD_LAMBDA {
        PutMax<S, kFlow, 0>(GreatestAt<S, kFlow, 0>(from, 0, n, base + j, watch), to + j, watch);
      });
    }
  }
  shared_watch = watch;
}

template <class S, MaxFlow kFlow>
void MaxRows(const MaxJob<S>& job, Watch<S>& watch) {
  if (job.run < LaneCount<S>()) return MaxShortRows<S, kFlow>(job, watch);
  if (job.n == 3) return MaxRowsN<S, kFlow, 3>(job, watch);
  if constexpr (kManyForms<S>) {
    if (job.n == 2) return MaxRowsN<S, kFlow, 2>(job, watch);
    if (job.n == 5) return MaxRowsN<S, kFlow, 5>(job, watch);
  }
  return MaxRowsN<S, kFlow, 0>(job, watch);
}

// Windows of n neighbouring keys, two apart: element j of row r is the greatest of from[r * in_pitch + 2 * j + t], t <
// n.
template <class S>
HWY_INLINE VecOf<S> PairsAt(const S* from, int64_t n) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  auto v = n % 2 == 1 ? hn::ConcatEven(d, hn::LoadU(d, from + n - 1 + lanes), hn::LoadU(d, from + n - 1))
                      : PairMax<S>(hn::LoadU(d, from + n - 2), hn::LoadU(d, from + n - 2 + lanes));
  for (int64_t t = 0; t + 2 < n; t += 2)
    v = Greatest<S>(PairMax<S>(hn::LoadU(d, from + t), hn::LoadU(d, from + t + lanes)), v);
  return v;
}

template <class S, int kN>
HWY_NOINLINE void MaxOfPairsN(const S* from, int64_t taps, int64_t runs, int64_t run, int64_t in_pitch, S* y,
                              int64_t y_pitch, Watch<S>& shared_watch) {
  const int64_t n = kN > 0 ? kN : taps;
  Watch<S> watch = shared_watch;
  int64_t r = 0;
  for (; r + 2 <= runs; r += 2, from += 2 * in_pitch, y += 2 * y_pitch) {
    ForRow<S>(run, [&](int64_t j) POOLGRAD_LAMBDA {
      PutMax<S, MaxFlow::kKeysToY, 0>(PairsAt<S>(from + 2 * j, n), y + j, watch);
      PutMax<S, MaxFlow::kKeysToY, 1>(PairsAt<S>(from + in_pitch + 2 * j, n), y + y_pitch + j, watch);
    });
  }
  if (r < runs) {
    ForRow<S>(run, [&](int64_t j)
                       POOLGRAD_LAMBDA { PutMax<S, MaxFlow::kKeysToY, 0>(PairsAt<S>(from + 2 * j, n), y + j, watch); });
  }
  shared_watch = watch;
}

template <class S>
void MaxOfPairs(const S* from, int64_t taps, int64_t runs, int64_t run, int64_t in_pitch, S* y, int64_t y_pitch,
                Watch<S>& watch) {
  if (run < LaneCount<S>()) {
    for (int64_t r = 0; r < runs; ++r) {
      const auto best = PairsAt<S>(from + r * in_pitch, taps);
      PutFirst<S, MaxFlow::kKeysToY>(best, y + r * y_pitch, run, y_pitch == run ? (runs - r) * run : 0, watch);
    }
    return;
  }
  if (taps == 3) return MaxOfPairsN<S, 3>(from, taps, runs, run, in_pitch, y, y_pitch, watch);
  return MaxOfPairsN<S, 0>(from, taps, runs, run, in_pitch, y, y_pitch, watch);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
