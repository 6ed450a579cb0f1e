// Max pooling of channels last without routes, floats only: a row of outputs at a time from all the input rows it
// covers.
//
// Neighbouring windows share columns, so what is found once is the greatest of a column's rows. Small windows without
// gaps keep it for as long as a later window needs it, in a ring of a few pixels:
//
//   3x3, stride 2   6 loads of x, 1 of the ring, 1 store into it, instead of 9 loads
//   3x3, stride 1   3 loads of x, 2 of the ring, 1 store into it, instead of 9 loads
//   2x2, stride 2   4 loads of x: nothing is shared
//
// All others go by way of a row of columns in scratch. stream-inl.h reads row after row instead, which is faster where
// the lines of one row can be asked for ahead; WebAssembly cannot ask, and counts instructions: some engines check the
// bounds of every load and store with two of them.

// Per-target include guard
#if defined(POOLGRAD_CPU_WINDOWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_WINDOWS_INL_H_
#undef POOLGRAD_CPU_WINDOWS_INL_H_
#else
#define POOLGRAD_CPU_WINDOWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/forward/common/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How vectors of values meet, and what tells that this was not enough: two ways, of the same interface.
//
// By their bits, as unsigned integers: nothing but winners is watched, and zeros of different sign do not trouble it.
// That is right where no input is negative, as behind a rectifier; where one is, or a NaN, the winner of its window is
// above infinity.
template <class S>
class BitsOrder {
 public:
  using V = CodeVec<S>;
  HWY_INLINE BitsOrder() { greatest0_ = greatest1_ = hn::Zero(DU()); }
  HWY_INLINE BitsOrder(const BitsOrder& other) { *this = other; }
  HWY_INLINE BitsOrder& operator=(const BitsOrder& other) {
    greatest0_ = other.greatest0_;
    greatest1_ = other.greatest1_;
    return *this;
  }

  static HWY_INLINE V Load(const S* from) { return hn::BitCast(DU(), hn::LoadU(hn::ScalableTag<S>(), from)); }
  static HWY_INLINE void Store(V v, S* to) {
    hn::StoreU(hn::BitCast(hn::ScalableTag<S>(), v), hn::ScalableTag<S>(), to);
  }
  static HWY_INLINE V Meet(V later, V best) { return hn::Max(later, best); }
  template <int kChain>
  HWY_INLINE void SeeInput(V) {}
  template <int kChain>
  HWY_INLINE void SeeWinner(V v) {
    if constexpr (kChain % 2 == 0) greatest0_ = hn::Max(greatest0_, v);
    if constexpr (kChain % 2 == 1) greatest1_ = hn::Max(greatest1_, v);
  }

  HWY_INLINE bool Fired() const {
    const auto infinity = hn::BitCast(DU(), hn::Set(hn::ScalableTag<S>(), std::numeric_limits<S>::infinity()));
    return !hn::AllTrue(DU(), hn::Lt(hn::Max(greatest0_, greatest1_), infinity));
  }

 private:
  using DU = hn::ScalableTag<Code<S>>;
  V greatest0_, greatest1_;
};

// By their values, whatever they are.
template <class S>
class ValueOrder {
 public:
  using V = VecOf<S>;
  HWY_INLINE explicit ValueOrder(const Problem& p) : watch_(p) {}
  HWY_INLINE ValueOrder(const ValueOrder& other) : watch_(other.watch_) {}
  HWY_INLINE ValueOrder& operator=(const ValueOrder& other) {
    watch_ = other.watch_;
    return *this;
  }

  static HWY_INLINE V Load(const S* from) { return hn::LoadU(hn::ScalableTag<S>(), from); }
  static HWY_INLINE void Store(V v, S* to) { hn::StoreU(v, hn::ScalableTag<S>(), to); }
  static HWY_INLINE V Meet(V later, V best) { return Greater(later, best); }
  template <int kChain>
  HWY_INLINE void SeeInput(V v) {
    watch_.template See<kChain>(v);
  }
  template <int kChain>
  HWY_INLINE void SeeWinner(V v) {
    watch_.template SeeUnordered<kChain>(v);
  }
  HWY_INLINE bool Fired() const { return watch_.Fired(); }

 private:
  Watch<S> watch_;
};

