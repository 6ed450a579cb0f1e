// bwd_disjoint: windows that share no input, f32 and halves, by vectors. Every input has one writer at most, so dx is
// written once, zeros included, in the order it lies in memory: a vector of dx is dy where the code names its tap and 0
// elsewhere. Where dx is large it goes past the caches (past-inl.h).
//
// Every axis is dealt out among its outputs: output o owns the inputs from its window's start to the next one's (the
// first also those before, the last those after). A unit is a row of outputs with all input rows that it owns.
//   channels last   vectors over channels, position after position; any window
//   channels first  windows of up to four columns that tile the width: one vector per column, interleaved when stored
// What is written are bits: dy as 0 + dy makes it (unpool, halves alone: as it is). Codes become bytes of scratch
// first; dy is read where it lies. Everything else is bwd_scatter's, which adds or copies one by one: short rows, few
// channels, large windows, wide ones channels first. It takes 1.3 to 2 times as long for f32 from the cache and 1.4 to
// 3 times from memory, for halves 1.0 to 1.7 (AVX-512; docs/performance/x86-avx512.md).
//
// Tried and left: lines of dx asked for ahead, as bwd_scatter does where it zeroes: no gain channels last, on two
// machines. All inputs of an output before the next channels (loaded once, stored a position apart): 0.85 to 0.95 from
// memory.
//
// A file of its own, so that none takes long to compile.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/disjoint.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/kept.h"
#include "cpu/backward/backward.h"
#include "cpu/scratch.h"
#include "cpu/tuning.h"
#if HWY_TARGET != HWY_SCALAR
#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/past-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SSE4 || defined(POOLGRAD_SMALL)

inline const char* MakeDisjoint(const Problem&, poolgrad_op, const Host&, Kernel*) {
  return "bwd_scatter is faster here";
}

#else

inline constexpr int64_t kVectorBytes = hn::MaxLanes(hn::ScalableTag<uint8_t>());

struct DisjointLayout {
  bool unpool;
  int64_t lanes;  // the channels, or 1
  int64_t piece;  // positions of outputs taken together
  bool tiled;     // windows tile the height and the depth, from the first input on
  bool join;      // and in one row each, with nothing left over: channels first, dx is one row
  int64_t past;   // bytes of dx, at most, that go past the caches at once; 0: none
  bool streams;   // channels last, whole vectors: where dx is aligned they go past the caches by themselves
};

// Of outputs, channels first, and channels last: with fewer, a row or a position costs more than one by one. (2x2,
// AVX-512, times as fast as bwd_scatter, from cache: bf16, rows of 28 outputs 0.6 to 1.0, 44 1.1, 56 1.4, 112 1.6; f32,
// rows of 12 0.8, 16 1.1, 24 1.2, 28 1.8; 16 channels last 1.0, 3x3 0.6, 24 1.15 and 1.2.)
inline constexpr int64_t kLeastColumns[] = {48, 24};  // of halves, and of f32
inline constexpr int64_t kLeastTiled[] = {20, 12};    // where windows tile the height and the depth
inline constexpr int64_t kLeastChannels[] = {32, 24};
// Bytes of dx from which on whole vectors, channels last, go past the caches by themselves on processors, too, where
// what was put aside does not gain. (Skylake, 2x2 at stride 2, 64 channels, dx of 6 to 103 MB, one thread: from memory
// f32 1.2 to 1.4 times as fast, bf16 1.2; again and again to the same place, with 33 MB of last-level cache, 0.5 to 0.7
// up to 13 MB, 1.1 to 1.3 from 26 on.)
inline constexpr int64_t kStreams = 32 << 20;
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

// Bits: an element's.
template <class Bits>
class Disjoint {
  using D = hn::ScalableTag<Bits>;
  using V = hn::Vec<D>;
  static_assert(hn::MaxLanes(D()) <= kLeastChannels[sizeof(Bits) / 4]);

 public:
  Disjoint(const Problem& problem, const Args& args, ScratchTaker& take) : p_(problem), args_(args), take_(take) {}

  void Run(int64_t begin, int64_t end) {
    const int64_t columns = p_.channels_last() ? 0 : p_.width().kernel;
    columns == 0   ? RunUnits<0>(begin, end)
    : columns == 1 ? RunUnits<1>(begin, end)
    : columns == 2 ? RunUnits<2>(begin, end)
    : columns == 3 ? RunUnits<3>(begin, end)
                   : RunUnits<4>(begin, end);
    past_.End();
    if (streams_) hwy::FlushStream();
  }

