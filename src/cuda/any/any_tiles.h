// The tiles of the kernels for any window: what a block or a warp does, chosen by counting what is done twice.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/any/sums.cuh"
#include "cuda/common/axes.cuh"
#include "cuda/common/tuning.h"
#include "cuda/fast.h"

namespace poolgrad::cuda {

// How many outputs lie over an input, along the width and in all.
struct Covers {
  explicit Covers(const Problem& p) : width(WindowAxis(p.axis[2]).most_covers()) {
    all = width * WindowAxis(p.axis[1]).most_covers() * WindowAxis(p.axis[0]).most_covers();
  }
  int64_t width, all;
};

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

  // So many lanes that no byte of codes is shared with others.
  int64_t Whole(int64_t lanes) const { return CeilDiv(lanes, per_byte) * per_byte; }
  int64_t Padded(int64_t n) const { return n <= 2 ? n : Whole(n); }
};

// Threads that have `each` outputs of a column of their own (apart.cuh).
inline int64_t ApartThreads(const WindowAxis (&axis)[3], const RowsShape& shape, int64_t each) {
  const int64_t columns = shape.last ? axis[2].out : shape.Whole(axis[2].out);
  return columns * shape.Padded(shape.units) * CeilDiv(axis[1].out, each) * axis[0].out * shape.planes;
}

// Of single elements, outputs that a thread has at once: fewer where what it reads for each lies far from what its
// neighbours read.
inline int64_t ApartAtOnce(const WindowAxis (&axis)[3], int64_t planes) {
  const int64_t between = axis[2].stride * planes;
  return between >= kApartFar[1] ? 1 : between >= kApartFar[0] ? 2 : kApartAtOnce;
}

// Whether windows share so few rows of inputs that a thread may as well reduce all that its own have, there are threads
// enough, and what they read beside one another stays in the L1 until all of it was asked for.
inline bool RunsApart(const WindowAxis (&axis)[3], const RowsShape& shape, int64_t each, int64_t planes, bool routes) {
  double shared = 1;
  for (int i = 0; i < 2; ++i) {
    if (axis[i].out > 1) shared *= static_cast<double>(axis[i].kernel) / axis[i].per_output;
  }
  return shared <= kApartShared[routes] && ApartThreads(axis, shape, each) >= apart_fewest &&
         std::min<int64_t>(each, axis[1].out) * planes * axis[2].stride <= kApartReach;
}

