// dx by accumulation: walk the outputs in row-major order and add dy at the winner, straight into dx. The cost hardly
// depends on the window's size, and every input gets its sum in row-major order of outputs.
//
// The adds are scalar, a few instructions each: the code looks up the winner's distance from its window's start, two
// codes at a time where they are packed. Rows of dx are zeroed just before the first window reaches them, so that the
// adds find them in cache. The halves add in rows of f32 sums, rounded when no later window reaches them.
//
// A run is a stretch of outputs whose dy and codes lie next to each other: a row (channels first) or the channels of a
// position (channels last). Each is vetted first (backward_vet-inl.h): a run with a code that lands outside the unit's
// rows is added one by one, and what lands outside is left out. A sum starts from +0, so it never becomes -0.
#if defined(POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/adds-inl.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/scatter.h"
#include "cpu/backward/vet-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
class Scatter {
  using V = Wide<T>;
  static constexpr bool kStaged = !std::is_same_v<T, V>;

 public:
  Scatter(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        args_(args),
        t_(LayOutScatter(problem)),
        s_(problem, t_, scratch),
        out_(problem.width().out),
        step_(t_.last ? 1 : problem.width().stride),
        packed_(FitsTapBits(problem) && problem.routes.line > 1 && !t_.few) {
    FindOffsets();
    FindColumns();
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end;) {
      const int64_t band = unit % t_.bands;
      const int64_t past = std::min(t_.bands, band + end - unit);  // neighbouring bands are one
      c0_ = unit / t_.bands % t_.blocks * t_.block;
      block_ = std::min(t_.block, t_.channels - c0_);
      image_ = unit / t_.bands / t_.blocks * t_.together;
      images_ = std::min(t_.together, t_.images - image_);
      RunBand({band * t_.band, std::min(past * t_.band, t_.rows)});
      unit += past - band;
    }
  }

