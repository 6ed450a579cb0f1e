// How the problem of a staged small-window kernel is cut into pieces: planes, depths, rows or columns whose arrays fit
// into shared memory. The host's side of staging.cuh.
#pragma once

#include <algorithm>
#include <numeric>

#include "cuda/common/device.cuh"
#include "cuda/common/forms.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "spec/problem.h"

namespace poolgrad::cuda {

// Rows of one channel are rows, whatever the layout is called.
inline bool ChannelsLast(const Problem& p) { return p.channels_last() && p.channels > 1; }

// Rows of one channel that is called the last: each code has a byte of its own.
inline bool BytePerCode(const Problem& p) { return p.channels_last() && p.channels == 1 && p.routes.bits < 8; }

// Whether the bits of a line of codes (or its places) are counted in 31 bits, as kernels do.
inline bool CountsBits(const Form& f, const Problem& p) {
  const int64_t places = ChannelsLast(p) ? p.channels : p.axis[2].out;
  return places * (f.routes ? f.bits : 1) < int64_t{1} << 31;
}

// From the first cell with an input to the last.
inline int64_t FirstCell(const Axis& a) { return a.pad_lo / a.stride; }
inline int64_t CellsOfAxis(const Axis& a) { return (a.in - 1 + a.pad_lo) / a.stride + 1 - FirstCell(a); }

// Shared memory for a run that need not be aligned.
inline int64_t Room(int64_t bytes) { return bytes == 0 ? 0 : CeilDiv(bytes + 15, 16) * 16; }
// Threads whose last outputs do not exist still read their inputs (strip.cuh), a little beyond the last row, and words
// of halves and codes end after the last. Nobody writes there meanwhile.
inline constexpr int64_t kBeyond = 256 - kReadBefore;
// Rows are cut at multiples of so many columns: whole bytes of codes, and whole threads.
constexpr int64_t CutUnit(int64_t channels_each, int64_t outputs) {
  return channels_each > 1 ? 2 : std::lcm<int64_t>(8, outputs);
}

// How a problem is cut into pieces whose arrays fit into shared memory: two that are read and two that are written.
struct Staging {
  struct Side {
    int64_t row_bytes, rows, depths;  // of a plane
    // Rows for each row of a piece, and beyond; the same for depths; and depths of which a piece of rows has some.
    int64_t each_h, more_h, each_d, more_d, slabs;
    int64_t column_bits, more_bytes;  // where rows are cut, too: of a column, and beyond
    int64_t Planes(int64_t n) const { return Room(n * depths * rows * row_bytes); }
    int64_t Depths(int64_t n) const { return Room(std::min(depths, n * each_d + more_d) * rows * row_bytes); }
    int64_t Slab(int64_t n) const { return Room((n * each_h + more_h) * row_bytes); }
    int64_t Slabs(int64_t n) const { return slabs * Slab(n); }
    int64_t Pitch(int64_t columns) const {  // that of global memory modulo 16
      return rows == 0 ? 0 : Room(CeilDiv(columns * column_bits, 8) + more_bytes) + row_bytes % 16;
    }
    int64_t CutSlab(int64_t n, int64_t columns) const { return Room((n * each_h + more_h) * Pitch(columns)); }
  };
  int64_t planes, depths, rows, columns, columns_unit;  // in all; columns are cut at whole units
  int64_t deep = 1;                                     // depths that a thread has
  Side read[2] = {}, written[2] = {};

  using Bytes = int64_t (Side::*)(int64_t) const;
  int64_t Sum(Bytes bytes, int64_t n) const {
    return (read[0].*bytes)(n) + (read[1].*bytes)(n) + (written[0].*bytes)(n) + (written[1].*bytes)(n);
  }
  // The most of `all` that fit, pieces about equally long; at least one piece of one, at least two if `cut`.
  int64_t Most(int64_t all, int64_t most_bytes, Bytes bytes, bool cut = false) const {
    return Equal(all, MostThatFit(all - cut, [&](int64_t n) { return Sum(bytes, n) <= most_bytes; }));
  }

