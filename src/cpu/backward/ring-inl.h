// dx where windows share inputs, channels last, of the halves and of f32 with large windows: sums are made in f32, in a
// ring of as many rows as a window has, and each row is rounded into dx once when no later window reaches it.
//
// Outputs are walked in row-major order, one scalar add each at the winner, so every sum is made in that order from +0.
// The ring has the padding as columns and rows of its own, and a row for codes that name no tap: whatever a code says,
// it lands in the ring, and what must not count is never written out. So codes are not looked at before they are used.
// Which rows of the ring a window's rows are depends on where the ring stands: there is a table of offsets for each
// phase. A block of channels small enough for its ring to stay in cache is taken down the image.
#if defined(POOLGRAD_CPU_BACKWARD_RING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_RING_INL_H_
#undef POOLGRAD_CPU_BACKWARD_RING_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_RING_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/backward/adds-inl.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/ring.h"
#include "cpu/backward/round-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// T: BF16, F16 or float.
template <class T>
class Ring {
  using D = hn::FixedTag<float, 4>;
  using V = hn::Vec<D>;

 public:
  Ring(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        t_(LayOutRing(problem)),
        s_(problem, t_, scratch),
        packed_(problem.routes.bits == 4),
        dy_(static_cast<const T*>(args.source)),
        routes_(args.routes),
        dx_(static_cast<T*>(args.result)) {
    FindOffsets();
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end;) {
      const int64_t band = unit % t_.bands;
      const int64_t past = std::min(t_.bands, band + end - unit);  // neighbouring bands are one
      c0_ = unit / t_.bands % t_.blocks * t_.block;
      block_ = std::min(t_.block, p_.channels - c0_);
      image_ = unit / t_.bands / t_.blocks;
      RunBand({band * t_.band, std::min(past * t_.band, p_.height().in)});
      unit += past - band;
    }
  }

 private:
  void FindOffsets() {
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    for (int64_t phase = 0; phase < t_.phases; ++phase) {
      const int64_t first = h.start(phase) - t_.first_row;
      uint32_t* const offsets = s_.offsets + phase * 256;
      std::fill_n(offsets, 256, static_cast<uint32_t>(t_.rows * t_.row()));
      for (int64_t tap = 0; tap < p_.taps(); ++tap) {
        const int64_t row = (first + tap / w.kernel * h.dilation) % t_.rows;
        offsets[tap] = static_cast<uint32_t>(row * t_.row() + tap % w.kernel * w.dilation * t_.block);
      }
      if (!packed_) continue;
      for (uint32_t byte = 0; byte < 256; ++byte) {
        s_.pairs[phase * 256 + byte] = offsets[byte & 15] | (uint64_t{offsets[byte >> 4]} + 1) << 32;
      }
    }
  }

  void RunBand(Range rows) {
    const Axis& h = p_.height();
    std::memset(s_.sums, 0, static_cast<size_t>(t_.ring()) * sizeof(float));
    const Range ohs = {h.covering(rows.begin).begin, h.covering(rows.end - 1).end};
    int64_t done = ohs.begin < ohs.end ? std::min(rows.begin, h.start(ohs.begin)) : rows.begin;
    for (int64_t oh = ohs.begin; oh < ohs.end; ++oh) {
      for (; done < std::min(h.start(oh), rows.end); ++done) FinishRow(done, rows);
      AddRow(oh);
    }
    for (; done < rows.end; ++done) FinishRow(done, rows);
  }

  // Rounds row `row` of dx if it is one of `rows`, and clears its place in the ring for the row that comes there next.
  void FinishRow(int64_t row, Range rows) const {
    const Axis& w = p_.width();
    float* const sums = s_.sums + (row - t_.first_row) % t_.rows * t_.row();
    if (row < rows.begin) return Clear(sums, t_.row());
    float* const from = sums - t_.first_column * t_.block;
    T* const to = dx_ + (image_ * p_.height().in + row) * w.in * p_.channels + c0_;
    if (block_ == p_.channels) {
      RoundAndClear(from, 1, w.in * block_, to);
    } else {
      RoundAndClear(from, w.in, block_, to);
    }
    Clear(sums, from - sums);
    Clear(from + w.in * t_.block, t_.row() - (from - sums) - w.in * t_.block);
  }

  static void Clear(float* sums, int64_t n) { std::memset(sums, 0, static_cast<size_t>(n) * sizeof(float)); }

  // `runs` of n sums of the block become dx and are cleared.
  HWY_INLINE void RoundAndClear(float* from, int64_t runs, int64_t n, T* to) const {
    if constexpr (std::is_same_v<T, float>) {
      CopyAndClear(from, runs, n, to);
    } else {
      rounder_.Run(from, runs, n, t_.block, to, p_.channels);
    }
  }

