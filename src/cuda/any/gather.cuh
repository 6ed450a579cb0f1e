// Backward from routes where few outputs reach an input, any window and layout: a gather from shared memory.
//
// A block owns a tile of inputs. dy and codes of the outputs that reach it are put side by side into shared memory
// once, whatever their width and alignment; then every input looks at the outputs with a tap on it, in row-major order,
// and adds those that chose it. A thread stays with one column, so that which outputs those are along the width, and by
// which taps, is found once. kCovers: at most so many along the width.
#pragma once

#include "cuda/common/axes.cuh"
#include "cuda/common/device.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/units.cuh"
#include "cuda/common/words.cuh"

namespace poolgrad::cuda {

template <class T>
struct GatherParams {
  const T* dy;
  const uint8_t* routes;
  T* dx;
  WindowAxis axis[3];
  int64_t planes;
  int64_t x_plane, x_depth, y_plane, y_depth;
  int64_t route_plane, route_depth;
  int x_row, y_row, route_row;       // bytes
  int threads, in_count, out_count;  // of a block, and groups of them that do a row each, of inputs and of outputs
  int column, route_column_bits, bits;
  int units;
  int tile[3];  // inputs
  int tile_planes, tile_units;
  int most[3];  // outputs that reach a tile, at most
  FastDiv by_units, by_in_line, by_out_line;
  int in_line, out_line;  // units of a row of the tile, and of the outputs that reach it
  FastDiv in_groups, out_groups;
  int in_sheets, out_sheets;
  FastDiv by_tile_h, by_most_d;
  FastDiv tiles_c, tiles_w, tiles_h, tiles_d;
};

template <class T, int kV, bool kPlanes, int kCovers>
struct Gather {
  using U = Unit<T, kV, kPlanes>;
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  static constexpr int kCount = kV * kPerWord;  // elements of a unit
  static constexpr int kPlanesAtOnce = kPlanes ? 2 : 1;
  static constexpr int kCodes = kCount == 1 ? 1 : kCount / 2;  // words, of two codes each unless there is only one
  static constexpr int kWords = kV + kCodes;
  static constexpr uint32_t kNoTap = 0x300;  // above every code

  // Sums of the elements of a unit; `word` of dy and of codes; `tap` as it is compared.
  __device__ static void Add(const uint32_t (&words)[kWords], uint32_t tap, float (&sum)[kCount]) {
    if constexpr (kCount == 1) {
      if (words[1] == tap) sum[0] = __fadd_rn(sum[0], __uint_as_float(words[0]));
    } else {
      float value[kCount];
#pragma unroll
      for (int v = 0; v < kV; ++v) WidenWord<T>(words[v], value + v * kPerWord);
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        AddWhereEqual<false>(words[kV + i], tap, value[2 * i], value[2 * i + 1], &sum[2 * i], &sum[2 * i + 1]);
      }
    }
  }
  __device__ static uint32_t Compared(int tap) {
    return kCount == 1 ? static_cast<uint32_t>(tap) : kCodeBias + static_cast<uint32_t>(tap) * 0x10001u;
  }

  struct Row;
  struct Tile {
    int64_t plane;
    int first[3];          // inputs
    int begin[3], end[3];  // outputs
    int unit;              // the first of the channels
    uint32_t* shared;
    const Row* table;
  };

  // A row of inputs: where it begins, the first outputs that reach it and their tap, and how many there are.
  struct Row {
    int64_t dx;  // bytes from the plane; negative: no such row
    int slot, tap, depths, heights;
  };

  __device__ static void MakeTable(const GatherParams<T>& p, const Tile& tile, Row* table) {
    for (int i = threadIdx.x; i < p.tile[0] * p.tile[1]; i += p.threads) {
      uint32_t row = static_cast<uint32_t>(i);
      const int d = tile.first[0] + static_cast<int>(p.by_tile_h.take(&row)), h = tile.first[1] + static_cast<int>(row);
      int first_d = 0, tap_d = 0, first_h = 0, tap_h = 0;
      Row r;
      r.depths = p.axis[0].covers(d, &first_d, &tap_d);
      r.heights = p.axis[1].covers(h, &first_h, &tap_h);
      r.slot = ((first_d - tile.begin[0]) * p.most[1] + first_h - tile.begin[1]) * p.out_line;
      r.tap = (tap_d * p.axis[1].kernel + tap_h) * p.axis[2].kernel;
      r.dx = d < p.axis[0].in && h < p.axis[1].in
                 ? d * p.x_depth * static_cast<int>(sizeof(T)) + static_cast<int64_t>(h) * p.x_row
                 : -1;
      table[i] = r;
    }
  }

