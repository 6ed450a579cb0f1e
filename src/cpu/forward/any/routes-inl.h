// fwd_routes: max pooling with routes, any window, both layouts. Across first, then down, a block of rows at a time, in
// L1.
//
//   split    input rows to keys, padded, sorted by phase                               (padded-inl.h)
//   across   each input row reduced along the width, with the number of its best column
//   down     each row of outputs: the best of the reduced rows it sees; to y and codes
//
// Across before down keeps the first of equal taps in row-major order. Windows of many taps are put together from
// spans, in both directions, and long rows are cut into pieces (blocks-inl.h). Numbers count from the first tap of a
// row, a span, a window: whoever puts such together adds where they begin. They lie beside the keys as bytes where a
// window has few enough taps, so that one select moves the numbers of several vectors of keys.
//
// Slices that windows share are reduced down, too, once, and kept: a window of several is the best of one place in
// each. So it is done where a block of all rows of a slice, and what is kept of slices, stay in L2.
//
// Reduced rows are sorted by phase of the height's stride, so that the rows of outputs which see them follow each other
// without gaps: down is one long row.
//
// Tried and left: reducing across straight from x without the split, with the windows at the ends of a row one by one:
// slower at every padded size (3x3 stride 1: 10.6 cycles per vector against 9.6); state in registers down the
// columns: 13.0 in L1, 18 to 25 from memory; bits of values that are not negative: zeros tie with padding, and adding 1
// to the bits is 1.2 to 1.6 times slower.

#include <algorithm>
#include <cstdint>

#include "cpu/forward/any/best_of_rows-inl.h"
#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/any/padded-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// How a problem is cut.
struct RoutesLayout {
  Spans down, across;
  Across way;
  int64_t tile;         // outputs along the width per piece
  int64_t out_rows;     // per block; of several planes where planes are small
  int64_t planes;       // that many at most
  int64_t slices;       // of depth, at most
  bool keeps;           // slices reduced down, which windows share
  int64_t in_rows;      // per plane and slice
  int64_t row;          // elements of a reduced row, at most
  int64_t row_phases;   // of the height's stride
  int64_t phase_pitch;  // of reduced rows: from phase to phase of the height
  int64_t plane_pitch;  // and from plane to plane, or slice to slice
  int64_t dense;        // buffers of rows at all places
  Phases phases;        // of the width, all input rows of a block
  Phases split;         // the same as Split leaves them: at wide strides not yet sorted

  bool sorts_later() const { return kWideStrides && split.stride != phases.stride; }
};

