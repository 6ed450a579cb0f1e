// Codes into places: where, from the place of the first output's window on, every output of a piece adds.
//
// By vectors: a code is divided by the window's width and height, and its parts are weighed with the steps of the sums.
// Along the axes where windows reach over the border of the box, every place is looked at, so that a code that names a
// tap outside, or none, gets no place. Routes may hold anything.
//
// Places are numbers of 16 bits where the piece reaches no further and codes are divided without error
// (DividesShort), which is nearly always: half as many vectors, and half of what is stored and loaded again. Everything
// else has 32 bits. Whether a place goes past a ring's end is asked before the place in the ring is added, so that ring
// and reach need to fit alone, not together (bf16, 256 channels last, 40x40, one thread, k3 d2, k5, k13: 1.1 to 1.3
// times as fast).

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

inline constexpr int64_t kMostArithmeticTaps = 1 << 20;

template <class Place>
inline constexpr Place kNoPlace = static_cast<Place>(-1);

// Of codes that are read as they are, and have short places. Small libraries widen those of 16 bits.
#ifdef POOLGRAD_SMALL
inline constexpr int32_t kMostShortBits = 8;
#else
inline constexpr int32_t kMostShortBits = 16;
#endif

// Whether every code of so many taps, times the 15 bits of 1 / n rounded up, is less than one too much.
inline bool DividesShort(int64_t taps, int64_t n) {
  const int64_t over = n < taps ? CeilDiv(1 << 15, n) * n - (1 << 15) : 0;
  return taps <= 1 << 15 && (taps - 1) * over < 1 << 15;
}

// Place: uint16_t or uint32_t. All arithmetic wraps around; what is looked at, and what it becomes, does not.
template <class Place>
class Places {
  static constexpr bool kShort = sizeof(Place) == 2;
  using D = hn::ScalableTag<Place>;
  using V = hn::Vec<D>;

 public:
  // `used`: else it takes no memory.
  Places(const Problem& problem, const SumsLayout& l, bool used, ScratchTaker& take)
      : p_(problem), capacity_(used ? l.piece_elements() + kRowSlack : 0) {
    ramp_ = take.Take<Place>(capacity_);
    for (Place*& at : at_) at = take.Take<Place>(capacity_);
    for (int i = 0; i < 3; ++i) sizes_[i] = take.Take<Place>(problem.axis[i].table ? capacity_ : 0);
    codes_ = take.Take<Place>(used ? kRowLead + 3 * capacity_ + kRowSlack : 0) + kRowLead;
  }

