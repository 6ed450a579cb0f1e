// fwd_cf_routes3x3: max pooling of f32 with routes, channels first (and a single channel last), for windows of three by
// three at stride 1 or 2: each row of outputs straight from the rows of x it sees and what the rows before left
// (rows3x3-inl.h).
//
// x is read where it lies; only its first and its last row, around which loads would leave it, are copied. (Halves
// would have to become keys for each of the three loads; for them the passes of any/routes-inl.h are as fast.)
//
// Rows that are apart (a dilated height) belong to different sweeps, one after the other.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/channels_first/rows3x3-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// The columns that the loads of a row of windows touch, counted from the row's first; they may lie outside it.
inline Range LoadedColumns(const Axis& width) {
  const int64_t odd = width.stride == 2 ? 1 : 0;  // de-interleaved with the last column of the last window
  return {width.start(0), width.start(width.out - 1) + width.extent() + odd};
}

// Whether rows3x3-inl.h takes rows of x as they are: only taps that it masks lie outside.
template <class S>
bool SweepsRows(const Axis& width) {
  const int64_t lanes = LaneCount<S>();
  const int64_t last_full = CeilDiv(width.out, lanes) * lanes - lanes - 1;  // the last window before the last vector
  const bool tap0 = width.out == lanes || width.start(std::min(lanes, width.out - lanes)) >= 0;
  const bool tap1 = width.start(0) + width.dilation >= 0 && width.start(width.out - 1) + width.dilation < width.in;
  const bool tap2 = last_full < 0 || width.start(last_full) + 2 * width.dilation < width.in;
  return tap0 && tap1 && tap2 && width.dilation <= lanes && width.in >= lanes;
}

struct SweepLayout {
  int64_t code_pitch, row_pitch;
  int64_t out_rows;  // per block
};

template <class S>
SweepLayout LayOutSweep(const Problem& p) {
  const Axis& h = p.height();
  const int64_t stripe = LaneCount<uint8_t>();
  SweepLayout l = {};
  l.code_pitch = CeilDiv(p.width().out, stripe) * stripe;
  const Range loaded = LoadedColumns(p.width());
  l.row_pitch = loaded.end - loaded.begin + 2 * LaneCount<S>();
  const int64_t rows_of_codes = std::max<int64_t>(Tuning().forward_sweep_codes / l.code_pitch, 4 * h.dilation);
  l.out_rows =
      rows_of_codes > h.out && p.depth().out > 1 ? h.out : std::min(rows_of_codes, h.out * p.batch * p.channels);
  return l;
}

template <class S>
struct SweepScratch {
  static constexpr int64_t kSteps = 16;  // at a time
  SweepStep<S>* steps;
  S* kept_keys;
  uint8_t* kept_codes;
  uint8_t* codes;
  S* rows;  // copies of the first and the last of x

  SweepScratch(const SweepLayout& l, const Problem&, ScratchTaker& take) {
    steps = take.Take<SweepStep<S>>(kSteps);
    kept_keys = take.Take<S>(2 * l.code_pitch);
    kept_codes = take.Take<uint8_t>(2 * l.code_pitch);
    codes = take.Take<uint8_t>(l.out_rows * l.code_pitch + LaneCount<uint8_t>());
    rows = take.Take<S>(2 * l.row_pitch);
  }
};