inline RowsTile ChooseRowsTile(const WindowAxis (&axis)[3], const RowsShape& shape) {
  RowsTile best;
  int64_t most_units = shape.vectors ? 8 : 32;  // a sector or more of neighbouring channels, or all of them
  int64_t bytes_most = kRowsBytes;
  while (true) {
    const int64_t units = !shape.last ? 1 : EqualPart(shape.units, most_units, shape.vectors ? 1 : 4);
    const int64_t padded_units = shape.last ? shape.Padded(units) : 1;
    double least = 1e30;
    for (int64_t most_w = std::max<int64_t>(1, (shape.vectors ? 128 : kRowsThreads) / padded_units);;) {
      const int64_t w = EqualPart(axis[2].out, most_w, 4);
      const int64_t line = shape.last ? w * padded_units : shape.Whole(w);
      for (int64_t try_d = axis[0].out == 1 ? 1 : 8; try_d >= 1 && line <= kRowsThreads; try_d /= 2) {
        const int64_t d = EqualPart(axis[0].out, try_d, 1);
        const auto bytes = [&](int64_t h) { return axis[0].reach(d) * axis[1].reach(h) * shape.word * line; };
        const int64_t unit = shape.at_once;
        int64_t h = CeilDiv(std::min<int64_t>(axis[1].out, 128), unit) * unit;
        while (h > unit && bytes(h) > bytes_most) h -= unit;
        if (bytes(h) > bytes_most) continue;
        h = CeilDiv(CeilDiv(axis[1].out, CeilDiv(axis[1].out, h)), unit) * unit;
        // Rows are reduced again where tiles meet, and places read again; threads without a row wait, and a last tile
        // that is not full takes as long as the others.
        const double again = static_cast<double>(axis[0].reach(d) * axis[1].reach(h)) / static_cast<double>(d * h) *
                             static_cast<double>(axis[2].reach(w) + (shape.vectors ? 0 : 4)) / static_cast<double>(w);
        const int64_t groups = kRowsThreads / line;
        const double busy =
            static_cast<double>(groups * w * units) / static_cast<double>(CeilDiv(groups * line, 32) * 32);
        const auto full = [](int64_t out, int64_t part) {
          return static_cast<double>(out) / static_cast<double>(CeilDiv(out, part) * part);
        };
        const double price = again / (busy * full(axis[2].out, w) * full(axis[1].out, h) * full(axis[0].out, d));
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

// Most outputs that reach over a run of `inputs`.
inline int64_t MostCovering(const WindowAxis& a, int64_t inputs) {
  return std::min<int64_t>(a.out, (inputs + a.extent() - 2) / a.stride + 1);
}

// Lanes of `span` columns each over a run of inputs; where it is all of the axis, those from the first window's start
// on.
inline int64_t LanesOver(const WindowAxis& a, int64_t inputs, int64_t span) {
  if (inputs < a.in) return (inputs + span - 2) / span + 1;
  const int64_t start = CeilDiv(std::max(0, a.pad - a.extent() + 1), int64_t{a.stride}) * a.stride - a.pad;
  const int64_t before = start > 0 ? CeilDiv(start, span) * span - start : -start % span;
  return (inputs - 1 + before) / span + 1;
}

// Warps that a multiprocessor holds, in `blocks` blocks at most.
inline int64_t WarpsHeld(const SumsForm& f, int64_t word, int64_t blocks) {
  return std::min((220 << 10) / SumsBytes(f, word), kSumsThreads / 32 * blocks);
}

// Of the pitches that leave most of the warps, the one by which lanes meet least in banks of shared memory: those that
// write neighbouring inputs, and those that add, each in any phase of its own place of the line.
inline int ChoosePitch(SumsForm f, int64_t word) {
  const int64_t warps = WarpsHeld(f, word, f.blocks),
                fewest = std::max((4 * warps + 4) / 5, std::min<int64_t>(warps, 12));
  const int span = SpanOf(f), turns = TurnsOf(f), shortest = f.pitch;
  int best = shortest;
  for (int least = 1 << 30; f.pitch < shortest + 32 && WarpsHeld(f, word, f.blocks) >= fewest; ++f.pitch) {
    int banks[32] = {}, meeting = 0;
    for (int i = 0; i < 32; ++i) {
      const int column = i / f.channels, slot = column / span * f.channels + i % f.channels;
      meeting = std::max(meeting, ++banks[(column % span * f.pitch + slot) % 32]);
    }
    const int adding = f.pitch % 32 == 0 ? 8 : 8 + 32 / turns;  // of eight turns, about
    const int price = (8 * meeting * InputsOf(f) * f.rows + 32 * adding * f.each * turns) / 32;
    if (price < least) least = price, best = f.pitch;
  }
  return best;
}

// What sums cost a warp, about: instructions, and what it waits, in the instructions that others may issue meanwhile.
// Of a slice of outputs along the march, and of one of inputs that is written.
struct SumsCost {
  double out, out_wait, in, in_wait;
  SumsCost(const SumsForm& f, const WindowAxis (&a)[3], int64_t channels, bool known) {
    const auto goes =
        static_cast<double>(CeilDiv(MostCovering(a[2], f.columns), f.each * f.groups) * MostCovering(a[1], f.rows));
    const double adds = TurnsOf(f) * f.each, writes = static_cast<double>(CeilDiv(InputsOf(f), 32));
    const SumsPrices& price = kSumsPrices[known];
    // Lines of memory that a warp asks for at once, where its lanes' columns lie far apart.
    const bool apart = channels > int64_t{f.channels} * f.vector;
    const double lines = kSumsLineCost * (apart ? static_cast<double>(CeilDiv(32, f.channels)) : 4);
    const int loads = f.vector == 1 && f.bits > 8 ? 3 : 2;
    out = goes * f.each * (price.output * f.vector + lines * loads);
    in = writes * f.rows * (price.write * f.vector + lines);
    const double longer = 1 + kSumsVectorWait * (f.vector - 1);
    out_wait = goes * (price.load_wait + price.add_wait * adds * longer);
    in_wait = writes * price.write_wait * longer;
  }
};

// A form, warps of a block, and inputs along the march that each of them does.
struct SumsShares {
  SumsForm form{};
  int64_t warps = 0, tile_m = 0;
  double time = 1e30;
};

// The march is cut into as many parts as end soonest: all but the first begin with outputs that are their neighbours',
// too, and the last to be done wait as long, however few they are.
inline SumsShares ShareSums(const SumsForm& f, const SumsAxes& axes, int64_t channels, int64_t word, bool known) {
  SumsShares s;
  s.form = f;
  const WindowAxis(&a)[3] = axes.axis;
  const WindowAxis& march = a[0];
  const int64_t bytes = SumsBytes(f, word);
  // Warps that a multiprocessor holds when a block has so many of them.
  const auto held = [&](int64_t warps) {
    return std::min(kSumsThreads / 32 * int64_t{f.blocks} / warps, kSharedMost / (bytes * warps + 1024)) * warps;
  };
  s.warps = held(4) >= std::max(held(2), held(1)) ? 4 : held(2) >= held(1) ? 2 : 1;
  const auto warps = static_cast<double>(held(s.warps));
  if (warps == 0) return s;
  const SumsCost cost(f, a, channels, known);
  const auto others =
      static_cast<double>(CeilDiv(channels, int64_t{f.channels} * f.vector) * CeilDiv(a[2].in, f.columns) *
                          CeilDiv(a[1].in, f.rows) * CeilDiv(axes.planes, f.planes));
  const double at_once = warps * static_cast<double>(std::max<int64_t>(1, enough_threads / 4096));
  const int64_t most_parts = std::max<int64_t>(1, march.in / march.extent());
  for (int64_t rounds = 1, before = 0; rounds <= 8; ++rounds) {
    const auto fill = static_cast<int64_t>(static_cast<double>(rounds) * at_once / others);
    const int64_t tile = CeilDiv(march.in, std::clamp<int64_t>(fill, 1, most_parts)), parts = CeilDiv(march.in, tile);
    if (parts == before) continue;
    before = parts;
    const int64_t middle = parts / 2 * tile;
    int begin, end;
    march.covering(static_cast<int>(middle), static_cast<int>(std::min<int64_t>(middle + tile, march.in)), &begin,
                   &end);
    const double outs = std::max(0, end - begin), ins = static_cast<double>(tile),
                 jobs = others * static_cast<double>(parts) / at_once;
    const double time = warps * (outs * cost.out + ins * cost.in) * jobs +
                        (outs * cost.out_wait + ins * cost.in_wait) * std::ceil(jobs);
    if (time < s.time) s.time = time, s.tile_m = tile;
  }
  return s;
}

// The tile that ends soonest, for sums of `word` bytes; none if its `planes` are 0.
inline SumsShares ChooseSums(const SumsAxes& axes, bool last, int64_t channels, int bits, int64_t word, bool known) {
  SumsShares best;
  SumsForm f{};
  const WindowAxis* a = axes.axis;
  for (int i = 0; i < 3; ++i) f.kernel[i] = a[i].kernel, f.stride[i] = a[i].stride, f.dilation[i] = a[i].dilation;
  f.bits = bits, f.last = last, f.flat = a[1].in == 1 && a[1].out == 1 && a[1].kernel == 1 && a[1].pad == 0;
  f.ring = std::min(a[0].extent(), a[0].in);
  // `goes`: that a row of the tile takes, at most.
  const auto consider = [&](int64_t c, int64_t rows, int64_t goes) {
    const int64_t groups = 32 / c, span = SpanOf(f), at_once = groups * f.each;
    if (span < 2 || (a[2].extent() + span) * span >= int64_t{1} << 32) return;  // BySpan
    if (a[2].out <= (goes - 2) * at_once) return;  // fewer are enough; one more leaves a warp a plane of its own
    const int64_t most = (goes * at_once - 1) * a[2].stride - a[2].extent() + 2;
    const bool whole = a[2].out <= goes * at_once;
    if (!whole && most < 4) return;
    const int64_t unit = last || most < 8 ? 1 : 8;  // for whole sectors of rows
    const int64_t w = whole ? a[2].in : EqualPart(a[2].in, most / unit * unit, unit);
    const int64_t out_w = MostCovering(a[2], w), lanes = CeilDiv(out_w, f.each), line = LanesOver(a[2], w, span);
    const bool alone = !whole || goes > 1 || std::max(axes.x_plane, axes.y_plane) > 1 << 20;
    const int64_t planes = alone ? 1 : std::clamp<int64_t>(groups / lanes, 1, axes.planes);
    f.planes = static_cast<int>(planes), f.rows = static_cast<int>(rows), f.columns = static_cast<int>(w);
    f.channels = static_cast<int>(c);
    f.groups = static_cast<int>(planes > 1 ? lanes : groups), f.once = lanes <= f.groups;
    f.line = static_cast<int>(line), f.pitch = static_cast<int>(planes * line * c);
    const int values = f.each * f.vector;
    const int64_t held = WarpsHeld(f, word,
                                   !known       ? kSumsBlocks
                                   : values > 8 ? kSumsKnownBlocks[2]
                                   : values > 4 ? kSumsKnownBlocks[1]
                                                : kSumsKnownBlocks[0]);
    if (held < 1) return;
    f.blocks = static_cast<int>(CeilDiv(held, kSumsThreads / 32));
    const auto improve = [&](const SumsForm& form) {
      SumsShares s = ShareSums(form, axes, channels, word, known);
      if (c * f.vector < std::min<int64_t>(channels, kSumsSector)) s.time *= kSumsPartMargin;
      return s.time < best.time * 0.99 ? s : SumsShares{};
    };
    if (improve(f).warps == 0) return;  // the pitch costs warps
    f.pitch = ChoosePitch(f, word);
    if (const SumsShares s = improve(f); s.warps > 0) best = s;
  };
  for (f.vector = 1; f.vector <= kSumsVector; f.vector *= kSumsVector) {
    if (f.vector > 1 && !(known && last && channels % f.vector == 0 && (bits == 8 || bits == 16))) break;
    const int64_t vectors = channels / f.vector, sector = kSumsSector / f.vector, fewest = f.vector > 1 ? sector : 4;
    for (int64_t try_c = 32; try_c >= std::min(fewest, vectors) || (try_c >= 1 && best.warps == 0); try_c /= 2) {
      if (try_c / 2 >= vectors) continue;  // all of them, as half as many are
      const int64_t c = EqualPart(vectors, try_c, std::min(try_c, sector));
      for (int64_t try_b = 128; try_b >= 1; try_b /= 2) {
        for (f.each = known && f.vector == 1 ? kSumsMost : kSumsEach; f.each >= 1; f.each /= known ? 2 : kSumsEach) {
          for (int64_t goes = 1; goes <= 8; ++goes) consider(c, EqualPart(a[1].in, try_b, 1), goes);
        }
        if (a[1].in == 1) break;
      }
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
