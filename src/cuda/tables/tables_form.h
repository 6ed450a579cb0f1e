// What the kernels for windows by table and averages can be compiled for (tables_known.cuh): the axes, and how a
// block's share is gone through.
#pragma once

namespace poolgrad::cuda {

enum class TableOp { kMax, kRoutes, kAverage };

struct TableForm {
  int in[3], out[3], kernel[3], stride[3], pad_lo[3], pad_hi[3];
  int dilation[3];  // other than 1: maxima, forward
  int form[3];      // AxisForm
  int least[3];     // taps of the smallest window
  int over[3];      // outputs over an input, at most
  TableOp what;     // backward: kRoutes or kAverage
  int bits;         // of a code
  int divisor;      // 0: the taps that count
  bool count_padding;
  bool backward;
  bool last;   // channels are
  bool whole;  // a block has whole planes
  int vector;  // elements that are read at once: channels; of a row (forward, channels first)
  // Forward, channels first: lanes that share an output, and columns that they take in turn; channels last: lanes that
  // share a byte of routes.
  int log_sharers, abreast;
  bool signal;    // backward: its only axis is the height, along which codes lie if channels are first
  bool looks_up;  // backward, channels first: outputs over an input are looked up
  bool unrolled;  // a thread has all rows of a plane, and goes down them without asking where it is
};

constexpr bool IsDilated(const TableForm& f) { return f.dilation[0] * f.dilation[1] * f.dilation[2] != 1; }

// Backward: about how many registers a thread keeps for the outputs over an input.
constexpr int KeptOver(const TableForm& f, int element_bytes) {
  const int words = f.last ? (f.vector * element_bytes + 3) / 4 : 1;
  return f.over[0] * f.over[1] * f.over[2] * (words + 1);
}

}  // namespace poolgrad::cuda
