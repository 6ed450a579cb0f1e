// Forward for any window, type and layout: rows first, then columns.
//
// A block owns a tile of outputs. Each row of inputs that the tile's windows reach is reduced along the width straight
// from global memory (neighbouring threads read neighbouring places, and what they read twice is in the L1), a few rows
// to a thread so that their loads overlap; values and winning columns go to shared memory. Then each output reduces the
// reduced rows under its window. A window of h x w costs h + w comparisons instead of h * w, and since rows are
// compared in order, and columns in order inside them, the first of several maxima wins.
//
// The window is run-time data. A tile that sees a NaN, and outputs of -inf, are left to the exact rules.
#pragma once

#include "cuda/common/axes.cuh"
#include "cuda/common/device.cuh"
#include "cuda/common/exact.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/units.cuh"

namespace poolgrad::cuda {

template <class T>
struct RowsParams {
  const T* x;
  T* y;
  uint8_t* routes;
  WindowAxis axis[3];
  int64_t planes;                              // samples (channels last) or channels of all samples
  int64_t x_plane, x_depth, y_plane, y_depth;  // elements
  int64_t route_plane, route_depth;            // bytes
  int x_row, y_row, route_row;                 // bytes
  int threads, groups;                         // of a block; a group does one row
  int column;                                  // elements from a place to the next: the channels, or 1
  int route_column_bits;                       // of routes, from a place to the next
  int bits;
  int units;                               // of the channels at one place; 1 when channels are first
  int tile[3];                             // outputs of a tile
  int tile_planes;                         // pairs of them when kPlanes
  int tile_units;                          // at one place
  int rows[2];                             // of inputs that a tile reaches, along depth and height
  int row_words, tap_words, output_words;  // of shared memory: from a row to the next, and to the next tap's, output's
  int values, places;                      // bytes of shared memory before them
  bool last;                               // channels last
  bool rows_are_planes;
  FastDiv by_units, by_line;
  // Threads that are not needed for one row do others: so many groups along rows, and along planes (and depths).
  FastDiv input_groups, output_groups;
  int input_sheets, output_sheets;
  int table;  // entries: rows of one plane of the tile, and what a thread may read past them
  FastDiv by_rows_h, by_tile_d;
  FastDiv tiles_c, tiles_w, tiles_h, tiles_d;
  Geo<int64_t> g;
};

template <class T, int kV, bool kPlanes, bool kRoutes>
struct RowsThenColumns {
  using U = Unit<T, kV, kPlanes>;
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr int kElements = P::kElements;  // of a register
  static constexpr int kPlanesAtOnce = kPlanes ? 2 : 1;
  static constexpr int kCount = kV * kElements;                                     // elements of a unit
  using Places = std::conditional_t<kElements == 1, uint16_t, uint32_t>;            // a column for each element
  static constexpr int kRows = kV == 1 ? kRowsAtOnce : kVectorRowsAtOnce;           // of inputs, of one thread
  static constexpr int kOutputs = kV == 1 ? kOutputsAtOnce : kVectorOutputsAtOnce;  // along height, of one thread
  static constexpr int kAhead = 4;                                                  // taps

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

  // The taps of a window that lie inside the input, of which there is one: a tap outside reads the nearest of them,
  // which never changes who wins, but for the number of a first one that lies outside.
  struct Span {
    int start, low, high;  // columns: of the window, and of its first and last tap inside
    uint32_t first;        // tap inside
  };

  __device__ static Span SpanOf(const WindowAxis& axis, int o) {
    Span s;
    s.start = axis.start(o);
    int below = max(0, axis.dilation - 1 - s.start),
        within = max(0, axis.in - 1 - s.start);  // taps before 0, to in - 1
    if (axis.dilation > 1) {
      uint32_t a = static_cast<uint32_t>(below), b = static_cast<uint32_t>(within);
      below = static_cast<int>(axis.by_dilation.take(&a)), within = static_cast<int>(axis.by_dilation.take(&b));
    }
    s.first = static_cast<uint32_t>(s.start < 0 ? below : 0);
    s.low = s.start + static_cast<int>(s.first) * axis.dilation;
    s.high = s.start + min(within, axis.kernel - 1) * axis.dilation;
    return s;
  }

