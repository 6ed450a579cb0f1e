// fwd_large: max pooling with windows that share much: large ones at small strides. Across first, then down.
//
// Input rows are reduced along the width once, into a ring of rows, and a few rows of outputs at a time are made of the
// ring (large_runs-inl.h). So x is read whole row after whole row, as memory likes it best (channels last, pieces of
// rows, of fewer channels, measured 1.3 times slower), and the time hardly depends on the window. Along the width
//   channels last  a few windows at a time are made as they are down
//   channels first lanes are neighbours: spans of 2, 4, 8, ... taps at all places, then windows of two of the longest.
//                  The ring of such rows is small enough for L1, or nearly.
//
// Rows keep the first of their ties and earlier rows win ties, which is exactly the first in row-major order. ties=last
// lists windows and taps backwards. Numbers in the ring count from row 0 of the input, as far as they fit, so that
// nothing is added to them tap by tap.
//
// Channels last, against fwd_values and fwd_routes, f32, AVX-512: 0.9 and 1.6 times as fast at 5x5, 1.9 and 2.2 times
// at 7x7, 3 and 2 times at 13x13, 3.5 and 4 times at 31x31. Tried and left there: doubling (spans of 2, 4, 8 in rings)
// has 4 comparisons at 13x13 but stores every level: 14.5 cycles per vector and 18.8 with routes, against 9.8 and 16.2.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/forward/any/large_runs-inl.h"
#include "cpu/forward/any/padded-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// What is known of the values of an input row.
enum class RowState : uint8_t {
  kUnseen,
  kClean,    // looked through, nothing special
  kSpecial,  // looked through: it has a special value
};

inline constexpr int64_t kRowsAtOnce = 4;  // of input, channels first: they and the ring should stay in L1

// How a problem is cut.
struct LargeLayout {
  int64_t windows_w, windows_h;  // pooled at once
  int64_t slots, pitch;          // of the ring
  int64_t tile;                  // outputs along the width per pass
  int64_t code_pitch;
  int64_t padded;  // elements of a row of input with its padding, channels first; else 0
};

template <class S>
LargeLayout LayOutLarge(const Problem& p, int64_t code_bytes) {
  const Axis& w = p.width();
  const Axis& h = p.height();
  const int64_t size = sizeof(S), inner = p.channels_last() ? p.channels : 1;
  LargeLayout l = {};
  l.windows_w = WindowsAtOnce(w);
  l.windows_h = WindowsAtOnce(h);
  l.slots = std::clamp<int64_t>(h.in, 1, (l.windows_h - 1) * h.stride + h.kernel);
  const int64_t column = l.slots * inner * (size + code_bytes);
  l.tile = std::clamp<int64_t>(Tuning().forward_ring / column, std::min(l.windows_w, w.out), w.out);
  // Rows begin in different sets of L1, which are 256 lines apart: an odd number of lines, far from a power of two.
  const int64_t lines = CeilDiv(l.tile * inner * size, 64);
  l.pitch = (p.channels_last() ? lines / 16 * 16 + 21 : lines | 1) * 64 / size;
  l.code_pitch = l.tile * inner;
  if (!p.channels_last()) l.padded = w.out - 1 + w.kernel;
  return l;
}

template <class S, class C, bool kRoutes>
class MiddleRunner {
  // Floats whose winners tell need no look at the inputs; integers neither.
  static constexpr bool kLooks = !kIsInt<S> && !Watch<S>::kWinnersOnly;

 public:
  MiddleRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  // Units are rows of outputs: (plane, od, oh).
  void Run(int64_t begin, int64_t end) {
    for (int64_t t = 0; t < across_taps_; ++t) across_[t] = (rows_.backwards ? -t : t) * inner_;
    for (int64_t i = 0; i < 2 * l_.slots; ++i) {
      down_[i] = (rows_.backwards ? 2 * l_.slots - 1 - i : i) % l_.slots * l_.pitch;
    }
    if (l_.padded > 0) FillRow<S>(row_, padded_, LowestKey<S>());
    ForSlices(rows_, l_.tile, begin, end, &at_, [&](Range oh) { Pool(oh); });
  }

 private:
  // The windows at `o` to be pooled at once, of those in `all`; the last ones are met with some that are already done.
  static Range AtOnce(int64_t o, Range all, int64_t windows) {
    const int64_t begin = std::max(all.begin, std::min(o, all.end - windows));
    return {begin, std::min(begin + windows, all.end)};
  }

