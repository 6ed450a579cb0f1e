// The inner loops of max pooling: the best of several rows of values, lane by lane, with the tap it came from.
//
// A job names n sources in order of preference (ties keep the earlier source, so ties=last lists them backwards) and a number
// of runs: `run` consecutive elements, `in_pitch` apart in every source and `out_pitch` in the result. A run is the channels of
// one output pixel, or a whole row.

// Per-target include guard
#if defined(POOLGRAD_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_REDUCE_INL_H_
#undef POOLGRAD_CPU_REDUCE_INL_H_
#else
#define POOLGRAD_CPU_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Codes of outputs in scratch, on their way to route lines: bytes where every code fits one, else lanes as wide as the values.
template <class S>
struct OutCodes {
  Code<S>* lanes = nullptr;
  bool bytes = false;

  OutCodes operator+(int64_t outputs) const {
    if (lanes == nullptr) return *this;
    return bytes ? OutCodes{reinterpret_cast<Code<S>*>(reinterpret_cast<uint8_t*>(lanes) + outputs), true}
                 : OutCodes{lanes + outputs, false};
  }

  // One vector of codes, for outputs from `at` on.
  HWY_INLINE void Store(CodeVec<S> codes, int64_t at) const {
    const hn::ScalableTag<Code<S>> du;
    if constexpr (sizeof(S) > 1) {
      if (bytes) {
        const hn::Rebind<uint8_t, decltype(du)> d8;
        hn::StoreU(hn::TruncateTo(d8, codes), d8, reinterpret_cast<uint8_t*>(lanes) + at);
        return;
      }
    }
    hn::StoreU(codes, du, lanes + at);
  }
};

// Several vectors of codes as one of bytes, in order.
template <class U>
HWY_INLINE hn::Vec<hn::ScalableTag<uint8_t>> BytesOf(const hn::Vec<hn::ScalableTag<U>>* codes) {
  const hn::ScalableTag<uint8_t> d8;
  if constexpr (sizeof(U) == 1) {
    return codes[0];
  } else {
    using Narrower = std::conditional_t<sizeof(U) == 2, uint8_t, std::conditional_t<sizeof(U) == 4, uint16_t, uint32_t>>;
    const hn::ScalableTag<Narrower> d;
    hn::Vec<decltype(d)> narrowed[sizeof(Narrower)];
    _Pragma("GCC unroll 16") for (size_t i = 0; i < sizeof(Narrower); ++i) {
      narrowed[i] = hn::ConcatEven(d, hn::BitCast(d, codes[2 * i + 1]), hn::BitCast(d, codes[2 * i]));
    }
    (void)d8;
    return BytesOf<Narrower>(narrowed);
  }
}

// Computes at(j) for every whole vector of [j, full), hands it to put(best, j), and stores the codes.
template <class S, bool kRoutes, class At, class Put>
HWY_INLINE void ForWholeVectors(int64_t j, int64_t full, OutCodes<S> codes, const At& at, const Put& put) {
  const int64_t lanes = LaneCount<S>();
  if constexpr (kRoutes && sizeof(S) > 1) {
    constexpr int64_t kBlock = sizeof(S);
    if (codes.bytes) {
      for (; j + kBlock * lanes <= full; j += kBlock * lanes) {
        CodeVec<S> of[kBlock];
        for (int64_t k = 0; k < kBlock; ++k) {
          const auto best = at(j + k * lanes);
          put(best, j + k * lanes);
          of[k] = best.code;
        }
        hn::StoreU(BytesOf<Code<S>>(of), hn::ScalableTag<uint8_t>(), reinterpret_cast<uint8_t*>(codes.lanes) + j);
      }
    }
  }
  for (; j < full; j += lanes) {
    const auto best = at(j);
    put(best, j);
    if constexpr (kRoutes) codes.Store(best.code, j);
  }
}

// Many sources: four vectors at a time, because the comparisons of one are a chain, each waiting for the one before.
// key(t, j) and code(t, j) are those of source t. Returns how many elements are done; the rest is left to ForWholeVectors.
template <class S, bool kRoutes, class Put, class KeyOf, class CodeOf>
HWY_INLINE int64_t ForBlocks(int64_t full, int64_t n, OutCodes<S> codes, const Put& put, const KeyOf& key, const CodeOf& code) {
  const int64_t lanes = LaneCount<S>();
  constexpr int kBlock = 4;
  int64_t j = 0;
  for (; j + kBlock * lanes <= full; j += kBlock * lanes) {
    Best<S, kRoutes> best[kBlock];
    for (int b = 0; b < kBlock; ++b) {
      best[b].key = key(0, j + b * lanes);
      if constexpr (kRoutes) best[b].code = code(0, j + b * lanes);
    }
    for (int64_t t = 1; t < n; ++t) {
      for (int b = 0; b < kBlock; ++b) {
        best[b].Meet(key(t, j + b * lanes), [&]() POOLGRAD_LAMBDA { return code(t, j + b * lanes); });
      }
    }
    for (int b = 0; b < kBlock; ++b) {
      put(best[b], j + b * lanes);
      if constexpr (kRoutes) codes.Store(best[b].code, j + b * lanes);
    }
  }
  return j;
}

