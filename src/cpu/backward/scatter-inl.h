// Outputs that each name their winner, one scalar addition each: any window, stride, dilation, rank, layout and width
// of codes. The cost does not depend on the window's size. Codes become places by vectors (places-inl.h); then one loop
// adds, or copies (unpool), into dx or into the sums of the halves (sums-inl.h).
//
// Neighbouring windows often have the same winner, and a sum that was just stored is not there yet when it is loaded
// again (9 cycles). Where lanes are few, four images in step put three other additions in between; channels last,
// neighbours are different channels.
//
// Sets of ties, and windows of a million taps, go tap by tap.
//
// Tried and left: small windows by vectors, where every tap of an output adds dy if the code names it. With vectors of
// 64 bytes 3x3 takes as long channels last, and 1.5 times as long in short rows channels first. dy asked for while
// places are found: no gain.
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

#include "cpu/backward/backward.h"
#include "cpu/backward/places-inl.h"
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
  Scatter(const Problem& problem, const SumsLayout& l, std::byte* scratch)
      : p_(problem),
        take_(scratch),
        sums(take_.template Take<S>(l.sums)),
        one_by_one_(problem.routes.masks || problem.taps() > kMostArithmeticTaps),
        places_(problem, l, take_),
        to_(take_.template Take<uint32_t>(places_.capacity() * (l.whole ? 1 : l.group))),
        bytes(take_.used()) {}

 private:
  const Problem& p_;
  ScratchTaker take_;

 public:
  S* const sums;

  void Begin(const Sums<T, S>& s) {
    if (!one_by_one_) places_.Begin(s);
  }

  void Add(const Sums<T, S>& s, const Batch& b) {
    if (one_by_one_) return TapByTap(s, b);
    const int64_t n = b.rows * b.ow.size() * s.lanes;
    const T* const source = s.Source(s.OutputOf(b.image, b.od, b.oh, b.ow.begin));
    // Where the first output's window begins; it may lie before the memory that is added to.
    S* const first = s.At(b.image, p_.depth().start(b.od), p_.height().start(b.oh), p_.width().start(b.ow.begin));
    if (b.whole) {
      const bool all = places_.Find(s, b, 0, b.images * b.rows, to_);
      if (b.images % kImagesInStep != 0 || !all) return AddOne(first, source, to_, b.images * n, all);
      const int64_t quarter = b.images / kImagesInStep * n;
      return AddFour(first, 0, source, quarter, to_, quarter, quarter);
    }
    const int64_t source_step = p_.out_plane() * s.l.lanes;
    const int64_t step = places_.capacity();
    bool all[kImagesInStep];
    bool every = true;
    for (int64_t i = 0; i < b.images; ++i) every &= all[i] = places_.Find(s, b, i, b.rows, to_ + i * step);
    if (b.images == kImagesInStep && every) return AddFour(first, s.plane, source, source_step, to_, step, n);
    for (int64_t i = 0; i < b.images; ++i) {
      const T* from = source + i * source_step;
      const uint32_t* places = to_ + i * step;
      const int64_t runs = s.flat() ? 1 : b.ow.size();
      const int64_t run = s.flat() ? n : s.lanes;
      for (int64_t r = 0; r < runs; ++r)
        AddOne(first + i * s.plane, from + r * s.l.lanes, places + r * run, run, all[i]);
    }
  }

 private:
  // Where a tap of output (od, oh, ow) of image i, lane c, adds; null where it is none, or outside the box.
  S* PlaceOf(const Sums<T, S>& s, int64_t i, int64_t od, int64_t oh, int64_t ow, int64_t c, int64_t tap) const {
    if (tap >= p_.taps()) return nullptr;
    const int64_t o[] = {od, oh, ow};
    int64_t at[3];
    for (int axis = 2; axis >= 0; --axis) {
      const Axis& a = p_.axis[axis];
      if (tap % a.kernel >= a.size(o[axis])) return nullptr;
      at[axis] = a.start(o[axis]) + tap % a.kernel * a.dilation;
      if (at[axis] < s.span[axis].in.begin || at[axis] >= s.span[axis].in.end) return nullptr;
      tap /= a.kernel;
    }
    return s.At(i, at[0], at[1], at[2]) + c;
  }

  HWY_NOINLINE void TapByTap(const Sums<T, S>& s, const Batch& b) const {
    const RouteFormat& f = p_.routes;
    const int64_t height = p_.height().out;
    for (int64_t i = b.image; i < b.image + b.images; ++i) {
      for (int64_t r = 0; r < b.rows; ++r) {
        const int64_t od = b.od + (b.oh + r) / height;
        const int64_t oh = (b.oh + r) % height;
        for (int64_t ow = b.ow.begin; ow < b.ow.end; ++ow) {
          const int64_t output = s.OutputOf(i, od, oh, ow);
          const T* const source = s.Source(output);
          const int64_t index = output * s.l.lanes + s.lane;
          const uint8_t* const line = s.args.routes + LineOffset(f, index / f.line);
          for (int64_t c = 0; c < s.lanes; ++c) {
            const auto put = [&](int64_t tap, S value) {
              if (S* const sum = PlaceOf(s, i, od, oh, ow, c, tap)) Put(*sum, value);
            };
            const int64_t at = index % f.line + c;
            if (!f.masks) {
              put(LoadCode(f, line, at), Value(source[c]));
            } else {
              GiveToTies(line + at * f.mask_bytes(), Value(source[c]), put);
            }
          }
        }
      }
    }
  }

  template <class PutTo>
  void GiveToTies(const uint8_t* mask, S share, PutTo&& put) const {
    const int64_t bytes_of_mask = p_.routes.mask_bytes();
    if (!kCopy && p_.ties == POOLGRAD_TIES_SPLIT) {
      int64_t count = 0;
      for (int64_t b = 0; b < bytes_of_mask; ++b) count += std::popcount(mask[b]);
      share = static_cast<S>(share / static_cast<S>(std::max<int64_t>(1, count)));
    }
    for (int64_t b = 0; b < bytes_of_mask; ++b) {
      for (unsigned bits = mask[b]; bits != 0; bits &= bits - 1) put(b * 8 + std::countr_zero(bits), share);
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

  // `all`: every output has a place.
  static HWY_NOINLINE void AddOne(S* sums_at, const T* HWY_RESTRICT source, const uint32_t* HWY_RESTRICT places,
                                  int64_t n, bool all) {
    HWY_ALIGN S wide[kRun];
    for (; n > 0; n -= kRun, source += kRun, places += kRun) {
      const int64_t run = std::min(n, kRun);
      const S* HWY_RESTRICT values = Values(source, run, wide);
      if (!all) {
        for (int64_t i = 0; i < run; ++i) {
          if (places[i] != kNoPlace) Put(sums_at[places[i]], values[i]);
        }
      } else if (run == kRun) {
        for (int64_t i = 0; i < kRun; ++i) Put(sums_at[places[i]], values[i]);
      } else {
        for (int64_t i = 0; i < run; ++i) Put(sums_at[places[i]], values[i]);
      }
    }
  }

  // Four runs of n outputs each, in step; they add to different images.
  static HWY_NOINLINE void AddFour(S* sums0, int64_t plane, const T* HWY_RESTRICT source, int64_t source_step,
                                   const uint32_t* HWY_RESTRICT places, int64_t step, int64_t n) {
    static_assert(kImagesInStep == 4);
    S* const sums1 = sums0 + plane;
    S* const sums2 = sums1 + plane;
    S* const sums3 = sums2 + plane;
    HWY_ALIGN S wide[4 * kRun];
    for (; n > 0; n -= kRun, source += kRun, places += kRun) {
      const int64_t run = std::min(n, kRun);
      const S* HWY_RESTRICT v0 = Values(source, run, wide);
      const S* HWY_RESTRICT v1 = Values(source + source_step, run, wide + kRun);
      const S* HWY_RESTRICT v2 = Values(source + 2 * source_step, run, wide + 2 * kRun);
      const S* HWY_RESTRICT v3 = Values(source + 3 * source_step, run, wide + 3 * kRun);
      const uint32_t* HWY_RESTRICT to0 = places;
      const uint32_t* HWY_RESTRICT to1 = places + step;
      const uint32_t* HWY_RESTRICT to2 = places + 2 * step;
      const uint32_t* HWY_RESTRICT to3 = places + 3 * step;
      const auto add = [&](int64_t i) {
        Put(sums0[to0[i]], v0[i]);
        Put(sums1[to1[i]], v1[i]);
        Put(sums2[to2[i]], v2[i]);
        Put(sums3[to3[i]], v3[i]);
      };
      if (run == kRun) {
        for (int64_t i = 0; i < kRun; ++i) add(i);
      } else {
        for (int64_t i = 0; i < run; ++i) add(i);
      }
    }
  }

  const bool one_by_one_;
  Places places_;
  uint32_t* const to_;

 public:
  const int64_t bytes;
};

template <class T, class S, bool kCopy>
void RunScatter(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Scatter<T, S, kCopy> scatter(p, *static_cast<const SumsLayout*>(args.layout), scratch);
  Sums<T, S>(p, args, scatter.sums).Run(begin, end, scatter);
}

template <class T, class S, bool kCopy>
Selected ScatterOf(const Problem& p, const SumsLayout& l) {
  return {RunScatter<T, S, kCopy>, Scatter<T, S, kCopy>(p, l, nullptr).bytes};
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
