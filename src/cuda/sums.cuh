// Backward from routes for any window, type and layout: sums in shared memory, made in the order of the outputs.
//
// Every output adds its dy to one input, so adding costs the same for every window, however large: what a gather would
// look for under each input is found by looking at each output once. A warp owns a tile of inputs, whose sums it holds
// in shared memory, and goes through the rows of outputs that reach the tile, 128 outputs at a time. No warp waits for
// another, and no sum depends on timing.
//
// In a row of outputs an input wins a run of neighbours (those whose window has it and nothing greater), and only one.
// So the first of each run adds all of it, in order, and no two lanes add to the same input. Routes that nobody's
// maxima made may say otherwise; where they do, lanes take turns.
//
// Axes are (march, middle, width), whatever they are in the problem. Along the first the sums are a ring: what no later
// output reaches is written and its place cleared. 2-D problems march down the height, several planes at once where
// rows are short, or, where planes are single rows, through the planes; 3-D problems march along the depth.
#pragma once

#include "cuda/axes.cuh"
#include "cuda/device.cuh"
#include "cuda/packs.cuh"
#include "cuda/tuning.h"
#include "cuda/words.cuh"

namespace poolgrad::cuda {

// Outputs of a row that a warp does at once, and of those a lane.
inline constexpr int kSumsLane = 4, kSumsRow = 32 * kSumsLane;

template <class T>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<double> {
  using Type = double;
};

template <class S>
struct alignas(2 * sizeof(S)) Addend {
  int to;  // which sum; -1: none
  S value;
};
// Behind the sums of a warp, of `word` bytes each: its outputs, what ends the runs among them, and where runs begin.
__host__ __device__ constexpr int64_t SumsRowBytes(int64_t word) { return 3 * kSumsRow * 2 * word + kSumsRow; }
static_assert(sizeof(Addend<float>) == 8 && sizeof(Addend<double>) == 16);

template <class T>
struct SumsParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  WindowAxis axis[3];  // march, middle, width
  int64_t planes, y_plane, x_plane, route_plane;
  int64_t y_step[2], x_step[2], route_step[2];  // along march and middle; of routes in bytes
  int column;                                   // elements from a place to the next
  int route_column_bits;
  int bits, channels;  // channels: elements at one place
  uint32_t taps;
  int tile_p, tile_m, tile_b, tile_w, tile_c;  // planes and inputs of a tile
  int ring;                                    // of slices along the march
  int block;                                   // sums of one plane of a slice, and what keeps the next one aligned
  int wide;                                    // outputs of a row, of each plane, that are done at once
  int apart;                                   // of those, from one to the next that may have the same winner
  bool contiguous;                             // a row of the tile is one run of dx
  bool merged;                                 // so is a slice of a plane
  bool vector;                                 // they can be written 16 bytes at a time
  FastDiv by_channels, by_wide, by_vectors_c;
  FastDiv tiles_c, tiles_w, tiles_b, tiles_m;
  int64_t jobs;
  int warps;  // of a block
};