// Taps of x, reduced to a row of keys in scratch, which has room for a vector beyond its end.
template <class S>
struct TapJob {
  const S* const* taps;
  const Code<S>* codes;
  int64_t n;
  int64_t runs, run, in_pitch, out_pitch;
  const S* in_end;  // nothing is read from here on
  S* out;
  OutCodes<S> out_codes;
  S* out_end;  // nothing is written from here on
};

// The codes of n sources: in registers where their number is known.
template <class S, int kN>
struct SourceCodes {
  CodeVec<S> of[kN > 0 ? kN : 1];
  const Code<S>* list;

  HWY_INLINE explicit SourceCodes(const Code<S>* codes) : list(codes) {
    for (int t = 0; t < kN; ++t) of[t] = hn::Set(hn::ScalableTag<Code<S>>(), list ? list[t] : Code<S>{0});
  }
  HWY_INLINE CodeVec<S> operator[](int64_t t) const {
    if constexpr (kN > 0) {
      return of[t];
    } else {
      return hn::Set(hn::ScalableTag<Code<S>>(), list[t]);
    }
  }
};

template <class S, bool kRoutes, int kN>
HWY_INLINE Best<S, kRoutes> ReduceAt(const S* const* taps, const SourceCodes<S, kN>& codes, int64_t n, int64_t at,
                                     Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const auto load = [&](const S* tap) POOLGRAD_LAMBDA { return Key<S>(hn::LoadU(d, tap + at)); };
  Best<S, kRoutes> best;
  best.key = load(taps[0]);
  if constexpr (kRoutes) best.code = codes[0];
  watch.template See<0>(best.key);
  const auto meet = [&](auto chain, int64_t t) POOLGRAD_LAMBDA {
    const auto v = load(taps[t]);
    watch.template See<decltype(chain)::value>(v);
    best.Meet(v, [&]() POOLGRAD_LAMBDA { return codes[t]; });
  };
  if constexpr (kN > 1) {
    [&]<int... kTaps>(std::integer_sequence<int, kTaps...>) POOLGRAD_LAMBDA {
      (meet(std::integral_constant<int, (kTaps + 1) % 4>(), kTaps + 1), ...);
    }(std::make_integer_sequence<int, kN - 1>());
  }
  if constexpr (kN == 0) {
    int64_t t = 1;
    for (; t + 2 <= n; t += 2) {
      meet(std::integral_constant<int, 1>(), t);
      meet(std::integral_constant<int, 2>(), t + 1);
    }
    if (t < n) meet(std::integral_constant<int, 1>(), t);
  }
  return best;
}

template <class S, bool kRoutes, int kN>
HWY_NOINLINE void ReduceTapsN(const TapJob<S>& job, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  const S* taps[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) taps[t] = job.taps[t];
  SourceCodes<S, kN> codes(kRoutes ? job.codes : nullptr);
  const S* const* tap_list = kN > 0 ? taps : job.taps;
  const S* farthest = *std::max_element(job.taps, job.taps + job.n);
  S* out = job.out;
  OutCodes<S> out_codes = job.out_codes;
  const int64_t full = job.run / lanes * lanes;
  for (int64_t r = 0; r < job.runs; ++r, out += job.out_pitch, out_codes = out_codes + job.out_pitch) {
    const int64_t base = r * job.in_pitch;
    const auto put = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA {
      hn::StoreU(best.key, d, out + j);
    };
    const auto store = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA {
      put(best, j);
      if constexpr (kRoutes) out_codes.Store(best.code, j);
    };
    const auto at = [&](int64_t j) POOLGRAD_LAMBDA {
      return ReduceAt<S, kRoutes, kN>(tap_list, codes, job.n, base + j, watch);
    };
    const int64_t done = kN > 0 ? 0 : ForBlocks<S, kRoutes>(full, job.n, out_codes, put, [&](int64_t t, int64_t j) POOLGRAD_LAMBDA {
      const auto key = Key<S>(hn::LoadU(d, job.taps[t] + base + j));
      watch.See(key);
      return key;
    }, [&](int64_t t, int64_t) POOLGRAD_LAMBDA { return codes[t]; });
    ForWholeVectors<S, kRoutes>(done, full, out_codes, at, put);
    if (full == job.run) continue;
    // The last vector: beyond the run where that is our own memory, over the one before it, or in a small copy.
    if (farthest + base + full + lanes <= job.in_end && out + full + lanes <= job.out_end) {
      store(at(full), full);
    } else if (full > 0) {
      store(at(job.run - lanes), job.run - lanes);
    } else {
      constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<S>());
      HWY_ALIGN S copy[kMax] = {};
      HWY_ALIGN S result[kMax];
      const auto bytes = static_cast<size_t>(job.run) * sizeof(S);
      const auto one = [&](int64_t t) POOLGRAD_LAMBDA {
        std::memcpy(copy, job.taps[t] + base, bytes);
        const S* source[] = {copy};
        SourceCodes<S, 1> code(kRoutes ? job.codes + t : nullptr);
        return ReduceAt<S, kRoutes, 1>(source, code, 1, 0, watch);
      };
      Best<S, kRoutes> best = one(0);
      for (int64_t t = 1; t < job.n; ++t) {
        const Best<S, kRoutes> next = one(t);
        best.Meet(next.key, [&]() POOLGRAD_LAMBDA { return next.code; });
      }
      hn::Store(best.key, d, result);
      std::memcpy(out, result, bytes);
      if constexpr (kRoutes) out_codes.Store(best.code, 0);  // scratch has room for the whole vector
    }
  }
  shared_watch = watch;
}

