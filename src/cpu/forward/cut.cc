// fwd_cl_cut: few samples of channels last. Rows are what the other kernels deal out to threads. A signal is one row:
// it is cut into pieces of outputs. Of images whose rows are few, or share most of their work (large windows), channels
// are cut: a slice of them, without what no tap lands on, is copied into scratch, and its results back. Each piece is
// pooled as a problem of its own by the kernel that it gets.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/forward/forward.h"
#include "cpu/scratch.h"
#include "cpu/tuning.h"

namespace poolgrad {
namespace {

struct CutPiece {
  Problem problem;
  Kernel kernel;
};

struct CutLayout {
  explicit CutLayout(const Problem& p) : thin{ThinAxis(p.depth()), ThinAxis(p.height()), ThinAxis(p.width())} {}

  bool slices;                   // of channels
  ThinAxis thin[3];              // of their inputs
  std::vector<CutPiece> pieces;  // those that differ: the first, one between, the last
  std::vector<size_t> piece;     // of each place where samples are cut
  int64_t each;                  // outputs or channels of all but the last
};

struct CutScratch {
  const CutLayout& l;
  const CutPiece& piece;
  ScratchTaker take;
  std::byte* const x = take.Take<std::byte>(l.slices ? piece.problem.x_bytes() : 0);
  std::byte* const y = take.Take<std::byte>(l.slices ? piece.problem.y_bytes() : 0);
  uint8_t* const routes = take.Take<uint8_t>(l.slices ? piece.problem.routes.bytes() : 0);
  std::byte* const inner = take.Take<std::byte>(piece.kernel.scratch_bytes);
};

// Runs are too short for the processor to see the next ones coming.
template <class Byte>
void CopyRuns(const Byte* from, int64_t from_pitch, Byte* to, int64_t to_pitch, int64_t run, int64_t count) {
  constexpr int64_t kAhead = 8, kLine = 64;
  for (; count > 0; --count, from += from_pitch, to += to_pitch) {
    for (int64_t b = 0; count > kAhead && b < run; b += kLine) {
      __builtin_prefetch(from + kAhead * from_pitch + b);
      __builtin_prefetch(to + kAhead * to_pitch + b, 1);
    }
    std::memcpy(to, from, static_cast<size_t>(run));
  }
}

// What a slice sees of a sample: x is its first channel.
void CopySlice(const Problem& p, const CutLayout& l, const Problem& slice, const std::byte* x, std::byte* to) {
  const int64_t place = p.channels * SizeOf(p.dtype), run = slice.channels * SizeOf(p.dtype), width = slice.width().in;
  const int64_t height = slice.height().in;
  for (int64_t r = 0; r < slice.depth().in * height; ++r, to += width * run) {
    const int64_t row = l.thin[0].At(r / height) * p.height().in + l.thin[1].At(r % height);
    const int64_t at = row * p.width().in + l.thin[2].first;
    CopyRuns(x + at * place, l.thin[2].apart * place, to, run, run, width);
  }
}

// Units are pieces of samples.
void RunCut(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const auto& l = *static_cast<const CutLayout*>(args.layout);
  const auto pieces = static_cast<int64_t>(l.piece.size());
  const int64_t size = SizeOf(p.dtype), place = p.channels * size, line = p.routes.line_bytes;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t sample = unit / pieces, i = unit % pieces;
    const CutPiece& piece = l.pieces[l.piece[static_cast<size_t>(i)]];
    const Problem& q = piece.problem;
    const Range outputs = {i * l.each, i * l.each + q.width().out};
    const int64_t channel = l.slices ? i * l.each : 0;
    const int64_t in = sample * p.in_plane() + (l.slices ? 0 : p.width().inputs(outputs).begin);
    const int64_t out = sample * p.out_plane() + (l.slices ? 0 : outputs.begin);
    const auto* const x = static_cast<const std::byte*>(args.source) + in * place + channel * size;
    auto* const y = static_cast<std::byte*>(args.result) + out * place + channel * size;
    uint8_t* const routes = args.routes ? args.routes + out * line + channel * p.routes.bits / 8 : nullptr;
    const CutScratch s = {l, piece, ScratchTaker(scratch)};
    Args inner = args;
    inner.source = l.slices ? s.x : x;
    inner.result = l.slices ? s.y : y;
    inner.routes = l.slices && routes ? s.routes : routes;
    if (args.bias) inner.bias = static_cast<const std::byte*>(args.bias) + channel * size;
    const int64_t run = q.channels * size;
    if (l.slices) CopySlice(p, l, q, x, s.x);
    piece.kernel.Run(q, inner, 0, piece.kernel.units, s.inner);
    if (l.slices) CopyRuns<std::byte>(s.y, run, y, place, run, q.out_plane());
    if (l.slices && routes) {
      CopyRuns<uint8_t>(s.routes, q.routes.line_bytes, routes, line, q.routes.line_bytes, q.out_plane());
    }
  }
}

// Why rows are better dealt out than slices of `each` channels, or null. Slices take up to 3 times as long as the whole
// (from cache; windows that are no more than a copy themselves most), so that a thread must be left with less than a
// quarter of what it would have. (Large windows of one or two images, 8 and 16 threads: 2 to 9 times as fast.)
const char* RefuseSlices(const Problem& p, poolgrad_op op, const Host& host, int64_t each) {
  const int64_t busy = std::min<int64_t>(host.threads, p.batch * CeilDiv(p.channels, each));
  if (busy <= 4) return "slices would be no less than a quarter";
  Kernel whole;
  if (!MakeFirst(ForwardAlgorithms(), p, op, Host{host.simd}, &whole)) return "it has no kernel";
  const int64_t share = CeilDiv(whole.units, host.threads) + whole.repeated;  // of a thread, if rows are dealt out
  return 4 * whole.units < share * busy ? nullptr : "there are rows enough for every thread";
}

}  // namespace

