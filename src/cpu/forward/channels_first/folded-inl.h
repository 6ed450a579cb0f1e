// fwd_cf_folded: windows that share little, channels first, in planes of few outputs: the window is the plane, or a
// large part of it.
//
// A window is a list of vectors: its rows, or all of it where it is one run of addresses. They are reduced lane by
// lane, and then as many planes as there are lanes are folded together, even lanes against odd ones, until every lane
// holds one plane's winner. Lanes do not follow each other in the window, so a tie between lanes is decided by the
// tap's number. Planes are read one after the other, which is what memory delivers fastest (14x14, as a fraction of
// copy: 0.75, four planes side by side 0.30); with routes four go side by side, because the comparisons of one wait for
// each other.

#include <algorithm>
#include <cstdint>

#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/any/maxima-inl.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// A vector of a window: where it begins in the plane, and the number of the tap in its first lane.
template <class S>
struct WindowVector {
  int64_t from;
  Code<S> code;
};

// The window of one output, as far as it lies in the plane, in order of preference. Rows shorter than a vector are read
// with what lies around them: only lanes [first_lane, first_lane + used) count, and no vector leaves the plane.
template <class S>
struct Window {
  WindowVector<S>* vectors;
  int64_t count = 0;
  int64_t first_lane = 0, used = 0;

  Window(const Problem& p, int64_t od, int64_t oh, int64_t ow, WindowVector<S>* room) : vectors(room) {
    const Axis &depth = p.depth(), &height = p.height(), &width = p.width();
    const int64_t lanes = LaneCount<S>();
    Range d = depth.valid_taps(od), h = height.valid_taps(oh), w = width.valid_taps(ow);
    int64_t run = w.size();
    // Rows that follow each other without gaps, in the plane and among taps, are one; and so are slices.
    if (run == width.in && width.kernel == run && height.dilation == 1) {
      run *= h.size();
      h.end = h.begin + 1;
      if (run == width.in * height.in && height.kernel == height.in && depth.dilation == 1) {
        run *= d.size();
        d.end = d.begin + 1;
      }
    }
    const auto row_at = [&](int64_t kd, int64_t kh) {
      const int64_t row = (depth.start(od) + kd * depth.dilation) * height.in + height.start(oh) + kh * height.dilation;
      return row * width.in + width.start(ow) + w.begin;
    };
    used = std::min(run, lanes);
    if (run < lanes) first_lane = std::max<int64_t>(0, row_at(d.end - 1, h.end - 1) + lanes - p.in_plane());
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        const int64_t row = row_at(kd, kh) - first_lane;
        const int64_t tap = (kd * height.kernel + kh) * width.kernel + w.begin - first_lane;
        for (int64_t i = 0; i < run; i += lanes) {  // the last may overlap the one before: ties with itself
          const int64_t at = std::max<int64_t>(0, std::min(i, run - lanes));
          vectors[count++] = {row + at, static_cast<Code<S>>(tap + at)};
        }
      }
    }
    if (p.ties == POOLGRAD_TIES_LAST) std::reverse(vectors, vectors + count);
  }

  // Lanes that do not count are below all others.
  HWY_INLINE VecOf<S> Masked(VecOf<S> key) const {
    const hn::ScalableTag<S> d;
    if (used == LaneCount<S>()) return key;
    const auto counts = hn::AndNot(hn::FirstN(d, static_cast<size_t>(first_lane)),
                                   hn::FirstN(d, static_cast<size_t>(first_lane + used)));
    return hn::IfThenElse(counts, key, hn::Set(d, LowestKey<S>()));
  }
};

// The lane-wise greatest of a window.
template <class S>
HWY_INLINE VecOf<S> GreatestOfLanes(const S* x, const Window<S>& window, Watch<S>& watch) {
  const WindowVector<S>* v = window.vectors;
  const auto four = [&](int64_t i) POOLGRAD_LAMBDA {
    const auto a = LoadKey<S, MaxFlow::kRawToKeys, 0>(x + v[i].from, watch),
               b = LoadKey<S, MaxFlow::kRawToKeys, 1>(x + v[i + 1].from, watch);
    const auto c = LoadKey<S, MaxFlow::kRawToKeys, 2>(x + v[i + 2].from, watch),
               e = LoadKey<S, MaxFlow::kRawToKeys, 3>(x + v[i + 3].from, watch);
    return Greatest<S>(Greatest<S>(e, c), Greatest<S>(b, a));
  };
  const int64_t n = window.count;
  auto greatest = n < 4 ? LoadKey<S, MaxFlow::kRawToKeys, 0>(x + v[0].from, watch) : four(0);
  for (int64_t i = 4; i < n; i += 4) greatest = Greatest<S>(four(std::min(i, n - 4)), greatest);
  for (int64_t i = 1; n < 4 && i < n; ++i)
    greatest = Greatest<S>(LoadKey<S, MaxFlow::kRawToKeys, 1>(x + v[i].from, watch), greatest);
  return window.Masked(greatest);
}

