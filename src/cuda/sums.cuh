// Backward from routes for any window, type and layout: sums in shared memory, made in the order of the outputs.
//
// Every output adds its dy to one input, so adding costs the same for every window, however large: what a gather would
// look for under each input is found by looking at each output once. A warp owns a tile of inputs, whose sums it holds
// in shared memory, and goes through the outputs that reach the tile in row-major order, 32 at a time, dy and codes
// straight from global memory. Lanes that add to the same input do so in the order of their lanes, which is the order
// of outputs. No warp waits for another, and no sum depends on timing.
//
// Axes are (march, middle, width), whatever they are in the problem. Along the first the sums are a ring: what no later
// output reaches is written and its place cleared. 2-D problems march down the height, or, where a whole plane is
// small, through the planes; 3-D problems march along the depth.
#pragma once

#include "cuda/axes.cuh"
#include "cuda/device.cuh"
#include "cuda/packs.cuh"
#include "cuda/tuning.h"
#include "cuda/words.cuh"

namespace poolgrad::cuda {

template <class T>
struct SumsParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  WindowAxis axis[3];  // march, middle, width
  int64_t y_plane, x_plane, route_plane;
  int64_t y_step[2], x_step[2], route_step[2];  // along march and middle; of routes in bytes
  int column;                                   // elements from a place to the next
  int route_column_bits;
  int bits, channels;  // channels: elements at one place
  uint32_t taps;
  int tile_m, tile_b, tile_w, tile_c;  // inputs of a tile
  int ring;                            // of slices along the march
  int slice;                           // sums of a slice, and what keeps the next one aligned
  int lanes_b, lanes_w;                // of outputs at once: lanes are (lanes_b, lanes_w, tile_c)
  bool contiguous;                     // a row of the tile is one run of dx
  bool merged;                         // so is a slice
  bool vector;                         // they can be written 16 bytes at a time
  FastDiv by_lanes_w, by_lanes_c, by_vectors_c;
  FastDiv tiles_c, tiles_w, tiles_b, tiles_m;
  int64_t jobs;
  int warps;  // of a block
};

template <class T>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<double> {
  using Type = double;
};