  // Fills `p`; returns the shared memory of a block, 0 if not even a row fits.
  int64_t Cut(int64_t most_bytes, Pieces* p) const {
    *p = {};
    p->planes = planes;
    p->planes_each = 1, p->depths_each = static_cast<int>(depths), p->rows_each = static_cast<int>(rows);
    if (Sum(&Side::Planes, 1) <= most_bytes) {
      const int64_t enough_blocks = std::max<int64_t>(1, enough_threads / 2048);
      const int64_t n = std::min(Most(planes, most_bytes, &Side::Planes), std::max<int64_t>(1, planes / enough_blocks));
      p->planes_each = static_cast<int>(n);
      return Place([n](const Side& side) { return side.Planes(n); }, p);
    }
    if (depths > 1 && Sum(&Side::Depths, deep) <= most_bytes) {
      const int64_t all = CeilDiv(depths, deep);
      const auto fits = [&](int64_t n) { return Sum(&Side::Depths, n * deep) <= most_bytes; };
      const int64_t n = Equal(all, MostThatFit(all, fits)) * deep;
      p->depths_each = static_cast<int>(n), p->depths = FastDiv(CeilDiv(depths, n));
      return Place([n](const Side& side) { return side.Depths(n); }, p);
    }
    if (rows < 2 || Sum(&Side::Slabs, 1) > kStagedBytesMost) return 0;
    const int64_t n = Most(rows, most_bytes, &Side::Slabs, true);
    p->depths_each = static_cast<int>(deep), p->depths = FastDiv(CeilDiv(depths, deep));
    p->rows_each = static_cast<int>(n), p->rows = FastDiv(CeilDiv(rows, n));
    p->slab_bytes[0] = static_cast<int>(read[0].Slab(n)), p->slab_bytes[1] = static_cast<int>(second().Slab(n));
    p->slab_bytes[2] = static_cast<int>(written[0].Slab(n));
    return Place([n](const Side& side) { return side.Slabs(n); }, p);
  }

  // The same, pieces having about `some` rows and as many of their columns as fit.
  int64_t CutColumns(int64_t most_bytes, int64_t some, Pieces* p) const {
    const int64_t n = Equal(rows, std::min(rows, some));
    const auto bytes = [&](const Side& side, int64_t units) {
      return side.slabs * side.CutSlab(n, units * columns_unit);
    };
    const auto sum = [&](int64_t units) {
      return bytes(read[0], units) + bytes(read[1], units) + bytes(written[0], units) + bytes(written[1], units);
    };
    if (sum(1) > most_bytes) return 0;
    const int64_t all = CeilDiv(columns, columns_unit);
    const int64_t units = Equal(all, MostThatFit(all, [&](int64_t n) { return sum(n) <= most_bytes; }));
    const int64_t each = units * columns_unit;
    *p = {};
    p->planes = planes, p->planes_each = 1;
    p->depths_each = static_cast<int>(deep), p->depths = FastDiv(CeilDiv(depths, deep));
    p->rows_each = static_cast<int>(n), p->rows = FastDiv(CeilDiv(rows, n));
    p->all_columns = static_cast<int>(columns), p->columns_each = static_cast<int>(each);
    p->columns = FastDiv(CeilDiv(columns, each));
    p->pitch[0] = static_cast<uint32_t>(read[0].Pitch(each)), p->pitch[1] = static_cast<uint32_t>(second().Pitch(each));
    p->pitch[2] = static_cast<uint32_t>(written[0].Pitch(each));
    p->slab_bytes[0] = static_cast<int>(read[0].CutSlab(n, each));
    p->slab_bytes[1] = static_cast<int>(second().CutSlab(n, each));
    p->slab_bytes[2] = static_cast<int>(written[0].CutSlab(n, each));
    return Place([&](const Side& side) { return bytes(side, units); }, p);
  }
  int64_t RowsMoved(int64_t n) const {
    int64_t moved = 0;
    for (const Side& side : {read[0], read[1], written[0], written[1]}) {
      moved += side.slabs * (n * side.each_h + side.more_h);
    }
    return moved;
  }

