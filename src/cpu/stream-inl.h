// Max pooling of channels last, reading x once and in order.
//
// Memory is what binds small windows, and it delivers most to one long run of addresses that is asked for early: two rows read
// side by side measured 0.55 of the copy bandwidth, one row after the other 0.60, with prefetching 0.78. So every input row is
// reduced along the width as it comes, and each window of outputs that covers it takes what it needs:
//
//   first row of a window   kept in an accumulator: a row of keys and codes in L1
//   rows between            meet the accumulator
//   last row                meets it on the way to y
//
// Windows that a row closes and opens share one accumulator: it is read before it is written. Codes are bytes, so that they
// cost a quarter of the traffic of keys; a group of vectors has one vector of them.
//
// ties=last walks rows and taps backwards; everything else is the same.

// Per-target include guard
#if defined(POOLGRAD_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_STREAM_INL_H_
#undef POOLGRAD_CPU_STREAM_INL_H_
#else
#define POOLGRAD_CPU_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/exact-inl.h"
#include "cpu/order-inl.h"
#include "cpu/reduce-inl.h"
#include "cpu/routes-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/scratch.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// As many vectors of keys as fill one vector of byte codes.
template <class S>
inline constexpr int kGroup = sizeof(S);

// kVectors (1 or kGroup) vectors of neighbouring outputs, and their codes as bytes.
template <class S, bool kRoutes, int kVectors>
struct Group {
  using D8 = std::conditional_t<kVectors == kGroup<S>, hn::ScalableTag<uint8_t>, hn::Rebind<uint8_t, hn::ScalableTag<S>>>;
  using Codes = hn::Vec<D8>;
  VecOf<S> key[kVectors];
  Codes code;

  HWY_INLINE Group() {}  // GCC compiles implicit constructors without the target's instructions

  // All ones in the bytes of true lanes.
  static HWY_INLINE Codes Bytes(const CodeVec<S>* masks) {
    if constexpr (kVectors == kGroup<S>) {
      return BytesOf<Code<S>>(masks);
    } else {
      return hn::TruncateTo(D8(), masks[0]);
    }
  }

  // The better of this and `other`, which comes later.
  HWY_INLINE void Meet(const VecOf<S>* other, Codes other_code) {
    const hn::ScalableTag<S> d;
    if constexpr (kRoutes) {
      CodeVec<S> beats[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        beats[v] = hn::BitCast(hn::ScalableTag<Code<S>>(), hn::VecFromMask(d, hn::Gt(other[v], key[v])));
      }
      code = hn::IfVecThenElse(Bytes(beats), other_code, code);
    }
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kIsFloat<S>) {
        key[v] = Greater(other[v], key[v]);
      } else {
        key[v] = hn::Max(key[v], other[v]);
      }
    }
  }
};

// What a window does with a row it covers.
template <class S>
struct Role {
  S* kept;              // accumulator: keys and codes
  uint8_t* kept_codes;
  S* y;                 // last row: where winners and their codes go
  uint8_t* y_codes;
  bool first, last;
  uint8_t code;         // of the row's tap 0
  int64_t output;       // the window's row of outputs
};

// A piece of an input row whose windows have the same taps: `runs` runs of `run` elements.
template <class S>
struct StreamJob {
  const S* x;  // the first run's tap of most preference; the next taps are `tap_step` further
  int64_t taps, tap_step;
  uint8_t tap_code, tap_code_step;
  int64_t runs, run;
  int64_t in_pitch, kept_pitch;  // from run to run; in y it is `run`
  int64_t kept_at, y_at;         // of the first run
  const Role<S>* roles;
  int64_t role_count;
  const S* in_end;  // nothing is read from here on
  int64_t y_size;   // nothing is written into y from here on
  int64_t pixels;   // of input that a run goes forward by
  int64_t channels;
};

// Asks for what will be read soon, into L2: lines in use stay in L1.
template <class S>
HWY_INLINE void AskFor(const S* x) {
  constexpr int64_t kAheadBytes = 24 << 10;
  __builtin_prefetch(x + kAheadBytes / static_cast<int64_t>(sizeof(S)), 0, 2);
}


// The taps of a run; their codes in registers where their number is known.
template <class S, int kTaps, class D8>
struct Taps {
  int64_t count, step;
  uint8_t code, code_step;
  hn::Vec<D8> codes[kTaps > 0 ? kTaps : 1];