const char* MakeForwardCut(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  const Axis& w = p.width();
  if (!p.channels_last() || p.channels == 1) return "it needs channels last";
  if (host.threads == 1) return "one thread has nothing to share";
  if (p.batch >= 2 * host.threads) return "there are samples enough for every thread";
  const int64_t wanted = CeilDiv(std::min<int64_t>(2 * host.threads, host.tasks), p.batch);
  const bool signal = p.in_plane() == w.in && p.out_plane() == w.out && p.taps() == w.kernel;
  auto layout = std::make_shared<CutLayout>(p);
  layout->each = std::max(CeilDiv(w.out, wanted), CeilDiv(4 * w.extent(), w.stride));
  layout->slices = !signal || layout->each >= w.out;
  if (layout->slices) {
    const int64_t least = std::max<int64_t>(8, Tuning().cut_channels / SizeOf(p.dtype));  // whose codes fill bytes
    layout->each = CeilDiv(CeilDiv(p.channels, CeilDiv(host.threads, p.batch)), least) * least;
    if (layout->each >= p.channels) return "pieces would be too short";
    if (const char* reason = RefuseSlices(p, op, host, layout->each)) return reason;
  }

  int64_t scratch_bytes = 0;
  for (int64_t at = 0; at < (layout->slices ? p.channels : w.out); at += layout->each) {
    Problem q = p;
    q.batch = 1;
    const Range outputs = {at, std::min(w.out, at + layout->each)};
    if (layout->slices) {
      q.channels = std::min(layout->each, p.channels - at);
      for (int i = 0; i < 3; ++i) q.axis[i] = layout->thin[i].axis;
    } else {
      q.axis[2] = w.Part(outputs, w.inputs(outputs));
    }
    SetRouteLines(&q);
    const auto like = [&](const CutPiece& piece) {
      const Axis &a = piece.problem.width(), &b = q.width();
      return piece.problem.channels == q.channels && a.in == b.in && a.out == b.out && a.pad_lo == b.pad_lo;
    };
    const auto found = std::find_if(layout->pieces.begin(), layout->pieces.end(), like);
    layout->piece.push_back(static_cast<size_t>(found - layout->pieces.begin()));
    if (found != layout->pieces.end()) continue;
    layout->pieces.push_back({q, {}});
    CutPiece& piece = layout->pieces.back();
    if (!MakeFirst(ForwardAlgorithms(), q, op, Host{host.simd}, &piece.kernel)) return "a piece has no kernel";
    scratch_bytes = std::max(scratch_bytes, CutScratch{*layout, piece, ScratchTaker(nullptr)}.take.used());
  }
  kernel->run = RunCut;
  kernel->scratch_bytes = scratch_bytes;
  kernel->units = p.batch * static_cast<int64_t>(layout->piece.size());
  kernel->layout = std::move(layout);
  return nullptr;
}

}  // namespace poolgrad
