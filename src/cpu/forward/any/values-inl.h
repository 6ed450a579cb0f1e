// fwd_values: max pooling without routes, any window, both layouts. Down first, then across, a block of output rows at
// a time, in L1.
//
//   fold     windows with depth: the greatest of the slices, row by row
//   down     each row of outputs: the greatest of the input rows it sees, into a padded row
//   across   each output: the greatest of its window of the padded row
//
// Down first reads x where it lies and leaves one row per row of outputs to the slower way across. Blocks, not rows,
// because loads that straddle what was just stored wait for it. Rows too long for that are cut into pieces. Windows
// several apart are loaded as they lie, and eight of them reduced across lanes together. Large windows are running
// maxima down, whose time does not depend on the window, and spans across (blocks-inl.h). Which tap won does not matter
// here, so they may meet in any order; zeros of different sign are left to a Watch.
//
// Tried and left: windows three wide and two apart all in registers (1.1 times as fast with vectors of 16 bytes, 120
// lines); sliding in registers at stride 1 (6.6 cycles per vector against 4.2: then no input rows are shared); blocks
// of 12 to 40 KiB are all the same; rows in pieces of 16 to 48 KiB (0.9); neighbours that meet first where windows and
// strides are multiples of two or three, in place of windows across lanes (signals, 0.5 to 1.25 times as fast).

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/any/padded-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

inline constexpr int64_t kReadBeyond = 8;  // vectors, of padded rows

// Whether kPhases is there. Where it is, kPick is left for wider strides and windows, and for few channels last. (4
// taps at stride 3 or 4, signals: 1.5 to 1.9 times as fast as by kPick; planes with 3 to 11 rows to a window 1.1
// to 1.6.) Bits have it because their floats do: both run in one layout (forward.cc, AddShortcut).
template <class S>
inline constexpr bool kTakesPhases = kManyForms<S> || kIsBits<S> ||
                                     (HWY_TARGET == HWY_AVX2 && (std::is_same_v<S, float> || kIsHalf<S>));
static_assert(HWY_TARGET != HWY_NEON || (kTakesPhases<float> && kTakesPhases<int16_t>));

// Whether kWindows is there.
template <class S>
inline constexpr bool kTakesWindows = kWideStrides && (sizeof(S) == 2 || sizeof(S) == 4);

// Windows kStride apart from padded rows: bit i of `taps` says that element i of one is a tap.
template <class S, int kStride>
HWY_NOINLINE void MaxOfPhases(const S* from, uint64_t taps, int64_t rows, int64_t run, int64_t in_pitch, S* y,
                              int64_t y_pitch, Watch<S>& shared_watch) {
  Watch<S> watch = shared_watch;
  const int64_t lanes = LaneCount<S>();
  for (int64_t r = 0; r < rows; ++r, from += in_pitch, y += y_pitch) {
    for (int64_t at = 0; at < run; at += lanes) {  // one loop for all: the loads are large
      const int64_t j = std::max<int64_t>(0, std::min(at, run - lanes));
      const S* x = from + kStride * j;
      auto best = hn::Set(hn::ScalableTag<S>(), LowestKey<S>());
      for (uint64_t rest = taps; rest != 0; rest >>= kStride, x += kStride) {
        VecOf<S> phase[std::max(4, kStride)];
        LoadPhases<S, kStride>(x, phase);
        POOLGRAD_UNROLL for (int t = 0; t < kStride; ++t) {
          if (rest >> t & 1) best = Greatest<S>(phase[t], best);
        }
      }
      if (run < lanes) {
        PutFirst<S, MaxFlow::kKeysToY>(best, y, run, y_pitch == run ? (rows - r) * run : 0, watch);
      } else {
        PutMax<S, MaxFlow::kKeysToY, 0>(best, y + j, watch);
      }
    }
  }
  shared_watch = watch;
}

