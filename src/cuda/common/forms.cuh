// The forms of the small-window kernels: everything that one of them is compiled for. Strip and Cells are templates
// over a form; those of the commonest windows are compiled ahead (ahead.h), any other when a plan is made (compiled.h).
#pragma once

namespace poolgrad::cuda {

// How a thread's share lies in memory.
enum class Mode {
  kLast,         // channels last: whole vectors of channels at one place
  kLastOdd,      // channels last, any number of channels: a byte's worth of codes, element by element
  kFirst,        // channels first, rows aligned: 4 neighbouring outputs, whole vectors
  kFirstOdd,     // channels first, any alignment: a byte's worth of codes, element by element
  kFirstStaged,  // the same, with pieces of both sides held in shared memory
  kLastStaged,   // channels last, any number of channels: rows of places and channels, held there likewise
  kFirstMarch,   // channels first: single columns of some rows, one depth after the other (march.cuh)
  kLastMarch,    // channels last: one or two channels of the same
};

struct Form {
  int kernel[3], stride[3], dilation[3];
  int bits;   // from a code to the next
  int codes;  // of a code: fewer where each has a byte of its own
  Mode mode;
  int pad;     // along the width, where the mode has to know (kFirst); else 0
  int size;    // bytes of an element
  int vector;  // elements of a thread at one place: channels, 1 when they are first
  int run;     // channels first, staged: outputs (backward: cells) of a thread in one row, chosen for sharing; else 0;
               // marching: its rows
  int deep;    // forward: outputs of a thread along the depth, which share what they read
  bool routes;
  bool relu;    // of the outputs
  bool inside;  // forward, staged: no window reaches beyond the input, so that nothing need be asked
  bool cut;     // staged: pieces have some columns of their rows, which are moved one by one
  // Channels last, staged: the last thread of a place has fewer of them; they are read and written in aligned pairs.
  bool ragged, even;

  constexpr bool operator==(const Form&) const = default;

  constexpr int extent(int axis) const { return (kernel[axis] - 1) * dilation[axis] + 1; }
  constexpr int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  constexpr bool last() const { return mode == Mode::kLast || mode == Mode::kLastOdd; }
  constexpr bool staged() const { return mode == Mode::kFirstStaged || mode == Mode::kLastStaged; }
  constexpr bool marches() const { return mode == Mode::kFirstMarch || mode == Mode::kLastMarch; }
  constexpr bool whole() const { return mode == Mode::kLast || mode == Mode::kFirst; }
  constexpr bool disjoint() const { return extent(0) <= stride[0] && extent(1) <= stride[1] && extent(2) <= stride[2]; }
  constexpr bool dilated() const { return dilation[0] > 1 || dilation[1] > 1 || dilation[2] > 1; }
  // Elements whose codes, were they side by side, fill whole bytes; taken one by one.
  constexpr int byteful() const { return codes == 2 ? 4 : 2; }

  // ---- forward: strips of outputs ----

  // Staged: a thread need not have whole bytes of codes, since then neighbouring ones would meet in the same banks.
  // Each code has a byte in shared memory, and they are packed on their way out.
  constexpr bool apart() const { return mode == Mode::kFirstStaged && outputs() * bits % 8 != 0; }
  // Outputs of a thread in one row: channels, or neighbours along the width.
  constexpr int outputs() const {
    if (last() || mode == Mode::kLastStaged) return vector;
    if (mode == Mode::kFirst) return 4;
    if (run > 0) return run;
    // Four make a byte of codes; further apart they would read far beyond the row's end, and meet in banks.
    const bool near = stride[2] > 1 && stride[2] <= 4 && stride[2] * size < 16;
    if (mode == Mode::kFirstStaged && near && routes && bits == 2) return 4;
    if (mode == Mode::kFirstStaged && stride[2] > 1) return 4 / size;
    // Four halves share what they read, if registers hold their rows (2x2x2/1 0.65 0.56 of copy to 0.72 0.57).
    const bool four = size == 2 && taps() <= 16 && (kernel[0] == 1 || (kernel[0] == 2 && !dilated()));
    return mode == Mode::kFirstStaged && four ? 4 : byteful();
  }

  // Depths that their windows touch.
  constexpr int touched() const { return (deep - 1) * stride[0] + kernel[0]; }