template <class S, bool kRoutes>
void ReduceTaps(const TapJob<S>& job, Watch<S>& watch) {
  switch (job.n) {
    case 3: return ReduceTapsN<S, kRoutes, 3>(job, watch);
    case 5: return ReduceTapsN<S, kRoutes, 5>(job, watch);
    default: return ReduceTapsN<S, kRoutes, 0>(job, watch);
  }
}

// A reduced row in scratch: keys and, where routes are kept, codes.
template <class S>
struct Row {
  S* keys;
  Code<S>* codes;

  Row operator+(int64_t elements) const { return {keys + elements, codes ? codes + elements : nullptr}; }
};

// The best of n rows, in order of preference, to y; codes go to scratch.
template <class S>
struct MeetJob {
  const Row<S>* rows;
  int64_t n;
  int64_t length;
  S* out;
  OutCodes<S> out_codes;
  S* out_end;                // nothing is written from here on
  const Code<S>* row_codes;  // added to the codes of each row
};

template <class S, bool kRoutes, int kN>
HWY_NOINLINE void MeetRowsN(const MeetJob<S>& job, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  Row<S> rows[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) rows[t] = job.rows[t];
  const Row<S>* list = kN > 0 ? rows : job.rows;
  const SourceCodes<S, kN> row_codes(kRoutes ? job.row_codes : nullptr);
  S* out = job.out;
  const int64_t full = job.length / lanes * lanes;
  const auto key_at = [&](int64_t t, int64_t j) POOLGRAD_LAMBDA { return hn::LoadU(d, list[t].keys + j); };
  const auto code_at = [&](int64_t t, int64_t j) POOLGRAD_LAMBDA {
    return hn::Add(hn::LoadU(du, list[t].codes + j), row_codes[t]);
  };
  const auto at = [&](int64_t j) POOLGRAD_LAMBDA {
    Best<S, kRoutes> best;
    best.key = key_at(0, j);
    if constexpr (kRoutes) best.code = code_at(0, j);
    const int64_t count = kN > 0 ? kN : job.n;
    for (int64_t t = 1; t < count; ++t) best.Meet(key_at(t, j), [&]() POOLGRAD_LAMBDA { return code_at(t, j); });
    return best;
  };
  const auto put = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA {
    watch.SeeWinner(best.key);
    hn::StoreU(Key<S>(best.key), d, out + j);
  };
  const int64_t done = kN > 0 ? 0 : ForBlocks<S, kRoutes>(full, job.n, job.out_codes, put, key_at, code_at);
  ForWholeVectors<S, kRoutes>(done, full, job.out_codes, at, put);
  if (full < job.length) {
    const Best<S, kRoutes> tail = at(full);
    watch.SeeWinner(tail.key, job.length - full);
    if (out + full + lanes <= job.out_end) {
      hn::StoreU(Key<S>(tail.key), d, out + full);
    } else {
      HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
      hn::Store(Key<S>(tail.key), d, values);
      std::memcpy(out + full, values, static_cast<size_t>(job.length - full) * sizeof(S));
    }
    if constexpr (kRoutes) job.out_codes.Store(tail.code, full);  // scratch has room for the whole vector
  }
  shared_watch = watch;
}

template <class S, bool kRoutes>
void MeetRows(const MeetJob<S>& job, Watch<S>& watch) {
  switch (job.n) {
    case 3: return MeetRowsN<S, kRoutes, 3>(job, watch);
    case 5: return MeetRowsN<S, kRoutes, 5>(job, watch);
    default: return MeetRowsN<S, kRoutes, 0>(job, watch);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
