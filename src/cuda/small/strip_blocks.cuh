// How blocks run strips: a strip to a thread, or, staged, a piece of the problem to a block.
#pragma once

#include "cuda/small/strip.cuh"

namespace poolgrad::cuda {

template <class T, Form F>
__device__ void RunStrip(const StripParams& p) {
  using S = Strip<T, F>;
  const uint32_t thread = blockIdx.x * kStripThreads + threadIdx.x;
  if (thread >= p.threads) return;
  uint32_t channel = thread;
  const StripOf at(p, p.across.take(&channel));
  const int c = S::kLast ? static_cast<int>(channel) * S::kOutputs : 0;
  S::Run(p, static_cast<const T*>(p.x) + at.number * p.x_plane + c, {}, at.number,
         static_cast<int>(at.depth) * S::kDeep, static_cast<int>(at.strip) * p.rows,
         static_cast<int>(at.column) * (S::kLast ? 1 : S::kOutputs), c);
}

// Byte i of lines of codes, each of `in_line`, which have a byte each in shared memory.
template <class T, Form F>
__device__ uint8_t PackedCodes(const StripParams& p, const unsigned char* codes, uint32_t i, uint32_t in_line) {
  constexpr uint32_t kPerByte = 8 / F.bits;
  const uint32_t from = p.by_line_bytes.take(&i) * in_line;
  uint32_t packed = 0;
#pragma unroll
  for (uint32_t k = 0; k < kPerByte; ++k) {
    const uint32_t at = i * kPerByte + k;
    if (at < in_line) packed |= static_cast<uint32_t>(codes[from + at]) << (k * F.bits);
  }
  return static_cast<uint8_t>(packed);
}

// The column of outputs, or of places and their channels, where a thread's begin.
template <class S>
struct ColumnOf {
  int column, channel = 0;
  __device__ ColumnOf(const StripParams& p, uint32_t number) : column(static_cast<int>(number) * S::kOutputs) {
    if constexpr (S::kFlat) {
      column = static_cast<int>(p.by_vectors.take(&number));
      channel = static_cast<int>(number) * S::kOutputs;
    }
  }
};

// What a piece's threads make, in shared memory and global memory: one run, or where it has some rows (from some
// column on) of several depths, one part for each depth.
template <class T, Form F>
struct Made {
  using S = Strip<T, F>;
  int parts, lines;  // and lines of a part
  T* y;              // where the first part goes
  uint8_t* routes;
  int64_t y_depth, routes_depth;                         // from a part to the next
  uint32_t shared_y[S::kDeep], shared_routes[S::kDeep];  // where each depth's begins, or all of them

