// dx of windows that do not share inputs, channels last, from packed codes of 2 or 4 bits read where they lie.
//
// dx is written in the order it lies in memory, position after position. A step is a few vectors of channels whose
// codes fill one word; nothing is stored but dx, so that the processor writes whole lines without reading them.
//
// Takes channels that fill whole vectors (whole steps, where a vector's codes do not fill bytes); no byte beyond dy and
// the routes is read.
#if defined(POOLGRAD_CPU_BACKWARD_TILING_LAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_TILING_LAST_INL_H_
#undef POOLGRAD_CPU_BACKWARD_TILING_LAST_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_TILING_LAST_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "cpu/backward/fields-inl.h"
#include "cpu/backward/tiling.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// T: the element type, or for unpool the unsigned integer of its size. Units are output rows.
template <class T, int kBits, Way kWay = Way::kCached>
class TilingLast {
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;
  using D = hn::ScalableTag<Bits>;
  using V = hn::Vec<D>;
  using Watched = WatchOf<T, D>;

  static constexpr int64_t kN = hn::MaxLanes(D());
  static constexpr int64_t kLaneBits = 8 * sizeof(Bits);
  static constexpr int64_t kVectorBits = kN * kBits;                             // codes of a vector
  static constexpr int64_t kStep = std::clamp<int64_t>(64 / kVectorBits, 1, 4);  // vectors
  // Vectors of a step whose codes share a lane's worth; 1 also where a vector's codes fill several lanes.
  static constexpr int64_t kPerLane = std::clamp<int64_t>(kLaneBits / kVectorBits, 1, kStep);

 public:
  static constexpr bool kFits = kVectorBits <= 64;  // the codes of a vector fit a word

  static bool Takes(const Problem& p) { return p.channels % (kVectorBits % 8 == 0 ? kN : kN * kStep) == 0; }

  TilingLast(const Problem& problem, const Args& args)
      : p_(problem),
        channels_(problem.channels),
        dense_(problem.width().stride == problem.width().kernel && problem.width().dilation == 1 &&
               problem.width().pad_lo == 0),
        dy_(static_cast<const Bits*>(args.source)),
        routes_(args.routes),
        dx_(static_cast<Bits*>(args.result)) {
    for (int64_t i = 0; i < kPerLane * kN; ++i) {
      fields_[i] = static_cast<Bits>(((uint64_t{1} << kBits) - 1) << (i * kBits % kLaneBits));
    }
    for (int64_t i = 0; i < kStep * kN; ++i) {
      uint8_t bytes[sizeof(Bits)];
      for (size_t b = 0; b < sizeof(Bits); ++b) {
        bytes[b] = static_cast<uint8_t>(static_cast<size_t>(i * kBits / kLaneBits) * sizeof(Bits) + b);
      }
      std::memcpy(&places_[i], bytes, sizeof(Bits));
    }
  }

  void Run(int64_t begin, int64_t end) const {
    const int64_t out = p_.width().out;
    // What is taken through all rows of its windows at once stays in cache.
    const int64_t piece = std::max<int64_t>(1, (64 << 10) / (channels_ * static_cast<int64_t>(sizeof(Bits))));
    for (int64_t unit = begin; unit < end; ++unit) {
      for (int64_t ow = 0; ow < out; ow += piece) Write(unit, ow, std::min(ow + piece, out));
    }
  }