  // Output rows `oh` of this plane and depth, columns at_.ow.
  void Pool(Range oh) {
    int64_t made = 0;  // input rows before this are in the ring, or not needed any more
    suspects_end_ = 0;
    for (int64_t o = oh.begin; o < oh.end && !rows_.GaveUp(); o += l_.windows_h) {
      const Range now = AtOnce(o, oh, l_.windows_h);
      const Range in = height_.inputs(now);
      made = std::max(made, in.begin);
      for (Range next; l_.padded > 0 && made < in.end; made = next.end) {
        next = {made, std::min(made + kRowsAtOnce, in.end)};
        MakePlaneRows(next);
      }
      for (; made < in.end; ++made) {
        const int64_t result = now.end - (in.end - made);
        MakeRow(made, asks_ && result >= now.begin ? result : -1);
      }
      Watch<S> watch(p_);
      Down(now, in, watch);
      const bool suspect = watch.Fired() || in.begin < suspects_end_;
      for (int64_t r = now.begin; r < now.end; ++r) {
        if (suspect && SeesSpecialRow(r)) {
          RunExactRow<S>(rows_, at_.plane, at_.od, r, at_.ow, at_.first + r);
        } else if (kRoutes && packed_) {
          PackRow(p_, y_codes_ + (r - now.begin) * l_.code_pitch, at_.ow, RouteRow(r));
        }
        rows_.Finish(at_.first + r, 1, at_.ow);
      }
    }
  }

  uint8_t* RouteRow(int64_t r) const { return kRoutes ? rows_.route_row(at_.first + r) : nullptr; }
  int64_t After(int64_t slot) const { return slot + 1 < l_.slots ? slot + 1 : 0; }  // a division takes 40 cycles
  RowState& State(int64_t h) const { return states_[h % l_.slots]; }

  bool SeesSpecialRow(int64_t r) const {
    const Range in = height_.inputs({r, r + 1});
    bool special = false;
    for (int64_t h = in.begin; h < in.end; ++h) {
      RowState& state = State(h);
      if (state == RowState::kUnseen) {
        state = HasSpecial(rows_, InputRow(h), at_.ow) ? RowState::kSpecial : RowState::kClean;
      }
      special = special || state == RowState::kSpecial;
    }
    return special;
  }

  const S* InputRow(int64_t h) const { return rows_.row(at_.plane, p_.depth().start(at_.od), h); }

  // What is the same along the width and down: windows `now` of an axis, backwards if need be.
  MiddleJob<S, C> JobOf(const Axis& a, Range now, int64_t code_step) const {
    MiddleJob<S, C> job = {};
    const int64_t taps = (now.size() - 1) * a.stride + a.kernel;
    const int64_t start = a.start(now.begin);
    job.taps = a.kernel;
    job.stride = a.stride;
    job.windows = now.size();
    job.valid = {std::max<int64_t>(0, -start), std::min(taps, a.in - start)};
    job.code_step = static_cast<C>(code_step);
    if (rows_.backwards) {
      job.valid = {taps - job.valid.end, taps - job.valid.begin};
      job.code_step = static_cast<C>(-code_step);
    }
    return job;
  }
  // Where window 0's results go, and from there to the next ones', if they are listed backwards.
  void Turn(MiddleJob<S, C>& job) const {
    if (!rows_.backwards) return;
    job.out += (job.windows - 1) * job.out_step;
    job.out_step = -job.out_step;
    if (!kRoutes) return;
    job.out_codes += (job.windows - 1) * job.out_code_step;
    job.out_code_step = -job.out_code_step;
  }

  // Reduces input row h along the width, into the ring, and asks for the lines of row `result` of outputs, if not
  // negative: several rows that are written side by side are too many for the processor to see them coming.
  void MakeRow(int64_t h, int64_t result) {
    const int64_t slot = h % l_.slots * l_.pitch;
    const S* row = InputRow(h);
    const S* keys = row;
    Watch<S> watch(p_);
    if constexpr (kLooks) KeysOf<kHasKeys<S>>(row, row_, watch);
    if constexpr (kHasKeys<S>) keys = row_;
    if (watch.Fired()) suspects_end_ = h + 1;
    State(h) = RowState::kUnseen;
    for (int64_t o = at_.ow.begin; o < at_.ow.end; o += l_.windows_w) {
      const Range now = AtOnce(o, at_.ow, l_.windows_w);
      const Range in = width_.inputs(now);
      look_.At(row + in.end * inner_);
      MiddleJob<S, C> job = JobOf(width_, now, 1);
      job.code = static_cast<C>(h * width_.kernel + (rows_.backwards ? width_.kernel - 1 : 0));
      job.keys = keys;
      job.first = width_.start(now.begin) * inner_;
      if (rows_.backwards) job.first += ((job.windows - 1) * width_.stride + width_.kernel - 1) * inner_;
      job.offsets = across_;
      job.run = job.out_step = job.out_code_step = inner_;
      const int64_t at = slot + (now.begin - at_.ow.begin) * inner_;
      job.out = keys_ + at;
      if constexpr (kRoutes) job.out_codes = codes_ + at;
      Turn(job);
      PoolMiddles<S, C, kRoutes, false>(job, watch);
      if (result < 0) continue;
      const int64_t out = now.begin * inner_, run = now.size() * inner_;
      AskLines(rows_.y_row(at_.first + result) + out, run * int64_t{sizeof(S)});
      if (!packed_) AskLines(RouteRow(result) + out * int64_t{sizeof(C)}, run * int64_t{sizeof(C)});
    }
  }

