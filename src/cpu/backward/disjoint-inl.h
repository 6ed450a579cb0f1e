// bwd_disjoint: halves in windows that share no input, by vectors. Every input has one writer at most, so dx is written
// once, zeros included, in the order it lies in memory: a vector of dx is dy where the code names its tap and 0
// elsewhere.
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the
// first also those before, the last those after). A unit is a row of outputs with all input rows that it owns.
//   channels last   vectors over channels, position after position; any window
//   channels first  windows of up to four columns that tile the width: one vector per column, interleaved when stored
// What is written are bits: dy as 0 + dy makes it (unpool: as it is) and the codes are spread to lanes of scratch
// first. Everything else is bwd_scatter's, which copies such halves one by one: short rows, few channels, large
// windows, wide ones channels first. This takes 0.6 to 0.7 of its time in 2x2, 2x1 and 2x3, 0.85 in 3x3 and as long in
// 4x4 (AVX-512).
//
// Tried and left: dx written past the caches where it is larger than they are; it took 1.2 times as long (f32, AVX-512,
// one thread). Lines of dx asked for ahead, as bwd_scatter does where it zeroes: no gain channels last.
#if defined(POOLGRAD_CPU_BACKWARD_DISJOINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_DISJOINT_INL_H_
#undef POOLGRAD_CPU_BACKWARD_DISJOINT_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_DISJOINT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/kept.h"
#include "cpu/backward/backward.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/scratch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SSE4 || defined(POOLGRAD_SMALL)

inline Made MakeDisjoint(const Problem&, poolgrad_op, const Host&) { return "bwd_scatter is faster here"; }

#else

struct DisjointLayout {
  bool unpool;
  int64_t lanes;  // the channels, or 1
  int64_t piece;  // positions of outputs taken together
  bool one_row;   // channels first: all of dx is tiled without a gap
};

// Of outputs, channels first, and channels last: with fewer, a row or a position costs more than one by one. (2x2,
// bf16, AVX-512: rows of 28 outputs 0.6 to 0.9 times as fast as bwd_scatter, 44 1.1, 56 1.4, 112 1.6.)
inline constexpr int64_t kLeastColumns = 48;
inline constexpr int64_t kLeastChannels = 32;
inline constexpr int64_t kMostInputs = 20;  // for an output: with more, most of dx is only zeroed

inline Range OwnedBy(const Axis& a, int64_t o) {
  return {o == 0 ? 0 : std::clamp<int64_t>(a.start(o), 0, a.in),
          o == a.out - 1 ? a.in : std::clamp<int64_t>(a.start(o + 1), 0, a.in)};
}

// Which tap of output o lies on input i, which it owns; -1 when none does. (Dividing costs more than a short row.)
inline int64_t OwnTap(const Axis& a, int64_t o, int64_t i) {
  if (a.dilation != 1) return a.tap_at(o, i);
  const int64_t tap = i - a.start(o);
  return tap < a.kernel ? std::max<int64_t>(tap, -1) : -1;
}

class Disjoint {
  using Bits = uint16_t;
  using D = hn::ScalableTag<Bits>;
  using V = hn::Vec<D>;
  static_assert(hn::MaxLanes(D()) <= kLeastChannels);

 public:
  // With null scratch it only counts what it needs.
  Disjoint(const Problem& problem, const Args& args, const DisjointLayout& l, std::byte* scratch)
      : p_(problem), args_(args), l_(l), in_(problem.width().in) {
    ScratchTaker take(scratch);
    const int64_t n = l.piece * l.lanes + kRowSlack;
    all_values_ = take.Take<Bits>(n);
    all_codes_ = take.Take<Bits>(kRowLead + 3 * n + kRowSlack) + kRowLead;
    spare_ = all_codes_ + n;
    bytes = take.used();
  }

  int64_t bytes;