 private:
  // Outputs [begin, end) of one output row into all the input rows that it owns.
  void Write(int64_t unit, int64_t begin, int64_t end) const {
    const Axis& w = p_.width();
    const int64_t oh = unit % p_.height().out;
    const int64_t od = unit / p_.height().out % p_.depth().out;
    const int64_t image = unit / p_.height().out / p_.depth().out;
    const Range depth = OwnedBy(p_.depth(), od);
    const Range height = OwnedBy(p_.height(), oh);
    Values values = kFirstValues<T>;
    for (int64_t d = depth.begin; d < depth.end; ++d) {
      const int64_t tap_d = OwnTap(p_.depth(), od, d);
      Bits* row = dx_ + ((image * p_.depth().in + d) * p_.height().in + height.begin) * w.in * channels_;
      for (int64_t h = height.begin; h < height.end; ++h, row += w.in * channels_) {
        const int64_t tap_h = OwnTap(p_.height(), oh, h);
        if (tap_d < 0 || tap_h < 0) {
          Zero(row, OwnedBy(w, begin).begin, OwnedBy(w, end - 1).end);
          continue;
        }
        const int64_t first_tap = (tap_d * p_.height().kernel + tap_h) * w.kernel;
        if constexpr (kIsHalfType<T>) {
          if (values == Values::kPlain) WriteRow<Values::kPlain>(unit, first_tap, begin, end, row);
          if (values == Values::kWatched) {
            const bool fired = WriteRow<Values::kWatched>(unit, first_tap, begin, end, row);
            values = fired ? Values::kSums : Values::kPlain;
          }
        }
        if (values == Values::kSums) WriteRow<Values::kSums>(unit, first_tap, begin, end, row);
      }
    }
  }

  // By lane, for every vector of a step: the field of its code, and the bytes its codes are in.
  struct Lanes {
    V fields0, fields1, fields2, fields3;
    V places0, places1, places2, places3;
  };

  HWY_INLINE Lanes LoadLanes() const {
    const D d;
    const auto fields = [&](int64_t at) HWY_ATTR { return hn::LoadU(d, fields_ + at % kPerLane * kN); };
    const auto places = [&](int64_t at) HWY_ATTR { return hn::LoadU(d, places_ + at % kStep * kN); };
    return {fields(0), fields(1), fields(2), fields(3), places(0), places(1), places(2), places(3)};
  }

  // One input row; returns whether the watch fired.
  template <Values kValues>
  bool WriteRow(int64_t unit, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    const int64_t line = unit * w.out + begin;
    const Bits* dy = dy_ + line * channels_;
    const uint8_t* codes = routes_ + LineOffset(p_.routes, line);
    if (dense_ && end * w.kernel <= w.in) {
      const bool fired = WriteDense<kValues>(dy, codes, first_tap, end - begin, row + begin * w.kernel * channels_);
      if (end == w.out) Zero(row, end * w.kernel, w.in);
      return fired;
    }
    const Lanes lanes = LoadLanes();
    Watched watch;
    for (int64_t ow = begin; ow < end; ++ow, dy += channels_, codes += p_.routes.line_bytes) {
      const Range owned = OwnedBy(w, ow);
      for (int64_t i = owned.begin; i < owned.end; ++i) {
        const int64_t tap = OwnTap(w, ow, i);
        if (tap < 0) {
          Zero(row, i, i + 1);
        } else {
          WriteTap<kValues>(dy, codes, first_tap + tap, channels_, row + i * channels_, lanes, watch);
        }
      }
    }
    return watch.Fired();
  }

  // Windows side by side, in a function of its own: what the loops need has to fit the registers.
  template <Values kValues>
  HWY_NOINLINE bool WriteDense(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT codes, int64_t first_tap,
                               int64_t windows, Bits* HWY_RESTRICT to) const {
    // Only one tap of each window has to be watched.
    constexpr Values kOthers = kValues == Values::kWatched ? Values::kPlain : kValues;
    const int64_t channels = channels_;
    const int64_t line_bytes = p_.routes.line_bytes;
    const int64_t past_tap = first_tap + p_.width().kernel;
    const Lanes lanes = LoadLanes();
    Watched watch;
    for (; windows > 0; --windows, dy += channels, codes += line_bytes) {
      int64_t tap = first_tap;
      if constexpr (kValues != kOthers) {
        WriteTap<kValues>(dy, codes, tap++, channels, to, lanes, watch);
        to += channels;
      }
      for (; tap < past_tap; ++tap, to += channels) WriteTap<kOthers>(dy, codes, tap, channels, to, lanes, watch);
    }
    return watch.Fired();
  }

  void Zero(Bits* row, int64_t begin, int64_t end) const {
    if (end > begin)
      std::memset(row + begin * channels_, 0, static_cast<size_t>((end - begin) * channels_) * sizeof(Bits));
  }