  HWY_INLINE explicit Taps(const StreamJob<S>& job)
      : count(job.taps), step(job.tap_step), code(job.tap_code), code_step(job.tap_code_step) {
    for (int t = 0; t < kTaps; ++t) codes[t] = hn::Set(D8(), static_cast<uint8_t>(code + t * code_step));
  }
  HWY_INLINE hn::Vec<D8> CodeOf(int64_t t) const {
    if constexpr (kTaps > 0) {
      return codes[t];
    } else {
      return hn::Set(D8(), static_cast<uint8_t>(code + t * code_step));
    }
  }
};

// The best of a run's taps, at x.
template <class S, bool kRoutes, int kTaps, int kVectors, class D8>
HWY_INLINE Group<S, kRoutes, kVectors> BestOfTaps(const Taps<S, kTaps, D8>& taps, const S* x, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  const auto load = [&](const S* from, VecOf<S>* to) POOLGRAD_LAMBDA {
    for (int v = 0; v < kVectors; ++v) to[v] = Key<S>(hn::LoadU(d, from + v * lanes));
    [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA {
      (watch.template See<kV>(to[kV]), ...);
    }(std::make_integer_sequence<int, kVectors>());
  };
  Group<S, kRoutes, kVectors> best;
  load(x, best.key);
  if constexpr (kRoutes) best.code = taps.CodeOf(0);
  const auto meet = [&](int64_t t) POOLGRAD_LAMBDA {
    VecOf<S> key[kVectors];
    load(x + t * taps.step, key);
    best.Meet(key, taps.CodeOf(t));
  };
  if constexpr (kTaps > 0) {
    for (int t = 1; t < kTaps; ++t) meet(t);
  } else {
    for (int64_t t = 1; t < taps.count; ++t) meet(t);
  }
  return best;
}

// What the windows that cover a row do with it, in order, known to the compiler where the order is a usual one.
enum class Part { kAsListed, kFirst, kBetween, kLast, kOnly };

// The reduced row meets one window that covers it, at one place. `n`: how many of the elements count.
template <class S, bool kRoutes, int kVectors, Part kPart>
HWY_INLINE void Give(const Role<S>& role, const Group<S, kRoutes, kVectors>& here, int64_t kept_at, int64_t y_at, int64_t n,
                     int64_t y_size, Watch<S>& watch) {
  using G = Group<S, kRoutes, kVectors>;
  const hn::ScalableTag<S> d;
  const typename G::D8 d8;
  const int64_t lanes = LaneCount<S>();
  const bool first = kPart == Part::kAsListed ? role.first : kPart == Part::kFirst || kPart == Part::kOnly;
  const bool last = kPart == Part::kAsListed ? role.last : kPart == Part::kLast || kPart == Part::kOnly;
  S* kept = role.kept + kept_at;
  G best;
  auto code = hn::Zero(d8);
  if constexpr (kRoutes) code = hn::Add(here.code, hn::Set(d8, role.code));
  if (first) {
    for (int v = 0; v < kVectors; ++v) best.key[v] = here.key[v];
    best.code = code;
  } else {
    for (int v = 0; v < kVectors; ++v) best.key[v] = hn::LoadU(d, kept + v * lanes);
    if constexpr (kRoutes) best.code = hn::LoadU(d8, role.kept_codes + kept_at);
    best.Meet(here.key, code);
  }
  if (!last) {
    if constexpr (kRoutes) hn::StoreU(best.code, d8, role.kept_codes + kept_at);
    for (int v = 0; v < kVectors; ++v) hn::StoreU(best.key[v], d, kept + v * lanes);
    return;
  }
  S* y = role.y + y_at;
  if constexpr (kRoutes) hn::StoreU(best.code, d8, role.y_codes + y_at);  // scratch: has room for a vector beyond its end
  if (n == kVectors * lanes) {
    [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA {
      (watch.template SeeWinner<kV>(best.key[kV]), ...);
    }(std::make_integer_sequence<int, kVectors>());
    for (int v = 0; v < kVectors; ++v) hn::StoreU(Key<S>(best.key[v]), d, y + v * lanes);
    return;
  }
  watch.SeeWinner(best.key[0], n);
  if (y_at + lanes <= y_size) {  // the rest is written over by the next run
    hn::StoreU(Key<S>(best.key[0]), d, y);
  } else {
    HWY_ALIGN S values[hn::MaxLanes(hn::ScalableTag<S>())];
    hn::Store(Key<S>(best.key[0]), d, values);
    std::memcpy(y, values, static_cast<size_t>(n) * sizeof(S));
  }
}

// The last elements of a run that ends where x does: their taps by way of a copy.
template <class S, bool kRoutes>
HWY_NOINLINE Group<S, kRoutes, 1> BestOfCopiedTaps(const StreamJob<S>& job, const S* x, int64_t n, Watch<S>& watch) {
  const typename Group<S, kRoutes, 1>::D8 d8;
  HWY_ALIGN S copy[hn::MaxLanes(hn::ScalableTag<S>())] = {};
  Group<S, kRoutes, 1> best;
  for (int64_t t = 0; t < job.taps; ++t) {
    std::memcpy(copy, x + t * job.tap_step, static_cast<size_t>(n) * sizeof(S));
    const VecOf<S> key = Key<S>(hn::Load(hn::ScalableTag<S>(), copy));
    watch.See(key);
    const auto code = hn::Set(d8, static_cast<uint8_t>(job.tap_code + t * job.tap_code_step));
    if (t == 0) {
      best.key[0] = key;
      best.code = code;
    } else {
      best.Meet(&key, code);
    }
  }
  return best;
}

// What is left of a run when less than a group is: [j, run), of the run that begins at `x`.
template <class S, bool kRoutes>
HWY_NOINLINE void StreamTail(const StreamJob<S>& job, const S* x, int64_t j, int64_t kept_at, int64_t y_at, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  const S* farthest = x + std::max<int64_t>(0, (job.taps - 1) * job.tap_step);
  const Taps<S, 0, typename Group<S, kRoutes, 1>::D8> taps(job);
  for (; j < job.run; j += lanes) {
    const int64_t n = std::min(lanes, job.run - j);
    const auto here = n == lanes || farthest + j + lanes <= job.in_end ? BestOfTaps<S, kRoutes, 0, 1>(taps, x + j, watch)
                                                                       : BestOfCopiedTaps<S, kRoutes>(job, x + j, n, watch);
    for (int64_t r = 0; r < job.role_count; ++r) {
      Give<S, kRoutes, 1, Part::kAsListed>(job.roles[r], here, kept_at + j, y_at + j, n, job.y_size, watch);
    }
  }
}

template <class S, bool kRoutes, int kTaps, Part... kParts>
HWY_NOINLINE void StreamRuns(const StreamJob<S>& job, Watch<S>& shared_watch) {
  // Copies of what the loop needs: stores of bytes may alias anything that is not the loop's own.
  constexpr int kRoles = sizeof...(kParts);
  Role<S> roles[kRoles + 1];
  for (int r = 0; r < kRoles; ++r) roles[r] = job.roles[r];
  const Taps<S, kTaps, hn::ScalableTag<uint8_t>> taps(job);
  Watch<S> watch = shared_watch;
  const int64_t group = kGroup<S> * LaneCount<S>();
  const int64_t run = job.run;
  const int64_t full = run / group * group;
  const int64_t y_size = job.y_size;
  const int64_t pixels = job.pixels;
  const int64_t channels = job.channels;
  const S* x = job.x;
  int64_t kept_at = job.kept_at;
  int64_t y_at = job.y_at;
  for (int64_t r = job.runs; r > 0; --r) {
    for (int64_t j = 0; j < full; j += group) {
      if (sizeof(S) == 4 || j * static_cast<int64_t>(sizeof(S)) % 64 == 0) {
        AskFor(x + j);
        if (pixels > 1) {
          for (int64_t k = 1; k < pixels; ++k) AskFor(x + j + k * channels);
        }
      }
      const auto here = BestOfTaps<S, kRoutes, kTaps, kGroup<S>>(taps, x + j, watch);
      if constexpr (kRoles > 0) {
        int at = 0;
        (Give<S, kRoutes, kGroup<S>, kParts>(roles[at++], here, kept_at + j, y_at + j, group, y_size, watch), ...);
      } else {
        for (int64_t i = 0; i < job.role_count; ++i) {
          Give<S, kRoutes, kGroup<S>, Part::kAsListed>(job.roles[i], here, kept_at + j, y_at + j, group, y_size, watch);
        }
      }
    }
    if (full < run) {
      Watch<S> tail_watch = watch;  // or the loop's would live in memory
      StreamTail<S, kRoutes>(job, x, full, kept_at, y_at, tail_watch);
      watch = tail_watch;
    }
    x += job.in_pitch;
    kept_at += job.kept_pitch;
    y_at += run;
  }
  shared_watch = watch;
}

template <class S, bool kRoutes, int kTaps>
void StreamParts(const StreamJob<S>& job, Watch<S>& watch) {
  const auto part = [&](int64_t r) {
    const Role<S>& role = job.roles[r];
    return role.first ? role.last ? Part::kOnly : Part::kFirst : role.last ? Part::kLast : Part::kBetween;
  };
  const Part first = part(0);
  if (job.role_count == 1) {
    switch (first) {
      case Part::kFirst: return StreamRuns<S, kRoutes, kTaps, Part::kFirst>(job, watch);
      case Part::kBetween: return StreamRuns<S, kRoutes, kTaps, Part::kBetween>(job, watch);
      case Part::kLast: return StreamRuns<S, kRoutes, kTaps, Part::kLast>(job, watch);
      default: return StreamRuns<S, kRoutes, kTaps, Part::kOnly>(job, watch);
    }
  }
#ifndef POOLGRAD_SMALL
  if (first == Part::kLast && job.role_count == 3 && part(1) == Part::kBetween && part(2) == Part::kFirst) {
    return StreamRuns<S, kRoutes, kTaps, Part::kLast, Part::kBetween, Part::kFirst>(job, watch);
  }
#endif
  if (first == Part::kLast && job.role_count == 2 && part(1) == Part::kFirst) {
    return StreamRuns<S, kRoutes, kTaps, Part::kLast, Part::kFirst>(job, watch);
  }
  StreamRuns<S, kRoutes, 0>(job, watch);
}

template <class S, bool kRoutes>
void StreamPieceOfRow(const StreamJob<S>& job, Watch<S>& watch) {
  switch (job.taps) {
    case 2: return StreamParts<S, kRoutes, 2>(job, watch);
    case 3: return StreamParts<S, kRoutes, 3>(job, watch);
#ifndef POOLGRAD_SMALL
    case 4: return StreamParts<S, kRoutes, 4>(job, watch);
#endif
    default: return StreamParts<S, kRoutes, 0>(job, watch);
  }
}

// A piece of a row of outputs whose windows have the same taps along the width.
struct StreamPiece {
  Range ow, taps;
  int64_t kept_at;
};

template <class S>
struct StreamScratch {
  int64_t tile;     // outputs along the width per pass
  int64_t slots;    // windows that are open at once
  int64_t pitch;    // of an accumulator
  int64_t y_pitch;  // of the codes of a row of outputs
  S* keys;
  uint8_t* codes;
  uint8_t* y_codes;  // of slots + 1 rows: so many windows may end with one row
  Code<S>* exact_codes;
  bool* suspect;  // per slot: the Watch fired for a row of its window
  Role<S>* roles;
  StreamPiece* pieces;

  // Accumulators stay within L2, with room for the rows that pass by.
  static constexpr int64_t kKeptBytes = 256 << 10;

  static int64_t Slots(const Problem& p) {
    const Axis& h = p.height();
    return std::clamp<int64_t>(CeilDiv(h.extent() - 1, h.stride), 1, h.out);
  }

  StreamScratch(const Problem& p, bool with_codes, ScratchTaker& take) : slots(Slots(p)) {
    const Axis& w = p.width();
    const int64_t lanes = LaneCount<S>();
    const int64_t pixel = (p.channels + lanes - 1) / lanes * lanes;
    tile = std::clamp<int64_t>(kKeptBytes / (slots * pixel * static_cast<int64_t>(sizeof(S))), 1, w.out);
    const Range whole = w.interior();
    const int64_t most_pieces = std::min(w.out, w.out - whole.size() + 1);
    pitch = tile * pixel;
    y_pitch = tile * p.channels + LaneCount<uint8_t>();
    keys = take.Take<S>(slots * pitch);
    codes = take.Take<uint8_t>(with_codes ? slots * pitch : 0);
    y_codes = take.Take<uint8_t>(with_codes ? (slots + 1) * y_pitch : 0);
    exact_codes = take.Take<Code<S>>(with_codes ? p.channels : 0);
    suspect = take.Take<bool>(slots);
    roles = take.Take<Role<S>>(slots + 1);
    pieces = take.Take<StreamPiece>(most_pieces);
  }
};

template <class S, bool kRoutes>
class StreamRunner {
 public:
  StreamRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p), height_(p.height()), width_(p.width()), rows_(p, args), take_(memory), s_(p, kRoutes, take_),
        has_empty_row_(height_.has_empty_window()) {}

  // Units are rows of outputs: (plane, od, oh).
  void Run(int64_t begin, int64_t end) {
    const int64_t depth_out = p_.depth().out;
    for (int64_t r = begin; r < end;) {
      const int64_t group = r / height_.out;  // (plane, od)
      const int64_t group_end = std::min(end, (group + 1) * height_.out);
      plane_ = rows_.plane(group / depth_out);
      od_ = group % depth_out;
      first_unit_ = group * height_.out;
      const Range oh = {r - first_unit_, group_end - first_unit_};
      for (int64_t o = 0; o < width_.out; o += s_.tile) {
        if (o == 0 || s_.tile < width_.out) CutPieces({o, std::min(o + s_.tile, width_.out)});
        Pool(oh);
      }
      r = group_end;
    }
  }

 private:
  void CutPieces(Range ow) {
    if (piece_count_ > 0 && ow_.begin == ow.begin && ow_.end == ow.end) return;
    ow_ = ow;
    piece_count_ = 0;
    const Range whole = width_.interior();
    const int64_t lanes = LaneCount<S>();
    int64_t kept_at = 0;
    for (int64_t o = ow.begin; o < ow.end;) {
      const bool interior = o >= whole.begin && o < whole.end;
      const Range piece = {o, interior ? std::min(ow.end, whole.end) : o + 1};
      s_.pieces[piece_count_++] = {piece, width_.valid_taps(o), kept_at};
      const int64_t run = width_.stride == 1 ? piece.size() * p_.channels : p_.channels;
      kept_at += (run + lanes - 1) / lanes * lanes * (width_.stride == 1 ? 1 : piece.size());
      o = piece.end;
    }
  }

  // Output rows `oh` of this plane and depth, columns ow_.
  void Pool(Range oh) {
    const Range d = p_.depth().valid_taps(od_);
    if (has_empty_row_ || d.size() == 0) {
      for (int64_t o = oh.begin; o < oh.end; ++o) {
        if (d.size() == 0 || height_.valid_taps(o).size() == 0) Exact(o);
      }
      if (d.size() == 0) return;
    }
    if (p_.depth().kernel == 1) return Sweep(d, d.begin, oh);
    for (int64_t o = oh.begin; o < oh.end; ++o) {  // rows are not shared, so windows can be finished one by one
      for (int64_t k = 0; k < d.size(); ++k) Sweep(d, rows_.backwards ? d.end - 1 - k : d.begin + k, {o, o + 1});
    }
  }

  // Reads the rows of one slice that windows `oh` cover.
  void Sweep(Range d, int64_t kd, Range oh) {
    const int64_t begin = std::max<int64_t>(0, height_.start(oh.begin));
    const int64_t end = std::min(height_.in, height_.start(oh.end - 1) + height_.extent());
    const S* slice = rows_.row(plane_, p_.depth().start(od_) + kd * p_.depth().dilation, 0);
    const bool first_slice = kd == (rows_.backwards ? d.end - 1 : d.begin);
    const bool last_slice = kd == (rows_.backwards ? d.begin : d.end - 1);
    for (int64_t i = 0; i < end - begin; ++i) {
      const int64_t h = rows_.backwards ? end - 1 - i : begin + i;
      const Range covering = height_.covering(h);
      const Range o = {std::max(covering.begin, oh.begin), std::min(covering.end, oh.end)};
      role_count_ = 0;
      closing_ = 0;
      for (int64_t k = 0; k < o.size(); ++k) {
        AddRole(rows_.backwards ? o.end - 1 - k : o.begin + k, h, kd, first_slice, last_slice);
      }
      if (role_count_ > 0) Row(slice + h * width_.in * p_.channels);
    }
  }

  void AddRole(int64_t o, int64_t h, int64_t kd, bool first_slice, bool last_slice) {
    const int64_t kh = height_.tap_at(o, h);
    if (kh < 0) return;
    const Range taps = height_.valid_taps(o);
    const int64_t slot = o % s_.slots;
    const bool at_begin = kh == taps.begin;
    const bool at_end = kh == taps.end - 1;
    Role<S>& role = s_.roles[role_count_];
    role.first = first_slice && (rows_.backwards ? at_end : at_begin);
    role.last = last_slice && (rows_.backwards ? at_begin : at_end);
    role.kept = s_.keys + slot * s_.pitch;
    role.kept_codes = s_.codes + slot * s_.pitch;
    role.code = static_cast<uint8_t>((kd * height_.kernel + kh) * width_.kernel);
    role.y = rows_.y_row(first_unit_ + o) + ow_.begin * p_.channels;
    role.y_codes = s_.y_codes + closing_ * s_.y_pitch;
    role.output = o;
    closing_ += role.last;
    ++role_count_;
  }

  // Reduces an input row, hands it to the roles, and finishes the rows of outputs that it closes.
  void Row(const S* row) {
    Watch<S> watch(p_.dtype);
    const int64_t channels = p_.channels;
    const bool one_run = width_.stride == 1;
    for (int64_t i = 0; i < piece_count_; ++i) {
      const StreamPiece& piece = s_.pieces[i];
      const int64_t first_tap = rows_.backwards ? piece.taps.end - 1 : piece.taps.begin;
      const int64_t step = rows_.backwards ? -1 : 1;
      const int64_t run = one_run ? piece.ow.size() * channels : channels;
      const int64_t lanes = LaneCount<S>();
      const StreamJob<S> job = {row + (width_.start(piece.ow.begin) + first_tap * width_.dilation) * channels,
                                piece.taps.size(),
                                step * width_.dilation * channels,
                                static_cast<uint8_t>(first_tap),
                                static_cast<uint8_t>(step),
                                one_run ? 1 : piece.ow.size(),
                                run,
                                width_.stride * channels,
                                (run + lanes - 1) / lanes * lanes,
                                piece.kept_at,
                                (piece.ow.begin - ow_.begin) * channels,
                                s_.roles,
                                role_count_,
                                rows_.x_end,
                                ow_.size() * channels,
                                width_.stride == 1 ? 1 : std::min(width_.stride, width_.extent()),
                                channels};
      StreamPieceOfRow<S, kRoutes>(job, watch);
    }
    const bool fired = watch.Fired() != Alarm::kNone;
    for (int64_t r = 0; r < role_count_; ++r) {
      const Role<S>& role = s_.roles[r];
      const int64_t o = role.output;
      bool& suspect = s_.suspect[o % s_.slots];
      suspect = fired || (!role.first && suspect);
      if (!role.last) continue;
      if (suspect && SeesSpecial(rows_, plane_, od_, o, ow_)) {
        Exact(o);
      } else if constexpr (kRoutes) {
        PackRow(p_, role.y_codes, ow_, rows_.route_row(first_unit_ + o));
      }
    }
  }

  void Exact(int64_t o) {
    RunExactRow<S>(p_, plane_, od_, o, ow_, rows_.y_row(first_unit_ + o), kRoutes ? rows_.route_row(first_unit_ + o) : nullptr,
                   kRoutes ? s_.exact_codes : nullptr);
  }

  const Problem& p_;
  const Axis& height_;
  const Axis& width_;
  Rows<S> rows_;
  ScratchTaker take_;
  StreamScratch<S> s_;
  bool has_empty_row_;
  const S* plane_ = nullptr;
  int64_t od_ = 0;
  int64_t first_unit_ = 0;  // of this plane and depth
  Range ow_;
  int64_t piece_count_ = 0;
  int64_t role_count_ = 0;
  int64_t closing_ = 0;
};

template <class S, bool kRoutes>
void RunStream(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  StreamRunner<S, kRoutes>(p, args, memory).Run(begin, end);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