// The greatest lane of each of kN vectors, as many as there are lanes; of vectors of several blocks with as many lanes,
// of each block. Two vectors become one at a time, whose lanes have met; kUnit bytes belong together by now.
template <class S, int kN, size_t kUnit, class D>
HWY_INLINE hn::Vec<D> GreatestOfEach(D d, hn::Vec<D>* v) {
  if constexpr (kN > 1) {
    POOLGRAD_UNROLL for (int i = 0; i < kN / 2; ++i) {
      const auto a = v[2 * i], b = v[2 * i + 1];
#if HWY_TARGET == HWY_NEON
      v[i] = PairMax<S>(a, b);
#else
      if constexpr (kUnit < 16) {
        const hn::Repartition<hwy::UnsignedFromSize<kUnit>, D> du;
        const auto low = hn::InterleaveLower(du, hn::BitCast(du, a), hn::BitCast(du, b));
        const auto high = hn::InterleaveUpper(du, hn::BitCast(du, a), hn::BitCast(du, b));
        v[i] = Greatest<S>(hn::BitCast(d, high), hn::BitCast(d, low));
      } else {
        v[i] = Greatest<S>(hn::ConcatUpperUpper(d, b, a), hn::ConcatLowerLower(d, b, a));
      }
#endif
    }
    return GreatestOfEach<S, kN / 2, 2 * kUnit>(d, v);
  }
  return v[0];
}

// Windows of `kernel` neighbours, `stride` apart, from a padded row. Up to a vector more is written, and what that is
// made of read. Halves: windows eight apart are beside each other in a vector.
template <class S>
HWY_NOINLINE void MaxOfWindows(const S* from, int64_t kernel, int64_t stride, int64_t n, S* to) {
  const hn::CappedTag<S, sizeof(S) == 2 ? 16 : 8> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int kWindows = hn::MaxLanes(d), kLanes = std::min(8, kWindows);
  const auto lowest = hn::Set(d, LowestKey<S>());
  using I = hn::TFromD<decltype(di)>;
  const auto in_window = hn::RebindMask(
      d, hn::Lt(hn::And(hn::Iota(di, 0), hn::Set(di, 7)), hn::Set(di, static_cast<I>(std::min<int64_t>(kernel, 8)))));
  const auto load = [&](const S* x) POOLGRAD_LAMBDA {
    if constexpr (kWindows == kLanes) {
      return hn::LoadU(d, x);
    } else {
      const hn::Half<decltype(d)> half;
      return hn::Combine(d, hn::LoadU(half, x + kLanes * stride), hn::LoadU(half, x));
    }
  };
  for (int64_t o = 0; o < n; o += kWindows, from += kWindows * stride) {
    hn::Vec<decltype(d)> v[kLanes];
    const S* x = from;
    POOLGRAD_UNROLL for (int j = 0; j < kLanes; ++j, x += stride) v[j] = load(x);
    if (kernel < kLanes) {
      POOLGRAD_UNROLL for (int j = 0; j < kLanes; ++j) v[j] = hn::IfThenElse(in_window, v[j], lowest);
    }
    for (int64_t t = kLanes; t < kernel; t += kLanes) {
      x = from + std::min(t, kernel - kLanes);
      POOLGRAD_UNROLL for (int j = 0; j < kLanes; ++j, x += stride) v[j] = Greatest<S>(load(x), v[j]);
    }
    hn::StoreU(GreatestOfEach<S, kLanes, sizeof(S)>(d, v), d, to + o);
  }
}

// How a problem is cut.
struct ValuesLayout {
  Spans across;
  Across way;
  bool runs;                  // running maxima down
  bool folds;                 // depth taps are folded into one slice first
  int64_t tile;               // outputs along the width per piece
  int64_t out_rows, in_rows;  // per block
  int64_t across_rows;        // of them at a time
  int64_t pitch;              // of padded rows
  int64_t in_pitch;           // of input rows in scratch, at most
  int64_t dense;              // buffers of rows at all places

  bool picks() const { return way == Across::kWindows || way == Across::kPick; }
};

