// ty = S tx: every output takes the tangent of the input that won it, bit for bit; 0 where the code names no valid tap.
//
// A table of where each tap lies turns a code into an address. Whether a tap's depth and height are valid is settled
// once per output row, its width once per output, and only where windows reach over the border.
#if defined(POOLGRAD_CPU_WINNERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_WINNERS_INL_H_
#undef POOLGRAD_CPU_WINNERS_INL_H_
#else
#define POOLGRAD_CPU_WINNERS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/winners.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Bits: the unsigned integer of the element's size.
template <class Bits>
class Winners {
 public:
  Winners(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem), args_(args), t_(LayOutWinners(problem)) {
    offsets_ = reinterpret_cast<int64_t*>(scratch + t_.offsets_at);
    columns_ = reinterpret_cast<int32_t*>(scratch + t_.columns_at);
    codes_ = reinterpret_cast<uint32_t*>(scratch + t_.codes_at);
  }

  // Units are output rows.
  void Run(int64_t begin, int64_t end) {
    const int64_t channels = t_.channels;
    const Axis& w = p_.width();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t oh = row % p_.height().out;
      const int64_t od = row / p_.height().out % p_.depth().out;
      const int64_t image = row / (p_.height().out * p_.depth().out);
      FindOffsets(p_.depth().valid_taps(od), p_.height().valid_taps(oh));
      const Bits* tx = static_cast<const Bits*>(args_.source) + image * p_.in_plane() * channels;
      const int64_t start = (p_.depth().start(od) * p_.height().in + p_.height().start(oh)) * w.in * channels;
      Bits* ty = static_cast<Bits*>(args_.result) + row * w.out * channels;
      const Range inner = w.interior();
      for (int64_t ow = 0; ow < w.out; ow += t_.tile) {
        const int64_t past = std::min(ow + t_.tile, w.out);
        ReadCodes(row, ow, past);
        for (int64_t o = ow; o < past; ++o) {
          const int64_t at = start + w.start(o) * channels;
          const uint32_t* codes = codes_ + (o - ow) * channels;
          if (o >= inner.begin && o < inner.end) {
            Take<false>(tx, at, codes, {}, ty + o * channels);
          } else {
            Take<true>(tx, at, codes, w.valid_taps(o), ty + o * channels);
          }
        }
      }
    }
  }

 private:
  template <bool kClipped>
  HWY_INLINE void Take(const Bits* tx, int64_t at, const uint32_t* codes, Range columns, Bits* ty) const {
    const uint32_t taps = static_cast<uint32_t>(p_.taps());
    for (int64_t c = 0; c < t_.channels; ++c) {
      const uint32_t tap = std::min(codes[c], taps);
      bool valid = offsets_[tap] != kNowhere;
      if constexpr (kClipped) valid = valid && columns_[tap] >= columns.begin && columns_[tap] < columns.end;
      ty[c] = valid ? tx[at + c + offsets_[tap]] : Bits{0};
    }
  }

  // Where each tap of a window of this output row lies, from where the window starts.
  void FindOffsets(Range depth, Range height) {
    if (depth.begin == depth_.begin && depth.end == depth_.end && height.begin == height_.begin &&
        height.end == height_.end) {
      return;
    }
    depth_ = depth;
    height_ = height;
    const Axis& w = p_.width();
    int64_t tap = 0;
    for (int64_t d = 0; d < p_.depth().kernel; ++d) {
      for (int64_t h = 0; h < p_.height().kernel; ++h) {
        const bool valid = d >= depth.begin && d < depth.end && h >= height.begin && h < height.end;
        const int64_t row = (d * p_.depth().dilation * p_.height().in + h * p_.height().dilation) * w.in;
        for (int64_t k = 0; k < w.kernel; ++k, ++tap) {
          offsets_[tap] = valid ? (row + k * w.dilation) * t_.channels : kNowhere;
          columns_[tap] = static_cast<int32_t>(k);
        }
      }
    }
    offsets_[tap] = kNowhere;
    columns_[tap] = 0;
  }

  void ReadCodes(int64_t row, int64_t begin, int64_t end) {
    const RouteFormat& f = p_.routes;
    if (f.line == 1) {
      SpreadCodes(std::max<int>(8, f.bits), args_.routes + LineOffset(f, row * p_.width().out + begin), end - begin,
                  codes_);
      for (int64_t i = 0; i < end - begin; ++i) codes_[i] &= f.none();
    } else if (!t_.interleaved) {
      SpreadCodes(f.bits, args_.routes + LineOffset(f, row) + begin * f.bits / 8, end - begin, codes_);
    } else {
      for (int64_t ow = begin; ow < end; ++ow) {
        SpreadCodes(f.bits, args_.routes + LineOffset(f, row * p_.width().out + ow), t_.channels,
                    codes_ + (ow - begin) * t_.channels);
      }
    }
  }

  const Problem& p_;
  const Args& args_;
  const WinnerTiles t_;
  int64_t* offsets_;
  int32_t* columns_;
  uint32_t* codes_;
  Range depth_{-1, -1}, height_{-1, -1};  // what offsets_ holds
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_WINNERS_INL_H_