// The lane-wise best of a window of each of four planes, and where it is. No arrays of these in the loop: GCC would
// keep them in memory.
template <class S>
HWY_INLINE void BestOfLanes(const S* const* planes, const Window<S>& window, Best<S, true>* best, Watch<S>& watch) {
  const hn::ScalableTag<Code<S>> du;
  const S* x0 = planes[0];
  const S* x1 = planes[1];
  const S* x2 = planes[2];
  const S* x3 = planes[3];
  Best<S, true> a, b, c, e;
  for (int64_t i = 0; i < window.count; ++i) {
    const int64_t from = window.vectors[i].from;
    const auto code = hn::Add(hn::Iota(du, 0), hn::Set(du, window.vectors[i].code));
    const auto key0 = LoadKey<S, MaxFlow::kRawToKeys, 0>(x0 + from, watch),
               key1 = LoadKey<S, MaxFlow::kRawToKeys, 1>(x1 + from, watch);
    const auto key2 = LoadKey<S, MaxFlow::kRawToKeys, 2>(x2 + from, watch),
               key3 = LoadKey<S, MaxFlow::kRawToKeys, 3>(x3 + from, watch);
    if (i == 0) {  // not from the lowest key, with which zeros held as bits would tie
      a.key[0] = key0;
      b.key[0] = key1;
      c.key[0] = key2;
      e.key[0] = key3;
      a.code = b.code = c.code = e.code = code;
      continue;
    }
    a.Meet(&key0, code);
    b.Meet(&key1, code);
    c.Meet(&key2, code);
    e.Meet(&key3, code);
  }
  best[0] = a;
  best[1] = b;
  best[2] = c;
  best[3] = e;
  for (int i = 0; i < 4; ++i) best[i].key[0] = window.Masked(best[i].key[0]);
}

// The best of the even and the odd lanes of two vectors: those of `low` in the lower half of the result.
template <class S, bool kRoutes>
HWY_INLINE Best<S, kRoutes> Fold(const Best<S, kRoutes>& low, const Best<S, kRoutes>& high, bool backwards) {
  const hn::ScalableTag<S> d;
  const hn::ScalableTag<Code<S>> du;
  Best<S, kRoutes> even;
  even.key[0] = hn::ConcatEven(d, high.key[0], low.key[0]);
  const auto odd = hn::ConcatOdd(d, high.key[0], low.key[0]);
  if constexpr (kRoutes) {
    even.code = hn::ConcatEven(du, high.code, low.code);
    const auto odd_code = hn::ConcatOdd(du, high.code, low.code);
    const auto earlier = backwards ? hn::Gt(odd_code, even.code) : hn::Lt(odd_code, even.code);
    const auto beats =
        hn::Or(Above<S>(odd, even.key[0]), hn::And(hn::Eq(odd, even.key[0]), hn::RebindMask(d, earlier)));
    even.code = hn::IfThenElse(hn::RebindMask(du, beats), odd_code, even.code);
  }
  even.key[0] = Greatest<S>(odd, even.key[0]);
  return even;
}

// The first n lanes, `step` elements apart.
template <class D>
HWY_INLINE void PutApart(hn::Vec<D> v, D d, int64_t n, hn::TFromD<D>* to, int64_t step) {
  if (step == 1 && n == static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(v, d, to);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < n; ++i) to[i * step] = lanes[i];
}

// One output of up to Lanes planes from `plane` on; `step` elements from plane to plane in y and in codes.
template <class S, bool kRoutes>
HWY_INLINE void PoolPlanes(const Rows<S>& rows, int64_t plane, int64_t count, const Window<S>& window, S* y,
                           Code<S>* codes, int64_t step, Watch<S>& watch) {
  constexpr int kMax = static_cast<int>(hn::MaxLanes(hn::ScalableTag<S>()));
  const int64_t lanes = LaneCount<S>();
  count = std::min(count, lanes);
  Best<S, kRoutes> best[std::max(kMax, 4)];
  const auto plane_at = [&](int64_t i) { return rows.plane(plane + std::min(i, count - 1)); };
  if constexpr (kRoutes) {
    for (int64_t i = 0; i < count; i += 4) {
      const S* planes[4] = {plane_at(i), plane_at(i + 1), plane_at(i + 2), plane_at(i + 3)};
      BestOfLanes<S>(planes, window, best + i, watch);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) best[i].key[0] = GreatestOfLanes<S>(plane_at(i), window, watch);
  }
  int64_t n = count;  // what there are not planes for is not folded
  for (int m = kMax; m > 1; m /= 2, n = CeilDiv(n, 2)) {
    for (int64_t i = 0; i < n; i += 2) best[i / 2] = Fold(best[i], best[std::min(i + 1, n - 1)], rows.backwards);
  }
  watch.SeeUnordered(best[0].key[0]);
  PutApart(watch.ToY(best[0].key[0]), hn::ScalableTag<S>(), count, y, step);
  if constexpr (kRoutes) {
    if (watch.rectifies()) best[0].Drop(watch);
    PutApart(best[0].code, hn::ScalableTag<Code<S>>(), count, codes, step);
  }
}

