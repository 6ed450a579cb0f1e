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

#include "cpu/order-inl.h"
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
    for (size_t i = 0; i < sizeof(Narrower); ++i) {
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

// Where spans of rows double, codes count rows from an origin: a row's number among those that windows at its phase can see, times
// the taps of a row. Codes wrap around in their lanes: only the difference to the window's own start has to fit. Walks along
// rows that are `step` apart without dividing.
template <class C>
class RowCode {
 public:
  RowCode(int64_t row, int64_t step, int64_t dilation, int64_t taps)
      : number_(FloorDiv(row, dilation)), phase_(row - number_ * dilation), step_(step), dilation_(dilation), taps_(taps) {}
  C value() const { return static_cast<C>(number_ * taps_); }
  void Advance() {
    phase_ += step_;
    if (dilation_ == 1) {
      number_ += phase_;
      phase_ = 0;
      return;
    }
    for (; phase_ >= dilation_; phase_ -= dilation_) ++number_;
  }

 private:
  int64_t number_, phase_, step_, dilation_, taps_;
};

// Where the sources are and what the result is. Rows are scratch: keys, with room for a vector beyond their end.
enum class Flow { kRawToRow, kKeysToRow, kRawToY };

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

template <class S, bool kRoutes, Flow kFlow, int kN>
HWY_INLINE Best<S, kRoutes> ReduceAt(const S* const* taps, const SourceCodes<S, kN>& codes, int64_t n, int64_t at,
                                     Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  constexpr bool kRaw = kFlow != Flow::kKeysToRow;
  const auto load = [&](const S* tap) POOLGRAD_LAMBDA {
    const auto v = hn::LoadU(d, tap + at);
    return kRaw ? Key<S>(v) : v;
  };
  Best<S, kRoutes> best;
  best.key = load(taps[0]);
  if constexpr (kRoutes) best.code = codes[0];
  if constexpr (kRaw) watch.template See<0>(best.key);
  const auto meet = [&](auto chain, int64_t t) POOLGRAD_LAMBDA {
    const auto v = load(taps[t]);
    if constexpr (kRaw) watch.template See<decltype(chain)::value>(v);
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

template <class S, bool kRoutes, Flow kFlow, int kN>
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
      if constexpr (kFlow == Flow::kRawToY) watch.SeeWinner(best.key);
      hn::StoreU(kFlow == Flow::kRawToY ? Key<S>(best.key) : best.key, d, out + j);
    };
    const auto store = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA {
      put(best, j);
      if constexpr (kRoutes) out_codes.Store(best.code, j);
    };
    const auto at = [&](int64_t j) POOLGRAD_LAMBDA {
      return ReduceAt<S, kRoutes, kFlow, kN>(tap_list, codes, job.n, base + j, watch);
    };
    const int64_t done = kN > 0 ? 0 : ForBlocks<S, kRoutes>(full, job.n, out_codes, put, [&](int64_t t, int64_t j) POOLGRAD_LAMBDA {
      const auto v = hn::LoadU(d, job.taps[t] + base + j);
      const auto key = kFlow != Flow::kKeysToRow ? Key<S>(v) : v;
      if constexpr (kFlow != Flow::kKeysToRow) watch.See(key);
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
        return ReduceAt<S, kRoutes, kFlow, 1>(source, code, 1, 0, watch);
      };
      Best<S, kRoutes> best = one(0);
      for (int64_t t = 1; t < job.n; ++t) {
        const Best<S, kRoutes> next = one(t);
        best.Meet(next.key, [&]() POOLGRAD_LAMBDA { return next.code; });
      }
      if constexpr (kFlow == Flow::kRawToY) watch.SeeWinner(best.key, job.run);
      hn::Store(kFlow == Flow::kRawToY ? Key<S>(best.key) : best.key, d, result);
      std::memcpy(out, result, bytes);
      if constexpr (kRoutes) out_codes.Store(best.code, 0);  // scratch has room for the whole vector
    }
  }
  shared_watch = watch;
}

template <class S, bool kRoutes, Flow kFlow>
void ReduceTaps(const TapJob<S>& job, Watch<S>& watch) {
  switch (job.n) {
    case 2: return ReduceTapsN<S, kRoutes, kFlow, 2>(job, watch);
    case 3: return ReduceTapsN<S, kRoutes, kFlow, 3>(job, watch);
    case 4: return ReduceTapsN<S, kRoutes, kFlow, 4>(job, watch);
    case 8: return ReduceTapsN<S, kRoutes, kFlow, kFlow == Flow::kRawToY ? 8 : 0>(job, watch);
    case 9: return ReduceTapsN<S, kRoutes, kFlow, kFlow == Flow::kRawToY ? 9 : 0>(job, watch);
    default: return ReduceTapsN<S, kRoutes, kFlow, 0>(job, watch);
  }
}

// A reduced row in scratch: keys and, where routes are kept, codes.
template <class S>
struct Row {
  S* keys;
  Code<S>* codes;

  Row operator+(int64_t elements) const { return {keys + elements, codes ? codes + elements : nullptr}; }
};

