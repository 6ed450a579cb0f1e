// What the general kernels share: how a problem is cut into blocks of rows of outputs, pieces of rows, and spans of
// taps.
//
// Both layouts are rows here. Channels last has `inner` channels beside each other at every place of a row, channels
// first one; what is `stride` or `dilation` places apart is that times `inner` elements apart, and nothing else
// differs.

// Per-target include guard
#if defined(POOLGRAD_CPU_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BLOCKS_INL_H_
#undef POOLGRAD_CPU_BLOCKS_INL_H_
#else
#define POOLGRAD_CPU_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/forward/common/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Whether strides over 4 have ways of their own: columns sorted by phase, windows reduced across lanes. Not where size
// counts.
#ifdef POOLGRAD_SMALL
inline constexpr bool kWideStrides = false;
#else
inline constexpr bool kWideStrides = true;
#endif

// Large windows are put together from spans of neighbouring taps that windows share. A span of radix^levels taps is
// made in `levels` passes, each the best of `radix` spans of the pass before, and windows are the best of a few of the
// longest ones. The last span of a window may overlap the one before it: a tap met twice ties with itself.
struct Spans {
  int64_t radix = 1;
  int levels = 0;    // none: windows are made of single taps
  int64_t size = 1;  // taps of the longest spans

  Spans() = default;
  // `apart`: spans are made at so many places for each window.
  Spans(int64_t taps, int64_t apart) {
    double least = static_cast<double>(taps);
    for (int n = 1; taps > 5 && n <= 8; ++n) {
      auto root = static_cast<int64_t>(std::pow(static_cast<double>(taps), 1.0 / (n + 1)) + 0.999);
      root = std::max<int64_t>(2, root);
      int64_t all = 1;
      for (int i = 0; i < n && all < taps; ++i) all *= root;
      if (all >= taps) break;
      const double cost =
          static_cast<double>(n * root) * static_cast<double>(apart) + static_cast<double>(CeilDiv(taps, all));
      if (cost >= least) continue;
      least = cost;
      radix = root;
      levels = n;
      size = all;
    }
  }
  bool used() const { return levels > 0; }
  int64_t count(int64_t taps) const { return taps < size ? taps : CeilDiv(taps, size); }
  // The tap that span i of a window of taps >= size begins at.
  int64_t tap(int64_t i, int64_t taps) const { return std::min(i * size, taps - size); }
  // Sources that are listed at once, at most.
  int64_t listed(int64_t taps) const { return std::max(used() ? std::max(size, CeilDiv(taps, size)) : taps, radix); }
};

// How windows are taken from padded rows.
enum class Across {
  kTaps,     // one apart, or sorted by phase: a vector of windows is a contiguous load per tap
  kPairs,    // two apart: neighbours meet
  kPhases,   // three or four apart: de-interleaving loads bring several taps of a vector of windows
  kRuns,     // several apart, each with channels that fill vectors
  kWindows,  // several apart: each loaded as it lies, and reduced across lanes
  kPick,     // several apart: made at all places, and picked
};

// How many positions, padding included, the windows of an axis reach over; a cropped input may have more.
inline int64_t Positions(const Axis& a) { return (a.out - 1) * a.stride + a.extent(); }

// Outputs `ow` of rows, and the inputs they see as an axis of its own.
struct Piece {
  Range ow;
  Axis width;
  int64_t begin;  // the first of those inputs

  Piece(const Axis& whole, Range outputs) : ow(outputs) {
    const Range in = whole.inputs(ow);
    width = whole.Part(ow, in);
    begin = in.begin;
  }
};

// Outputs per piece of a row: all, if scratch of `fixed` + outputs * `each` bytes then fits `room`; else about as many
// as fit, but not so few that what pieces have in common outweighs them. Routes of pieces begin at bytes.
inline int64_t TileOf(int64_t outputs, int64_t room, int64_t fixed, int64_t each) {
  if (outputs <= (room - fixed) / each) return outputs;
  return std::clamp<int64_t>(std::max(room - fixed, fixed) / each / 8 * 8, 8, outputs);
}

// Why the general kernels do not take a problem, or null. Their scratch holds rows with their padding, a few times
// over, and is to stay below 24 times the data and 8 MiB (tests/plan/cost_test.cc): rows that are mostly
// padding are left to fwd_exact.
inline const char* RefusePadding(const Problem& p) {
  const int64_t inner = p.channels_last() ? p.channels : 1;
  const bool far = Positions(p.width()) - 2 * p.width().in > 65536 / inner;
  return far ? "windows reach far beyond the input" : nullptr;
}

