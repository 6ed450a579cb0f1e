// Backward from routes for any window, type and layout: sums in shared memory, made in the order of the outputs.
//
// Every output adds its dy to one input, so adding costs the same for every window, however large: what a gather would
// look for under each input is found by looking at each output once. A warp owns a tile of inputs, whose sums it holds
// in shared memory, and goes through the rows of outputs that reach the tile. No warp waits for another, and no sum
// depends on timing.
//
// A lane has some outputs of a row that are neighbours, and as many strides of columns of sums: its own, whose windows
// begin there; channels last it may have a vector of channels of each, whose sums lie apart and do not wait for one
// another, so that a warp has more columns. An output's target lies in its lane's columns or some lanes further on, as
// far as the window reaches. All targets that lie equally far, `turn` lanes, differ from lane to lane, whatever the
// codes say; and what a column is given comes from earlier outputs the farther it comes. So a row is added in turns,
// the farthest first: two for a window of 5, nine for one of 31. Columns lie phase by phase, so that lanes that add
// together never meet in a bank.
//
// Axes are (march, middle, width), whatever they are in the problem. Along the first the sums are a ring: what no later
// output reaches is written and its place cleared. 2-D problems march down the height, several planes at once where
// rows are short, or, where planes are single rows, through the planes; 3-D problems march along the depth.
//
// The window and the tile are numbers of a SumsForm: compiled ahead the kernel reads them from its parameters, compiled
// for a plan (compiled.h) they are constants.
#pragma once

#include "cuda/any/sums_form.h"
#include "cuda/common/axes.cuh"
#include "cuda/common/geo.cuh"
#include "cuda/common/packs.cuh"

namespace poolgrad::cuda {

struct SumsParams {
  const void* dy;
  const uint8_t* routes;
  void* dx;
  WindowAxis axis[3];  // march, middle, width
  int64_t planes, y_plane, x_plane, route_plane;
  int64_t y_step[2], x_step[2], route_step[2];  // along march and middle; of routes in bytes
  int channels;                                 // elements from a place to the next
  int route_column_bits;
  uint32_t taps;
  SumsForm form;
  FastDiv by_channels, by_groups, by_columns;
  uint32_t by_span;
  uint32_t by_bytes[2];  // codes of at most a byte by the window along the width, and those by that along the middle
  int tile_m;            // inputs of a tile along the march
  FastDiv tiles_c, tiles_w, tiles_b, tiles_m;
  int64_t jobs;
  int warps;  // of a block
};

// Bytes are divided by multiplying and dropping 16 bits.
__host__ __device__ constexpr uint32_t ByBytes(int divisor) {
  return static_cast<uint32_t>((65535 + divisor) / divisor);
}

// Columns of sums that are a lane's.
__host__ __device__ constexpr int SpanOf(const SumsForm& f) { return f.each * f.stride[2]; }
// So many lanes' columns an output may reach.
__host__ __device__ constexpr int TurnsOf(const SumsForm& f) {
  return ((f.each - 1) * f.stride[2] + (f.kernel[2] - 1) * f.dilation[2]) / SpanOf(f) + 1;
}
// Columns are divided by it by multiplying and dropping 32 bits: exact as long as no column times the span has more.
__host__ __device__ constexpr uint32_t BySpan(const SumsForm& f) {
  return static_cast<uint32_t>(((int64_t{1} << 32) + SpanOf(f) - 1) / SpanOf(f));
}

// Sums of a warp, of one channel of each vector; and bytes of all, `word` each.
__host__ __device__ constexpr int64_t SumsOf(const SumsForm& f) {
  return int64_t{f.ring} * f.rows * SpanOf(f) * f.pitch;
}
__host__ __device__ constexpr int64_t SumsBytes(const SumsForm& f, int64_t word) { return SumsOf(f) * f.vector * word; }

// Of a row of a slice.
__host__ __device__ constexpr int InputsOf(const SumsForm& f) { return f.planes * f.columns * f.channels; }

// kEach: neighbouring outputs of a lane, kVector: channels that it has of each. kWide, kFlat: whether codes have more
// than a byte, and whether the middle axis is one of a single input, or -1: the form says so. kPlaces: so many inputs
// of a slice are a lane's, and where they lie is found once; 0: every time.
template <class T, int kEach, int kVector, int kWide, int kFlat, int kPlaces>
struct Sums {
  using S = Wide<T>;
  static constexpr int kWords = static_cast<int>((kVector * sizeof(T) + 3) / 4);
  struct alignas(kVector * sizeof(T)) Channels {
    T of[kVector];
  };
  __device__ static bool IsWide(const SumsForm& f) { return kWide < 0 ? f.bits > 8 : kWide; }
  __device__ static bool IsFlat(const SumsForm& f) { return kFlat < 0 ? f.flat : kFlat; }

