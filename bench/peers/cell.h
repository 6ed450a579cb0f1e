// What a peer's driver is asked, one line on stdin, and what it answers, one line on stdout. bench/peers/run.py asks.
//
// The question: op dtype layout threads seconds sets batch channels rank, then for depth, height and width each:
// in out kernel stride pad_lo pad_hi dilation (unused leading axes are 1 1 1 1 0 0 1). pad_hi is what makes `out`
// exact. The answer: median milliseconds and spread, or `no` and the reason. Buffers are rotated through `sets` copies.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "timing.h"

namespace peers {

struct Axis {
  int64_t in, out, kernel, stride, pad_lo, pad_hi, dilation;
};

struct Cell {
  std::string op, dtype, layout;
  int threads;
  double seconds;
  int64_t sets, batch, channels;
  int rank;
  Axis axis[3];

  int64_t x_elements() const { return batch * channels * axis[0].in * axis[1].in * axis[2].in; }
  int64_t y_elements() const { return batch * channels * axis[0].out * axis[1].out * axis[2].out; }
};

inline bool Read(const std::string& line, Cell& cell) {
  std::istringstream words(line);
  words >> cell.op >> cell.dtype >> cell.layout >> cell.threads >> cell.seconds >> cell.sets >> cell.batch >>
      cell.channels >> cell.rank;
  for (Axis& a : cell.axis) words >> a.in >> a.out >> a.kernel >> a.stride >> a.pad_lo >> a.pad_hi >> a.dilation;
  return !words.fail();
}

inline std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::minstd_rand random(1);
  for (float& v : values) v = static_cast<float>(random() >> 8) * 0x1p-22f - 1;
  return values;
}

// Answers every question on stdin by measure(cell), which throws std::runtime_error where the peer cannot.
template <class MeasureCell>
int Serve(MeasureCell measure) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      Cell cell;
      if (!Read(line, cell)) throw std::runtime_error("the question is not understood");
      const poolgrad::cli::Timing timing = measure(cell);
      std::printf("%.6f %.4f\n", timing.ms, timing.spread);
    } catch (const std::exception& error) {
      std::string reason = error.what();
      for (char& c : reason) c = c == '\n' ? ' ' : c;
      std::printf("no %s\n", reason.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace peers