// Vectors, from `at` on, of the greatest of kRows rows, or of `count` where kRows is 0.
template <int kRows, class S, class Order, int... kV>
HWY_INLINE void GreatestOf(const S* const* rows, int64_t count, int64_t at, typename Order::V* best, Order& order,
                           std::integer_sequence<int, kV...>) {
  const int64_t lanes = LaneCount<S>();
  ((best[kV] = Order::Load(rows[0] + at + kV * lanes)), ...);
  (order.template SeeInput<kV>(best[kV]), ...);
  const auto meet = [&](const S* row) POOLGRAD_LAMBDA {
    typename Order::V value[sizeof...(kV)];
    ((value[kV] = Order::Load(row + at + kV * lanes)), ...);
    (order.template SeeInput<kV>(value[kV]), ...);
    ((best[kV] = Order::Meet(value[kV], best[kV])), ...);
  };
  if constexpr (kRows > 1) meet(rows[1]);
  if constexpr (kRows > 2) meet(rows[2]);
  static_assert(kRows <= 3);
  if constexpr (kRows == 0) {
    for (int64_t r = 1; r < count; ++r) meet(rows[r]);
  }
}

// A row of outputs. Each window has kNew + kOld columns and begins kNew further on than the one before. A column
// outside the input is replaced by the nearest one inside, which belongs to the same window, so meeting it twice
// changes nothing.
template <class S>
struct SharingJob {
  const S* const* rows;  // kRows of them; some may be the same
  int64_t columns;       // of the input
  int64_t start;         // the first window's first column: at least -kOld
  int64_t channels;      // at least a vector
  int64_t outputs;
  S* ring;  // kSharingSlots pixels
  S* y;
};

inline constexpr int64_t kSharingSlots = 3, kSharingRows = 3;  // at most

// Vectors of one output, from channel j on; `columns` says where its new columns begin. The ring's slots: what the
// window before left, then what this one leaves.
template <int kRows, int kNew, int kOld, class S, class Order, int... kV>
HWY_INLINE void PoolVectors(const S* const* rows, const int64_t* columns, S* const* ring, int64_t j, S* y, Order& order,
                            std::integer_sequence<int, kV...> vectors) {
  constexpr int kKept = std::min(kNew, kOld);
  const int64_t lanes = LaneCount<S>();
  typename Order::V best[sizeof...(kV)];
  typename Order::V column[sizeof...(kV)];
  POOLGRAD_UNROLL
  for (int n = 0; n < kNew; ++n) {
    GreatestOf<kRows>(rows, kRows, columns[n] + j, column, order, vectors);
    if (n >= kNew - kKept) {
      S* slot = ring[kOld + n - (kNew - kKept)] + j;
      (Order::Store(column[kV], slot + kV * lanes), ...);
    }
    ((best[kV] = n == 0 ? column[kV] : Order::Meet(column[kV], best[kV])), ...);
  }
  POOLGRAD_UNROLL
  for (int q = 0; q < kOld; ++q) {
    ((best[kV] = Order::Meet(Order::Load(ring[q] + j + kV * lanes), best[kV])), ...);
  }
  (order.template SeeWinner<kV>(best[kV]), ...);
  (Order::Store(best[kV], y + j + kV * lanes), ...);
}

template <int kRows, int kNew, int kOld, class S, class Order>
HWY_NOINLINE void PoolSharing(const SharingJob<S>& job, Order& shared_order) {
  constexpr int kKept = std::min(kNew, kOld);
  static_assert(kRows <= kSharingRows && kOld + kKept <= kSharingSlots);
  const int64_t lanes = LaneCount<S>();
  const int64_t channels = job.channels;
  const int64_t last = (job.columns - 1) * channels;
  Order order = shared_order;
  const S* rows[kRows];
  S* ring[kSharingSlots];
  POOLGRAD_UNROLL
  for (int r = 0; r < kRows; ++r) rows[r] = job.rows[r];
  POOLGRAD_UNROLL
  for (int q = 0; q < kSharingSlots; ++q) ring[q] = job.ring + q * channels;

  for (int64_t q = 0; q < kOld; ++q) {
    const int64_t column = std::clamp<int64_t>((job.start + q) * channels, 0, last);
    for (int64_t i = 0; i < channels; i += lanes) {
      const int64_t j = std::min(i, channels - lanes);  // the last vector may overlap the one before
      typename Order::V best;
      GreatestOf<kRows>(rows, kRows, column + j, &best, order, std::integer_sequence<int, 0>());
      Order::Store(best, ring[q] + j);
    }
  }
  int64_t next = (job.start + kOld) * channels;
  S* y = job.y;
  for (int64_t o = job.outputs; o > 0; --o, y += channels) {
    int64_t columns[kNew];
    POOLGRAD_UNROLL
    for (int n = 0; n < kNew; ++n, next += channels) columns[n] = std::min(next, last);
    int64_t j = 0;
    for (; j + 4 * lanes <= channels; j += 4 * lanes) {
      PoolVectors<kRows, kNew, kOld>(rows, columns, ring, j, y, order, std::make_integer_sequence<int, 4>());
    }
    for (; j < channels; j += lanes) {
      PoolVectors<kRows, kNew, kOld>(rows, columns, ring, std::min(j, channels - lanes), y, order,
                                     std::make_integer_sequence<int, 1>());
    }
    POOLGRAD_UNROLL
    for (int k = 0; k < kKept; ++k) std::rotate(ring, ring + 1, ring + kOld + kKept);
  }
  shared_order = order;
}