  struct Tile {
    T* dx;  // of the first plane
    S* sums;
    int first[3], last[3];  // inputs
    int planes, c, channels;
    int lane;
    int before;  // columns of a lane before the tile's first input
  };

  // Where an input of a slice lies: in the sums and in dx; behind the first row's in those of the others.
  struct Place {
    int sum, dx;
    bool valid;
  };

  // Of the slice's input i.
  __device__ __forceinline__ static Place PlaceOf(const SumsParams& p, const Tile& t, int i) {
    const SumsForm& f = p.form;
    uint32_t c = static_cast<uint32_t>(i), w = c, plane = 0;
    if (f.channels > 1) {
      w = p.by_channels.take(&c);
    } else {
      c = 0;
    }
    if (f.planes > 1) plane = p.by_columns.take(&w);
    const bool valid = static_cast<int>(w) < t.last[2] - t.first[2] &&
                       (f.planes == 1 || static_cast<int>(plane) < t.planes) &&
                       (!f.last || static_cast<int>(c) < t.channels);
    const uint32_t column = w + static_cast<uint32_t>(t.before), group = __umulhi(column, p.by_span);
    const uint32_t phase = column - group * SpanOf(f);
    return {static_cast<int>(phase * f.pitch + (plane * f.line + group) * f.channels + c),
            static_cast<int>((f.planes > 1 ? plane * p.x_plane : 0) + (w * p.channels + c * kVector)), valid};
  }