  __device__ Made(const StripParams& p, const Piece& piece, bool slabs, unsigned char* shared, int outputs = 0,
                  int bytes_before = 0) {
    parts = slabs ? piece.depths : 1;
    lines = piece.rows * (slabs ? 1 : piece.planes * piece.depths);
    const int64_t line = (piece.plane * p.out[0] + piece.depth) * p.out[1] + piece.row;
    y = static_cast<T*>(p.y) + (p.y ? line * p.line + outputs : 0);
    routes = p.routes + (S::kRoutes ? line * p.line_bytes + bytes_before : 0);
    y_depth = p.out[1] * p.line, routes_depth = p.out[1] * p.line_bytes;
#pragma unroll
    for (int a = 0; a < S::kDeep; ++a) {
      const int part = slabs ? a : 0;
      shared_y[a] = Kept(SharedAddress(Values(p, shared, part) + Misalignment(y + part * y_depth)));
      unsigned char* codes = Codes(p, shared, part);
      shared_routes[a] = Kept(SharedAddress(S::kApart ? codes : codes + Misalignment(routes + part * routes_depth)));
    }
  }
  __device__ static unsigned char* Values(const StripParams& p, unsigned char* shared, int part) {
    return shared + p.pieces.place[1] + part * p.pieces.slab_bytes[2];
  }
  __device__ static unsigned char* Codes(const StripParams& p, unsigned char* shared, int part) {
    return shared + p.pieces.place[2] + part * p.pieces.slab_bytes[1];
  }
};

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
  Staged<T, S::kTouched> in = {};
  const int depth = piece.depth * S::SD - p.pad[0];
  const int past = min(p.in[0], depth + (piece.depths - 1) * S::SD + S::kExtentD);
  if (slabs) {
    const int row = piece.row * S::SH - p.pad[1];
    const int low = max(0, row), high = min(p.in[1], row + (piece.rows - 1) * S::SH + S::kExtent);
#pragma unroll
    for (int kd = 0; kd < S::kTouched; ++kd) {
      const int d = depth + kd * S::DD;
      if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
      in.AskSlab(courier, kd, x + d * p.x_depth, p.x_row, low, high, shared + kd * pieces.slab_bytes[0]);
    }
  } else {
    in.AskRun(courier, x, piece, p.x_plane, p.x_depth, max(0, depth), past, shared);
  }
  typename S::Shared staged = {};
  const Made<T, F> made(p, piece, slabs, shared);
  staged.end = piece.row + piece.rows, staged.depth_end = piece.depth + piece.depths;
  staged.depth_past = slabs ? p.in[0] : past;
  courier.Wait();
  const uint32_t strips = p.columns.divisor * p.strips.divisor * p.depths.divisor * piece.planes;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    const StripOf at(p, i);
    const int od = static_cast<int>(at.depth) * S::kDeep, row = static_cast<int>(at.strip) * p.rows;
    if (row >= piece.rows || od >= piece.depths) continue;
    const uint32_t own = (at.number * piece.depths + od) * piece.rows + row;  // of the piece's lines
#pragma unroll
    for (int a = 0; a < S::kDeep; ++a) {
      const uint32_t line = slabs ? row : own + a * piece.rows;
      staged.y[a] = made.shared_y[a] + line * S::YStep(p);
      staged.routes[a] = made.shared_routes[a] + line * S::RouteStep(p);
    }
#pragma unroll
    for (int kd = 0; kd < S::kTouched; ++kd) {
      const uint32_t d = depth + od * S::SD + kd * S::DD;
      staged.depth[kd] =
          slabs ? in.slab[kd]
                : in.run +
                      (at.number * static_cast<uint32_t>(p.x_plane) + d * static_cast<uint32_t>(p.x_depth)) * S::kSize;
    }
    const ColumnOf<S> of(p, at.column);
    S::Run(p, nullptr, staged, piece.plane + at.number, piece.depth + od, piece.row + row, of.column, of.channel);
  }
  courier.Made();
  for (int a = 0; a < made.parts; ++a) {
    if (p.y) courier.Send(made.Values(p, shared, a), made.y + a * made.y_depth, made.lines * static_cast<int>(p.line));
    unsigned char* codes = made.Codes(p, shared, a);
    uint8_t* routes = made.routes + a * made.routes_depth;
    if constexpr (S::kRoutes && S::kApart) {
      for (uint32_t i = threadIdx.x; i < made.lines * static_cast<uint32_t>(p.line_bytes); i += blockDim.x) {
        routes[i] = PackedCodes<T, F>(p, codes, i, static_cast<uint32_t>(p.line));
      }
    } else if constexpr (S::kRoutes) {
      courier.Send(codes, routes, made.lines * static_cast<int>(p.line_bytes));
    }
  }
  courier.Leave();
}

