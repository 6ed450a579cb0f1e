// dx of windows that do not share inputs: every input has one writer at most, so dx is written once, zeros included,
// straight from dy and the codes. The same for unpool, which differs only in keeping the bits of y as they are.
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the
// first also those before, the last those after), and those that are none of its taps are 0. A unit is an output row
// with all input rows that it owns.
//
// dx is written in the order it lies in memory, one stream and as few other stores as possible between: only then does
// the processor write whole lines without reading them first.
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

// What the sum of one value is: 0 + value, rounded back. T: the element type, or for unpool the integer of its size.
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
        packed_(!last_ && problem.routes.line != 1 && FieldsFit(problem.routes.bits) && TilesHeight(problem) &&
                std::min(problem.width().out, problem.width().in / problem.width().kernel) >= kN),
        codes_(reinterpret_cast<Bits*>(scratch)) {
    if (!last_) FindLanes(problem.width().kernel, problem.routes.bits);
  }

  void Run(int64_t begin, int64_t end) {
    if (packed_) return RunPacked(begin, end);
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
        } else {
          WriteFirst(dy, codes, first_tap, begin, end, row);
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

  // ---- Channels first, windows of up to four that lie side by side: a vector of dx holds the windows of a few
  // outputs. dy is repeated for every tap of its window and kept where the code names it. Codes of 2 and 4 bits are
  // compared in place: every lane gets all codes of the vector of dy and looks at the field of its own.

  static constexpr int64_t kN = 16 / sizeof(Bits);
  using DN = hn::FixedTag<Bits, kN>;
  using VN = hn::Vec<DN>;

  // The codes of a vector of dy fill whole bytes and fit a lane.
  static constexpr bool FieldsFit(int64_t bits) {
    return bits < 8 && kN * bits % 8 == 0 && kN * bits <= 8 * static_cast<int64_t>(sizeof(Bits));
  }

  static bool TilesHeight(const Problem& p) {
    const Axis& h = p.height();
    return h.stride == h.kernel && h.dilation == 1 && h.pad_lo == 0;
  }

  void FindLanes(int64_t taps, int64_t bits) {
    for (int64_t i = 0; i < taps * kN; ++i) {
      const int64_t output = i / taps;
      for (size_t b = 0; b < sizeof(Bits); ++b) {
        repeat_[i * static_cast<int64_t>(sizeof(Bits)) + static_cast<int64_t>(b)] =
            static_cast<uint8_t>(static_cast<size_t>(output) * sizeof(Bits) + b);
      }
      columns_[i] = static_cast<Bits>(i % taps);
      if (!packed_) continue;
      columns_[i] = static_cast<Bits>(columns_[i] * Ones(bits));
      fields_[i] = static_cast<Bits>(((uint64_t{1} << bits) - 1) << (output * bits));
    }
  }

  // 1 in every field of a lane.
  static uint64_t Ones(int64_t bits) { return ~uint64_t{0} / ((uint64_t{1} << bits) - 1); }

  // The lanes of `x` that have a bit of `fields`. (TestBit is defined for single bits only, but is CMTST on Arm.)
  static HWY_INLINE hn::Mask<DN> AnyBit(VN x, VN fields) {
#if HWY_TARGET == HWY_NEON
    return hn::TestBit(x, fields);
#else
    return hn::Not(hn::Eq(hn::And(x, fields), hn::Zero(DN())));
#endif
  }

  template <int kTaps>
  static HWY_INLINE VN Repeated(VN v, VN places) {
    const hn::Repartition<uint8_t, DN> d8;
    return kTaps == 1 ? v : hn::BitCast(DN(), LookUpBytes(hn::BitCast(d8, v), hn::BitCast(d8, places)));
  }

  // What one vector of dy becomes: kTaps vectors of dx. kBits: of packed codes, all of them in every lane; 0: one per
  // lane.
  template <int kTaps, int kBits>
  static HWY_INLINE void WriteVector(VN value, VN code, const VN (&taps)[kTaps], const VN (&fields)[kTaps],
                                     const VN (&repeat)[kTaps], Bits* HWY_RESTRICT to) {
    const DN d;
    constexpr bool kSame = kN % kTaps == 0;  // every vector of dx begins with the same tap
    VN differ = hn::Xor(code, taps[0]);
    for (int k = 0; k < kTaps; ++k) {
      const VN repeated = Repeated<kTaps>(value, repeat[k]);
      if constexpr (kBits == 0) {
        hn::StoreU(hn::IfThenElseZero(hn::Eq(Repeated<kTaps>(code, repeat[k]), taps[k]), repeated), d, to + k * kN);
      } else {
        if (!kSame) differ = hn::Xor(code, taps[k]);
        hn::StoreU(hn::IfThenZeroElse(AnyBit(differ, fields[k]), repeated), d, to + k * kN);
      }
    }
  }

  template <int kTaps, int kBits>
  HWY_INLINE void FindTaps(int64_t first_tap, VN (&taps)[kTaps]) const {
    const DN d;
    const auto first = hn::Set(d, static_cast<Bits>(static_cast<uint64_t>(first_tap) * (kBits > 0 ? Ones(kBits) : 1)));
    for (int k = 0; k < kTaps; ++k) taps[k] = hn::Add(first, hn::LoadU(d, columns_ + k * kN));
  }

  // One code per lane.
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
    for (int64_t ow = begin + done; ow < end; ++ow) WriteWindow(dy[ow - begin], codes[ow - begin], first_tap, ow, row);
    if (end == w.out) Zero(row, std::min(end * w.kernel, w.in), w.in);
  }

  void WriteWindow(Bits dy, Bits code, int64_t first_tap, int64_t ow, Bits* row) const {
    const Axis& w = p_.width();
    for (int64_t k = 0; k < w.kernel && ow * w.kernel + k < w.in; ++k) {
      row[ow * w.kernel + k] = Chosen(dy, code, first_tap + k);
    }
  }

  // Returns how many outputs it did: all, or none where they do not fill a vector.
  template <int kTaps>
  HWY_INLINE int64_t WriteRow(const Bits* HWY_RESTRICT dy, const Bits* HWY_RESTRICT codes, int64_t first_tap,
                              int64_t count, Bits* HWY_RESTRICT to) const {
    const DN d;
    const hn::Repartition<uint8_t, DN> d8;
    VN taps[kTaps], repeat[kTaps];
    FindTaps<kTaps, 0>(first_tap, taps);
    for (int k = 0; k < kTaps; ++k) repeat[k] = hn::BitCast(d, hn::LoadU(d8, repeat_ + k * 16));
    if (count < kN) return 0;
    for (int64_t i = 0; i < count; i += kN) {
      i = std::min(i, count - kN);  // the last ones, some of them again
      const VN value = AsSum<T>(d, hn::LoadU(d, dy + i));
      WriteVector<kTaps, 0>(value, hn::LoadU(d, codes + i), taps, taps, repeat, to + i * kTaps);
    }
    return count;
  }

  void RunPacked(int64_t begin, int64_t end) const {
    const bool two = p_.routes.bits == 2;
    switch (p_.width().kernel) {
      case 1:
        return two ? RunBits<1, 2>(begin, end) : RunBits<1, 4>(begin, end);
      case 2:
        return two ? RunBits<2, 2>(begin, end) : RunBits<2, 4>(begin, end);
      case 3:
        return two ? RunBits<3, 2>(begin, end) : RunBits<3, 4>(begin, end);
      default:
        return two ? RunBits<4, 2>(begin, end) : RunBits<4, 4>(begin, end);
    }
  }

  // Packed codes, read where they lie: the output rows of a slice at a time, so that dx is written slice by slice.
  template <int kTaps, int kBits>
  void RunBits(int64_t begin, int64_t end) const {
    if constexpr (FieldsFit(kBits)) {
      const Axis& depth = p_.depth();
      const Axis& height = p_.height();
      const Axis& w = p_.width();
      const uint8_t* const routes_end = args_.routes + p_.routes.bytes();
      const int64_t whole_rows = height.in / height.kernel;
      for (int64_t unit = begin; unit < end;) {
        const int64_t oh = unit % height.out;
        const int64_t od = unit / height.out % depth.out;
        const int64_t image = unit / height.out / depth.out;
        const uint8_t* const line = args_.routes + LineOffset(p_.routes, unit);
        // Rows after which there are codes enough to read a little further than needed.
        const int64_t readable = (routes_end - line - kReadAhead) / p_.routes.line_bytes;
        const int64_t rows = std::min({end - unit, height.out - oh, whole_rows - oh, readable});
        const Bits* const dy = static_cast<const Bits*>(args_.source) + unit * w.out;
        const Range over_d = OwnedBy(depth, od);
        const Range over_h = {oh * height.kernel, OwnedBy(height, oh + std::max<int64_t>(1, rows) - 1).end};
        for (int64_t d = over_d.begin; d < over_d.end; ++d) {
          Bits* to = static_cast<Bits*>(args_.result) + ((image * depth.in + d) * height.in + over_h.begin) * w.in;
          const int64_t tap_d = TapOn(depth, od, d);
          int64_t h = over_h.begin;
          if (tap_d >= 0 && rows > 0) {
            const int64_t first_tap = tap_d * height.kernel * kTaps;
            if (w.out % kN == 0 && w.out * kTaps <= w.in) {
              WriteTiled<kTaps, kBits, false>(dy, line, rows, first_tap, to);
            } else {
              WriteTiled<kTaps, kBits, true>(dy, line, rows, first_tap, to);
            }
            h += rows * height.kernel;
          } else if (tap_d >= 0) {
            for (; h < std::min(over_h.end, (oh + 1) * height.kernel); ++h) {
              const int64_t tap_h = h - oh * height.kernel;
              WriteOne<kTaps, kBits>(dy, line, routes_end, (tap_d * height.kernel + tap_h) * kTaps, to + tap_h * w.in);
            }
          }
          Zero(to, (h - over_h.begin) * w.in, over_h.size() * w.in);
        }
        unit += std::max<int64_t>(1, rows);
      }
    }
  }

  static constexpr int64_t kReadAhead = sizeof(uint64_t);

  // Output rows whose windows tile the input, in a function of its own: what the compiler keeps on the stack is stored
  // between the rows of dx. kRest: the windows of a row do not fill whole vectors.
  template <int kTaps, int kBits, bool kRest>
  HWY_NOINLINE void WriteTiled(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT line, int64_t rows,
                               int64_t first_tap, Bits* HWY_RESTRICT to) const {
    const DN d;
    const hn::Repartition<uint8_t, DN> d8;
    constexpr int64_t kBytes = kN * kBits / 8;
    const int64_t out = p_.width().out;
    const int64_t in = p_.width().in;
    const int64_t whole = std::min(out, in / kTaps);
    const int64_t tap_rows = p_.height().kernel;
    const int64_t line_bytes = p_.routes.line_bytes;
    const auto step = hn::Set(d, static_cast<Bits>(kTaps * Ones(kBits)));
    VN start[kTaps], fields[kTaps], repeat[kTaps];
    FindTaps<kTaps, kBits>(first_tap, start);
    for (int k = 0; k < kTaps; ++k) {
      fields[k] = hn::LoadU(d, fields_ + k * kN);
      repeat[k] = hn::BitCast(d, hn::LoadU(d8, repeat_ + k * 16));
    }
    for (; rows > 0; --rows, dy += out, line += line_bytes) {
      VN taps[kTaps];
      for (int k = 0; k < kTaps; ++k) taps[k] = start[k];
      for (int64_t tap_row = 0; tap_row < tap_rows; ++tap_row, to += in) {
        const uint8_t* codes = line;
        for (int64_t i = 0; i + kN <= whole; i += kN, codes += kBytes) {
          Bits all;
          std::memcpy(&all, codes, sizeof(all));
          const VN value = AsSum<T>(d, hn::LoadU(d, dy + i));
          WriteVector<kTaps, kBits>(value, hn::Set(d, all), taps, fields, repeat, to + i * kTaps);
        }
        for (int64_t ow = whole / kN * kN; kRest && ow < whole; ++ow) {  // one by one: no store goes back
          const Bits code = static_cast<Bits>(line[ow * kBits / 8] >> (ow * kBits % 8) & ((1 << kBits) - 1));
          for (int64_t k = 0; k < kTaps; ++k) {
            to[ow * kTaps + k] = Chosen(dy[ow], code, first_tap + tap_row * kTaps + k);
          }
        }
        if (kRest && whole < out) {
          FinishRow(dy, line, first_tap + tap_row * kTaps, whole, to);
        } else {  // no call, which would store what is in registers
          for (int64_t i = whole * kTaps; i < in; ++i) to[i] = 0;
        }
        for (int k = 0; k < kTaps; ++k) taps[k] = hn::Add(taps[k], step);
      }
    }
  }

  // One input row where the routes end: vectors as far as they can be read.
  template <int kTaps, int kBits>
  void WriteOne(const Bits* dy, const uint8_t* line, const uint8_t* routes_end, int64_t first_tap, Bits* row) const {
    const DN d;
    const hn::Repartition<uint8_t, DN> d8;
    VN taps[kTaps], fields[kTaps], repeat[kTaps];
    FindTaps<kTaps, kBits>(first_tap, taps);
    for (int k = 0; k < kTaps; ++k) {
      fields[k] = hn::LoadU(d, fields_ + k * kN);
      repeat[k] = hn::BitCast(d, hn::LoadU(d8, repeat_ + k * 16));
    }
    const int64_t whole = std::min(p_.width().out, p_.width().in / kTaps);
    int64_t i = 0;
    for (; i + kN <= whole && routes_end - (line + i * kBits / 8) >= kReadAhead; i += kN) {
      Bits all;
      std::memcpy(&all, line + i * kBits / 8, sizeof(all));
      const VN value = AsSum<T>(d, hn::LoadU(d, dy + i));
      WriteVector<kTaps, kBits>(value, hn::Set(d, all), taps, fields, repeat, row + i * kTaps);
    }
    FinishRow(dy, line, first_tap, i, row);
  }

  // The windows of an input row from output `ow` on, and what no window covers.
  void FinishRow(const Bits* dy, const uint8_t* line, int64_t first_tap, int64_t ow, Bits* row) const {
    const Axis& w = p_.width();
    for (; ow < w.out; ++ow) WriteWindow(dy[ow], static_cast<Bits>(LoadCode(p_.routes, line, ow)), first_tap, ow, row);
    Zero(row, std::min(w.in, w.out * w.kernel), w.in);
  }

  const Problem& p_;
  const Args& args_;
  const bool last_;
  const int64_t channels_;
  const int64_t chunk_;
  const bool dense_;
  const bool packed_;  // codes are read where they lie
  Bits* const codes_;
  // Channels first, by lane of the vectors of dx that one vector of dy fills:
  HWY_ALIGN uint8_t repeat_[4 * 16] = {};  // the byte of dy
  HWY_ALIGN Bits columns_[4 * kN] = {};    // the tap's column, in every field
  HWY_ALIGN Bits fields_[4 * kN] = {};     // the field of its output
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_INL_H_