  // Writes input slice m of the tile, which is place `slot` of the ring, and clears it.
  __device__ __forceinline__ static void Flush(const SumsParams& p, const Tile& t, const Place (&places)[kPlaces + 1],
                                               int m, int slot) {
    __syncwarp();
    const SumsForm& f = p.form;
    const int height = IsFlat(f) ? 1 : t.last[1] - t.first[1], row = SpanOf(f) * f.pitch;
    T* slice = t.dx + m * p.x_step[0] + t.first[1] * p.x_step[1] + static_cast<int64_t>(t.first[2]) * p.channels + t.c;
    S* sums = t.sums + slot * f.rows * row;
    const auto write = [&](const Place& place) {
      S* sum = sums + place.sum;
      T* to = slice + place.dx;
#pragma unroll 4
      for (int b = 0; b < height; ++b, sum += row, to += p.x_step[1]) {
        if (!place.valid) continue;
        Channels all;
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          S& each = sum[v * SumsOf(f)];
          all.of[v] = Narrowed<T>(each), each = 0;
        }
        *reinterpret_cast<Channels*>(to) = all;
      }
    };
    if constexpr (kPlaces > 0) {
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) write(places[i]);
    } else {
      for (int i = t.lane; i < InputsOf(f); i += 32) write(PlaceOf(p, t, i));
    }
    __syncwarp();
  }

  // The bytes of a vector's codes, joined where they are looked at: who joins them waits for them.
  struct Codes {
    uint32_t words[kVector == 1 ? 2 : (2 * kVector + 3) / 4];
    __device__ __forceinline__ void Load(const SumsForm& f, bool valid, const uint8_t* at) {
      if constexpr (kVector > 1) {  // of one byte or of two, aligned
        for (uint32_t& word : words) word = 0;
        if (IsWide(f)) {
          LoadWordsIf<2 * kVector>(valid, at, words);
        } else {
          LoadWordsIf<kVector>(valid, at, words);
        }
      } else {
        words[0] = ~0u, words[1] = 0;
        LoadWordsIf<1>(valid, at, &words[0]);
        if (!IsWide(f)) return;
        LoadWordsIf<1>(valid, at + 1, &words[1]);
        if (valid && f.bits == 32) words[1] |= uint32_t{at[2]} << 8 | uint32_t{at[3]} << 16;
      }
    }
    __device__ __forceinline__ uint32_t joined(const SumsForm& f, int v) const {
      if constexpr (kVector == 1) return IsWide(f) ? words[0] | words[1] << 8 : words[0];
      return IsWide(f) ? words[v / 2] >> (v % 2 * 16) & 0xFFFFu : words[v / 4] >> (v % 4 * 8) & 0xFFu;
    }
  };

  // What a lane does of a row, and where it lies in memory, in the first of the goes.
  struct Lane {
    int column, columns;  // the first output's, and how many the row has; none where a lane is left over
    int slot;             // the lane's place in a phase of sums
    int dy, route[kEach], shift[kEach];
  };

  // shift: of the lanes' columns against those of the tile.
  __device__ __forceinline__ static Lane LaneOf(const SumsParams& p, const Tile& t, int begin, int columns, int shift) {
    const SumsForm& f = p.form;
    uint32_t c = static_cast<uint32_t>(t.lane);
    uint32_t group = p.by_channels.take(&c);
    const int plane = f.planes > 1 ? static_cast<int>(p.by_groups.take(&group)) : 0;
    const bool inside = f.planes > 1 ? plane < min(f.planes, t.planes) : static_cast<int>(group) < f.groups;
    const bool there = inside && (!f.last || static_cast<int>(c) < t.channels);
    Lane my;
    my.column = static_cast<int>(group) * kEach, my.columns = there ? columns : 0;
    const int ow = begin + my.column;
    my.slot = (plane * f.line + static_cast<int>(group) + shift) * f.channels + static_cast<int>(c);
    my.dy = static_cast<int>(plane * p.y_plane) + ow * p.channels + t.c + static_cast<int>(c) * kVector;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t bit =
          static_cast<int64_t>(ow + j) * p.route_column_bits + (t.c + static_cast<int64_t>(c) * kVector) * f.bits;
      my.route[j] = static_cast<int>(plane * p.route_plane + (bit >> 3));
      my.shift[j] = static_cast<int>(bit & 7);
    }
    return my;
  }

  __device__ __forceinline__ static void Run(const SumsParams& p, int64_t job, int lane, unsigned char* shared) {
    const SumsForm& f = p.form;
    Tile t;
    t.lane = lane, t.sums = reinterpret_cast<S*>(shared);
    uint32_t group = static_cast<uint32_t>(job), c = group, w, b, m;
    group = p.tiles_c.take(&c);
    w = group, group = p.tiles_w.take(&w);
    b = group, group = p.tiles_b.take(&b);
    m = group, group = p.tiles_m.take(&m);
    const int tile[] = {p.tile_m, f.rows, f.columns};
    const uint32_t number[] = {m, b, w};
    int begin[3], end[3];  // outputs
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      t.first[i] = static_cast<int>(number[i]) * tile[i];
      t.last[i] = min(t.first[i] + tile[i], p.axis[i].in);
      p.axis[i].covering(t.first[i], t.last[i], &begin[i], &end[i]);
    }
    const int64_t plane = static_cast<int64_t>(group) * f.planes;
    t.planes = static_cast<int>(min(static_cast<int64_t>(f.planes), p.planes - plane));
    t.c = static_cast<int>(c) * f.channels * kVector;
    t.channels = min(f.channels, (p.channels - t.c) / kVector);
    t.dx = static_cast<T*>(p.dx) + plane * p.x_plane;
    const int row = SpanOf(f) * f.pitch;
    for (int i = lane; i < SumsOf(f) * kVector; i += 32) t.sums[i] = 0;
    __syncwarp();

    const T* dy = static_cast<const T*>(p.dy) + plane * p.y_plane;
    const uint8_t* routes = p.routes + plane * p.route_plane;
    const int columns = end[2] - begin[2], start_w = p.axis[2].start(begin[2]) - t.first[2];
    const int span = SpanOf(f), shift = (start_w > 0 ? start_w + span - 1 : start_w) / span;  // rounded up
    t.before = shift * span - start_w;
    const Lane my = LaneOf(p, t, begin[2], columns, shift);
    Place places[kPlaces + 1];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      places[i] = PlaceOf(p, t, lane + 32 * i);
      if (lane + 32 * i >= InputsOf(f)) places[i].valid = false;
    }
    const int turns = TurnsOf(f);
    const int deep = t.last[0] - t.first[0], height = t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    int flushed = t.first[0], oldest = 0;  // the first slice that is not written, and its place in the ring
    const bool any = begin[0] < end[0] && begin[1] < end[1] && columns > 0;
    int om = any ? begin[0] : end[0], ob = IsFlat(f) ? 0 : begin[1],
        ow = 0;  // what is loaded, ow from the tile's first
    const T* march = dy + om * p.y_step[0];
    const uint8_t* march_codes = routes + om * p.route_step[0];
    const auto advance = [&] {
      ow += f.once ? 0 : kEach * f.groups;
      if (!f.once && ow < columns) return;
      ow = 0;
      if (!IsFlat(f) && ++ob < end[1]) return;
      ob = IsFlat(f) ? 0 : begin[1], ++om;
      march += p.y_step[0], march_codes += p.route_step[0];
    };
    uint32_t loaded[kEach][kWords];
    Codes code[kEach];
    const auto load = [&] {
      const T* from = march;
      const uint8_t* codes = march_codes;
      if (!IsFlat(f)) from += ob * p.y_step[1], codes += ob * p.route_step[1];
      if (!f.once) from += ow * p.channels, codes += static_cast<int64_t>(ow) * p.route_column_bits >> 3;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const bool valid = (om < end[0]) & (my.column + j < my.columns - (f.once ? 0 : ow));
        for (uint32_t& word : loaded[j]) word = 0;
        LoadWordsIf<sizeof(T) * kVector>(valid, from + (my.dy + j * p.channels), loaded[j]);
        code[j].Load(f, valid, codes + my.route[j]);  // single ones without an output: more than any
      }
    };
    load();
    while (true) {
      const int start_m = p.axis[0].start(om) - t.first[0], start_b = p.axis[1].start(ob) - t.first[1];
      const int start = start_w + (my.column + (f.once ? 0 : ow)) * p.axis[2].stride;
      // No output from here on reaches less.
      const int done = om < end[0] ? min(start_m + t.first[0], t.last[0]) : t.last[0];
      for (; flushed < done; ++flushed) {
        Flush(p, t, places, flushed, oldest);
        oldest = oldest + 1 == f.ring ? 0 : oldest + 1;
      }
      if (om >= end[0]) return;
      const int next = oldest + min(start_m, 0);     // the place of the window's first slice, if that is the tile's
      int turn[kEach][kVector], to[kEach][kVector];  // in turn -1: nowhere
      S value[kEach][kVector];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const bool there = my.column + j < my.columns - (f.once ? 0 : ow);
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          const uint32_t bytes = code[j].joined(f, v);
          const uint32_t tap = f.bits >= 8 ? bytes : bytes >> my.shift[j] & ((1u << f.bits) - 1u);
          uint32_t kb = 0, km = IsWide(f) ? p.axis[2].by_kernel.of(tap) : tap * p.by_bytes[1] >> 16;
          const uint32_t kw = tap - km * p.axis[2].kernel;
          if (!IsFlat(f)) {
            const uint32_t rows = km;
            km = IsWide(f) ? p.axis[1].by_kernel.of(rows) : rows * p.by_bytes[0] >> 16;
            kb = rows - km * p.axis[1].kernel;
          }
          const int along = static_cast<int>(km) * p.axis[0].dilation;
          const int ib = IsFlat(f) ? 0 : start_b + static_cast<int>(kb) * p.axis[1].dilation;
          const int right =
              j * p.axis[2].stride + static_cast<int>(kw) * p.axis[2].dilation;  // of the lane's first column
          const int place = next + along < f.ring ? next + along : next + along - f.ring;
          // All of it, always: a branch would keep a lane's outputs from overlapping.
          const bool lands = ((kVector == 1 && f.bits >= 8) | there) & (tap < p.taps) &
                             (static_cast<unsigned>(start_m + along) < static_cast<unsigned>(deep)) &
                             (IsFlat(f) | (static_cast<unsigned>(ib) < static_cast<unsigned>(height))) &
                             (static_cast<unsigned>(start + right) < static_cast<unsigned>(width));
          const int lanes = static_cast<int>(__umulhi(static_cast<uint32_t>(right), p.by_span));
          turn[j][v] = lands ? lanes : -1;
          to[j][v] = (place * f.rows + ib - lanes) * row + right * f.pitch + lanes * f.channels + my.slot +
                     (f.once ? 0 : ow / kEach * f.channels) + static_cast<int>(v * SumsOf(f));
          value[j][v] = ValueOf(loaded[j], v);
        }
      }
      advance(), load();
