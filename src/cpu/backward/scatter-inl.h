// Outputs that each name their winner, one scalar addition each: any window, stride, dilation, rank, layout and width of codes.
// The cost does not depend on the window's size.
//
// Vectors turn the codes of a piece of outputs into places among the sums (sums-inl.h): a code is divided by the window's width
// and height in f32 (exact below kMostArithmeticTaps) and its three parts are weighed with the steps of the sums. A code that is
// no tap goes to a place in front that nobody reads. Then one loop adds, or copies (unpool).
//
// Neighbouring windows often have the same winner, and a sum that was just stored is not there yet when it is loaded again (9
// cycles). Channels first, four planes in step put three other additions in between; channels last, neighbours are different
// channels.
//
// Sets of ties, and windows that reach much further than there are inputs (SumsLayout::exact), go tap by tap.
#if defined(POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// T: the element type, or for unpool the unsigned integer of its size. S: what sums are made in.
template <class T, class S, bool kCopy>
class Scatter {
 public:
  // With null scratch it only counts what it needs.
  Scatter(const Problem& problem, const SumsLayout& l, std::byte* scratch) : p_(problem) {
    ScratchTaker take(scratch);
    sums = take.Take<S>(l.sums());
    offset_step_ = l.piece_elements() + kRowSlack;
    offsets_ = take.Take<uint32_t>(offset_step_ * (l.whole ? 1 : l.group));
    ramp_ = take.Take<uint32_t>(offset_step_);
    codes_ = take.Take<uint32_t>(kRowLead + 3 * offset_step_ + kRowSlack) + kRowLead;
    bytes = take.used();
  }

  S* sums;
  int64_t bytes;

  void Begin(const Sums<T, S>& s) {
    FindRamp(s);
    const Axis* a = p_.axis;
    weight_[2] = static_cast<int32_t>(a[2].dilation * s.step[2]);
    weight_[1] = static_cast<int32_t>(a[1].dilation * s.step[1] - a[2].kernel * a[2].dilation * s.step[2]);
    weight_[0] = static_cast<int32_t>(a[0].dilation * s.step[0] - a[1].kernel * a[1].dilation * s.step[1]);
    for (int64_t t = 0; t < std::min(p_.taps(), kMostTable); ++t) {
      const int64_t row = t / a[2].kernel;
      table_[t] = static_cast<uint32_t>(t * weight_[2] + row * weight_[1] + row / a[1].kernel * weight_[0]);
    }
  }

  void Add(const Sums<T, S>& s, const Batch& b) {
    if (p_.routes.masks) return Masks(s, b);
    const int64_t n = b.rows * b.ow.size() * s.lanes;
    const T* const source = s.Source(s.OutputOf(b.image, b.od, b.oh, b.ow.begin));
    if (b.whole) {
      FindOffsets(s, b, 0, b.images * b.rows, offsets_);
      if (b.images % kImagesInStep != 0) return AddOne(s.sums(), source, offsets_, b.images * n);
      const int64_t quarter = b.images / kImagesInStep * n;
      return AddFour(s.sums(), source, quarter, offsets_, quarter, quarter);
    }
    const int64_t source_step = p_.out_plane() * s.l.lanes;
    for (int64_t i = 0; i < b.images; ++i) FindOffsets(s, b, i, b.rows, offsets_ + i * offset_step_);
    if (b.images == kImagesInStep) return AddFour(s.sums(), source, source_step, offsets_, offset_step_, n);
    for (int64_t i = 0; i < b.images; ++i) {
      const T* from = source + i * source_step;
      const uint32_t* offsets = offsets_ + i * offset_step_;
      if (s.flat()) {
        AddOne(s.sums(), from, offsets, n);
      } else {
        for (int64_t o = 0; o < b.ow.size(); ++o) AddOne(s.sums(), from + o * s.l.lanes, offsets + o * s.lanes, s.lanes);
      }
    }
  }