// Planes that a task pools before it turns to another place.
template <class S>
int64_t PlanesOfTurn(const Problem& p) {
  const int64_t lanes = LaneCount<S>();
  return lanes * std::clamp<int64_t>((4 << 10) / (lanes * p.in_plane() * static_cast<int64_t>(sizeof(S))), 1, 4);
}

// Vectors of a window, at most.
template <class S>
int64_t VectorsOfWindow(const Problem& p) {
  const auto taps = [](const Axis& a) { return std::min(a.kernel, a.in); };
  return taps(p.depth()) * taps(p.height()) * CeilDiv(taps(p.width()), LaneCount<S>());
}

template <class S>
struct FoldedScratch {
  const Problem& p;
  bool routes;
  ScratchTaker take;
  Window<S>* const windows = take.Take<Window<S>>(p.out_plane());  // of all outputs of a plane
  WindowVector<S>* const vectors = take.Take<WindowVector<S>>(p.out_plane() * VectorsOfWindow<S>(p));
  Code<S>* const codes = take.Take<Code<S>>(routes ? PlanesOfTurn<S>(p) * p.out_plane() + LaneCount<uint8_t>() : 0);
};

// Memory delivers more to a few runs of addresses than to one, so a task reads its planes from four places by turns, at
// most 4 KiB each time.
template <class S, bool kRoutes>
void RunFolded(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  const FoldedScratch<S> s = {p, kRoutes, ScratchTaker(memory)};
  const int64_t lanes = LaneCount<S>(), out = p.out_plane(), height = out / p.width().out;
  for (int64_t o = 0; o < out; ++o) {
    const RowPlace row(p, o / p.width().out);
    s.windows[o] = Window<S>(p, row.od, row.oh, o % p.width().out, s.vectors + o * VectorsOfWindow<S>(p));
  }
  const int64_t turn = PlanesOfTurn<S>(p);
  const int64_t share = CeilDiv(CeilDiv(end - begin, int64_t{4}), turn) * turn;
  for (int64_t at = begin; at < begin + share; at += turn) {
    for (int64_t place = at; place < end && !rows.GaveUp(); place += share) {
      const int64_t place_end = std::min(place + turn, end);
      Watch<S> watch(p);
      for (int64_t o = 0; o < out; ++o) {
        const Window<S> window = s.windows[o];
        for (int64_t plane = place; plane < place_end; plane += lanes) {
          PoolPlanes<S, kRoutes>(rows, plane, place_end - plane, window, rows.y + plane * out + o,
                                 s.codes + (plane - place) * out + o, out, watch);
        }
      }
      const Range whole = {0, p.width().out};
      const int64_t first = place * height, count = (place_end - place) * height;
      if constexpr (kRoutes) PackRows(rows, s.codes, whole.end, first, count, whole);
      if (watch.Fired()) PoolSpecialRows<S>(rows, first, first + count, whole, true);
      rows.Finish(first, count, whole);
    }
  }
}

template <class S, bool kRoutes>
const char* MakeFolded(const Problem& p, Kernel* kernel) {
  const int64_t lanes = LaneCount<S>();
  if (p.channels_last() && p.channels > 1) return "it needs channels first";
  if (p.width().dilation != 1) return "windows are dilated along the width";
  if (p.height().has_empty_window() || p.depth().has_empty_window()) return "a window has no valid tap";
  if (kRoutes && sizeof(S) < 4 && p.taps() > (int64_t{1} << (8 * sizeof(S))) - 1)
    return "a tap's number does not fit a lane";
  bool global = p.out_plane() == 1;  // the window is the plane
  for (const Axis& a : p.axis) global = global && a.kernel == a.in && a.start(0) == 0 && a.extent() == a.in;
  const int64_t last_row = (std::min(p.depth().extent(), p.depth().in) - 1) * p.height().in +
                           std::min(p.height().extent(), p.height().in) - 1;  // of a window, from its first one on
  if (p.in_plane() < lanes || (!global && last_row * p.width().in + lanes > p.in_plane()))
    return "vectors would leave the plane";
  if (kIsBits<S> && !global) return "bits do not serve it";
  const bool usual = Tuning().forward_kept >> 10 > 0;  // tests take it also where it is slow
  if (usual && !global && p.out_plane() * (VectorsOfWindow<S>(p) + 8) * 5 > p.in_plane())
    return "windows share inputs, or are small";
  if (usual && !kRoutes && p.out_plane() > 1) return "without routes it is for one window per plane";
  kernel->tasks_per_thread = 1;  // long runs of addresses
  kernel->units = p.batch * p.channels;
  kernel->scratch_bytes = FoldedScratch<S>{p, kRoutes, ScratchTaker(nullptr)}.take.used();
  kernel->run = RunFolded<S, kRoutes>;
  return nullptr;
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
