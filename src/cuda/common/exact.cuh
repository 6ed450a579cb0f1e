// The definition on the device: who wins a window, one output at a time, by every rule of the library.
//
// The generic kernels are loops over these functions, and the tiled kernels come here for the tiles whose values need
// the rules spelled out (a NaN, or a window of nothing but -inf), so that the two cannot disagree.
#pragma once

#include "cuda/common/geo.cuh"

namespace poolgrad::cuda {

// 1: v beats best; 0: they tie; -1: v loses. rules.h's Compare.
template <class V>
__device__ int StandingOf(V v, V best, int nan_rule) {
  if constexpr (std::is_floating_point_v<V>) {
    const bool v_nan = v != v;
    const bool best_nan = best != best;
    if (v_nan || best_nan) {
      switch (nan_rule) {
        case POOLGRAD_NAN_PROPAGATE_LAST:
          return v_nan ? 1 : -1;
        case POOLGRAD_NAN_FIRST_PLACE:
        case POOLGRAD_NAN_IGNORE:
          return -1;
        case POOLGRAD_NAN_GREATER_EQUAL:
          return 1;
        default:
          return v_nan && !best_nan ? 1 : -1;
      }
    }
  }
  return v > best ? 1 : v == best ? 0 : -1;
}

// A position of the output: where its windows start, and where it lies in memory.
template <class I>
struct OutPlace {
  I n, c, at[3];
};

template <class I>
__device__ OutPlace<I> PlaceOfLine(const Geo<I>& g, I line, I at) {
  OutPlace<I> o;
  if (g.channels_last) {
    o.c = at;
    o.at[2] = line % g.axis[2].out;
    line /= g.axis[2].out;
  } else {
    o.at[2] = at;
  }
  o.at[1] = line % g.axis[1].out;
  line /= g.axis[1].out;
  o.at[0] = line % g.axis[0].out;
  line /= g.axis[0].out;
  if (!g.channels_last) {
    o.c = line % g.channels;
    line /= g.channels;
  }
  o.n = line;
  return o;
}

template <class I>
struct Taps {
  I begin[3], end[3];
};

template <class I>
__device__ Taps<I> ValidTaps(const Geo<I>& g, const OutPlace<I>& o) {
  Taps<I> t;
  for (int i = 0; i < 3; ++i) g.axis[i].taps(o.at[i], 0, g.axis[i].in, &t.begin[i], &t.end[i]);
  return t;
}

// visit(tap, offset of the input from its plane's first element); returning false ends the walk.
template <class I, class Visit>
__device__ void ForEachTap(const Geo<I>& g, const OutPlace<I>& o, Visit&& visit) {
  const Taps<I> t = ValidTaps(g, o);
  for (I kd = t.begin[0]; kd < t.end[0]; ++kd) {
    const I d = (g.axis[0].start(o.at[0]) + kd * g.axis[0].dilation) * g.x_axis[0];
    for (I kh = t.begin[1]; kh < t.end[1]; ++kh) {
      const I h = d + (g.axis[1].start(o.at[1]) + kh * g.axis[1].dilation) * g.x_axis[1];
      const I row = (kd * g.axis[1].kernel + kh) * g.axis[2].kernel;
      for (I kw = t.begin[2]; kw < t.end[2]; ++kw) {
        if (!visit(row + kw, h + (g.axis[2].start(o.at[2]) + kw * g.axis[2].dilation) * g.x_axis[2])) return;
      }
    }
  }
}

// Runs output o's window over x. Writes its mask (zeroed first) when there is one; returns its code.
template <class T, class I>
__device__ uint32_t Select(const Geo<I>& g, const T* x, const OutPlace<I>& o, T* winner, uint8_t* mask) {
  using V = Wide<T>;
  const T* plane = x + o.n * g.x_n + o.c * g.x_c;
  if (mask) {
    for (I b = 0; b < g.mask_bytes; ++b) mask[b] = 0;
  }
  *winner = LowestOf<T>();
  V best = Widened(*winner);
  bool started = std::is_floating_point_v<V> && g.nan == POOLGRAD_NAN_IGNORE;
  uint32_t code = g.none;
  ForEachTap(g, o, [&](I tap, I offset) {
    const T bits = plane[offset];
    const V v = Widened(bits);
    const int standing = started ? StandingOf(v, best, g.nan) : 1;
    started = true;
    if (standing < 0) return true;
    if (standing == 0 && g.masks) {
      if (mask) mask[tap >> 3] = static_cast<uint8_t>(mask[tap >> 3] | 1u << (tap & 7));
      return true;
    }
    if (standing == 0 && g.ties == POOLGRAD_TIES_FIRST) return true;
    *winner = bits;
    best = v;
    code = static_cast<uint32_t>(tap);
    if (mask) {
      for (I b = 0; b < g.mask_bytes; ++b) mask[b] = 0;
      mask[tap >> 3] = static_cast<uint8_t>(1u << (tap & 7));
    }
    return true;
  });
  return code;
}

// The same for one output of a tiled kernel (ties go to the first, no masks), whose plane begins at `plane`: its value
// goes to y unless that is null, its code is returned. A call of its own that needs few registers: what is rare must
// not cost every thread of a tiled kernel its occupancy.
template <class T>
__device__ uint32_t SelectAlone(const Geo<int64_t>& g, const T* plane, int od, int oh, int ow, T* y) {
  const int at[] = {od, oh, ow};
  int start[3], begin[3], end[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {  // places, not taps
    const int dilation = static_cast<int>(g.axis[i].dilation), in = static_cast<int>(g.axis[i].in);
    start[i] = at[i] * static_cast<int>(g.axis[i].stride) - static_cast<int>(g.axis[i].pad_lo);
    begin[i] = start[i];
    while (begin[i] < 0) begin[i] += dilation;
    end[i] = min(in, start[i] + static_cast<int>(g.axis[i].kernel) * dilation);
  }
  T winner = LowestOf<T>();
  Wide<T> best = Widened(winner);
  bool started = std::is_floating_point_v<Wide<T>> && g.nan == POOLGRAD_NAN_IGNORE;
  uint32_t code = g.none;
#pragma unroll 1
  for (int d = begin[0]; d < end[0]; d += static_cast<int>(g.axis[0].dilation)) {
#pragma unroll 1
    for (int h = begin[1]; h < end[1]; h += static_cast<int>(g.axis[1].dilation)) {
      const T* row = plane + d * g.x_axis[0] + h * g.x_axis[1];
#pragma unroll 1
      for (int w = begin[2]; w < end[2]; w += static_cast<int>(g.axis[2].dilation)) {
        const T bits = row[w * g.x_axis[2]];
        const Wide<T> v = Widened(bits);
        if (started && StandingOf(v, best, g.nan) <= 0) continue;
        started = true;
        winner = bits, best = v;
        const int kd = (d - start[0]) / static_cast<int>(g.axis[0].dilation);
        const int kh = (h - start[1]) / static_cast<int>(g.axis[1].dilation);
        const int kw = (w - start[2]) / static_cast<int>(g.axis[2].dilation);
        code = (kd * static_cast<uint32_t>(g.axis[1].kernel) + kh) * static_cast<uint32_t>(g.axis[2].kernel) + kw;
      }
    }
  }
  if (g.relu && !(best > Wide<T>{0}) && best == best) winner = T{}, code = g.none;
  if (y) *y = winner;
  return code & g.none;
}

// Outputs [at, at + count) of route line `line`: values to y and, when routes is not null, routes. `at` begins a byte
// of the line and `count` ends one (or the line), so the caller owns every byte written. y may be null.
template <class T, class I>
__device__ void SelectRun(const Geo<I>& g, const T* x, T* y, uint8_t* routes, I line, I at, I count) {
  uint8_t* bytes = routes ? routes + line * g.line_bytes : nullptr;
  uint32_t gathered = 0;
  for (I i = 0; i < count; ++i) {
    const OutPlace<I> o = PlaceOfLine(g, line, at + i);
    T winner;
    uint8_t* mask = bytes && g.masks ? bytes + (at + i) * g.mask_bytes : nullptr;
    const uint32_t code = Select(g, x, o, &winner, mask);
    if (y) y[line * g.line + at + i] = winner;
    if (!bytes || g.masks) continue;
    if (g.bits >= 8) {
      const int size = g.bits / 8;
      for (int b = 0; b < size; ++b) bytes[(at + i) * size + b] = static_cast<uint8_t>(code >> (8 * b));
    } else {
      const int per_byte = 8 / g.bits;
      const int slot = static_cast<int>((at + i) % per_byte);
      gathered |= (code & g.none) << (slot * g.bits);
      if (slot == per_byte - 1 || i == count - 1) {
        bytes[(at + i) / per_byte] = static_cast<uint8_t>(gathered);
        gathered = 0;
      }
    }
  }
}

}  // namespace poolgrad::cuda