  // dy and codes of a unit of outputs as they are kept. `to`: kWords.
  __device__ static void Fetch(const GatherParams<T>& p, const T* dy, const uint8_t* routes, int64_t bit, bool second,
                               uint32_t* to) {
    uint32_t words[kWords];
    if constexpr (kPlanes) {
      uint32_t low = 0, high = 0, low_code = 0, high_code = 0;
      LoadWordsIf<2>(true, dy, &low);
      LoadWordsIf<2>(second, dy + p.y_plane, &high);
      LoadWordsIf<1>(true, routes + (bit >> 3), &low_code);
      LoadWordsIf<1>(second, routes + p.route_plane + (bit >> 3), &high_code);
      const uint32_t mask = (1u << p.bits) - 1u, shift = static_cast<uint32_t>(bit & 7);
      words[0] = low | high << 16;
      words[1] = kCodeBias + (low_code >> shift & mask) + ((high_code >> shift & mask) << 16);
    } else if constexpr (kV == 1) {
      uint32_t code = 0;
      LoadWordsIf<4>(true, dy, words);
      LoadWordsIf<1>(true, routes + (bit >> 3), &code);
      words[1] = code >> (bit & 7) & ((1u << p.bits) - 1u);
    } else {
      LoadWordsIf<16>(true, dy, words);
      uint32_t codes[2] = {};  // one byte for each
      const uint8_t* from = routes + (bit >> 3);
      if (p.bits == 8) {
        LoadWordsIf<kCount>(true, from, codes);
      } else {
        uint32_t packed = 0;
        if (kCount * p.bits == 32) {
          LoadWordsIf<4>(true, from, &packed);
        } else if (kCount * p.bits == 16) {
          LoadWordsIf<2>(true, from, &packed);
        } else {
          LoadWordsIf<1>(true, from, &packed);
        }
        const uint32_t mask = (1u << p.bits) - 1u;
#pragma unroll
        for (int i = 0; i < kCount; ++i) codes[i / 4] |= (packed >> (i * p.bits) & mask) << (i % 4 * 8);
      }
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        words[kV + i] = __byte_perm(codes[i / 2], kCodeBias, i % 2 ? 0x5352 : 0x5150);
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) to[i] = words[i];
  }

  __device__ static int Slots(const GatherParams<T>& p) { return p.tile_planes * p.most[0] * p.most[1] * p.out_line; }

  // Where the words of slot i are: dy of all slots first, then codes, each aligned as it is read.
  __device__ static void Put(const GatherParams<T>& p, uint32_t* shared, int slot, const uint32_t (&words)[kWords]) {
    if constexpr (kV == 1) {
      reinterpret_cast<uint2*>(shared)[slot] = make_uint2(words[0], words[1]);
    } else {
      reinterpret_cast<uint4*>(shared)[slot] = make_uint4(words[0], words[1], words[2], words[3]);
      uint32_t* codes = shared + 4 * Slots(p);
      if constexpr (kCodes == 4) {
        reinterpret_cast<uint4*>(codes)[slot] = make_uint4(words[4], words[5], words[6], words[7]);
      } else {
        reinterpret_cast<uint2*>(codes)[slot] = make_uint2(words[4], words[5]);
      }
    }
  }
  __device__ static void Get(const uint32_t* shared, const uint32_t* codes, int slot, uint32_t (&words)[kWords]) {
    if constexpr (kV == 1) {
      const uint2 two = reinterpret_cast<const uint2*>(shared)[slot];
      words[0] = two.x, words[1] = two.y;
    } else {
      const uint4 dy = reinterpret_cast<const uint4*>(shared)[slot];
      words[0] = dy.x, words[1] = dy.y, words[2] = dy.z, words[3] = dy.w;
      if constexpr (kCodes == 4) {
        const uint4 code = reinterpret_cast<const uint4*>(codes)[slot];
        words[4] = code.x, words[5] = code.y, words[6] = code.z, words[7] = code.w;
      } else {
        const uint2 code = reinterpret_cast<const uint2*>(codes)[slot];
        words[4] = code.x, words[5] = code.y;
      }
    }
  }