#pragma unroll 1
      for (int now = turns - 1; now >= 0; --now) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          S sum[kVector];  // of channels, which do not wait for one another
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            if (turn[j][v] == now) sum[v] = t.sums[to[j][v]];
          }
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            if (turn[j][v] == now) t.sums[to[j][v]] = sum[v] + value[j][v];
          }
        }
        __syncwarp();
      }
    }
  }

  // Of a vector's channel v.
  __device__ __forceinline__ static S ValueOf(const uint32_t (&words)[kWords], int v) {
    if constexpr (sizeof(T) == 8) {
      return __hiloint2double(static_cast<int>(words[1]), static_cast<int>(words[0]));
    } else if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[v]);
    } else {
      const uint32_t half = words[v / 2] >> (v % 2 * 16);
      if constexpr (std::is_same_v<T, __half>) return Widened(__ushort_as_half(static_cast<unsigned short>(half)));
      return __uint_as_float(half << 16);
    }
  }
};

template <class T, int kEach, int kVector = 1, int kWide = -1, int kFlat = -1, int kPlaces = 0>
__device__ __forceinline__ void RunSums(const SumsParams& p) {
  extern __shared__ __align__(16) unsigned char sums_shared[];
  const int warp = static_cast<int>(threadIdx.x / 32u), lane = static_cast<int>(threadIdx.x & 31u);
  const int64_t job = static_cast<int64_t>(blockIdx.x) * p.warps + warp;
  if (job >= p.jobs) return;
  Sums<T, kEach, kVector, kWide, kFlat, kPlaces>::Run(p, job, lane,
                                                      sums_shared + warp * SumsBytes(p.form, sizeof(Wide<T>)));
}