// kMeet: lanes may add to the same input. kWide: codes of more than 8 bits.
template <class T, bool kMeet, bool kWide>
struct Sums {
  using S = typename SumOf<T>::Type;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));

  struct Tile {
    T* dx;  // of the plane
    S* sums;
    int first[3], last[3];  // inputs
    int c, channels;
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

  // Writes input slices [flushed, upto) of the tile and clears them. A call of its own: it would be in every unrolled
  // step of the adding.
  __device__ __noinline__ static void Flush(const SumsParams<T>& p, Tile t, int flushed, int upto) {
    __syncwarp();
    const int height = t.last[1] - t.first[1], width = t.last[2] - t.first[2];
    for (int m = flushed; m < upto; ++m) {
      S* slice = t.sums + (m - t.first[0]) % p.ring * p.slice;
      T* to = t.dx + m * p.x_step[0] + t.first[1] * p.x_step[1] + static_cast<int64_t>(t.first[2]) * p.column + t.c;
      const int rows = p.merged ? 1 : height;
      const int count = (p.merged ? height : 1) * width * p.tile_c;
      for (int b = 0; b < rows; ++b) {
        S* from = slice + b * p.tile_w * p.tile_c;
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
            if (valid) StoreVector(to + at, from + i * kVector);
            ClearVector(from + i * kVector);
          }
        } else {
#pragma unroll 4
          for (int i = t.lane; i < count; i += 32) {
            int64_t at = i;
            bool valid = true;
            if (!p.contiguous) {
              uint32_t c = static_cast<uint32_t>(i);
              const uint32_t w = p.by_lanes_c.take(&c);
              at = static_cast<int64_t>(w) * p.column + c;
              valid = static_cast<int>(c) < t.channels;
            }
            if (valid) to[at] = Narrowed<T>(from[i]);
            from[i] = 0;
          }
        }
        to += p.x_step[1];
      }
    }
    __syncwarp();
  }

  // Adds `value` where `to` says, unless that is negative; lanes in order.
  __device__ static void Add(S* sums, int lane, int to, S value) {
    if constexpr (!kMeet) {
      if (to >= 0) sums[to] += value;
    } else {
      const uint32_t same = __match_any_sync(~0u, to);
      const bool leads = to >= 0 && (same & ((1u << lane) - 1u)) == 0;
      S sum = leads ? sums[to] + value : S{0};
      uint32_t rest = leads ? same & (same - 1u) : 0u;
      while (__any_sync(~0u, rest != 0)) {
        const S next = __shfl_sync(~0u, value, rest ? __ffs(static_cast<int>(rest)) - 1 : lane);
        if (rest) sum += next;
        rest &= rest - 1u;
      }
      if (leads) sums[to] = sum;
      __syncwarp();
    }
  }

  __device__ static uint32_t CodeAt(const SumsParams<T>& p, bool valid, const uint8_t* at, int shift) {
    uint32_t code = 0;
    if constexpr (kWide) {
      if (valid) {
        code = at[0] | uint32_t{at[1]} << 8;
        if (p.bits == 32) code |= uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
      }
    } else {
      LoadWordsIf<1>(valid, at, &code);
      code = code >> shift & ((1u << p.bits) - 1u);
    }
    return code;
  }

  __device__ static void Run(const SumsParams<T>& p, int64_t job, int lane, S* sums) {
    Tile t;
    t.lane = lane, t.sums = sums;
    uint32_t rest = static_cast<uint32_t>(job), c = rest, w, b, m;
    rest = p.tiles_c.take(&c);
    w = rest, rest = p.tiles_w.take(&w);
    b = rest, rest = p.tiles_b.take(&b);
    m = rest, rest = p.tiles_m.take(&m);
    const int tile[] = {p.tile_m, p.tile_b, p.tile_w};
    const uint32_t number[] = {m, b, w};
    int begin[3], end[3];  // outputs
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      t.first[i] = static_cast<int>(number[i]) * tile[i];
      t.last[i] = min(t.first[i] + tile[i], p.axis[i].in);
      p.axis[i].covering(t.first[i], t.last[i], &begin[i], &end[i]);
    }
    t.c = static_cast<int>(c) * p.tile_c;
    t.channels = min(p.tile_c, p.channels - t.c);
    t.dx = p.dx + rest * p.x_plane;
    for (int i = lane; i < p.ring * p.slice; i += 32) sums[i] = 0;
    __syncwarp();

    // This lane's place among the outputs that are done at once.
    uint32_t my_c = static_cast<uint32_t>(lane);
    uint32_t my_w = p.by_lanes_c.take(&my_c);
    const int my_b = static_cast<int>(p.by_lanes_w.take(&my_w));
    const bool active = my_b < p.lanes_b && static_cast<int>(my_c) < t.channels;
    const int64_t at_w = begin[2] + static_cast<int>(my_w), at_b = begin[1] + my_b;
    const T* dy = p.dy + rest * p.y_plane + at_w * p.column + t.c + my_c + at_b * p.y_step[1];
    const int64_t bit = at_w * p.route_column_bits + (t.c + static_cast<int>(my_c)) * p.bits;
    const uint8_t* routes = p.routes + rest * p.route_plane + at_b * p.route_step[1];
    const int place_c = static_cast<int>(my_c);

    int flushed = t.first[0];
    int om = begin[0], ob = 0, ow = 0;  // the outputs done next: ob and ow from the tile's first
    int slot = 0, slice_of = -1;        // the ring's place of input start(om)
    const int b_count = end[1] - begin[1], w_count = end[2] - begin[2];
    int64_t row = om * p.y_step[0], line = om * p.route_step[0];  // of (om, ob)
    while (om < end[0] && b_count > 0 && w_count > 0) {
      T value[kSumsAtOnce];
      uint32_t code[kSumsAtOnce];
      int at[kSumsAtOnce][3];
#pragma unroll
      for (int i = 0; i < kSumsAtOnce; ++i) {
        at[i][0] = om, at[i][1] = ob, at[i][2] = ow;
        const bool valid = active && om < end[0] && ob + my_b < b_count && ow + static_cast<int>(my_w) < w_count;
        const int64_t bits = bit + static_cast<int64_t>(ow) * p.route_column_bits;
        uint32_t words[sizeof(T) == 8 ? 2 : 1] = {};
        LoadWordsIf<sizeof(T)>(valid, dy + row + static_cast<int64_t>(ow) * p.column, words);
        memcpy(&value[i], words, sizeof(T));
        code[i] = CodeAt(p, valid, routes + line + (bits >> 3), static_cast<int>(bits & 7));
        if (!valid) code[i] = ~0u;
        ow += p.lanes_w;
        if (ow >= w_count) {
          ow = 0, ob += p.lanes_b;
          if (ob >= b_count) ob = 0, ++om;
          row = om * p.y_step[0] + ob * p.y_step[1], line = om * p.route_step[0] + ob * p.route_step[1];
        }
      }
      int to[kSumsAtOnce];
#pragma unroll
      for (int i = 0; i < kSumsAtOnce; ++i) {
        const int start = p.axis[0].start(at[i][0]);
        if (at[i][0] != slice_of) {
          slice_of = at[i][0];
          slot = (start - t.first[0]) % p.ring;
          if (slot < 0) slot += p.ring;
        }
        uint32_t kw = code[i], kb, km;
        kb = p.axis[2].by_kernel.take(&kw);
        km = p.axis[1].by_kernel.take(&kb);
        const int im = start + static_cast<int>(km) * p.axis[0].dilation;
        const int ib =
            p.axis[1].start(begin[1] + at[i][1] + my_b) + static_cast<int>(kb) * p.axis[1].dilation - t.first[1];
        const int iw = p.axis[2].start(begin[2] + at[i][2] + static_cast<int>(my_w)) +
                       static_cast<int>(kw) * p.axis[2].dilation - t.first[2];
        int place = slot + static_cast<int>(km) * p.axis[0].dilation;
        if (place >= p.ring) place -= p.ring;
        if (place >= p.ring) place %= p.ring;  // an axis shorter than the window
        const bool lands = code[i] < p.taps && im >= t.first[0] && im < t.last[0] &&
                           static_cast<unsigned>(ib) < static_cast<unsigned>(t.last[1] - t.first[1]) &&
                           static_cast<unsigned>(iw) < static_cast<unsigned>(t.last[2] - t.first[2]);
        to[i] = lands ? place * p.slice + (ib * p.tile_w + iw) * p.tile_c + place_c : -1;
      }
#pragma unroll
      for (int i = 0; i < kSumsAtOnce; ++i) {
        const int done =
            min(p.axis[0].start(min(at[i][0], end[0] - 1)), t.last[0]);  // no output from here on reaches less
        if (done > flushed) Flush(p, t, flushed, done), flushed = done;
        Add(sums, lane, to[i], static_cast<S>(Widened(value[i])));
      }
    }
    Flush(p, t, flushed, t.last[0]);
  }
};

template <class T, bool kMeet, bool kWide>
__global__ void __launch_bounds__(128) SumsKernel(const __grid_constant__ SumsParams<T> p) {
  extern __shared__ __align__(16) unsigned char sums_shared[];
  using K = Sums<T, kMeet, kWide>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * p.warps + warp;
  if (job >= p.jobs) return;
  K::Run(p, job, static_cast<int>(threadIdx.x) % 32,
         reinterpret_cast<typename K::S*>(sums_shared) + static_cast<int64_t>(warp) * p.ring * p.slice);
}

}  // namespace poolgrad::cuda
