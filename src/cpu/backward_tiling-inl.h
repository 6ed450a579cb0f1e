// dx of windows that do not share inputs: every input has one writer at most, so dx is written once, zeros included,
// straight from dy and the codes. The same for unpool, which differs only in keeping the bits of y as they are.
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the
// first also those before, the last those after), and those that are none of its taps are 0. A unit is an output row
// with all input rows that it owns, so that its codes are unpacked once.
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

// A value as a sum of one term leaves it: 0 + value, rounded back. T is the element type, or for unpool the unsigned
// integer of its size, which is kept.
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
        dense_(problem.width().stride == problem.width().kernel && problem.width().dilation == 1 &&
               problem.width().pad_lo == 0),
        codes_(reinterpret_cast<Bits*>(scratch)) {}

  void Run(int64_t begin, int64_t end) {
    const int64_t rows = p_.depth().out * p_.height().out;
    int64_t oh = begin % p_.height().out;
    int64_t od = begin % rows / p_.height().out;
    int64_t image = begin / rows;
    const int64_t out = p_.width().out;
    const int64_t together = std::max<int64_t>(1, chunk_ / out);  // rows whose codes are unpacked at once
    for (int64_t unit = begin; unit < end; ++unit) {
      if (chunk_ < out) {
        for (int64_t ow = 0; ow < out; ow += chunk_) {
          const int64_t past = std::min(ow + chunk_, out);
          ReadCodes(unit, ow, past, codes_);
          Write(unit, image, od, oh, ow, past, codes_);
        }
      } else {
        const int64_t at = (unit - begin) % together;
        if (at == 0) ReadRows(unit, std::min(together, end - unit));
        Write(unit, image, od, oh, 0, out, codes_ + at * out * channels_);
      }
      if (++oh == p_.height().out) {
        oh = 0;
        if (++od == p_.depth().out) {
          od = 0;
          ++image;
        }
      }
    }
  }

 private:
  // Outputs [begin, end) of one output row into all the input rows that it owns.
  HWY_INLINE void Write(int64_t unit, int64_t image, int64_t od, int64_t oh, int64_t begin, int64_t end,
                        const Bits* codes) {
    const Axis& w = p_.width();
    const Range depth = OwnedBy(p_.depth(), od);
    const Range height = OwnedBy(p_.height(), oh);
    const Bits* dy = static_cast<const Bits*>(args_.source) + (unit * w.out + begin) * channels_;
    for (int64_t d = depth.begin; d < depth.end; ++d) {
      const int64_t tap_d = TapOn(p_.depth(), od, d);
      Bits* row = static_cast<Bits*>(args_.result) +
                  ((image * p_.depth().in + d) * p_.height().in + height.begin) * w.in * channels_;
      for (int64_t h = height.begin; h < height.end; ++h, row += w.in * channels_) {
        const int64_t tap_h = TapOn(p_.height(), oh, h);
        if (tap_d < 0 || tap_h < 0) {
          Zero(row, OwnedBy(w, begin).begin, OwnedBy(w, end - 1).end);
          continue;
        }
        const int64_t first_tap = (tap_d * p_.height().kernel + tap_h) * w.kernel;
        if (last_) {
          WriteLast(dy, codes, first_tap, begin, end, row);
        } else if (h + 1 < height.end && TapOn(p_.height(), oh, h + 1) == tap_h + 1) {
          WriteFirst<2>(dy, codes, first_tap, begin, end, row);
          ++h;
          row += w.in;
        } else {
          WriteFirst<1>(dy, codes, first_tap, begin, end, row);
        }
      }
    }
  }

  // The codes of whole output rows; where they fill their bytes, rows follow each other.
  void ReadRows(int64_t unit, int64_t count) {
    const RouteFormat& f = p_.routes;
    const int64_t out = p_.width().out;
    if (f.line != 1 && f.line * f.bits % 8 == 0) {
      const uint8_t* first = args_.routes + LineOffset(f, unit * (last_ ? out : 1));
      return SpreadCodes(f.bits, first, count * out * channels_, codes_);
    }
    for (int64_t i = 0; i < count; ++i) ReadCodes(unit + i, 0, out, codes_ + i * out * channels_);
  }

  static int64_t TapOn(const Axis& a, int64_t o, int64_t i) {
    const int64_t distance = i - a.start(o);
    if (a.dilation == 1) return distance < a.kernel ? distance : -1;  // -1 or less before the window
    return a.tap_at(o, i);
  }

  void Zero(Bits* row, int64_t begin, int64_t end) const {
    if (end > begin)
      std::memset(row + begin * channels_, 0, static_cast<size_t>((end - begin) * channels_) * sizeof(Bits));
  }

  void ReadCodes(int64_t unit, int64_t begin, int64_t end, Bits* codes) const {
    const RouteFormat& f = p_.routes;
    const int64_t out = p_.width().out;
    if (f.line == 1) {
      SpreadCodes(std::max<int>(8, f.bits), args_.routes + LineOffset(f, unit * out + begin), end - begin, codes);
      if (f.bits < 8) {
        for (int64_t i = 0; i < end - begin; ++i) codes[i] = static_cast<Bits>(codes[i] & f.none());
      }
    } else if (!last_) {
      SpreadCodes(f.bits, args_.routes + LineOffset(f, unit) + begin * f.bits / 8, end - begin, codes);
    } else {
      const uint8_t* line = args_.routes + LineOffset(f, unit * out + begin);
      if (channels_ * f.bits % 8 == 0) return SpreadCodes(f.bits, line, (end - begin) * channels_, codes);
      for (int64_t ow = begin; ow < end; ++ow, line += f.line_bytes) {
        SpreadCodes(f.bits, line, channels_, codes + (ow - begin) * channels_);
      }
    }
  }

  // ---- Channels last: a vector over channels.

  void WriteLast(const Bits* dy, const Bits* codes, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    if (dense_ && end * w.kernel <= w.in) {
      Bits* to = row + begin * w.kernel * channels_;
      for (int64_t ow = begin; ow < end; ++ow, dy += channels_, codes += channels_) {
        for (int64_t k = 0; k < w.kernel; ++k, to += channels_) WriteTap(dy, codes, first_tap + k, to);
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
          WriteTap(dy, codes, first_tap + tap, row + i * channels_);
        }
      }
    }
  }

  // One position: the channels that its tap won. Positions are written one after the other, so that dx is one stream.
  HWY_INLINE void WriteTap(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t tap,
                           Bits* HWY_RESTRICT to) const {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const V wanted = hn::Set(d, static_cast<Bits>(tap));
    const auto write = [&](int64_t c) HWY_ATTR {
      const V value = AsSum<T>(d, hn::LoadU(d, dy + c));
      hn::StoreU(hn::IfThenElseZero(hn::Eq(hn::LoadU(d, codes + c), wanted), value), d, to + c);
    };
    int64_t c = 0;
    for (; c + 4 * n <= channels_; c += 4 * n) {
      write(c);
      write(c + n);
      write(c + 2 * n);
      write(c + 3 * n);
    }
    for (; c + n <= channels_; c += n) write(c);
    if (c == channels_) return;
    if (channels_ >= n) return write(channels_ - n);  // the same values again
    for (; c < channels_; ++c) to[c] = Chosen(dy[c], codes[c], tap);
  }

  static HWY_INLINE Bits Chosen(Bits value, Bits code, int64_t tap) {
    const hn::CappedTag<Bits, 1> d;
    return code == static_cast<Bits>(tap) ? hn::GetLane(AsSum<T>(d, hn::Set(d, value))) : Bits{0};
  }

  // ---- Channels first: a vector over width, the taps interleaved when stored. Dense windows of up to four only. One
  // input row, or two neighbours of a window, which share dy and codes.

  template <int kRows>
  void WriteFirst(const Bits* dy, const Bits* codes, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    // Outputs all of whose taps lie inside; at most the last one (of rounding up) does not.
    const int64_t whole = std::min(end, w.in / w.kernel);
    Bits* to = row + begin * w.kernel;
    switch (w.kernel) {
      case 1:
        WriteRows<kRows, 1>(dy, codes, first_tap, whole - begin, w.in, to);
        break;
      case 2:
        WriteRows<kRows, 2>(dy, codes, first_tap, whole - begin, w.in, to);
        break;
      case 3:
        WriteRows<kRows, 3>(dy, codes, first_tap, whole - begin, w.in, to);
        break;
      default:
        WriteRows<kRows, 4>(dy, codes, first_tap, whole - begin, w.in, to);
    }
    for (int64_t r = 0; r < kRows; ++r, row += w.in, first_tap += w.kernel) {
      for (int64_t ow = whole; ow < end; ++ow) {
        for (int64_t k = 0; k < w.kernel && ow * w.kernel + k < w.in; ++k) {
          row[ow * w.kernel + k] = Chosen(dy[ow - begin], codes[ow - begin], first_tap + k);
        }
      }
      if (end == w.out) Zero(row, std::min(end * w.kernel, w.in), w.in);
    }
  }

  template <int kRows, int kTaps>
  static HWY_INLINE void WriteRows(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t first_tap,
                                   int64_t count, int64_t row_step, Bits* HWY_RESTRICT to) {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const auto write = [&](int64_t i) HWY_ATTR {
      const V value = AsSum<T>(d, hn::LoadU(d, dy + i));
      const V code = hn::LoadU(d, codes + i);
      WriteTaps<kTaps>(value, code, first_tap, to + i * kTaps);
      if constexpr (kRows == 2) WriteTaps<kTaps>(value, code, first_tap + kTaps, to + row_step + i * kTaps);
    };
    int64_t i = 0;
    for (; i + n <= count; i += n) write(i);
    if (i == count) return;
    if (count >= n) return write(count - n);  // the same values again
    for (; i < count; ++i) {
      for (int64_t k = 0; k < kTaps; ++k) {
        to[i * kTaps + k] = Chosen(dy[i], codes[i], first_tap + k);
        if constexpr (kRows == 2) to[row_step + i * kTaps + k] = Chosen(dy[i], codes[i], first_tap + kTaps + k);
      }
    }
  }

  template <int kTaps>
  static HWY_INLINE void WriteTaps(V value, V code, int64_t first_tap, Bits* HWY_RESTRICT to) {
    const D d;
    const auto won = [&](int64_t k) HWY_ATTR {
      return hn::IfThenElseZero(hn::Eq(code, hn::Set(d, static_cast<Bits>(first_tap + k))), value);
    };
    if constexpr (kTaps == 1) {
      hn::StoreU(won(0), d, to);
    } else if constexpr (kTaps == 2) {
      hn::StoreInterleaved2(won(0), won(1), d, to);
    } else if constexpr (kTaps == 3) {
      hn::StoreInterleaved3(won(0), won(1), won(2), d, to);
    } else {
      hn::StoreInterleaved4(won(0), won(1), won(2), won(3), d, to);
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