  static void AskLines(const void* from, int64_t bytes) {
    const auto* const at = static_cast<const char*>(from);
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 1, 2);
  }

  template <bool kPut, int kChain>
  static HWY_INLINE void SeeKey(const S* from, S* to, Watch<S>& watch) {
    const hn::ScalableTag<S> d;
    const auto key = Key<S>(hn::LoadU(d, from));
    watch.template See<kChain>(key);
    if constexpr (kPut) hn::StoreU(key, d, to);
  }

  // The keys of an input row, as far as at_.ow needs them, are shown to the watch, and put where those of x begin at
  // `to`.
  template <bool kPut>
  void KeysOf(const S* row, S* to, Watch<S>& shared_watch) {
    const int64_t lanes = LaneCount<S>();
    const Range in = width_.inputs(at_.ow);
    Watch<S> watch = shared_watch;
    row += in.begin * inner_;
    to += in.begin * inner_;
    ForGroups<S>(in.size() * inner_, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
      look_.At(row + j + decltype(vectors)::value * lanes);
      [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA {
        (SeeKey<kPut, kV>(row + j + kV * lanes, to + j + kV * lanes, watch), ...);
      }
      (std::make_integer_sequence<int, decltype(vectors)::value>());
    });
    shared_watch = watch;
  }

  // Reduces input rows, channels first, into the ring: spans of 2, 4, 8, ... taps at all places, and windows of two of
  // the longest. Several rows are one run, since loads that straddle what was just stored wait for it.
  void MakePlaneRows(Range rows) {
    Watch<S> watch(p_);
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      KeysOf<true>(InputRow(h), row_ + (h - rows.begin) * l_.padded - width_.start(0), watch);
    }
    if (watch.Fired()) suspects_end_ = rows.end;
    MiddleJob<S, C> job = {};
    job.keys = row_;
    const int64_t group = kGroup<S, C> * LaneCount<S>();
    job.run = CeilDiv(rows.size() * l_.padded, group) * group;  // whole groups: in place none may be made twice
    job.out = spans_;
    job.out_codes = span_codes_;
    int64_t span = 1;
    for (; 2 * span < width_.kernel; span *= 2) {
      MeetAhead(job, 0, span);
      job.keys = spans_;
      job.codes = span_codes_;
    }
    job.run = width_.out;
    int64_t slot = rows.begin % l_.slots;
    for (int64_t h = rows.begin; h < rows.end; ++h, slot = After(slot), job.first += l_.padded) {
      job.out = keys_ + slot * l_.pitch;
      job.out_codes = codes_ + slot * l_.pitch;
      MeetAhead(job, h * width_.kernel, width_.kernel - span);
      states_[slot] = RowState::kUnseen;
    }
  }
  // Every element meets the one `ahead` taps after it; numbers begin at `code`.
  void MeetAhead(MiddleJob<S, C>& job, int64_t code, int64_t ahead) const {
    const int64_t offsets[] = {rows_.backwards ? ahead : 0, rows_.backwards ? 0 : ahead};
    job.offsets = offsets;
    job.code = static_cast<C>(code + offsets[0]);
    job.code_step = static_cast<C>(offsets[1] - offsets[0]);
    if (kRoutes && job.codes) return PoolPair<S, C, kRoutes, kRoutes>(job);
    PoolPair<S, C, kRoutes, false>(job);
  }

  // Rows `now` of outputs, from input rows `in` in the ring.
  void Down(Range now, Range in, Watch<S>& watch) {
    MiddleJob<S, C> job = JobOf(height_, now, width_.kernel);
    job.code = static_cast<C>(-height_.start(rows_.backwards ? now.end - 1 : now.begin) * width_.kernel);
    job.keys = keys_;
    job.codes = codes_;
    const int64_t slot = rows_.backwards ? l_.slots - 1 - (in.end - 1) % l_.slots : in.begin % l_.slots;
    job.offsets = down_ + slot - job.valid.begin;
    job.run = at_.ow.size() * inner_;
    job.out = rows_.y_row(at_.first + now.begin) + at_.ow.begin * inner_;
    job.out_step = width_.out * inner_;
    if constexpr (kRoutes) {
      job.out_codes = packed_ ? y_codes_ : reinterpret_cast<C*>(RouteRow(now.begin)) + at_.ow.begin * inner_;
      job.out_code_step = packed_ ? l_.code_pitch : job.out_step;
    }
    Turn(job);
    PoolMiddles<S, C, kRoutes, true>(job, watch);
  }

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Problem& p_ = rows_.p;
  const Axis &height_ = p_.height(), &width_ = p_.width();
  const int64_t inner_ = rows_.inner;
  const LargeLayout& l_ = *static_cast<const LargeLayout*>(rows_.args.layout);
  const bool asks_ = kRoutes && p_.y_bytes() >= Tuning().forward_asks;
  const bool packed_ = 8 * sizeof(C) != static_cast<size_t>(p_.routes.bits);  // routes are not as wide as codes
  const int64_t across_taps_ = (l_.windows_w - 1) * width_.stride + width_.kernel;

  S* const keys_ = take_.Take<S>(l_.slots * l_.pitch);
  C* const codes_ = take_.Take<C>(kRoutes ? l_.slots * l_.pitch : 0);
  RowState* const states_ = take_.Take<RowState>(l_.slots);
  // Halves: keys of the input row at hand. Channels first: of several, with padding, and their spans.
  const int64_t padded_ = l_.padded > 0 ? kRowsAtOnce* l_.padded + width_.kernel + 4 * LaneCount<S>() : 0;
  S* const row_ = take_.Take<S>(padded_ > 0 ? padded_ : kHasKeys<S> ? width_.in * inner_ : 0);
  S* const spans_ = take_.Take<S>(padded_);
  C* const span_codes_ = take_.Take<C>(kRoutes ? padded_ : 0);
  // Offsets of taps along the width, and of rows in the ring, once round and again, so that any may be the first.
  int64_t* const across_ = take_.Take<int64_t>(across_taps_);
  int64_t* const down_ = take_.Take<int64_t>(2 * l_.slots);
  C* const y_codes_ = take_.Take<C>(kRoutes ? l_.windows_h * l_.code_pitch : 0);

  Lookahead look_ = l_.tile == width_.out ? Lookahead(rows_.x, rows_.x_end) : Lookahead();
  Slice<S> at_ = {};  // at work

  int64_t suspects_end_ = 0;  // behind the last row for whose keys the Watch fired
};