template <class S>
ValuesLayout LayOutValues(const Problem& p) {
  const int64_t inner = p.channels_last() ? p.channels : 1;
  const int64_t size = sizeof(S);
  const Axis& h = p.height();
  const Axis& w = p.width();
  const bool apart = w.stride > 1 && w.out > 1;
  const bool pairs = inner == 1 && w.stride == 2 && w.dilation == 1 && w.kernel <= 9;
  const bool phases = kTakesPhases<S> && inner == 1 && (w.stride == 3 || w.stride == 4) && w.extent() <= 4 * w.stride;
  const bool windows = kTakesWindows<S> && inner == 1 && w.stride >= 3 && w.dilation == 1;
  ValuesLayout l;
  l.way = !apart                    ? Across::kTaps
          : pairs                   ? Across::kPairs
          : phases                  ? Across::kPhases
          : windows                 ? Across::kWindows
          : inner >= LaneCount<S>() ? Across::kRuns
                                    : Across::kPick;
  const Across way = l.way;
  const bool at_once = w.out == 1 || way == Across::kPairs || way == Across::kPhases || way == Across::kWindows;
  l.across = Spans(at_once ? 1 : w.kernel, way == Across::kRuns ? w.stride : 1);
  l.runs = h.out > 1 && h.kernel > 10 + 2 * h.stride;
  l.folds = p.depth().kernel > 1 && (!h.disjoint() || l.runs);
  const bool last_is_dense = way == Across::kPick && w.kernel > 1;
  l.dense = std::min<int64_t>(2, l.across.levels + last_is_dense);
  const bool shares = l.folds || l.runs;  // what blocks have in common is made again for each
  const int64_t in_copies = l.folds + l.runs;
  const int64_t least_rows = std::min(h.out, shares ? CeilDiv(2 * h.extent(), h.stride) : 2);
  const int64_t least_in = InRows(h, least_rows);
  const int64_t each =
      (least_rows * ((1 + l.dense) * w.stride + l.picks()) + least_in * in_copies * w.stride) * inner * size;
  const int64_t fixed = (least_rows * (1 + l.dense) + least_in * in_copies) * w.extent() * inner * size;
  l.tile = TileOf(w.out, Tuning().forward_piece, fixed, each);
  const int64_t positions = (l.tile - 1) * w.stride + w.extent();
  l.pitch = std::max(positions, way == Across::kWindows ? l.tile * w.stride : 0) * inner;  // then rows may be one
  l.in_pitch = std::min(w.in, positions) * inner;
  const int64_t row = (l.pitch * (2 + l.dense) + l.in_pitch * in_copies * h.stride) * size;  // x and y pass by too
  const int64_t rows =
      std::max<int64_t>(Tuning().forward_values_block / row, shares ? CeilDiv(2 * h.extent(), h.stride) : 2);
  const bool one_plane = shares || p.depth().out > 1 || l.tile < w.out;
  const int64_t planes = p.batch * (p.channels_last() ? 1 : p.channels);
  l.out_rows = rows > h.out && one_plane ? h.out : std::min(rows, h.out * planes);
  l.in_rows = InRows(h, l.out_rows);
  const int64_t fit = Tuning().forward_values_block / (l.pitch * (1 + l.dense) * size);
  l.across_rows = std::clamp<int64_t>(fit, std::min<int64_t>(2, l.out_rows), l.out_rows);
  return l;
}

// A row meets what the rows before it left, `before` (null: there was none), and that becomes `to`, which may be the
// same. Where `other` is not null, both together become `out`. At least a vector long.
template <class S, MaxFlow kFlow>
HWY_NOINLINE void RunningMax(const S* row, const S* before, int64_t run, S* to, const S* other, S* out,
                             Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  Watch<S> watch = shared_watch;
  ForRow<S>(run, [&](int64_t j) POOLGRAD_LAMBDA {
    auto v = LoadKey<S, kFlow, 0>(row + j, watch);
    if (before) v = Greatest<S>(hn::LoadU(d, before + j), v);
    hn::StoreU(v, d, to + j);
    if (other) hn::StoreU(Greatest<S>(hn::LoadU(d, other + j), v), d, out + j);
  });
  shared_watch = watch;
}

