// fwd_tables: max pooling by tables, both layouts, with routes or without. Taps are compared in row-major order, one
// after the other, every lane for itself. The halves are lanes of f32.
//
// Ordinary values need no rule for NaN. Where a NaN was seen, or a winner is -inf, which is also what began, fwd_exact
// does the row again.

// Per-target include guard
#if defined(POOLGRAD_CPU_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_TABLES_INL_H_
#undef POOLGRAD_CPU_TABLES_INL_H_
#else
#define POOLGRAD_CPU_TABLES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/forward/common/codes-inl.h"
#include "cpu/lanes/lanes-inl.h"
#include "cpu/lanes/lanes.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

// The best taps so far, and what has been seen.
template <class W>
struct Winners {
  using C = Code<W>;
  VecOf<W> best, seen;  // seen: a sum, for NaN
  CodeVec<W> code;

  // GCC compiles implicit constructors without the target's instructions.
  HWY_INLINE Winners() {}
  // kLast: of equal ones the later.
  template <bool kLast>
  HWY_INLINE void Meet(VecOf<W> v, int64_t tap) {
    const hn::ScalableTag<C> du;
    const auto takes = kLast ? hn::Ge(v, best) : hn::Gt(v, best);
    best = hn::IfThenElse(takes, v, best);
    code = hn::IfThenElse(hn::RebindMask(du, takes), hn::Set(du, static_cast<C>(tap)), code);
    seen = hn::Add(seen, v);
  }
  HWY_INLINE void Rectify() {
    const hn::ScalableTag<C> du;
    const auto above = hn::Gt(best, hn::Zero(hn::ScalableTag<W>()));
    best = hn::IfThenElseZero(above, best);
    code = hn::IfThenElse(hn::RebindMask(du, above), code, hn::Set(du, static_cast<C>(~C{0})));
  }
};

// Rows of a tile. tap: the first row's first number; numbers of the next row are `row_taps` more.
template <class W, bool kLast>
HWY_NOINLINE void MeetLanes(const W* HWY_RESTRICT rows, int64_t row_step, int64_t count, const Sources* sources,
                            int64_t n, int64_t step, int64_t tap, int64_t row_taps, W* HWY_RESTRICT best,
                            Code<W>* HWY_RESTRICT codes, VecOf<W>* seen) {
  const hn::ScalableTag<W> d;
  const hn::ScalableTag<Code<W>> du;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  Winners<W> w;
  w.seen = *seen;
  for (int64_t i = 0; i < n; ++i, best += kLanes, codes += kLanes) {
    w.best = hn::LoadU(d, best);
    w.code = hn::LoadU(du, codes);
    const W* row = rows + sources[i].first * kLanes;
    const int64_t taps = sources[i].count;
    int64_t number = tap + sources[i].tap;
    for (int64_t r = 0; r < count; ++r, row += row_step, number += row_taps) {
      for (int64_t k = 0; k < taps; ++k) w.template Meet<kLast>(hn::LoadU(d, row + k * step), number + k);
    }
    hn::StoreU(w.best, d, best);
    hn::StoreU(w.code, du, codes);
  }
  *seen = w.seen;
}

template <class T>
class Tables {
  using W = Wide<T>;
  using C = Code<W>;
  static constexpr int64_t kLanes = Lanes<T>::kLanes;

 public:
  // With null scratch it only counts what it needs.
  Tables(const Problem& p, const TablesLayout& l, const Args& args, std::byte* scratch)
      : p_(p), l_(l.lanes), exact_(l.exact), args_(args), take_(scratch), s_(p, l.lanes, args, take_) {
    best_ = take_.template Take<W>(l_.staged ? l_.rows_out * l_.row() + kLanes * kLanes : 0);
    codes_ = take_.template Take<C>(l_.staged ? l_.rows_out * l_.row() : 0);
    line_ = take_.template Take<uint32_t>(l_.staged ? l_.part * l_.inner : l_.part * s_.beside + kLanes);
    special_ = take_.template Take<bool>(l_.rows_out);
    exact_scratch_ = take_.template Take<std::byte>(exact_.scratch_bytes);
    bytes = take_.used();
  }

  int64_t bytes;

