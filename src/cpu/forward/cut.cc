// fwd_cl_cut: signals of few samples, channels last. Rows are what the other kernels deal out to threads, and a signal
// is one row; so it is cut into pieces, each pooled as a problem of its own by the kernel that it gets.
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/forward/forward.h"

namespace poolgrad {
namespace {

struct CutPiece {
  Problem problem;
  Kernel kernel;
};

struct CutLayout {
  std::vector<CutPiece> pieces;  // those that differ: the first, one between, the last
  std::vector<size_t> piece;     // of each place where the signal is cut
  int64_t each;                  // outputs of all but the last
};

Range InputsOf(const Axis& a, Range outputs) {
  return {std::clamp<int64_t>(a.start(outputs.begin), 0, a.in),
          std::clamp<int64_t>(a.start(outputs.end - 1) + a.extent(), 0, a.in)};
}

// Units are pieces of samples.
void RunCut(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const auto& l = *static_cast<const CutLayout*>(args.layout);
  const Axis& w = p.width();
  const auto pieces = static_cast<int64_t>(l.piece.size());
  const int64_t place = p.channels * SizeOf(p.dtype);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t sample = unit / pieces, i = unit % pieces;
    const CutPiece& piece = l.pieces[l.piece[static_cast<size_t>(i)]];
    const Range outputs = {i * l.each, i * l.each + piece.problem.width().out};
    const int64_t in = sample * w.in + InputsOf(w, outputs).begin, out = sample * w.out + outputs.begin;
    Args inner = args;
    inner.source = static_cast<const std::byte*>(args.source) + in * place;
    inner.result = args.result ? static_cast<std::byte*>(args.result) + out * place : nullptr;
    inner.routes = args.routes ? args.routes + out * p.routes.line_bytes : nullptr;
    piece.kernel.Run(piece.problem, inner, 0, piece.kernel.units, scratch);
  }
}

}  // namespace

Made MakeForwardCut(const Problem& p, poolgrad_op op, const Host& host) {
  const Axis& w = p.width();
  if (!p.channels_last() || p.channels == 1) return "it needs channels last";
  if (p.in_plane() != w.in || p.out_plane() != w.out || p.taps() != w.kernel) return "it is for signals";
  if (host.threads == 1) return "one thread has nothing to share";
  if (p.batch >= 2 * host.threads) return "there are samples enough for every thread";
  const int64_t wanted = CeilDiv(std::min<int64_t>(2 * host.threads, host.tasks), p.batch);
  auto layout = std::make_shared<CutLayout>();
  layout->each = std::max(CeilDiv(w.out, wanted), CeilDiv(4 * w.extent(), w.stride));
  if (layout->each >= w.out) return "pieces would be too short";

  Kernel kernel;
  for (int64_t at = 0; at < w.out; at += layout->each) {
    const Range outputs = {at, std::min(w.out, at + layout->each)};
    Problem q = p;
    q.batch = 1;
    q.axis[2] = w.Part(outputs, InputsOf(w, outputs));
    SetRouteLines(&q);
    const auto like = [&](const CutPiece& piece) {
      const Axis &a = piece.problem.width(), &b = q.width();
      return a.in == b.in && a.out == b.out && a.pad_lo == b.pad_lo;
    };
    const auto found = std::find_if(layout->pieces.begin(), layout->pieces.end(), like);
    layout->piece.push_back(static_cast<size_t>(found - layout->pieces.begin()));
    if (found != layout->pieces.end()) continue;
    layout->pieces.push_back({q, {}});
    Kernel& made = layout->pieces.back().kernel;
    if (!MakeFirst(ForwardAlgorithms(), q, op, Host{host.simd}, &made)) return "a piece has no kernel";
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, made.scratch_bytes);
  }
  kernel.run = RunCut;
  kernel.units = p.batch * static_cast<int64_t>(layout->piece.size());
  kernel.layout = std::move(layout);
  return kernel;
}

}  // namespace poolgrad
