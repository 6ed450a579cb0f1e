// Forward for windows that share few rows, or none, any type and layout: a thread has whole windows.
//
// Where windows do not overlap along the height and the depth, nothing is gained by reducing rows for others
// (rows.cuh), and nobody has to wait for anybody: a thread goes through the rows of its windows, some outputs one below
// the other so that their loads overlap; neighbouring threads have neighbouring outputs. No shared memory, no tiles.
#pragma once

#include "cuda/any/row.cuh"

namespace poolgrad::cuda {

// kOutputs: along height, of one thread.
template <class T, int kV, bool kPlanes, bool kRoutes, int kOutputs>
struct WholeWindows {
  using Row = WindowRows<T, kV, kPlanes, kRoutes, kOutputs, kOutputs>;
  using U = typename Row::U;
  using P = typename Row::P;
  using Reg = typename Row::Reg;
  static constexpr int kElements = Row::kElements, kPlanesAtOnce = Row::kPlanesAtOnce, kCount = Row::kCount;

  // The outputs from `at` on down the height: what wins, and its tap. NaN: one was seen.
  __device__ static Reg Find(const RowsParams<T>& p, const typename Row::At& at, Reg (&best)[kOutputs][kV],
                             uint32_t (&tap)[kOutputs][kV]) {
    Reg watched = P::Zero();
    const typename Row::Span span = Row::SpanOf(p.axis[2], at.ow);
    const int64_t second = at.second ? p.x_plane : 0;
    const T* plane = p.x + at.plane * p.x_plane + at.c * U::kPlaceElements;
    const int start_h = p.axis[1].start(at.oh);
    int d = p.axis[0].start(at.od);
    uint32_t number = 0;  // of a row's first tap
#pragma unroll 1
    for (int kd = 0; kd < p.axis[0].kernel; ++kd, d += p.axis[0].dilation) {
      if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.axis[0].in)) {
        number += p.axis[1].kernel * p.axis[2].kernel;
        continue;
      }
      const char* slice = reinterpret_cast<const char*>(plane + d * p.x_depth);
      int h = start_h;
#pragma unroll 1
      for (int kh = 0; kh < p.axis[1].kernel; ++kh, h += p.axis[1].dilation, number += p.axis[2].kernel) {
        const char* row[kOutputs];
        bool valid[kOutputs];
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          const int at_h = h + j * p.axis[1].stride;
          valid[j] = static_cast<unsigned>(at_h) < static_cast<unsigned>(p.axis[1].in);
          row[j] = slice + static_cast<int64_t>(valid[j] ? at_h : 0) * p.x_row;
        }
        Reg first[kOutputs][kV];
        uint32_t column[kOutputs][kV];
        Row::Reduce(p, row, second, span, first, column, &watched);
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
#pragma unroll
          for (int v = 0; v < kV; ++v) {
            if (!valid[j]) first[j][v] = P::Fill();
            const auto m = P::Greater(first[j][v], best[j][v]);
            best[j][v] = P::Choose(m, first[j][v], best[j][v]);
            if constexpr (kRoutes) tap[j][v] = P::ChooseTap(m, column[j][v] + P::Tap(number), tap[j][v]);
          }
        }
      }
    }
    return watched;
  }

  // A thread's number is its unit of channels, place along the width, outputs of the height, depth and plane.
  __device__ static void Run(const RowsParams<T>& p) {
    uint32_t unit = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t group = p.by_line.take(&unit);
    uint32_t depth = p.tiles_h.take(&group);
    const uint32_t planes = p.tiles_d.take(&depth), column = p.by_units.take(&unit);
    typename Row::At at;
    at.plane = static_cast<int64_t>(planes) * kPlanesAtOnce;
    at.od = static_cast<int>(depth), at.oh = static_cast<int>(group) * kOutputs;
    at.ow = static_cast<int>(column), at.c = static_cast<int>(unit);
    at.second = kPlanes && at.plane + 1 < p.planes;
    const bool live = at.plane < p.planes && at.ow < p.axis[2].out && at.c < p.units;
    const int outputs = live ? min(kOutputs, p.axis[1].out - at.oh) : 0;
    const int64_t place = static_cast<int64_t>(at.ow) * p.column + at.c * U::kPlaceElements;
    at.y = Row::RowOf(p, p.y + at.plane * p.y_plane + at.od * p.y_depth + place, at.oh);
    uint32_t codes[kOutputs][kCount] = {};
    if (outputs > 0) {
      Reg best[kOutputs][kV];
      uint32_t tap[kOutputs][kV] = {};
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
#pragma unroll
        for (int v = 0; v < kV; ++v) best[j][v] = P::Fill();
      }
      const bool exact = P::Watched(Find(p, at, best, tap));
      uint32_t left_over = 0;
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        if (j >= outputs) break;
        bool lowest = exact;
#pragma unroll
        for (int v = 0; v < kV; ++v) lowest = lowest || P::Lowest(best[j][v]);
        if (lowest) left_over |= 1u << j;
        if (p.y) U::Store(Row::RowOf(p, at.y, j), best[j], at.second, p.y_plane);
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
          codes[j][n] = kElements == 1 ? tap[j][n] : tap[j][n / kElements] >> (16 * (n % kElements)) & 0xFFFFu;
        }
      }
      if (left_over) Row::Exact(p, at, left_over, codes);
    }
    if constexpr (kRoutes) {
      const int64_t bit =
          static_cast<int64_t>(at.ow) * p.route_column_bits + static_cast<int64_t>(at.c) * U::kPlaceElements * p.bits;
      uint8_t* routes = p.routes + at.plane * p.route_plane + at.od * p.route_depth +
                        static_cast<int64_t>(at.oh) * p.route_row + (bit >> 3);
      if constexpr (kV > 1) {
#pragma unroll
        for (int j = 0; j < kOutputs; ++j) {
          if (j < outputs) Row::StoreUnitCodes(p, routes + static_cast<int64_t>(j) * p.route_row, codes[j]);
        }
      } else {
        Row::StoreCodes(p, outputs, at.second, Row::Gathered(p, at.ow, at.c), routes, codes);
      }
    }
  }
};

template <class T, int kV, bool kPlanes, bool kRoutes, int kOutputs>
__global__ void __launch_bounds__(kRowsThreads, kRoutes ? kRoutesBlocks : kRowsBlocks)
    ApartKernel(const __grid_constant__ RowsParams<T> p) {
  WholeWindows<T, kV, kPlanes, kRoutes, kOutputs>::Run(p);
}

}  // namespace poolgrad::cuda