  void Run(int64_t begin, int64_t end) {
    s_.ForRows(
        begin, end, [] {},
        [&](int64_t a, int64_t b, int64_t number, int64_t r) {
          const Sources d = s_.depth.Of(a).at, h = s_.height.Of(b).at;
          special_[r] = l_.staged ? Row(d, h, r) : Channels(d, h, number);
        },
        [&](int64_t number, int64_t rows) {
          if (l_.staged) Leave(number, rows);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t i = 0; special_[r] && i < (l_.staged ? s_.used : 1); ++i) {
              const int64_t at = s_.image[i] * l_.rows + number + r;
              exact_.Run(p_, args_, at, at + 1, exact_scratch_);
            }
          }
        });
  }

 private:
  // A row of every lane. Returns whether something special was seen.
  bool Row(Sources depth, Sources height, int64_t r) {
    const hn::ScalableTag<W> d;
    W* const best = best_ + r * l_.row();
    C* const codes = codes_ + r * l_.row();
    const int64_t n = l_.part * l_.inner;
    std::fill(best, best + n * kLanes, -std::numeric_limits<W>::infinity());
    if (depth.count == 0 || height.count == 0) return true;
    auto seen = hn::Zero(d);
    const auto meet = p_.ties == POOLGRAD_TIES_LAST ? MeetLanes<W, true> : MeetLanes<W, false>;
    s_.ForTiles(
        depth, height, [](W*, int64_t, int64_t, int64_t, int64_t, int64_t) {},
        [&](const W* tile, int64_t row_step, int64_t rows, int64_t kd, int64_t kh, const Sources* sources, bool)
            HWY_ATTR {
              const int64_t tap = ((depth.tap + kd) * p_.height().kernel + height.tap + kh) * p_.width().kernel;
              int64_t first = 0, past = n;  // of a row of many tiles, the outputs that see this one
              while (first < past && sources[first].count == 0) ++first;
              while (first < past && sources[past - 1].count == 0) --past;
              meet(tile, row_step, rows, sources + first, past - first, p_.width().dilation * l_.inner * kLanes, tap,
                   p_.width().kernel, best + first * kLanes, codes + first * kLanes, &seen);
            });
    auto special = hn::IsNaN(seen);
    const auto lowest = hn::Set(d, -std::numeric_limits<W>::infinity());
    const hn::ScalableTag<C> du;
    for (int64_t i = 0; i < n; ++i) {
      Winners<W> w;
      w.best = hn::LoadU(d, best + i * kLanes);
      special = hn::Or(special, hn::Eq(w.best, lowest));
      if (!p_.relu) continue;
      w.code = hn::LoadU(du, codes + i * kLanes);
      w.Rectify();
      hn::StoreU(w.best, d, best + i * kLanes);
      hn::StoreU(w.code, du, codes + i * kLanes);
    }
    return !hn::AllFalse(d, special);
  }

  void Leave(int64_t row, int64_t rows) {
    s_.Leave(best_, row, rows);
    if (!args_.routes) return;
    const int64_t n = l_.part * l_.inner;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < s_.used; ++i) {
        const C* from = codes_ + r * l_.row() + i;
        for (int64_t e = 0; e < n; ++e) line_[e] = static_cast<uint32_t>(from[e * kLanes]);
        PackRow(p_, line_, {0, l_.part}, Lines(s_.image[i] * l_.rows + row + r));
      }
    }
  }

  uint8_t* Lines(int64_t row) const {
    return args_.routes + LineOffset(p_.routes, p_.channels_last() ? row * p_.width().out : row);
  }

  // A row of pixels, channel by channel, read where they lie.
  bool Channels(Sources depth, Sources height, int64_t row) {
    const hn::ScalableTag<W> d;
    const int64_t n = s_.beside;
    T* y = s_.ResultRow(s_.image[0], 0, row);
    const T* const x = s_.SourceRow(s_.image[0], depth.first, height.first);
    const auto lowest = hn::Set(d, -std::numeric_limits<W>::infinity());
    auto special = hn::FirstN(d, 0);
    for (int64_t o = 0; o < l_.part; ++o, y += n) {
      const Sources at = s_.sources()[o];
      for (int64_t e = 0; e < n; e += kLanes) {
        Winners<W> w;
        const T* from = x + at.first * n + e;
        if (p_.ties == POOLGRAD_TIES_LAST) {
          MeetChannels<true>(from, depth, height, at, &w);
        } else {
          MeetChannels<false>(from, depth, height, at, &w);
        }
        const auto bad = hn::Or(hn::IsNaN(w.seen), hn::Eq(w.best, lowest));
        special = hn::Or(special, hn::And(bad, hn::FirstN(d, static_cast<size_t>(std::min(kLanes, n - e)))));
        if (p_.relu) w.Rectify();
        const hn::Rebind<uint32_t, decltype(d)> narrow;
        if constexpr (sizeof(C) == 4) {
          hn::StoreU(w.code, narrow, line_ + o * n + e);
        } else {
          hn::StoreU(hn::TruncateTo(narrow, w.code), narrow, line_ + o * n + e);
        }
        StoreSome(d, w.best, y + e, (l_.part - o) * n - e);  // what is too much is written over by the next
      }
    }
    if (args_.routes) PackRow(p_, line_, {0, l_.part}, Lines(s_.image[0] * l_.rows + row));
    return !hn::AllFalse(d, special);
  }

  template <bool kLast>
  HWY_NOINLINE void MeetChannels(const T* from, Sources depth, Sources height, Sources width,
                                 Winners<W>* shared) const {
    const hn::ScalableTag<W> d;
    const int64_t row_step = p_.height().dilation * l_.source_row;
    const int64_t slice_step = p_.depth().dilation * p_.height().in * l_.source_row;
    const int64_t step = p_.width().dilation * s_.beside;
    Winners<W> w;
    w.best = hn::Set(d, -std::numeric_limits<W>::infinity());
    w.seen = hn::Zero(d);
    w.code = hn::Set(hn::ScalableTag<C>(), static_cast<C>(~C{0}));
    for (int64_t kd = 0; kd < depth.count; ++kd) {
      for (int64_t kh = 0; kh < height.count; ++kh) {
        const T* at = from + kd * slice_step + kh * row_step;
        const int64_t tap = ((depth.tap + kd) * p_.height().kernel + height.tap + kh) * p_.width().kernel + width.tap;
        for (int64_t k = 0; k < width.count; ++k, at += step)
          w.template Meet<kLast>(LoadSome(d, at, s_.source_end - at), tap + k);
      }
    }
    *shared = w;
  }

  const Problem& p_;
  const LaneLayout& l_;
  const Kernel& exact_;
  const Args& args_;
  ScratchTaker take_;
  Lanes<T> s_;
  W* best_;
  C* codes_;
  uint32_t* line_;  // codes of one
  bool* special_;
  std::byte* exact_scratch_;
};

template <class T>
void RunTables(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Tables<T>(p, *static_cast<const TablesLayout*>(args.layout), args, scratch).Run(begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