// C: of the numbers of taps. `keeps`: if there is room.
template <class S, class C>
RoutesLayout LayOutRoutes(const Problem& p, bool keeps) {
  const int64_t inner = p.channels_last() ? p.channels : 1;
  const int64_t size = sizeof(S);
  const int64_t pair = sizeof(S) + sizeof(C);
  const Axis& h = p.height();
  const Axis& w = p.width();
  const bool apart = w.stride > 1 && w.out > 1;
  const Spans dense_spans(w.kernel, w.stride);
  const bool sorts = apart && inner == 1 && (kWideStrides || w.stride <= 4) && !dense_spans.used();  // every tap once
  const bool later = sorts && w.stride > 4;
  const Across way = !apart || sorts ? Across::kTaps : inner >= LaneCount<S>() ? Across::kRuns : Across::kPick;
  const bool one_slice = p.depth().kernel == 1 || keeps;  // at a time
  RoutesLayout l;
  l.down = Spans(h.out == 1 || !one_slice ? 1 : h.kernel, h.stride);
  l.across = Spans(w.out == 1 || sorts ? 1 : w.kernel, way == Across::kRuns ? w.stride : 1);
  l.way = way;
  l.slices = std::min(p.depth().kernel, p.depth().in);
  const int64_t slices = one_slice ? 1 : l.slices;
  const bool last_is_dense = way == Across::kPick && w.kernel > 1;
  l.dense = std::min<int64_t>(2, l.across.levels + last_is_dense);
  const int64_t copies = 1 + std::min(2, l.down.levels);  // of reduced rows
  // Bytes that an input row takes: for each output, and for what windows reach over beyond that.
  const int64_t split = size * (1 + later) + l.dense * pair;
  const int64_t each = (split * w.stride + copies * pair) * inner;
  const int64_t beyond = split * w.extent() * inner;
  const int64_t least_rows = std::min(h.out, CeilDiv(2 * h.extent(), h.stride));
  const int64_t least_in = InRows(h, least_rows) * slices;
  l.tile = TileOf(w.out, Tuning().forward_piece, beyond * least_in, each * least_in);
  const int64_t positions = ((l.tile - 1) * w.stride + w.extent()) * inner;
  l.row = l.tile * inner;
  const int64_t in_row = positions * split + l.row * pair * copies;
  const int64_t fit = Tuning().forward_routes_block / (in_row * slices);
  const int64_t rows = std::max((fit - h.extent()) / h.stride + 1, CeilDiv(2 * h.extent(), h.stride));
  const bool small = p.depth().in == 1 && l.tile == w.out && fit >= 2 * h.in;  // several planes fit
  const int64_t planes = p.batch * (p.channels_last() ? 1 : p.channels);
  l.out_rows = small ? std::min(fit / h.in, planes) * h.out : std::min(rows, h.out);
  const int64_t kept = InRows(h, h.out) * in_row + l.slices * h.out * l.row * pair;
  l.keeps = keeps && l.tile == w.out && kept <= 2 * Tuning().forward_piece;
  if (l.keeps) l.out_rows = h.out;
  l.planes = std::max<int64_t>(1, l.out_rows / h.out);
  l.in_rows = InRows(h, l.out_rows);
  const int64_t rows_in = l.planes * l.in_rows, slack = 4 * LaneCount<S>();
  l.split = l.phases = Phases(sorts ? w.stride : 1, positions, rows_in, slack);
  if (later) l.split = Phases(1, l.phases.places * w.stride, rows_in, slack);
  l.row_phases = std::min(h.stride, l.in_rows);
  l.phase_pitch = CeilDiv(l.in_rows, l.row_phases) * l.row + LaneCount<S>();
  l.plane_pitch = l.row_phases * l.phase_pitch;
  return l;
}

template <class S, class C>
RoutesLayout LayOutRoutes(const Problem& p) {
  const Axis& d = p.depth();
  const bool shares = d.out > 1 && d.stride < d.extent() && d.stride % d.dilation == 0;
  const RoutesLayout l = LayOutRoutes<S, C>(p, shares);
  return l.keeps || !shares ? l : LayOutRoutes<S, C>(p, false);
}

// Rows of keys and numbers in scratch.
template <class S, class C>
struct Reduced {
  S* keys;
  C* codes;
};

// A window that reaches over an end of the width, and the first of its taps in order of preference that does not.
template <class C>
struct ClippedWindow {
  int64_t ow;
  C tap;
};

template <class S, class C>
class RoutesRunner {
 public:
  RoutesRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  void Run(int64_t begin, int64_t end) {
    Clear();
    if (l_.keeps) std::fill_n(held_, l_.slices, Held{});
    PoolBlocks(
        rows_, l_.out_rows, l_.tile, begin, end, &piece_, [&] { Clear(); },
        [&](const Block<S>& block, Watch<S>& watch) { Pool(block, watch); });
  }

 private:
  void Clear() {
    FillRow<S>(split_, l_.split.size(), LowestKey<S>());
    if constexpr (kIsInt<S>) ListClippedWindows();
  }