  // Registers of the reduced rows that a strip keeps.
  constexpr int reduced() const {
    const int rows = extent(1) > stride[1] ? extent(1) : stride[1];
    return touched() * rows * (outputs() * size + 3) / 4 * (routes ? 2 : 1);
  }

  // ---- backward: strips of cells ----

  // Outputs over a cell along an axis.
  constexpr int over(int axis) const { return (extent(axis) + stride[axis] - 1) / stride[axis]; }
  // Sums that go down the rows (roll.cuh) instead of outputs that stay in registers.
  constexpr bool rolls() const {
    if (kernel[0] != 1 || stride[0] != 1 || stride[1] != 1 || stride[2] != 1 || dilated() || kernel[1] == 1)
      return false;
    if (mode == Mode::kLast) return bits >= 4 && vector == 4 && kernel[1] <= 16 && kernel[2] <= 7;
    return mode == Mode::kFirst && codes == bits && kernel[1] == kernel[2] && pad == kernel[2] / 2 &&
           ((kernel[2] == 3 && bits == 4) || (kernel[2] == 5 && bits == 8));
  }
  // Channels last: every column of a cell has a thread of its own, so that neighbours in memory are written together.
  constexpr bool split() const {
    return (mode == Mode::kLast && disjoint() && taps() > 4) || (mode == Mode::kLastOdd && stride[2] > 1);
  }
  // Channels first, staged: whether what is read is staged too. Where one output at most lies over an input, loads that
  // nobody waits for are faster, but not in strips of single rows, which would wait for each (signals 5/5, 4/4 and 7/7
  // in f32 0.53 0.56 0.55 of copy to 0.58 0.75 0.69, in bf16 0.45 0.45 0.51 to 0.62 0.61 0.57).
  constexpr bool stages_outputs() const {
    if (mode == Mode::kLastStaged || over(0) > 1 || over(1) > 1 || over(2) > 1 || stride[2] == 1) return true;
    return (kernel[0] == 1 && kernel[1] == 1) || (size == 2 && stride[2] <= 3);
  }
  // Their codes are words of neighbouring ones then, not one by one.
  constexpr bool packs_codes() const { return mode == Mode::kFirstStaged && stages_outputs(); }
  // Outputs over a strip's cells along the width.
  constexpr int across() const { return over(2) + (mode == Mode::kFirst ? 3 : group() - 1); }
  static constexpr int kPairsMost = 60;  // registers
  // Codes of neighbours are kept side by side, to be compared two at a time, where there is room.
  constexpr bool pairs_codes() const {
    return packs_codes() && stride[2] == 1 && over(0) * over(1) * (2 * across() - 1) <= kPairsMost;
  }
  // Registers of the outputs over a strip's cell, were they all kept.
  constexpr int kept() const {
    const int rows = over(0) * over(1);
    if (pairs_codes()) return rows * (2 * across() - 1);
    if (packs_codes()) return rows * (across() + (across() * bits + 31) / 32);
    return rows * across() * (vector + (mode == Mode::kLastStaged ? 1 : (vector + 1) / 2));
  }
  constexpr bool keeps() const { return kept() <= 100; }
  // Cells of a thread along the width. Aligned rows: as many as make 16 bytes of dx, so that the stores of a warp leave
  // no gaps.
  constexpr int group() const {
    if (rolls()) return mode == Mode::kFirst ? 4 : kernel[2] == 3 ? 2 : 1;
    if (last() || mode == Mode::kLastStaged) return 1;
    if (run > 0) return run;
    // Staged halves: four share the finding of their codes, where the rows over them leave room for it.
    const bool four = mode == Mode::kFirstStaged && size == 2 && stride[2] == 1;
    if (four && over(0) * over(1) * (2 * over(2) + 5) <= kPairsMost) return 4;
    // Halves whose codes have a byte each share little (2x2/2 of one channel called the last: 0.27 of copy became
    // 0.38).
    const bool alone = stride[2] > 3 || (stride[2] > 1 && size == 2 && codes < bits);
    if (mode != Mode::kFirst) return alone ? 4 / size : byteful();
    const int aligned = 16 / (stride[2] * size);
    return aligned > 4 ? 4 : aligned;
  }
};

}  // namespace poolgrad::cuda
