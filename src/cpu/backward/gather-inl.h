// dx by gathering: every input visits the few windows that cover it, in row-major order of outputs. No input is written
// twice and none is shared between units, so there are no atomics, the bits do not depend on threads, and a code that
// names no tap of its window matches nothing. Takes every geometry; see backward_tiles.h for how rows and phases are
// cut.
//
// Three ways to combine visits: add (backward), keep the last (unpool, and backward of disjoint windows, where one
// visit at most matches), and add without looking at routes (average).
#if defined(POOLGRAD_CPU_BACKWARD_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_GATHER_INL_H_
#undef POOLGRAD_CPU_BACKWARD_GATHER_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_GATHER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/tiles.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

enum class Match { kCode, kMask, kAll };

// T: the element type; for picking, the unsigned integer of its size. kMatch: how a visit knows that it is meant.
template <class T, bool kAdd, Match kMatch>
class Gather {
  using Lane = std::conditional_t<kAdd, Wide<T>, T>;
  using Code = typename UnsignedOfSize<sizeof(Lane)>::Type;
  using D = hn::ScalableTag<Lane>;
  using DC = hn::RebindToUnsigned<D>;
  using DS = hn::Rebind<Stored<T, Lane>, D>;
  using V = hn::Vec<D>;
  static constexpr Code kNoCode = kMatch == Match::kMask ? Code{0} : std::numeric_limits<Code>::max();
  using SpreadFn = void (*)(const void* from, int64_t count, void* to);

 public:
  static GatherTiles LayOut(const Problem& p) {
    constexpr int64_t kBits = 8 * sizeof(Code);
    const int64_t words = kMatch == Match::kAll ? 0 : kMatch == Match::kMask ? CeilDiv(p.taps(), kBits) : 1;
    return LayOutGather(p, sizeof(Lane), words);
  }