// kWide: codes of more than 8 bits.
template <class T, bool kWide>
struct Sums {
  using S = typename SumOf<T>::Type;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));

  struct Tile {
    T* dx;  // of the first plane
    S* sums;
    int first[3], last[3];  // inputs
    int planes, c, channels;
    int lane;
  };

  __device__ static void StoreVector(T* to, const S* from) {
    if constexpr (std::is_same_v<T, double>) {
      *reinterpret_cast<double2*>(to) = *reinterpret_cast<const double2*>(from);
    } else {
      float value[kVector];
#pragma unroll
      for (int i = 0; i < kVector / 4; ++i) {
        const float4 four = reinterpret_cast<const float4*>(from)[i];
        value[4 * i] = four.x, value[4 * i + 1] = four.y, value[4 * i + 2] = four.z, value[4 * i + 3] = four.w;
      }
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = NarrowWord<T>(value + i * (4 / sizeof(T)));
      StoreResult<true, 16>(to, words);
    }
  }
  __device__ static void ClearVector(S* at) {
#pragma unroll
    for (int i = 0; i < kVector * static_cast<int>(sizeof(S)) / 16; ++i) {
      reinterpret_cast<uint4*>(at)[i] = make_uint4(0, 0, 0, 0);
    }
  }

  // Writes input slice m of the tile, which is place `slot` of the ring, and clears it.
  __device__ static void Flush(const SumsParams<T>& p, const Tile& t, int m, int slot) {
    __syncwarp();
    const int height = t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    const int rows = p.merged ? 1 : height, count = (p.merged ? height : 1) * width * p.tile_c;
    S* slice = t.sums + slot * p.tile_p * p.block;
    T* to = t.dx + m * p.x_step[0] + t.first[1] * p.x_step[1] + static_cast<int64_t>(t.first[2]) * p.column + t.c;
    for (int plane = 0; plane < t.planes; ++plane, slice += p.block, to += p.x_plane) {
      for (int b = 0; b < rows; ++b) {
        S* from = slice + b * p.tile_w * p.tile_c;
        T* row = to + b * p.x_step[1];
        if (p.vector) {
#pragma unroll 2
          for (int i = t.lane; i < count / kVector; i += 32) {
            int64_t at = i * kVector;
            bool valid = true;
            if (!p.contiguous) {
              uint32_t c = static_cast<uint32_t>(i);
              const uint32_t w = p.by_vectors_c.take(&c);
              at = static_cast<int64_t>(w) * p.column + c * kVector;
              valid = static_cast<int>(c) * kVector < t.channels;
            }
            if (valid) StoreVector(row + at, from + i * kVector);
            ClearVector(from + i * kVector);
          }
        } else {
#pragma unroll 4
          for (int i = t.lane; i < count; i += 32) {
            int64_t at = i;
            bool valid = true;
            if (!p.contiguous) {
              uint32_t c = static_cast<uint32_t>(i);
              const uint32_t w = p.by_channels.take(&c);
              at = static_cast<int64_t>(w) * p.column + c;
              valid = static_cast<int>(c) < t.channels;
            }
            if (valid) row[at] = Narrowed<T>(from[i]);
            from[i] = 0;
          }
        }
      }
    }
    __syncwarp();
  }

  // Adds the run that begins with output `first` of the row. What lies behind the row has no sum of its own.
  __device__ static void AddRun(const SumsParams<T>& p, S* sums, const Addend<S>* row, int first) {
    const Addend<S>* at = row + first;
    const int to = at->to;
    S sum = sums[to] + at->value;
    if (p.apart <= 32 && TakeMore<4>(p, &at, to, &sum)) {
      while (TakeMore<8>(p, &at, to, &sum)) {
      }
    }
    sums[to] = sum;
  }

  // Up to kCount more of a run; whether it may go on.
  template <int kCount>
  __device__ static bool TakeMore(const SumsParams<T>& p, const Addend<S>** at, int to, S* sum) {
    Addend<S> next[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) next[i] = (*at)[(i + 1) * p.apart];
    bool more = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      more = more && next[i].to == to;
      if (more) *sum += next[i].value;
    }
    *at += kCount * p.apart;
    return more;
  }

  // Adds a row: what it adds, and where, is of each lane kSumsLane outputs, each 32 from the next.
  __device__ static void AddRow(const SumsParams<T>& p, const Tile& t, const int (&to)[kSumsLane],
                                const S (&value)[kSumsLane], Addend<S>* row, uint8_t* heads) {
    const uint32_t before = (1u << t.lane) - 1u;
    int count = 0;
#pragma unroll
    for (int k = 0; k < kSumsLane; ++k) {
      const int e = 32 * k + t.lane;
      row[e] = {to[k], value[k]};
      int left = __shfl_sync(~0u, to[k], t.lane - p.apart & 31);
      const int left_before = k > 0 ? __shfl_sync(~0u, to[k > 0 ? k - 1 : 0], t.lane - p.apart & 31) : -1;
      left = t.lane >= p.apart ? left : left_before;
      const bool begins = to[k] >= 0 && (p.apart > 32 || to[k] != left);
      const uint32_t all = __ballot_sync(~0u, begins);
      if (begins) heads[count + __popc(all & before)] = static_cast<uint8_t>(e);
      count += __popc(all);
    }
    __syncwarp();
    for (int begin = 0; begin < count; begin += 32) {
      const bool active = begin + t.lane < count;
      const int first = active ? heads[begin + t.lane] : 0;
      const uint32_t same = __match_any_sync(~0u, active ? row[first].to : -1 - t.lane);
      if (!__any_sync(~0u, same & ~(1u << t.lane))) {
        if (active) AddRun(p, t.sums, row, first);
        __syncwarp();
      } else {
        for (int turn = 0; turn < 32; ++turn) {
          if (active && turn == t.lane) AddRun(p, t.sums, row, first);
          __syncwarp();
        }
      }
    }
    __syncwarp();
  }

  // The bytes of a code.
  __device__ static uint32_t LoadCode(const SumsParams<T>& p, bool valid, const uint8_t* at) {
    uint32_t code = 0;
    LoadWordsIf<1>(valid, at, &code);
    if constexpr (kWide) {
      uint32_t high = 0;
      LoadWordsIf<1>(valid, at + 1, &high);
      code |= high << 8;
      if (valid && p.bits == 32) code |= uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
    }
    return code;
  }

  // What a lane does of a row: which columns, and where they lie in memory, from the first of those done at once.
  struct Lane {
    int dy[kSumsLane], route[kSumsLane];
    int column[kSumsLane];  // beyond any: none
    int place[kSumsLane];   // of its plane and channel among the sums of a slice
    int shift[kSumsLane];
  };

  __device__ static Lane LaneOf(const SumsParams<T>& p, const Tile& t, int begin) {
    Lane my;
#pragma unroll
    for (int k = 0; k < kSumsLane; ++k) {
      uint32_t c = static_cast<uint32_t>(32 * k + t.lane);
      uint32_t column = p.by_channels.take(&c);
      const int plane = static_cast<int>(p.by_wide.take(&column)), ow = begin + static_cast<int>(column);
      my.column[k] = plane < t.planes && static_cast<int>(c) < t.channels ? static_cast<int>(column) : 1 << 28;
      my.dy[k] = static_cast<int>(plane * p.y_plane) + ow * p.column + t.c + static_cast<int>(c);
      const int64_t bit = static_cast<int64_t>(ow) * p.route_column_bits + (t.c + static_cast<int64_t>(c)) * p.bits;
      my.route[k] = static_cast<int>(plane * p.route_plane + (bit >> 3));
      my.shift[k] = static_cast<int>(bit & 7);
      my.place[k] = plane * p.block + static_cast<int>(c);
    }
    return my;
  }

  __device__ static void Run(const SumsParams<T>& p, int64_t job, int lane, unsigned char* shared) {
    Tile t;
    t.lane = lane, t.sums = reinterpret_cast<S*>(shared);
    uint32_t group = static_cast<uint32_t>(job), c = group, w, b, m;
    group = p.tiles_c.take(&c);
    w = group, group = p.tiles_w.take(&w);
    b = group, group = p.tiles_b.take(&b);
    m = group, group = p.tiles_m.take(&m);
    const int tile[] = {p.tile_m, p.tile_b, p.tile_w};
    const uint32_t number[] = {m, b, w};
    int begin[3], end[3];  // outputs
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      t.first[i] = static_cast<int>(number[i]) * tile[i];
      t.last[i] = min(t.first[i] + tile[i], p.axis[i].in);
      p.axis[i].covering(t.first[i], t.last[i], &begin[i], &end[i]);
    }
    const int64_t plane = static_cast<int64_t>(group) * p.tile_p;
    t.planes = static_cast<int>(min(static_cast<int64_t>(p.tile_p), p.planes - plane));
    t.c = static_cast<int>(c) * p.tile_c;
    t.channels = min(p.tile_c, p.channels - t.c);
    t.dx = p.dx + plane * p.x_plane;
    const int sums = p.ring * p.tile_p * p.block;
    for (int i = lane; i < sums; i += 32) t.sums[i] = 0;
    auto* row = reinterpret_cast<Addend<S>*>(t.sums + sums);
    auto* heads = reinterpret_cast<uint8_t*>(row + 3 * kSumsRow);
    for (int i = lane; i < 2 * kSumsRow; i += 32) row[kSumsRow + i].to = -2;
    __syncwarp();

    const T* dy = p.dy + plane * p.y_plane;
    const uint8_t* routes = p.routes + plane * p.route_plane;
    const Lane my = LaneOf(p, t, begin[2]);
    const int columns = end[2] - begin[2], start_w = p.axis[2].start(begin[2]) - t.first[2];
    const int height = t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    int flushed = t.first[0], oldest = 0;  // the first slice that is not written, and its place in the ring
    const bool any = begin[0] < end[0] && begin[1] < end[1] && columns > 0;
    int om = any ? begin[0] : end[0], ob = begin[1], ow = 0;  // the outputs loaded last, ow from the tile's first
    const T* march = dy + om * p.y_step[0];
    const uint8_t* march_codes = routes + om * p.route_step[0];
    uint32_t loaded[kSumsLane][sizeof(T) == 8 ? 2 : 1], code[kSumsLane];
    const auto load = [&] {
      const T* from = march + ob * p.y_step[1] + ow * p.column;
      const uint8_t* codes = march_codes + ob * p.route_step[1] + (static_cast<int64_t>(ow) * p.route_column_bits >> 3);
#pragma unroll
      for (int k = 0; k < kSumsLane; ++k) {
        const bool valid = my.column[k] < columns - ow;
        for (uint32_t& word : loaded[k]) word = 0;
        LoadWordsIf<sizeof(T)>(valid, from + my.dy[k], loaded[k]);
        code[k] = LoadCode(p, valid, codes + my.route[k]);
      }
    };
    if (any) load();
    int slot = (p.axis[0].start(om) - t.first[0]) % p.ring;  // of start(om) in the ring
    if (slot < 0) slot += p.ring;
    while (true) {
      const int start_m = p.axis[0].start(om), start_b = p.axis[1].start(ob) - t.first[1];
      const int start = start_w + ow * p.axis[2].stride;
      // No output from here on reaches less.
      for (const int done = om < end[0] ? min(start_m, t.last[0]) : t.last[0]; flushed < done; ++flushed) {
        Flush(p, t, flushed, oldest);
        oldest = oldest + 1 == p.ring ? 0 : oldest + 1;
      }
      if (om >= end[0]) return;
      int to[kSumsLane];
      S value[kSumsLane];
#pragma unroll
      for (int k = 0; k < kSumsLane; ++k) {
        T bits;
        memcpy(&bits, loaded[k], sizeof(T));
        value[k] = static_cast<S>(Widened(bits));
        const uint32_t tap = kWide ? code[k] : code[k] >> my.shift[k] & ((1u << p.bits) - 1u);
        uint32_t kw = tap, kb = 0, km = p.axis[2].by_kernel.take(&kw);
        if (p.axis[1].kernel > 1) kb = km, km = p.axis[1].by_kernel.take(&kb);
        const int along = static_cast<int>(km) * p.axis[0].dilation;
        const int im = start_m + along, ib = start_b + static_cast<int>(kb) * p.axis[1].dilation;
        const int iw = start + my.column[k] * p.axis[2].stride + static_cast<int>(kw) * p.axis[2].dilation;
        int place = slot + along;
        if (place >= p.ring) place -= p.ring;
        if (place >= p.ring) place %= p.ring;  // an axis shorter than the window
        const bool lands = my.column[k] < columns - ow && tap < p.taps && im >= t.first[0] && im < t.last[0] &&
                           static_cast<unsigned>(ib) < static_cast<unsigned>(height) &&
                           static_cast<unsigned>(iw) < static_cast<unsigned>(width);
        to[k] = lands ? place * p.tile_p * p.block + (ib * p.tile_w + iw) * p.tile_c + my.place[k] : -1;
      }
      ow += p.wide;
      if (ow >= columns) {
        ow = 0;
        if (++ob >= end[1]) {
          ob = begin[1], ++om;
          march += p.y_step[0], march_codes += p.route_step[0];
          slot += p.axis[0].stride;
          if (slot >= p.ring) slot %= p.ring;
        }
      }
      if (om < end[0]) load();
      AddRow(p, t, to, value, row, heads);
    }
  }
};

template <class T, bool kWide>
__global__ void __launch_bounds__(128, kSumsBlocks) SumsKernel(const __grid_constant__ SumsParams<T> p) {
  extern __shared__ __align__(16) unsigned char sums_shared[];
  using K = Sums<T, kWide>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * p.warps + warp;
  if (job >= p.jobs) return;
  const int64_t bytes =
      int64_t{p.ring} * p.tile_p * p.block * sizeof(typename K::S) + SumsRowBytes(sizeof(typename K::S));
  K::Run(p, job, static_cast<int>(threadIdx.x) % 32, sums_shared + warp * bytes);
}

}  // namespace poolgrad::cuda
