// Forward for any window, type and layout: rows first, then columns.
//
// A block owns a tile of outputs. Each row of inputs that the tile's windows reach is reduced along the width straight
// from global memory (neighbouring threads read neighbouring places, and what they read twice is in the L1), a few rows
// to a thread so that their loads overlap; values and winning columns go to shared memory. Then each output reduces the
// reduced rows under its window. A window of h x w costs h + w comparisons instead of h * w, and since rows are
// compared in order, and columns in order inside them, the first of several maxima wins.
//
// A tile that sees a NaN, and outputs of -inf, are left to the exact rules.
#pragma once

#include "cuda/any/row.cuh"

namespace poolgrad::cuda {

template <class T, int kV, bool kPlanes, bool kRoutes>
struct RowsThenColumns {
  static constexpr int kRows = kV == 1 ? kRowsAtOnce : kVectorRowsAtOnce;           // of inputs, of one thread
  static constexpr int kOutputs = kV == 1 ? kOutputsAtOnce : kVectorOutputsAtOnce;  // along height, of one thread
  using Row = WindowRows<T, kV, kPlanes, kRoutes, kRows, kOutputs>;
  using U = typename Row::U;
  using P = typename Row::P;
  using Reg = typename Row::Reg;
  using At = typename Row::At;
  static constexpr int kElements = Row::kElements, kPlanesAtOnce = Row::kPlanesAtOnce, kCount = Row::kCount;
  static constexpr int kAhead = Row::kAhead;
  using Places = std::conditional_t<kElements == 1, uint16_t, uint32_t>;  // a column for each element

  struct Tile {
    int64_t plane;
    int first[3];
    int ow, c;             // this thread's place along the width, and unit of channels
    int unit;              // of the tile's rows
    int group;             // which rows this thread does
    bool live;             // it has any
    const int64_t* table;  // where each row begins, in bytes from its plane; kOutside: not in the input
    Reg* values;
    Places* places;
  };
  static constexpr int64_t kOutside = INT64_MIN;

  // ---- rows ----

  __device__ static Reg Rows(const RowsParams<T>& p, const Tile& tile) {
    Reg watched = P::Zero();
    uint32_t group = static_cast<uint32_t>(tile.group);
    int sheet = static_cast<int>(p.input_groups.take(&group));
    const int step = static_cast<int>(p.input_groups.divisor) * kRows, rows = p.rows[0] * p.rows[1];
    if (!tile.live || sheet >= p.input_sheets) return watched;
    const typename Row::Span span = Row::SpanOf(p.axis[2], tile.ow);
    for (; sheet < p.tile_planes; sheet += p.input_sheets) {
      const int64_t plane = tile.plane + static_cast<int64_t>(sheet) * kPlanesAtOnce;
      if (plane >= p.planes) return watched;
      const int64_t second = kPlanes && plane + 1 < p.planes ? p.x_plane : 0;
      const char* from = reinterpret_cast<const char*>(p.x + plane * p.x_plane + tile.c * U::kPlaceElements);
      int slot = (sheet * rows + static_cast<int>(group) * kRows) * p.row_words + tile.unit * kV;
      for (int number = static_cast<int>(group) * kRows; number < rows; number += step) {
        const char* row[kRows];
        bool valid[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int64_t offset = tile.table[number + r];
          valid[r] = offset >= 0;
          row[r] = from + (offset & INT64_MAX);
        }
        Reg best[kRows][kV];
        uint32_t place[kRows][kV];
        Row::Reduce(p, row, second, span, best, place, &watched);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (number + r >= rows) break;
#pragma unroll
          for (int v = 0; v < kV; ++v) best[r][v] = valid[r] ? best[r][v] : P::Fill();
          Put(tile.values + slot + r * p.row_words, best[r]);
          if constexpr (kRoutes) Put(tile.places + slot + r * p.row_words, place[r]);
        }
        slot += step * p.row_words;
      }
    }
    return watched;
  }

  // Where the tile's rows begin.
  __device__ static void MakeTable(const RowsParams<T>& p, const Tile& tile, int64_t* table) {
    for (int i = threadIdx.x; i < p.table; i += p.threads) {
      uint32_t h = static_cast<uint32_t>(i);
      const int at_d = p.axis[0].place(tile.first[0], static_cast<int>(p.by_rows_h.take(&h)));
      const int at_h = p.axis[1].place(tile.first[1], static_cast<int>(h));
      const bool valid = i < p.rows[0] * p.rows[1] &&
                         static_cast<unsigned>(at_d) < static_cast<unsigned>(p.axis[0].in) &&
                         static_cast<unsigned>(at_h) < static_cast<unsigned>(p.axis[1].in);
      table[i] =
          valid ? at_d * p.x_depth * static_cast<int>(sizeof(T)) + static_cast<int64_t>(at_h) * p.x_row : kOutside;
    }
    __syncthreads();
  }