  Gather(const Problem& problem, const Args& args, SpreadFn spread, std::byte* scratch)
      : p_(problem),
        args_(args),
        spread_(spread),
        t_(LayOut(problem)),
        values_(reinterpret_cast<Lane*>(scratch + t_.values_at) + kRowLead),
        codes_(reinterpret_cast<Code*>(scratch + t_.codes_at) + kRowLead),
        divisors_(reinterpret_cast<Lane*>(scratch + t_.divisors_at)),
        covers_(reinterpret_cast<Cover*>(scratch + t_.covers_at)),
        visits_(reinterpret_cast<Visit*>(scratch + t_.visits_at)),
        starts_(reinterpret_cast<int32_t*>(scratch + t_.starts_at)),
        visit_starts_(starts_ + t_.phases + 1),
        taps_(reinterpret_cast<WidthTap*>(scratch + t_.taps_at)),
        tags_(reinterpret_cast<int64_t*>(scratch + t_.tags_at)) {
    SortTaps(p_.width(), t_.phases, taps_, starts_);
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      plane_ = unit / t_.bands;
      const int64_t first = unit % t_.bands * t_.band;
      const int64_t last = std::min(first + t_.band, t_.rows);
      for (c0_ = 0; c0_ < t_.channels; c0_ += t_.block) {
        block_ = std::min(t_.block, t_.channels - c0_);
        for (q0_ = 0; q0_ < t_.positions; q0_ += t_.tile) {
          q1_ = std::min(q0_ + t_.tile, t_.positions);
          RunRows(first, last);
        }
      }
    }
  }

 private:
  void RunRows(int64_t first, int64_t last) {
    std::fill_n(tags_, t_.slots(), int64_t{-1});
    const Axis& depth = p_.depth();
    const Axis& height = p_.height();
    int64_t d = first / height.in;
    int64_t h = first % height.in;
    Range over_d = depth.covering(d);
    Range over_h = height.covering(h);
    T* row = static_cast<T*>(args_.result) + (plane_ * t_.rows + first) * p_.width().in * t_.channels;
    for (int64_t r = first; r < last; ++r, row += p_.width().in * t_.channels) {
      FindVisits(d, over_d, h, over_h);
      if (t_.interleaved) {
        EmitInterleaved(row);
      } else {
        switch (p_.width().stride) {
          case 1:
            EmitPlanar<1>(row);
            break;
          case 2:
            EmitPlanar<2>(row);
            break;
          case 3:
            EmitPlanar<3>(row);
            break;
          case 4:
            EmitPlanar<4>(row);
            break;
          default:
            EmitStrided(row);
        }
      }
      if (++h == height.in) {
        h = 0;
        if (++d < depth.in) over_d = depth.covering(d);
        over_h = height.covering(0);
      } else {
        Advance(height, h, over_h);
      }
    }
  }

  // covering(i) from covering(i - 1), without dividing.
  static void Advance(const Axis& a, int64_t i, Range& over) {
    while (over.begin < a.out && a.start(over.begin) + a.extent() <= i) ++over.begin;
    while (over.end < a.out && a.start(over.end) <= i) ++over.end;
  }

  // Lists, by phase, what this input row gathers from, in row-major order of outputs; spreads output rows not yet in a
  // slot.
  void FindVisits(int64_t d, Range over_d, int64_t h, Range over_h) {
    int64_t covers = 0;
    for (int64_t od = over_d.begin; od < over_d.end; ++od) {
      const int64_t tap_d = TapAt(p_.depth(), od, d);
      if (tap_d < 0) continue;
      const int64_t slots_before = t_.slots_depth == 1 ? 0 : od % t_.slots_depth * t_.slots_height;
      int64_t turn = t_.slots_height == 1 ? 0 : over_h.begin % t_.slots_height;  // oh modulo the slots
      for (int64_t oh = over_h.begin; oh < over_h.end; ++oh, turn = turn + 1 == t_.slots_height ? 0 : turn + 1) {
        const int64_t tap_h = TapAt(p_.height(), oh, h);
        if (tap_h < 0) continue;
        const int64_t slot = t_.slot_by_place ? slots_before + turn : covers;
        const int64_t tag = od * p_.height().out + oh;
        if (tags_[slot] != tag) {
          tags_[slot] = tag;
          SpreadRow(slot * t_.step, od, oh);
        }
        covers_[covers++] = {slot * t_.step, (tap_d * p_.height().kernel + tap_h) * p_.width().kernel};
      }
    }
    int32_t count = 0;
    for (int64_t phase = 0; phase < t_.phases; ++phase) {
      visit_starts_[phase] = count;
      for (int64_t cover = 0; cover < covers; ++cover) {
        for (int32_t i = starts_[phase]; i < starts_[phase + 1]; ++i) {
          const int64_t at = covers_[cover].at + (t_.shift_hi - taps_[i].shift) * block_;
          const int64_t tap = covers_[cover].first_tap + taps_[i].tap;
          visits_[count++] = VisitOf(at, tap);
        }
      }
    }
    visit_starts_[t_.phases] = count;
  }

  static int64_t TapAt(const Axis& a, int64_t o, int64_t i) {
    return a.dilation == 1 ? i - a.start(o) : a.tap_at(o, i);
  }

  Visit VisitOf(int64_t at, int64_t tap) const {
    if constexpr (kMatch == Match::kMask) {
      constexpr int64_t kBits = 8 * sizeof(Code);
      const int64_t word = tap / kBits * t_.slots() * t_.step;
      return {static_cast<int32_t>(at), static_cast<int32_t>(at + word), uint64_t{1} << (tap % kBits)};
    } else {
      return {static_cast<int32_t>(at), static_cast<int32_t>(at), static_cast<uint64_t>(tap)};
    }
  }

  // ---- An output row into its slot.

  void SpreadRow(int64_t slot, int64_t od, int64_t oh) {
    const int64_t out = p_.width().out;
    const int64_t first = q0_ - t_.shift_hi;  // the output that the slot's first element stands for
    const int64_t past = q1_ - t_.shift_lo;
    const int64_t lo = std::clamp<int64_t>(first, 0, out);
    const int64_t hi = std::clamp<int64_t>(past, lo, out);
    const int64_t row = (plane_ * p_.depth().out + od) * p_.height().out + oh;
    const int64_t begin = std::clamp<int64_t>(lo - first, 0, past - first) * block_;
    const int64_t count = (hi - lo) * block_;
    Lane* values = values_ + slot;
    const T* source = static_cast<const T*>(args_.source) + row * out * t_.channels + c0_;
    if (block_ == t_.channels) {
      PrefetchRun(source + (out + lo) * t_.channels, count * static_cast<int64_t>(sizeof(T)));
      spread_(source + lo * t_.channels, count, values + begin);
    } else {
      for (int64_t ow = lo; ow < hi; ++ow)
        spread_(source + ow * t_.channels, block_, values + begin + (ow - lo) * block_);
    }
    if constexpr (kMatch == Match::kAll) {
      if constexpr (kAdd) {
        std::fill(values, values + begin, Lane{0});
        std::fill(values + begin + count, values + (past - first) * block_, Lane{0});
        FindDivisors(od, oh, lo, hi);
        DivideRow(values + begin, divisors_, count);
      }
    } else {
      SpreadRoutes(row, lo, hi, codes_ + slot + begin);
      for (int64_t w = 0; w < t_.words; ++w) {
        Code* codes = codes_ + slot + w * t_.slots() * t_.step;
        std::fill(codes, codes + begin, kNoCode);
        std::fill(codes + begin + count, codes + (past - first) * block_, kNoCode);
      }
      if constexpr (kMatch == Match::kMask && kAdd) {
        if (p_.ties == POOLGRAD_TIES_SPLIT) DivideRow(values + begin, divisors_, count);
      }
    }
  }

  // Routes of outputs [lo, hi) of an output row (and of this block's channels).
  void SpreadRoutes(int64_t row, int64_t lo, int64_t hi, Code* to) {
    const RouteFormat& f = p_.routes;
    if (f.line == 1) return SpreadSingles(args_.routes + LineOffset(f, row * p_.width().out + lo), hi - lo, to);
    if (!t_.interleaved) {
      const int64_t whole = f.masks ? lo : lo / 8 * 8;  // where a byte begins (the slot's lead takes the rest)
      const uint8_t* line = args_.routes + LineOffset(f, row) + whole * f.bits / 8;
      return SpreadLine(line, hi - whole, to - (lo - whole));
    }
    const uint8_t* line = args_.routes + LineOffset(f, row * p_.width().out + lo) + c0_ * f.bits / 8;
    if (block_ == t_.channels && f.line * f.bits % 8 == 0) return SpreadLine(line, (hi - lo) * block_, to);
    for (int64_t i = 0; i < hi - lo; ++i) SpreadLine(line + i * f.line_bytes, block_, to + i * block_, i * block_);
  }

  // `done`: outputs of the row before these.
  void SpreadLine(const uint8_t* line, int64_t count, Code* to, [[maybe_unused]] int64_t done = 0) {
    if constexpr (kMatch == Match::kMask) {
      const int64_t bytes = p_.routes.mask_bytes();
      SpreadMasks(bytes, line, count, t_.slots() * t_.step, to);
      if constexpr (kAdd) {
        if (p_.ties == POOLGRAD_TIES_SPLIT) CountMasks(bytes, line, count, divisors_ + done);
      }
    } else {
      SpreadCodes(p_.routes.bits, line, count, to);
    }
  }

  // Channels last with one channel: every code is a line of its own and has its own bytes.
  void SpreadSingles(const uint8_t* lines, int64_t count, Code* to) {
    if (p_.routes.masks || p_.routes.bits >= 8) return SpreadLine(lines, count, to);
    SpreadCodes(8, lines, count, to);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Code>(to[i] & p_.routes.none());
  }

  // What the average divides by along one output row; most rows have the same.
  void FindDivisors(int64_t od, int64_t oh, int64_t lo, int64_t hi) {
    const auto taps = [&](const Axis& a, int64_t o) {
      return a.counted_taps(o, p_.count_padding).size();
    };
    const int64_t rows = taps(p_.depth(), od) * taps(p_.height(), oh);
    if (rows == divisor_rows_ && block_ == divisor_block_ && lo == divisor_lo_ && hi == divisor_hi_) return;
    divisor_rows_ = rows;
    divisor_block_ = block_;
    divisor_lo_ = lo;
    divisor_hi_ = hi;
    for (int64_t ow = lo; ow < hi; ++ow) {
      const int64_t count = p_.whole_window_gradient ? p_.taps() : AverageCount(p_, od, oh, ow);
      std::fill_n(divisors_ + (ow - lo) * block_, block_, static_cast<Lane>(count));
    }
  }

  // ---- Gathering.

  // kVectors neighbouring vectors of one phase; `at` counts elements from the tile's first q.
  template <int kVectors>
  struct Sums {
    V v0, v1, v2, v3;
  };

  static HWY_INLINE V Combine(V sum, const Lane* values, const Code* codes, hn::Vec<DC> tap) {
    const D d;
    const DC dc;
    const V value = hn::LoadU(d, values);
    if constexpr (kMatch == Match::kAll) {
      return hn::Add(sum, value);
    } else {
      const auto code = hn::LoadU(dc, codes);
      const auto meant = hn::RebindMask(d, kMatch == Match::kMask ? hn::TestBit(code, tap) : hn::Eq(code, tap));
      if constexpr (kAdd) {
        return hn::Add(sum, hn::IfThenElseZero(meant, value));
      } else {
        return hn::IfThenElse(meant, value, sum);
      }
    }
  }

  template <int kVectors>
  HWY_INLINE Sums<kVectors> GatherAt(int64_t phase, int64_t at) const {
    const D d;
    const DC dc;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const V zero = hn::Zero(d);
    Sums<kVectors> s{zero, zero, zero, zero};
    const Visit* visit = visits_ + visit_starts_[phase];
    const Visit* const end = visits_ + visit_starts_[phase + 1];
    const Lane* const values_at = values_ + at;
    const Code* const codes_at = codes_ + at;
    for (; visit != end; ++visit) {
      const Lane* values = values_at + visit->values;
      const Code* codes = codes_at + visit->codes;
      const auto tap = hn::Set(dc, static_cast<Code>(visit->tap));
      s.v0 = Combine(s.v0, values, codes, tap);
      if constexpr (kVectors > 1) s.v1 = Combine(s.v1, values + n, codes + n, tap);
      if constexpr (kVectors > 2) {
        s.v2 = Combine(s.v2, values + 2 * n, codes + 2 * n, tap);
        s.v3 = Combine(s.v3, values + 3 * n, codes + 3 * n, tap);
      }
    }
    return s;
  }

  static HWY_INLINE Stored<T, Lane>* Out(T* to) { return reinterpret_cast<Stored<T, Lane>*>(to); }
  static HWY_INLINE void Store(V v, T* to) { hn::StoreU(NarrowTo<T>(D(), v), DS(), Out(to)); }

  // The first `count` elements only.
  static HWY_NOINLINE void StorePart(V v, int64_t count, T* to) {
    HWY_ALIGN T whole[hn::MaxLanes(D())];
    Store(v, whole);
    std::memcpy(to, whole, static_cast<size_t>(count) * sizeof(T));
  }

  // Channels innermost: position by position, a vector over channels. A vector that reaches past its position is
  // overwritten there by the next one.
  void EmitInterleaved(T* row) const {
    const int64_t n = static_cast<int64_t>(hn::Lanes(D()));
    const Axis& w = p_.width();
    const int64_t end = std::min(q1_ * w.stride, w.in);
    int64_t q = q0_;
    int64_t phase = 0;
    for (int64_t i = q0_ * w.stride; i < end; ++i) {
      T* to = row + i * t_.channels + c0_;
      if (phase >= t_.phases || visit_starts_[phase] == visit_starts_[phase + 1]) {
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(block_) * sizeof(T));
      } else {
        const int64_t at = (q - q0_) * block_;
        int64_t c = 0;
        for (; c + 4 * n <= block_; c += 4 * n) {
          const auto s = GatherAt<4>(phase, at + c);
          Store(s.v0, to + c);
          Store(s.v1, to + c + n);
          Store(s.v2, to + c + 2 * n);
          Store(s.v3, to + c + 3 * n);
        }
        for (; c + n <= block_; c += n) Store(GatherAt<1>(phase, at + c).v0, to + c);
        if (c < block_) {
          const V v = GatherAt<1>(phase, at + c).v0;
          if (block_ == t_.channels && i + 1 + n / block_ < end) {
            Store(v, to + c);
          } else {
            StorePart(v, block_ - c, to + c);
          }
        }
      }
      if (++phase == w.stride) {
        phase = 0;
        ++q;
      }
    }
  }

  // Width innermost: a vector over q for each of the kStride phases, interleaved when stored.
  template <int kStride>
  void EmitPlanar(T* row) const {
    constexpr int kVectors = kStride <= 2 ? 4 : 2;
    const int64_t n = static_cast<int64_t>(hn::Lanes(D()));
    const int64_t in = p_.width().in;
    int64_t q = q0_;
    for (; q + kVectors * n <= q1_ && (q + kVectors * n) * kStride <= in; q += kVectors * n) {
      EmitBlock<kStride, kVectors>(q - q0_, row + q * kStride);
    }
    for (; q < q1_; q += n) {
      if (q + n <= q1_ && (q + n) * kStride <= in) {
        EmitBlock<kStride, 1>(q - q0_, row + q * kStride);
      } else {
        HWY_ALIGN T whole[4 * hn::MaxLanes(D())];
        EmitBlock<kStride, 1>(q - q0_, whole);
        const int64_t count = std::min(q1_ * kStride, in) - q * kStride;
        std::memcpy(static_cast<void*>(row + q * kStride), whole, static_cast<size_t>(count) * sizeof(T));
      }
    }
  }

  template <int kStride, int kVectors>
  HWY_INLINE void EmitBlock(int64_t at, T* to) const {
    const int64_t n = static_cast<int64_t>(hn::Lanes(D()));
    const auto phase = [&](int64_t i) HWY_ATTR {
      if (i < t_.phases) return GatherAt<kVectors>(i, at);
      const V zero = hn::Zero(D());
      return Sums<kVectors>{zero, zero, zero, zero};
    };
    const auto s0 = phase(0);
    if constexpr (kStride == 1) {
      Store(s0.v0, to);
      if constexpr (kVectors > 1) Store(s0.v1, to + n);
      if constexpr (kVectors > 2) {
        Store(s0.v2, to + 2 * n);
        Store(s0.v3, to + 3 * n);
      }
    } else if constexpr (kStride == 2) {
      const auto s1 = phase(1);
      StoreTogether(to, s0.v0, s1.v0);
      if constexpr (kVectors > 1) StoreTogether(to + 2 * n, s0.v1, s1.v1);
      if constexpr (kVectors > 2) {
        StoreTogether(to + 4 * n, s0.v2, s1.v2);
        StoreTogether(to + 6 * n, s0.v3, s1.v3);
      }
    } else if constexpr (kStride == 3) {
      const auto s1 = phase(1);
      const auto s2 = phase(2);
      StoreTogether(to, s0.v0, s1.v0, s2.v0);
      if constexpr (kVectors > 1) StoreTogether(to + 3 * n, s0.v1, s1.v1, s2.v1);
    } else {
      const auto s1 = phase(1);
      const auto s2 = phase(2);
      const auto s3 = phase(3);
      StoreTogether(to, s0.v0, s1.v0, s2.v0, s3.v0);
      if constexpr (kVectors > 1) StoreTogether(to + 4 * n, s0.v1, s1.v1, s2.v1, s3.v1);
    }
  }

  static HWY_INLINE void StoreTogether(T* to, V a, V b) {
    hn::StoreInterleaved2(NarrowTo<T>(D(), a), NarrowTo<T>(D(), b), DS(), Out(to));
  }
  static HWY_INLINE void StoreTogether(T* to, V a, V b, V c) {
    hn::StoreInterleaved3(NarrowTo<T>(D(), a), NarrowTo<T>(D(), b), NarrowTo<T>(D(), c), DS(), Out(to));
  }
  static HWY_INLINE void StoreTogether(T* to, V a, V b, V c, V e) {
    hn::StoreInterleaved4(NarrowTo<T>(D(), a), NarrowTo<T>(D(), b), NarrowTo<T>(D(), c), NarrowTo<T>(D(), e), DS(),
                          Out(to));
  }

  // Width innermost, any stride: phase by phase, element by element.
  void EmitStrided(T* row) const {
    const int64_t n = static_cast<int64_t>(hn::Lanes(D()));
    const Axis& w = p_.width();
    const int64_t end = std::min(q1_ * w.stride, w.in);
    std::memset(static_cast<void*>(row + q0_ * w.stride), 0, static_cast<size_t>(end - q0_ * w.stride) * sizeof(T));
    HWY_ALIGN T whole[hn::MaxLanes(D())];
    for (int64_t phase = 0; phase < t_.phases; ++phase) {
      if (visit_starts_[phase] == visit_starts_[phase + 1]) continue;
      for (int64_t q = q0_; q < q1_; q += n) {
        Store(GatherAt<1>(phase, q - q0_).v0, whole);
        for (int64_t i = 0; i < n && (q + i) * w.stride + phase < end; ++i) row[(q + i) * w.stride + phase] = whole[i];
      }
    }
  }

  const Problem& p_;
  const Args& args_;
  const SpreadFn spread_;
  const GatherTiles t_;
  Lane* const values_;
  Code* const codes_;
  Lane* const divisors_;
  Cover* const covers_;
  Visit* const visits_;
  int32_t* const starts_;
  int32_t* const visit_starts_;
  WidthTap* const taps_;
  int64_t* const tags_;
  int64_t plane_ = 0;  // the unit and tile at work
  int64_t c0_ = 0, block_ = 0;
  int64_t q0_ = 0, q1_ = 0;
  int64_t divisor_rows_ = -1, divisor_block_ = -1, divisor_lo_ = -1, divisor_hi_ = -1;  // what divisors_ holds (average)
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_GATHER_INL_H_