 private:
  // kColumns: of a window, channels first; 0: channels last.
  template <int kColumns>
  void RunUnits(int64_t begin, int64_t end) {
    l_.tiled ? RunTiled<kColumns>(begin, end) : RunRows<kColumns>(begin, end);
  }

  template <int kColumns>
  HWY_NOINLINE void RunRows(int64_t begin, int64_t end) {
    const Axis* a = p_.axis;
    const int64_t together = std::max<int64_t>(1, l_.piece / a[2].out);  // rows that are read at once
    int64_t oh = begin % a[1].out;
    int64_t od = begin / a[1].out % a[0].out;
    int64_t image = begin / a[1].out / a[0].out;
    const int64_t row_size = a[2].in * l_.lanes;
    // Where whole rows are written as they follow each other in memory, the last vector of each may reach into the
    // next: up to here.
    const bool in_order = a[0].in == 1 && l_.piece >= a[2].out;
    const Bits* const limit = LimitOf(in_order ? dx_ + RowBehind(end) * row_size : nullptr);
    for (int64_t unit = begin, ready = 0; unit < end; ++unit) {
      const Range depth = OwnedBy(a[0], od), height = OwnedBy(a[1], oh);
      for (int64_t ow = 0; ow < a[2].out; ow += l_.piece) {
        const Range outputs = {ow, std::min(ow + l_.piece, a[2].out)};
        if (ready == 0) Read(unit, std::min(together, end - unit), outputs);
        const Range owned = {OwnedBy(a[2], outputs.begin).begin, OwnedBy(a[2], outputs.end - 1).end};
        const Bits* const values = values_ + ready * a[2].out * l_.lanes;
        const uint8_t* const codes = codes_ + ready * a[2].out * l_.lanes;
        for (int64_t d = depth.begin; d < depth.end; ++d) {
          const int64_t kd = OwnTap(a[0], od, d);
          Bits* row = dx_ + ((image * a[0].in + d) * a[1].in + height.begin) * row_size;
          for (int64_t h = height.begin; h < height.end; ++h, row += row_size) {
            const int64_t kh = OwnTap(a[1], oh, h);
            const int64_t tap = (kd * a[1].kernel + kh) * a[2].kernel;
            const int64_t before = owned.begin * l_.lanes;
            Bits* const to = Place(row + before, owned.size() * l_.lanes) - before;
            if (kd < 0 || kh < 0) {
              Zero(to, owned);
            } else {
              WriteRow<kColumns>(values, codes, tap, outputs, to, a[2].in, limit);
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

  // The row of dx behind what units before `unit` own, where there is one slice.
  int64_t RowBehind(int64_t unit) const {
    const int64_t oh = unit % p_.height().out;
    return unit / p_.height().out * p_.height().in + (oh == 0 ? 0 : OwnedBy(p_.height(), oh).begin);
  }

  template <int kColumns>
  HWY_NOINLINE void RunTiled(int64_t begin, int64_t end) {
    const Axis &d = p_.depth(), &h = p_.height(), &w = p_.width();
    const int64_t in = w.in * l_.lanes, out = w.out * l_.lanes;
    const int64_t together = std::max<int64_t>(1, l_.piece / w.out);
    const bool in_order = d.kernel == 1 && d.in == d.out;
    int64_t oh = begin % h.out;
    int64_t od = begin / h.out % d.out;
    int64_t image = begin / h.out / d.out;
    const auto row_of = [&](int64_t slice, int64_t row) { return dx_ + ((image * d.in + slice) * h.in + row) * in; };
    const auto zero = [&](Bits* row, int64_t rows) {
      for (; rows > 0; --rows, row += in) Zero(Place(row, in), {0, w.in});
    };
    for (int64_t unit = begin; unit < end; unit += together) {
      const int64_t rows = std::min(together, end - unit);
      Read(unit, rows, {0, w.out});
      if (l_.join) {
        Bits* const row = dx_ + unit * in;
        WriteRow<kColumns>(values_, codes_, 0, {0, rows * w.out}, Place(row, rows * in), rows * w.in,
                           LimitOf(dx_ + end * in));
        continue;
      }
      for (int64_t r = 0, some; r < rows; r += some) {  // of one slice
        some = std::min(rows - r, h.out - oh);
        const bool last = oh + some == h.out;
        const int64_t past = last ? h.in : std::min((oh + some) * h.kernel, h.in);
        for (int64_t k = 0; k < std::min(d.kernel, d.in - od * d.kernel); ++k) {
          const int64_t slice = od * d.kernel + k;
          const Bits* const limit = LimitOf(in_order ? dx_ + RowBehind(end) * in : row_of(slice, past));
          Bits* row = row_of(slice, oh * h.kernel);
          for (int64_t i = 0; i < some; ++i) {
            const int64_t tap_rows = std::min(h.kernel, h.in - (oh + i) * h.kernel);
            for (int64_t t = 0; t < tap_rows; ++t, row += in) {
              WriteRow<kColumns>(values_ + (r + i) * out, codes_ + (r + i) * out, (k * h.kernel + t) * w.kernel,
                                 {0, w.out}, Place(row, in), w.in, limit);
            }
          }
          if (last) zero(row, h.in - h.out * h.kernel);
        }
        oh += some;
        if (!last) continue;
        oh = 0;
        if (++od < d.out) continue;
        od = 0;
        zero(row_of(d.out * d.kernel, 0), (d.in - d.out * d.kernel) * h.in);
        ++image;
      }
    }
  }

  // How far vectors may reach behind a row: in dx as far as it is written next.
  const Bits* LimitOf(const Bits* next) const {
    return past_.used() ? reinterpret_cast<const Bits*>(past_.end()) : next;
  }

  // Where to write n elements of dx.
  Bits* Place(Bits* dx, int64_t n) {
    if (!past_.used()) return dx;
    return reinterpret_cast<Bits*>(
        past_.Aside(reinterpret_cast<std::byte*>(dx), n * static_cast<int64_t>(sizeof(Bits))));
  }

  // Values as they are copied, with codes of as many bits beside them. Vectors read past their end.
  void Read(int64_t row, int64_t rows, Range ow) {
    const int64_t n = rows * ow.size() * l_.lanes;
    const int64_t first = (row * p_.width().out + ow.begin) * l_.lanes;
    const Bits* const source = static_cast<const Bits*>(args_.source) + first;
    values_ = source;
    if (first + n + kRowSlack > p_.y_elements()) {
      values_ = std::copy_n(source, n, staged_values_) - n;
    }
    ReadRows(p_, args_.routes, row, rows, ow, 0, l_.lanes, codes_, spare_);
  }

  void Zero(Bits* row, Range w) const {
    if (w.size() > 0) std::memset(row + w.begin * l_.lanes, 0, static_cast<size_t>(w.size() * l_.lanes) * sizeof(Bits));
  }

  // What a sum makes of it, as HalfAsSum does for halves; unpool leaves it as it is.
  template <class DAny>
  HWY_INLINE hn::Vec<DAny> Value(DAny d, const Bits* values) const {
    const auto bits = hn::LoadU(d, values);
    if constexpr (sizeof(Bits) == 4) {
      const hn::RebindToFloat<DAny> df;
      return hn::BitCast(d, hn::Add(hn::BitCast(df, bits), hn::Zero(df)));
    } else {
      return HalfAsSum(d, bits, rule_);
    }
  }

  template <class DAny>
  static HWY_INLINE hn::Vec<DAny> CodesOf(DAny d, const uint8_t* codes) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, DAny>(), codes));
  }

  template <int kColumns>
  HWY_INLINE void WriteRow(const Bits* values, const uint8_t* codes, int64_t first_tap, Range ow, Bits* row, int64_t in,
                           const Bits* limit) const {
    if constexpr (kColumns == 0) {
      streams_ ? WriteLast<true>(values, codes, first_tap, ow, row)
               : WriteLast<false>(values, codes, first_tap, ow, row);
    } else {
      WriteColumns<kColumns>(values, codes, first_tap, ow, row, in, limit);
    }
  }

  template <bool kStream>
  HWY_INLINE void WriteLast(const Bits* values, const uint8_t* codes, int64_t first_tap, Range ow, Bits* row) const {
    const Axis& a = p_.width();
    for (int64_t o = ow.begin, past; o < ow.end; o = past) {
      const Bits* const from = values + (o - ow.begin) * l_.lanes;
      const uint8_t* const named = codes + (o - ow.begin) * l_.lanes;
      const Range owned = OwnedBy(a, o);
      const int64_t start = a.start(o);
      past = o + 1;
      if (a.dilation == 1 && start >= 0 && start + a.kernel <= a.in) {  // and so some that follow
        past = std::min(ow.end, o + (a.in - a.kernel - start) / a.stride + 1);
        Zero(row, {owned.begin, start});
        WriteWindows<kStream>(from, named, first_tap, past - o, a.kernel, row + start * l_.lanes);
        Zero(row, {a.start(past - 1) + a.kernel, OwnedBy(a, past - 1).end});
        continue;
      }
      for (int64_t w = owned.begin; w < owned.end; ++w) {
        const int64_t k = OwnTap(a, o, w);
        if (k < 0) {
          Zero(row, {w, w + 1});
        } else {
          WriteWindows<kStream>(from, named, first_tap + k, 1, 1, row + w * l_.lanes);
        }
      }
    }
  }

  // `kernel` taps each, and what lies between them. In a function of its own, so that its loops have the registers.
  template <bool kStream>
  HWY_NOINLINE void WriteWindows(const Bits* HWY_RESTRICT values, const uint8_t* HWY_RESTRICT codes, int64_t first_tap,
                                 int64_t windows, int64_t kernel, Bits* HWY_RESTRICT to) const {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    const int64_t lanes = l_.lanes, gap = p_.width().stride - kernel;
    for (; windows > 0; --windows, values += lanes, codes += lanes) {
      for (int64_t k = 0; k < kernel; ++k, to += lanes) {
        const V tap = hn::Set(d, static_cast<Bits>(first_tap + k));
        const auto kept = [&](int64_t c) HWY_ATTR {
          return hn::IfThenElseZero(hn::Eq(CodesOf(d, codes + c), tap), Value(d, values + c));
        };
        const auto put = [&](V v, int64_t c) HWY_ATTR {
          if constexpr (kStream) {
            hn::Stream(v, d, to + c);
          } else {
            hn::StoreU(v, d, to + c);
          }
        };
        int64_t c = 0;
        for (; c + 2 * n <= lanes; c += 2 * n) {  // stores in pairs
          const V first = kept(c), second = kept(c + n);
          put(first, c);
          put(second, c + n);
        }
        for (; c + n <= lanes; c += n) put(kept(c), c);
        if (c < lanes) put(kept(lanes - n), lanes - n);  // some again
      }
      if (gap > 0 && windows > 1) {
        std::memset(to, 0, static_cast<size_t>(gap * lanes) * sizeof(Bits));
        to += gap * lanes;
      }
    }
  }

  // `in`: columns of the row; vectors may reach behind it as far as `limit`.
  template <int kColumns>
  HWY_INLINE void WriteColumns(const Bits* values, const uint8_t* codes, int64_t first_tap, Range ow, Bits* row,
                               int64_t in, const Bits* limit) const {
    // Short vectors: rows begin anywhere, and a store that crosses a line costs more than several that do not.
    constexpr int64_t kBytes = sizeof(Bits) == 2 || kColumns == 3 ? 32 : 64;
    const hn::CappedTag<Bits, kBytes / sizeof(Bits)> d;
    using V4 = hn::Vec<decltype(d)>;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    V4 taps[kColumns];
    for (int k = 0; k < kColumns; ++k) taps[k] = hn::Set(d, static_cast<Bits>(first_tap + k));
    const auto write = [&](int64_t i, Bits* to) HWY_ATTR {
      const V4 value = Value(d, values + i);
      const V4 code = CodesOf(d, codes + i);
      V4 kept[4] = {value, value, value, value};
      for (int k = 0; k < kColumns; ++k) kept[k] = hn::IfThenElseZero(hn::Eq(code, taps[k]), value);
      if constexpr (kColumns == 1) hn::StoreU(kept[0], d, to);
      if constexpr (kColumns == 2) hn::StoreInterleaved2(kept[0], kept[1], d, to);
      if constexpr (kColumns == 3) hn::StoreInterleaved3(kept[0], kept[1], kept[2], d, to);
      if constexpr (kColumns == 4) hn::StoreInterleaved4(kept[0], kept[1], kept[2], kept[3], d, to);
    };
    const int64_t end = std::min(ow.end * kColumns, in);  // the last window may lie in the row in part
    Bits* to = row + ow.begin * kColumns;
    Bits* const past = row + end;
    int64_t i = 0;
    for (; to + n * kColumns <= past || (to < past && to + n * kColumns <= limit); i += n, to += n * kColumns)
      write(i, to);
    if (to < past) {
      HWY_ALIGN Bits rest[4 * hn::MaxLanes(d)];
      write(i, rest);
      std::memcpy(to, rest, static_cast<size_t>(past - to) * sizeof(Bits));
    }
    if (end == in || ow.end < p_.width().out) return;
    if (past + n <= limit && in - end <= n) {
      hn::StoreU(hn::Zero(d), d, past);
    } else {
      Zero(row, {end, in});
    }
  }

  const Problem& p_;
  const Args& args_;
  ScratchTaker& take_;
  const DisjointLayout& l_ = *static_cast<const DisjointLayout*>(args_.layout);
  Bits* const dx_ = static_cast<Bits*>(args_.result);
  PastCaches past_ = {l_.past, take_};
  const HalfRule rule_ = l_.unpool                  ? HalfRule{0x7FFF, 0, 0xFFFF}
                         : p_.dtype == POOLGRAD_F16 ? kHalfSum<F16>
                                                    : kHalfSum<BF16>;
  const bool streams_ = l_.streams && reinterpret_cast<uintptr_t>(dx_) % kVectorBytes == 0;
  const int64_t room_ = l_.piece * l_.lanes + kRowSlack;
  Bits* const staged_values_ = take_.Take<Bits>(room_);
  uint8_t* const codes_ = take_.Take<uint8_t>(kRowLead + 3 * room_ + kRowSlack) + kRowLead;
  uint8_t* const spare_ = codes_ + room_;
  const Bits* values_ = nullptr;
};

inline const char* MakeDisjoint(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  if (SizeOf(p.dtype) != 2 && op == POOLGRAD_OP_UNPOOL) return "it unpools halves alone";
  if (SizeOf(p.dtype) != 2 && p.dtype != POOLGRAD_F32) return "it is for f32 and halves";
  if (p.routes.masks) return "the routes are sets of taps";
  if (p.by_table()) return "it needs windows at regular distances";
  if (!p.disjoint()) return "windows share inputs";
  if (p.routes.bits > 8) return "a tap's number does not fit a byte";
  const Axis& w = p.width();
  const bool tiles = w.kernel <= 4 && w.stride == w.kernel && w.dilation == 1 && w.pad_lo == 0;
  if (!p.channels_last() && !tiles) return "windows of up to four columns do not tile the width";
  DisjointLayout layout;
  layout.unpool = op == POOLGRAD_OP_UNPOOL;
  layout.lanes = p.channels_last() ? p.channels : 1;
  layout.piece = std::max<int64_t>(1, 2 * Tuning().sums_piece / layout.lanes);
  layout.streams =
      p.channels_last() && p.channels * SizeOf(p.dtype) % kVectorBytes == 0 && PastCaches::IsWorthIt(p, host, kStreams);
  const bool past = !layout.streams && PastCaches::IsWorthIt(p, host);
  if (past) {  // what is put aside stays in L1
    const int64_t each = Tuning().past_aside / (w.stride * layout.lanes * SizeOf(p.dtype));
    layout.piece = std::clamp<int64_t>(each, 1, layout.piece);
  }
  const auto tiled = [](const Axis& a) {
    return (a.stride == a.kernel || a.out == 1) && a.dilation == 1 && a.pad_lo == 0;
  };
  const auto whole = [](const Axis& a) { return a.kernel == 1 && a.in == a.out; };
  layout.tiled = tiled(p.depth()) && tiled(p.height()) && w.out <= layout.piece;
  layout.join = layout.tiled && !p.channels_last() && whole(p.depth()) && whole(p.height()) && w.in == w.out * w.kernel;
  const int64_t f32 = SizeOf(p.dtype) / 4;
  const bool wide = p.channels_last() ? p.channels >= kLeastChannels[f32]
                                      : layout.join || w.out >= (layout.tiled ? kLeastTiled : kLeastColumns)[f32];
  if (!wide) return "bwd_scatter is faster for rows this short, or so few channels";
  if (p.x_elements() > kMostInputs * p.y_elements()) return "bwd_scatter is faster for windows this large";
  const int64_t images = p.channels_last() ? p.batch : p.batch * p.channels;
  layout.past = 0;
  if (past) {
    // The first output owns what lies before its window, too, the last what lies behind.
    const int64_t ends = std::max<int64_t>(0, w.start(0)) + std::max<int64_t>(0, w.in - w.start(w.out - 1));
    const int64_t columns = layout.join ? layout.piece / w.out * w.in : std::min(w.in, layout.piece * w.stride + ends);
    layout.past = columns * layout.lanes * SizeOf(p.dtype);
  }
  const bool half = SizeOf(p.dtype) == 2;
  kernel->run = half ? RunAs<Disjoint<uint16_t> > : RunAs<Disjoint<uint32_t> >;
  kernel->units = images * p.depth().out * p.height().out;
  kernel->scratch_bytes = (half ? ScratchOf<Disjoint<uint16_t> > : ScratchOf<Disjoint<uint32_t> >)(p, &layout);
  return Keep(layout, &kernel->layout);
}

#endif  // SSE4, or a small build

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {

const char* MakeDisjoint(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  MakeKernel* const make = POOLGRAD_DISPATCH(MakeKernel, MakeDisjoint, host.simd);
  return make ? make(p, op, host, kernel) : kNoSimdHere;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