  void Pool(const Block<S>& block, Watch<S>& watch) {
    S* y = rows_.y_row(block.r) + piece_.ow.begin * inner_;
    if (l_.keeps) {
      for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd) Keep(block, kd, watch);
      List(block.depth.size(), [&](int64_t i, int64_t k) {
        const int64_t kd = block.depth.begin + k;
        list_[i] = RowAt(kept_, SlotOf(block, kd) * kept_pitch_, kd * height_.kernel * p_.width().kernel);
      });
      const int64_t size = block.oh.size() * RowSize();
      FindBest<S, C, BestOf::kRowsToY>({list_, block.depth.size(), 1, size, 0, y, out_codes_, 0, 0}, watch);
    } else {
      for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd) {
        const int64_t at = (kd - block.depth.begin) * l_.plane_pitch;
        Split(SliceOf(block, kd), block, watch);
        AcrossRows(block, {reduced_.keys + at, reduced_.codes + at});
      }
      const Reduced<S, C> longest = SpanRows(block, watch);
      Down<BestOf::kRowsToY>(block, block.depth, longest, y, width_.out * inner_, out_codes_, watch);
    }
    PackRows(rows_, out_codes_, RowSize(), block.r, block.planes * block.oh.size(), piece_.ow);
  }

  const S* SliceOf(const Block<S>& block, int64_t kd) const {
    const int64_t d = p_.depth().start(block.od) + kd * p_.depth().dilation;
    return rows_.row(block.plane, d, block.in.begin) + piece_.begin * inner_;
  }
  // Where slice kd of a window is kept: next to its neighbour, so that the next window finds it there.
  int64_t SlotOf(const Block<S>& block, int64_t kd) const {
    return (FloorDiv(p_.depth().start(block.od), p_.depth().dilation) + kd) % l_.slices;
  }

  // Slice kd of the block, reduced; unless it is there.
  void Keep(const Block<S>& block, int64_t kd, Watch<S>& watch) {
    const int64_t slot = SlotOf(block, kd), at = slot * kept_pitch_;
    const S* from = SliceOf(block, kd);
    Held& held = held_[slot];
    if (held.from != from || held.oh.begin != block.oh.begin || held.oh.end < block.oh.end) {
      Watch<S> of_slice(p_);
      Split(from, block, of_slice);
      AcrossRows(block, reduced_);
      const Reduced<S, C> longest = SpanRows(block, of_slice);
      Down<BestOf::kRows>(block, {0, 1}, longest, kept_.keys + at, RowSize(), kept_.codes + at, of_slice);
      held = {from, block.oh, of_slice.Fired()};
    }
    if (held.suspect) watch.Fire();
  }

  int64_t RowSize() const { return piece_.width.out * inner_; }  // of a reduced row

  // The rows that the block sees, from the first one on, plane by plane; where they are whole planes, all at once.
  void Split(const S* from, const Block<S>& block, Watch<S>& watch) {
    const int64_t rows = block.in.size();
    const int64_t together = rows == height_.in ? block.planes : 1;
    for (int64_t p = 0; p < block.planes; p += together) {
      SplitRows<S>(l_.split, from + p * p_.in_plane() * inner_, piece_.width.in * inner_, piece_.width.pad_lo * inner_,
                   p_.width().in * inner_, together * rows, split_ + p * rows * l_.split.places, watch, &lookahead_);
    }
    if (!l_.sorts_later()) return;
    const int64_t columns = std::min(piece_.width.extent(), piece_.width.stride);
    SortByPhase<S>(l_.phases, split_, block.planes * rows, columns, keys_);
  }

  // Where row number `row` of the block is among the reduced rows.
  int64_t Place(int64_t row) const { return row % height_.stride * l_.phase_pitch + row / height_.stride * RowSize(); }
  // How many of the first n rows have this phase.
  int64_t RowsOf(int64_t phase, int64_t n) const { return CeilDiv(n - phase, height_.stride); }

  // Lists n sources in order of preference.
  template <class Put>
  void List(int64_t n, const Put& put) const {
    for (int64_t i = 0; i < n; ++i) put(i, rows_.backwards ? n - 1 - i : i);
  }

  // The taps of a row, as they lie in keys_.
  void ListTaps(int64_t taps) {
    const Axis& width = piece_.width;
    List(taps, [&](int64_t i, int64_t kw) {
      const int64_t at = l_.phases.stride == 1 ? kw * width.dilation * inner_ : l_.phases.at(kw * width.dilation);
      list_[i] = {keys_ + at, nullptr, static_cast<Code<S>>(kw)};
    });
  }
  // Spans of `size` taps, the first of which begin at taps(i).
  template <class TapOf>
  void ListSpans(const Reduced<S, C>& from, int64_t n, const TapOf& tap_of) {
    List(n, [&](int64_t i, int64_t span) {
      const int64_t tap = tap_of(span);
      const int64_t at = tap * piece_.width.dilation * inner_;
      list_[i] = {from.keys + at, from.codes + at, static_cast<Code<S>>(tap)};
    });
  }

  void AcrossRows(const Block<S>& block, Reduced<S, C> to) {
    const Axis& width = piece_.width;
    const Spans& spans = l_.across;
    const int64_t step = width.dilation * inner_;
    const int64_t every = block.planes * block.in.size() * l_.phases.places;  // elements of all rows
    Watch<S> unused(p_);
    Reduced<S, C> from = {};
    int64_t reach = 1;
    int pass = 0;
    for (; pass < spans.levels; ++pass, reach *= spans.radix) {
      const Reduced<S, C> made = dense_[pass % 2];
      const int64_t all = every - (reach * spans.radix - 1) * step;
      if (pass == 0) {
        ListTaps(spans.radix);
        FindBest<S, C, BestOf::kTaps>({list_, spans.radix, 1, all, 0, made.keys, made.codes, 0, 0}, unused);
      } else {
        ListSpans(from, spans.radix, [&](int64_t i) { return i * reach; });
        FindBest<S, C, BestOf::kRows>({list_, spans.radix, 1, all, 0, made.keys, made.codes, 0, 0}, unused);
      }
      from = made;
    }
    const int64_t n = spans.count(width.kernel);
    if (spans.used()) {
      ListSpans(from, n, [&](int64_t i) { return spans.tap(i, width.kernel); });
    } else {
      ListTaps(n);
    }
    if (l_.way == Across::kPick) return Pick(block, n, every - (width.kernel - 1) * step, pass, to);
    for (int64_t phase = 0; phase < std::min(height_.stride, block.in.size()); ++phase) {
      MeetPhase(block, n, phase, {to.keys + phase * l_.phase_pitch, to.codes + phase * l_.phase_pitch});
    }
  }

  // The rows of one phase of the height.
  void MeetPhase(const Block<S>& block, int64_t n, int64_t phase, Reduced<S, C> to) {
    const int64_t rows = block.in.size();
    const int64_t count = RowsOf(phase, rows);
    const int64_t places = l_.phases.places;
    const int64_t pitch = height_.stride * places;
    if (l_.way == Across::kRuns) {
      const Axis& width = piece_.width;
      for (int64_t p = 0; p < block.planes; ++p) {
        Meet(n, p * rows * places + phase * places, count, pitch, width.out, inner_, width.stride * inner_,
             {to.keys + p * l_.plane_pitch, to.codes + p * l_.plane_pitch}, inner_, RowSize());
      }
    } else {
      Meet(n, phase * places, block.planes, rows * places, count, RowSize(), pitch, to, RowSize(), l_.plane_pitch);
    }
    for (int64_t p = 0; kIsInt<S> && p < block.planes; ++p) {
      for (int64_t row = 0; row < count; ++row) CorrectPadding(to, p * l_.plane_pitch + row * RowSize());
    }
  }

  // The listed sources from element `from` on: `planes` times `runs` runs of `run` elements.
  void Meet(int64_t n, int64_t from, int64_t planes, int64_t in_plane, int64_t runs, int64_t run, int64_t in_pitch,
            Reduced<S, C> to, int64_t out_pitch, int64_t out_plane) {
    Watch<S> unused(p_);
    const BestJob<S, C> job = {list_,     n,         runs,   run,      in_pitch,  to.keys,   to.codes,
                               out_pitch, out_pitch, planes, in_plane, out_plane, out_plane, from};
    if (l_.across.used()) return FindBest<S, C, BestOf::kRows>(job, unused);
    FindBest<S, C, BestOf::kTaps>(job, unused);
  }

  // Windows at all places first, `all` of them, of all rows; then those that there are.
  void Pick(const Block<S>& block, int64_t n, int64_t all, int pass, Reduced<S, C> to) {
    const Axis& width = piece_.width;
    const int64_t rows = block.in.size();
    const Reduced<S, C> made = dense_[pass % 2];
    const bool one = width.kernel == 1;
    if (!one) Meet(n, 0, 1, 0, 1, all, 0, made, 0, 0);
    const int64_t step = width.stride * inner_;
    for (int64_t p = 0; p < block.planes; ++p) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t from = (p * rows + row) * l_.phases.places;
        const int64_t at = p * l_.plane_pitch + Place(row);
        PickRow<S>((one ? keys_ : made.keys) + from, width.out, step, inner_, to.keys + at);
        if (one) {
          FillRow<C>(to.codes + at, RowSize(), 0);
        } else {
          PickRow<S>(made.codes + from, width.out, step, inner_, to.codes + at);
        }
      }
      for (int64_t row = 0; kIsInt<S> && row < rows; ++row) CorrectPadding(to, p * l_.plane_pitch + Place(row));
    }
  }

  // Integers have no key below their lowest value, so padding may tie with a row of lowest values and be preferred:
  // then the winner is the first valid tap (the last one for ties=last). Only windows that reach over an end of the row
  // are listed.
  void CorrectPadding(Reduced<S, C> to, int64_t row) const {
    for (int64_t k = 0; k < clipped_count_; ++k) {
      const ClippedWindow<C> window = clipped_[k];
      for (int64_t i = row + window.ow * inner_; i < row + (window.ow + 1) * inner_; ++i) {
        to.codes[i] =
            to.keys[i] == LowestKey<S>() ? window.tap : to.codes[i];  // no jump: zeros are common and come as they like
      }
    }
  }

  void ListClippedWindows() {
    const Axis& width = piece_.width;
    const Range whole = width.interior();
    clipped_count_ = 0;
    for (int64_t o = 0; o < width.out; ++o) {
      if (o >= whole.begin && o < whole.end) o = whole.end;
      if (o >= width.out) break;
      const Range valid = width.valid_taps(o);
      clipped_[clipped_count_++] = {o, static_cast<C>(rows_.backwards ? valid.end - 1 : valid.begin)};
    }
  }

  Contender<S, C> RowAt(const Reduced<S, C>& from, int64_t place, int64_t tap) const {
    return {from.keys + place, from.codes + place, static_cast<Code<S>>(tap)};
  }

  // The best of reduced rows row, row + dilation, ..., as many as the longest spans have; numbers count from that row.
  Reduced<S, C> SpanRows(const Block<S>& block, Watch<S>& watch) {
    Reduced<S, C> from = reduced_;
    int64_t reach = 1;
    for (int level = 0; level < l_.down.levels; ++level) {
      const Reduced<S, C> to = spans_[level % 2];
      const int64_t rows = block.in.size() - (reach * l_.down.radix - 1) * height_.dilation;
      for (int64_t phase = 0; phase < std::min(height_.stride, rows); ++phase) {
        List(l_.down.radix, [&](int64_t i, int64_t t) {
          list_[i] = RowAt(from, Place(phase + t * reach * height_.dilation), t * reach * p_.width().kernel);
        });
        FindBest<S, C, BestOf::kRows>({list_, l_.down.radix, RowsOf(phase, rows), RowSize(), RowSize(),
                                       to.keys + phase * l_.phase_pitch, to.codes + phase * l_.phase_pitch, RowSize(),
                                       RowSize(), block.planes, l_.plane_pitch, l_.plane_pitch, l_.plane_pitch},
                                      watch);
      }
      from = to;
      reach *= l_.down.radix;
    }
    return from;
  }

  // The rows of outputs of the block, each the best of the rows that it sees of slices `depth`.
  template <BestOf kBest>
  void Down(const Block<S>& block, Range depth, const Reduced<S, C>& longest, S* y, int64_t y_pitch, C* codes,
            Watch<S>& watch) {
    const Range whole = height_.interior();
    const int64_t kernel_w = p_.width().kernel;
    for (int64_t o = block.oh.begin; o < block.oh.end;) {
      const bool inside = o >= whole.begin && o < whole.end;
      const int64_t count = inside ? std::min(block.oh.end, whole.end) - o : 1;
      const Range h = height_.valid_taps(o);
      const int64_t first = height_.start(o) - block.in.begin;
      int64_t n = 0;
      if (l_.down.used() && h.size() >= l_.down.size) {
        n = l_.down.count(h.size());
        List(n, [&](int64_t i, int64_t span) {
          const int64_t kh = h.begin + l_.down.tap(span, h.size());
          list_[i] = RowAt(longest, Place(first + kh * height_.dilation), kh * kernel_w);
        });
      } else {
        n = depth.size() * h.size();
        List(n, [&](int64_t i, int64_t at) {
          const int64_t kd = at / h.size();
          const int64_t kh = h.begin + at % h.size();
          list_[i] = RowAt(reduced_, kd * l_.plane_pitch + Place(first + kh * height_.dilation),
                           ((depth.begin + kd) * height_.kernel + kh) * kernel_w);
        });
      }
      const int64_t row = o - block.oh.begin;
      if (n > 0) {
        FindBest<S, C, kBest>(
            {list_, n, count, RowSize(), RowSize(), y + row * y_pitch, codes + row * RowSize(), y_pitch, RowSize(),
             block.planes, l_.plane_pitch, block.oh.size() * y_pitch, block.oh.size() * RowSize()},
            watch);
      }
      o += count;
    }
  }

  Reduced<S, C> TakeRows(bool wanted, int64_t size) {
    const int64_t n = wanted ? size + slack_ : 0;
    return {take_.Take<S>(n), take_.Take<C>(n)};
  }

  // What a slot keeps, and whether there was a special value among it.
  struct Held {
    const S* from;
    Range oh;
    bool suspect;
  };

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Problem& p_ = rows_.p;
  const Axis &height_ = p_.height(), &width_ = p_.width();
  const RoutesLayout& l_ = *static_cast<const RoutesLayout*>(rows_.args.layout);
  const int64_t inner_ = rows_.inner;
  const int64_t slack_ = 4 * LaneCount<S>() + LaneCount<uint8_t>();
  const int64_t wide_ = l_.phases.places * l_.planes * l_.in_rows;
  const int64_t slice_ = l_.planes * l_.plane_pitch, kept_pitch_ = height_.out * l_.row + slack_;

  S* const keys_ = take_.Take<S>(l_.phases.size() + slack_);
  S* const split_ = l_.sorts_later() ? take_.Take<S>(l_.split.size() + slack_) : keys_;  // or what is yet to be sorted
  // Along the width, as wide as split rows; reduced rows, and spans of them.
  const Reduced<S, C> dense_[2] = {TakeRows(l_.dense > 0, wide_), TakeRows(l_.dense > 1, wide_)};
  const Reduced<S, C> reduced_ = TakeRows(true, l_.keeps ? slice_ : l_.slices* slice_);
  const Reduced<S, C> spans_[2] = {TakeRows(l_.down.levels > 0, slice_), TakeRows(l_.down.levels > 1, slice_)};
  const Reduced<S, C> kept_ = TakeRows(l_.keeps, l_.slices* kept_pitch_);
  Held* const held_ = take_.Take<Held>(l_.keeps ? l_.slices : 0);
  C* const out_codes_ = take_.Take<C>(l_.out_rows * l_.row + slack_);
  Contender<S, C>* const list_ = take_.Take<Contender<S, C>>(
      std::max(l_.slices * std::min(l_.down.listed(height_.kernel), height_.in), l_.across.listed(width_.kernel)));
  ClippedWindow<C>* const clipped_ = take_.Take<ClippedWindow<C>>(
      kIsInt<S> ? std::min(l_.tile, width_.out - width_.interior().size()) : 0);  // integers
  int64_t clipped_count_ = 0;
  Piece piece_ = {width_, {0, l_.tile}};
  Lookahead lookahead_ = p_.depth().kernel == 1 ? Lookahead(rows_.x, rows_.x_end) : Lookahead();
};

template <class S, class C>
const char* MakeRoutesWith(const Problem& p, Kernel* kernel) {
  const RoutesLayout layout = LayOutRoutes<S, C>(p);
  const Axis& d = p.depth();
  if (layout.keeps) kernel->repeated = std::min(CeilDiv(d.extent() - d.stride, d.stride), d.out - 1) * p.height().out;
  return MakeOfRows<S, RoutesRunner<S, C>>(kernel, p, layout);
}

template <class S>
const char* MakeRoutes(const Problem& p, Kernel* kernel) {
  if (const char* reason = RefusePadding(p)) return reason;
  if (p.taps() <= 255) return MakeRoutesWith<S, uint8_t>(p, kernel);
  if constexpr (sizeof(S) == 1 ||
                HWY_TARGET == HWY_WASM) {  // fwd_exact takes those; in WebAssembly the bytes are worth more
    return "a tap's number does not fit a byte";
  } else {
    if (p.taps() > static_cast<int64_t>(std::min<uint64_t>(Code<S>(~Code<S>{0}), uint64_t{1} << 32)) - 1) {
      return "a tap's number does not fit a lane of this type";
    }
    return MakeRoutesWith<S, Code<S>>(p, kernel);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
