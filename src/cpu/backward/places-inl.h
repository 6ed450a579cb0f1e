// Codes into places: where, from the place of the first output's window on, every output of a piece adds.
//
// By vectors: few taps are looked up; a code of more is divided by the window's width and height in f32 (exact below
// kMostArithmeticTaps), and its parts are weighed with the steps of the sums. Along the axes where windows reach over
// the border of the box, every place is looked at, so that a code that names a tap outside, or none, gets no place.
// Routes may hold anything.
#if defined(POOLGRAD_CPU_BACKWARD_PLACES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_PLACES_INL_H_
#undef POOLGRAD_CPU_BACKWARD_PLACES_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_PLACES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

inline constexpr uint32_t kNoPlace = 0xFFFFFFFFu;
inline constexpr int64_t kMostArithmeticTaps = 1 << 20;

class Places {
  using DU = hn::ScalableTag<uint32_t>;
  using DI = hn::RebindToSigned<DU>;
  using VU = hn::Vec<DU>;
  using VI = hn::Vec<DI>;
  static constexpr int64_t kTable = hn::MaxLanes(DU());

 public:
  Places(const Problem& problem, const SumsLayout& l, ScratchTaker& take)
      : p_(problem), capacity_(l.piece_elements() + kRowSlack) {
    ramp_ = take.Take<uint32_t>(capacity_);
    for (int32_t*& at : at_) at = take.Take<int32_t>(capacity_);
    for (int i = 0; i < 3; ++i) sizes_[i] = take.Take<int32_t>(problem.axis[i].table ? capacity_ : 0);
    codes_ = take.Take<uint32_t>(kRowLead + 3 * capacity_ + kRowSlack) + kRowLead;
  }

  int64_t capacity() const { return capacity_; }

  void Begin(const Sums& s) {
    for (int i = 0; i < 3; ++i) {
      const Axis& a = p_.axis[i];
      const Span& span = s.span[i];
      over_[i] =
          a.table || a.start(span.out.begin) < span.in.begin || a.start(span.out.end - 1) + a.extent() > span.in.end;
    }
    if (lanes_ == s.lanes && steps_[0] == s.step[0] && steps_[1] == s.step[1]) return;
    lanes_ = s.lanes;
    std::copy_n(s.step, 3, steps_);
    const int64_t first[] = {0, 0, 0};
    FindRamps(s, first);
    for (int64_t t = 0; t < std::min(p_.taps(), kTable); ++t) {
      int64_t tap = t;
      uint32_t place = 0;
      for (int i = 2; i >= 0; --i) {
        const int64_t k = tap % p_.axis[i].kernel * p_.axis[i].dilation;
        tap /= p_.axis[i].kernel;
        table_[i][t] = static_cast<int32_t>(k);
        place += static_cast<uint32_t>(k * s.step[i]);
      }
      table_places_[t] = place;
    }
  }

  // Of `rows` rows from the batch's first on, of its image i. Returns whether every output has one.
  bool Find(const Sums& s, const Batch& b, int64_t i, int64_t rows, uint32_t* to) {
    const int64_t row = ((s.image + b.image + i) * p_.depth().out + b.od) * p_.height().out + b.oh;
    Job job{};
    job.n = rows * b.ow.size() * s.lanes;
    const Sums::Origin origin = s.OriginOf(b);
    job.from = static_cast<uint32_t>(origin.from);
    job.ring = static_cast<uint32_t>(origin.ring);
    const int64_t o[] = {b.od, b.oh, b.ow.begin};
    const int64_t last[] = {b.od, b.oh + rows - 1, b.ow.end - 1};
    if (p_.by_table() && !std::equal(o, o + 3, first_)) FindRamps(s, o);
    for (int axis = 0; axis < 3; ++axis) {
      const Axis& a = p_.axis[axis];
      const Range in = s.span[axis].in;
      job.start[axis] = static_cast<int32_t>(a.start(o[axis]) - in.begin);
      job.size[axis] = static_cast<uint32_t>(in.size());
      job.over[axis] = b.whole ? over_[axis]
                               : over_[axis] && (a.table || a.start(o[axis]) < in.begin ||
                                                 a.start(last[axis]) + a.extent() > in.end);
    }
    if (p_.routes.bits <= 8) return FindAll(s, b, row, rows, job, reinterpret_cast<uint8_t*>(codes_), to);
    return FindAll(s, b, row, rows, job, codes_, to);
  }

 private:
  struct Job {
    int64_t n;
    int32_t start[3];  // of the first output's window, from the box's first input on
    uint32_t size[3];
    uint32_t from, ring;
    bool over[3];  // whether windows reach over the border
  };