 private:
  const Side& second() const { return written[1].rows > 0 ? written[1] : read[1]; }
  // The most up to `high` that fit; 1 fits, or nothing does.
  template <class F>
  static int64_t MostThatFit(int64_t high, const F& fits) {
    int64_t low = 1;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
  // Of pieces of at most `most`, about equally long.
  static int64_t Equal(int64_t all, int64_t most) { return CeilDiv(all, CeilDiv(all, most)); }

  template <class F>
  int64_t Place(const F& bytes, Pieces* p) const {  // in the order they are declared
    p->place[0] = static_cast<int>(bytes(read[0]));
    p->place[1] = p->place[0] + static_cast<int>(bytes(read[1]) + kBeyond);
    p->place[2] = p->place[1] + static_cast<int>(bytes(written[0]));
    return kReadBefore + p->place[2] + bytes(written[1]);
  }
};

inline int64_t Beyond(const Axis& a) { return std::max<int64_t>(0, a.extent() - a.stride); }
inline int64_t OverCell(const Axis& a) { return CeilDiv(a.extent(), a.stride); }
inline int64_t LineBytes(const Problem& p) { return (p.channels_last() ? p.axis[2].out : 1) * p.routes.line_bytes; }

struct Places {  // as the kernels see them
  bool last;
  int64_t planes, line, line_bytes;
  int64_t each = 1;     // rows of places with so many channels
  int64_t vectors = 1;  // which so many threads have
};
inline Places PlacesOf(const Form& f, const Problem& p) {
  if (f.mode == Mode::kLastStaged) {
    return {false, p.batch, p.axis[2].out * p.channels, LineBytes(p), p.channels, CeilDiv(p.channels, f.vector)};
  }
  if (ChannelsLast(p)) return {true, p.batch, p.channels, p.routes.line_bytes};
  return {false, p.batch * p.channels, p.axis[2].out, LineBytes(p)};
}

inline Staging ForwardStaging(const Problem& p, const Form& staged) {
  const Axis &d = p.axis[0], &h = p.axis[1], &w = p.axis[2];
  const Places places = PlacesOf(staged, p);
  const int64_t size = SizeOf(p.dtype);
  const int64_t each = places.each * size * 8;
  Staging s{places.planes, d.out, h.out, w.out, CutUnit(places.each, staged.outputs()), staged.deep};
  const int64_t row_bytes = w.in * places.each * size, touched = staged.touched(), more = Beyond(w) * each / 8;
  s.read[0] = {row_bytes, h.in, d.in, h.stride, Beyond(h), d.stride, Beyond(d), touched, w.stride * each, more};
  s.written[0] = {places.line * size, h.out, d.out, 1, 0, 1, 0, s.deep, each, 0};
  const int64_t code = places.each > 1 ? p.routes.line_bytes * 8 : staged.apart() ? 8 : staged.bits;
  if (staged.routes)
    s.written[1] = {staged.apart() ? places.line : places.line_bytes, h.out, d.out, 1, 0, 1, 0, s.deep, code, 0};
  return s;
}

inline Staging BackwardStaging(const Problem& p, const Form& staged) {
  const Axis &d = p.axis[0], &h = p.axis[1], &w = p.axis[2];
  const Places places = PlacesOf(staged, p);
  const int64_t size = SizeOf(p.dtype), over_h = OverCell(h) - 1, over_d = OverCell(d) - 1;
  const int64_t each = places.each * size * 8, over_w = OverCell(w) - 1;
  Staging s{places.planes, CellsOfAxis(d), CellsOfAxis(h), CellsOfAxis(w), CutUnit(places.each, staged.group())};
  if (staged.stages_outputs()) {
    const int64_t code = places.each > 1 ? p.routes.line_bytes * 8 : staged.bits;
    s.read[0] = {places.line * size, h.out, d.out, 1, over_h, 1, over_d, over_d + 1, each, over_w * each / 8};
    s.read[1] = {places.line_bytes, h.out, d.out, 1, over_h, 1, over_d, over_d + 1, code, over_w * code / 8 + 2};
  }
  s.written[0] = {w.in * places.each * size, h.in, d.in, h.stride, 0, d.stride, 0, d.stride, w.stride * each, 0};
  return s;
}

}  // namespace poolgrad::cuda
