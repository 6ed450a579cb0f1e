// Backward from routes for any window, type and layout: sums in shared memory, made in the order of the outputs.
//
// Every output adds its dy to one input, so adding costs the same for every window, however large: what a gather would
// look for under each input is found by looking at each output once. A warp owns a tile of inputs, whose sums it holds
// in shared memory, and goes through the rows of outputs that reach the tile, 96 to 224 outputs at a time. No warp
// waits for another, and no sum depends on timing.
//
// In a row of outputs an input wins a run of neighbours (those whose window has it and nothing greater), and only one.
// So a list of runs is made, each lane adds all of one, in order, and no two lanes add to the same input. The winners'
// columns ascend from run to run (two windows that both have two columns agree on the better one); sums lie column by
// column, so that one comparison with the run before shows that all differ. Routes that nobody's maxima made may say
// otherwise; where they do, lanes take turns.
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
  FastDiv by_channels, by_wide, by_columns;
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

// Behind the sums of a warp, `word` bytes each: the outputs of a row (where they add, and what), and where runs begin.
__host__ __device__ constexpr int64_t SumsBytes(const SumsForm& f, int64_t word) {
  const int64_t sums = int64_t{f.planes} * f.channels * f.line, row = 32 * f.each;
  return ((sums * word + 15) / 16 * 16 + (row + 8) * (word + 4) + row + 16 + 15) / 16 * 16;
}

// kEach: outputs of a row that a lane does.
template <class T, int kEach>
struct Sums {
  using S = Wide<T>;
  static constexpr int kRow = 32 * kEach;

  struct Tile {
    T* dx;  // of the first plane
    S* sums;
    int first[3], last[3];  // inputs
    int planes, c, channels;
    int lane;
  };

  // A row, line by line: at to[i] the sum that its i-th output adds to (-1: none), at to[-1] what no output has.
  struct Row {
    int* to;
    S* value;
    uint8_t* heads;  // where runs begin
  };

  // Writes input slice m of the tile, which is place `slot` of the ring, and clears it.
  __device__ __forceinline__ static void Flush(const SumsParams& p, const Tile& t, int m, int slot) {
    __syncwarp();
    const SumsForm& f = p.form;
    const int height = f.flat ? 1 : t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    T* to = t.dx + m * p.x_step[0] + t.first[1] * p.x_step[1] + static_cast<int64_t>(t.first[2]) * p.channels + t.c;
    S* slice = t.sums + slot * f.rows;
    for (int b = 0; b < height; ++b, ++slice, to += p.x_step[1]) {
#pragma unroll 4
      for (int i = t.lane; i < f.planes * f.columns * f.channels; i += 32) {
        uint32_t c = static_cast<uint32_t>(i), w = p.by_channels.take(&c);
        const uint32_t plane = f.planes > 1 ? p.by_columns.take(&w) : 0;
        S* sum = slice + (plane * f.channels + c) * f.line + w * f.pitch;
        const bool valid = static_cast<int>(w) < width && (f.planes == 1 || static_cast<int>(plane) < t.planes) &&
                           (!f.last || static_cast<int>(c) < t.channels);
        if (valid) to[(f.planes > 1 ? plane * p.x_plane : 0) + (w * p.channels + c)] = Narrowed<T>(*sum);
        *sum = 0;
      }
    }
    __syncwarp();
  }

  // Adds `count` outputs to one sum.
  __device__ __forceinline__ static void AddRun(S* to, const S* at, int count) {
    S sum = *to;
#pragma unroll 1
    for (int left = count; left > 0; left -= 4, at += 4) {
      S next[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) next[i] = at[i];
      sum += next[0];
#pragma unroll
      for (int i = 1; i < 4; ++i) sum = left > i ? sum + next[i] : sum;
    }
    *to = sum;
  }