template <class S>
class ValuesRunner {
 public:
  ValuesRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  void Run(int64_t begin, int64_t end) {
    Clear();
    PoolBlocks(
        rows_, l_.out_rows, l_.tile, begin, end, &piece_, [&] { Clear(); },
        [&](const Block<S>& block, Watch<S>& watch) { Pool(block, watch); });
  }

 private:
  void Clear() { FillRow<S>(padded_, l_.out_rows * l_.pitch + kReadBeyond * LaneCount<S>(), LowestKey<S>()); }

  int64_t Seen() const { return piece_.width.in * inner_; }  // elements of a row of x that the piece sees

  void Pool(const Block<S>& block, Watch<S>& watch) {
    Down(block, watch);
    S* const y = rows_.y_row(block.r) + piece_.ow.begin * inner_;
    const int64_t rows = block.planes * block.oh.size();
    for (int64_t r = 0; r < rows; r += l_.across_rows) {
      AcrossRows(padded_ + r * l_.pitch, std::min(l_.across_rows, rows - r), y + r * y_pitch_, watch);
    }
  }

  const S* Input(const Block<S>& block, int64_t kd, int64_t h) const {
    return rows_.row(block.plane, p_.depth().start(block.od) + kd * p_.depth().dilation, h) + piece_.begin * inner_;
  }