template <class S, int kStride>
class SweepRunner {
 public:
  SweepRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p),
        height_(p.height()),
        width_(p.width()),
        loaded_(LoadedColumns(p.width())),
        l_(*static_cast<const SweepLayout*>(args.layout)),
        rows_(p, args),
        take_(memory),
        s_(l_, p, take_),
        lookahead_(rows_.x, rows_.x_end) {
    std::fill(s_.rows, s_.rows + 2 * l_.row_pitch, S{0});
  }

  void Run(int64_t begin, int64_t end) {
    Piece whole(width_, {0, width_.out});
    PoolBlocks(
        rows_, l_.out_rows, width_.out, begin, end, &whole, [] {},
        [&](const Block<S>& block, Watch<S>& watch) { Pool(block, watch); });
  }

 private:
  void Pool(const Block<S>& block, Watch<S>& watch) {
    ForPlanesOf(block, rows_, [&](const Block<S>& one) {
      uint8_t* codes = s_.codes + (one.r - block.r) * l_.code_pitch;
      const S* plane = rows_.row(one.plane, p_.depth().start(one.od), 0);
      for (int64_t f = 0; f < std::min(height_.dilation, one.oh.size()); ++f) {
        SweepDown(one, plane, one.oh.begin + f, codes, watch);
      }
    });
    Flush(watch);
    PackRows(rows_, s_.codes, l_.code_pitch, block.r, block.planes * block.oh.size(), {0, width_.out});
  }

  // The rows of outputs `first`, first + dilation, ...
  void SweepDown(const Block<S>& block, const S* plane, int64_t first, uint8_t* block_codes, Watch<S>& watch) {
    const int64_t apart = height_.dilation;
    S* block_y = rows_.y_row(block.r);
    const auto see = [&](SweepStep<S>& step, int i, int64_t h) {
      step.row[i] = h >= 0 && h < height_.in ? Input(plane + h * width_.in) : nullptr;
    };
    const auto write = [&](SweepStep<S>& step, int i, int64_t o) {
      step.y[i] = block_y + (o - block.oh.begin) * width_.out;
      step.codes[i] = block_codes + (o - block.oh.begin) * l_.code_pitch;
    };
    const int64_t top = height_.start(first);
    SweepStep<S>& begin = Next(watch);
    if constexpr (kStride == 1) {
      see(begin, 0, top);
      see(begin, 1, top + apart);
      for (int64_t o = first; o < block.oh.end; o += 2 * apart) {
        SweepStep<S>& step = Next(watch);
        const int64_t h = height_.start(o) + 2 * apart;
        see(step, 0, h);
        write(step, 0, o);
        if (o + apart >= block.oh.end) break;
        see(step, 1, h + apart);
        write(step, 1, o + apart);
      }
    } else {
      see(begin, 1, top);
      for (int64_t o = first; o < block.oh.end; ++o) {
        SweepStep<S>& step = Next(watch);
        const int64_t h = height_.start(o);
        see(step, 0, h + 1);
        see(step, 1, h + 2);
        write(step, 0, o);
      }
    }
  }

  // Where the windows of a row of x begin.
  const S* Input(const S* row) {
    if (row + loaded_.begin >= rows_.x && row + loaded_.end <= rows_.x_end) return row + loaded_.begin;
    S* copy = s_.rows + (row == rows_.x ? 0 : l_.row_pitch);  // steps that wait may see both
    const int64_t from = std::max<int64_t>(0, loaded_.begin);
    const int64_t to = std::min(width_.in, loaded_.end);
    std::memcpy(copy + from - loaded_.begin, row + from, static_cast<size_t>(to - from) * sizeof(S));
    return copy;
  }

  // A step that sees and writes nothing yet. Filled where it lies: copied, its pointers would have to be in memory
  // first.
  SweepStep<S>& Next(Watch<S>& watch) {
    if (count_ == s_.kSteps) Flush(watch);
    SweepStep<S>& step = s_.steps[count_++];
    for (int i = 0; i < 2; ++i) {
      step.row[i] = nullptr;
      step.y[i] = nullptr;
    }
    return step;
  }

  void Flush(Watch<S>& watch) {
    const int64_t before = std::max<int64_t>(0, CeilDiv(-width_.start(0), width_.stride));
    const int64_t beyond =
        std::max<int64_t>(0, CeilDiv(width_.start(width_.out - 1) + width_.extent() - width_.in, width_.stride));
    Sweep<SweepOf<S, kStride>>({s_.steps, count_, width_.dilation, before, beyond, width_.in, &lookahead_}, width_.out,
                               s_.kept_keys, s_.kept_codes, watch);
    count_ = 0;
  }

  const Problem& p_;
  const Axis& height_;
  const Axis& width_;
  const Range loaded_;
  const SweepLayout& l_;
  Rows<S> rows_;
  ScratchTaker take_;
  SweepScratch<S> s_;
  Lookahead lookahead_;
  int64_t count_ = 0;  // of steps that wait
};

// For vectors of 16 bytes: where they are longer a stripe is as wide as many a row, and long rows of several planes
// waste less.
template <class S>
const char* MakeRoutes3x3(const Problem& p, Kernel* kernel) {
  const Axis& h = p.height();
  const Axis& w = p.width();
  if (p.channels_last() && p.channels > 1) return "it needs channels first";
  if (p.ties == POOLGRAD_TIES_LAST) return "it prefers the first of ties";
  if (h.kernel != 3 || w.kernel != 3 || p.depth().kernel != 1) return "a window is not three by three";
  if (h.stride != w.stride || h.stride > 2) return "the strides are not both 1 or both 2";
  if (h.stride == 2 && (h.dilation > 1 || w.dilation > 1)) return "windows at stride 2 are dilated";
  if (w.out < LaneCount<S>() || !SweepsRows<S>(w)) return "rows are shorter than a vector or padded too far";
  if (h.extent() > 2 * h.in + 4096) return "windows reach far beyond the input";
  // Bits: at stride 1 nothing is won, and only one row before the input can be told from zeros.
  if (kIsBits<S> && (h.stride == 1 || h.pad_lo > 1)) return "bits do not serve it";
  RunFn run = RunAs<SweepRunner<S, 2>>;
  if constexpr (!kIsBits<S>) {
    if (h.stride == 1) run = RunAs<SweepRunner<S, 1>>;
  }
  return MakeOfRows<S, SweepScratch<S>>(kernel, p, run, LayOutSweep<S>(p));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