// The same where all of a form is known: `p` with constants in its place.
template <SumsForm kForm, int kAxis>
__device__ __forceinline__ void SetKnownWindow(WindowAxis* a) {
  constexpr WindowAxis known = WindowOf(kForm.kernel[kAxis], kForm.stride[kAxis], kForm.dilation[kAxis]);
  const int in = a->in, out = a->out, pad = a->pad;
  *a = known;
  a->in = in, a->out = out, a->pad = pad;
}

template <class T, SumsForm kForm>
__device__ __forceinline__ void RunSumsForm(const SumsParams& p) {
  SumsParams known = p;
  known.form = kForm;
  SetKnownWindow<kForm, 0>(&known.axis[0]), SetKnownWindow<kForm, 1>(&known.axis[1]);
  SetKnownWindow<kForm, 2>(&known.axis[2]);
  if (!kForm.last) known.channels = 1, known.route_column_bits = kForm.bits;
  if (kForm.flat) known.axis[1].in = known.axis[1].out = 1, known.axis[1].pad = 0;
  known.taps = kForm.kernel[0] * kForm.kernel[1] * kForm.kernel[2];
  constexpr FastDiv by_channels(kForm.channels), by_groups(kForm.groups), by_columns(kForm.columns);
  known.by_channels = by_channels, known.by_groups = by_groups, known.by_columns = by_columns;
  known.by_span = BySpan(kForm);
  known.by_bytes[1] = ByBytes(kForm.kernel[2]), known.by_bytes[0] = ByBytes(kForm.kernel[1]);
  constexpr int kPlaces = (InputsOf(kForm) + 31) / 32;
  constexpr int kRegisters = 3 * kPlaces + (2 + 4 * kForm.vector) * kForm.each;
  constexpr bool kKept = kForm.flat && kRegisters <= 384 / kForm.blocks;
  RunSums<T, kForm.each, kForm.vector, -1, -1, (kKept ? kPlaces : 0)>(known);
}

}  // namespace poolgrad::cuda