  void Down(const Block<S>& block, Watch<S>& watch) {
    if (!l_.folds) return DownFrom<MaxFlow::kRawToKeys>(block, block.depth, watch);
    for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd) {
      list_[kd - block.depth.begin] = Input(block, kd, block.in.begin);
    }
    MaxRows<S, MaxFlow::kRawToKeys>(
        {list_, block.depth.size(), block.in.size(), Seen(), x_pitch_, folded_, l_.in_pitch, 0, 1, 0, 0, &lookahead_},
        watch);
    DownFrom<MaxFlow::kKeysToKeys>(block, {0, 1}, watch);
  }

  // Rows come from x, or folded from scratch.
  template <MaxFlow kFlow>
  void DownFrom(const Block<S>& block, Range depth, Watch<S>& watch) {
    const int64_t first = block.in.begin;
    const int64_t pitch = kFlow == MaxFlow::kKeysToKeys ? l_.in_pitch : x_pitch_;
    const auto source = [&](int64_t kd, int64_t h) {
      return kFlow == MaxFlow::kKeysToKeys ? folded_ + (h - first) * pitch : Input(block, kd, h);
    };
    if (l_.runs && Seen() >= LaneCount<S>()) {
      const int64_t apart = height_.dilation / std::gcd(height_.stride, height_.dilation);
      for (int64_t r = 0; r < std::min(apart, block.oh.size()); ++r) {
        for (int64_t o = block.oh.begin + r; o < block.oh.end;) {
          const auto row = [&](int64_t tap) { return source(depth.begin, height_.start(o) + tap * height_.dilation); };
          o += apart * RunDown<kFlow>(block, o, apart, row, watch);
        }
      }
      return;
    }
    const Range whole = height_.interior();
    for (int64_t o = block.oh.begin; o < block.oh.end;) {
      const bool inside = o >= whole.begin && o < whole.end;
      const int64_t count = inside ? std::min(block.oh.end, whole.end) - o : 1;
      const Range h = height_.valid_taps(o);
      int64_t n = 0;
      for (int64_t kd = depth.begin; kd < depth.end; ++kd) {
        for (int64_t kh = h.begin; kh < h.end; ++kh) list_[n++] = source(kd, height_.start(o) + kh * height_.dilation);
      }
      const bool shares = depth.size() == 1 && height_.stride == 1 && n > 1;
      if (shares) list_[n] = list_[n - 1] + height_.dilation * pitch;
      if (n > 0) {
        MaxRows<S, kFlow>({list_, n, count, Seen(), height_.stride * pitch, Padded(o - block.oh.begin), l_.pitch,
                           shares ? height_.dilation : 0, block.planes, p_.in_plane() * inner_,
                           block.oh.size() * l_.pitch, &lookahead_},
                          watch);
      }
      o += count;
    }
  }

  S* Padded(int64_t r) const { return padded_ + r * l_.pitch + piece_.width.pad_lo * inner_; }

  // Window `o` and those after it, `apart` rows of outputs each, that have its last row: maxima towards the front from
  // that row, and towards the end from the next one, give each window two parts. (Tap t's row of window o is row(t),
  // also beyond its last tap.) Returns how many there are.
  template <MaxFlow kFlow, class RowOf>
  int64_t RunDown(const Block<S>& block, int64_t o, int64_t apart, const RowOf& row, Watch<S>& watch) {
    const Range taps = height_.valid_taps(o);
    if (taps.size() == 0) return 1;
    const int64_t step = height_.stride * apart / height_.dilation;  // taps from window to window
    const int64_t count = std::min((taps.end - 1) / step + 1, CeilDiv(block.oh.end - o, apart));
    const int64_t inside = (height_.in - 1 - height_.start(o)) / height_.dilation + 1;
    const int64_t end = std::min((count - 1) * step + height_.kernel, inside);
    const auto out = [&](int64_t i) { return Padded(o + i * apart - block.oh.begin); };
    const auto front = [&](int64_t tap) {
      return tap <= taps.begin ? out(0) : running_ + (tap - taps.begin) * l_.in_pitch;
    };
    S* const back = running_ + taps.size() * l_.in_pitch;
    const S* before = nullptr;
    for (int64_t t = taps.end - 1; t >= taps.begin; --t) {
      RunningMax<S, kFlow>(row(t), before, Seen(), front(t), nullptr, nullptr, watch);
      before = front(t);
    }
    before = nullptr;
    int64_t i = 1;
    for (int64_t t = taps.end; t < end; ++t) {
      const bool whole = i < count && t == i * step + height_.kernel - 1;  // a window's last tap
      if constexpr (kFlow == MaxFlow::kRawToKeys) lookahead_.At(row(t) + Seen());
      RunningMax<S, kFlow>(row(t), before, Seen(), back, whole ? front(i * step) : nullptr, whole ? out(i) : nullptr,
                           watch);
      before = back;
      i += whole;
    }
    for (; i < count; ++i) {  // windows that reach beyond the input
      list_[0] = front(i * step);
      list_[1] = before;
      MaxRows<S, MaxFlow::kKeysToKeys>({list_, before ? 2 : 1, 1, Seen(), 0, out(i), 0}, watch);
    }
    return count;
  }

  void AcrossRows(const S* from, int64_t rows, S* y, Watch<S>& watch) {
    const Axis& width = piece_.width;
    const int64_t kernel = width.kernel, stride = width.stride, pitch = l_.pitch;
    int64_t all = rows * pitch;
    int64_t pass = 0;
    if (l_.way == Across::kPairs) return MaxOfPairs<S>(from, kernel, rows, width.out, pitch, y, y_pitch_, watch);
    if constexpr (kTakesPhases<S>) {
      if (l_.way == Across::kPhases) {
        uint64_t taps = 0;
        for (int64_t t = 0; t < kernel; ++t) taps |= uint64_t{1} << (t * width.dilation);
        const auto run = stride == 3 ? MaxOfPhases<S, 3> : MaxOfPhases<S, 4>;
        return run(from, taps, rows, width.out, pitch, y, y_pitch_, watch);
      }
    }
    const int64_t step = width.dilation * inner_;
    int64_t reach = step;
    for (int level = 0; level < l_.across.levels; ++level, ++pass, reach *= l_.across.radix) {
      for (int64_t t = 0; t < l_.across.radix; ++t) list_[t] = from + t * reach;
      all -= (l_.across.radix - 1) * reach;
      MaxRows<S, MaxFlow::kKeysToKeys>({list_, l_.across.radix, 1, all, 0, dense_[pass % 2], 0}, watch);
      from = dense_[pass % 2];
    }
    const int64_t n = l_.across.count(kernel);
    const int64_t span = l_.across.used() ? l_.across.size : 1;
    for (int64_t i = 0; i < n; ++i) list_[i] = from + std::min(i * span, kernel - span) * step;
    const int64_t run = width.out * inner_;
    if (l_.way == Across::kTaps) {
      MaxRows<S, MaxFlow::kKeysToY>({list_, n, rows, run, l_.pitch, y, y_pitch_}, watch);
    } else if (l_.way == Across::kRuns) {
      MaxRows<S, MaxFlow::kKeysToY>(
          {list_, n, width.out, inner_, width.stride * inner_, y, inner_, 0, rows, l_.pitch, y_pitch_}, watch);
    } else {
      if (l_.way == Across::kPick && n > 1) {
        all = rows * pitch - (kernel - 1) * step;
        MaxRows<S, MaxFlow::kKeysToKeys>({list_, n, 1, all, 0, dense_[pass % 2], 0}, watch);
        from = dense_[pass % 2];
      }
      const int64_t together = l_.way == Across::kWindows && pitch == run * stride ? rows : 1;
      for (int64_t r = 0; r < rows; r += together) {
        if (l_.way == Across::kPick) {
          PickRow<S>(from + r * pitch, width.out, stride * inner_, inner_, picked_ + r * run);
        } else if constexpr (kTakesWindows<S>) {
          MaxOfWindows<S>(from + r * pitch, kernel, stride, together * run, picked_ + r * run);
        }
      }
      list_[0] = picked_;
      MaxRows<S, MaxFlow::kKeysToY>({list_, 1, rows, run, run, y, y_pitch_}, watch);
    }
  }

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Problem& p_ = rows_.p;
  const Axis &height_ = p_.height(), &width_ = p_.width();
  const ValuesLayout& l_ = *static_cast<const ValuesLayout*>(rows_.args.layout);
  const int64_t inner_ = rows_.inner, x_pitch_ = width_.in * inner_, y_pitch_ = width_.out * inner_;
  const int64_t vector_ = LaneCount<S>();
  const int64_t beyond_ = kReadBeyond * vector_ + (l_.way == Across::kWindows ? 16 * width_.stride : 0);
  const int64_t wide_ = l_.across_rows * l_.pitch + beyond_;

  S* const folded_ = take_.Take<S>(l_.folds ? l_.in_rows * l_.in_pitch + vector_ : 0);
  // Maxima of the rows of a window, from each of them to the last; and one row more.
  S* const running_ = take_.Take<S>(l_.runs ? (std::min(height_.kernel, height_.in) + 1) * l_.in_pitch + vector_ : 0);
  S* const padded_ = take_.Take<S>(l_.out_rows * l_.pitch + beyond_);
  // Padded rows' spans, or windows at all places.
  S* const dense_[2] = {take_.Take<S>(l_.dense > 0 ? wide_ : 0), take_.Take<S>(l_.dense > 1 ? wide_ : 0)};
  S* const picked_ = take_.Take<S>(l_.picks() ? l_.across_rows * l_.tile * inner_ + vector_ : 0);
  const int64_t slices_ = l_.folds ? 1 : std::min(p_.depth().kernel, p_.depth().in);
  const S** const list_ = take_.Take<const S*>(
      1 + std::max({slices_ * std::min(height_.kernel, height_.in), l_.across.listed(width_.kernel), p_.depth().in}));
  Piece piece_ = {width_, {0, l_.tile}};
  Lookahead lookahead_ = p_.depth().kernel == 1 ? Lookahead(rows_.x, rows_.x_end) : Lookahead();
};

template <class S>
const char* MakeValues(const Problem& p, Kernel* kernel) {
  if (const char* reason = RefusePadding(p)) return reason;
  return MakeOfRows<S, ValuesRunner<S>>(kernel, p, LayOutValues<S>(p));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