template <class S, class C, bool kRoutes>
const char* MakeLargeWith(const Problem& p, Kernel* kernel) {
  const LargeLayout layout = LayOutLarge<S>(p, kRoutes ? sizeof(C) : 0);
  if (layout.padded > 0 && layout.tile < p.width().out) return "rows are too long";
  return MakeOfRows<S, MiddleRunner<S, C, kRoutes>>(kernel, p, layout);
}

template <class S, bool kRoutes>
const char* MakeLarge(const Problem& p, Kernel* kernel) {
  if (p.channels_last()) {
    if (p.channels < LaneCount<S>()) return "there are fewer channels than lanes";
  } else {
    const auto size = static_cast<int64_t>(sizeof(S));
    const int64_t row = std::min(p.width().in, p.width().out);
    if (p.width().stride > 1) return "windows are apart";
    // Of a few rows fwd_values takes the greatest as they lie (5x25 in 128x128: 1.2 to 1.5 times as fast).
    const int64_t few = kRoutes ? 3 : 12;
    if (p.taps() < Tuning().transposed_taps || CeilDiv(p.height().kernel, p.height().stride) <= few) {
      return "windows share little";
    }
    if (row < LaneCount<S>() || row * size < Tuning().large_row || p.in_plane() * size < Tuning().large_plane) {
      return "rows or planes are small";
    }
  }
  if (HWY_ARCH_X86 && !kRoutes && p.taps() < 49 * p.width().stride) return "windows are small";
  if (p.depth().kernel > 1) return "windows are deeper than one slice";
  if (p.height().dilation > 1 || p.width().dilation > 1) return "windows are dilated";
  if (p.height().has_empty_window() || p.depth().has_empty_window()) return "a window has no valid tap";
  if (kRoutes && p.taps() > 65534) return "a tap's number does not fit sixteen bits";
  if (p.height().kernel > 2 * p.height().in + 4096 || p.width().kernel > 2 * p.width().in + 4096) {
    return "windows reach far beyond the input";
  }
  if constexpr (kRoutes) {
    if (p.taps() > 255) return MakeLargeWith<S, uint16_t, kRoutes>(p, kernel);
  }
  // Without routes there are no codes to fill a vector with: two vectors of keys at a time.
  return MakeLargeWith<S, std::conditional_t<kRoutes || sizeof(S) == 2, uint8_t, uint16_t>, kRoutes>(p, kernel);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