// What becomes of the best of several rows: another row; y from rows that know only their width taps; y from spans of rows
// whose codes count from some origin. Codes go to scratch.
enum class Meeting { kToRow, kToY, kSpansToY };

// The best of n rows, in order of preference, in runs as above.
template <class S>
struct MeetJob {
  const Row<S>* rows;
  int64_t n;
  int64_t runs, run, in_pitch, out_pitch, code_pitch;
  S* out;
  OutCodes<S> out_codes;
  S* out_end;                            // of y: nothing is written from here on
  Watch<S>* watch = nullptr;             // to y: sees the winners
  const Code<S>* row_codes = nullptr;    // kToY: added to the codes of each row
  RowCode<Code<S>>* base = nullptr;      // kSpansToY: subtracted from the codes, and advanced from run to run
  const Code<S>* starts = nullptr;       // kSpansToY: starts[j] is subtracted too; may be null
};

// A row may be its own result: elements are read before those at lower or equal places are written.
template <class S, bool kRoutes, Meeting kWhat, int kN>
HWY_NOINLINE void MeetRowsN(const MeetJob<S>& job) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  const int64_t lanes = LaneCount<S>();
  constexpr bool kToY = kWhat != Meeting::kToRow;
  Watch<S> watch = kToY ? *job.watch : Watch<S>(POOLGRAD_F32);
  Row<S> rows[kN > 0 ? kN : 1];
  for (int t = 0; t < kN; ++t) rows[t] = job.rows[t];
  const Row<S>* list = kN > 0 ? rows : job.rows;
  const SourceCodes<S, kN> row_codes(kRoutes && kWhat == Meeting::kToY ? job.row_codes : nullptr);
  S* out = job.out;
  OutCodes<S> out_codes = job.out_codes;
  const int64_t full = job.run / lanes * lanes;
  for (int64_t r = 0; r < job.runs; ++r, out += job.out_pitch, out_codes = out_codes + job.code_pitch) {
    const int64_t from = r * job.in_pitch;
    auto base = hn::Zero(du);
    if constexpr (kRoutes && kWhat == Meeting::kSpansToY) {
      base = hn::Set(du, job.base->value());
      job.base->Advance();
    }
    const auto code_at = [&](int64_t t, int64_t j) POOLGRAD_LAMBDA {
      const auto code = hn::LoadU(du, list[t].codes + from + j);
      return kWhat == Meeting::kToY ? hn::Add(code, row_codes[t]) : code;
    };
    const auto at = [&](int64_t j) POOLGRAD_LAMBDA {
      Best<S, kRoutes> best;
      best.key = hn::LoadU(d, list[0].keys + from + j);
      if constexpr (kRoutes) best.code = code_at(0, j);
      const int64_t count = kN > 0 ? kN : job.n;
      for (int64_t t = 1; t < count; ++t) {
        best.Meet(hn::LoadU(d, list[t].keys + from + j), [&]() POOLGRAD_LAMBDA { return code_at(t, j); });
      }
      if constexpr (kRoutes && kWhat == Meeting::kSpansToY) {
        best.code = hn::Sub(best.code, base);
        if (job.starts) best.code = hn::Sub(best.code, hn::LoadU(du, job.starts + j));
      }
      return best;
    };
    const auto put = [&](const Best<S, kRoutes>& best, int64_t j) POOLGRAD_LAMBDA {
      if constexpr (kToY) watch.SeeWinner(best.key);
      hn::StoreU(kToY ? Key<S>(best.key) : best.key, d, out + j);
    };
    int64_t done = 0;
    if constexpr (kN == 0 && kWhat == Meeting::kToY) {
      done = ForBlocks<S, kRoutes>(full, job.n, out_codes, put, [&](int64_t t, int64_t j) POOLGRAD_LAMBDA {
        return hn::LoadU(d, list[t].keys + from + j);
      }, code_at);
    }
    ForWholeVectors<S, kRoutes>(done, full, out_codes, at, put);
    if (full == job.run) continue;
    const Best<S, kRoutes> tail = at(full);
    if constexpr (kToY) watch.SeeWinner(tail.key, job.run - full);
    if (!kToY || out + full + lanes <= job.out_end) {
      hn::StoreU(kToY ? Key<S>(tail.key) : tail.key, d, out + full);
    } else {
      HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
      hn::Store(Key<S>(tail.key), d, values);
      std::memcpy(out + full, values, static_cast<size_t>(job.run - full) * sizeof(S));
    }
    if constexpr (kRoutes) out_codes.Store(tail.code, full);  // scratch has room for the whole vector
  }
  if constexpr (kToY) *job.watch = watch;
}

template <class S, bool kRoutes, Meeting kWhat>
void MeetRows(const MeetJob<S>& job) {
  if constexpr (kWhat == Meeting::kToRow) {
    MeetRowsN<S, kRoutes, kWhat, 2>(job);  // spans double two by two
  } else {
    switch (job.n) {
      case 2: return MeetRowsN<S, kRoutes, kWhat, 2>(job);
      case 3: return MeetRowsN<S, kRoutes, kWhat, kWhat == Meeting::kToY ? 3 : 0>(job);
      default: return MeetRowsN<S, kRoutes, kWhat, 0>(job);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