// A block: output rows `oh` of one plane and output depth; or all the rows of several planes.
template <class S>
struct Block {
  const S* plane;
  int64_t planes;
  int64_t od;
  Range oh;
  int64_t r;    // the first row's number among all rows of the result
  Range depth;  // valid taps
  Range in;     // input rows between the first and the last that a window sees; may be empty
};

// Pools rows [begin, end) of the result by blocks of at most out_rows rows (where planes have so many: of one plane),
// and of each block piece by piece of its rows, `tile` outputs: by pool(block, watch), where it sees some input, and
// after that what the rules decide. *piece is the first before, then the one at work; clear() is called where it lies
// otherwise among its padding than the one before.
template <class S, class Clear, class Pool>
void PoolBlocks(const Rows<S>& rows, int64_t out_rows, int64_t tile, int64_t begin, int64_t end, Piece* piece,
                const Clear& clear, const Pool& pool) {
  const Axis &depth = rows.p.depth(), &height = rows.p.height(), &width = rows.p.width();
  for (int64_t r = begin, past; r < end && !rows.GaveUp(); r = past) {
    const int64_t group = r / height.out;  // (plane, od)
    const int64_t oh = r - group * height.out;
    const int64_t od = group % depth.out;
    const int64_t count = std::min({out_rows, end - r, height.out - oh});
    const int64_t planes = count == height.out && depth.out == 1 ? std::min(out_rows, end - r) / count : 1;
    const Range in = height.inputs({oh, oh + count});
    const Block<S> block{rows.plane(group / depth.out), planes, od, {oh, oh + count}, r, depth.valid_taps(od), in};
    past = r + planes * count;
    for (int64_t o = 0; o < width.out; o += tile) {
      if (tile < width.out) {
        const Axis before = piece->width;
        *piece = Piece(width, {o, std::min(o + tile, width.out)});
        const Axis& now = piece->width;
        if (before.in != now.in || before.pad_lo != now.pad_lo || before.out != now.out) clear();
      }
      Watch<S> watch(rows.p);
      if (in.size() > 0 && block.depth.size() > 0) pool(block, watch);
      PoolSpecialRows<S>(rows, r, past, piece->ow, watch.Fired());
      rows.Finish(r, past - r, piece->ow);
    }
  }
}

// Input rows that a block of at most out_rows output rows of one plane sees.
inline int64_t InRows(const Axis& height, int64_t out_rows) {
  return std::min(height.in, (std::min(out_rows, height.out) - 1) * height.stride + height.extent());
}

// Lines that end inside a byte, or lie apart. Each may spill into those after it, which are written later; returns how
// many lines it did.
template <int kBits>
int64_t PackLines(const uint8_t* codes, int64_t pitch, int64_t count, int64_t n, uint8_t* lines) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t line_bytes = CeilDiv(n * kBits, 8);
  const int64_t spill = CeilDiv(lanes * kBits, 8 * line_bytes);  // lines at the end that could not take it
  const auto tail = hn::FirstN(d, static_cast<size_t>((n - 1) % lanes + 1));
  int64_t r = 0;
  for (; r + spill < count; ++r, codes += pitch, lines += line_bytes) {
    int64_t j = 0;
    for (; j + lanes < n; j += lanes) StorePacked<kBits>(hn::LoadU(d, codes + j), lines + j * kBits / 8);
    StorePacked<kBits>(hn::IfThenElseZero(tail, hn::LoadU(d, codes + j)), lines + j * kBits / 8);
  }
  return r;
}

// Codes of outputs `ow` of `count` rows, `pitch` apart and with room for a vector after them, to their lines, from row
// r on. Where the rows are one, and their lines whole bytes or those of places, all at once.
template <class S, class C>
void PackRows(const Rows<S>& rows, const C* codes, int64_t pitch, int64_t r, int64_t count, Range ow) {
  const Problem& p = rows.p;
  const int64_t n = p.width().out;
  const int32_t bits = p.routes.bits;
  const bool whole = ow.size() == n;
  if (whole && pitch == n * rows.inner && (p.channels_last() || p.routes.line * bits % 8 == 0)) {
    return PackRow(p, codes, {0, count * n}, rows.route_row(r));
  }
  int64_t done = 0;
  if constexpr (sizeof(C) == 1) {
    if (whole && !p.channels_last() && bits == 4) done = PackLines<4>(codes, pitch, count, n, rows.route_row(r));
    if (whole && !p.channels_last() && bits == 2) done = PackLines<2>(codes, pitch, count, n, rows.route_row(r));
  }
  for (int64_t i = done; i < count; ++i) PackRow(p, codes + i * pitch, ow, rows.route_row(r + i));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