 private:
  // Where each tap lies, in elements from its window's start, and which row and column of the window it is in.
  void FindOffsets() {
    const Axis& d = p_.depth();
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    std::fill_n(s_.offsets, 256, 0u);
    for (int64_t tap = 0; tap < p_.taps(); ++tap) {
      const int64_t row = tap / w.kernel;
      const int64_t column = tap % w.kernel;
      const int64_t rows = row / h.kernel * d.dilation * h.in + row % h.kernel * h.dilation;
      s_.offsets[tap] = static_cast<uint32_t>(rows * t_.row + column * w.dilation * t_.position);
      s_.taps[tap] = {static_cast<uint8_t>(row / h.kernel), static_cast<uint8_t>(row % h.kernel),
                      static_cast<uint8_t>(column)};
    }
    if (!packed_) return;
    FindTapBits(p_, tap_bits_);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      s_.pairs[byte] = s_.offsets[byte & 15] | (uint64_t{s_.offsets[byte >> 4]} + static_cast<uint64_t>(step_)) << 32;
    }
  }

  // What the elements of a run allow: of t_.at_once output rows, or, channels last, of one position, which is the same
  // for all of them.
  void FindColumns() {
    const Axis& w = p_.width();
    const bool row = !t_.last || t_.few;
    const int64_t n = row ? out_ * t_.channels : t_.block;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t start = w.start(i / t_.channels);
      s_.columns[i] = static_cast<int32_t>(row ? start : 0);
      if (t_.few) s_.bases[i] = static_cast<uint32_t>(i / t_.channels * w.stride * t_.position + i % t_.channels);
      if (row && !packed_) SetLane(ColumnsInside(w, start), i);
    }
    for (int64_t i = n; row && !packed_ && i < t_.at_once * n; ++i) {
      s_.lane_lo[i] = s_.lane_lo[i - n];
      s_.lane_span[i] = s_.lane_span[i - n];
    }
    if (!packed_) return;
    const int64_t bytes = CeilDiv(n, 2);
    const auto bits = [&](int64_t at) {
      if (at >= n) return uint8_t{255};
      return row ? ColumnBits(ColumnsInside(w, s_.columns[at])) : uint8_t{0};
    };
    for (int64_t i = 0; i < bytes; ++i) {
      s_.even[i] = bits(2 * i);
      s_.odd[i] = bits(2 * i + 1);
    }
    for (int64_t k = 1; k < t_.at_once; ++k) {
      std::memcpy(s_.even + k * bytes, s_.even, static_cast<size_t>(bytes));
      std::memcpy(s_.odd + k * bytes, s_.odd, static_cast<size_t>(bytes));
    }
  }

  void SetLane(Range inside, int64_t i) {
    s_.lane_lo[i] = static_cast<uint16_t>(inside.size() == 0 ? 0x8000 : inside.begin);  // that no column reaches
    s_.lane_span[i] = static_cast<uint16_t>(inside.size() == 0 ? 0 : inside.size() - 1);
  }
  uint8_t ColumnBits(Range inside) const { return static_cast<uint8_t>(BitsOf(inside) << p_.height().kernel); }

  // ---- The rows that are added to: dx itself, or sums.

  T* DxRow(int64_t plane, int64_t row) const {
    return static_cast<T*>(args_.result) + ((image_ + plane) * t_.rows + row) * p_.width().in * t_.channels + c0_;
  }
  V* RowAt(int64_t plane, int64_t row) const {
    if constexpr (kStaged) {
      return s_.sums + (plane * t_.kept + row - first_) * t_.row;
    } else {
      return DxRow(plane, row);
    }
  }

  // Zeroes rows up to `to`, and some more if rows are short; rows before `done` get no more adds.
  HWY_INLINE void Prepare(int64_t to, int64_t done, int64_t end) {
    if (to <= ready_) return;
    to = std::min(end, std::max(to, ready_ + t_.ahead));
    if constexpr (kStaged) {
      while (to > first_ + t_.kept) {  // at once, unless windows leave rows out
        const int64_t past = std::clamp(done, first_, ready_);
        if (past == ready_) {
          Finish(ready_);
          const int64_t skipped = std::min(to, ready_ + t_.kept);
          ZeroRows(ready_, skipped);
          ready_ = skipped;
        } else {
          Finish(past);
        }
      }
    }
    ZeroRows(ready_, to);
    ready_ = to;
  }

  // Plain stores, which leave the lines where the adds find them; what memset does on Arm takes a tenth longer in all.
  static void ZeroRun(V* to, int64_t n) {
    const hn::ScalableTag<V> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; n >= 4 * lanes; n -= 4 * lanes, to += 4 * lanes) {
      hn::StoreU(hn::Zero(d), d, to);
      hn::StoreU(hn::Zero(d), d, to + lanes);
      hn::StoreU(hn::Zero(d), d, to + 2 * lanes);
      hn::StoreU(hn::Zero(d), d, to + 3 * lanes);
    }
    std::fill_n(to, n, V{0});
  }

  void ZeroRows(int64_t begin, int64_t end) {
    for (int64_t plane = 0; plane < images_; ++plane) {
      if (kStaged || block_ == t_.channels) {
        ZeroRun(RowAt(plane, begin), (end - begin) * t_.row);
        continue;
      }
      V* to = RowAt(plane, begin);
      for (int64_t i = 0; i < (end - begin) * p_.width().in; ++i, to += t_.channels) {
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(block_) * sizeof(V));
      }
    }
  }

  // Staged: rounds rows up to `to` into dx and moves those that follow to the front.
  void Finish(int64_t to) {
    if constexpr (kStaged) {
      for (int64_t plane = 0; plane < images_; ++plane) {
        RoundRows(RowAt(plane, first_), to - first_, DxRow(plane, first_));
        V* const sums = s_.sums + plane * t_.kept * t_.row;
        std::memmove(sums, RowAt(plane, to), static_cast<size_t>((ready_ - to) * t_.row) * sizeof(V));
      }
      first_ = to;
    }
  }

  void RoundRows(const V* from, int64_t rows, T* to) const {
    if (block_ == t_.channels) return RoundRun<T>(from, rows * t_.row, to);
    for (int64_t i = 0; i < rows * p_.width().in; ++i) {
      RoundRun<T>(from + i * t_.position, block_, to + i * t_.channels);
    }
  }

  // ---- Outputs.

  void RunBand(Range rows) {
    const Axis& d = p_.depth();
    const Axis& h = p_.height();
    const Range slices = {rows.begin / h.in, CeilDiv(rows.end, h.in)};
    lines_ = t_.cut_depth ? Range{0, h.in} : rows;
    slices_ = slices;
    first_ = ready_ = rows.begin;
    const Range ods = {d.covering(slices.begin).begin, d.covering(slices.end - 1).end};
    const Range ohs = {h.covering(lines_.begin).begin, h.covering(lines_.end - 1).end};
    for (int64_t od = ods.begin; od < ods.end; ++od) {
      for (int64_t oh = ohs.begin; oh < ohs.end;) oh += OutputRows(od, oh, ohs.end, rows);
    }
    Prepare(rows.end, rows.end, rows.end);
    Finish(rows.end);
  }

  // The taps of output o that land inside `part` of an axis.
  static Range TapsInside(const Axis& a, int64_t o, Range part) {
    const int64_t start = a.start(o);
    if (start >= part.begin && start + a.extent() <= part.end) return {0, a.kernel};
    const int64_t begin = start >= part.begin ? 0 : std::min(a.kernel, CeilDiv(part.begin - start, a.dilation));
    const int64_t end = start >= part.end ? begin : std::clamp(CeilDiv(part.end - start, a.dilation), begin, a.kernel);
    return {begin, end};
  }

  // Output rows of one depth from oh on; returns how many.
  int64_t OutputRows(int64_t od, int64_t oh, int64_t end, Range rows) {
    const Axis& d = p_.depth();
    const Axis& h = p_.height();
    kd_ = TapsInside(d, od, slices_);
    kh_ = TapsInside(h, oh, lines_);
    if (kd_.size() == 0 || kh_.size() == 0) return 1;
    whole_ = d.kernel == 1 || (kd_.size() == d.kernel && kh_.size() == h.kernel);
    int64_t count = 1;
    if (whole_ && kh_.size() == h.kernel) {  // others that lie inside the unit as well
      const int64_t most = std::min(end - oh, t_.at_once);
      while (count < most && h.start(oh + count) + h.extent() <= lines_.end) ++count;
    }
    const int64_t slice = d.start(od);
    const int64_t done = slice < slices_.begin ? rows.begin : slice * h.in + std::max<int64_t>(0, h.start(oh));
    const int64_t last =
        (slice + (kd_.end - 1) * d.dilation) * h.in + h.start(oh + count - 1) + (kh_.end - 1) * h.dilation;
    Prepare(last + 1, std::clamp(done, rows.begin, rows.end), rows.end);
    const int64_t start = slice * h.in + h.start(oh);
    const int64_t line = ((image_ * d.out + od) * h.out + oh) * (t_.last ? out_ : 1);
    if (t_.few) {
      FewChannels(RowAt(0, start) + p_.width().start(0) * t_.position, line);
    } else if (t_.last) {
      Positions(start, line);
    } else if (t_.together > 1) {
      RowsTogether(start, line, count);
    } else {
      RowsOfPlane(0, start, line, count);
    }
    return count;
  }

  const uint8_t* Line(int64_t line) const { return args_.routes + LineOffset(p_.routes, line); }

  // dy as it is added.
  const V* ReadValues(const T* from, int64_t n, V* to) const {
    if constexpr (kStaged) {
      SpreadSum<T>(from, n, to);
      return to;
    } else {
      (void)n;
      (void)to;
      return from;
    }
  }

  // ---- Channels first: a run is an output row of a plane. Several are vetted at once.

  // What a plane's output rows are added from and to.
  struct PlaneRows {
    V* to;
    const V* values;
    const uint8_t* routes;
    const uint8_t* codes;
    bool good;
  };

  // Reads and vets `count` output rows.
  HWY_INLINE PlaneRows ReadRows(int64_t plane, int64_t start, int64_t line, int64_t count) const {
    const RouteFormat& f = p_.routes;
    const int64_t row = line + plane * p_.depth().out * p_.height().out;
    const int64_t room = t_.at_once * out_ + 64;
    PlaneRows r;
    r.to = RowAt(plane, start) + p_.width().start(0);
    r.values = ReadValues(static_cast<const T*>(args_.source) + row * out_, count * out_, s_.values + plane * room);
    r.routes = Line(f.line == 1 ? row * out_ : row);
    if (packed_) {
      r.codes = nullptr;
      r.good = PackedInside(tap_bits_, r.routes, count * f.line_bytes, s_.even, s_.odd, BitsOf(kh_));
    } else {
      r.codes = ReadCodes(r.routes, count, s_.codes + plane * room);
      r.good = whole_ && RowInside(r.codes, count * out_);
    }
    return r;
  }

  void RowsOfPlane(int64_t plane, int64_t start, int64_t line, int64_t count) const {
    const PlaneRows r = ReadRows(plane, start, line, count);
    if (!r.good) return AddRowsOneByOne(r, plane, count);
    const int64_t down = p_.height().stride * t_.row;
    if (packed_) {
      for (int64_t i = 0; i < count; ++i) {
        AddPairs(r.to + i * down, r.values + i * out_, r.routes + i * p_.routes.line_bytes, out_, s_.pairs, step_);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        AddBytes(r.to + i * down, r.values + i * out_, r.codes + i * out_, out_, s_.offsets, step_);
      }
    }
  }

  void RowsTogether(int64_t start, int64_t line, int64_t count) const {
    if (images_ < kScatterTogether) {
      for (int64_t i = 0; i < images_; ++i) RowsOfPlane(i, start, line, count);
      return;
    }
    PlaneRows r[kScatterTogether];
    bool good = true;
    for (int64_t i = 0; i < kScatterTogether; ++i) {
      r[i] = ReadRows(i, start, line, count);
      good &= r[i].good;
    }
    const int64_t down = p_.height().stride * t_.row;
    for (int64_t i = 0; good && i < count; ++i) {
      const int64_t at = i * down;
      const int64_t from = i * out_;
      AddTogether<V>({r[0].to + at, r[1].to + at, r[2].to + at, r[3].to + at},
                     {r[0].values + from, r[1].values + from, r[2].values + from, r[3].values + from},
                     {r[0].codes + from, r[1].codes + from, r[2].codes + from, r[3].codes + from}, out_, s_.offsets,
                     step_);
    }
    for (int64_t i = 0; !good && i < kScatterTogether; ++i) AddRowsOneByOne(r[i], i, count);
  }

  void AddRowsOneByOne(const PlaneRows& r, int64_t plane, int64_t count) const {
    uint8_t* const unpacked = s_.codes + plane * (t_.at_once * out_ + 64);
    const uint8_t* codes = packed_ ? ReadCodes(r.routes, count, unpacked) : r.codes;
    for (int64_t i = 0; i < count; ++i) {
      AddOneByOne(r.to + i * p_.height().stride * t_.row, r.values + i * out_, codes + i * out_, out_,
                  [&](int64_t k) HWY_ATTR { return k * step_; });
    }
  }

  // The codes of `count` output rows of a plane, a byte each.
  const uint8_t* ReadCodes(const uint8_t* routes, int64_t count, uint8_t* to) const {
    const RouteFormat& f = p_.routes;
    if (f.bits == 8) return routes;
    if (f.line == 1) {  // every code has a byte of its own
      for (int64_t i = 0; i < count * out_; ++i) to[i] = static_cast<uint8_t>(routes[i] & f.none());
      return to;
    }
    for (int64_t i = 0; i < count; ++i) SpreadCodes(f.bits, routes + i * f.line_bytes, out_, to + i * out_);
    return to;
  }

  bool RowInside(const uint8_t* codes, int64_t n) const {
    if (inside_always_ && kh_.size() == p_.height().kernel) return BytesBelow(codes, n, p_.taps());
    return BytesInside<false>(codes, n, p_.width().kernel, TapRows(), s_.lane_lo, s_.lane_span);
  }
  Range TapRows() const { return p_.depth().kernel == 1 ? kh_ : Range{0, p_.depth().kernel * p_.height().kernel}; }

  // ---- Channels last: a run is the channels of a position.

  static constexpr int64_t SizeOfT() { return static_cast<int64_t>(sizeof(T)); }
  // An address to ask for, which may lie past the end.
  static const void* Ahead(const void* from, int64_t bytes) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes));
  }

  void Positions(int64_t start, int64_t line) {
    const Axis& w = p_.width();
    const RouteFormat& f = p_.routes;
    const Range interior = w.interior();
    V* to = RowAt(0, start) + w.start(0) * t_.position;
    const T* dy = static_cast<const T*>(args_.source) + line * t_.channels + c0_;
    const uint8_t* routes = Line(line) + c0_ * f.bits / 8;
    for (int64_t ow = 0; ow < out_; ++ow, to += w.stride * t_.position, dy += t_.channels, routes += f.line_bytes) {
      PrefetchRun(Ahead(dy, kAskedAhead * SizeOfT()), block_ * SizeOfT());
      PrefetchRun(Ahead(routes, kAskedAhead * f.bits / 8), block_ * f.bits / 8);
      const V* values = ReadValues(dy, block_, s_.values);
      const bool clipped = ow < interior.begin || ow >= interior.end;
      const Range columns = clipped ? ColumnsInside(w, w.start(ow)) : Range{0, w.kernel};
      if (packed_) {
        const uint8_t allowed = static_cast<uint8_t>(BitsOf(kh_) | ColumnBits(columns));
        if (PackedInside(tap_bits_, routes, CeilDiv(block_, 2), s_.even, s_.odd, allowed)) {
          AddPairs(to, values, routes, block_, s_.pairs, step_);
          continue;
        }
      }
      const uint8_t* codes = routes;
      if (f.bits < 8) {
        SpreadCodes(f.bits, routes, block_, s_.codes);
        codes = s_.codes;
      }
      bool good = !packed_ && whole_;
      if (good && !clipped && kh_.size() == p_.height().kernel) {
        good = BytesBelow(codes, block_, p_.taps());
      } else if (good) {
        SetLane(columns, 0);
        good = BytesInside<true>(codes, block_, w.kernel, TapRows(), s_.lane_lo, s_.lane_span);
      }
      if (good) {
        AddBytes(to, values, codes, block_, s_.offsets, step_);
      } else {
        for (int64_t i = 0; i < block_; ++i) s_.columns[i] = static_cast<int32_t>(w.start(ow));
        AddOneByOne(to, values, codes, block_, [](int64_t k) HWY_ATTR { return k; });
      }
    }
  }

  // Few channels: a run is an output row, and every element has its own base.
  void FewChannels(V* to, int64_t line) {
    const RouteFormat& f = p_.routes;
    const int64_t n = out_ * t_.channels;
    const V* values = ReadValues(static_cast<const T*>(args_.source) + line * t_.channels, n, s_.values);
    const uint8_t* routes = Line(line);
    for (int64_t ow = 0, i = 0; ow < out_; ++ow, routes += f.line_bytes) {
      for (int64_t c = 0; c < t_.channels; ++c) s_.codes[i++] = static_cast<uint8_t>(LoadCode(f, routes, c));
    }
    const uint32_t* const bases = s_.bases;
    if (!whole_ || !RowInside(s_.codes, n)) {
      return AddOneByOne(to, values, s_.codes, n, [&](int64_t k) HWY_ATTR { return int64_t{bases[k]}; });
    }
    for (int64_t i = 0; i < n; ++i) to[bases[i] + s_.offsets[s_.codes[i]]] += values[i];
  }

  // ---- Any codes: what lands outside goes nowhere.

  template <class Base>
  HWY_NOINLINE void AddOneByOne(V* to, const V* values, const uint8_t* codes, int64_t n, const Base& base) const {
    const Axis& w = p_.width();
    const int64_t taps = p_.taps();
    V nowhere = V{0};
    for (int64_t i = 0; i < n; ++i) {
      const int64_t tap = std::min<int64_t>(codes[i], taps - 1);
      const ScatterTap k = s_.taps[tap];
      const int64_t column = s_.columns[i] + k.width * w.dilation;
      const bool counts = (codes[i] < taps) & (k.depth >= kd_.begin) & (k.depth < kd_.end) & (k.height >= kh_.begin) &
                          (k.height < kh_.end) & (column >= 0) & (column < w.in);
      V* const at = counts ? to + base(i) + s_.offsets[tap] : &nowhere;
      *at += values[i];
    }
  }

  const Problem& p_;
  const Args& args_;
  const ScatterTiles t_;
  const ScatterScratch<V> s_;
  const int64_t out_;
  const int64_t step_;  // elements from window to window of a run
  const bool packed_;   // codes of four bits are vetted and used as they are
  const bool inside_always_ = p_.width().interior().size() == p_.width().out;
  uint8_t tap_bits_[16] = {};
  // The unit at work.
  int64_t image_ = 0, images_ = 0, c0_ = 0, block_ = 0;
  Range slices_, lines_;           // input slices and lines of a slice that are its own
  int64_t first_ = 0, ready_ = 0;  // rows [first_, ready_) may be added to
  Range kd_, kh_;                  // of the output row at work: the taps inside the unit
  bool whole_ = false;             // and whether kh_ alone says which
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
