// How blocks run strips of cells (cells.cuh, roll.cuh): a strip to a thread, or, staged, a piece of the problem to a
// block.
#pragma once

#include "cuda/small/roll.cuh"

namespace poolgrad::cuda {

template <class T, Form F>
using CellsOf = std::conditional_t<F.rolls(), Roll<T, F>, Cells<T, F>>;

template <class T, Form F>
__device__ void RunCells(const CellParams& p) {
  using C = CellsOf<T, F>;
  const uint32_t thread = blockIdx.x * kCellThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread;
  const StripOf strip(p, p.across.take(&channel));
  const int64_t number = strip.number;
  const int64_t c = static_cast<int64_t>(channel) * C::kChannels;
  const int qd = p.first[0] + static_cast<int>(strip.depth), od = qd - (C::TD - 1);
  typename C::Depths at;
#pragma unroll
  for (int rd = 0; rd < F.stride[0]; ++rd) {
    at.dx[rd] = static_cast<T*>(p.dx) + number * p.x_plane + c + (qd * F.stride[0] + rd - p.pad[0]) * p.x_depth;
  }
  C::Run(p, static_cast<const T*>(p.dy) + number * p.y_plane + od * p.y_depth + c,
         p.routes + number * p.route_plane + od * p.route_depth + c * F.bits / 8, at, qd,
         p.first[1] + static_cast<int>(strip.strip) * p.rows,
         (C::kVector || C::kSplit ? 0 : p.first[2]) + static_cast<int>(strip.column) * C::kGroup,
         p.channels - static_cast<int>(c));
}

// The same, a block holding its piece of dy, codes and dx in shared memory: all that it reads and writes are runs.
template <class T, Form F>
__device__ void RunStagedCells(const CellParams& p, unsigned char* shared) {
  using C = Cells<T, F>;
  shared += kReadBefore;
  constexpr int SD = C::SD, SH = C::SH, TD = C::TD, TH = C::TH;
  const Pieces& pieces = p.pieces;
  const Piece piece(pieces, p.cells_d, p.cells_h - p.first[1]);
  const int qd = p.first[0] + piece.depth, qh = p.first[1] + piece.row;
  const bool slabs = pieces.rows.divisor > 1;
  const T* dy = static_cast<const T*>(p.dy) + piece.plane * p.y_plane;
  const uint8_t* codes = p.routes + piece.plane * p.route_plane;
  unsigned char* shared_codes = shared + pieces.place[0];
  Courier courier;
  Staged<T, TD> in = {};
  Staged<uint8_t, TD> in_codes = {};
  if (!C::kSharedOutputs) {  // read where they are
  } else if (slabs) {
    const int low = max(0, qh - (TH - 1)), high = min(p.out[1], qh + piece.rows);
#pragma unroll
    for (int a = 0; a < TD; ++a) {
      const int od = qd - (TD - 1) + a;
      if (static_cast<unsigned>(od) >= static_cast<unsigned>(p.out[0])) continue;
      in.AskSlab(courier, a, dy + od * p.y_depth, p.y_row, low, high, shared + a * pieces.slab_bytes[0]);
      in_codes.AskSlab(courier, a, codes + od * p.route_depth, p.route_row, low, high,
                       shared_codes + a * pieces.slab_bytes[1]);
    }
  } else {
    const int low = max(0, qd - (TD - 1)), high = min(p.out[0], qd + piece.depths);
    in.AskRun(courier, dy, piece, p.y_plane, p.y_depth, low, high, shared);
    in_codes.AskRun(courier, codes, piece, p.route_plane, p.route_depth, low, high, shared_codes);
  }
  // Inputs of the piece: whole planes, a run of depths, or rows of each depth of a cell.
  const int low_d = max(0, qd * SD - p.pad[0]), high_d = min(p.in[0], (qd + piece.depths) * SD - p.pad[0]);
  const int low_h = max(0, qh * SH - p.pad[1]), high_h = min(p.in[1], (qh + piece.rows) * SH - p.pad[1]);
  T* dx = static_cast<T*>(p.dx) + piece.plane * p.x_plane;
  unsigned char* shared_dx = shared + pieces.place[1];
  const auto slab = [&](int rd) { return dx + (qd * SD + rd - p.pad[0]) * p.x_depth + low_h * p.x_row; };
  T* run = dx + low_d * p.x_depth;
  // Where row 0 of each depth of the piece's first cell is, or would be (modulo 2^32).
  const uint32_t x_row = static_cast<uint32_t>(p.x_row) * C::kSize,
                 x_depth = static_cast<uint32_t>(p.x_depth) * C::kSize;
  uint32_t first_dx[SD];
#pragma unroll
  for (int rd = 0; rd < SD; ++rd) {
    first_dx[rd] =
        Kept(slabs ? SharedAddress(shared_dx + rd * pieces.slab_bytes[2] + Misalignment(slab(rd))) - low_h * x_row
                   : SharedAddress(shared_dx + Misalignment(run)) + (qd * SD + rd - p.pad[0] - low_d) * x_depth);
  }
  courier.Wait();
  const uint32_t strips = p.columns.divisor * p.strips.divisor * p.depths.divisor * piece.planes;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    const StripOf strip(p, i);
    const int row = static_cast<int>(strip.strip) * p.rows, depth = static_cast<int>(strip.depth), d = qd + depth;
    if (row >= piece.rows || depth >= piece.depths) continue;
    typename C::Depths at;
    at.end = qh + piece.rows;
#pragma unroll
    for (int a = 0; a < TD; ++a) {
      const uint32_t od = d - (TD - 1) + a;
      at.dy[a] =
          slabs ? in.slab[a]
                : in.run + (strip.number * static_cast<uint32_t>(p.y_plane) + od * static_cast<uint32_t>(p.y_depth)) *
                               C::kSize;
      at.routes[a] = slabs ? in_codes.slab[a]
                           : in_codes.run + strip.number * static_cast<uint32_t>(p.route_plane) +
                                 od * static_cast<uint32_t>(p.route_depth);
    }
    const uint32_t beyond = strip.number * static_cast<uint32_t>(p.x_plane) * C::kSize + depth * SD * x_depth;
#pragma unroll
    for (int rd = 0; rd < SD; ++rd) at.shared_dx[rd] = first_dx[rd] + (slabs ? 0 : beyond);
    const int64_t plane = strip.number, od = d - (TD - 1);
    uint32_t column = strip.column, channel = 0;
    if constexpr (C::kFlat) channel = column, column = p.by_vectors.take(&channel), channel *= C::kChannels;
    C::Run(p, dy + plane * p.y_plane + od * p.y_depth, codes + plane * p.route_plane + od * p.route_depth, at, d,
           qh + row, p.first[2] + static_cast<int>(column) * C::kGroup, static_cast<int>(channel));
  }
  courier.Made();
  if (!slabs) {
    const int64_t count = piece.planes > 1 ? piece.planes * p.x_plane : (high_d - low_d) * p.x_depth;
    courier.Send(shared_dx, run, static_cast<int>(count));
    courier.Leave();
    return;
  }
  for (int rd = 0; rd < SD; ++rd) {
    const int d = qd * SD + rd - p.pad[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
    courier.Send(shared_dx + rd * pieces.slab_bytes[2], slab(rd), (high_h - low_h) * static_cast<int>(p.x_row));
  }
  courier.Leave();
}

// The same where rows are long: a block has some columns of some rows, which come and go one by one.
template <class T, Form F>
__device__ void RunCutCells(const CellParams& p, unsigned char* shared) {
  using C = Cells<T, F>;
  shared += kReadBefore;
  constexpr int SD = C::SD, SH = C::SH, SW = C::SW, TD = C::TD, TH = C::TH, TW = C::TW;
  const Pieces& pieces = p.pieces;
  const CutPiece piece(pieces, p.cells_d, p.cells_h - p.first[1]);
  const int each = C::kFlat ? p.channels : 1;  // elements of a column
  const int qd = p.first[0] + piece.depth, qh = p.first[1] + piece.row, qw = p.first[2] + piece.column;
  const T* all = static_cast<const T*>(p.dy);
  const T* dy = all + piece.plane * p.y_plane;
  const uint8_t* codes = p.routes + piece.plane * p.route_plane;
  Courier courier;
  courier.Open();
  typename C::Depths at = {};
  if constexpr (C::kSharedOutputs) {
    const int low = max(0, qh - (TH - 1)), rows = max(0, min(p.out[1], qh + piece.rows) - low);
    const int from = max(0, qw - (TW - 1)), to = max(from, min(p.out[2], qw + piece.columns));
    const int byte = C::kFlat ? from * static_cast<int>(p.line_bytes) : from * C::kBits / 8;
    const int bytes = (C::kFlat ? to * static_cast<int>(p.line_bytes) : (to * C::kBits + 7) / 8) - byte;
#pragma unroll
    for (int a = 0; a < TD; ++a) {
      const int od = qd - (TD - 1) + a;
      if (static_cast<unsigned>(od) >= static_cast<unsigned>(p.out[0])) continue;
      const T* first =
          courier.AskRows({all, all + pieces.planes * p.y_plane}, dy + od * p.y_depth + low * p.y_row + from * each,
                          p.y_row, rows, (to - from) * each, shared + a * pieces.slab_bytes[0], pieces.pitch[0]);
      at.dy[a] = Kept(SharedAddress(first) - low * pieces.pitch[0] - static_cast<uint32_t>(from) * each * C::kSize);
      const uint8_t* code = courier.AskRows(
          {p.routes, p.routes + pieces.planes * p.route_plane}, codes + od * p.route_depth + low * p.route_row + byte,
          p.route_row, rows, bytes, shared + pieces.place[0] + a * pieces.slab_bytes[1], pieces.pitch[1]);
      at.routes[a] = Kept(SharedAddress(code) - low * pieces.pitch[1] - byte);
    }
  }
  const int low = max(0, qh * SH - p.pad[1]), rows = min(p.in[1], (qh + piece.rows) * SH - p.pad[1]) - low;
  const int from = max(0, qw * SW - p.pad[2]), columns = min(p.in[2], (qw + piece.columns) * SW - p.pad[2]) - from;
  T* dx = static_cast<T*>(p.dx) + piece.plane * p.x_plane + low * p.x_row + from * each;
  const auto slab = [&](int rd) { return dx + (qd * SD + rd - p.pad[0]) * p.x_depth; };
  unsigned char* shared_dx = shared + pieces.place[1];
#pragma unroll
  for (int rd = 0; rd < SD; ++rd) {
    at.shared_dx[rd] = Kept(SharedAddress(shared_dx + rd * pieces.slab_bytes[2] + Misalignment(slab(rd))) -
                            low * pieces.pitch[2] - static_cast<uint32_t>(from) * each * C::kSize);
  }
  at.end = qh + piece.rows;
  courier.WaitForRows();
  const int64_t od = qd - (TD - 1);
  const uint32_t strips = p.columns.divisor * p.strips.divisor;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    uint32_t column = i, channel = 0;
    const int row = static_cast<int>(p.columns.take(&column)) * p.rows;
    if constexpr (C::kFlat) channel = column, column = p.by_vectors.take(&channel), channel *= C::kChannels;
    if (row >= piece.rows || static_cast<int>(column) * C::kGroup >= piece.columns) continue;
    C::Run(p, dy + od * p.y_depth, codes + od * p.route_depth, at, qd, qh + row,
           qw + static_cast<int>(column) * C::kGroup, static_cast<int>(channel));
  }
  courier.Made();
  for (int rd = 0; rd < SD; ++rd) {
    const int d = qd * SD + rd - p.pad[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
    courier.SendRows(shared_dx + rd * pieces.slab_bytes[2], slab(rd), p.x_row, rows, columns * each, pieces.pitch[2]);
  }
  courier.Leave();
}

// A kernel's body.
template <class T, Form F>
__device__ void RunCellsForm(const CellParams& p) {
  WaitForEarlier();
  if constexpr (Cells<T, F>::kShared) {
    extern __shared__ __align__(16) unsigned char cells_shared[];
    if constexpr (F.cut) {
      RunCutCells<T, F>(p, cells_shared);
    } else {
      RunStagedCells<T, F>(p, cells_shared);
    }
  } else {
    RunCells<T, F>(p);
  }
}

}  // namespace poolgrad::cuda