  void Run(int64_t begin, int64_t end) {
    const Axis* a = p_.axis;
    const int64_t together = std::max<int64_t>(1, l_.piece / a[2].out);  // rows that are read at once
    if (l_.one_row) return RunOneRow(begin, end, together);
    int64_t oh = begin % a[1].out;
    int64_t od = begin / a[1].out % a[0].out;
    int64_t image = begin / a[1].out / a[0].out;
    for (int64_t unit = begin, ready = 0; unit < end; ++unit) {
      const Range depth = OwnedBy(a[0], od), height = OwnedBy(a[1], oh);
      for (int64_t ow = 0; ow < a[2].out; ow += l_.piece) {
        const Range outputs = {ow, std::min(ow + l_.piece, a[2].out)};
        if (ready == 0) Read(unit, std::min(together, end - unit), outputs);
        values_ = all_values_ + ready * a[2].out * l_.lanes;
        codes_ = all_codes_ + ready * a[2].out * l_.lanes;
        for (int64_t d = depth.begin; d < depth.end; ++d) {
          const int64_t kd = OwnTap(a[0], od, d);
          Bits* row =
              static_cast<Bits*>(args_.result) + ((image * a[0].in + d) * a[1].in + height.begin) * a[2].in * l_.lanes;
          for (int64_t h = height.begin; h < height.end; ++h, row += a[2].in * l_.lanes) {
            const int64_t kh = OwnTap(a[1], oh, h);
            if (kd < 0 || kh < 0) {
              Zero(row, {OwnedBy(a[2], outputs.begin).begin, OwnedBy(a[2], outputs.end - 1).end});
            } else {
              const int64_t tap = (kd * a[1].kernel + kh) * a[2].kernel;
              p_.channels_last() ? WriteLast(tap, outputs, row) : WriteFirst(tap, outputs, row);
            }
          }
        }
      }
      if (++ready == together) ready = 0;
      if (++oh == a[1].out) {
        oh = 0;
        if (++od == a[0].out) od = 0, ++image;
      }
    }
  }

 private:
  // Rows of dx that windows tile without a rest follow one another: one long row.
  void RunOneRow(int64_t begin, int64_t end, int64_t together) {
    const Axis& w = p_.width();
    for (int64_t unit = begin; unit < end; unit += together) {
      const int64_t rows = std::min(together, end - unit);
      Read(unit, rows, {0, w.out});
      values_ = all_values_;
      codes_ = all_codes_;
      in_ = rows * w.in;
      WriteFirst(0, {0, rows * w.out}, static_cast<Bits*>(args_.result) + unit * w.in);
    }
  }

  void Read(int64_t row, int64_t rows, Range ow) {
    const int64_t n = rows * ow.size() * l_.lanes;
    const Bits* const source = static_cast<const Bits*>(args_.source) + (row * p_.width().out + ow.begin) * l_.lanes;
    if (l_.unpool) {
      std::memcpy(all_values_, source, static_cast<size_t>(n) * sizeof(Bits));
    } else if (p_.dtype == POOLGRAD_F16) {
      SpreadHalfBits<F16>(source, n, all_values_);
    } else {
      SpreadHalfBits<BF16>(source, n, all_values_);
    }
    ReadRows(p_, args_.routes, row, rows, ow, 0, l_.lanes, all_codes_, spare_);
  }

  void Zero(Bits* row, Range w) const {
    if (w.size() > 0) std::memset(row + w.begin * l_.lanes, 0, static_cast<size_t>(w.size() * l_.lanes) * sizeof(Bits));
  }

  static HWY_INLINE V Kept(const Bits* values, const Bits* codes, V tap) {
    const D d;
    return hn::IfThenElseZero(hn::Eq(hn::LoadU(d, codes), tap), hn::LoadU(d, values));
  }

  void WriteLast(int64_t first_tap, Range ow, Bits* row) const {
    const D d;
    const Axis& a = p_.width();
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const int64_t lanes = l_.lanes;
    for (int64_t o = ow.begin; o < ow.end; ++o) {
      const Bits* const values = values_ + (o - ow.begin) * lanes;
      const Bits* const codes = codes_ + (o - ow.begin) * lanes;
      const Range owned = OwnedBy(a, o);
      for (int64_t w = owned.begin; w < owned.end; ++w) {
        const int64_t k = OwnTap(a, o, w);
        if (k < 0) {
          Zero(row, {w, w + 1});
          continue;
        }
        Bits* const to = row + w * lanes;
        const V tap = hn::Set(d, static_cast<Bits>(first_tap + k));
        int64_t c = 0;
        for (; c + n <= lanes; c += n) hn::StoreU(Kept(values + c, codes + c, tap), d, to + c);
        if (c < lanes) hn::StoreU(Kept(values + lanes - n, codes + lanes - n, tap), d, to + lanes - n);  // some again
      }
    }
  }

  void WriteFirst(int64_t first_tap, Range ow, Bits* row) const {
    const Axis& a = p_.width();
    switch (a.kernel) {
      case 1:
        WriteColumns<1>(first_tap, ow, row);
        break;
      case 2:
        WriteColumns<2>(first_tap, ow, row);
        break;
      case 3:
        WriteColumns<3>(first_tap, ow, row);
        break;
      default:
        WriteColumns<4>(first_tap, ow, row);
    }
    if (ow.end == a.out) Zero(row, {std::min(in_, ow.end * a.kernel), in_});
  }

