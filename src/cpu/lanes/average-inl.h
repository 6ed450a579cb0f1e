// fwd_average and bwd_average: averages and their gradient, both layouts, any window. Every sum is made in the order of
// its sources, row-major, from +0 on, in the wide type, and rounded once. Forward divides the sum, backward what it
// adds. Adding +0 for what lies outside changes no bit of a sum that began at +0.
//
// Tried and left: lanes through the loop of channels, in place of AddLanes (20 lines; 0.7 to 0.9 times as fast).

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/lanes/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Adds `count` rows of every lane to its n sums.
template <class W>
HWY_NOINLINE void AddLanes(const W* HWY_RESTRICT rows, int64_t row_step, int64_t count, const Sources* sources,
                           int64_t n, int64_t step, bool fresh, W* HWY_RESTRICT sums) {
  const hn::ScalableTag<W> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t i = 0; i < n; ++i, sums += kLanes) {
    auto sum = fresh ? hn::Zero(d) : hn::LoadU(d, sums);
    const W* row = rows + sources[i].first * kLanes;
    const int64_t taps = sources[i].count;
    for (int64_t r = 0; r < count; ++r, row += row_step) {
      int64_t k = 0;
      for (; k + 2 <= taps; k += 2)
        sum = hn::Add(hn::Add(sum, hn::LoadU(d, row + k * step)), hn::LoadU(d, row + (k + 1) * step));
      if (k < taps) sum = hn::Add(sum, hn::LoadU(d, row + k * step));
    }
    hn::StoreU(sum, d, sums);
  }
}

template <class T>
class Average {
  using W = Wide<T>;
  using V = VecOf<W>;
  static constexpr int64_t kLanes = Lanes<T>::kLanes;

 public:
  Average(const Problem& p, const Args& args, ScratchTaker& take)
      : p_(p), l_(*static_cast<const LaneLayout*>(args.layout)), take_(take), s_(p, l_, args, take) {}

  void Run(int64_t begin, int64_t end) {
    s_.ForRows(
        begin, end, [&] { CountAlongWidth(); },
        [&](int64_t a, int64_t b, int64_t number, int64_t r) {
          Row(a, b, sums_ + r * l_.row(), s_.ResultRow(s_.image[0], s_.part[0], number) + s_.channel);
        },
        [&](int64_t number, int64_t rows) {
          if (!l_.channels) s_.Leave(sums_, number, rows);
        });
  }

 private:
  // Outputs of a part of a row.
  int64_t Outputs() const { return l_.way.back ? l_.places : l_.part; }

  // Rows of the source, and the sums that are to have them added.
  template <class Source>
  struct Job {
    const Source* rows;
    int64_t row_step, count;
    const Sources* sources;
    bool fresh, last;  // sums begin, or are done
    W row_count;
    W* sums;
    T* to;  // channels: where they go when they are done
  };

