// fwd_cf_tiled: max pooling of channels first where the windows tile the width: kernel = stride = 2, 3 or 4, no padding
// there. Nothing passes through scratch. With routes, de-interleaving loads bring every tap of a vector of outputs into
// its own register; without, rows meet first, and then neighbours, which is one instruction on Arm.
//
// Tried and left: with routes, four or eight taps that meet in pairs, and codes that are put together from masks (300
// lines; as fast on AVX-512, 0.97 to 1.09 times).
// Also: loads that de-interleave in place of joining halves (k4 s4 with routes 5.3 ms against 4.3 on Arm);
// asking for lines a row at a time, or storing where it stands (it breaks the stream of writes: 0.58 to 0.64 of copy by
// asking with every block); two halves of a task's range by turns (gains 5 % at 224 columns, loses at 112 and 56).

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/any/padded-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

struct TiledLayout {
  int64_t group;  // output rows between two looks at the Watch
};

// `runs` rows of outputs, each from n input rows (in order of preference) that lie in_pitch further than for the row
// before.
template <class S>
struct InterleavedJob {
  const S* const* inputs;
  const Code<S>* codes;  // of every tap, row after row
  int64_t n;
  bool backwards;
  int64_t runs, in_pitch, length;
  S* y;
  uint8_t* y_codes;  // in scratch
  RowsAhead* ahead;
  const S* ahead_of;  // where the first row's windows begin to read
};

// One vector of outputs without routes. No lambdas here: they would keep the watch in memory.
template <class S, int kStride>
HWY_INLINE VecOf<S> GreatestOfTiles(const S* const* inputs, int64_t n, int64_t at, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  if constexpr (kStride == 3) {
    auto best = hn::Set(d, LowestKey<S>());
    for (int64_t i = 0; i < n; ++i) {
      VecOf<S> u[3];
      hn::LoadInterleaved3(d, inputs[i] + at, u[0], u[1], u[2]);
      for (int t = 0; t < 3; ++t) {
        u[t] = Key<S>(u[t]);
        watch.See(u[t]);
      }
      best = Greatest<S>(Greatest<S>(Greatest<S>(u[0], u[1]), u[2]), best);
    }
    return best;
  } else {
    VecOf<S> v[kStride];
    for (int t = 0; t < kStride; ++t) v[t] = LoadKey<S, MaxFlow::kRawToKeys, 0>(inputs[0] + at + t * lanes, watch);
    for (int64_t i = 1; i < n; ++i) {
      for (int t = 0; t < kStride; ++t) {
        v[t] = Greatest<S>(LoadKey<S, MaxFlow::kRawToKeys, 1>(inputs[i] + at + t * lanes, watch), v[t]);
      }
    }
    const auto low = PairMax<S>(v[0], v[1]);
    if constexpr (kStride == 2) return low;
    return PairMax<S>(low, PairMax<S>(v[kStride - 2], v[kStride - 1]));
  }
}

// One vector of outputs from output j of a row on.
template <class S, int kStride>
HWY_INLINE void MaxOfTiles(const S* const* inputs, int64_t n, int64_t from, int64_t j, S* y, Watch<S>& watch) {
  PutMax<S, MaxFlow::kKeysToY, 0>(GreatestOfTiles<S, kStride>(inputs, n, from + j * kStride, watch), y + j, watch);
}

// One vector of outputs with the taps they come from.
template <class S, int kStride>
HWY_INLINE Best<S, true> BestOfTiles(const S* const* inputs, const Code<S>* codes, int64_t n, bool backwards,
                                     int64_t at, Watch<S>& watch) {
  const hn::ScalableTag<Code<S>> du;
  Best<S, true> best;
  for (int64_t i = 0; i < n; ++i) {
    VecOf<S> v[4];
    LoadPhases<S, kStride>(inputs[i] + at, v);
    if (backwards) {
      std::swap(v[0], v[kStride - 1]);
      if constexpr (kStride == 4) std::swap(v[1], v[2]);
    }
    for (int t = 0; t < kStride; ++t) {
      v[t] = Key<S>(v[t]);
      watch.See(v[t]);
      const auto code = hn::Set(du, codes[i * kStride + t]);
      if (i + t == 0) {
        best.key[0] = v[0];
        best.code = code;
      } else {
        best.Meet(v + t, code);
      }
    }
  }
  return best;
}

