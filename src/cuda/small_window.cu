#include <algorithm>
#include <numeric>

#include "cuda/cells.cuh"
#include "cuda/small_window.h"
#include "cuda/strip.cuh"
#include "cuda/strips.cuh"
#include "spec/fold.h"

namespace poolgrad::cuda {
namespace {

// Larger windows are not unrolled; those that share no input need fewer registers.
constexpr int64_t kFlatWidthMost = 8;           // channels last, staged: taps along the width, each an address
constexpr int kFlatRegistersMost = 64;          // and registers that several channels may take
constexpr int kRunTaps = 6;                     // channels first: along the width, from which outputs share them
constexpr int kRunRegistersMost[] = {60, 28};   // and registers of their rows, of halves and of floats
constexpr int kDeepRegistersMost[] = {64, 84};  // of rows that outputs share along the depth, and with routes
// Registers of rows beyond which so much is spilled that loops are faster (channels last, with routes: 4x4x4/1 0.04 of
// copy, 3x3x3/1 with dilation 2 0.11).
constexpr int kReducedMost = 128;
constexpr int64_t kTapsMost = 64, kDisjointTapsMost = 196, kStrideMost = 32, kCellMost = 16, kExtentMost = 32;

bool IsBackward(poolgrad_op op) { return op == POOLGRAD_OP_BACKWARD; }

// Rows of one channel are rows, whatever the layout is called; each code has a byte of its own then.
bool ChannelsLast(const Problem& p) { return p.channels_last() && p.channels > 1; }
bool BytePerCode(const Problem& p) { return p.channels_last() && p.channels == 1 && p.routes.bits < 8; }

// Whether windows have one axis and move by one along it, across the strips of an image: along its depth, or where
// channels are last its width.
bool MovesAcross(const Problem& p) {
  const auto along = [&](int axis) {
    for (int i = 0; i < 3; ++i) {
      if (p.axis[i].stride != 1 || (p.axis[i].kernel == 1) == (i == axis)) return false;
    }
    return true;
  };
  return along(0) || (ChannelsLast(p) && along(2));
}

// The problem as its kernels see it. Signals, and what can be seen as such: where channels are first, each is a row of
// one plane; where they are last, they run down, so that what a thread has found serves the next output too.
Problem Folded(const Problem& whole, poolgrad_op op) {
  Problem p = whole;
  if (MovesAcross(p) && Fold(&p, op) && p.channels >= int64_t{1} << 30) p = whole;
  const auto single = [](const Axis& a) { return a.kernel == 1 && a.in == 1 && a.out == 1 && a.pad_lo == 0; };
  if (!single(p.axis[0]) || !single(p.axis[1])) return p;
  const int64_t planes = p.batch * p.channels;
  if (ChannelsLast(p)) {
    std::swap(p.axis[1], p.axis[2]);
  } else if (planes < int64_t{1} << 30) {
    p.axis[1].in = p.axis[1].out = planes, p.axis[1].stride = 1;
    p.batch = p.channels = 1;
  }
  return p;
}

bool OfAxes(const Problem& p, Form* f) {
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    if (a.kernel > kTapsMost || a.stride > kStrideMost || a.extent() > kExtentMost || a.pad_lo < 0) return false;
    f->kernel[i] = static_cast<int>(a.kernel), f->stride[i] = static_cast<int>(a.stride);
    f->dilation[i] = a.kernel == 1 ? 1 : static_cast<int>(a.dilation);
  }
  return f->taps() <= (f->disjoint() ? kDisjointTapsMost : kTapsMost);
}

// From the first cell with an input to the last.
int64_t FirstCell(const Axis& a) { return a.pad_lo / a.stride; }
int64_t CellsOfAxis(const Axis& a) { return (a.in - 1 + a.pad_lo) / a.stride + 1 - FirstCell(a); }

// ---- staged: pieces of the problem ----

// Shared memory for a run that need not be aligned.
int64_t Room(int64_t bytes) { return bytes == 0 ? 0 : CeilDiv(bytes + 15, 16) * 16; }
// Threads whose last outputs do not exist still read their inputs (strip.cuh), a little beyond the last row, and words
// of halves and codes end after the last. Nobody writes there meanwhile.
constexpr int64_t kBeyond = 256 - kReadBefore;
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

int64_t Beyond(const Axis& a) { return std::max<int64_t>(0, a.extent() - a.stride); }
int64_t OverCell(const Axis& a) { return CeilDiv(a.extent(), a.stride); }
int64_t LineBytes(const Problem& p) { return (p.channels_last() ? p.axis[2].out : 1) * p.routes.line_bytes; }

struct Places {  // as the kernels see them
  bool last;
  int64_t planes, line, line_bytes;
  int64_t each = 1;     // rows of places with so many channels
  int64_t vectors = 1;  // which so many threads have
};
Places PlacesOf(const Form& f, const Problem& p) {
  if (f.mode == Mode::kLastStaged) {
    return {false, p.batch, p.axis[2].out * p.channels, LineBytes(p), p.channels, CeilDiv(p.channels, f.vector)};
  }
  if (ChannelsLast(p)) return {true, p.batch, p.channels, p.routes.line_bytes};
  return {false, p.batch * p.channels, p.axis[2].out, LineBytes(p)};
}

Staging ForwardStaging(const Problem& p, const Form& staged) {
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

Staging BackwardStaging(const Problem& p, const Form& staged) {
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

// The aligned mode's rows: every row, and every thread's part of it, begins at a multiple of its vector.
bool RowsAligned(const Form& f, const Problem& p, poolgrad_op op) {
  const int64_t in = p.axis[2].in, out = p.axis[2].out, step = f.stride[2] * f.size;
  if (out % 4 != 0 || p.axis[2].pad_lo > 8) return false;
  if (IsBackward(op)) {  // 16 bytes of dx, under at least a word of dy
    return f.stride[2] * out == in && in * f.size % std::min<int64_t>(16, 4 * step) == 0 && 16 % step == 0 &&
           16 / step * f.size >= 4;
  }
  return f.stride[2] * out <= in && in * f.size % std::gcd<int64_t>(16, 4 * step) == 0 && 4 * step <= 64;
}

bool Inside(const Problem& p) {
  for (const Axis& a : p.axis) {
    if (a.pad_lo != 0 || (a.out - 1) * a.stride + a.extent() > a.in) return false;
  }
  return true;
}

// Floats of windows that skip inputs are read one by one from global memory: what is skipped is not read at all.
bool StagesFirst(const Form& f, poolgrad_op op) {
  const bool skips = f.taps() < f.stride[0] * f.stride[1] * f.stride[2];
  return IsBackward(op) || f.size != 4 || f.kernel[0] != 1 || !skips;
}

Grid Prepare(const Form& f, const Problem& p, StripParams* params);
Grid Prepare(const Form& f, const Problem& p, CellParams* params);

// Whether pieces read everything twice or more, because neighbouring ones share it.
bool ReadsTwice(const Problem& p, poolgrad_op op, const Pieces& pieces) {
  const auto read = [&](const Axis& a, int64_t each) {  // for each that is new
    const int64_t step = IsBackward(op) ? 1 : a.stride, more = IsBackward(op) ? OverCell(a) - 1 : Beyond(a);
    return 1 + static_cast<double>(more) / static_cast<double>(each * step);
  };
  const double rows = pieces.rows.divisor > 1 ? read(p.axis[1], pieces.rows_each) : 1;
  const double all = rows * (pieces.columns.divisor > 1 ? read(p.axis[2], pieces.columns_each) : 1);
  return all > (IsBackward(op) ? 4 : 2);  // backward, what is written is more
}

// Whether a form can be staged in this mode; where a piece would have a few whole rows only, they are cut if that costs
// less, unless it is to be `plain`.
bool Stages(const Problem& p, poolgrad_op op, Mode mode, bool plain, Form* f) {
  Form staged = *f;
  staged.mode = mode;
  Pieces pieces;
  const int64_t bytes =
      (IsBackward(op) ? BackwardStaging(p, staged) : ForwardStaging(p, staged)).Cut(staged_bytes, &pieces);
  // Channels last, forward: where windows skip most inputs, they are not read at all if nothing is staged.
  const bool skips =
      mode == Mode::kLastStaged && !IsBackward(op) && 2 * f->taps() <= f->stride[0] * f->stride[1] * f->stride[2];
  if (skips && bytes == 0) return false;
  if (!plain && (bytes == 0 || pieces.rows.divisor > 1)) {
    const auto make = [&](bool cut, Pieces* made) {  // its cost, 0 if there is none
      StripParams strips{};
      CellParams cells{};
      staged.cut = cut;
      const Grid grid = IsBackward(op) ? Prepare(staged, p, &cells) : Prepare(staged, p, &strips);
      *made = IsBackward(op) ? cells.pieces : strips.pieces;
      return grid.blocks > 0 ? grid.cost : 0;
    };
    Pieces of_columns;
    const double rows = bytes > 0 ? make(false, &pieces) : 0, columns = make(true, &of_columns);
    f->cut = columns > 0 && (rows == 0 || columns < rows);
    if (f->cut) pieces = of_columns;
  }
  const bool stages = (f->cut || bytes > 0) && !(mode == Mode::kLastStaged && ReadsTwice(p, op, pieces));
  f->cut = f->cut && stages;
  return stages;
}

// Windows that move by one: neighbouring threads read the same again, which is faster from shared memory, aligned or
// not (3x3/1 forward in bf16 0.76 of copy against 0.66, 1x3/1 backward in f32 0.81 against 0.48), but for rolling sums.
bool PrefersStaged(const Form& f, const Problem& p, poolgrad_op op) {
  Form aligned = f;
  aligned.mode = Mode::kFirst, aligned.pad = static_cast<int>(p.axis[2].pad_lo);
  return f.stride[2] == 1 && !(IsBackward(op) && aligned.rolls());
}

// Channels last, staged: how many of them a thread has. They share what it finds out, and whole bytes of codes; fewer
// where several rows of several windows have to stay in registers. Floats, forward: threads with four meet in banks.
void SetFlat(const Problem& p, poolgrad_op op, bool plain, Form* f) {
  Form flat = *f;
  flat.mode = Mode::kLastStaged;
  const auto few = [&](int64_t n) { return static_cast<int>(std::min(p.channels, n)); };
  const int most = p.channels > 4 && f->size == 4 && !IsBackward(op) ? 2 : few(4);
  const int least = IsBackward(op) ? 1 : few(std::max(4 / f->size, f->routes ? 8 / f->bits : 1));
  for (flat.vector = std::max(most, least); flat.vector > least; flat.vector = flat.vector > 2 ? 2 : 1) {
    const bool bytes = !f->routes || flat.vector >= p.channels || flat.vector * f->bits % 8 == 0;
    if (bytes && (IsBackward(op) ? flat.kept() : flat.reduced()) <= kFlatRegistersMost) break;
  }
  f->vector = flat.vector;
  f->ragged = p.channels % f->vector != 0;
  f->even = !plain && f->vector % 2 == 0 && p.channels % 2 == 0;
  f->inside = !plain && !IsBackward(op) && Inside(p);
}

// Channels first, staged, wide windows that move by one: as many outputs to a thread as share the middle of their
// windows, but not more than registers hold of their rows. Their words are an odd number: threads side by side do not
// meet in banks. Signals of 5 to 27 taps in 19 sizes became 1.50 times as fast in f32 (1.18 by sharing alone), 1.43
// times in bf16; windows of 6x6 to 8x8 1.07 and 1.37 times, with routes 1.0 and 1.18 times.
void SetRun(Form* f) {
  if (f->stride[2] != 1 || f->dilation[2] != 1 || f->kernel[2] < kRunTaps) return;
  const int each = 4 / f->size;  // of a word
  for (const int words : {7, 5, 3}) {
    f->run = words * each;
    if ((words - 1) * each < f->kernel[2] && f->reduced() <= kRunRegistersMost[f->size == 4]) return;
  }
  f->run = 0;
}

// Channels first, staged, windows that move by one, backward: as many cells to a thread, an odd number of words again,
// as leave room for codes in pairs, which they share the finding of (3x3/1 in f32 0.59 to 0.71 of copy in seven cells,
// 0.73 to 0.81 in seven others; 2x1/1 in bf16 0.58 to 0.64).
void SetCells(const Problem& p, Form* f) {
  if (f->stride[2] != 1) return;
  f->run = f->size == 4 ? 5 : 6;
  if (!f->pairs_codes() || CellsOfAxis(p.axis[2]) < 3 * f->run) f->run = 0;
}

// Windows that overlap along the depth: outputs of a thread one behind the other, which share rows and their maxima,
// as far as registers hold them (3x3x3/1 channels first 0.45 of copy to 0.60, in bf16 0.31 to 0.41; 2x2x2/1 channels
// last 0.56 to 0.65 and 0.57 to 0.70). Channels first, windows of two depths share too little (0.80 to 0.68), and so do
// a few channels last.
void SetDeep(const Problem& p, Form* f) {
  if (f->kernel[0] <= f->stride[0] || f->dilation[0] != 1) return;
  const bool last = f->mode == Mode::kLast;
  if (!last && f->kernel[0] < 3) return;
  const int64_t most = last || f->size == 4 ? 3 : 2;
  for (f->deep = static_cast<int>(std::min(p.axis[0].out, most)); f->deep > 1; --f->deep) {
    if (f->reduced() <= kDeepRegistersMost[f->routes]) break;
  }
}

std::optional<Form> Choose(const Problem& whole, poolgrad_op op, bool plain) {
  const Problem p = Folded(whole, op);
  Form f{};
  if (p.routes.bits > 8 || !OfAxes(p, &f)) return {};
  f.size = static_cast<int>(SizeOf(p.dtype));
  f.codes = p.routes.bits, f.bits = BytePerCode(p) && op != POOLGRAD_OP_FORWARD ? 8 : f.codes;
  f.vector = f.deep = 1;
  f.routes = op != POOLGRAD_OP_FORWARD;
  f.relu = p.relu && !IsBackward(op);
  if (IsBackward(op) && f.stride[2] > kCellMost) return {};
  if (!ChannelsLast(p)) {
    f.mode = Mode::kFirstStaged;
    if (!plain && IsBackward(op)) SetCells(p, &f);
    if (!plain && !IsBackward(op)) SetRun(&f), SetDeep(p, &f);
    const bool aligned = !plain && RowsAligned(f, p, op), direct = aligned && !PrefersStaged(f, p, op);
    const bool staged = !direct && StagesFirst(f, op) && Stages(p, op, Mode::kFirstStaged, plain, &f);
    f.mode = staged ? Mode::kFirstStaged : aligned ? Mode::kFirst : Mode::kFirstOdd;
    if (!staged) f.run = 0, f.deep = 1;
    if (f.mode == Mode::kFirst) f.pad = static_cast<int>(p.axis[2].pad_lo);
    f.inside = !plain && !IsBackward(op) && f.mode == Mode::kFirstStaged && Inside(p) &&
               !(f.cut && p.axis[2].out % f.outputs() != 0);  // what follows a cut row may look like a NaN
    if (IsBackward(op) && !f.keeps() && !f.rolls()) return {};
    return f;
  }
  // Channels of a thread: 16 bytes, but fewer where several rows of several windows have to stay in registers.
  f.mode = Mode::kLast;
  f.vector = 16 / f.size;
  const bool rows_kept = f.stride[2] == 1 && !f.disjoint();
  if (IsBackward(op) && (f.taps() > 9 || rows_kept || f.bits == 8)) f.vector = 4;
  if (p.channels % f.vector != 0) f.vector = 4;
  // Signals of few channels would leave neighbouring threads far apart.
  const bool few = !plain && p.axis[2].in == 1 && p.channels * f.size < 64;
  if (p.channels % f.vector != 0 || few) {
    Form flat = f;
    SetFlat(p, op, plain, &flat);
    const bool staged = f.kernel[2] <= kFlatWidthMost && Stages(p, op, Mode::kLastStaged, plain, &flat);
    if (staged) f = flat;
    if (staged || p.channels % f.vector != 0) f.mode = staged ? Mode::kLastStaged : Mode::kLastOdd;
    if (f.mode == Mode::kLastOdd) f.vector = f.byteful();
  }
  if (f.mode == Mode::kLast && !plain && !IsBackward(op)) SetDeep(p, &f);
  if (IsBackward(op) ? !f.keeps() && !f.rolls() : !f.disjoint() && f.reduced() > kReducedMost) return {};
  return f;
}

// Pieces of the size that costs least: smaller ones overlap better, larger ones leave fewer threads without a strip.
template <class Params>
Grid CutAndShareOut(const Staging& staging, const Strips& strips, int warm_up, int64_t column_bytes, int64_t row_bytes,
                    int size, const SmallWindowTuning& tuning, Params* params) {
  Grid least;
  const Params before = *params;
  for (const int64_t sixths : {6, 5, 4}) {
    Params s = before;
    const int64_t bytes = staging.Cut(staged_bytes * sixths / 6, &s.pieces);
    if (bytes == 0) continue;
    const Grid grid = strips.Staged(warm_up, column_bytes, row_bytes, size, tuning, bytes, 0, &s);
    if (grid.blocks > 0 && (least.blocks == 0 || grid.cost < least.cost)) least = grid, *params = s;
  }
  return least;
}

// The same where rows are cut. groups: of so many columns; row_bytes: from a row that a strip reads to the next.
template <class Params, class Groups, class RowBytes>
Grid CutColumnsAndShareOut(const Staging& staging, Strips strips, int warm_up, int64_t column_bytes, int size,
                           const SmallWindowTuning& tuning, const Groups& groups, const RowBytes& row_bytes,
                           Params* params) {
  Grid least;
  const Params before = *params;
  for (const int64_t sixths : {6, 5, 4}) {
    for (const int64_t rows : {1, 2, 4, 8, 16}) {
      Params s = before;
      const int64_t bytes = staging.CutColumns(staged_bytes * sixths / 6, rows, &s.pieces);
      if (bytes == 0) continue;
      strips.columns = groups(s.pieces.columns_each);
      const Grid grid = strips.Staged(warm_up, column_bytes, row_bytes(s.pieces.pitch), size, tuning, bytes,
                                      staging.RowsMoved(s.pieces.rows_each), &s);
      if (grid.blocks > 0 && (least.blocks == 0 || grid.cost < least.cost)) least = grid, *params = s;
    }
  }
  return least;
}

// Everything about a launch but its pointers, which `Point` sets.
Grid Prepare(const Form& f, const Problem& p, StripParams* params) {
  const Places places = PlacesOf(f, p);
  StripParams& s = *params;
  s.g = MakeGeo<int64_t>(p);
  for (int i = 0; i < 3; ++i) {
    s.in[i] = static_cast<int>(p.axis[i].in);
    s.out[i] = static_cast<int>(p.axis[i].out);
    s.pad[i] = static_cast<int>(p.axis[i].pad_lo);
  }
  s.channels = static_cast<int>(p.channels);
  s.x_plane = p.channels_last() ? s.g.x_n : s.g.x_c;
  s.x_depth = s.g.x_axis[0], s.x_row = s.g.x_axis[1], s.x_column = s.g.x_axis[2];
  s.y_row = s.g.y_axis[1];
  s.line = places.line, s.line_bytes = places.line_bytes;
  s.place_bytes = static_cast<int>(p.routes.line_bytes);
  s.by_line_bytes = FastDiv(places.line_bytes), s.by_vectors = FastDiv(places.vectors);
  s.line_row = places.last ? p.axis[2].out : 1;
  s.route_row = s.line_row * s.line_bytes;
  const Strips strips{.across = places.last ? CeilDiv(p.channels, f.vector) : 1,
                      .columns = places.last       ? p.axis[2].out
                                 : places.each > 1 ? p.axis[2].out * places.vectors
                                                   : CeilDiv(places.line, f.outputs()),
                      .rows = p.axis[1].out,
                      .depths = CeilDiv(p.axis[0].out, f.deep),
                      .numbers = places.planes,
                      .deep = f.deep};
  const SmallWindowTuning tuning = ForwardTuning(f);
  if (!f.staged()) return strips.Plain(kStripThreads, tuning, &s);
  const int64_t column = f.outputs() * (places.each > 1 ? 1 : f.stride[2]);
  if (f.cut) {
    return CutColumnsAndShareOut(
        ForwardStaging(p, f), strips, static_cast<int>(Beyond(p.axis[1])), column * f.size, f.size, tuning,
        [&](int64_t columns) { return places.each > 1 ? columns * places.vectors : CeilDiv(columns, f.outputs()); },
        [&](const uint32_t* pitch) { return int64_t{f.stride[1]} * pitch[0]; }, &s);
  }
  return CutAndShareOut(ForwardStaging(p, f), strips, static_cast<int>(Beyond(p.axis[1])), column * f.size,
                        f.stride[1] * s.x_row * f.size, f.size, tuning, &s);
}

void Point(const Args& args, StripParams* s) { s->x = args.source, s->y = args.result, s->routes = args.routes; }

Grid Prepare(const Form& f, const Problem& p, CellParams* params) {
  const Places places = PlacesOf(f, p);
  const Geo<int64_t> g = MakeGeo<int64_t>(p);
  CellParams& s = *params;
  int64_t cells[3];
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    s.in[i] = static_cast<int>(a.in), s.out[i] = static_cast<int>(a.out), s.pad[i] = static_cast<int>(a.pad_lo);
    s.first[i] = static_cast<int>(FirstCell(a));
    cells[i] = CellsOfAxis(a);
  }
  if (f.mode == Mode::kFirst) cells[2] = p.axis[2].out;
  s.cells_h = static_cast<int>(s.first[1] + cells[1]);
  s.channels = static_cast<int>(p.channels);
  s.x_plane = p.channels_last() ? g.x_n : g.x_c;
  s.x_depth = g.x_axis[0], s.x_row = g.x_axis[1], s.x_column = g.x_axis[2];
  s.y_plane = p.channels_last() ? g.y_n : g.y_c;
  s.y_depth = g.y_axis[0], s.y_row = g.y_axis[1], s.y_column = g.y_axis[2];
  s.line_bytes = places.each > 1 ? p.routes.line_bytes : places.line_bytes;
  s.route_row = places.last ? p.axis[2].out * s.line_bytes : places.line_bytes;
  s.route_depth = p.axis[1].out * s.route_row;
  s.route_plane = p.axis[0].out * s.route_depth;
  s.cells_d = static_cast<int>(cells[0]);
  const Strips strips{.across = places.last ? CeilDiv(p.channels, f.vector) : 1,
                      .columns = f.split() ? p.axis[2].in : CeilDiv(cells[2], f.group()) * places.vectors,
                      .rows = cells[1],
                      .depths = cells[0],
                      .numbers = places.planes};
  const SmallWindowTuning tuning = BackwardTuning(f);
  s.by_vectors = FastDiv(places.vectors);
  if (!f.staged()) return strips.Plain(kCellThreads, tuning, &s);
  const int64_t cell = f.stages_outputs() ? 1 : f.stride[2], row = f.stages_outputs() ? s.y_row : f.stride[1] * s.x_row;
  if (f.cut) {
    return CutColumnsAndShareOut(
        BackwardStaging(p, f), strips, f.over(1) - 1, f.group() * cell * f.size, f.size, tuning,
        [&](int64_t columns) { return CeilDiv(columns, f.group()) * places.vectors; },
        [&](const uint32_t* pitch) { return f.stages_outputs() ? pitch[0] : int64_t{f.stride[1]} * pitch[2]; }, &s);
  }
  return CutAndShareOut(BackwardStaging(p, f), strips, f.over(1) - 1, f.group() * cell * f.size, row * f.size, f.size,
                        tuning, &s);
}

void Point(const Args& args, CellParams* s) { s->dy = args.source, s->dx = args.result, s->routes = args.routes; }

// Whether a kernel's code has what WaitForEarlier is on devices that know it.
bool Waits(const void* kernel, int device) {
  const DeviceScope scope(device);
  cudaFuncAttributes attributes;
  if (scope.status() == cudaSuccess && cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
    return attributes.ptxVersion >= 90;
  }
  cudaGetLastError();
  return false;
}

// A kernel with its form's parameters.
template <class Params>
struct Ready final : FormLaunch {
  const void* kernel = nullptr;
  int64_t vector = 1, codes = 1;  // what pointers are multiples of
  bool early = false;             // it waits by itself for what is before it
  Grid grid;
  Params params{};

  cudaError_t Launch(const Args& args, void* stream) const override {
    if (!Aligned(args.source, vector) || !Aligned(args.result, vector) || !Aligned(args.routes, codes)) {
      return cudaErrorNotSupported;
    }
    Params now = params;
    Point(args, &now);
    void* pointers[] = {&now};
    return LaunchPointers(kernel, grid.blocks, grid.threads, static_cast<size_t>(grid.shared_bytes), stream, pointers,
                          early);
  }
};

template <class Params>
std::shared_ptr<const FormLaunch> MakeReady(const void* kernel, const Form& f, const Problem& p, poolgrad_op op) {
  auto ready = std::make_shared<Ready<Params>>();
  ready->kernel = kernel;
  ready->vector = f.whole() ? 16 : f.even ? 2 * f.size : f.size, ready->codes = f.whole() ? 8 : 1;
  ready->early = Waits(kernel, p.device_index);
  ready->grid = Prepare(f, Folded(p, op), &ready->params);
  if (ready->grid.blocks == 0) return nullptr;
  return ready;
}

}  // namespace

std::optional<Form> FormOf(const Problem& p, poolgrad_op op) { return Choose(p, op, false); }
std::optional<Form> PlainFormOf(const Problem& p, poolgrad_op op) { return Choose(p, op, true); }

const void* AheadKernel(poolgrad_dtype dtype, poolgrad_op op, const Form& form) {
  const auto find = [&]<class T>() { return IsBackward(op) ? AheadCells<T>(form) : AheadStrip<T>(form); };
  switch (dtype) {
    case POOLGRAD_F32:
      return find.operator()<float>();
    case POOLGRAD_F16:
      return find.operator()<__half>();
    case POOLGRAD_BF16:
      return find.operator()<__nv_bfloat16>();
    default:
      return nullptr;
  }
}

std::shared_ptr<const FormLaunch> MakeFormLaunch(const void* kernel, const Form& f, const Problem& p, poolgrad_op op) {
  return IsBackward(op) ? MakeReady<CellParams>(kernel, f, p, op) : MakeReady<StripParams>(kernel, f, p, op);
}

}  // namespace poolgrad::cuda