  // Where outputs begin from where the first one of a piece does: first its lanes, then positions, rows, slices and
  // images, each what is there already, further on. Vectors write past a run, into the next one.
  // `first` is the piece's first output: windows by table are not alike, so that they are counted out for every piece.
  void FindRamps(const Sums& s, const int64_t* first) {
    std::copy_n(first, 3, first_);
    const DU du;
    const DI di;
    const Axis* a = p_.axis;
    const auto output = [&](int axis, int64_t o) { return std::min(first[axis] + o, a[axis].out - 1); };
    const auto size = [&](int axis, int64_t o) {
      return hn::Set(di, static_cast<int32_t>(a[axis].size(output(axis, o))));
    };
    // Positions along an axis are only looked at where boxes have borders that windows reach over.
    for (int i = 0; i < 3; ++i) {
      looked_at_[i] =
          a[i].table || s.l.bands[i] > 1 || a[i].start(0) < 0 || a[i].start(a[i].out - 1) + a[i].extent() > a[i].in;
    }
    int64_t n = s.lanes;
    for (int64_t c = 0; c < n; c += static_cast<int64_t>(hn::Lanes(du))) {
      hn::StoreU(hn::Iota(du, static_cast<uint32_t>(c)), du, ramp_ + c);
      for (int i = 0; i < 3; ++i) {
        hn::StoreU(hn::Zero(di), di, at_[i] + c);
        if (a[i].table) hn::StoreU(size(i, 0), di, sizes_[i] + c);
      }
    }
    const int64_t positions = std::min(s.l.piece, a[2].out);
    const int64_t rows = s.l.whole ? a[1].out : std::min(s.l.piece / positions, a[1].out);
    const int64_t counts[] = {s.l.whole ? a[0].out : 1, rows, positions};
    for (int axis = 2; axis >= 0; --axis) {
      const int64_t count = counts[axis];
      for (int64_t o = 1, more; o < count; o += more) {
        const int64_t at =
            a[axis].table ? a[axis].start(output(axis, o)) - a[axis].start(first[axis]) : o * a[axis].stride;
        more = a[axis].table ? 1 : std::min(o, count - o);
        Repeat(more * n, o * n, at * s.step[axis], axis, at, size(axis, o));
      }
      n *= count;
    }
    const int64_t images = s.l.whole ? s.l.piece / p_.out_plane() : 1;
    for (int64_t i = 1, more; i < images; i += more) {
      more = std::min(i, images - i);
      Repeat(more * n, i * n, i * s.plane, -1, 0, size(0, 0));
    }
  }