// kSome vectors of outputs from output j of a row on: one, or (where codes are bytes) as many as have their codes in
// one vector.
template <class S, int kStride, int kSome>
HWY_INLINE void TilesStep(const S* const* inputs, const Code<S>* codes, int64_t n, bool backwards, int64_t from,
                          int64_t j, S* y, uint8_t* y_codes, Watch<S>& watch) {
  const int64_t lanes = LaneCount<S>();
  CodeVec<S> of[kSome];
  for (int k = 0; k < kSome; ++k) {
    const int64_t at = j + k * lanes;
    auto best = BestOfTiles<S, kStride>(inputs, codes, n, backwards, from + at * kStride, watch);
    watch.SeeWinner(best.key[0]);
    hn::StoreU(watch.ToY(best.key[0]), hn::ScalableTag<S>(), y + at);
    if (watch.rectifies()) best.Drop(watch);
    of[k] = best.code;
  }
  if constexpr (kSome == sizeof(S)) {
    hn::StoreU(BytesOf<Code<S>>(of), hn::ScalableTag<uint8_t>(), y_codes + j);
  } else {
    const hn::Rebind<uint8_t, hn::ScalableTag<S>> d8;
    hn::StoreU(hn::TruncateTo(d8, of[0]), d8, y_codes + j);
  }
}

// kN is n where it is known, else 0.
template <class S, bool kRoutes, int kStride, int kN>
HWY_NOINLINE void InterleavedRows(const InterleavedJob<S>& job, Watch<S>& shared_watch) {
  const int64_t lanes = LaneCount<S>();
  const int64_t n = kN > 0 ? kN : job.n;
  const int64_t length = job.length;
  const bool backwards = job.backwards;
  const S* known[kN > 0 ? kN : 1];
  Code<S> known_codes[kN > 0 ? kN * kStride : 1];
  for (int i = 0; i < kN; ++i) known[i] = job.inputs[i];
  for (int i = 0; kRoutes && i < kN * kStride; ++i) known_codes[i] = job.codes[i];
  const S* const* inputs = kN > 0 ? known : job.inputs;
  const Code<S>* codes = kN > 0 ? known_codes : job.codes;
  Watch<S> watch = shared_watch;
  RowsAhead ahead = *job.ahead;
  constexpr int kBlock = sizeof(S);
  const int64_t block = kBlock * lanes;
  const auto block_bytes = static_cast<uintptr_t>(block * n) * kStride * sizeof(S);
  S* y = job.y;
  uint8_t* y_codes = job.y_codes;
  for (int64_t r = 0; r < job.runs; ++r, y += length, y_codes += kRoutes ? length : 0) {
    const int64_t from = r * job.in_pitch;
    ahead.Start(job.ahead_of + from);
    int64_t j = 0;
    if constexpr (kRoutes) {
      for (; j + block <= length; j += block) {
        ahead.Block(block_bytes);
        TilesStep<S, kStride, kBlock>(inputs, codes, n, backwards, from, j, y, y_codes, watch);
      }
      if (j < length) ahead.Block(block_bytes);
      if (j > 0 && j + lanes < length) {  // over the block before it
        TilesStep<S, kStride, kBlock>(inputs, codes, n, backwards, from, length - block, y, y_codes, watch);
        j = length;
      }
      for (; j < length; j += lanes) {
        TilesStep<S, kStride, 1>(inputs, codes, n, backwards, from, std::min(j, length - lanes), y, y_codes, watch);
      }
    } else {
      while (j + lanes <= length) {
        ahead.Block(block_bytes);
        const int64_t end = std::min(j + block, length - lanes + 1);
        for (; j < end; j += lanes) MaxOfTiles<S, kStride>(inputs, n, from, j, y, watch);
      }
      if (j < length) MaxOfTiles<S, kStride>(inputs, n, from, length - lanes, y, watch);
    }
  }
  *job.ahead = ahead;
  shared_watch = watch;
}

// What to ask for: something only if windows leave nothing out. Rows of several slices are so short that their runs of
// addresses are followed better without.
template <class S>
RowsAhead RowsToAskFor(const Rows<S>& rows) {
  const Axis& height = rows.p.height();
  const Axis& width = rows.p.width();
  if (height.stride != height.kernel || width.stride != width.kernel || rows.p.depth().kernel > 1) return RowsAhead();
  const int64_t row = height.kernel * width.in * static_cast<int64_t>(sizeof(S));
  return RowsAhead(rows.x, rows.x_end, row, height.kernel == 1);
}

template <class S>
using InterleavedRun = void (*)(const InterleavedJob<S>&, Watch<S>&);

// For a stride of the width, that many taps a row: the rows of windows that see n input rows.
template <class S, bool kRoutes, int kStride>
InterleavedRun<S> InterleavedOf(int64_t n) {
  constexpr int kUsual = kStride == 3 ? 3 : 2;  // input rows
  return n == kUsual ? InterleavedRows<S, kRoutes, kStride, kUsual> : InterleavedRows<S, kRoutes, kStride, 0>;
}