  template <class S, class R>
  __device__ static void Put(S* to, const R (&from)[kV]) {
    if constexpr (kV == 1) {
      *to = static_cast<S>(from[0]);
    } else {
      static_assert(kV == 4);
      if constexpr (sizeof(S) == 4) {
        *reinterpret_cast<uint4*>(to) = make_uint4(Word(from[0]), Word(from[1]), Word(from[2]), Word(from[3]));
      } else {
        *reinterpret_cast<uint2*>(to) = make_uint2(from[0] | from[1] << 16, from[2] | from[3] << 16);
      }
    }
  }
  template <class R>
  __device__ static uint32_t Word(R v) {
    if constexpr (std::is_same_v<R, uint32_t>) {
      return v;
    } else {
      return P::ToBits(v);
    }
  }
  __device__ static void Get(const Reg* from, Reg (&to)[kV]) {
    if constexpr (kV == 1) {
      to[0] = *from;
    } else {
      const uint4 words = *reinterpret_cast<const uint4*>(from);
      to[0] = P::FromBits(words.x), to[1] = P::FromBits(words.y);
      to[2] = P::FromBits(words.z), to[3] = P::FromBits(words.w);
    }
  }

  // ---- columns ----

  template <int kTaps>
  __device__ static void TakeRows(const Reg* from, int output_step, int tap_step, uint32_t tap,
                                  Reg (&best)[kOutputs][kV], uint32_t (&place)[kOutputs][kV]) {
    Reg value[kTaps][kOutputs][kV];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) Get(from + j * output_step + k * tap_step, value[k][j]);
    }
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
#pragma unroll
        for (int v = 0; v < kV; ++v) {
          const auto m = P::Greater(value[k][j][v], best[j][v]);
          best[j][v] = P::Choose(m, value[k][j][v], best[j][v]);
          if constexpr (kRoutes) place[j][v] = P::ChooseTap(m, P::Tap(tap + k), place[j][v]);
        }
      }
    }
  }

  // Settles a window: `best`, and the rows that it was found in, become y and codes. False: the exact rules must.
  __device__ static bool Settle(const RowsParams<T>& p, const Tile& tile, const At& at, int j, int first_slot,
                                const Reg (&best)[kV], const uint32_t (&place)[kV], uint32_t (&codes)[kCount]) {
    bool lowest = false;
#pragma unroll
    for (int v = 0; v < kV; ++v) lowest = lowest || P::Lowest(best[v]);
    if (lowest) return false;
    if (p.y) U::Store(Row::RowOf(p, at.y, j), best, at.second, p.y_plane);
    if constexpr (kRoutes) {
#pragma unroll
      for (int v = 0; v < kV; ++v) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const uint32_t tap = kElements == 1 ? place[v] : place[v] >> (16 * e) & 0xFFFFu;  // of rows
          int words = static_cast<int>(tap) * p.tap_words;
          if (p.axis[0].kernel > 1) {
            uint32_t kh = tap;
            const uint32_t kd = p.axis[1].by_kernel.take(&kh);
            words =
                static_cast<int>(kd) * p.axis[0].per_tap * p.rows[1] * p.row_words + static_cast<int>(kh) * p.tap_words;
          }
          const uint32_t column = tile.places[first_slot + words + v];
          codes[v * kElements + e] =
              tap * static_cast<uint32_t>(p.axis[2].kernel) + (kElements == 1 ? column : column >> (16 * e) & 0xFFFFu);
        }
      }
    }
    return true;
  }

  __device__ static void Columns(const RowsParams<T>& p, const Tile& tile, bool exact) {
    uint32_t group = static_cast<uint32_t>(tile.group);
    const int first_sheet = static_cast<int>(p.output_groups.take(&group));
    const int step = static_cast<int>(p.output_groups.divisor) * kOutputs;
    const int64_t bit =
        static_cast<int64_t>(tile.ow) * p.route_column_bits + static_cast<int64_t>(tile.c) * U::kPlaceElements * p.bits;
    const int gathered = Row::Gathered(p, tile.ow, tile.c);
    // All threads go round as often, since codes are gathered from whole warps.
    for (int round = 0; round < p.tile_planes * p.tile[0]; round += p.output_sheets) {
      const int sheet = round + first_sheet;
      uint32_t depth = static_cast<uint32_t>(sheet);
      const int plane = static_cast<int>(p.by_tile_d.take(&depth));
      const int od = static_cast<int>(depth);
      At at;
      at.plane = tile.plane + plane * kPlanesAtOnce;
      at.od = tile.first[0] + od, at.ow = tile.ow, at.c = tile.c;
      at.second = kPlanes && at.plane + 1 < p.planes;
      const bool sheet_live = tile.live && first_sheet < p.output_sheets && sheet < p.tile_planes * p.tile[0] &&
                              at.plane < p.planes && at.od < p.axis[0].out;
      at.oh = tile.first[1] + static_cast<int>(group) * kOutputs;
      at.y = Row::RowOf(p,
                        p.y + at.plane * p.y_plane + at.od * p.y_depth + static_cast<int64_t>(tile.ow) * p.column +
                            tile.c * U::kPlaceElements,
                        at.oh);
      uint8_t* routes = p.routes + at.plane * p.route_plane + at.od * p.route_depth +
                        static_cast<int64_t>(at.oh) * p.route_row + (bit >> 3);
      const int rows = (plane * p.rows[0] + od * p.axis[0].per_output) * p.rows[1];
#pragma unroll 1
      for (int begin = 0; begin < p.tile[1]; begin += step, at.oh += step) {
        const int oh = at.oh - tile.first[1];  // of the tile
        const int outputs = sheet_live ? min(kOutputs, min(p.tile[1] - oh, p.axis[1].out - tile.first[1] - oh)) : 0;
        const int first = rows * p.row_words + oh * p.output_words + tile.unit * kV;
        Reg best[kOutputs][kV];
        uint32_t place[kOutputs][kV] = {};
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
#pragma unroll
          for (int v = 0; v < kV; ++v) best[j][v] = P::Fill();
        }
        if (outputs > 0 && !exact) {
          uint32_t tap = 0;
#pragma unroll 1
          for (int kd = 0; kd < p.axis[0].kernel; ++kd) {
            const Reg* from = tile.values + first + kd * p.axis[0].per_tap * p.rows[1] * p.row_words;
            int left = p.axis[1].kernel;
#pragma unroll 1
            for (; left >= kAhead; left -= kAhead, from += kAhead * p.tap_words, tap += kAhead) {
              TakeRows<kAhead>(from, p.output_words, p.tap_words, tap, best, place);
            }
            if (left == 3) {
              TakeRows<3>(from, p.output_words, p.tap_words, tap, best, place);
            } else if (left == 2) {
              TakeRows<2>(from, p.output_words, p.tap_words, tap, best, place);
            } else if (left == 1) {
              TakeRows<1>(from, p.output_words, p.tap_words, tap, best, place);
            }
            tap += left;
          }
        }
        uint32_t codes[kOutputs][kCount] = {};
        uint32_t left_over = 0;
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          if (j >= outputs) continue;
          if (exact || !Settle(p, tile, at, j, first + j * p.output_words, best[j], place[j], codes[j]))
            left_over |= 1u << j;
        }
        if (left_over) Row::Exact(p, at, left_over, codes);
        if constexpr (kRoutes) {
          if constexpr (kV > 1) {
            static_assert(kOutputs == 1);
            if (outputs > 0) Row::StoreUnitCodes(p, routes, codes[0]);
          } else {
            Row::StoreCodes(p, outputs, at.second, gathered, routes, codes);
          }
          routes += static_cast<int64_t>(step) * p.route_row;
        }
        at.y = Row::RowOf(p, at.y, step);
      }
    }
  }

  __device__ static void Run(const RowsParams<T>& p, unsigned char* shared) {
    Tile tile;
    uint32_t rest = blockIdx.x, c = rest, w, h, d;
    rest = p.tiles_c.take(&c);
    w = rest, rest = p.tiles_w.take(&w);
    h = rest, rest = p.tiles_h.take(&h);
    d = rest, rest = p.tiles_d.take(&d);
    tile.plane = static_cast<int64_t>(rest) * p.tile_planes * kPlanesAtOnce;
    tile.first[0] = static_cast<int>(d) * p.tile[0];
    tile.first[1] = static_cast<int>(h) * p.tile[1];
    tile.first[2] = static_cast<int>(w) * p.tile[2];
    uint32_t unit = threadIdx.x;
    tile.group = static_cast<int>(p.by_line.take(&unit));
    tile.unit = static_cast<int>(unit);
    const int column = static_cast<int>(p.by_units.take(&unit));
    tile.ow = tile.first[2] + column;
    tile.c = static_cast<int>(c) * p.tile_units + static_cast<int>(unit);
    tile.live = tile.group < p.groups && column < p.tile[2] && tile.ow < p.axis[2].out &&
                static_cast<int>(unit) < p.tile_units && tile.c < p.units;
    MakeTable(p, tile, reinterpret_cast<int64_t*>(shared));
    tile.table = reinterpret_cast<const int64_t*>(shared);
    tile.values = reinterpret_cast<Reg*>(shared + p.values);
    tile.places = reinterpret_cast<Places*>(shared + p.places);
    const bool exact = __syncthreads_or(P::Watched(Rows(p, tile)));
    Columns(p, tile, exact);
  }
};

template <class T, int kV, bool kPlanes, bool kRoutes>
__global__ void __launch_bounds__(kRowsThreads, kRoutes ? kRoutesBlocks : kRowsBlocks)
    RowsKernel(const __grid_constant__ RowsParams<T> p) {
  extern __shared__ __align__(16) unsigned char rows_shared[];
  RowsThenColumns<T, kV, kPlanes, kRoutes>::Run(p, rows_shared);
}

}  // namespace poolgrad::cuda