  bool used() const { return capacity_ > 0; }
  int64_t capacity() const { return capacity_; }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(Place)); }

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
  }

  // Of `rows` rows from the batch's first on, of its image i. Returns whether every output has one.
  bool Find(const Sums& s, const Batch& b, int64_t i, int64_t rows, Place* to) {
    const int64_t row = ((s.image + b.image + i) * p_.depth().out + b.od) * p_.height().out + b.oh;
    Job job{};
    job.n = rows * b.ow.size() * s.lanes;
    const Sums::Origin origin = s.OriginOf(b);
    job.from = static_cast<Place>(origin.from);
    job.ring = static_cast<Place>(origin.ring);
    job.last = static_cast<Place>(std::min<int64_t>(origin.ring - 1 - origin.from, kNoPlace<Place>));
    const int64_t o[] = {b.od, b.oh, b.ow.begin};
    const int64_t last[] = {b.od, b.oh + rows - 1, b.ow.end - 1};
    if (p_.by_table() && !std::equal(o, o + 3, first_)) FindRamps(s, o);
    for (int axis = 0; axis < 3; ++axis) {
      const Axis& a = p_.axis[axis];
      const Range in = s.span[axis].in;
      job.start[axis] = static_cast<Place>(a.start(o[axis]) - in.begin);
      job.size[axis] = static_cast<Place>(in.size());
      job.over[axis] = b.whole ? over_[axis]
                               : over_[axis] && (a.table || a.start(o[axis]) < in.begin ||
                                                 a.start(last[axis]) + a.extent() > in.end);
    }
    if (p_.routes.bits <= 8) return FindAll(s, b, row, rows, job, reinterpret_cast<uint8_t*>(codes_), to);
    if constexpr (kMostShortBits == 16) {
      if (p_.routes.bits == 16) return FindAll(s, b, row, rows, job, reinterpret_cast<uint16_t*>(codes_), to);
    }
    if constexpr (!kShort) return FindAll(s, b, row, rows, job, codes_, to);
    return false;  // places are long
  }

 private:
  struct Job {
    int64_t n;
    Place start[3];  // of the first output's window, from the box's first input on
    Place size[3];
    Place from, ring, last;  // from the first output's window on, `last` is the last before the ring's end
    bool over[3];            // whether windows reach over the border
  };

  // Where outputs begin from where the first one of a piece does: first its lanes, then positions, rows, slices and
  // images, each what is there already, further on. Vectors write past a run, into the next one.
  // `first` is the piece's first output: windows by table are not alike, so that they are counted out for every piece.
  void FindRamps(const Sums& s, const int64_t* first) {
    std::copy_n(first, 3, first_);
    const D d;
    const Axis* a = p_.axis;
    const auto output = [&](int axis, int64_t o) { return std::min(first[axis] + o, a[axis].out - 1); };
    const auto size = [&](int axis, int64_t o) {
      return hn::Set(d, static_cast<Place>(a[axis].size(output(axis, o))));
    };
    // Positions along an axis are only looked at where boxes have borders that windows reach over.
    for (int i = 0; i < 3; ++i) {
      looked_at_[i] =
          a[i].table || s.l.bands[i] > 1 || a[i].start(0) < 0 || a[i].start(a[i].out - 1) + a[i].extent() > a[i].in;
    }
    int64_t n = s.lanes;
    for (int64_t c = 0; c < n; c += static_cast<int64_t>(hn::Lanes(d))) {
      hn::StoreU(hn::Iota(d, static_cast<Place>(c)), d, ramp_ + c);
      for (int i = 0; i < 3; ++i) {
        hn::StoreU(hn::Zero(d), d, at_[i] + c);
        if (a[i].table) hn::StoreU(size(i, 0), d, sizes_[i] + c);
      }
    }
    const int64_t positions = std::min(s.l.piece, a[2].out);
    const int64_t rows = s.l.whole ? a[1].out : std::min(Quotient(s.l.piece, positions), a[1].out);
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
  HWY_INLINE void Repeat(int64_t n, int64_t to, int64_t place, int axis, int64_t at, V size) const {
    const D d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const V further = hn::Set(d, static_cast<Place>(place));
    for (int64_t k = 0; k < n; k += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, ramp_ + k), further), d, ramp_ + to + k);
    }
    for (int i = 0; i < 3; ++i) {
      if (!looked_at_[i]) continue;
      const V on = hn::Set(d, i == axis ? static_cast<Place>(at) : Place{0});
      for (int64_t k = 0; k < n; k += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, at_[i] + k), on), d, at_[i] + to + k);
        if (p_.axis[i].table) hn::StoreU(i == axis ? size : hn::LoadU(d, sizes_[i] + k), d, sizes_[i] + to + k);
      }
    }
  }

  // codes / n, rounded down; whatever is no code, anything.
  HWY_INLINE V ReciprocalOf(int64_t n) const {
    const D d;
    if constexpr (kShort) {
      return hn::Set(d, static_cast<Place>(n < p_.taps() ? CeilDiv(1 << 15, n) : 0));
    } else {
      return hn::BitCast(d, hn::Set(hn::RebindToFloat<D>(), 1.0f / static_cast<float>(n)));
    }
  }
  static HWY_INLINE V Divided(V codes, V reciprocal) {
    const D d;
    if constexpr (kShort) {
      return hn::MulHigh(hn::Add(codes, codes), reciprocal);
    } else {
      const hn::RebindToFloat<D> df;
      const hn::RebindToSigned<D> di;
      const auto middle = hn::Add(hn::ConvertTo(df, hn::BitCast(di, codes)), hn::Set(df, 0.5f));
      return hn::BitCast(d, hn::ConvertTo(di, hn::Mul(middle, hn::BitCast(df, reciprocal))));
    }
  }

  template <class Code>
  bool FindAll(const Sums& s, const Batch& b, int64_t row, int64_t rows, const Job& job, Code* codes, Place* to) const {
    ReadRows(p_, s.args.routes, row, rows, b.ow, s.lane, s.lanes, codes, codes + capacity_);
    const bool any_over = job.over[0] || job.over[1] || job.over[2];
    return any_over ? Vectors<true>(job, codes, to) : Vectors<false>(job, codes, to);
  }

  template <bool kOver, class Code>
  HWY_NOINLINE bool Vectors(const Job& job, const Code* HWY_RESTRICT codes, Place* HWY_RESTRICT to) const {
    const D d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto same = [&](int64_t n) HWY_ATTR { return hn::Set(d, static_cast<Place>(n)); };
    const Axis* a = p_.axis;
    const V taps = same(p_.taps());
    const V from = same(job.from), again = same(job.from - job.ring), last = same(job.last);
    const bool deep = a[0].kernel > 1;
    const V per_row = ReciprocalOf(a[2].kernel), per_slice = ReciprocalOf(a[2].kernel * a[1].kernel);
    const V weight2 = same(a[2].dilation * steps_[2]);
    const V weight1 = same(a[1].dilation * steps_[1] - a[2].kernel * a[2].dilation * steps_[2]);
    const V weight0 = same(a[0].dilation * steps_[0] - a[1].kernel * a[1].dilation * steps_[1]);
    const auto inside = [&](int axis, V tap, int64_t at) HWY_ATTR {
      const V begins = hn::Add(hn::LoadU(d, at_[axis] + at), same(job.start[axis]));
      const auto in_box = hn::Lt(hn::Add(hn::Mul(tap, same(a[axis].dilation)), begins), same(job.size[axis]));
      return a[axis].table ? hn::And(in_box, hn::Lt(tap, hn::LoadU(d, sizes_[axis] + at))) : in_box;
    };
    auto all = hn::Eq(taps, taps);
    for (int64_t at = 0; at < job.n; at += lanes) {
      V code;
      if constexpr (sizeof(Code) < sizeof(Place)) {
        code = hn::PromoteTo(d, hn::LoadU(hn::Rebind<Code, D>(), codes + at));
      } else {
        code = hn::LoadU(d, codes + at);
      }
      auto valid = hn::Lt(code, taps);
      const V row = Divided(code, per_row);
      const V slice = deep ? Divided(code, per_slice) : hn::Zero(d);
      V place = hn::Add(hn::Mul(code, weight2), hn::Mul(row, weight1));
      if (deep) place = hn::Add(place, hn::Mul(slice, weight0));
      if constexpr (kOver) {
        const auto rest = [&](V number, V quotient, int64_t n)
                              HWY_ATTR { return hn::Sub(number, hn::Mul(quotient, same(n))); };
        if (job.over[2]) valid = hn::And(valid, inside(2, rest(code, row, a[2].kernel), at));
        if (job.over[1]) valid = hn::And(valid, inside(1, deep ? rest(row, slice, a[1].kernel) : row, at));
        if (job.over[0]) valid = hn::And(valid, inside(0, slice, at));
      }
      place = hn::Add(place, hn::LoadU(d, ramp_ + at));
      if (job.ring != 0) place = hn::Add(place, hn::IfThenElse(hn::Gt(place, last), again, from));
      hn::StoreU(hn::IfThenElse(valid, place, same(kNoPlace<Place>)), d, to + at);
      if (at + lanes > job.n) valid = hn::Or(valid, hn::Not(hn::FirstN(d, static_cast<size_t>(job.n - at))));
      all = hn::And(all, valid);
    }
    return hn::AllTrue(d, all);
  }

  const Problem& p_;
  const int64_t capacity_;
  Place* ramp_;                                        // places
  Place* at_[3];                                       // positions
  Place* sizes_[3];                                    // of windows, by table
  Place* codes_;                                       // or bytes
  int64_t lanes_ = 0, steps_[3] = {}, first_[3] = {};  // of the ramps
  bool over_[3] = {}, looked_at_[3] = {};
};

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
