// dx of windows that do not share inputs: every input has one writer at most, so dx is written once, zeros included, straight from
// dy and the codes. The same for unpool, which differs only in keeping the bits of y as they are.
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the first also
// those before, the last those after), and those that are none of its taps are 0. A unit is an output row with all input rows
// that it owns, so that its codes are unpacked once.
#if defined(POOLGRAD_CPU_BACKWARD_TILING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#undef POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/backward_lanes-inl.h"
#include "cpu/backward_tiling.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// A value as a sum of one term leaves it: 0 + value, rounded back. T is the element type, or for unpool the unsigned integer of
// its size, which is kept.
template <class T, class D>
HWY_INLINE hn::Vec<D> AsSum(D d, hn::Vec<D> bits) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const hn::RebindToFloat<D> df;
    return hn::BitCast(d, hn::Add(hn::BitCast(df, bits), hn::Zero(df)));
  } else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return HalfAsSum<T>(d, bits);
  } else {
    (void)d;
    return bits;
  }
}

template <class T>
class Tiling {
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;
  using D = hn::ScalableTag<Bits>;
  using V = hn::Vec<D>;

 public:
  Tiling(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        args_(args),
        last_(problem.channels_last() && problem.channels > 1),
        channels_(last_ ? problem.channels : 1),
        chunk_(TilingChunk(problem)),
        dense_(problem.width().stride == problem.width().kernel && problem.width().dilation == 1 && problem.width().pad_lo == 0),
        codes_(reinterpret_cast<Bits*>(scratch)) {}

  void Run(int64_t begin, int64_t end) {
    const int64_t rows = p_.depth().out * p_.height().out;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / rows;
      const int64_t od = unit % rows / p_.height().out;
      const int64_t oh = unit % p_.height().out;
      const Range depth = OwnedBy(p_.depth(), od);
      const Range height = OwnedBy(p_.height(), oh);
      for (int64_t ow = 0; ow < p_.width().out; ow += chunk_) {
        const int64_t past = std::min(ow + chunk_, p_.width().out);
        ReadCodes(unit, ow, past);
        const Bits* dy = static_cast<const Bits*>(args_.source) + (unit * p_.width().out + ow) * channels_;
        for (int64_t d = depth.begin; d < depth.end; ++d) {
          const int64_t tap_d = TapOn(p_.depth(), od, d);
          for (int64_t h = height.begin; h < height.end; ++h) {
            const int64_t tap_h = TapOn(p_.height(), oh, h);
            Bits* row = static_cast<Bits*>(args_.result) + ((image * p_.depth().in + d) * p_.height().in + h) * p_.width().in * channels_;
            if (tap_d < 0 || tap_h < 0) {
              const Range owned{OwnedBy(p_.width(), ow).begin, OwnedBy(p_.width(), past - 1).end};
              Zero(row, owned.begin, owned.end);
              continue;
            }
            const int64_t first_tap = (tap_d * p_.height().kernel + tap_h) * p_.width().kernel;
            if (last_) {
              WriteLast(dy, first_tap, ow, past, row);
            } else {
              WriteFirst(dy, first_tap, ow, past, row);
            }
          }
        }
      }
    }
  }

 private:
  static int64_t TapOn(const Axis& a, int64_t o, int64_t i) {
    const int64_t distance = i - a.start(o);
    if (a.dilation == 1) return distance < a.kernel ? distance : -1;  // -1 or less before the window
    return a.tap_at(o, i);
  }

  void Zero(Bits* row, int64_t begin, int64_t end) const {
    if (end > begin) std::memset(row + begin * channels_, 0, static_cast<size_t>((end - begin) * channels_) * sizeof(Bits));
  }

  void ReadCodes(int64_t unit, int64_t begin, int64_t end) {
    const RouteFormat& f = p_.routes;
    const int64_t out = p_.width().out;
    if (f.line == 1) {
      SpreadCodes(std::max<int>(8, f.bits), args_.routes + LineOffset(f, unit * out + begin), end - begin, codes_);
      if (f.bits < 8) {
        for (int64_t i = 0; i < end - begin; ++i) codes_[i] = static_cast<Bits>(codes_[i] & f.none());
      }
    } else if (!last_) {
      SpreadCodes(f.bits, args_.routes + LineOffset(f, unit) + begin * f.bits / 8, end - begin, codes_);
    } else {
      const uint8_t* line = args_.routes + LineOffset(f, unit * out + begin);
      if (channels_ * f.bits % 8 == 0) return SpreadCodes(f.bits, line, (end - begin) * channels_, codes_);
      for (int64_t ow = begin; ow < end; ++ow, line += f.line_bytes) {
        SpreadCodes(f.bits, line, channels_, codes_ + (ow - begin) * channels_);
      }
    }
  }

  // ---- Channels last: a vector over channels.

  void WriteLast(const Bits* dy, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    const Bits* codes = codes_;
    if (dense_ && w.kernel <= 4 && end * w.kernel <= w.in) {
      Bits* to = row + begin * w.kernel * channels_;
      const int64_t count = end - begin;
      switch (w.kernel) {
        case 1: WriteDense<1>(dy, codes, first_tap, count, to); break;
        case 2: WriteDense<2>(dy, codes, first_tap, count, to); break;
        case 3: WriteDense<3>(dy, codes, first_tap, count, to); break;
        default: WriteDense<4>(dy, codes, first_tap, count, to);
      }
      if (end == w.out) Zero(row, end * w.kernel, w.in);
      return;
    }
    for (int64_t ow = begin; ow < end; ++ow, dy += channels_, codes += channels_) {
      const Range owned = OwnedBy(w, ow);
      for (int64_t i = owned.begin; i < owned.end; ++i) {
        const int64_t tap = TapOn(w, ow, i);
        if (tap < 0) {
          Zero(row, i, i + 1);
        } else {
          WriteTaps<1>(dy, codes, first_tap + tap, row + i * channels_);
        }
      }
    }
  }