template <class S, bool kRoutes>
class TiledRunner {
 public:
  TiledRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  void Run(int64_t begin, int64_t end) {
    const int64_t out = width_.out, stride = width_.stride;
    const auto rows_of = stride == 2   ? InterleavedOf<S, kRoutes, 2>
                         : stride == 3 ? InterleavedOf<S, kRoutes, 3>
                                       : InterleavedOf<S, kRoutes, 4>;
    RowsAhead ahead = RowsToAskFor(rows_);
    const Range whole_d = depth_.interior(), whole_h = height_.interior();
    // Planes whose windows leave no rows over follow each other as if they were one.
    const bool seamless = depth_.in == 1 && depth_.out == 1 && height_.in == height_.out * height_.stride &&
                          whole_h.size() == height_.out;

    for (int64_t r = begin; r < end && !rows_.GaveUp();) {
      const int64_t count = std::min(group_, end - r);
      Watch<S> watch(rows_.p);
      for (int64_t g = 0; g < count;) {
        const RowPlace at(rows_.p, r + g);
        const bool whole = at.oh >= whole_h.begin && at.oh < whole_h.end;
        const Range d =
            at.od >= whole_d.begin && at.od < whole_d.end ? Range{0, depth_.kernel} : depth_.valid_taps(at.od);
        const Range h = whole ? Range{0, height_.kernel} : height_.valid_taps(at.oh);
        const int64_t runs = seamless ? count - g : whole ? std::min(count - g, whole_h.end - at.oh) : 1;
        const int64_t n = d.size() * h.size();
        if (n > 0) {
          ListInputs(at, d, h);
          rows_of(n)(
              {inputs_, input_codes_, n, rows_.backwards, runs, height_.stride * width_.in, out, rows_.y_row(r + g),
               out_codes_ + (kRoutes ? g * out : 0), &ahead, inputs_[rows_.backwards ? n - 1 : 0]},
              watch);
        }
        if constexpr (kRoutes) PackRows<S>(rows_, out_codes_ + g * out, out, r + g, runs, {0, out});
        g += runs;
      }
      PoolSpecialRows<S>(rows_, r, r + count, {0, out}, watch.Fired());
      rows_.Finish(r, count, {0, out});
      r += count;
    }
  }

 private:
  // The rows of taps of a window, in order of preference, and the numbers of these.
  void ListInputs(const RowPlace& at, Range d, Range h) const {
    int64_t n = 0;
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh, ++n) {
        const int64_t i = rows_.backwards ? d.size() * h.size() - 1 - n : n;
        inputs_[i] = rows_.row(rows_.plane(at.plane), depth_.start(at.od) + kd * depth_.dilation,
                               height_.start(at.oh) + kh * height_.dilation);
        for (int64_t t = 0; kRoutes && t < width_.stride; ++t) {
          const int64_t kw = rows_.backwards ? width_.stride - 1 - t : t;
          input_codes_[i * width_.stride + t] = static_cast<Code<S>>((kd * height_.kernel + kh) * width_.stride + kw);
        }
      }
    }
  }

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Axis &depth_ = rows_.p.depth(), &height_ = rows_.p.height(), &width_ = rows_.p.width();
  const int64_t group_ = static_cast<const TiledLayout*>(rows_.args.layout)->group;
  const int64_t taps_ = std::min(depth_.kernel, depth_.in) * std::min(height_.kernel, height_.in);  // rows of them

  const S** const inputs_ = take_.Take<const S*>(taps_);
  Code<S>* const input_codes_ =
      take_.Take<Code<S>>(kRoutes ? taps_ * width_.kernel : 0);  // of every tap, row after row
  uint8_t* const out_codes_ = take_.Take<uint8_t>(kRoutes ? group_ * width_.out + LaneCount<uint8_t>() : 0);
};

template <class S, bool kRoutes>
const char* MakeTiled(const Problem& p, Kernel* kernel) {
  const Axis& w = p.width();
  if (p.channels_last() && p.channels > 1) return "it needs channels first";
  if (w.kernel != w.stride || w.dilation != 1 || w.pad_lo != 0 || w.interior().size() != w.out)
    return "windows do not tile the width";
  if (w.stride < 2 || w.stride > 4) return "the width's stride is not 2, 3 or 4";
  if (!p.height().disjoint() || !p.depth().disjoint()) return "windows share rows";
  if (w.out < LaneCount<S>()) return "a row of outputs is shorter than a vector";
  if (kRoutes && p.taps() > 255) return "a tap's number does not fit a byte";
  const TiledLayout layout = {std::clamp<int64_t>(Tuning().forward_looks / w.out, 1, 64)};
  return MakeOfRows<S, TiledRunner<S, kRoutes>>(kernel, p, layout);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
