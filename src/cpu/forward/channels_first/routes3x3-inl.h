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
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

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

template <class S, int kStride>
class SweepRunner {
  static constexpr int64_t kSteps = 16;  // at a time

 public:
  SweepRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  void Run(int64_t begin, int64_t end) {
    std::fill(copies_, copies_ + 2 * l_.row_pitch, S{0});
    Piece whole(width_, {0, width_.out});
    PoolBlocks(
        rows_, l_.out_rows, width_.out, begin, end, &whole, [] {},
        [&](const Block<S>& block, Watch<S>& watch) { Pool(block, watch); });
  }

 private:
  void Pool(const Block<S>& block, Watch<S>& watch) {
    Block<S> one = block;
    one.planes = 1;
    uint8_t* codes = codes_;
    for (int64_t i = 0; i < block.planes; ++i) {
      const S* plane = rows_.row(one.plane, p_.depth().start(one.od), 0);
      for (int64_t f = 0; f < std::min(height_.dilation, one.oh.size()); ++f) {
        SweepDown(one, plane, one.oh.begin + f, codes, watch);
      }
      one.plane += p_.in_plane() * rows_.inner;
      one.r += one.oh.size();
      codes += one.oh.size() * l_.code_pitch;
    }
    Flush(watch);
    PackRows(rows_, codes_, l_.code_pitch, block.r, block.planes * block.oh.size(), {0, width_.out});
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
    S* copy = copies_ + (row == rows_.x ? 0 : l_.row_pitch);  // steps that wait may see both
    const int64_t from = std::max<int64_t>(0, loaded_.begin);
    const int64_t to = std::min(width_.in, loaded_.end);
    std::memcpy(copy + from - loaded_.begin, row + from, static_cast<size_t>(to - from) * sizeof(S));
    return copy;
  }

  // A step that sees and writes nothing yet. Filled where it lies: copied, its pointers would have to be in memory
  // first.
  SweepStep<S>& Next(Watch<S>& watch) {
    if (count_ == kSteps) Flush(watch);
    SweepStep<S>& step = steps_[count_++];
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
    Sweep<SweepOf<S, kStride>>({steps_, count_, width_.dilation, before, beyond, width_.in, &lookahead_}, width_.out,
                               kept_keys_, kept_codes_, watch);
    count_ = 0;
  }

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Problem& p_ = rows_.p;
  const Axis &height_ = p_.height(), &width_ = p_.width();
  const Range loaded_ = LoadedColumns(width_);
  const SweepLayout& l_ = *static_cast<const SweepLayout*>(rows_.args.layout);

  SweepStep<S>* const steps_ = take_.Take<SweepStep<S>>(kSteps);
  S* const kept_keys_ = take_.Take<S>(2 * l_.code_pitch);
  uint8_t* const kept_codes_ = take_.Take<uint8_t>(2 * l_.code_pitch);
  uint8_t* const codes_ = take_.Take<uint8_t>(l_.out_rows * l_.code_pitch + LaneCount<uint8_t>());
  S* const copies_ = take_.Take<S>(2 * l_.row_pitch);  // of the first and the last row of x
  Lookahead lookahead_ = {rows_.x, rows_.x_end};
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
  if constexpr (!kIsBits<S>) {
    if (h.stride == 1) return MakeOfRows<S, SweepRunner<S, 1>>(kernel, p, LayOutSweep<S>(p));
  }
  return MakeOfRows<S, SweepRunner<S, 2>>(kernel, p, LayOutSweep<S>(p));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