  template <int kTaps>
  HWY_INLINE void WriteDense(const Bits* dy, const Bits* codes, int64_t first_tap, int64_t count, Bits* to) const {
    for (int64_t i = 0; i < count; ++i, dy += channels_, codes += channels_, to += kTaps * channels_) {
      WriteTaps<kTaps>(dy, codes, first_tap, to);
    }
  }

  // Neighbouring positions, kTaps of them, of one window.
  template <int kTaps>
  HWY_INLINE void WriteTaps(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t first_tap,
                            Bits* HWY_RESTRICT to) const {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const V tap0 = hn::Set(d, static_cast<Bits>(first_tap));
    const V tap1 = hn::Set(d, static_cast<Bits>(first_tap + 1));
    const V tap2 = hn::Set(d, static_cast<Bits>(first_tap + 2));
    const V tap3 = hn::Set(d, static_cast<Bits>(first_tap + 3));
    const auto write = [&](int64_t c) HWY_ATTR {
      const V value = AsSum<T>(d, hn::LoadU(d, dy + c));
      const V code = hn::LoadU(d, codes + c);
      hn::StoreU(hn::IfThenElseZero(hn::Eq(code, tap0), value), d, to + c);
      if constexpr (kTaps > 1) hn::StoreU(hn::IfThenElseZero(hn::Eq(code, tap1), value), d, to + channels_ + c);
      if constexpr (kTaps > 2) hn::StoreU(hn::IfThenElseZero(hn::Eq(code, tap2), value), d, to + 2 * channels_ + c);
      if constexpr (kTaps > 3) hn::StoreU(hn::IfThenElseZero(hn::Eq(code, tap3), value), d, to + 3 * channels_ + c);
    };
    int64_t c = 0;
    for (; c + n <= channels_; c += n) write(c);
    if (c == channels_) return;
    if (channels_ >= n) return write(channels_ - n);  // the same values again
    for (; c < channels_; ++c) {
      for (int64_t k = 0; k < kTaps; ++k) to[k * channels_ + c] = Chosen(dy[c], codes[c], first_tap + k);
    }
  }

  static HWY_INLINE Bits Chosen(Bits value, Bits code, int64_t tap) {
    const hn::CappedTag<Bits, 1> d;
    return code == static_cast<Bits>(tap) ? hn::GetLane(AsSum<T>(d, hn::Set(d, value))) : Bits{0};
  }

  // ---- Channels first: a vector over width, the taps interleaved when stored. Dense windows of up to four only.

  void WriteFirst(const Bits* dy, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    // Outputs all of whose taps lie inside; at most the last one (of rounding up) does not.
    const int64_t whole = std::min(end, w.in / w.kernel);
    Bits* to = row + begin * w.kernel;
    switch (w.kernel) {
      case 1: WriteRow<1>(dy, first_tap, whole - begin, to); break;
      case 2: WriteRow<2>(dy, first_tap, whole - begin, to); break;
      case 3: WriteRow<3>(dy, first_tap, whole - begin, to); break;
      default: WriteRow<4>(dy, first_tap, whole - begin, to);
    }
    for (int64_t ow = whole; ow < end; ++ow) {
      for (int64_t k = 0; k < w.kernel && ow * w.kernel + k < w.in; ++k) {
        row[ow * w.kernel + k] = Chosen(dy[ow - begin], codes_[ow - begin], first_tap + k);
      }
    }
    if (end == w.out) Zero(row, std::min(end * w.kernel, w.in), w.in);
  }

  template <int kTaps>
  HWY_INLINE void WriteRow(const Bits* HWY_RESTRICT dy, int64_t first_tap, int64_t count, Bits* HWY_RESTRICT to) const {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const V tap0 = hn::Set(d, static_cast<Bits>(first_tap));
    const V tap1 = hn::Set(d, static_cast<Bits>(first_tap + 1));
    const V tap2 = hn::Set(d, static_cast<Bits>(first_tap + 2));
    const V tap3 = hn::Set(d, static_cast<Bits>(first_tap + 3));
    const auto write = [&](int64_t i) HWY_ATTR {
      const V value = AsSum<T>(d, hn::LoadU(d, dy + i));
      const V code = hn::LoadU(d, codes_ + i);
      const V v0 = hn::IfThenElseZero(hn::Eq(code, tap0), value);
      Bits* at = to + i * kTaps;
      if constexpr (kTaps == 1) {
        hn::StoreU(v0, d, at);
      } else {
        const V v1 = hn::IfThenElseZero(hn::Eq(code, tap1), value);
        if constexpr (kTaps == 2) {
          hn::StoreInterleaved2(v0, v1, d, at);
        } else {
          const V v2 = hn::IfThenElseZero(hn::Eq(code, tap2), value);
          if constexpr (kTaps == 3) {
            hn::StoreInterleaved3(v0, v1, v2, d, at);
          } else {
            hn::StoreInterleaved4(v0, v1, v2, hn::IfThenElseZero(hn::Eq(code, tap3), value), d, at);
          }
        }
      }
    };
    int64_t i = 0;
    for (; i + n <= count; i += n) write(i);
    if (i == count) return;
    if (count >= n) return write(count - n);  // the same values again
    for (; i < count; ++i) {
      for (int64_t k = 0; k < kTaps; ++k) to[i * kTaps + k] = Chosen(dy[i], codes_[i], first_tap + k);
    }
  }

  const Problem& p_;
  const Args& args_;
  const bool last_;
  const int64_t channels_;
  const int64_t chunk_;
  const bool dense_;
  Bits* const codes_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_INL_H_