  template <int kColumns>
  HWY_NOINLINE void WriteColumns(int64_t first_tap, Range ow, Bits* HWY_RESTRICT row) const {
    // Short vectors: rows begin anywhere, and a store that crosses a line costs more than several that do not.
    const hn::CappedTag<Bits, 16 / sizeof(Bits)> d;
    using V4 = hn::Vec<decltype(d)>;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    V4 taps[kColumns];
    for (int k = 0; k < kColumns; ++k) taps[k] = hn::Set(d, static_cast<Bits>(first_tap + k));
    const auto write = [&](int64_t i, Bits* to) HWY_ATTR {
      const V4 value = hn::LoadU(d, values_ + i);
      const V4 code = hn::LoadU(d, codes_ + i);
      V4 kept[4] = {value, value, value, value};
      for (int k = 0; k < kColumns; ++k) kept[k] = hn::IfThenElseZero(hn::Eq(code, taps[k]), value);
      if constexpr (kColumns == 1) hn::StoreU(kept[0], d, to);
      if constexpr (kColumns == 2) hn::StoreInterleaved2(kept[0], kept[1], d, to);
      if constexpr (kColumns == 3) hn::StoreInterleaved3(kept[0], kept[1], kept[2], d, to);
      if constexpr (kColumns == 4) hn::StoreInterleaved4(kept[0], kept[1], kept[2], kept[3], d, to);
    };
    const int64_t end = std::min(ow.end * kColumns, in_);  // the last window may lie in the row in part
    int64_t i = 0;
    for (; (ow.begin + i + n) * kColumns <= end; i += n) write(i, row + (ow.begin + i) * kColumns);
    const int64_t left = end - (ow.begin + i) * kColumns;
    if (left > 0) {
      HWY_ALIGN Bits rest[4 * hn::MaxLanes(d)];
      write(i, rest);
      std::memcpy(row + (ow.begin + i) * kColumns, rest, static_cast<size_t>(left) * sizeof(Bits));
    }
  }

  const Problem& p_;
  const Args& args_;
  const DisjointLayout& l_;
  int64_t in_;  // columns of the row at work
  Bits* all_values_;
  Bits* all_codes_;
  Bits* spare_;
  const Bits* values_ = nullptr;  // of the row at work
  const Bits* codes_ = nullptr;
};

inline void RunDisjoint(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Disjoint(p, args, *static_cast<const DisjointLayout*>(args.layout), scratch).Run(begin, end);
}

inline Made MakeDisjoint(const Problem& p, poolgrad_op op, const Host&) {
  if (op != POOLGRAD_OP_BACKWARD && op != POOLGRAD_OP_UNPOOL) return "it does backward and unpool only";
  if (SizeOf(p.dtype) != 2) return "it is for halves";
  if (p.kind == POOLGRAD_AVERAGE) return "an average has no winners";
  if (p.routes.masks) return "the routes are sets of taps";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to write";
  if (p.by_table()) return "it needs windows at regular distances";
  if (!p.disjoint()) return "windows share inputs";
  if (p.taps() >= 1 << 16) return "a tap's number does not fit a lane";
  const Axis& w = p.width();
  const bool tiles = w.kernel <= 4 && w.stride == w.kernel && w.dilation == 1 && w.pad_lo == 0;
  if (!p.channels_last() && !tiles) return "windows of up to four columns do not tile the width";
  DisjointLayout layout;
  layout.unpool = op == POOLGRAD_OP_UNPOOL;
  layout.lanes = p.channels_last() ? p.channels : 1;
  layout.piece = std::max<int64_t>(1, 2 * Tuning().sums_piece / layout.lanes);
  const bool rows_alone = p.in_plane() == w.in && p.out_plane() == w.out && p.taps() == w.kernel;
  layout.one_row = !p.channels_last() && rows_alone && w.in == w.out * w.kernel && w.out <= layout.piece;
  const bool wide = p.channels_last() ? p.channels >= kLeastChannels : layout.one_row || w.out >= kLeastColumns;
  if (!wide) return "bwd_scatter is faster for rows this short, or so few channels";
  if (p.x_elements() > kMostInputs * p.y_elements()) return "bwd_scatter is faster for windows this large";
  const int64_t images = p.channels_last() ? p.batch : p.batch * p.channels;
  Kernel kernel{RunDisjoint, images * p.depth().out * p.height().out, Disjoint(p, Args{}, layout, nullptr).bytes};
  kernel.layout = KeptCopy(layout);
  return kernel.layout ? Made(kernel) : kNoMemory;
}

#endif  // SSE4, or a small build

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_DISJOINT_INL_H_
