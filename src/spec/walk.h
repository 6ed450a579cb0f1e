// Walking a problem one element at a time: memory order to place and back, the taps of a window, the windows over an
// input. For code that wants to be obvious rather than fast.
#pragma once

#include <cstdint>

#include "spec/problem.h"

namespace poolgrad {

// A place in a tensor: batch, channel, and a position on the three axes.
struct Place {
  int64_t n, c, at[3];
};

// Memory order <-> place, for the input (`in` sizes) or the output (`out` sizes) of a problem.
template <int64_t Axis::*Size>
Place PlaceOf(const Problem& p, int64_t index) {
  Place q{};
  const auto take = [&](int64_t size) {
    const int64_t at = index % size;
    index /= size;
    return at;
  };
  if (p.channels_last()) q.c = take(p.channels);
  for (int i = 2; i >= 0; --i) q.at[i] = take(p.axis[i].*Size);
  if (!p.channels_last()) q.c = take(p.channels);
  q.n = index;
  return q;
}

template <int64_t Axis::*Size>
int64_t IndexOf(const Problem& p, const Place& q) {
  int64_t index = q.n;
  if (!p.channels_last()) index = index * p.channels + q.c;
  for (int i = 0; i < 3; ++i) index = index * (p.axis[i].*Size) + q.at[i];
  if (p.channels_last()) index = index * p.channels + q.c;
  return index;
}

// Calls visit(tap, index into the input) for every valid tap of output o, in row-major order.
template <class Visit>
void ForEachTap(const Problem& p, const Place& o, Visit&& visit) {
  const Range d = p.axis[0].valid_taps(o.at[0]);
  const Range h = p.axis[1].valid_taps(o.at[1]);
  const Range w = p.axis[2].valid_taps(o.at[2]);
  for (int64_t kd = d.begin; kd < d.end; ++kd) {
    for (int64_t kh = h.begin; kh < h.end; ++kh) {
      for (int64_t kw = w.begin; kw < w.end; ++kw) {
        Place i{o.n, o.c, {}};
        const int64_t k[] = {kd, kh, kw};
        for (int a = 0; a < 3; ++a) i.at[a] = p.axis[a].start(o.at[a]) + k[a] * p.axis[a].dilation;
        visit((kd * p.axis[1].kernel + kh) * p.axis[2].kernel + kw, IndexOf<&Axis::in>(p, i));
      }
    }
  }
}

// Calls visit(output, tap) for every output that has a tap on input i, in row-major order of outputs.
template <class Visit>
void ForEachCover(const Problem& p, const Place& i, Visit&& visit) {
  const Range d = p.axis[0].covering(i.at[0]);
  const Range h = p.axis[1].covering(i.at[1]);
  const Range w = p.axis[2].covering(i.at[2]);
  for (int64_t od = d.begin; od < d.end; ++od) {
    for (int64_t oh = h.begin; oh < h.end; ++oh) {
      for (int64_t ow = w.begin; ow < w.end; ++ow) {
        const int64_t kd = p.axis[0].tap_at(od, i.at[0]);
        const int64_t kh = p.axis[1].tap_at(oh, i.at[1]);
        const int64_t kw = p.axis[2].tap_at(ow, i.at[2]);
        if (kd < 0 || kh < 0 || kw < 0) continue;
        const Place o{i.n, i.c, {od, oh, ow}};
        visit(o, (kd * p.axis[1].kernel + kh) * p.axis[2].kernel + kw);
      }
    }
  }
}

}  // namespace poolgrad
