#include <algorithm>
#include <numeric>

#include "cuda/small/cells.cuh"
#include "cuda/small/small_window.h"
#include "cuda/small/small_window_march.h"
#include "cuda/small/small_window_pieces.h"
#include "cuda/small/strip.cuh"
#include "cuda/small/strips.cuh"
#include "spec/fold.h"

namespace poolgrad::cuda {
namespace {

// Larger windows are not unrolled; those that share no input need fewer registers.
constexpr int64_t kTapsMost = 64, kDisjointTapsMost = 196, kStrideMost = 32, kCellMost = 16, kExtentMost = 32;

bool IsBackward(poolgrad_op op) { return op == POOLGRAD_OP_BACKWARD; }

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
Problem AsSeen(const Problem& whole, poolgrad_op op) {
  std::optional<Problem> folded = MovesAcross(whole) ? Folded(whole, op) : std::nullopt;
  Problem p = folded && folded->channels < int64_t{1} << 30 ? *std::move(folded) : whole;
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
    f->dilation[i] = static_cast<int>(a.dilation);
  }
  return f->taps() <= (f->disjoint() ? kDisjointTapsMost : kTapsMost);
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

// Whether pieces read everything twice or more, because neighbouring ones share it (2x2x2/1 of 31 to 453 channels last
// in f32, 0.38 to 0.46 of copy forward and 0.36 to 0.39 with routes, march at 0.59 to 0.65 and 0.52 to 0.58).
bool ReadsTwice(const Problem& p, poolgrad_op op, const Pieces& pieces) {
  const auto read = [&](const Axis& a, int64_t each) {  // for each that is new
    const int64_t step = IsBackward(op) ? 1 : a.stride, more = IsBackward(op) ? OverCell(a) - 1 : Beyond(a);
    return 1 + static_cast<double>(more) / static_cast<double>(each * step);
  };
  const double rows = pieces.rows.divisor > 1 ? read(p.axis[1], pieces.rows_each) : 1;
  const double columns = pieces.columns.divisor > 1 ? read(p.axis[2], pieces.columns_each) : 1;
  const double depths = pieces.depths.divisor > 1 ? read(p.axis[0], pieces.depths_each) : 1;
  if (IsBackward(op)) return rows * columns > 4;  // what is written is more
  return rows * columns > 2 || rows * columns * depths > 2.5;
}

// Whether a form can be staged in this mode; where a piece would have a few whole rows only, they are cut if that costs
// less, unless it is to be `plain`.
bool Stages(const Problem& p, poolgrad_op op, Mode mode, bool plain, Form* f) {
  Form staged = *f;
  staged.mode = mode;
  // Elements of a row are counted in 31 bits.
  const int64_t each = mode == Mode::kLastStaged ? p.channels : 1;
  if (std::max(p.axis[2].in, p.axis[2].out) * each >= int64_t{1} << 31) return false;
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
// So are rows that many windows share along height and depth (3x3x1/1x1x2 in f32 0.24 0.25 0.52 to 0.81 0.75 0.69,
// forward in bf16 0.47 0.42 to 0.65 0.58, but backward 0.42 to 0.34).
bool PrefersStaged(const Form& f, const Problem& p, poolgrad_op op) {
  Form aligned = f;
  aligned.mode = Mode::kFirst, aligned.pad = static_cast<int>(p.axis[2].pad_lo);
  if (f.stride[2] == 1) return !(IsBackward(op) && aligned.rolls());
  const bool shared = f.stride[0] == 1 && f.stride[1] == 1 && f.kernel[0] > 1 && f.kernel[1] > 1;
  return shared && (!IsBackward(op) || f.size == 4);
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

// Channels first, staged, windows that move by two or three, backward: whether threads have three cells, so that few of
// them write to the same bank (signals 2/2 in f32 0.58 to 0.77 of copy, 3x3/2 0.71 to 0.82, of six cells one less).
// Halves share the finding of their codes among two or four, unless it costs them more (2x2x2/2 0.63 to 0.73, 2x2/2 of
// one channel called the last 0.35 to 0.60; 3x3/2 0.65 to 0.64, 2x2/2 0.64 to 0.59).
bool SpreadsCells(const Form& f) {
  if (f.stride[2] != 2 && f.stride[2] != 3) return false;
  if (f.size == 4) return true;
  return f.stride[2] == 2 && (f.codes < f.bits || f.kernel[0] > 1 || f.kernel[2] == 1 || f.dilated());
}

// Channels first, staged, windows that move by one, backward: as many cells to a thread, an odd number of words again,
// as leave room for codes in pairs, which they share the finding of (3x3/1 in f32 0.59 to 0.71 of copy in seven cells,
// 0.73 to 0.81 in seven others; 2x1/1 in bf16 0.58 to 0.64).
void SetCells(const Problem& p, Form* f) {
  if (f->stride[2] == 1) f->run = f->size == 4 ? 5 : 6;
  if (SpreadsCells(*f)) f->run = 3;
  if ((f->stride[2] == 1 && !f->pairs_codes()) || CellsOfAxis(p.axis[2]) < 3 * f->run) f->run = 0;
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
  const Problem p = AsSeen(whole, op);
  Form f{};
  if (p.routes.bits > 8 || !OfAxes(p, &f)) return {};
  f.size = static_cast<int>(SizeOf(p.dtype));
  f.codes = p.routes.bits, f.bits = BytePerCode(p) && op != POOLGRAD_OP_FORWARD ? 8 : f.codes;
  f.vector = f.deep = 1;
  f.routes = op != POOLGRAD_OP_FORWARD;
  f.relu = p.relu && !IsBackward(op);
  if (!CountsBits(f, p) || (IsBackward(op) && f.stride[2] > kCellMost)) return {};
  if (!ChannelsLast(p)) {
    f.mode = Mode::kFirstStaged;
    if (!plain && IsBackward(op)) SetCells(p, &f);
    if (!plain && !IsBackward(op)) SetRun(&f), SetDeep(p, &f);
    const bool aligned = !plain && RowsAligned(f, p, op), direct = aligned && !PrefersStaged(f, p, op);
    const bool staged = !direct && StagesFirst(f, op) && Stages(p, op, Mode::kFirstStaged, plain, &f);
    // Whole rows of 2x2/2 are read faster by fours (0.80 against 0.76), cut ones are not (0.72 against 0.82).
    if (f.stride[2] > 1 && !f.cut && f.codes == 2 && f.bits == 2 && !f.stages_outputs()) f.run = 0;
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
  const bool few = !plain && p.axis[2].in == 1 && p.channels * f.size < kFewChannelBytes;
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
  // Windows that share no input keep less, but floats with their codes too much (5x5x5/5 of 100 channels 0.27 of copy
  // against 0.62, 4x4x4/4 of 64 0.49 against 0.59).
  if (!IsBackward(op) && f.mode == Mode::kLast && f.routes && f.size == 4 && f.reduced() >= kReducedMost) return {};
  return f;
}

// Pieces of the size that costs least: smaller ones overlap better, larger ones leave fewer threads without a strip.
template <class Params>
Grid CutAndShareOut(const Staging& staging, const Strips& strips, int warm_up, const Strips::Arrays& met, int size,
                    const SmallWindowTuning& tuning, Params* params) {
  Grid least;
  const Params before = *params;
  for (const int64_t sixths : {6, 5, 4}) {
    Params s = before;
    const int64_t bytes = staging.Cut(staged_bytes * sixths / 6, &s.pieces);
    if (bytes == 0) continue;
    const Grid grid = strips.Staged(warm_up, met, size, tuning, bytes, 0, &s);
    if (grid.blocks > 0 && (least.blocks == 0 || grid.cost < least.cost)) least = grid, *params = s;
  }
  return least;
}

// The same where rows are cut. groups: of so many columns; met: at pitches.
template <class Params, class Groups, class Met>
Grid CutColumnsAndShareOut(const Staging& staging, Strips strips, int warm_up, int size,
                           const SmallWindowTuning& tuning, const Groups& groups, const Met& met, Params* params) {
  Grid least;
  const Params before = *params;
  for (const int64_t sixths : {6, 5, 4}) {
    for (const int64_t rows : {1, 2, 4, 8, 16}) {
      Params s = before;
      const int64_t bytes = staging.CutColumns(staged_bytes * sixths / 6, rows, &s.pieces);
      if (bytes == 0) continue;
      strips.columns = groups(s.pieces.columns_each);
      const Grid grid =
          strips.Staged(warm_up, met(s.pieces.pitch), size, tuning, bytes, staging.RowsMoved(s.pieces.rows_each), &s);
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
  const int64_t column = f.outputs() * f.size * (places.each > 1 ? 1 : f.stride[2]);
  if (f.cut) {
    return CutColumnsAndShareOut(
        ForwardStaging(p, f), strips, static_cast<int>(Beyond(p.axis[1])), f.size, tuning,
        [&](int64_t columns) { return places.each > 1 ? columns * places.vectors : CeilDiv(columns, f.outputs()); },
        [&](const uint32_t* pitch) {
          return Strips::Arrays{{{column, int64_t{f.stride[1]} * pitch[0]}, {}}};
        },
        &s);
  }
  return CutAndShareOut(ForwardStaging(p, f), strips, static_cast<int>(Beyond(p.axis[1])),
                        {{{column, f.stride[1] * s.x_row * f.size}, {}}}, f.size, tuning, &s);
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
  const int64_t column = f.group() * f.size, reads = f.stages_outputs() ? 1 : 0;
  const int64_t written = column * (f.mode == Mode::kLastStaged ? 1 : f.stride[2]);
  if (f.cut) {
    return CutColumnsAndShareOut(
        BackwardStaging(p, f), strips, f.over(1) - 1, f.size, tuning,
        [&](int64_t columns) { return CeilDiv(columns, f.group()) * places.vectors; },
        [&](const uint32_t* pitch) {
          return Strips::Arrays{{{reads * column, reads * pitch[0]}, {written, int64_t{f.stride[1]} * pitch[2]}}};
        },
        &s);
  }
  const Strips::Arrays met{{{reads * column, reads * s.y_row * f.size}, {written, f.stride[1] * s.x_row * f.size}}};
  return CutAndShareOut(BackwardStaging(p, f), strips, f.over(1) - 1, met, f.size, tuning, &s);
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
  ready->vector = f.whole() ? 16 : f.even ? 2 * f.size : f.size;
  ready->codes = f.whole() ? 8 : f.marches() && f.even ? 2 : 1;
  ready->early = Waits(kernel, p.device_index);
  if constexpr (std::is_same_v<Params, MarchParams>) {
    ready->grid = PrepareMarch(f, MarchProblem(p), IsBackward(op), &ready->params);
  } else {
    ready->grid = Prepare(f, AsSeen(p, op), &ready->params);
  }
  if (ready->grid.blocks == 0) return nullptr;
  return ready;
}

}  // namespace

std::optional<Form> FormOf(const Problem& p, poolgrad_op op) {
  const std::optional<Form> kept = KeptFormOf(p, op), march = MarchForm(p, op);
  return march && (!kept || PrefersMarch(*march, *kept, IsBackward(op))) ? march : kept;
}
std::optional<Form> KeptFormOf(const Problem& p, poolgrad_op op) { return Choose(p, op, false); }
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
  if (f.marches()) return MakeReady<MarchParams>(kernel, f, p, op);
  return IsBackward(op) ? MakeReady<CellParams>(kernel, f, p, op) : MakeReady<StripParams>(kernel, f, p, op);
}

}  // namespace poolgrad::cuda