  // Adds a row.
  __device__ __forceinline__ static void AddRow(const Tile& t, const Row& row) {
    const uint32_t before = (1u << t.lane) - 1u;
    uint32_t begins[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int at = 32 * k + t.lane;
      begins[k] = __ballot_sync(~0u, row.to[at] != row.to[at - 1]);
    }
    int count = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (begins[k] >> t.lane & 1u)
        row.heads[count + __popc(begins[k] & before)] = static_cast<uint8_t>(32 * k + t.lane);
      count += __popc(begins[k]);
    }
    if (t.lane == 0) row.heads[count] = kRow;
    __syncwarp();
    for (int begin = 0; begin < count; begin += 32) {
      int target = -1, first = 0, length = 0;
      if (begin + t.lane < count) {
        first = row.heads[begin + t.lane], length = row.heads[begin + t.lane + 1] - first;
        target = row.to[first];
      }
      const bool active = target >= 0;
      const uint32_t earlier = __ballot_sync(~0u, active) & before;
      const int left = __shfl_sync(~0u, target, 31 - __clz(static_cast<int>(earlier | 1u)));
      if (__all_sync(~0u, !active || earlier == 0 || target > left)) {
        if (active) AddRun(t.sums + target, row.value + first, length);
      } else {
        AddInTurns(t.sums, target, row.value + first, length, t.lane);
      }
      __syncwarp();
    }
  }

  // The same for runs of which two may add to one sum.
  __device__ __noinline__ static void AddInTurns(S* sums, int target, const S* at, int count, int lane) {
    const uint32_t same = __match_any_sync(~0u, target >= 0 ? target : -1 - lane);
    const bool apart = !__any_sync(~0u, same & ~(1u << lane));
    for (int turn = 0; turn < (apart ? 1 : 32); ++turn) {
      if (target >= 0 && (apart || turn == lane)) AddRun(sums + target, at, count);
      __syncwarp();
    }
  }

  // The bytes of a code.
  __device__ __forceinline__ static uint32_t LoadCode(const SumsForm& f, bool valid, const uint8_t* at) {
    uint32_t code = ~0u;
    LoadWordsIf<1>(valid, at, &code);
    if (f.bits > 8) {
      uint32_t high = 0;
      LoadWordsIf<1>(valid, at + 1, &high);
      code |= high << 8;
      if (valid && f.bits == 32) code |= uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
    }
    return code;
  }

  // What a lane does of a row: which columns, and where they lie in memory, from the first of those done at once.
  struct Lane {
    int dy[kEach], route[kEach];
    int column[kEach];    // beyond any: none
    int position[kEach];  // in the row, line by line; those with a tap on one input are neighbours
    int sum[kEach];       // of its line
    int shift[kEach];
  };

  __device__ __forceinline__ static Lane LaneOf(const SumsParams& p, const Tile& t, int begin) {
    const SumsForm& f = p.form;
    const int every = p.axis[2].every;
    Lane my;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      uint32_t c = static_cast<uint32_t>(32 * k + t.lane);
      uint32_t column = p.by_channels.take(&c);
      const int plane = f.planes > 1 ? static_cast<int>(p.by_wide.take(&column)) : 0;
      const int ow = begin + static_cast<int>(column);
      const bool inside = f.planes > 1 ? plane < f.planes : static_cast<int>(column) < f.wide;
      const bool there = inside && (f.planes == 1 || plane < t.planes) && (!f.last || static_cast<int>(c) < t.channels);
      const int line = plane * f.channels + static_cast<int>(c), phase = static_cast<int>(column) % every;
      my.column[k] = there ? static_cast<int>(column) : 1 << 28;
      my.position[k] = inside ? line * f.wide + phase * (f.wide / every) + min(phase, f.wide % every) +
                                    static_cast<int>(column) / every
                              : 32 * k + t.lane;
      my.sum[k] = line * f.line;
      my.dy[k] = static_cast<int>(plane * p.y_plane) + ow * p.channels + t.c + static_cast<int>(c);
      const int64_t bit = static_cast<int64_t>(ow) * p.route_column_bits + (t.c + static_cast<int64_t>(c)) * f.bits;
      my.route[k] = static_cast<int>(plane * p.route_plane + (bit >> 3));
      my.shift[k] = static_cast<int>(bit & 7);
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
    t.c = static_cast<int>(c) * f.channels;
    t.channels = min(f.channels, p.channels - t.c);
    t.dx = static_cast<T*>(p.dx) + plane * p.x_plane;
    const int sums = f.planes * f.channels * f.line;
    for (int i = lane; i < sums; i += 32) t.sums[i] = 0;
    Row row;
    row.value = reinterpret_cast<S*>(shared + (sums * static_cast<int64_t>(sizeof(S)) + 15) / 16 * 16);
    row.to = reinterpret_cast<int*>(row.value + kRow + 8) + 8;
    row.heads = reinterpret_cast<uint8_t*>(row.to + kRow);
    if (lane == 0) row.to[-1] = -2;

    const T* dy = static_cast<const T*>(p.dy) + plane * p.y_plane;
    const uint8_t* routes = p.routes + plane * p.route_plane;
    const Lane my = LaneOf(p, t, begin[2]);
    const int columns = end[2] - begin[2], start_w = p.axis[2].start(begin[2]) - t.first[2];
    const int deep = t.last[0] - t.first[0], height = t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    int flushed = t.first[0], oldest = 0;  // the first slice that is not written, and its place in the ring
    const bool any = begin[0] < end[0] && begin[1] < end[1] && columns > 0;
    int om = any ? begin[0] : end[0], ob = f.flat ? 0 : begin[1], ow = 0;  // what is loaded, ow from the tile's first
    const T* march = dy + om * p.y_step[0];
    const uint8_t* march_codes = routes + om * p.route_step[0];
    uint32_t loaded[kEach][sizeof(T) == 8 ? 2 : 1], code[kEach];
    const auto load = [&] {
      const T* from = march;
      const uint8_t* codes = march_codes;
      if (!f.flat) from += ob * p.y_step[1], codes += ob * p.route_step[1];
      if (!f.once) from += ow * p.channels, codes += static_cast<int64_t>(ow) * p.route_column_bits >> 3;
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const bool valid = my.column[k] < columns - (f.once ? 0 : ow);
        for (uint32_t& word : loaded[k]) word = 0;
        LoadWordsIf<sizeof(T)>(valid, from + my.dy[k], loaded[k]);
        code[k] = LoadCode(f, valid, codes + my.route[k]);  // without one: more than any
      }
    };
    if (any) load();
    int slot = (p.axis[0].start(om) - t.first[0]) % f.ring;  // of start(om) in the ring
    if (slot < 0) slot += f.ring;
    while (true) {
      const int start_m = p.axis[0].start(om) - t.first[0], start_b = p.axis[1].start(ob) - t.first[1];
      const int start = f.once ? start_w : start_w + ow * p.axis[2].stride;
      // No output from here on reaches less.
      for (const int done = om < end[0] ? min(start_m + t.first[0], t.last[0]) : t.last[0]; flushed < done; ++flushed) {
        Flush(p, t, flushed, oldest);
        oldest = oldest + 1 == f.ring ? 0 : oldest + 1;
      }
      if (om >= end[0]) return;
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const uint32_t tap = f.bits >= 8 ? code[k] : code[k] >> my.shift[k] & ((1u << f.bits) - 1u);
        uint32_t kb = 0, km = f.bits > 8 ? p.axis[2].by_kernel.of(tap) : tap * p.by_bytes[1] >> 16;
        const uint32_t kw = tap - km * p.axis[2].kernel;
        if (!f.flat) {
          const uint32_t rows = km;
          km = f.bits > 8 ? p.axis[1].by_kernel.of(rows) : rows * p.by_bytes[0] >> 16;
          kb = rows - km * p.axis[1].kernel;
        }
        const int along = static_cast<int>(km) * p.axis[0].dilation;
        const int ib = f.flat ? 0 : start_b + static_cast<int>(kb) * p.axis[1].dilation;
        const int iw = start + my.column[k] * p.axis[2].stride + static_cast<int>(kw) * p.axis[2].dilation;
        int place = slot + along;
        if (place >= f.ring) place -= f.ring;
        if (f.ring < p.axis[0].extent() && place >= f.ring) place %= f.ring;  // an axis shorter than the window
        const bool lands = (f.bits >= 8 || my.column[k] < columns - ow) && tap < p.taps &&
                           static_cast<unsigned>(start_m + along) < static_cast<unsigned>(deep) &&
                           (f.flat || static_cast<unsigned>(ib) < static_cast<unsigned>(height)) &&
                           static_cast<unsigned>(iw) < static_cast<unsigned>(width);
        row.to[my.position[k]] = lands ? my.sum[k] + iw * f.pitch + place * f.rows + ib : -1;
        row.value[my.position[k]] = ValueOf(loaded[k]);
      }
      __syncwarp();
      ow += f.once ? 0 : f.wide;
      if (f.once || ow >= columns) {
        ow = 0;
        if (f.flat || ++ob >= end[1]) {
          ob = f.flat ? 0 : begin[1], ++om;
          march += p.y_step[0], march_codes += p.route_step[0];
          slot += p.axis[0].stride;
          if (slot >= f.ring) slot %= f.ring;
        }
      }
      if (om < end[0]) load();
      AddRow(t, row);
    }
  }

  __device__ __forceinline__ static S ValueOf(const uint32_t (&words)[sizeof(T) == 8 ? 2 : 1]) {
    if constexpr (sizeof(T) == 8) {
      return __hiloint2double(static_cast<int>(words[1]), static_cast<int>(words[0]));
    } else if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[0]);
    } else if constexpr (std::is_same_v<T, __half>) {
      return Widened(__ushort_as_half(static_cast<unsigned short>(words[0])));
    } else {
      return __uint_as_float(words[0] << 16);
    }
  }
};

template <class T, int kEach>
__device__ __forceinline__ void RunSums(const SumsParams& p) {
  extern __shared__ __align__(16) unsigned char sums_shared[];
  const int warp = static_cast<int>(threadIdx.x / 32u), lane = static_cast<int>(threadIdx.x & 31u);
  const int64_t job = static_cast<int64_t>(blockIdx.x) * p.warps + warp;
  if (job >= p.jobs) return;
  Sums<T, kEach>::Run(p, job, lane, sums_shared + warp * SumsBytes(p.form, sizeof(Wide<T>)));
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
  constexpr FastDiv by_channels(kForm.channels), by_wide(kForm.wide), by_columns(kForm.columns);
  known.by_channels = by_channels, known.by_wide = by_wide, known.by_columns = by_columns;
  known.by_bytes[1] = ByBytes(kForm.kernel[2]), known.by_bytes[0] = ByBytes(kForm.kernel[1]);
  RunSums<T, kForm.each>(known);
}

}  // namespace poolgrad::cuda