  HWY_NOINLINE void CopyAndClear(float* HWY_RESTRICT from, int64_t runs, int64_t n, float* HWY_RESTRICT to) const {
    const D d;
    const V zero = hn::Zero(d);
    const int64_t step = t_.block;
    const int64_t to_step = p_.channels;
    for (; runs > 0; --runs, from += step, to += to_step) {
      int64_t i = 0;
      for (; i + 16 <= n; i += 16) {
        const V v0 = hn::LoadU(d, from + i), v1 = hn::LoadU(d, from + i + 4);
        const V v2 = hn::LoadU(d, from + i + 8), v3 = hn::LoadU(d, from + i + 12);
        hn::StoreU(v0, d, to + i);
        hn::StoreU(v1, d, to + i + 4);
        hn::StoreU(v2, d, to + i + 8);
        hn::StoreU(v3, d, to + i + 12);
        for (int k = 0; k < 16; k += 4) hn::StoreU(zero, d, from + i + k);
      }
      for (; i < n; ++i) {
        to[i] = from[i];
        from[i] = 0;
      }
    }
  }

  // An address to ask for, which may lie past the end.
  static const void* Ahead(const void* from, int64_t bytes) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes));
  }

  void AddRow(int64_t oh) const {
    const RouteFormat& f = p_.routes;
    const int64_t phase = oh % t_.phases * 256;
    const int64_t line = (image_ * p_.height().out + oh) * p_.width().out;
    const int64_t step = p_.width().stride * t_.block;
    const T* dy = dy_ + line * p_.channels + c0_;
    const uint8_t* routes = routes_ + LineOffset(f, line) + c0_ * f.bits / 8;
    float* to = s_.sums + (p_.width().start(0) - t_.first_column) * t_.block;
    for (int64_t ow = p_.width().out; ow > 0; --ow, to += step, dy += p_.channels, routes += f.line_bytes) {
      PrefetchRun(Ahead(dy, kRingAhead * static_cast<int64_t>(sizeof(T))), block_ * static_cast<int64_t>(sizeof(T)));
      PrefetchRun(Ahead(routes, kRingAhead * f.bits / 8), block_ * f.bits / 8);
      if (packed_) {
        AddPacked(to, dy, routes, s_.pairs + phase);
      } else if (f.bits == 8) {
        AddEach(to, dy, routes, s_.offsets + phase);
      } else {
        SpreadCodes(f.bits, routes, block_, s_.codes);
        AddEach(to, dy, s_.codes, s_.offsets + phase);
      }
    }
  }

  // Four neighbouring channels, to[at[i]] += values[i]. (On Arm one instruction multiplies a lane by 1 and adds it.)
  static HWY_INLINE void AddFour(V values, float* a, float* b, float* c, float* d) {
#if HWY_ARCH_ARM_A64
    *a = vfmas_laneq_f32(*a, 1.0f, values.raw, 0);
    *b = vfmas_laneq_f32(*b, 1.0f, values.raw, 1);
    *c = vfmas_laneq_f32(*c, 1.0f, values.raw, 2);
    *d = vfmas_laneq_f32(*d, 1.0f, values.raw, 3);
#else
    HWY_ALIGN float lanes[4];
    hn::Store(values, D(), lanes);
    *a += lanes[0];
    *b += lanes[1];
    *c += lanes[2];
    *d += lanes[3];
#endif
  }

  // The channels of a position, from codes of four bits.
  HWY_INLINE void AddPacked(float* to, const T* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT routes,
                            const uint64_t* HWY_RESTRICT pairs) const {
    const auto first = [](uint64_t pair) HWY_ATTR { return static_cast<uint32_t>(pair); };
    const D d;
    int64_t c = 0;
    for (; c + 8 <= block_; c += 8, to += 8) {
      const FourPairs at = LookUpPairs(routes + c / 2, pairs);
      const V low = LoadWide(d, dy + c);
      const V high = LoadWide(d, dy + c + 4);
      AddFour(low, to + first(at.a), to + (at.a >> 32), to + 2 + first(at.b), to + 2 + (at.b >> 32));
      AddFour(high, to + 4 + first(at.c), to + 4 + (at.c >> 32), to + 6 + first(at.d), to + 6 + (at.d >> 32));
    }
    for (; c < block_; ++c, ++to) {
      const int code = routes[c / 2] >> (c % 2 * 4) & 15;
      to[first(pairs[code])] += Widen(dy[c]);
    }
  }

  // The same from codes of a byte.
  HWY_INLINE void AddEach(float* to, const T* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT codes,
                          const uint32_t* HWY_RESTRICT offsets) const {
    const D d;
    int64_t c = 0;
    for (; c + 4 <= block_; c += 4, to += 4) {
      uint32_t four;
      std::memcpy(&four, codes + c, sizeof(four));
      AddFour(LoadWide(d, dy + c), to + offsets[four & 255], to + 1 + offsets[four >> 8 & 255],
              to + 2 + offsets[four >> 16 & 255], to + 3 + offsets[four >> 24]);
    }
    for (; c < block_; ++c, ++to) to[offsets[codes[c]]] += Widen(dy[c]);
  }

  const Problem& p_;
  const RingTiles t_;
  const RingScratch s_;
  const bool packed_;  // codes of four bits are used as they are
  const T* const dy_;
  const uint8_t* const routes_;
  T* const dx_;
  const SumRounder<std::conditional_t<std::is_same_v<T, float>, BF16, T>> rounder_{};
  // The unit at work.
  int64_t image_ = 0, c0_ = 0, block_ = 0;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_RING_INL_H_
