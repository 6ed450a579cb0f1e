// How blocks run strips: a strip to a thread, or, staged, a piece of the problem to a block.
#pragma once

#include "cuda/strip.cuh"

namespace poolgrad::cuda {

template <class T, Form F>
__device__ void RunStrip(const StripParams& p) {
  using S = Strip<T, F>;
  const uint32_t thread = blockIdx.x * kStripThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread;
  const StripOf at(p, p.across.take(&channel));
  const int c = S::kLast ? static_cast<int>(channel) * S::kOutputs : 0;
  S::Run(p, static_cast<const T*>(p.x) + at.number * p.x_plane + c, {}, at.number, static_cast<int>(at.depth),
         static_cast<int>(at.strip) * p.rows, static_cast<int>(at.column) * (S::kLast ? 1 : S::kOutputs), c);
}

// The same, a block holding its piece of x, y and codes in shared memory: all that it reads and writes are runs.
template <class T, Form F>
__device__ void RunStagedStrip(const StripParams& p, unsigned char* shared) {
  using S = Strip<T, F>;
  shared += kReadBefore;
  const Pieces& pieces = p.pieces;
  const Piece piece(pieces, p.out[0], p.out[1]);
  const T* x = static_cast<const T*>(p.x) + piece.plane * p.x_plane;
  const bool slabs = pieces.rows.divisor > 1;
  Courier courier;
  Staged<T, S::KD> in = {};
  const int depth = piece.depth * S::SD - p.pad[0];
  if (slabs) {
    const int row = piece.row * S::SH - p.pad[1];
    const int low = max(0, row), high = min(p.in[1], row + (piece.rows - 1) * S::SH + S::kExtent);
#pragma unroll
    for (int kd = 0; kd < S::KD; ++kd) {
      const int d = depth + kd * S::DD;
      if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
      in.AskSlab(courier, kd, x + d * p.x_depth, p.x_row, low, high, shared + kd * pieces.slab_bytes[0]);
    }
  } else {
    in.AskRun(courier, x, piece, p.x_plane, p.x_depth, max(0, depth),
              min(p.in[0], depth + (piece.depths - 1) * S::SD + S::kExtentD), shared);
  }
  typename S::Shared staged = {};
  const int64_t line = (piece.plane * p.out[0] + piece.depth) * p.out[1] + piece.row;
  const int lines = piece.planes * piece.depths * piece.rows;
  T* y = static_cast<T*>(p.y) + (p.y ? line * p.line : 0);
  uint8_t* routes = p.routes + (S::kRoutes ? line * p.line_bytes : 0);
  const uint32_t shared_y = Kept(SharedAddress(shared + pieces.place[1] + Misalignment(y)));
  unsigned char* codes = shared + pieces.place[2];
  const uint32_t shared_routes = Kept(SharedAddress(S::kApart ? codes : codes + Misalignment(routes)));
  staged.end = piece.row + piece.rows;
  courier.Wait();
  const uint32_t strips = p.columns.divisor * p.strips.divisor * p.depths.divisor * piece.planes;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    const StripOf at(p, i);
    const int od = static_cast<int>(at.depth), row = static_cast<int>(at.strip) * p.rows;
    if (row >= piece.rows || od >= piece.depths) continue;
    const uint32_t own = (at.number * piece.depths + at.depth) * piece.rows + row;  // of the piece's lines
    staged.y = shared_y + own * S::YStep(p), staged.routes = shared_routes + own * S::RouteStep(p);
#pragma unroll
    for (int kd = 0; kd < S::KD; ++kd) {
      const uint32_t d = depth + od * S::SD + kd * S::DD;
      staged.depth[kd] =
          slabs ? in.slab[kd]
                : in.run +
                      (at.number * static_cast<uint32_t>(p.x_plane) + d * static_cast<uint32_t>(p.x_depth)) * S::kSize;
    }
    S::Run(p, nullptr, staged, piece.plane + at.number, piece.depth + od, piece.row + row,
           static_cast<int>(at.column) * S::kOutputs, 0);
  }
  courier.Made();
  if (p.y) courier.Send(shared + pieces.place[1], y, lines * static_cast<int>(p.line));
  if constexpr (S::kRoutes && S::kApart) {
    for (uint32_t i = threadIdx.x; i < lines * static_cast<uint32_t>(p.line_bytes); i += blockDim.x) {
      uint32_t byte = i;
      const uint32_t from = p.by_code_bytes.take(&byte) * static_cast<uint32_t>(p.code_line);
      uint32_t packed = 0;
#pragma unroll
      for (uint32_t k = 0; k < 8 / S::kBits; ++k) {
        const uint32_t at = byte * (8 / S::kBits) + k;
        if (at < static_cast<uint32_t>(p.code_line))
          packed |= static_cast<uint32_t>(codes[from + at]) << (k * S::kBits);
      }
      routes[i] = static_cast<uint8_t>(packed);
    }
  } else if constexpr (S::kRoutes) {
    courier.Send(codes, routes, lines * static_cast<int>(p.line_bytes));
  }
  courier.Leave();
}

// A kernel's body.
template <class T, Form F>
__device__ void RunStripForm(const StripParams& p) {
  WaitForEarlier();
  if constexpr (Strip<T, F>::kShared) {
    extern __shared__ __align__(16) unsigned char strip_shared[];
    RunStagedStrip<T, F>(p, strip_shared);
  } else {
    RunStrip<T, F>(p);
  }
}

}  // namespace poolgrad::cuda