  // The first n outputs once more, from output `to` on: `place` further on, which is `at` along this axis. Windows by
  // table have their own size there.
  HWY_INLINE void Repeat(int64_t n, int64_t to, int64_t place, int axis, int64_t at, VI size) const {
    const DU du;
    const DI di;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(du));
    const VU further = hn::Set(du, static_cast<uint32_t>(place));
    for (int64_t k = 0; k < n; k += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(du, ramp_ + k), further), du, ramp_ + to + k);
    }
    for (int i = 0; i < 3; ++i) {
      if (!looked_at_[i]) continue;
      const VI on = hn::Set(di, i == axis ? static_cast<int32_t>(at) : 0);
      for (int64_t k = 0; k < n; k += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(di, at_[i] + k), on), di, at_[i] + to + k);
        if (p_.axis[i].table) hn::StoreU(i == axis ? size : hn::LoadU(di, sizes_[i] + k), di, sizes_[i] + to + k);
      }
    }
  }

  template <class Code>
  bool FindAll(const Sums& s, const Batch& b, int64_t row, int64_t rows, const Job& job, Code* codes,
               uint32_t* to) const {
    ReadRows(p_, s.args.routes, row, rows, b.ow, s.lane, s.lanes, codes, codes + capacity_);
    const bool any_over = job.over[0] || job.over[1] || job.over[2];
    if (p_.taps() <= static_cast<int64_t>(hn::Lanes(DU()))) {
      return any_over ? Vectors<true, true>(job, codes, to) : Vectors<true, false>(job, codes, to);
    }
    return any_over ? Vectors<false, true>(job, codes, to) : Vectors<false, false>(job, codes, to);
  }

  template <bool kLookUp, bool kOver, class Code>
  HWY_NOINLINE bool Vectors(const Job& job, const Code* HWY_RESTRICT codes, uint32_t* HWY_RESTRICT to) const {
    const DU du;
    const DI di;
    const hn::RebindToFloat<DU> df;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(du));
    const Axis* a = p_.axis;
    const VU taps = hn::Set(du, static_cast<uint32_t>(p_.taps()));
    const VU none = hn::Set(du, kNoPlace);
    const VU from = hn::Set(du, job.from), ring = hn::Set(du, job.ring);
    const bool deep = a[0].kernel > 1;
    const VU table = hn::LoadU(du, table_places_);
    const VI table0 = hn::LoadU(di, table_[0]), table1 = hn::LoadU(di, table_[1]), table2 = hn::LoadU(di, table_[2]);
    const auto half = hn::Set(df, 0.5f);
    const auto per_row = hn::Set(df, 1.0f / static_cast<float>(a[2].kernel));
    const auto per_slice = hn::Set(df, 1.0f / static_cast<float>(a[2].kernel * a[1].kernel));
    const VI kernel2 = hn::Set(di, static_cast<int32_t>(a[2].kernel)),
             kernel1 = hn::Set(di, static_cast<int32_t>(a[1].kernel));
    const VI dilation0 = hn::Set(di, static_cast<int32_t>(a[0].dilation));
    const VI dilation1 = hn::Set(di, static_cast<int32_t>(a[1].dilation));
    const VI dilation2 = hn::Set(di, static_cast<int32_t>(a[2].dilation));
    const VI weight2 = hn::Set(di, static_cast<int32_t>(a[2].dilation * steps_[2]));
    const VI weight1 =
        hn::Set(di, static_cast<int32_t>(a[1].dilation * steps_[1] - a[2].kernel * a[2].dilation * steps_[2]));
    const VI weight0 =
        hn::Set(di, static_cast<int32_t>(a[0].dilation * steps_[0] - a[1].kernel * a[1].dilation * steps_[1]));
    const auto inside = [&](int axis, VI tap, int64_t at) HWY_ATTR {
      const VI place = hn::Add(hn::Add(tap, hn::Set(di, job.start[axis])), hn::LoadU(di, at_[axis] + at));
      const auto in_box = hn::Lt(hn::BitCast(du, place), hn::Set(du, job.size[axis]));
      if (!a[axis].table) return in_box;
      return hn::And(in_box, hn::RebindMask(du, hn::Lt(tap, hn::LoadU(di, sizes_[axis] + at))));
    };
    auto all = hn::Eq(taps, taps);
    for (int64_t at = 0; at < job.n; at += lanes) {
      VU code;
      if constexpr (sizeof(Code) == 4) {
        code = hn::LoadU(du, codes + at);
      } else {
        code = hn::PromoteTo(du, hn::LoadU(hn::Rebind<Code, DU>(), codes + at));
      }
      auto valid = hn::Lt(code, taps);
      VU place;
      if constexpr (kLookUp) {
        const auto index = hn::IndicesFromVec(du, hn::And(code, hn::Set(du, static_cast<uint32_t>(lanes - 1))));
        place = hn::TableLookupLanes(table, index);
        if constexpr (kOver) {
          const auto signed_index =
              hn::IndicesFromVec(di, hn::BitCast(di, hn::And(code, hn::Set(du, static_cast<uint32_t>(lanes - 1)))));
          if (job.over[2]) valid = hn::And(valid, inside(2, hn::TableLookupLanes(table2, signed_index), at));
          if (job.over[1]) valid = hn::And(valid, inside(1, hn::TableLookupLanes(table1, signed_index), at));
          if (job.over[0]) valid = hn::And(valid, inside(0, hn::TableLookupLanes(table0, signed_index), at));
        }
      } else {
        const VI number = hn::BitCast(di, code);
        const auto middle = hn::Add(hn::ConvertTo(df, number), half);
        const VI row = hn::ConvertTo(di, hn::Mul(middle, per_row));
        const VI slice = deep ? hn::ConvertTo(di, hn::Mul(middle, per_slice)) : hn::Zero(di);
        VI sum = hn::Add(hn::Mul(number, weight2), hn::Mul(row, weight1));
        if (deep) sum = hn::Add(sum, hn::Mul(slice, weight0));
        place = hn::BitCast(du, sum);
        if constexpr (kOver) {
          const VI column = hn::Sub(number, hn::Mul(row, kernel2));
          const VI height = deep ? hn::Sub(row, hn::Mul(slice, kernel1)) : row;
          if (job.over[2]) valid = hn::And(valid, inside(2, hn::Mul(column, dilation2), at));
          if (job.over[1]) valid = hn::And(valid, inside(1, hn::Mul(height, dilation1), at));
          if (job.over[0]) valid = hn::And(valid, inside(0, hn::Mul(slice, dilation0), at));
        }
      }
      place = hn::Add(place, hn::LoadU(du, ramp_ + at));
      if (job.ring != 0) {
        place = hn::Add(place, from);
        place = hn::Min(place, hn::Sub(place, ring));
      }
      hn::StoreU(hn::IfThenElse(valid, place, none), du, to + at);
      if (at + lanes > job.n) valid = hn::Or(valid, hn::Not(hn::FirstN(du, static_cast<size_t>(job.n - at))));
      all = hn::And(all, valid);
    }
    return hn::AllTrue(du, all);
  }

  const Problem& p_;
  const int64_t capacity_;
  uint32_t* ramp_;     // places
  int32_t* at_[3];     // positions
  int32_t* sizes_[3];  // of windows, by table
  uint32_t* codes_;
  int64_t lanes_ = 0, steps_[3] = {}, first_[3] = {};  // of the ramps
  bool over_[3] = {}, looked_at_[3] = {};
  HWY_ALIGN uint32_t table_places_[kTable] = {};
  HWY_ALIGN int32_t table_[3][kTable] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_PLACES_INL_H_