 private:
  // Where outputs begin from where the first one of a piece does: as many rows, or images, as a piece has.
  void FindRamp(const Sums<T, S>& s) {
    const Axis* a = p_.axis;
    const int64_t row_step = a[1].stride * s.step[1];
    if (ramp_lanes_ == s.lanes && ramp_row_ == row_step) return;
    ramp_lanes_ = s.lanes;
    ramp_row_ = row_step;
    const int64_t positions = std::min(s.l.piece, a[2].out);
    const int64_t slices = s.l.whole ? s.l.piece / p_.out_plane() * a[0].out : 1;
    const int64_t rows = s.l.whole ? a[1].out : std::min(s.l.piece / positions, a[1].out);
    uint32_t* ramp = ramp_;
    for (int64_t d = 0; d < slices; ++d) {
      const int64_t slice = d / a[0].out * s.plane + d % a[0].out * a[0].stride * s.step[0];
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < positions; ++o) {
          const auto at = static_cast<uint32_t>(slice + r * row_step + o * a[2].stride * s.step[2]);
          for (int64_t c = 0; c < s.lanes; ++c) *ramp++ = at + static_cast<uint32_t>(c);
        }
      }
    }
  }

  // Where the outputs of `rows` rows from the batch's first on, of its image i, add.
  void FindOffsets(const Sums<T, S>& s, const Batch& b, int64_t i, int64_t rows, uint32_t* to) const {
    if (p_.routes.bits <= 8) {
      FindOffsets(s, b, i, rows, reinterpret_cast<uint8_t*>(codes_), to);
    } else if (p_.routes.bits == 16) {
      FindOffsets(s, b, i, rows, reinterpret_cast<uint16_t*>(codes_), to);
    } else {
      FindOffsets(s, b, i, rows, codes_, to);
    }
  }

  template <class Code>
  HWY_NOINLINE void FindOffsets(const Sums<T, S>& s, const Batch& b, int64_t i, int64_t rows, Code* codes, uint32_t* to) const {
    const int64_t row = ((s.image + b.image + i) * p_.depth().out + b.od) * p_.height().out + b.oh;
    const RouteFormat& f = p_.routes;
    const int64_t n = rows * b.ow.size() * s.lanes;
    Code* const spare = codes + offset_step_;
    if (s.flat() && b.ow.size() == p_.width().out) {  // whole lines
      const int64_t lines = p_.channels_last() ? p_.width().out : 1;
      ReadLines(f, s.args.routes + LineOffset(f, row * lines), rows * lines, codes, spare);
    } else {
      ReadCodes(p_, s.args.routes, row, b.ow.begin, b.ow.size(), s.lane, s.lanes, codes, spare);  // rows is 1
    }
    if (s.l.exact) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = b.ow.begin; o < b.ow.end; ++o) {
          for (int64_t c = 0; c < s.lanes; ++c) *to++ = static_cast<uint32_t>(PlaceOf(s, b.image + i, b.od, b.oh + r, o, c, *codes++));
        }
      }
      return;
    }
    const hn::ScalableTag<uint32_t> du;
    const hn::RebindToSigned<decltype(du)> di;
    const hn::RebindToFloat<decltype(du)> df;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(du));
    const auto taps = hn::Set(du, static_cast<uint32_t>(p_.taps()));
    const auto start = hn::Set(du, static_cast<uint32_t>(s.PlaceOf(b.image + i, b.od, b.oh, b.ow.begin)));
    const auto half = hn::Set(df, 0.5f);
    const auto per_row = hn::Set(df, 1.0f / static_cast<float>(p_.width().kernel));
    const auto per_slice = hn::Set(df, 1.0f / static_cast<float>(p_.width().kernel * p_.height().kernel));
    const auto weight0 = hn::Set(di, weight_[0]);
    const auto weight1 = hn::Set(di, weight_[1]);
    const auto weight2 = hn::Set(di, weight_[2]);
    const bool deep = p_.depth().kernel > 1;
    if (p_.taps() <= lanes) {  // few taps are looked up
      const auto table = hn::LoadU(du, table_);
      for (int64_t at = 0; at < n; at += lanes) {
        const auto code = Promoted(du, codes + at);
        const auto place = hn::TableLookupLanes(table, hn::IndicesFromVec(du, hn::And(code, hn::Set(du, static_cast<uint32_t>(lanes - 1)))));
        const auto found = hn::Add(place, hn::Add(start, hn::LoadU(du, ramp_ + at)));
        hn::StoreU(hn::IfThenElseZero(hn::Lt(code, taps), found), du, to + at);
      }
      return;
    }
    for (int64_t at = 0; at < n; at += lanes) {
      const auto code = Promoted(du, codes + at);
      const auto number = hn::BitCast(di, code);
      const auto middle = hn::Add(hn::ConvertTo(df, number), half);
      auto place = hn::Mul(number, weight2);
      place = hn::Add(place, hn::Mul(hn::ConvertTo(di, hn::Mul(middle, per_row)), weight1));
      if (deep) place = hn::Add(place, hn::Mul(hn::ConvertTo(di, hn::Mul(middle, per_slice)), weight0));
      const auto found = hn::Add(hn::BitCast(du, place), hn::Add(start, hn::LoadU(du, ramp_ + at)));
      hn::StoreU(hn::IfThenElseZero(hn::Lt(code, taps), found), du, to + at);
    }
  }

  template <class DU, class Code>
  static HWY_INLINE hn::Vec<DU> Promoted(DU du, const Code* codes) {
    if constexpr (sizeof(Code) == 4) {
      return hn::LoadU(du, codes);
    } else {
      return hn::PromoteTo(du, hn::LoadU(hn::Rebind<Code, DU>(), codes));
    }
  }

  // Where a tap of output (od, oh, ow) of image i, lane c, lies; 0 where it is none, or outside the box.
  int64_t PlaceOf(const Sums<T, S>& s, int64_t i, int64_t od, int64_t oh, int64_t ow, int64_t c, int64_t tap) const {
    if (tap >= p_.taps()) return 0;
    const int64_t o[] = {od, oh, ow};
    int64_t at[3];
    for (int axis = 2; axis >= 0; --axis) {
      const Axis& a = p_.axis[axis];
      if (tap % a.kernel >= a.size(o[axis])) return 0;
      at[axis] = a.start(o[axis]) + tap % a.kernel * a.dilation;
      if (at[axis] < s.span[axis].in.begin || at[axis] >= s.span[axis].in.end) return 0;
      tap /= a.kernel;
    }
    return s.PlaceOfInput(i, at[0], at[1], at[2]) + c;
  }

  // Sets of ties: bit by bit.
  HWY_NOINLINE void Masks(const Sums<T, S>& s, const Batch& b) const {
    const RouteFormat& f = p_.routes;
    const int64_t mask_bytes = f.mask_bytes();
    const int64_t height = p_.height().out;
    for (int64_t i = b.image; i < b.image + b.images; ++i) {
      for (int64_t r = 0; r < b.rows; ++r) {
        const int64_t od = b.od + (b.oh + r) / height;
        const int64_t oh = (b.oh + r) % height;
        for (int64_t ow = b.ow.begin; ow < b.ow.end; ++ow) {
          const int64_t output = s.OutputOf(i, od, oh, ow);
          const T* const source = s.Source(output);
          const int64_t index = output * s.l.lanes + s.lane;
          const uint8_t* mask = s.args.routes + LineOffset(f, index / f.line) + index % f.line * mask_bytes;
          for (int64_t c = 0; c < s.lanes; ++c, mask += mask_bytes) {
            S share = Value(source[c]);
            if (!kCopy && p_.ties == POOLGRAD_TIES_SPLIT) {
              int64_t count = 0;
              for (int64_t byte = 0; byte < mask_bytes; ++byte) count += std::popcount(mask[byte]);
              share = static_cast<S>(share / static_cast<S>(std::max<int64_t>(1, count)));
            }
            for (int64_t byte = 0; byte < mask_bytes; ++byte) {
              for (unsigned bits = mask[byte]; bits != 0; bits &= bits - 1) {
                Put(s.sums()[PlaceOf(s, i, od, oh, ow, c, byte * 8 + std::countr_zero(bits))], share);
              }
            }
          }
        }
      }
    }
  }

  static HWY_INLINE S Value(T value) {
    if constexpr (kCopy) {
      return value;
    } else {
      return Widen(value);
    }
  }
  static HWY_INLINE void Put(S& sum, S value) { sum = kCopy ? value : static_cast<S>(sum + value); }

  // n values, less or equal kRun, as they are added: where they lie, or widened.
  static constexpr int64_t kRun = 16;
  static HWY_INLINE const S* Values(const T* source, int64_t n, S* wide) {
    if constexpr (std::is_same_v<T, S>) {
      return source;
    } else {
      const hn::CappedTag<S, kRun> d;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      if (n == kRun) {
        for (int64_t k = 0; k < kRun; k += lanes) hn::Store(LoadWide(d, source + k), d, wide + k);
      } else {
        for (int64_t k = 0; k < n; ++k) wide[k] = Widen(source[k]);
      }
      return wide;
    }
  }

  static HWY_NOINLINE void AddOne(S* sums, const T* HWY_RESTRICT source, const uint32_t* HWY_RESTRICT offsets, int64_t n) {
    HWY_ALIGN S wide[kRun];
    for (; n > 0; n -= kRun, source += kRun, offsets += kRun) {
      const int64_t run = std::min(n, kRun);
      const S* HWY_RESTRICT values = Values(source, run, wide);
      if (run == kRun) {
        for (int64_t i = 0; i < kRun; ++i) Put(sums[offsets[i]], values[i]);
      } else {
        for (int64_t i = 0; i < run; ++i) Put(sums[offsets[i]], values[i]);
      }
    }
  }

  // Four runs of n outputs each, in step; they add to different images.
  static HWY_NOINLINE void AddFour(S* sums, const T* HWY_RESTRICT source, int64_t source_step,
                                   const uint32_t* HWY_RESTRICT offsets, int64_t step, int64_t n) {
    static_assert(kImagesInStep == 4);
    HWY_ALIGN S wide[4 * kRun];
    for (; n > 0; n -= kRun, source += kRun, offsets += kRun) {
      const int64_t run = std::min(n, kRun);
      const S* HWY_RESTRICT v0 = Values(source, run, wide);
      const S* HWY_RESTRICT v1 = Values(source + source_step, run, wide + kRun);
      const S* HWY_RESTRICT v2 = Values(source + 2 * source_step, run, wide + 2 * kRun);
      const S* HWY_RESTRICT v3 = Values(source + 3 * source_step, run, wide + 3 * kRun);
      for (int64_t i = 0; i < run; ++i) {
        Put(sums[offsets[i]], v0[i]);
        Put(sums[offsets[i + step]], v1[i]);
        Put(sums[offsets[i + 2 * step]], v2[i]);
        Put(sums[offsets[i + 3 * step]], v3[i]);
      }
    }
  }

  const Problem& p_;
  uint32_t* offsets_;
  int64_t offset_step_;
  uint32_t* ramp_;
  int64_t ramp_lanes_ = 0, ramp_row_ = 0;
  uint32_t* codes_;
  int32_t weight_[3];
  static constexpr int64_t kMostTable = hn::MaxLanes(hn::ScalableTag<uint32_t>());
  uint32_t table_[kMostTable] = {};  // of taps
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
