// What the forward kernels for any window are made of (rows.cuh, apart.cuh): reducing rows of inputs along the width,
// and storing the codes of what has won.
//
// The window is run-time data. What sees a NaN, and outputs of -inf, are left to the exact rules.
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

// kRows: rows of inputs that a thread reduces at once; kOutputs: along the height, that it settles at once.
template <class T, int kV, bool kPlanes, bool kRoutes, int kRows, int kOutputs>
struct WindowRows {
  using U = Unit<T, kV, kPlanes>;
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr int kElements = P::kElements;  // of a register
  static constexpr int kPlanesAtOnce = kPlanes ? 2 : 1;
  static constexpr int kCount = kV * kElements;  // elements of a unit
  static constexpr int kAhead = 4;               // taps

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

  // Rows of inputs under the columns of a window: of each row the first maximum, and its column.
  __device__ static void Reduce(const RowsParams<T>& p, const char* const (&row)[kRows], int64_t second,
                                const Span& span, Reg (&best)[kRows][kV], uint32_t (&place)[kRows][kV], Reg* watched) {
    const int kernel = p.axis[2].kernel;
    int at = span.start;
    if (kernel == 2) {
      TakeTaps<2, true>(p, row, second, span, at, 0, best, place, watched);
    } else if (kernel == 1) {
      TakeTaps<1, true>(p, row, second, span, at, 0, best, place, watched);
    } else {
      TakeTaps<3, true>(p, row, second, span, at, 0, best, place, watched);
      int left = kernel - 3;
      uint32_t tap = 3;
      at += 3 * p.axis[2].dilation;
#pragma unroll 1
      for (; left >= kAhead; left -= kAhead, at += kAhead * p.axis[2].dilation, tap += kAhead) {
        TakeTaps<kAhead, false>(p, row, second, span, at, tap, best, place, watched);
      }
      if (left == 3) {
        TakeTaps<3, false>(p, row, second, span, at, tap, best, place, watched);
      } else if (left == 2) {
        TakeTaps<2, false>(p, row, second, span, at, tap, best, place, watched);
      } else if (left == 1) {
        TakeTaps<1, false>(p, row, second, span, at, tap, best, place, watched);
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
  }

  // Where a thread stands in the output.
  struct At {
    int64_t plane;
    int od, oh, ow, c;
    T* y;  // of row oh, where values are wanted
    bool second;
  };

  // One element by the exact rules; its code is returned.
  __device__ __noinline__ static uint32_t ExactElement(const RowsParams<T>& p, const T* plane, int od, int oh, int ow,
                                                       T* y) {
    return SelectAlone(p.g, plane, od, oh, ow, y);
  }

  // The outputs of `mask` by the exact rules. One call in one place: in every unrolled step it would cost registers.
  __device__ static void Exact(const RowsParams<T>& p, const At& at, uint32_t mask,
                               uint32_t (&codes)[kOutputs][kCount]) {
#pragma unroll 1
    for (int n = 0; n < kOutputs * kCount; ++n) {
      const int j = n / kCount, e = n % kCount;
      if (!(mask >> j & 1u) || (kPlanes && e == 1 && !at.second)) continue;
      const T* plane = p.x + (at.plane + (kPlanes ? e : 0)) * p.x_plane + at.c * U::kPlaceElements + (kPlanes ? 0 : e);
      T* y = p.y ? RowOf(p, at.y, j) + (kPlanes ? e * p.y_plane : e) : nullptr;
      // Planes of one row each were taken for rows of one plane.
      if (p.rows_are_planes)
        plane = reinterpret_cast<const T*>(reinterpret_cast<const char*>(plane) +
                                           static_cast<int64_t>(at.oh + j) * p.x_row);
      const uint32_t code = ExactElement(p, plane, at.od, p.rows_are_planes ? 0 : at.oh + j, at.ow, y);
#pragma unroll
      for (int i = 0; i < kOutputs * kCount; ++i) {
        if (i == n) codes[i / kCount][i % kCount] = code;
      }
    }
  }

  __device__ static T* RowOf(const RowsParams<T>& p, T* y, int rows) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(y) + static_cast<int64_t>(rows) * p.y_row);
  }

  // How many codes the lane of place `ow` and unit `c` gathers into a byte.
  __device__ static int Gathered(const RowsParams<T>& p, int ow, int c) {
    if (p.bits >= 8) return 1;
    const int place = p.last ? c : ow, line = p.last ? p.units : p.axis[2].out;  // of routes
    const int per_byte = p.bits == 2 ? 4 : 2;
    return (place & (per_byte - 1)) == 0 ? min(per_byte, line - place) : 0;
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
};

}  // namespace poolgrad::cuda