// to[j] = the greatest of from[t][j], t < count; kWinners: `to` is y. Nothing beyond `length` is read or written.
template <bool kWinners, class S, class Order>
HWY_NOINLINE void PoolRun(const S* const* from, int64_t count, int64_t length, S* to, Order& shared_order) {
  const int64_t lanes = LaneCount<S>();
  Order order = shared_order;
  const auto vectors = [&]<int... kV>(int64_t j, std::integer_sequence<int, kV...> which) POOLGRAD_LAMBDA {
    typename Order::V best[sizeof...(kV)];
    GreatestOf<0>(from, count, j, best, order, which);
    if constexpr (kWinners) (order.template SeeWinner<kV>(best[kV]), ...);
    (Order::Store(best[kV], to + j + kV * lanes), ...);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= length; i += 4 * lanes) vectors(i, std::make_integer_sequence<int, 4>());
  if (length >= lanes) {
    for (; i < length; i += lanes) vectors(std::min(i, length - lanes), std::make_integer_sequence<int, 1>());
  } else {
    HWY_ALIGN S part[hn::MaxLanes(hn::ScalableTag<S>())];
    std::fill(part, part + lanes, S{1});  // an ordinary value
    const auto load = [&](int64_t t) POOLGRAD_LAMBDA {
      std::memcpy(part, from[t], static_cast<size_t>(length) * sizeof(S));
      const auto value = Order::Load(part);
      order.template SeeInput<0>(value);
      return value;
    };
    auto best = load(0);
    for (int64_t t = 1; t < count; ++t) best = Order::Meet(load(t), best);
    if constexpr (kWinners) order.template SeeWinner<0>(best);
    Order::Store(best, part);
    std::memcpy(to, part, static_cast<size_t>(length) * sizeof(S));
  }
  shared_order = order;
}

template <class S>
struct WindowScratch {
  int64_t outputs;  // that go by way of `columns` at once
  const S** rows;   // of a window
  const S** from;
  S* columns;
  S* ring;

  static constexpr int64_t kColumnBytes = 64 << 10;

  WindowScratch(const Problem& p, ScratchTaker& take) {
    const Axis& w = p.width();
    const int64_t pixel = p.channels * static_cast<int64_t>(sizeof(S));
    // Columns between windows are not worth visiting.
    outputs = w.stride > w.extent() ? 1 : std::clamp<int64_t>(kColumnBytes / pixel / w.stride, 1, w.out);
    const int64_t row_count = p.depth().kernel * p.height().kernel;
    rows = take.Take<const S*>(std::max(row_count, kSharingRows));
    from = take.Take<const S*>(std::max(w.kernel, row_count));
    columns = take.Take<S>(((outputs - 1) * w.stride + w.extent()) * p.channels);
    ring = take.Take<S>(kSharingSlots * p.channels);
  }
};

