// Problems that are the same work on the same bytes, in the form that kernels like best.
#pragma once

#include <optional>

#include "spec/problem.h"

namespace poolgrad {

// An axis with one tap at stride 1 and without padding pools nothing: windows are merely repeated along it, as they are
// along batch and channels. Such axes are merged with their neighbours of the same kind:
//
//   outer ones    with what lies in front of them: the batch, or (channels first) the channels
//   inner ones    with the channels behind them; or (channels first) into one long width, which becomes the channels of
//                 an image with channels last where it is long enough
//   a single channel that lies last    makes it channels first
//
// One between two axes with windows stays. What is left moves inwards: a column is pooled as a signal, of which there
// are better kernels (x86: with routes up to 2.5 times as fast, bf16 backward 2.9); but for values of windows that
// overlap at a stride, where down is up to 1.8 times as fast. Arrays stay as they are, byte for byte, and taps keep
// their numbers; where `op` reads or writes routes, lines that would have had gaps between them are not joined. A bias
// belongs to its channels: then nothing is folded.
//
// The other problem, if anything was.
std::optional<Problem> Folded(const Problem& p, poolgrad_op op);

// Only the last of these: a single channel that lies last, where its codes fill bytes. Whether it was so.
bool FoldChannel(Problem* p);

}  // namespace poolgrad
