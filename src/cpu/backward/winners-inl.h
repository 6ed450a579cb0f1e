// gather_winners: ty = S tx. Every output takes the tangent of the input that won it, bit for bit; 0 where the code
// names no valid tap.
//
// A table of where each tap lies turns a code into an address. Whether a tap's depth and height are valid is settled
// once per output row, its width once per output.
#if defined(POOLGRAD_CPU_BACKWARD_WINNERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_WINNERS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_WINNERS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_WINNERS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/backward/backward.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kNowhere = std::numeric_limits<int64_t>::min();  // an offset that is none
inline constexpr int64_t kMostWinnerTaps = 1 << 16;
inline constexpr int64_t kWinnerPiece = 4096;

class Winners {
 public:
  // With null scratch it only counts what it needs.
  Winners(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem), args_(args), channels_(problem.channels_last() ? problem.channels : 1) {
    block_ = std::min(channels_, kWinnerPiece);
    tile_ = std::max<int64_t>(1, kWinnerPiece / block_);
    ScratchTaker take(scratch);
    offsets_ = take.Take<int64_t>(p_.taps() + 1);
    columns_ = take.Take<int32_t>(p_.taps() + 1);
    codes_ = take.Take<uint32_t>(kRowLead + 3 * (tile_ * block_ + kRowSlack)) + kRowLead;
    spare_ = codes_ + tile_ * block_ + kRowSlack;
    bytes = take.used();
  }

  int64_t bytes;

  // Units are output rows.
  void Run(int64_t begin, int64_t end) {
    const Axis& w = p_.width();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t oh = row % p_.height().out;
      const int64_t od = row / p_.height().out % p_.depth().out;
      const int64_t image = row / (p_.height().out * p_.depth().out);
      FindOffsets(p_.depth().valid_taps(od), p_.height().valid_taps(oh));
      const int64_t start =
          image * p_.in_plane() + (p_.depth().start(od) * p_.height().in + p_.height().start(oh)) * w.in;
      for (int64_t ow = 0; ow < w.out; ow += tile_) {
        const Range some = {ow, std::min(ow + tile_, w.out)};
        for (int64_t c = 0; c < channels_; c += block_) {
          const int64_t lanes = std::min(block_, channels_ - c);
          ReadCodes(p_, args_.routes, row, ow, some.size(), c, lanes, codes_, spare_);
          const int64_t from = start * channels_ + c, to = row * w.out * channels_ + c;
          if (SizeOf(p_.dtype) == 4) Take<uint32_t>(from, some, lanes, to);
#ifndef POOLGRAD_SMALL
          if (SizeOf(p_.dtype) == 1) Take<uint8_t>(from, some, lanes, to);
          if (SizeOf(p_.dtype) == 2) Take<uint16_t>(from, some, lanes, to);
          if (SizeOf(p_.dtype) == 8) Take<uint64_t>(from, some, lanes, to);
#endif
        }
      }
    }
  }

 private:
  // Outputs `some` of a row whose first one is ty[to], and whose first window begins at tx[from] but for the padding.
  // Bits: the unsigned integer of the element's size.
  template <class Bits>
  HWY_NOINLINE void Take(int64_t from, Range some, int64_t lanes, int64_t to) const {
    const Axis& w = p_.width();
    const Range inner = w.interior();
    const uint32_t taps = static_cast<uint32_t>(p_.taps());
    const Bits* const tx = static_cast<const Bits*>(args_.source);
    const uint32_t* codes = codes_;
    for (int64_t o = some.begin; o < some.end; ++o, codes += lanes) {
      const Range columns = o < inner.begin || o >= inner.end ? w.valid_taps(o) : Range{0, w.kernel};
      const int64_t at = from + w.start(o) * channels_;
      Bits* const ty = static_cast<Bits*>(args_.result) + to + o * channels_;
      for (int64_t c = 0; c < lanes; ++c) {
        const uint32_t tap = std::min(codes[c], taps);
        const bool valid = offsets_[tap] != kNowhere && columns_[tap] >= columns.begin && columns_[tap] < columns.end;
        ty[c] = valid ? tx[at + c + offsets_[tap]] : Bits{0};
      }
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
          offsets_[tap] = valid ? (row + k * w.dilation) * channels_ : kNowhere;
          columns_[tap] = static_cast<int32_t>(k);
        }
      }
    }
    offsets_[tap] = kNowhere;
    columns_[tap] = 0;
  }

  const Problem& p_;
  const Args& args_;
  const int64_t channels_;
  int64_t block_, tile_;  // channels, and positions, whose codes are unpacked together
  int64_t* offsets_;
  int32_t* columns_;
  uint32_t* codes_;
  uint32_t* spare_;
  Range depth_{-1, -1}, height_{-1, -1};  // what offsets_ holds
};

inline void RunWinners(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Winners(p, args, scratch).Run(begin, end);
}

inline Made MakeWinners(const Problem& p, poolgrad_op op, const Host&) {
  if (op != POOLGRAD_OP_GATHER) return "it does gather only";
  if (p.kind == POOLGRAD_AVERAGE) return "an average has no winners";
  if (p.routes.masks) return "the routes are sets of taps";
  if (p.taps() > kMostWinnerTaps) return "the window has too many taps";
#ifdef POOLGRAD_SMALL
  if (SizeOf(p.dtype) != 4) return kNoVectors;
#endif
  const int64_t images = p.channels_last() ? p.batch : p.batch * p.channels;
  return Kernel{RunWinners, images * p.depth().out * p.height().out, Winners(p, Args{}, nullptr).bytes};
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_WINNERS_INL_H_