// The same where rows are long: a block has some columns of some rows, which come and go one by one.
template <class T, Form F>
__device__ void RunCutStrip(const StripParams& p, unsigned char* shared) {
  using S = Strip<T, F>;
  shared += kReadBefore;
  const Pieces& pieces = p.pieces;
  const CutPiece piece(pieces, p.out[0], p.out[1]);
  const int each = S::kFlat ? p.channels : 1;  // elements of a column
  const int depth = piece.depth * S::SD - p.pad[0], row = piece.row * S::SH - p.pad[1];
  const int low = max(0, row), high = min(p.in[1], row + (piece.rows - 1) * S::SH + S::kExtent);
  const int column = piece.column * S::SW - p.pad[2], from = max(0, column);
  constexpr int kColumns = S::kFlat ? 1 : S::kOutputs;  // of a thread
  const int columns = (piece.columns + kColumns - 1) / kColumns * kColumns;
  const int count = max(0, min(p.in[2], column + (columns - 1) * S::SW + S::kExtentW) - from) * each;
  const T* all = static_cast<const T*>(p.x);
  const T* x = all + piece.plane * p.x_plane + low * p.x_row + from * each;
  Courier courier;
  courier.Open();
  typename S::Shared staged = {};
#pragma unroll
  for (int kd = 0; kd < S::kTouched; ++kd) {
    const int d = depth + kd * S::DD;
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(p.in[0])) continue;
    const T* first = courier.AskRows({all, all + pieces.planes * p.x_plane}, x + d * p.x_depth, p.x_row,
                                     max(0, high - low), count, shared + kd * pieces.slab_bytes[0], pieces.pitch[0]);
    staged.depth[kd] =
        Kept(SharedAddress(first) - low * pieces.pitch[0] - static_cast<uint32_t>(from) * each * S::kSize);
  }
  const int outputs = piece.column * each;
  const int bytes_before = S::kFlat ? piece.column * p.place_bytes : outputs * S::kBits / 8;
  const int codes_before = S::kApart ? outputs : bytes_before;
  const Made<T, F> made(p, piece, true, shared, outputs, bytes_before);
  staged.end = piece.row + piece.rows, staged.depth_end = piece.depth + piece.depths, staged.depth_past = p.in[0];
  courier.WaitForRows();
  const uint32_t strips = p.columns.divisor * p.strips.divisor;
  for (uint32_t i = threadIdx.x; i < strips; i += blockDim.x) {
    uint32_t group = i;
    const int below = static_cast<int>(p.columns.take(&group)) * p.rows;
    const ColumnOf<S> of(p, group);
    if (below >= piece.rows || of.column >= piece.columns) continue;
#pragma unroll
    for (int a = 0; a < S::kDeep; ++a) {
      staged.y[a] = made.shared_y[a] - static_cast<uint32_t>(outputs) * S::kSize + below * S::YStep(p);
      staged.routes[a] = made.shared_routes[a] - codes_before + below * S::RouteStep(p);
    }
    S::Run(p, nullptr, staged, piece.plane, piece.depth, piece.row + below, piece.column + of.column, of.channel);
  }
  courier.Made();
  for (int a = 0; a < made.parts; ++a) {
    if (p.y) {
      courier.SendRows(made.Values(p, shared, a), made.y + a * made.y_depth, p.line, piece.rows, piece.columns * each,
                       pieces.pitch[2]);
    }
    unsigned char* codes = made.Codes(p, shared, a);
    uint8_t* routes = made.routes + a * made.routes_depth;
    if constexpr (S::kRoutes && S::kApart) {
      for (int r = threadIdx.x / 32; r < piece.rows; r += blockDim.x / 32) {
        for (int i = threadIdx.x % 32; i < (piece.columns * S::kBits + 7) / 8; i += 32) {
          routes[r * p.line_bytes + i] = PackedCodes<T, F>(p, codes + r * pieces.pitch[1], i, piece.columns);
        }
      }
    } else if constexpr (S::kRoutes) {
      const int bytes = S::kFlat ? piece.columns * p.place_bytes : (piece.columns * S::kBits + 7) / 8;
      courier.SendRows(codes, routes, p.line_bytes, piece.rows, bytes, pieces.pitch[1]);
    }
  }
  courier.Leave();
}

// A kernel's body.
template <class T, Form F>
__device__ void RunStripForm(const StripParams& p) {
  WaitForEarlier();
  if constexpr (Strip<T, F>::kShared) {
    extern __shared__ __align__(16) unsigned char strip_shared[];
    if constexpr (F.cut) {
      RunCutStrip<T, F>(p, strip_shared);
    } else {
      RunStagedStrip<T, F>(p, strip_shared);
    }
  } else {
    RunStrip<T, F>(p);
  }
}

}  // namespace poolgrad::cuda
