// dx of windows that tile the whole input, channels last, where a position's channels are whole cache lines: a line of
// dx for every tap of a window in turn. Arm only.
//
// dy and the codes are read once, in order, and dx is written by whole lines in as many places as a window has taps.
// The core writes such lines without reading them first, as it does in one ascending stream, and reads of dy are spread
// evenly between the writes: 2x2 windows in f32 went from 0.6 of copy, row after row, to 0.95. Lines that are not whole
// (dx that does not begin at a line) take four times as long that way, so they are left to backward_tiling_last-inl.h.
// Nothing but dx is stored, not even between rows: hence one function with all loops in it.
//
// Codes of two bits in windows of four taps are told apart bit by bit: half of a value's copies are masked for two taps
// at once. Others are spread to lanes, and compared with each tap's number.
#if defined(POOLGRAD_CPU_BACKWARD_TILING_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_TILING_LINES_INL_H_
#undef POOLGRAD_CPU_BACKWARD_TILING_LINES_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_TILING_LINES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "cpu/backward/fields-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR

// T: the element type, or for unpool the unsigned integer of its size. Units are output rows.
template <class T, int kBits>
class TilingLines {
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;
  static constexpr int64_t kN = 16 / sizeof(Bits);
  using D = hn::FixedTag<Bits, kN>;
  using D8 = hn::FixedTag<uint8_t, 16>;
  using V = hn::Vec<D>;
  using Watched = WatchOf<T, D>;

  static constexpr int64_t kLine = 64;
  static constexpr int64_t kLanes = kLine / sizeof(Bits);    // of a step, which is a line
  static constexpr int64_t kStepBytes = kLanes * kBits / 8;  // of its codes
  static constexpr int64_t kMostTaps = int64_t{1} << kBits;
  static constexpr int64_t kWatchedBytes = 256 << 10;  // of dy that is written again where a watch fired

 public:
  static constexpr bool kFits = sizeof(Bits) == 2 || sizeof(Bits) == 4;  // a vector's codes are whole bytes

  static bool Takes(const Problem& p, const Args& args) {
    const auto tiles = [](const Axis& a) {
      return a.stride == a.kernel && a.dilation == 1 && a.pad_lo == 0 && a.in == a.out * a.kernel;
    };
    return p.channels % kLanes == 0 && reinterpret_cast<uintptr_t>(args.result) % kLine == 0 && tiles(p.depth()) &&
           tiles(p.height()) && tiles(p.width());
  }

  TilingLines(const Problem& problem, const Args& args)
      : p_(problem),
        row_(problem.width().in * problem.channels),
        dy_(static_cast<const Bits*>(args.source)),
        routes_(args.routes),
        dx_(static_cast<Bits*>(args.result)) {
    const Axis& h = p_.height();
    const int64_t across = p_.width().kernel;
    for (int64_t tap = 0; tap < p_.taps(); ++tap) {
      const int64_t down = tap / across;
      offsets_[tap] = (down / h.kernel * h.in + down % h.kernel) * row_ + tap % across * p_.channels;
    }
    constexpr int64_t kPerByte = 8 / kBits;
    for (int64_t i = 0; i < kLanes; ++i) {
      uint8_t bytes[sizeof(Bits)];
      std::fill_n(bytes, sizeof(Bits), uint8_t{255});
      bytes[0] = static_cast<uint8_t>(i / kPerByte);
      std::memcpy(&places_[i], bytes, sizeof(Bits));
    }
    for (int64_t i = 0; i < kLanes; ++i) low_bits_[i] = static_cast<Bits>(Bits{1} << (i * kBits % (8 * sizeof(Bits))));
    for (int64_t i = 0; i < kN; ++i) shifts_[i] = static_cast<Bits>(i % kPerByte * kBits);
  }

  void Run(int64_t begin, int64_t end) const {
    switch (p_.taps()) {
      case 4:
        return RunTaps<4>(begin, end);
      case 8:
        return RunTaps<kMostTaps < 8 ? 0 : 8>(begin, end);
      default:
        return RunTaps<0>(begin, end);
    }
  }

 private:
  // kTaps: of the window, or 0 where it has another number of them.
  template <int kTaps>
  void RunTaps(int64_t begin, int64_t end) const {
    if constexpr (kIsHalfType<T>) {
      const int64_t bytes = p_.width().out * p_.channels * static_cast<int64_t>(sizeof(Bits));
      const int64_t most = std::max<int64_t>(1, kWatchedBytes / bytes);
      for (int64_t unit = begin; unit < end; unit += most) {
        const int64_t past = std::min(unit + most, end);
        if (Write<kTaps, Values::kWatched>(unit, past)) Write<kTaps, Values::kSums>(unit, past);
      }
    } else {
      Write<kTaps, Values::kSums>(begin, end);
    }
  }

