// dx of windows that do not share inputs: every input has one writer at most, so dx is written once, zeros included,
// straight from dy and the codes. The same for unpool, which differs only in keeping the bits of y as they are.
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the
// first also those before, the last those after), and those that are none of its taps are 0. A unit is an output row
// with all input rows that it owns.
//
// dx is written in the order it lies in memory, one stream and as few other stores as possible between: only then does
// the processor write whole lines without reading them first. Codes of 2 and 4 bits are read where they lie, in kernels
// of their own for each layout; others are spread here.
#if defined(POOLGRAD_CPU_BACKWARD_TILING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#undef POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_TILING_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/backward/fields-inl.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/tiling.h"
#include "cpu/backward/tiling_first-inl.h"
#include "cpu/backward/tiling_last-inl.h"
#include "cpu/backward/tiling_lines-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The kernel for all that TilingFirst and TilingLast do not take: codes are spread to lanes of scratch, and what a sum
// makes of dy beside them, a few rows at a time.
template <class T>
class TilingSpread {
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;

 public:
  TilingSpread(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        args_(args),
        last_(problem.channels_last() && problem.channels > 1),
        channels_(last_ ? problem.channels : 1),
        chunk_(TilingChunk(problem)),
        codes_(reinterpret_cast<Bits*>(scratch)),
        sums_(codes_ + TilingScratchElements(problem)) {
    if (!last_) FindLanes(problem.width().kernel);
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t rows = p_.depth().out * p_.height().out;
    int64_t oh = begin % p_.height().out;
    int64_t od = begin % rows / p_.height().out;
    int64_t image = begin / rows;
    const int64_t out = p_.width().out;
    const int64_t together = std::max<int64_t>(1, chunk_ / out);  // rows that are spread at once
    const Bits* dy = nullptr;
    for (int64_t unit = begin; unit < end; ++unit) {
      if (chunk_ < out) {
        for (int64_t ow = 0; ow < out; ow += chunk_) {
          const int64_t past = std::min(ow + chunk_, out);
          ReadCodes(unit, ow, past, codes_);
          dy = ReadValues(unit * out + ow, past - ow);
          Write(image, od, oh, ow, past, dy, codes_);
        }
      } else {
        const int64_t at = (unit - begin) % together;
        if (at == 0) {
          const int64_t count = std::min(together, end - unit);
          ReadRows(unit, count);
          dy = ReadValues(unit * out, count * out);
        }
        Write(image, od, oh, 0, out, dy + at * out * channels_, codes_ + at * out * channels_);
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
  HWY_INLINE void Write(int64_t image, int64_t od, int64_t oh, int64_t begin, int64_t end, const Bits* dy,
                        const Bits* codes) {
    const Axis& w = p_.width();
    const Range depth = OwnedBy(p_.depth(), od);
    const Range height = OwnedBy(p_.height(), oh);
    for (int64_t d = depth.begin; d < depth.end; ++d) {
      const int64_t tap_d = OwnTap(p_.depth(), od, d);
      Bits* row = static_cast<Bits*>(args_.result) +
                  ((image * p_.depth().in + d) * p_.height().in + height.begin) * w.in * channels_;
      for (int64_t h = height.begin; h < height.end; ++h, row += w.in * channels_) {
        const int64_t tap_h = OwnTap(p_.height(), oh, h);
        if (tap_d < 0 || tap_h < 0) {
          Zero(row, OwnedBy(w, begin).begin, OwnedBy(w, end - 1).end);
          continue;
        }
        const int64_t first_tap = (tap_d * p_.height().kernel + tap_h) * w.kernel;
        if (last_) {
          WriteLast(dy, codes, first_tap, begin, end, row);
        } else {
          WriteFirst(dy, codes, first_tap, begin, end, row);
        }
      }
    }
  }

  void Zero(Bits* row, int64_t begin, int64_t end) const {
    if (end > begin)
      std::memset(row + begin * channels_, 0, static_cast<size_t>((end - begin) * channels_) * sizeof(Bits));
  }

  // `count` positions of dy from position `first` on, as sums.
  const Bits* ReadValues(int64_t first, int64_t count) const {
    const Bits* dy = static_cast<const Bits*>(args_.source) + first * channels_;
    if constexpr (std::is_integral_v<T>) return dy;
    if constexpr (kIsHalfType<T>) {
      SpreadHalfBits<T>(dy, count * channels_, sums_);
    } else {
      SpreadSum<T>(dy, count * channels_, sums_);
    }
    return sums_;
  }

  // The codes of whole output rows; where they fill their bytes, rows follow each other.
  void ReadRows(int64_t unit, int64_t count) const {
    const RouteFormat& f = p_.routes;
    const int64_t out = p_.width().out;
    if (f.line != 1 && f.line * f.bits % 8 == 0) {
      const uint8_t* first = args_.routes + LineOffset(f, unit * (last_ ? out : 1));
      return SpreadCodes(f.bits, first, count * out * channels_, codes_);
    }
    for (int64_t i = 0; i < count; ++i) ReadCodes(unit + i, 0, out, codes_ + i * out * channels_);
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
    if (w.stride == w.kernel && w.dilation == 1 && w.pad_lo == 0 && end * w.kernel <= w.in) {  // taps follow each other
      Bits* to = row + begin * w.kernel * channels_;
      const int64_t spilled = CeilDiv(static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Bits>())), channels_);  // positions
      for (int64_t left = end - begin; left > 0; --left, dy += channels_, codes += channels_) {
        for (int64_t k = 0; k < w.kernel; ++k, to += channels_) {
          if (left > spilled) {
            WriteTap<true>(dy, codes, first_tap + k, to);
          } else {
            WriteTap<false>(dy, codes, first_tap + k, to);
          }
        }
      }
      if (end == w.out) Zero(row, end * w.kernel, w.in);
      return;
    }
    for (int64_t ow = begin; ow < end; ++ow, dy += channels_, codes += channels_) {
      const Range owned = OwnedBy(w, ow);
      for (int64_t i = owned.begin; i < owned.end; ++i) {
        const int64_t tap = OwnTap(w, ow, i);
        if (tap < 0) {
          Zero(row, i, i + 1);
        } else {
          WriteTap<false>(dy, codes, first_tap + tap, row + i * channels_);
        }
      }
    }
  }

  // One position: the channels that its tap won. Positions are written one after the other, so that dx is one stream.
  // kSpills: a vector's worth of others follows in dy and in dx, so that the last vector may be whole; what it writes too
  // much is written again.
  template <bool kSpills>
  HWY_INLINE void WriteTap(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t tap,
                           Bits* HWY_RESTRICT to) const {
    const hn::ScalableTag<Bits> d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const auto wanted = hn::Set(d, static_cast<Bits>(tap));
    int64_t c = 0;
    for (; c + 4 * n <= channels_; c += 4 * n) {
      const auto v0 = Kept(d, dy + c, codes + c, wanted);
      const auto v1 = Kept(d, dy + c + n, codes + c + n, wanted);
      const auto v2 = Kept(d, dy + c + 2 * n, codes + c + 2 * n, wanted);
      const auto v3 = Kept(d, dy + c + 3 * n, codes + c + 3 * n, wanted);
      hn::StoreU(v0, d, to + c);
      hn::StoreU(v1, d, to + c + n);
      hn::StoreU(v2, d, to + c + 2 * n);
      hn::StoreU(v3, d, to + c + 3 * n);
    }
    for (; c + n <= channels_; c += n) hn::StoreU(Kept(d, dy + c, codes + c, wanted), d, to + c);
    if (c == channels_) return;
    if (kSpills) return hn::StoreU(Kept(d, dy + c, codes + c, wanted), d, to + c);
    if (channels_ >= n) {  // the same values again
      c = channels_ - n;
      return hn::StoreU(Kept(d, dy + c, codes + c, wanted), d, to + c);
    }
    for (; c < channels_; ++c) to[c] = codes[c] == static_cast<Bits>(tap) ? dy[c] : Bits{0};
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> Kept(D d, const Bits* dy, const Bits* codes, hn::Vec<D> wanted) {
    return hn::IfThenElseZero(hn::Eq(hn::LoadU(d, codes), wanted), hn::LoadU(d, dy));
  }

  // ---- Channels first, windows of up to four that lie side by side: a vector of dx holds the windows of a few
  // outputs. dy is repeated for every tap of its window and kept where the code, repeated likewise, names it.

  static constexpr int64_t kN = 16 / sizeof(Bits);
  using DN = hn::FixedTag<Bits, kN>;
  using VN = hn::Vec<DN>;

  void FindLanes(int64_t taps) {
    for (int64_t i = 0; i < taps * kN; ++i) {
      for (size_t b = 0; b < sizeof(Bits); ++b) {
        repeat_[i * static_cast<int64_t>(sizeof(Bits)) + static_cast<int64_t>(b)] =
            static_cast<uint8_t>(static_cast<size_t>(i / taps) * sizeof(Bits) + b);
      }
      columns_[i] = static_cast<Bits>(i % taps);
    }
  }

  void WriteFirst(const Bits* dy, const Bits* codes, int64_t first_tap, int64_t begin, int64_t end, Bits* row) const {
    const Axis& w = p_.width();
    // Outputs all of whose taps lie inside; at most the last one (of rounding up) does not.
    const int64_t whole = std::min(end, w.in / w.kernel) - begin;
    int64_t done = 0;
    switch (w.kernel) {
      case 1:
        done = WriteRow<1>(dy, codes, first_tap, whole, row + begin);
        break;
      case 2:
        done = WriteRow<2>(dy, codes, first_tap, whole, row + begin * 2);
        break;
      case 3:
        done = WriteRow<3>(dy, codes, first_tap, whole, row + begin * 3);
        break;
      default:
        done = WriteRow<4>(dy, codes, first_tap, whole, row + begin * 4);
    }
    for (int64_t ow = begin + done; ow < end; ++ow) {
      for (int64_t k = 0; k < w.kernel && ow * w.kernel + k < w.in; ++k) {
        const bool won = codes[ow - begin] == static_cast<Bits>(first_tap + k);
        row[ow * w.kernel + k] = won ? dy[ow - begin] : Bits{0};
      }
    }
    if (end == w.out) Zero(row, std::min(end * w.kernel, w.in), w.in);
  }

  // Returns how many outputs it did: all, or none where they do not fill a vector.
  template <int kTaps>
  HWY_INLINE int64_t WriteRow(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t first_tap,
                              int64_t count, Bits* HWY_RESTRICT to) const {
    const DN d;
    const hn::Repartition<uint8_t, DN> d8;
    VN taps[kTaps], repeat[kTaps];
    for (int k = 0; k < kTaps; ++k) {
      taps[k] = hn::Add(hn::Set(d, static_cast<Bits>(first_tap)), hn::LoadU(d, columns_ + k * kN));
      repeat[k] = hn::BitCast(d, hn::LoadU(d8, repeat_ + k * 16));
    }
    if (count < kN) return 0;
    for (int64_t i = 0; i < count; i += kN) {
      i = std::min(i, count - kN);  // the last ones, some of them again
      const VN value = hn::LoadU(d, dy + i);
      const VN code = hn::LoadU(d, codes + i);
      for (int k = 0; k < kTaps; ++k) {
        const auto won = hn::Eq(Repeated<kTaps>(code, repeat[k]), taps[k]);
        hn::StoreU(hn::IfThenElseZero(won, Repeated<kTaps>(value, repeat[k])), d, to + i * kTaps + k * kN);
      }
    }
    return count;
  }

  template <int kTaps>
  static HWY_INLINE VN Repeated(VN v, VN places) {
    const hn::Repartition<uint8_t, DN> d8;
    return kTaps == 1 ? v : hn::BitCast(DN(), LookUpBytes(hn::BitCast(d8, v), hn::BitCast(d8, places)));
  }

  const Problem& p_;
  const Args& args_;
  const bool last_;
  const int64_t channels_;
  const int64_t chunk_;
  Bits* const codes_;
  Bits* const sums_;
  // Channels first, by lane of the vectors of dx that one vector of dy fills:
  HWY_ALIGN uint8_t repeat_[4 * 16] = {};  // the byte of dy
  HWY_ALIGN Bits columns_[4 * kN] = {};    // the tap's column
};

// Chooses among the three.
template <class T>
class Tiling {
 public:
  Tiling(const Problem& problem, const Args& args, std::byte* scratch) : p_(problem), args_(args), scratch_(scratch) {}

  void Run(int64_t begin, int64_t end) const {
    if (!RunPacked(begin, end)) TilingSpread<T>(p_, args_, scratch_).Run(begin, end);
  }

 private:
  // False if the codes have to be spread.
  bool RunPacked(int64_t begin, int64_t end) const {
    const bool two = p_.routes.bits == 2;
    if (p_.routes.bits > 4 || p_.routes.line == 1) return false;
    if (p_.channels_last()) return two ? RunLast<2>(begin, end) : RunLast<4>(begin, end);
#ifdef POOLGRAD_SMALL
    return false;
#else
    const Axis& h = p_.height();
    if (h.stride != h.kernel || h.dilation != 1 || h.pad_lo != 0) return false;
    switch (p_.width().kernel) {
      case 1:
        return two ? RunFirst<1, 2>(begin, end) : RunFirst<1, 4>(begin, end);
      case 2:
        return two ? RunFirst<2, 2>(begin, end) : RunFirst<2, 4>(begin, end);
      case 3:
        return two ? RunFirst<3, 2>(begin, end) : RunFirst<3, 4>(begin, end);
      default:
        return two ? RunFirst<4, 2>(begin, end) : RunFirst<4, 4>(begin, end);
    }
#endif
  }

#if HWY_ARCH_X86
  // Whether dx is more than caches hold, and in its rows vectors of so many bytes are aligned, as Way::kPast needs them.
  bool GoesPast(size_t vector_bytes) const {
    const int64_t row = p_.width().in * (p_.channels_last() ? p_.channels : 1) * SizeOf(p_.dtype);
    return p_.x_bytes() >= bytes_past_caches.load(std::memory_order_relaxed) &&
           static_cast<size_t>(row) % vector_bytes == 0 &&
           reinterpret_cast<uintptr_t>(args_.result) % vector_bytes == 0;
  }
#endif

  template <int kTaps, int kBits>
  bool RunFirst(int64_t begin, int64_t end) const {
#if HWY_ARCH_X86
    if (GoesPast(16)) {
      TilingFirst<T, kTaps, kBits, Way::kPast>(p_, args_).Run(begin, end);
      hwy::FlushStream();
      return true;
    }
#endif
    TilingFirst<T, kTaps, kBits>(p_, args_).Run(begin, end);
    return true;
  }

  template <int kBits>
  bool RunLast(int64_t begin, int64_t end) const {
#if HWY_ARCH_ARM_A64
    using Lines = TilingLines<T, kBits>;
    if constexpr (Lines::kFits) {
      if (Lines::Takes(p_, args_)) {
        Lines(p_, args_).Run(begin, end);
        return true;
      }
    }
#endif
    using Packed = TilingLast<T, kBits>;
    if constexpr (Packed::kFits) {
      if (!Packed::Takes(p_)) return false;
#if HWY_ARCH_X86
      if (GoesPast(hn::MaxLanes(hn::ScalableTag<uint8_t>()))) {
        TilingLast<T, kBits, Way::kPast>(p_, args_).Run(begin, end);
        hwy::FlushStream();
        return true;
      }
#endif
      Packed(p_, args_).Run(begin, end);
    }
    return Packed::kFits;
  }

  const Problem& p_;
  const Args& args_;
  std::byte* const scratch_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_INL_H_
