// The tiles of the kernels for any window: what a block or a warp does, chosen by counting what is done twice.
#pragma once

#include <algorithm>

#include "cuda/axes.cuh"
#include "cuda/fast.h"
#include "cuda/sums.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

// `size` in about equal parts of at most `most`, each a multiple of `unit` unless it is all.
inline int64_t EqualPart(int64_t size, int64_t most, int64_t unit) {
  if (size <= most) return size;
  const int64_t part = CeilDiv(size, CeilDiv(size, most));
  return std::min(size, CeilDiv(part, unit) * unit);
}

// Planes of a single row become rows of a single plane, so that threads find several rows; or of two planes, where two
// are done at once: those meet in the middle, and an odd row there is done twice. False: the planes have more rows.
template <class Params>
bool RowsFromPlanes(const Problem& p, int64_t element, int64_t at_once, Params* s) {
  for (int i = 0; i < 2; ++i) {
    if (p.axis[i].in != 1 || p.axis[i].out != 1 || p.axis[i].pad_lo != 0) return false;
  }
  const int64_t rows = CeilDiv(s->planes, at_once), second = s->planes - rows;
  if (rows >= 1 << 28) return false;
  s->axis[1] = WindowAxis(Axis{.in = rows, .out = rows});
  s->x_row = static_cast<int>(s->x_plane * element), s->y_row = static_cast<int>(s->y_plane * element);
  s->route_row = static_cast<int>(s->route_plane);
  s->x_plane *= second, s->y_plane *= second, s->route_plane *= second;
  s->planes = at_once;
  return true;
}

// ---- forward ----

struct RowsTile {
  int64_t d = 1, h = 1, w = 1, units = 1, padded_units = 1, planes = 1;
  int64_t line = 1;  // threads of a row
  int64_t bytes = 0;
};

// What a tile of the kernel depends on, beside its window.
struct RowsShape {
  int64_t units, planes;
  bool vectors, last;
  int64_t word;      // bytes of shared memory for a unit of a reduced row
  int64_t per_byte;  // codes that lanes put into one byte; 1: none
  int64_t at_once;   // outputs along height that a thread does at once
};

inline RowsTile ChooseRowsTile(const WindowAxis (&axis)[3], const RowsShape& shape) {
  RowsTile best;
  int64_t most_units = shape.vectors ? 8 : 32;  // a sector or more of neighbouring channels, or all of them
  int64_t bytes_most = kRowsBytes;
  const auto padded = [&](int64_t n) { return n <= 2 ? n : CeilDiv(n, shape.per_byte) * shape.per_byte; };
  while (true) {
    const int64_t units = !shape.last ? 1 : EqualPart(shape.units, most_units, shape.vectors ? 1 : 4);
    const int64_t padded_units = shape.last ? padded(units) : 1;
    double least = 1e30;
    for (int64_t most_w = std::max<int64_t>(1, (shape.vectors ? 128 : kRowsThreads) / padded_units);;) {
      const int64_t w = EqualPart(axis[2].out, most_w, 4);
      const int64_t line = shape.last ? w * padded_units : CeilDiv(w, shape.per_byte) * shape.per_byte;
      for (int64_t try_d = axis[0].out == 1 ? 1 : 8; try_d >= 1 && line <= kRowsThreads; try_d /= 2) {
        const int64_t d = EqualPart(axis[0].out, try_d, 1);
        const auto bytes = [&](int64_t h) { return axis[0].reach(d) * axis[1].reach(h) * shape.word * line; };
        const int64_t unit = shape.at_once;
        int64_t h = CeilDiv(std::min<int64_t>(axis[1].out, 128), unit) * unit;
        while (h > unit && bytes(h) > bytes_most) h -= unit;
        if (bytes(h) > bytes_most) continue;
        h = CeilDiv(CeilDiv(axis[1].out, CeilDiv(axis[1].out, h)), unit) * unit;
        // Rows are reduced again where tiles meet, and places read again; threads without a row wait.
        const double again = static_cast<double>(axis[0].reach(d) * axis[1].reach(h)) / static_cast<double>(d * h) *
                             static_cast<double>(axis[2].reach(w) + (shape.vectors ? 0 : 4)) / static_cast<double>(w);
        const int64_t groups = kRowsThreads / line;
        const double busy =
            static_cast<double>(groups * w * units) / static_cast<double>(CeilDiv(groups * line, 32) * 32);
        const double price = again / busy;
        if (price >= least * 0.98) continue;
        least = price;
        best = {d, h, w, units, padded_units, 1, line, bytes(h)};
      }
      if (most_w == 1) break;
      most_w /= 2;
    }
    if (least < 1e30) break;
    if (bytes_most < kSeparableBytesMost) {
      bytes_most = kSeparableBytesMost;
    } else if (most_units > 4) {
      most_units /= 2;
    } else {
      return best;  // no tile fits
    }
  }
  if (best.d == axis[0].out && best.h >= axis[1].out && best.w == axis[2].out && best.units == shape.units) {
    // Small planes: several of them, as long as there are blocks enough.
    const int64_t enough = std::max<int64_t>(1, enough_threads / 512);
    best.planes = std::clamp<int64_t>(std::min(bytes_most / best.bytes, shape.planes / enough), 1, 64);
  }
  best.bytes *= best.planes;
  return best;
}

// ---- backward by summing ----

// The spatial axes as the kernel takes them, and what lies along them.
struct SumsAxes {
  WindowAxis axis[3];
  int64_t x_step[2], y_step[2], route_step[2];
  int64_t planes, x_plane, y_plane, route_plane;
};

