// What the kernels of channels first share that work on blocks: some rows of outputs of one plane, and the input rows
// they see.

// Per-target include guard
#if defined(POOLGRAD_CPU_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BLOCKS_INL_H_
#undef POOLGRAD_CPU_BLOCKS_INL_H_
#else
#define POOLGRAD_CPU_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/exact-inl.h"
#include "cpu/simd/order-inl.h"
#include "cpu/forward/routes-inl.h"
#include "cpu/forward/rows-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Large windows are put together from spans of `size` neighbouring taps that windows share: span by span costs about
// twice the root of the window's size. The last span may overlap the one before it; a maximum met twice ties with
// itself.
struct Spans {
  int64_t size = 1;  // 1: windows are made of single taps

  explicit Spans(const Axis& a) {
    int64_t root = 1;
    while (root * root < a.kernel) ++root;
    if (a.kernel > 5 && root * a.stride + CeilDiv(a.kernel, root) < a.kernel) size = root;
  }
  bool used() const { return size > 1; }
  int64_t count(int64_t taps) const { return taps < size ? taps : CeilDiv(taps, size); }
  // The tap that span i of a window of taps >= size begins at.
  int64_t tap(int64_t i, int64_t taps) const { return std::min(i * size, taps - size); }
};

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

// Calls run(block) for blocks of at most out_rows rows (where planes have so many: of one plane) that together are rows
// [begin, end) of the result.
template <class S, class Run>
void ForBlocksOfRows(const Rows<S>& rows, int64_t out_rows, int64_t begin, int64_t end, const Run& run) {
  const Axis& height = rows.p.height();
  const Axis& depth = rows.p.depth();
  for (int64_t r = begin; r < end && !rows.GaveUp();) {
    const int64_t group = r / height.out;  // (plane, od)
    const int64_t oh = r - group * height.out;
    const int64_t od = group % depth.out;
    const int64_t count = std::min({out_rows, end - r, height.out - oh});
    const int64_t planes = count == height.out && depth.out == 1 ? std::min(out_rows, end - r) / count : 1;
    const Range in = {std::max<int64_t>(0, height.start(oh)),
                      std::min(height.in, height.start(oh + count - 1) + height.extent())};
    run(Block<S>{rows.plane(group / depth.out), planes, od, {oh, oh + count}, r, depth.valid_taps(od), in});
    r += planes * count;
  }
}

// Calls run(block, plane) for each plane of a block, as a block of its own.
template <class S, class Run>
void ForPlanesOf(Block<S> block, const Rows<S>& rows, const Run& run) {
  const int64_t planes = block.planes;
  block.planes = 1;
  for (int64_t i = 0; i < planes; ++i, block.plane += rows.p.in_plane(), block.r += block.oh.size()) run(block);
}

// Input rows that a block of at most out_rows output rows of one plane sees.
inline int64_t InRows(const Axis& height, int64_t out_rows) {
  return std::min(height.in, (out_rows - 1) * height.stride + height.extent());
}

// After a Watch fired for a block: which of its rows of outputs see a special value. Every input row is looked at once.
template <class S>
class SpecialRows {
 public:
  SpecialRows(const Rows<S>& rows, const Block<S>& block, bool* special)
      : rows_(rows), block_(block), special_(special) {
    for (int64_t kd = block.depth.begin; kd < block.depth.end; ++kd) {
      for (int64_t h = block.in.begin; h < block.in.end; ++h) {
        const S* row = rows.row(block.plane, rows.p.depth().start(block.od) + kd * rows.p.depth().dilation, h);
        bool& found = special_[kd * block.in.size() + h - block.in.begin];
        found = HasSpecial<S>(row, rows.p.width().in, rows.p.dtype);
        any_ = any_ || found;
      }
    }
  }

  bool SeenBy(int64_t oh) const {
    const Axis& height = rows_.p.height();
    const Range h = height.valid_taps(oh);
    for (int64_t kd = block_.depth.begin; any_ && kd < block_.depth.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        if (special_[kd * block_.in.size() + height.start(oh) + kh * height.dilation - block_.in.begin]) return true;
      }
    }
    return false;
  }

 private:
  const Rows<S>& rows_;
  const Block<S>& block_;
  bool* special_;
  bool any_ = false;
};

// After a Watch fired for a block, or where windows have no valid tap: the rows of outputs that the rules decide,
// again. has_rows: the block sees some input, and all its rows are pooled. `special` and `codes` (of one row) are
// scratch.
template <class S>
void PoolSpecialRows(const Rows<S>& rows, const Block<S>& block, bool has_rows, bool* special, Code<S>* codes) {
  const Problem& p = rows.p;
  ForPlanesOf(block, rows, [&](const Block<S>& one) {
    const SpecialRows<S> found(rows, one, special);
    for (int64_t o = one.oh.begin; o < one.oh.end; ++o) {
      if (has_rows && p.height().valid_taps(o).size() > 0 && !found.SeenBy(o)) continue;
      const int64_t r = one.r + o - one.oh.begin;
      RunExactRow<S>(rows, one.plane, one.od, o, {0, p.width().out}, rows.y_row(r), rows.route_row(r), codes);
    }
  });
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

// Codes of `count` rows of outputs, `pitch` apart and with room for a vector after them, to their lines, from row r on.
// Where the rows are one, and their lines whole bytes, all at once.
template <class S, class C>
void PackRows(const Rows<S>& rows, const C* codes, int64_t pitch, int64_t r, int64_t count) {
  const Problem& p = rows.p;
  const int64_t n = p.width().out;
  const int32_t bits = p.routes.bits;
  if (!p.channels_last() && pitch == n && n * bits % 8 == 0) {
    return PackCodes(codes, count * n, bits, rows.route_row(r));
  }
  int64_t done = 0;
  if constexpr (sizeof(C) == 1) {
    if (!p.channels_last() && bits == 4) done = PackLines<4>(codes, pitch, count, n, rows.route_row(r));
    if (!p.channels_last() && bits == 2) done = PackLines<2>(codes, pitch, count, n, rows.route_row(r));
  }
  for (int64_t i = done; i < count; ++i) PackRow(p, codes + i * pitch, {0, n}, rows.route_row(r + i));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