  void Row(int64_t a, int64_t b, W* sums, T* to) {
    const SourcesAlong::Found depth = s_.depth.Of(a), height = s_.height.Of(b);
    const W row_count = RowCount(depth.counted * height.counted);
    const bool none = depth.at.count == 0 || height.at.count == 0;
    if (!l_.staged) {
      for (int64_t kd = 0; kd < (none ? 1 : depth.at.count); ++kd) {
        const int64_t d = depth.at.first + kd * l_.way.step(p_.depth());
        const T* rows = none ? nullptr : s_.SourceRow(s_.image[0], d, height.at.first);
        Add<true>({rows, l_.way.step(p_.height()) * l_.source_row, none ? 0 : height.at.count, s_.sources(), kd == 0,
                   none || kd + 1 == depth.at.count, row_count, sums, to});
      }
      return;
    }
    if (none && l_.channels) return Add<false>({nullptr, 0, 0, s_.sources(), true, true, row_count, sums, to});
    if (none) return std::fill(sums, sums + l_.row(), W{0});
    bool fresh = l_.tiles_across == 1;
    if (!fresh) std::fill(sums, sums + l_.row(), W{0});
    s_.ForTiles(
        depth.at, height.at,
        [&](W* tile, int64_t d, int64_t h, int64_t rows, int64_t column, int64_t columns) {
          if (!l_.way.back) return;
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t counted = p_.depth().counted_taps(d, p_.count_padding).size() *
                                    p_.height().counted_taps(h + r, p_.count_padding).size();
            Divide(tile + r * l_.tile_columns * l_.inner * l_.block, column, columns, RowCount(counted));
          }
        },
        [&](const W* tile, int64_t row_step, int64_t rows, const Sources* sources, bool last) {
          if (l_.channels) {
            Add<false>({tile, row_step, rows, sources, fresh, last, row_count, sums, to});
          } else {
            AddLanes<W>(tile, row_step, rows, sources, l_.part * l_.inner, width_step_ * kLanes, fresh, sums);
          }
          fresh = false;
        });
    if (!l_.channels && !l_.way.back) Divide(sums, 0, l_.part, row_count);
  }

  // Channels. kDirect: from where rows lie in memory.
  template <bool kDirect>
  HWY_NOINLINE void Add(const Job<std::conditional_t<kDirect, T, W>>& shared_job) {
    const hn::ScalableTag<W> d;
    const Job<std::conditional_t<kDirect, T, W>> job = shared_job;
    const int64_t places = s_.PartSize(s_.part[0]);
    const int64_t elements = s_.used;
    const auto row_count = hn::Set(d, job.row_count);
    W* sums = job.sums;
    T* to = job.to;
    for (int64_t o = 0; o < places; ++o, to += s_.beside, sums += l_.block) {
      const V count = l_.way.back ? row_count : hn::Mul(row_count, hn::LoadU(d, counts_ + o * kLanes));
      const int64_t left = l_.blocks == 1 ? (places - o) * s_.beside : elements;  // the next ones write over the rest
      const Sources at = job.sources[o];
      int64_t e = 0;
      for (; e + 4 * kLanes <= elements; e += 4 * kLanes) AddSome<kDirect, 4>(job, at, e, count, sums, to, left);
      for (; e < elements; e += kLanes) AddSome<kDirect, 1>(job, at, e, count, sums, to, left);
    }
  }

  template <bool kDirect, int kVectors>
  HWY_INLINE void AddSome(const Job<std::conditional_t<kDirect, T, W>>& job, Sources at, int64_t e, V count, W* sums,
                          T* to, int64_t left) const {
    const hn::ScalableTag<W> d;
    const int64_t pitch = kDirect ? s_.beside : l_.block;
    const int64_t step = width_step_ * pitch;
    V sum[kVectors];
    for (int i = 0; i < kVectors; ++i) sum[i] = job.fresh ? hn::Zero(d) : hn::LoadU(d, sums + e + i * kLanes);
    auto* row = job.rows + at.first * pitch + e;
    for (int64_t r = 0; r < job.count; ++r, row += job.row_step) {
      auto* from = row;
      for (int64_t k = 0; k < at.count; ++k, from += step) {
        for (int i = 0; i < kVectors; ++i) {
          if constexpr (kDirect && kVectors == 1) {
            sum[i] = hn::Add(sum[i], LoadSome(d, from, s_.source_end - from));
          } else {
            sum[i] = hn::Add(sum[i], LoadWide(d, from + i * kLanes));
          }
        }
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      if (job.last && !l_.way.back) sum[i] = Divided(sum[i], count);
      if (job.last) {
        StoreSome(d, sum[i], to + e + i * kLanes, left - e - i * kLanes);
      } else {
        hn::StoreU(sum[i], d, sums + e + i * kLanes);
      }
    }
  }

  // 0 where nothing counts.
  static HWY_INLINE V Divided(V sum, V count) {
    return hn::IfThenElseZero(hn::Gt(count, hn::Zero(hn::ScalableTag<W>())), hn::Div(sum, count));
  }

  // Outputs [first, first + n) of a row.
  HWY_NOINLINE void Divide(W* values, int64_t first, int64_t n, W row) const {
    const hn::ScalableTag<W> d;
    const auto row_count = hn::Set(d, row);
    const int64_t each = l_.inner * l_.block;
    for (int64_t o = first; o < first + n; ++o) {
      const V count = hn::Mul(row_count, hn::LoadU(d, counts_ + o * kLanes));
      for (int64_t i = 0; i < each; i += kLanes, values += kLanes)
        hn::StoreU(Divided(hn::LoadU(d, values), count), d, values);
    }
  }

  // What outputs are divided by is the product of what they count along the width and of what their row does.
  bool CountsTaps() const { return p_.divisor == 0 && !(l_.way.back && p_.whole_window_gradient); }

  W RowCount(int64_t counted) const {
    return static_cast<W>(CountsTaps() ? counted : l_.way.back && p_.whole_window_gradient ? p_.taps() : p_.divisor);
  }

  void CountAlongWidth() {
    const Axis& w = p_.width();
    const int64_t n = Outputs();
    const auto first = [&](int64_t i) {
      return l_.way.back ? l_.part_origin + s_.part[i] * l_.part_step : s_.part[i] * l_.part;
    };
    // Most parts have all taps everywhere.
    const Range inner = w.interior();
    bool whole = !CountsTaps();
    if (!whole && l_.parts > 1) {
      whole = true;
      for (int64_t i = 0; i < kLanes; ++i) whole = whole && first(i) >= inner.begin && first(i) + n <= inner.end;
    }
    if (counted_ == (whole ? 2 : 1) && (whole || l_.parts == 1)) return;
    counted_ = whole ? 2 : 1;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < kLanes; ++i) {
        if (i > 0 && first(i) == first(i - 1)) {  // counting divides: it took longer than a small plane does
          counts_[j * kLanes + i] = counts_[j * kLanes + i - 1];
          continue;
        }
        const int64_t o = first(i) + j;
        const bool counts = CountsTaps() && o >= 0 && o < w.out;
        counts_[j * kLanes + i] = static_cast<W>(counts         ? w.counted_taps(o, p_.count_padding).size()
                                                 : CountsTaps() ? w.kernel
                                                                : 1);
      }
    }
  }

  const Problem& p_;
  const LaneLayout& l_;
  ScratchTaker& take_;
  Lanes<T> s_;
  W* const sums_ = take_.Take<W>(l_.rows_out * l_.row() + kLanes * kLanes);
  W* const counts_ = take_.Take<W>(Outputs() * kLanes);  // of every output of a part and lane
  int counted_ = 0;
  const int64_t width_step_ = l_.way.step(p_.width()) * l_.inner;
};

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
