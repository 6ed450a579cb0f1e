// What all tiled kernels ask of a problem, and why those whose windows are loops do not take one; and what the plans of
// large windows keep.
#include <algorithm>

#include "cuda/any/any_tiles.h"
#include "cuda/compiled.h"
#include "cuda/fast.h"
#include "cuda/large/doubling.cuh"
#include "cuda/large/separable.cuh"

namespace poolgrad::cuda {

static bool HasFastType(const Problem& p) {
  return p.dtype == POOLGRAD_F32 || p.dtype == POOLGRAD_F16 || p.dtype == POOLGRAD_BF16;
}

const char* RefuseShape(const Problem& p) {
  if (p.kind != POOLGRAD_MAX) return "it only pools by maximum";
  if (p.routes.masks) return "it keeps one winner per window";
  if (p.by_table()) return "windows are listed by a table";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to do";
  constexpr int64_t limit = int64_t{1} << 30;
  for (const Axis& a : p.axis) {
    if (a.in > limit || a.out > limit || a.pad_lo > limit) return "an axis is longer than 2^30";
  }
  if (!p.channels_last() && p.in_plane() > limit) return "a plane has more than 2^30 elements";
  return nullptr;
}

const char* RefuseTiled(const Problem& p) {
  if (!HasFastType(p)) return "it takes f32, f16 and bf16";
  return RefuseShape(p);
}

const char* RefuseRules(const Problem& p) {
  if (p.ties != POOLGRAD_TIES_FIRST) return "a tie goes to another than the first";
  for (const Axis& a : p.axis) {
    if (a.has_empty_window()) return "some window has no input";
  }
  return nullptr;
}

const char* RefuseWindows(const Problem& p) { return p.relu ? kRectifies : RefuseRules(p); }

const char* RefuseForward(const Problem& p) {
  const char* reason = RefuseTiled(p);
  return reason ? reason : RefuseWindows(p);
}

const char* RefuseVectors(const Problem& p) {
  if (!p.channels_last()) return "channels are first";
  for (const Axis& a : p.axis) {
    if (a.out != 1 || a.kernel != a.in || a.pad_lo != 0 || a.dilation != 1) return "the window is not the whole plane";
  }
  if (p.channels % (16 / SizeOf(p.dtype)) != 0) return "the channels do not fill 16-byte vectors";
  if (p.routes.bits > 8) return "the window has more taps than a byte holds";
  if (!FitsWindow32(p)) return "the window reaches past 2^30";
  return nullptr;
}

const char* RefusePlanes(const Problem& p, bool forward) {
  if (p.channels_last()) return "channels are last";
  for (const Axis& a : p.axis) {
    if (a.out != 1 || a.kernel != a.in || a.pad_lo != 0 || a.dilation != 1) return "the window is not the whole plane";
  }
  if (p.in_plane() < 8) return "a plane is shorter than a 16-byte vector";
  if (forward && p.in_plane() * SizeOf(p.dtype) > 24 << 10) return "the planes do not fit into shared memory";
  return nullptr;
}

// Planes of a single row.
static bool IsSignal(const Problem& p) {
  const auto single = [](const Axis& a) { return a.in == 1 && a.out == 1 && a.pad_lo == 0; };
  return single(p.axis[0]) && single(p.axis[1]);
}

Problem RowsOfSignals(const Problem& p) {
  Problem q = p;
  const int64_t rows = p.batch * p.channels, planes = 4 / SizeOf(p.dtype);
  if (!IsSignal(p) || p.channels_last() || rows % planes != 0 || rows >= (int64_t{1} << 29) / p.axis[2].in) return q;
  q.axis[1] = Axis{.in = rows / planes, .out = rows / planes};
  q.batch = 1, q.channels = planes, q.rank = 2;
  return q;
}

const char* RefuseSeparable(const Problem& p) {
  const Axis &h = p.axis[1], &w = p.axis[2];
  if (p.axis[0].kernel != 1 || p.axis[0].in != 1 || p.axis[0].out != 1) return "the window has a depth";
  if (std::max(Sharing(h), Sharing(w)) < 4) return "few windows overlap";
  if (!p.channels_last() && AllOverlapping(p) < kSeparableOverlapping) return "few windows overlap";
  if (h.dilation != 1 || w.dilation != 1) return "the window is dilated";
  if (IsSignal(p) && p.channels_last()) return "a block would have one row";
  if (h.kernel > 255 || w.kernel > 255) return "the window is longer than 255";
  if (p.routes.bits != 8 && p.routes.bits != 16) return "its routes are one or two bytes";
  if (p.channels_last() && p.channels % (kSeparablePacks * (4 / SizeOf(p.dtype))) != 0)
    return "the channels do not fill a sector";
  if (!FitsWindow32(p)) return "the window reaches past 2^29";
  const Problem rows = RowsOfSignals(p);
  if (IsSignal(p) && rows.axis[1].in == 1 && p.taps() <= kSeparableSignal) return "a block would have one row";
  return ShapeSeparable(rows, LongestRun(rows)).packs == 0 ? "a tile does not fit into shared memory" : nullptr;
}

std::shared_ptr<const void> MakeSeparable(const Problem& problem) {
  const Problem p = RowsOfSignals(problem);
  SeparableShape shape = ShapeSeparable(p, LongestRun(p));
  shape.doubles = !RefuseDoubling(p);
  return std::make_shared<SeparableShape>(shape);
}

const char* RefuseDoubling(const Problem& p) {
  const Axis &h = p.axis[1], &w = p.axis[2];
  if (h.kernel != 13 || w.kernel != 13) return "the window is not 13x13";
  if (h.stride != 1 || w.stride != 1) return "the window does not move by one";
  if (h.pad_lo < 0 || w.pad_lo < 0) return "the input is cropped";
  if (h.out > h.in || w.out > w.in) return "the output is larger than the input";
  if (p.routes.bits != 8) return "its routes are bytes";
  const DoublingShape shape = ShapeDoubling(p);
  if (shape.packs == 0) return "a plane does not fit into shared memory";
  return !p.channels_last() && shape.bytes > shape.packs * kSeparableBytes ? "planes of this size are faster in tiles"
                                                                           : nullptr;
}

const char* RefuseAny(const Problem& p) {
  if (!FitsWindow32(p)) return "the window reaches past 2^29";
  constexpr int64_t limit = int64_t{1} << 27;
  const int64_t channels = p.channels_last() ? p.channels : 1;
  if (p.axis[2].in * channels > limit || p.axis[2].out * channels > limit) return "a row has more than 2^27 elements";
  if (p.axis[2].kernel > 1 << 16 || p.axis[0].kernel * p.axis[1].kernel > 1 << 16) {
    return "the window has more than 2^16 rows or columns";
  }
  return nullptr;
}

bool TablesClear(const Problem& p) {
  int64_t intervals = 0;  // of up to 16 bytes, in shared memory
  for (const Axis& a : p.axis) intervals += a.in + a.out;
  return p.kind == POOLGRAD_MAX && table_cleared * p.out_plane() <= p.in_plane() && intervals <= 4096;
}

bool IsDilated(const Problem& p) {
  return std::any_of(std::begin(p.axis), std::end(p.axis), [](const Axis& a) { return a.dilation != 1; });
}

bool HasFewOddChannels(const Problem& p) {
  return p.channels_last() && p.channels % 2 != 0 && p.channels * SizeOf(p.dtype) < kFewChannelBytes;
}

// How many windows lie over an input, about.
static double Overlapping(const Axis& a) {
  return a.out == 1 ? 1.0 : static_cast<double>(a.kernel) / static_cast<double>(a.stride);
}

double MostOverlapping(const Problem& p) {
  return std::max({Overlapping(p.axis[0]), Overlapping(p.axis[1]), Overlapping(p.axis[2])});
}

double AllOverlapping(const Problem& p) {
  return Overlapping(p.axis[0]) * Overlapping(p.axis[1]) * Overlapping(p.axis[2]);
}

bool SpillsRoutes(const Problem& p) { return p.taps() >= kTableLargeRoutes[SizeOf(p.dtype) == 2]; }

// Large windows that hardly overlap. Channels first, and few that are last: shared memory is filled and emptied in
// runs, and most of dx is 0; backward also where up to four overlap, if inputs are many times the outputs (twice as
// fast as gather.cuh). Channels last, backward: every input asks the few outputs over it. Dilated, forward: other
// kernels share nothing between them, either.
bool LargeAndApart(const Problem& p, poolgrad_op op) {
  const bool last = p.channels_last(), dilated = IsDilated(p);
  const double most = MostOverlapping(p), all = AllOverlapping(p);
  if (!IsForward(op)) {
    if (PutsFaster(p)) return true;
    if (p.in_plane() < 16 * p.out_plane()) return false;
    if (HasFewOddChannels(p)) return all <= kTableFewBackward && p.taps() > table_large_backward;
    if (last) return most <= kTableLastBackward[dilated] && p.taps() >= table_large_last;
    return most <= kTableFirstBackward && p.taps() >= table_large_backward;
  }
  if (p.out_plane() == 1) return false;  // one row, which lanes cannot share
  const bool routes = op == POOLGRAD_OP_FORWARD_ROUTES;
  if (dilated) return all <= (last && routes ? 2 : 1) * kTableOverlapping && p.taps() >= kTableLargeDilated;
  if (last && (!routes || !SpillsRoutes(p) || p.taps() >= kTableLargeUnknown)) return false;
  if (last || p.axis[0].kernel > 1) return most <= kTableApart && p.taps() >= kTableLargeForward;
  // Where columns are few, lanes read rows far apart, which may lie in the same banks.
  const bool meet = p.axis[2].out < 8 && p.axis[1].stride * p.axis[2].in * SizeOf(p.dtype) % 64 == 0;
  const bool one = std::min(Overlapping(p.axis[1]), Overlapping(p.axis[2])) <= kTableApart;
  return all <= (meet ? kTableMeeting : (one ? 2 : 1) * kTableOverlapping) && p.taps() >= kTableLargeForward;
}

bool SharesNoInput(const Problem& p) { return Covers(p).all == 1; }

// Whether a block can put dx: a row of it fits, and outputs are looked at for few pieces.
static bool PutsFit(const Problem& p) {
  const Axis &d = p.axis[0], &h = p.axis[1], &w = p.axis[2];
  const int64_t row = w.in * (p.channels_last() ? p.channels : 1) * SizeOf(p.dtype);
  if (row > staged_bytes) return false;
  const int64_t rows = std::clamp<int64_t>(staged_bytes / row, 1, h.in),
                depths = std::clamp<int64_t>(staged_bytes / (row * h.in), 1, d.in);
  const auto looked_at = [](const Axis& a, int64_t piece) {
    const int64_t pieces = CeilDiv(a.in, piece);
    return static_cast<double>(pieces == 1 ? a.out : CeilDiv(a.in + pieces * a.extent(), a.stride));
  };
  const double looks = looked_at(d, depths) * looked_at(h, rows) * static_cast<double>(w.out);
  return looks <= 2 * static_cast<double>(p.out_plane()) || kTablePutLooks * looks <= static_cast<double>(p.in_plane());
}

// Inputs for each output, from which dx is put.
static bool IsSparse(const Problem& p, const double (&inputs)[2]) {
  return static_cast<double>(p.in_plane()) >= inputs[SizeOf(p.dtype) == 2] * static_cast<double>(p.out_plane());
}

// Windows that share no input, faster than by kernels compiled for them: channels first, unless cells fill 16 bytes of
// dx, and few that are last.
bool PutsFaster(const Problem& p) {
  const bool last = p.channels_last() && p.channels > 1;
  if (last && !HasFewOddChannels(p)) return false;
  const Axis& w = p.axis[2];
  const bool cells = !IsDilated(p) && w.in * SizeOf(p.dtype) % 16 == 0 && 16 % (w.stride * SizeOf(p.dtype)) == 0;
  return !cells && IsOrdinary(p) && SharesNoInput(p) && IsSparse(p, kTablePutKnown[last]) && PutsFit(p);
}

// The same where nothing is compiled for them. Channels last in whole vectors: gathering moves 16 bytes at once,
// putting one element (2x2/3 in bf16 of 192 0.45 times as fast, of 29 3x3/3 1.8; 4x4/4 in f32 of 32 0.85, 4x4x4/5 of
// 321 3.6).
bool Puts(const Problem& p) {
  if (PutsFaster(p)) return true;
  const bool last = p.channels_last() && p.channels > 1;
  return RefuseCompilingFor(p) && !(last && p.channels * SizeOf(p.dtype) % 16 == 0) && IsOrdinary(p) &&
         SharesNoInput(p) && IsSparse(p, kTablePut[last]) && PutsFit(p);
}

// Windows that hardly overlap, where nothing is compiled for them. Backward, channels first or few that are last:
// scattering takes half as long as gathering (3x3/3 in f32 0.26 of copy to 0.48, 4x4/4 0.30 to 0.61). With routes,
// channels last: a thread has all of a window (3x3/3 in f32 0.48 to 0.75, 2x1 0.27 to 0.46; 27x27/27 would lose, 0.73
// to 0.54), and small ones may overlap a little (3x3/2 0.30 to 0.45, 1x2/1 0.40 to 0.46). Halves that do not lie in
// whole vectors are faster in pairs of samples by rows.cuh and apart.cuh (3x3/2 of 3 1.2 times, 1x1 of 53 1.2, 4x4x4/5
// 0.64). Forward, channels first, wherever neighbouring threads would read far apart (1x31/31 in f32 0.19 to 0.53, in
// bf16 0.13 to 0.36); signals, of which apart.cuh has one window to a thread, where they move by more (1x19/19 0.42 by
// table and 0.60, in bf16 0.29 and 0.52, 1x29/29 0.61 and 0.51, 0.35 and 0.42).
bool ApartUncompiled(const Problem& p, poolgrad_op op) {
  if (!RefuseCompilingFor(p)) return false;
  const bool last = p.channels_last() && p.channels > 1;
  if (IsForward(op) && !last) {
    return p.axis[2].stride >= kTableStrides[IsSignal(p)] && MostOverlapping(p) <= kTableFarApart;
  }
  if (op == POOLGRAD_OP_FORWARD) return false;
  if (IsForward(op)) {
    const bool small = p.taps() <= kTableUncompiledTaps[0];
    const bool pairs = SizeOf(p.dtype) == 2 && p.channels % 8 != 0 && p.batch > 1;
    if (p.taps() > kTableUncompiledTaps[1] || (small && pairs)) return false;
    return MostOverlapping(p) <= kTableApart || (small && AllOverlapping(p) <= kTableUncompiledAll);
  }
  if (Puts(p)) return true;
  const double inputs = static_cast<double>(p.in_plane()) / static_cast<double>(p.out_plane());  // for each output
  return (!last || HasFewOddChannels(p)) && MostOverlapping(p) <= kTableFirstBackward &&
         inputs >= kTableUncompiled[SizeOf(p.dtype) == 2] && inputs >= AllOverlapping(p);
}

const char* RefuseCompilingFor(const Problem& p) {
  if (!p.may_compile) return "the plan's options say never_compile";
  if (p.x_bytes() + p.y_bytes() < bytes_worth_compiling) return "the problem is too small to be worth compiling for";
  return RefuseCompiling();
}

// Maxima of windows that are alike, by the rules that all kernels know.
bool IsOrdinary(const Problem& p) { return p.kind == POOLGRAD_MAX && !p.by_table() && !RefuseRules(p); }

const char* RefuseTables(const Problem& p, poolgrad_op op) {
  if (!IsForward(op) && op != POOLGRAD_OP_BACKWARD) return "it does forward and backward from routes";
  if (!HasFastType(p)) return "it takes f32, f16 and bf16";
  if (p.routes.masks) return "it keeps one winner per window";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to do";
  if (p.kind == POOLGRAD_AVERAGE && op == POOLGRAD_OP_FORWARD_ROUTES) return "an average has no routes";
  if (p.relu && IsForward(op) && (p.bias || !p.by_table())) return kRectifies;
  if (IsOrdinary(p) && !LargeAndApart(p, op) && !ApartUncompiled(p, op))
    return "windows that are alike have faster kernels";
  constexpr int64_t limit = int64_t{1} << 30;
  if (p.in_plane() > limit || p.out_plane() > limit) return "a plane has more than 2^30 elements";
  for (const Axis& a : p.axis) {
    if (a.table && (a.in + 1) * (a.out + 1) >= limit) return "an axis is too long for numbers of 32 bits";
    const bool sized = a.table && !IsAdaptive(a) && HasSizes(a);
    if (sized && p.kind == POOLGRAD_AVERAGE && !IsForward(op) && !p.channels_last()) {
      return "windows of listed sizes may skip an input that lies between theirs";
    }
  }
  if (!FitsWindow32(p) || p.divisor >= limit) return "the window reaches past 2^29";
  const int64_t groups = p.channels_last() ? CeilDiv(p.channels, 4) : p.channels;
  if (p.batch * groups * std::max(p.in_plane(), p.out_plane()) >= kFastThreads) return "it has more than 2^31 threads";
  return nullptr;
}

bool IsOneTap(const Problem& p) {
  return p.taps() == 1 && p.routes.bits <= 8 && p.x_elements() < kFastThreads &&
         std::all_of(std::begin(p.axis), std::end(p.axis),
                     [](const Axis& a) { return a.stride == 1 && a.pad_lo == 0 && a.in == a.out; });
}

const char* RefuseGather(const Problem& p) {
  if (const char* reason = RefuseAny(p)) return reason;
  if (p.routes.bits > 8) return "the window has more taps than a byte holds";
  const Covers covers(p);
  const bool vectors = p.channels_last() && p.channels % (16 / SizeOf(p.dtype)) == 0, deep = p.axis[0].kernel > 1;
  const bool at_once = vectors ? !deep || !IsDilated(p) : SizeOf(p.dtype) == 2;
  const int64_t most = at_once             ? kGatherMost
                       : deep              ? kGatherDeepSingle
                       : p.axis[1].in == 1 ? kGatherSignalSingle
                                           : kGatherSingle;
  const bool few = covers.all <= most || (IsDilated(p) && (at_once || !deep) && AllOverlapping(p) <= kGatherDilated);
  return covers.width > 5 || !few ? "many windows overlap; adding in their order is faster" : nullptr;
}

}  // namespace poolgrad::cuda