template <class S>
class WindowRunner {
 public:
  WindowRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p),
        width_(p.width()),
        rows_(p, args),
        take_(memory),
        s_(p, take_),
        shares_(p.channels >= LaneCount<S>() && width_.dilation == 1 &&
                width_.pad_lo <= width_.kernel - width_.stride) {}

  // Units are rows of outputs: (plane, od, oh).
  void Run(int64_t begin, int64_t end) {
    const Axis& depth = p_.depth();
    const Axis& height = p_.height();
    for (int64_t unit = begin; unit < end; ++unit) {
      oh_ = unit % height.out;
      od_ = unit / height.out % depth.out;
      plane_ = rows_.plane(unit / height.out / depth.out);
      y_ = rows_.y_row(unit);
      const Range d = depth.valid_taps(od_);
      const Range h = height.valid_taps(oh_);
      row_count_ = 0;
      for (int64_t kd = d.begin; kd < d.end; ++kd) {
        for (int64_t kh = h.begin; kh < h.end; ++kh) {
          s_.rows[row_count_++] =
              rows_.row(plane_, depth.start(od_) + kd * depth.dilation, height.start(oh_) + kh * height.dilation);
        }
      }
      const Range all = {0, width_.out};
      if (!Pool()) {
        RunExactRow<S>(rows_, plane_, od_, oh_, all, unit);
      } else if (p_.relu) {  // nothing special is left
        for (int64_t i = 0; i < width_.out * p_.channels; ++i) y_[i] = y_[i] > S{0} ? y_[i] : S{0};
      }
    }
  }

 private:
  // False where the rules have to be followed to the letter.
  bool Pool() {
    if (row_count_ == 0) return false;
    if (--rows_until_bits_ < 0) {
      BitsOrder<S> bits;
      PoolRow(bits);
      if (!bits.Fired()) return true;
      // So there are negative values, and probably further on too.
      rows_until_bits_ = pause_;
      pause_ = std::min<int64_t>(2 * pause_, 256);
    }
    ValueOrder<S> values(p_);
    PoolRow(values);
    return !values.Fired() || !SeesSpecial(rows_, plane_, od_, oh_, {0, width_.out});
  }

  template <class Order>
  void PoolRow(Order& order) {
    const int64_t most_rows = p_.depth().kernel * p_.height().kernel;
    const SharingJob<S> job = {s_.rows, width_.in, width_.start(0), p_.channels, width_.out, s_.ring, y_};
    std::fill(s_.rows + row_count_, s_.rows + std::max(row_count_, kSharingRows), s_.rows[0]);
    if (shares_ && width_.kernel == 3 && width_.stride == 2 && most_rows <= 3) return PoolSharing<3, 2, 1>(job, order);
    if (shares_ && width_.kernel == 3 && width_.stride == 1 && most_rows <= 3) return PoolSharing<3, 1, 2>(job, order);
    if (shares_ && width_.kernel == 2 && width_.stride == 2 && most_rows <= 2) return PoolSharing<2, 2, 0>(job, order);
    for (int64_t o = 0; o < width_.out; o += s_.outputs) ByColumns({o, std::min(o + s_.outputs, width_.out)}, order);
  }

  template <class Order>
  void ByColumns(Range outputs, Order& order) {
    const int64_t channels = p_.channels;
    const int64_t first = std::max<int64_t>(0, width_.start(outputs.begin));
    const int64_t end = std::min(width_.in, width_.start(outputs.end - 1) + width_.extent());
    for (int64_t r = 0; r < row_count_; ++r) s_.from[r] = s_.rows[r] + first * channels;
    PoolRun<false>(s_.from, row_count_, (end - first) * channels, s_.columns, order);

    const Range whole = width_.interior();
    for (Range ow = outputs; ow.begin < outputs.end; ow.begin = ow.end) {  // those with the same valid taps
      const bool inside = ow.begin >= whole.begin && ow.begin < whole.end;
      ow.end = inside ? std::min(whole.end, outputs.end) : ow.begin + 1;
      const Range taps = width_.valid_taps(ow.begin);
      for (int64_t t = 0; t < taps.size(); ++t) {
        s_.from[t] = s_.columns + (width_.start(ow.begin) + (taps.begin + t) * width_.dilation - first) * channels;
      }
      const int64_t run = width_.stride == 1 ? ow.size() * channels : channels;
      for (S* y = y_ + ow.begin * channels; y < y_ + ow.end * channels; y += run) {
        PoolRun<true>(s_.from, taps.size(), run, y, order);
        for (int64_t t = 0; t < taps.size(); ++t) s_.from[t] += width_.stride * channels;
      }
    }
  }

  const Problem& p_;
  const Axis& width_;
  Rows<S> rows_;
  ScratchTaker take_;
  WindowScratch<S> s_;
  bool shares_;
  int64_t od_ = 0, oh_ = 0;
  const S* plane_ = nullptr;
  S* y_ = nullptr;  // the row of outputs
  int64_t row_count_ = 0;
  int64_t rows_until_bits_ = 0;  // until the next row that is tried by its bits
  int64_t pause_ = 1;
};

template <class S>
void RunWindows(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  WindowRunner<S>(p, args, memory).Run(begin, end);
}

template <class S>
const char* MakeWindows(const Problem& p, Kernel* kernel) {
  if (!p.channels_last() || p.channels == 1) return "it needs channels last";
  ScratchTaker take(nullptr);
  const WindowScratch<S> scratch(p, take);
  kernel->run = RunWindows<S>;
  kernel->units = Rows<S>(p, Args{}).row_count();
  kernel->scratch_bytes = take.used();
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