  // The values of a step.
  struct Four {
    V a, b, c, d;
  };

  // Returns whether the watch fired.
  template <int kTaps, Values kValues>
  HWY_NOINLINE bool Write(int64_t unit, int64_t end) const {
    const D d;
    const int64_t height = p_.height().out;
    const int64_t width = p_.width().out;
    const int64_t channels = p_.channels;
    const int64_t taps = p_.taps();
    // From the end of what a position, a row, a slice of outputs begins with to where the next one begins.
    const int64_t next = (p_.width().kernel - 1) * channels;
    const int64_t next_row = (p_.height().kernel - 1) * row_;
    const int64_t next_slice = (p_.depth().kernel - 1) * p_.height().in * row_;
    const Bits* HWY_RESTRICT dy = dy_ + unit * width * channels;
    const uint8_t* HWY_RESTRICT codes = routes_ + LineOffset(p_.routes, unit * width);
    Bits* HWY_RESTRICT to =
        dx_ + (unit / height * p_.depth().kernel * p_.height().in + unit % height * p_.height().kernel) * row_;
    constexpr bool kByBits = kTaps == 4 && kBits == 2;
    const Bits* const lanes = kByBits ? low_bits_ : places_;
    const Four constants = {hn::LoadU(d, lanes), hn::LoadU(d, lanes + kN), hn::LoadU(d, lanes + 2 * kN),
                            hn::LoadU(d, lanes + 3 * kN)};
    const V shifts = hn::LoadU(d, shifts_);
    const V mask = hn::Set(d, static_cast<Bits>(kMostTaps - 1));
    Watched watch;
    for (int64_t oh = unit % height; unit < end; ++unit) {
      for (int64_t ow = width; ow > 0; --ow) {
        for (int64_t c = channels; c > 0; c -= kLanes) {
          const Four v = {LoadValues<T, kValues>(d, dy, watch), LoadValues<T, kValues>(d, dy + kN, watch),
                          LoadValues<T, kValues>(d, dy + 2 * kN, watch), LoadValues<T, kValues>(d, dy + 3 * kN, watch)};
          if constexpr (kByBits) {
            StoreByBits(codes, v, constants, to);
          } else {
            const Four bytes = BytesOf(codes, constants);
            const Four numbers = {hn::And(hn::Shr(bytes.a, shifts), mask), hn::And(hn::Shr(bytes.b, shifts), mask),
                                  hn::And(hn::Shr(bytes.c, shifts), mask), hn::And(hn::Shr(bytes.d, shifts), mask)};
            if constexpr (kTaps > 0) {
              StoreTaps<kTaps, 0>(v, numbers, to);
            } else {
              for (int64_t tap = 0; tap < taps; ++tap) StoreTap(v, numbers, tap, to);
            }
          }
          dy += kLanes;
          codes += kStepBytes;
          to += kLanes;
        }
        to += next;
      }
      to += next_row;
      if (++oh == height) {
        oh = 0;
        to += next_slice;
      }
    }
    return watch.Fired();
  }

  // In every lane the byte that its code lies in.
  static HWY_INLINE Four BytesOf(const uint8_t* codes, const Four& places) {
    const D d;
    const D8 d8;
    hn::Vec<D8> packed;
    if constexpr (kStepBytes == 16) {
      packed = hn::LoadU(d8, codes);
    } else {
      packed = hn::BitCast(d8, hn::Set(hn::FixedTag<uint64_t, 2>(), LoadWord<uint64_t, kStepBytes>(codes)));
    }
    return {hn::BitCast(d, hn::TableLookupBytesOr0(packed, hn::BitCast(d8, places.a))),
            hn::BitCast(d, hn::TableLookupBytesOr0(packed, hn::BitCast(d8, places.b))),
            hn::BitCast(d, hn::TableLookupBytesOr0(packed, hn::BitCast(d8, places.c))),
            hn::BitCast(d, hn::TableLookupBytesOr0(packed, hn::BitCast(d8, places.d)))};
  }

