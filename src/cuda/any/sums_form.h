// What backward by summing (sums.cuh) can be compiled for: a window, and the tile of inputs that a warp owns.
#pragma once

namespace poolgrad::cuda {

struct SumsForm {
  int kernel[3], stride[3], dilation[3];  // along march, middle, width
  int bits;                               // of a code
  bool last;                              // channels are
  bool flat;                              // the middle axis has one input and one output
  // Inputs of a tile: planes, rows of the middle axis, columns, channels. Planes times channels are its lines.
  int planes, rows, columns, channels;
  int each;   // outputs of a lane that are done at once
  int wide;   // of a line
  bool once;  // which are all that reach it
  int ring;   // slices along the march
  int pitch;  // sums from a column to the next: those of the ring, and what keeps banks apart
  int line;   // from a line to the next
};

}  // namespace poolgrad::cuda