  // All outputs that reach the tile into shared memory.
  __device__ static void Stage(const GatherParams<T>& p, const Tile& tile) {
    uint32_t unit = threadIdx.x, c;
    uint32_t group = p.by_out_line.take(&unit);
    c = unit;
    const int ow = tile.begin[2] + static_cast<int>(p.by_units.take(&c));
    const int channel = tile.unit + static_cast<int>(c);
    if (static_cast<int>(group) >= p.out_count || ow >= tile.end[2] || channel >= p.units) return;
    int sheet = static_cast<int>(p.out_groups.take(&group));
    if (sheet >= p.out_sheets) return;
    const int64_t bit =
        static_cast<int64_t>(ow) * p.route_column_bits + static_cast<int64_t>(channel) * U::kPlaceElements * p.bits;
    for (; sheet < p.tile_planes * p.most[0]; sheet += p.out_sheets) {
      uint32_t depth = static_cast<uint32_t>(sheet);
      const int64_t plane = tile.plane + static_cast<int64_t>(p.by_most_d.take(&depth)) * kPlanesAtOnce;
      const int od = tile.begin[0] + static_cast<int>(depth);
      if (plane >= p.planes) return;
      if (od >= tile.end[0]) continue;
      const char* dy = reinterpret_cast<const char*>(p.dy + plane * p.y_plane + od * p.y_depth +
                                                     static_cast<int64_t>(ow) * p.column + channel * U::kPlaceElements);
      const uint8_t* routes = p.routes + plane * p.route_plane + od * p.route_depth;
      const bool second = kPlanes && plane + 1 < p.planes;
      const int step = static_cast<int>(p.out_groups.divisor);
      constexpr int kAhead = 4;
      for (int row = static_cast<int>(group); row < tile.end[1] - tile.begin[1]; row += kAhead * step) {
        uint32_t words[kAhead][kWords];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int oh = tile.begin[1] + min(row + i * step, tile.end[1] - tile.begin[1] - 1);
          Fetch(p, reinterpret_cast<const T*>(dy + static_cast<int64_t>(oh) * p.y_row),
                routes + static_cast<int64_t>(oh) * p.route_row, bit, second, words[i]);
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (row + i * step >= tile.end[1] - tile.begin[1]) break;
          Put(p, tile.shared, (sheet * p.most[1] + row + i * step) * p.out_line + static_cast<int>(unit), words[i]);
        }
      }
    }
  }

  __device__ static void Inputs(const GatherParams<T>& p, const Tile& tile) {
    uint32_t unit = threadIdx.x, c;
    uint32_t group = p.by_in_line.take(&unit);
    c = unit;
    const int column = static_cast<int>(p.by_units.take(&c));
    const int w = tile.first[2] + column, channel = tile.unit + static_cast<int>(c);
    if (static_cast<int>(group) >= p.in_count || column >= p.tile[2] || w >= p.axis[2].in || channel >= p.units) return;
    int sheet = static_cast<int>(p.in_groups.take(&group));
    if (sheet >= p.in_sheets) return;
    // The outputs along the width: where they are, and their taps.
    int first_w = 0, tap_w = 0;
    const int count_w = p.axis[2].covers(w, &first_w, &tap_w);
    int at[kCovers], tap[kCovers];
#pragma unroll
    for (int j = 0; j < kCovers; ++j) {
      const bool there = j < count_w;
      const int ow = there ? first_w + j * p.axis[2].every - tile.begin[2] : 0;
      at[j] = ow * p.tile_units + static_cast<int>(c);
      tap[j] = there ? tap_w - j * p.axis[2].tap_step : static_cast<int>(kNoTap);
    }
    const uint32_t* codes = tile.shared + 4 * Slots(p);
    const int rows = p.tile[0] * p.tile[1], step = static_cast<int>(p.in_groups.divisor);
    const int slot_h = p.axis[1].every * p.out_line, slot_d = p.axis[0].every * p.most[1] * p.out_line;
    const int tap_h = p.axis[1].tap_step * p.axis[2].kernel;
    const int tap_d = p.axis[0].tap_step * p.axis[1].kernel * p.axis[2].kernel;
    for (; sheet < p.tile_planes; sheet += p.in_sheets) {
      const int64_t plane = tile.plane + sheet * kPlanesAtOnce;
      if (plane >= p.planes) return;
      char* dx = reinterpret_cast<char*>(p.dx + plane * p.x_plane + static_cast<int64_t>(w) * p.column +
                                         channel * U::kPlaceElements);
      const bool second = kPlanes && plane + 1 < p.planes;
      const int plane_slot = sheet * p.most[0] * p.most[1] * p.out_line;
      for (int row = static_cast<int>(group); row < rows; row += step) {
        const Row r = tile.table[row];
        if (r.dx < 0) continue;
        float sum[kCount] = {};
        int slot_of = plane_slot + r.slot, tap_of = r.tap;
#pragma unroll 1
        for (int i = count_w > 0 ? r.depths : 0; i > 0; --i) {
          int slot = slot_of, base = tap_of;
#pragma unroll 1
          for (int k = r.heights; k > 0; --k) {
            uint32_t words[kCovers][kWords];
#pragma unroll
            for (int j = 0; j < kCovers; ++j) Get(tile.shared, codes, slot + at[j], words[j]);
#pragma unroll
            for (int j = 0; j < kCovers; ++j) Add(words[j], Compared(base + tap[j]), sum);
            slot += slot_h;
            base -= tap_h;
          }
          slot_of += slot_d;
          tap_of -= tap_d;
        }
        T* to = reinterpret_cast<T*>(dx + r.dx);
        if constexpr (kPlanes) {
          to[0] = Narrowed<T>(sum[0]);
          if (second) to[p.x_plane] = Narrowed<T>(sum[1]);
        } else {
          uint32_t words[kV];
#pragma unroll
          for (int v = 0; v < kV; ++v) words[v] = NarrowWord<T>(sum + v * kPerWord);
          StoreResult<true, U::kPlaceBytes>(to, words);
        }
      }
    }
  }

  __device__ static void Run(const GatherParams<T>& p, uint32_t* shared) {
    Tile tile;
    tile.shared = shared;
    uint32_t rest = blockIdx.x, c = rest, w, h, d;
    rest = p.tiles_c.take(&c);
    w = rest, rest = p.tiles_w.take(&w);
    h = rest, rest = p.tiles_h.take(&h);
    d = rest, rest = p.tiles_d.take(&d);
    tile.plane = static_cast<int64_t>(rest) * p.tile_planes * kPlanesAtOnce;
    tile.unit = static_cast<int>(c) * p.tile_units;
    const uint32_t number[] = {d, h, w};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      tile.first[i] = static_cast<int>(number[i]) * p.tile[i];
      p.axis[i].covering(tile.first[i], min(tile.first[i] + p.tile[i], p.axis[i].in), &tile.begin[i], &tile.end[i]);
    }
    Row* table = reinterpret_cast<Row*>(shared + kWords * Slots(p) + (kWords * Slots(p) & 1));
    MakeTable(p, tile, table);
    tile.table = table;
    Stage(p, tile);
    __syncthreads();
    Inputs(p, tile);
  }
};

template <class T, int kV, bool kPlanes, int kCovers>
__global__ void __launch_bounds__(kRowsThreads, kRowsBlocks) GatherKernel(const __grid_constant__ GatherParams<T> p) {
  extern __shared__ __align__(16) uint32_t gather_shared[];
  Gather<T, kV, kPlanes, kCovers>::Run(p, gather_shared);
}

}  // namespace poolgrad::cuda