  // kFirst: nothing was compared yet. Rows outside the input were moved inside: what is read there is not used.
  template <int kTaps, bool kFirst>
  __device__ static void TakeTaps(const RowsParams<T>& p, const char* const (&row)[kRows], int64_t second,
                                  const Span& span, int at, uint32_t tap, Reg (&best)[kRows][kV],
                                  uint32_t (&place)[kRows][kV], Reg* watched) {
    typename U::Raw raw[kTaps][kRows];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const int w = min(max(at + k * p.axis[2].dilation, span.low), span.high);
      const int offset = w * p.column * static_cast<int>(sizeof(T));
#pragma unroll
      for (int r = 0; r < kRows; ++r) raw[k][r] = U::Load(reinterpret_cast<const T*>(row[r] + offset), second);
    }
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Reg value[kV];
        U::Unpack(raw[k][r], value);
#pragma unroll
        for (int v = 0; v < kV; ++v) {
          *watched = P::Watch(*watched, value[v]);
          if (kFirst && k == 0) {
            best[r][v] = value[v], place[r][v] = 0;
            continue;
          }
          const auto m = P::Greater(value[v], best[r][v]);
          best[r][v] = P::Choose(m, value[v], best[r][v]);
          if constexpr (kRoutes) place[r][v] = P::ChooseTap(m, P::Tap(tap + k), place[r][v]);
        }
      }
    }
  }

  __device__ static Reg Rows(const RowsParams<T>& p, const Tile& tile) {
    Reg watched = P::Zero();
    uint32_t group = static_cast<uint32_t>(tile.group);
    int sheet = static_cast<int>(p.input_groups.take(&group));
    const int step = static_cast<int>(p.input_groups.divisor) * kRows, rows = p.rows[0] * p.rows[1];
    if (!tile.live || sheet >= p.input_sheets) return watched;
    const Span span = SpanOf(p.axis[2], tile.ow);
    const int kernel = p.axis[2].kernel;
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
        int at = span.start;
        uint32_t tap = 0;
        if (kernel == 2) {
          TakeTaps<2, true>(p, row, second, span, at, 0, best, place, &watched);
        } else if (kernel == 1) {
          TakeTaps<1, true>(p, row, second, span, at, 0, best, place, &watched);
        } else {
          TakeTaps<3, true>(p, row, second, span, at, 0, best, place, &watched);
          int left = kernel - 3;
          at += 3 * p.axis[2].dilation, tap += 3;
#pragma unroll 1
          for (; left >= kAhead; left -= kAhead, at += kAhead * p.axis[2].dilation, tap += kAhead) {
            TakeTaps<kAhead, false>(p, row, second, span, at, tap, best, place, &watched);
          }
#pragma unroll 1
          for (; left > 0; --left, at += p.axis[2].dilation, ++tap) {
            TakeTaps<1, false>(p, row, second, span, at, tap, best, place, &watched);
          }
        }
        if (kRoutes && span.first > 0) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int v = 0; v < kV; ++v) {
              place[r][v] = kElements == 1 ? max(place[r][v], span.first) : __vmaxu2(place[r][v], P::Tap(span.first));
            }
          }
        }
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

  // Where a thread stands in the output.
  struct At {
    int64_t plane;
    int od, oh;
    T* y;  // of row oh, where values are wanted
    bool second;
  };

  // One element by the exact rules; its code is returned.
  __device__ __noinline__ static uint32_t ExactElement(const RowsParams<T>& p, const T* plane, int od, int oh, int ow,
                                                       T* y) {
    return SelectAlone(p.g, plane, od, oh, ow, y);
  }

  // The outputs of `mask` by the exact rules. One call in one place: in every unrolled step it would cost registers.
  __device__ static void Exact(const RowsParams<T>& p, const Tile& tile, const At& at, uint32_t mask,
                               uint32_t (&codes)[kOutputs][kCount]) {
#pragma unroll 1
    for (int n = 0; n < kOutputs * kCount; ++n) {
      const int j = n / kCount, e = n % kCount;
      if (!(mask >> j & 1u) || (kPlanes && e == 1 && !at.second)) continue;
      const T* plane =
          p.x + (at.plane + (kPlanes ? e : 0)) * p.x_plane + tile.c * U::kPlaceElements + (kPlanes ? 0 : e);
      T* y = p.y ? RowOf(p, at.y, j) + (kPlanes ? e * p.y_plane : e) : nullptr;
      // Planes of one row each were taken for rows of one plane.
      if (p.rows_are_planes)
        plane = reinterpret_cast<const T*>(reinterpret_cast<const char*>(plane) +
                                           static_cast<int64_t>(at.oh + j) * p.x_row);
      const uint32_t code = ExactElement(p, plane, at.od, p.rows_are_planes ? 0 : at.oh + j, tile.ow, y);
#pragma unroll
      for (int i = 0; i < kOutputs * kCount; ++i) {
        if (i == n) codes[i / kCount][i % kCount] = code;
      }
    }
  }

  __device__ static T* RowOf(const RowsParams<T>& p, T* y, int rows) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(y) + static_cast<int64_t>(rows) * p.y_row);
  }

  // Settles a window: `best`, and the rows that it was found in, become y and codes. False: the exact rules must.
  __device__ static bool Settle(const RowsParams<T>& p, const Tile& tile, const At& at, int j, int first_slot,
                                const Reg (&best)[kV], const uint32_t (&place)[kV], uint32_t (&codes)[kCount]) {
    bool lowest = false;
#pragma unroll
    for (int v = 0; v < kV; ++v) lowest = lowest || P::Lowest(best[v]);
    if (lowest) return false;
    if (p.y) U::Store(RowOf(p, at.y, j), best, at.second, p.y_plane);
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

  // Codes of a whole unit of channels, which are whole bytes.
  __device__ static void StoreUnitCodes(const RowsParams<T>& p, uint8_t* to, const uint32_t (&codes)[kCount]) {
    if (p.bits > 8) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) StoreWideCode(to + i * p.bits / 8, p.bits, codes[i]);
      return;
    }
    uint64_t all = 0;
    if (p.bits == 8) {
      uint32_t words[(kCount + 3) / 4] = {};
#pragma unroll
      for (int i = 0; i < kCount; ++i) words[i / 4] |= codes[i] << (i % 4 * 8);
      all = words[0] | static_cast<uint64_t>(kCount > 4 ? words[kCount / 4 - 1] : 0) << 32;
    } else {
      uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < kCount; ++i) word |= codes[i] << (i * p.bits);
      all = word;
    }
    switch (kCount * p.bits) {
      case 8:
        *to = static_cast<uint8_t>(all);
        break;
      case 16:
        *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(all);
        break;
      case 32:
        *reinterpret_cast<uint32_t*>(to) = static_cast<uint32_t>(all);
        break;
      default:
        *reinterpret_cast<uint64_t*>(to) = all;
    }
  }

  // Codes of single registers, `outputs` rows of them. Those narrower than a byte are gathered from the lanes beside,
  // so all lanes come here: `gathered` of them, none where another lane does it.
  __device__ static void StoreCodes(const RowsParams<T>& p, int outputs, bool second, int gathered, uint8_t* to,
                                    const uint32_t (&codes)[kOutputs][kCount]) {
    static_assert(kOutputs <= 4);
#pragma unroll
    for (int e = 0; e < kPlanesAtOnce; ++e, to += p.route_plane) {
      if (e == 1 && !second) outputs = 0;
      if (p.bits >= 8) {
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          if (j < outputs) StoreWideCode(to + static_cast<int64_t>(j) * p.route_row, p.bits, codes[j][e]);
        }
        continue;
      }
      uint32_t mine = 0;  // a byte for each row: codes that there are none of are 0
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) mine |= codes[j][e] << (8 * j);
      uint32_t all = mine;
      const uint32_t next = __shfl_down_sync(~0u, mine, 1) << p.bits;
      if (gathered > 1) all |= next;
      if (p.bits == 2) {
        const uint32_t third = __shfl_down_sync(~0u, mine, 2) << 4, fourth = __shfl_down_sync(~0u, mine, 3) << 6;
        if (gathered > 2) all |= third;
        if (gathered > 3) all |= fourth;
      }
      const int stored = gathered == 0 ? 0 : outputs;
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        if (j < stored) to[static_cast<int64_t>(j) * p.route_row] = static_cast<uint8_t>(all >> (8 * j));
      }
    }
  }

  __device__ static void Columns(const RowsParams<T>& p, const Tile& tile, bool exact) {
    uint32_t group = static_cast<uint32_t>(tile.group);
    const int first_sheet = static_cast<int>(p.output_groups.take(&group));
    const int step = static_cast<int>(p.output_groups.divisor) * kOutputs;
    const int64_t bit =
        static_cast<int64_t>(tile.ow) * p.route_column_bits + static_cast<int64_t>(tile.c) * U::kPlaceElements * p.bits;
    int gathered = 1;
    if (p.bits < 8) {
      const int place = p.last ? tile.c : tile.ow, line = p.last ? p.units : p.axis[2].out;  // of routes
      const int per_byte = p.bits == 2 ? 4 : 2;
      gathered = (place & (per_byte - 1)) == 0 ? min(per_byte, line - place) : 0;
    }
    // All threads go round as often, since codes are gathered from whole warps.
    for (int round = 0; round < p.tile_planes * p.tile[0]; round += p.output_sheets) {
      const int sheet = round + first_sheet;
      uint32_t depth = static_cast<uint32_t>(sheet);
      const int plane = static_cast<int>(p.by_tile_d.take(&depth));
      const int od = static_cast<int>(depth);
      At at;
      at.plane = tile.plane + plane * kPlanesAtOnce;
      at.od = tile.first[0] + od;
      at.second = kPlanes && at.plane + 1 < p.planes;
      const bool sheet_live = tile.live && first_sheet < p.output_sheets && sheet < p.tile_planes * p.tile[0] &&
                              at.plane < p.planes && at.od < p.axis[0].out;
      at.oh = tile.first[1] + static_cast<int>(group) * kOutputs;
      at.y = RowOf(p,
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
        if (left_over) Exact(p, tile, at, left_over, codes);
        if constexpr (kRoutes) {
          if constexpr (kV > 1) {
            static_assert(kOutputs == 1);
            if (outputs > 0) StoreUnitCodes(p, routes, codes[0]);
          } else {
            StoreCodes(p, outputs, at.second, gathered, routes, codes);
          }
          routes += static_cast<int64_t>(step) * p.route_row;
        }
        at.y = RowOf(p, at.y, step);
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
