// What backward by summing (sums.cuh) can be compiled for: a window, and the tile of inputs that a warp owns.
#pragma once

namespace poolgrad::cuda {

struct SumsForm {
  int kernel[3], stride[3], dilation[3];  // along march, middle, width
  int bits;                               // of a code
  bool last;                              // channels are
  bool flat;                              // the middle axis has one input and one output
  // Inputs of a tile: planes, rows of the middle axis, columns, and vectors of channels. Planes times those are its
  // lines.
  int planes, rows, columns, channels;
  int vector;  // channels that a lane has side by side
  int each;    // outputs of a lane, which are neighbours
  int groups;  // lanes of a line, of one channel, that are done at once
  bool once;   // which are all that reach it
  int ring;    // slices along the march
  int line;    // lanes that have sums of a line
  int pitch;   // sums from a phase of columns to the next: one for each lane that has some
  int blocks;  // of kSumsThreads that a multiprocessor holds
};

}  // namespace poolgrad::cuda