struct SumsTile {
  int64_t p = 1, b = 1, w = 1, c = 1;
  int64_t wide = 1;   // outputs of a row, of each plane, at once
  int64_t apart = 1;  // of those, from one to the next that may have the same winner
  int64_t bytes = 0;  // of shared memory
  double price = 1e30;
};

// Most outputs that reach over a run of `inputs`.
inline int64_t MostCovering(const WindowAxis& a, int64_t inputs) {
  return std::min<int64_t>(a.out, (inputs + a.extent() - 2) / a.stride + 1);
}

inline SumsTile ChooseSumsTile(const SumsAxes& axes, int64_t channels, int64_t word) {
  SumsTile best;
  const WindowAxis* a = axes.axis;
  const int64_t ring = std::min<int64_t>(a[0].extent(), a[0].in);
  // At least a sector of neighbouring channels, or all.
  for (int64_t try_c = std::min<int64_t>(channels, 32); try_c >= 1 && (try_c >= 8 || best.bytes == 0); try_c /= 2) {
    SumsTile t;
    t.c = EqualPart(channels, try_c, try_c >= 8 ? 8 : 1);
    t.apart = a[2].every * t.c;
    if (t.apart > 32) {  // the next one with the same winner is too far to be looked for
      if (try_c > 1) continue;
      t.apart = kSumsRow;
    }
    for (int64_t try_b = 128; try_b >= 4; try_b /= 2) {
      t.b = EqualPart(a[1].in, try_b, 1);
      // Rows that are reached by as many outputs as are done at once, whatever their number; or longer ones.
      const int64_t at_once = kSumsRow / t.c;
      for (int64_t times = 1; times <= 8; ++times) {
        const int64_t most = (times * at_once - 1) * a[2].stride - a[2].extent() + 2;
        if (most < 4 && most < a[2].in) continue;
        t.w = most >= a[2].in ? a[2].in : EqualPart(a[2].in, most >= 8 ? most / 8 * 8 : most, most >= 8 ? 8 : 1);
        const int64_t out_w = MostCovering(a[2], t.w), out_b = MostCovering(a[1], t.b);
        t.p = t.w < a[2].in || times > 1 || axes.y_plane > 1 << 22
                  ? 1
                  : std::clamp<int64_t>(at_once / out_w, 1, axes.planes);
        t.wide = t.p > 1 ? out_w : std::min(out_w, at_once);
        t.bytes = (CeilDiv(t.b * t.w * t.c, 4) * 4 * ring * t.p) * word + SumsRowBytes(word);
        const double warps = std::min(16.0, 220.0 * 1024 / static_cast<double>(t.bytes));
        if (warps < 1) continue;
        // Rows at once, and the writing of inputs, for each input of a slice.
        const double inputs = static_cast<double>(t.p * t.b * t.w * t.c);
        const double rows = static_cast<double>(CeilDiv(out_w, t.wide) * out_b);
        t.price =
            (rows * 300 / inputs * a[0].out / a[0].in + 0.3 / std::min(1.0, static_cast<double>(t.w * t.c) / 32)) /
            std::min(1.0, warps / 12);
        if (t.price < best.price * 0.99) best = t;
        if (t.w == a[2].in) break;
      }
      if (a[1].in == 1) break;
    }
  }
  return best;
}

// ---- backward by gathering ----

struct GatherTile {
  int64_t d = 1, h = 1, w = 1, units = 1, planes = 1;
  int64_t bytes = 0;
};

// `unit_bytes`: of shared memory for a unit of outputs.
inline GatherTile ChooseGatherTile(const WindowAxis (&axis)[3], int64_t units, int64_t planes, bool last, bool vectors,
                                   int64_t unit_bytes) {
  GatherTile best;
  const int64_t tile_units = !last ? 1 : EqualPart(units, vectors ? 8 : 32, 1);
  double least = 1e30;
  for (int64_t most_w = std::max<int64_t>(1, (vectors ? 128 : kRowsThreads) / tile_units);; most_w /= 2) {
    const int64_t w = EqualPart(axis[2].in, most_w, vectors || last ? 1 : 8);
    const int64_t line = w * tile_units, out_line = MostCovering(axis[2], w) * tile_units;
    for (int64_t try_d = axis[0].in == 1 ? 1 : 8; try_d >= 1; try_d /= 2) {
      if (line > kRowsThreads || out_line > kRowsThreads) break;
      const int64_t d = EqualPart(axis[0].in, try_d, 1);
      const auto bytes = [&](int64_t h) {
        return MostCovering(axis[0], d) * MostCovering(axis[1], h) * out_line * unit_bytes;
      };
      int64_t h = std::min<int64_t>(axis[1].in, 128);
      while (h > 1 && bytes(h) > kGatherBytes) h = h > 8 ? h - 4 : h - 1;
      if (bytes(h) > kGatherBytes) continue;
      h = CeilDiv(axis[1].in, CeilDiv(axis[1].in, h));
      const double staged = static_cast<double>(bytes(h)) / static_cast<double>(unit_bytes * d * h * line);
      const int64_t groups = kRowsThreads / line;
      const double busy = static_cast<double>(groups * line) / static_cast<double>(CeilDiv(groups * line, 32) * 32);
      const double price = (staged + 0.7) / busy;
      if (price >= least * 0.98) continue;
      least = price;
      best = {d, h, w, tile_units, 1, bytes(h)};
    }
    if (most_w <= 1) break;
  }
  if (least < 1e30 && best.d == axis[0].in && best.h == axis[1].in && best.w == axis[2].in && tile_units == units) {
    const int64_t enough = std::max<int64_t>(1, enough_threads / 512);
    best.planes = std::clamp<int64_t>(std::min(kGatherBytes / best.bytes, planes / enough), 1, 64);
    best.bytes *= best.planes;
  }
  return best;
}

}  // namespace poolgrad::cuda