  struct Masks {
    hn::Mask<D> a, b, c, d;
  };
  static HWY_INLINE Masks HaveBit(const Four& v, const Four& bit) {
    return {hn::TestBit(v.a, bit.a), hn::TestBit(v.b, bit.b), hn::TestBit(v.c, bit.c), hn::TestBit(v.d, bit.d)};
  }
  static HWY_INLINE Four With(const Masks& m, const Four& v) {
    return {hn::IfThenElseZero(m.a, v.a), hn::IfThenElseZero(m.b, v.b), hn::IfThenElseZero(m.c, v.c),
            hn::IfThenElseZero(m.d, v.d)};
  }
  // v with zeros where `part` has its values.
  static HWY_INLINE Four Without(const Four& part, const Four& v) {
    return {hn::Xor(v.a, part.a), hn::Xor(v.b, part.b), hn::Xor(v.c, part.c), hn::Xor(v.d, part.d)};
  }

  // Codes of two bits: in every lane of a vector a chunk that its codes lie in.
  static HWY_INLINE Four Chunks(const uint8_t* codes) {
    const D d;
    if constexpr (kStepBytes <= static_cast<int64_t>(sizeof(Bits))) {
      const V all = hn::Set(d, LoadWord<Bits, kStepBytes>(codes));
      return {all, all, all, all};
    } else {
      const V all = hn::BitCast(d, hn::Set(hn::FixedTag<uint64_t, 2>(), LoadWord<uint64_t, kStepBytes>(codes)));
      return {hn::Broadcast<0>(all), hn::Broadcast<1>(all), hn::Broadcast<2>(all), hn::Broadcast<3>(all)};
    }
  }

  // Taps 0 to 3 of codes of two bits. `low`: by lane, the lower bit of its code in its chunk, a lane's worth of codes.
  HWY_INLINE void StoreByBits(const uint8_t* codes, const Four& v, const Four& low, Bits* HWY_RESTRICT to) const {
    const Four high = {hn::Add(low.a, low.a), hn::Add(low.b, low.b), hn::Add(low.c, low.c), hn::Add(low.d, low.d)};
    const Four chunks = Chunks(codes);
    const Masks odd = HaveBit(chunks, low);
    const Masks late = HaveBit(chunks, high);
    const Four last = With(late, v);
    const Four first = Without(last, v);
    const Four first_odd = With(odd, first);
    const Four last_odd = With(odd, last);
    StoreLine(Without(first_odd, first), to + offsets_[0]);
    StoreLine(first_odd, to + offsets_[1]);
    StoreLine(Without(last_odd, last), to + offsets_[2]);
    StoreLine(last_odd, to + offsets_[3]);
  }

  // Taps [kTap, kTaps).
  template <int kTaps, int kTap>
  HWY_INLINE void StoreTaps(const Four& v, const Four& numbers, Bits* HWY_RESTRICT to) const {
    if constexpr (kTap < kTaps) {
      StoreTap(v, numbers, kTap, to);
      StoreTaps<kTaps, kTap + 1>(v, numbers, to);
    }
  }

  HWY_INLINE void StoreTap(const Four& v, const Four& numbers, int64_t tap, Bits* HWY_RESTRICT to) const {
    const V wanted = hn::Set(D(), static_cast<Bits>(tap));
    StoreLine({hn::IfThenElseZero(hn::Eq(numbers.a, wanted), v.a), hn::IfThenElseZero(hn::Eq(numbers.b, wanted), v.b),
               hn::IfThenElseZero(hn::Eq(numbers.c, wanted), v.c), hn::IfThenElseZero(hn::Eq(numbers.d, wanted), v.d)},
              to + offsets_[tap]);
  }

  // In order, and in pairs: compilers turn the order around and split pairs to save an addition, and the processor
  // minds.
  static HWY_INLINE void StoreLine(const Four& v, Bits* to) {
    const D d;
    asm("" : "+r"(to));
    hn::StoreU(v.a, d, to);
    hn::StoreU(v.b, d, to + kN);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    hn::StoreU(v.c, d, to + 2 * kN);
    hn::StoreU(v.d, d, to + 3 * kN);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  const Problem& p_;
  const int64_t row_;  // elements of dx
  const Bits* const dy_;
  const uint8_t* const routes_;
  Bits* const dx_;
  int64_t offsets_[kMostTaps] = {};  // by tap: elements from its window's start
  Bits places_[kLanes];              // by lane of a step: its code's byte in the lowest byte, none in the others
  Bits shifts_[kN];                  // and where in that byte, the same for every vector
  Bits low_bits_[kLanes];            // by lane of a step: the lowest bit of its code, where codes are cut into lanes
};

#endif  // HWY_ARCH_ARM_A64

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_LINES_INL_H_