  // One position: the channels that its tap won.
  template <Values kValues>
  static HWY_INLINE void WriteTap(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT codes, int64_t tap,
                                  int64_t channels, Bits* HWY_RESTRICT to, const Lanes& lanes, Watched& watch) {
    const D d;
    const hn::Repartition<uint64_t, D> d64;
    const V taps = hn::BitCast(d, hn::Set(d64, static_cast<uint64_t>(tap) * OneInEveryField(kBits)));
    for (; channels >= kStep * kN; channels -= kStep * kN) {
      Step<kValues, kStep>(dy, codes, taps, to, lanes, watch);
      dy += kStep * kN;
      codes += kStep * kVectorBits / 8;
      to += kStep * kN;
    }
    if constexpr (kStep > 1 && kVectorBits % 8 == 0) {
      for (; channels > 0; channels -= kN) {
        Step<kValues, 1>(dy, codes, taps, to, lanes, watch);
        dy += kN;
        codes += kVectorBits / 8;
        to += kN;
      }
    }
  }

  template <Values kValues, int64_t kVectors>
  static HWY_INLINE void Step(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT codes, V taps,
                              Bits* HWY_RESTRICT to, const Lanes& lanes, Watched& watch) {
    const D d;
    constexpr int64_t kBytes = kVectors * kVectorBits / 8;
    V different;
    if constexpr (8 * kBytes <= kLaneBits) {
      different = hn::Set(d, LoadWord<Bits, kBytes>(codes));
    } else {
      different = hn::BitCast(d, hn::Set(hn::Repartition<uint64_t, D>(), LoadWord<uint64_t, kBytes>(codes)));
    }
    different = hn::Xor(different, taps);
    // All values before the first store, so that stores go out in pairs.
    const V v0 = LoadValues<T, kValues>(d, dy, watch);
    V v1 = v0, v2 = v0, v3 = v0;
    if constexpr (kVectors > 1) v1 = LoadValues<T, kValues>(d, dy + kN, watch);
    if constexpr (kVectors > 2) v2 = LoadValues<T, kValues>(d, dy + 2 * kN, watch);
    if constexpr (kVectors > 3) v3 = LoadValues<T, kValues>(d, dy + 3 * kN, watch);
    const V kept0 = Kept<0, kVectors>(different, lanes.fields0, lanes.places0, v0);
    const V kept1 = Kept<1, kVectors>(different, lanes.fields1, lanes.places1, v1);
    const V kept2 = Kept<2, kVectors>(different, lanes.fields2, lanes.places2, v2);
    const V kept3 = Kept<3, kVectors>(different, lanes.fields3, lanes.places3, v3);
    Put<kWay>(d, kept0, to);
    if constexpr (kVectors > 1) Put<kWay>(d, kept1, to + kN);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // compilers turn the order around, the processor minds
    if constexpr (kVectors > 2) Put<kWay>(d, kept2, to + 2 * kN);
    if constexpr (kVectors > 3) Put<kWay>(d, kept3, to + 3 * kN);
  }

  // Vector kAt of a step where the tap won. `different`: the step's codes, in every 8 bytes, against the tap.
  template <int64_t kAt, int64_t kVectors>
  static HWY_INLINE V Kept(V different, V fields, V places, V value) {
    if constexpr (kAt >= kVectors) return value;
    const D d;
    const hn::Repartition<uint8_t, D> d8;
    if constexpr (kVectorBits > kLaneBits) {
      different = hn::BitCast(d, LookUpBytes(hn::BitCast(d8, different), hn::BitCast(d8, places)));
    } else if constexpr (kVectors * kVectorBits > kLaneBits) {
      different = hn::Broadcast<static_cast<int>(kAt / kPerLane)>(different);
    }
    return ZeroWhereDifferent(d, different, fields, value);
  }

  const Problem& p_;
  const int64_t channels_;
  const bool dense_;  // windows tile the width from its start
  const Bits* const dy_;
  const uint8_t* const routes_;
  Bits* const dx_;
  Bits fields_[kPerLane * kN];
  Bits places_[kStep * kN];  // bytes
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_LAST_INL_H_
