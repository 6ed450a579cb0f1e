// Whole planes between global and shared memory. Planes of a channels-first array follow one another, so a block's
// share is one contiguous run of bytes, moved in 16-byte pieces whatever the rows' alignment; the run keeps its place
// modulo 16.
#pragma once

#include "cuda/common/packs.cuh"

namespace poolgrad::cuda {

// Bytes to add to a 16-byte aligned shared address so that it is congruent to `global` modulo 16.
template <class T>
__device__ int Misalignment(const T* global) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(global) & 15);
}

// [head, head + 16 * pieces) is the 16-byte aligned part of `count` elements; the rest lies before and after it.
template <class T>
struct Run16 {
  int head, pieces;
  __device__ Run16(const T* global, int count) {
    head = static_cast<int>(((16 - Misalignment(global)) & 15) / sizeof(T));
    if (head > count) head = count;
    pieces = static_cast<int>((count - head) * sizeof(T) / 16);
  }
};

// 16 bytes of global memory on their way to shared memory.
__device__ inline void CopyAsync(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// Everything that was asked for is there, for every thread of the block.
__device__ inline void WaitFor() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncthreads();
}

// What was asked for since the last time is a group; groups arrive in order.
__device__ inline void CommitAsked() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ void WaitForAllBut() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
  __syncthreads();
}

// The elements of a run before and after its whole pieces; there are fewer than 16 of each.
template <class T>
__device__ void CopyEnds(const Run16<T>& run, const T* from, int count, T* to, int i = threadIdx.x) {
  const int tail = run.head + run.pieces * (16 / static_cast<int>(sizeof(T)));
  if (i < run.head) to[i] = from[i];
  if (i < count - tail) to[tail + i] = from[tail + i];
}

// shared + Misalignment(global) will be a copy of global[0, count) after WaitFor. Returns the first element.
template <class T>
__device__ T* AskFor(const T* global, int count, unsigned char* shared) {
  T* to = reinterpret_cast<T*>(shared + Misalignment(global));
  const Run16<T> run(global, count);
  constexpr int kPer16 = 16 / sizeof(T);
  for (int i = threadIdx.x; i < run.pieces; i += blockDim.x) {
    CopyAsync(to + run.head + i * kPer16, global + run.head + i * kPer16);
  }
  CopyEnds(run, global, count, to);
  return to;
}

template <class T>
__device__ T* StageIn(const T* global, int count, unsigned char* shared) {
  T* to = AskFor(global, count, shared);
  WaitFor();
  return to;
}

// The same for planes of whole 16-byte pieces, aligned, which are moved 16 bytes apart.
template <class T>
__device__ void StageApart(const T* global, int pieces, const FastDiv& per_plane, unsigned char* shared) {
  const auto* from = reinterpret_cast<const uint4*>(global);
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) {
    uint32_t rest = i;
    const uint32_t plane = per_plane.take(&rest);
    CopyAsync(reinterpret_cast<uint4*>(shared) + i + plane, from + i);
  }
  WaitFor();
}

// The other way, from what the block's threads have made there; the caller has waited for them. `shared` is what
// StageIn's `shared` was.
template <class T>
__device__ void StageOut(const unsigned char* shared, T* global, int count) {
  const T* from = reinterpret_cast<const T*>(shared + Misalignment(global));
  const Run16<T> run(global, count);
  constexpr int kPer16 = 16 / sizeof(T);
  for (int i = threadIdx.x; i < run.pieces; i += blockDim.x) {
    *reinterpret_cast<uint4*>(global + run.head + i * kPer16) =
        *reinterpret_cast<const uint4*>(from + run.head + i * kPer16);
  }
  CopyEnds(run, from, count, global);
}

// global[0, count) becomes 0.
template <class T>
__device__ void ClearRun(T* global, int count) {
  const Run16<T> run(global, count);
  constexpr int kPer16 = 16 / sizeof(T);
  for (int i = threadIdx.x; i < run.pieces; i += blockDim.x) {
    *reinterpret_cast<uint4*>(global + run.head + i * kPer16) = make_uint4(0, 0, 0, 0);
  }
  const int i = threadIdx.x, tail = run.head + run.pieces * kPer16;
  if (i < run.head) global[i] = T(0.0f);
  if (i < count - tail) global[tail + i] = T(0.0f);
}

__device__ inline uint32_t SharedAddress(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

// Of an array in global memory.
template <class T>
struct Whole {
  const T *begin, *end;
};

// Moves a block's runs in and out, once each. Devices that can (compute capability 9) are asked for a whole run by one
// thread, which costs the others no instruction; on the others every thread moves its pieces.
class Courier {
 public:
  __device__ Courier() {
#if __CUDA_ARCH__ >= 900
    __shared__ uint64_t barrier;
    arrived_ = SharedAddress(&barrier);
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(arrived_) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
#endif
  }

  // As AskFor.
  template <class T>
  __device__ T* Ask(const T* global, int count, unsigned char* shared) {
#if __CUDA_ARCH__ >= 900
    T* to = reinterpret_cast<T*>(shared + Misalignment(global));
    Ask(global, count, to, static_cast<int>(threadIdx.x));
    return to;
#else
    return AskFor(global, count, shared);
#endif
  }

  // The same for rows of an array, `step` elements apart in global memory and `pitch` bytes in shared memory, equal
  // modulo 16: a warp for each. Before: Open; after: WaitForRows.
  template <class T>
  __device__ T* AskRows(const Whole<T>& array, const T* global, int64_t step, int rows, int count,
                        unsigned char* shared, uint32_t pitch) {
    unsigned char* first = shared + Misalignment(global);
#if __CUDA_ARCH__ >= 900
    for (int row = threadIdx.x / 32; row < rows; row += blockDim.x / 32) {
      const T* from = global + row * step;
      unsigned char* to = first + row * pitch;
      // With its neighbours up to whole pieces, where there are some, it need not be waited for.
      const int before = Misalignment(from) / static_cast<int>(sizeof(T));
      const int after = (16 - Misalignment(from + count)) % 16 / static_cast<int>(sizeof(T));
      const bool wide = from - before >= array.begin && from + count + after <= array.end;
      Ask(wide ? from - before : from, wide ? before + count + after : count,
          reinterpret_cast<T*>(wide ? to - before * static_cast<int>(sizeof(T)) : to), threadIdx.x % 32);
    }
#else
    for (int row = 0; row < rows; ++row) {
      const T* from = global + row * step;
      AskFor(from, count, first + row * pitch - Misalignment(from));
    }
#endif
    return reinterpret_cast<T*>(first);
  }
  __device__ void Open() {
#if __CUDA_ARCH__ >= 900
    __syncthreads();
#endif
  }
  __device__ void WaitForRows() {
#if __CUDA_ARCH__ >= 900
    __syncthreads();  // every warp has said how much will arrive
#endif
    Wait();
  }

  // Everything that was asked for is there, for every thread of the block.
  __device__ void Wait() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(arrived_) : "memory");
    __syncthreads();
    asm volatile(
        "{\n .reg .pred p;\n again:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n @!p bra again;\n}" ::"r"(
            arrived_)
        : "memory");
#else
    WaitFor();
#endif
  }

  // What the block's threads have made may be sent.
  __device__ void Made() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
  }

  // As StageOut.
  template <class T>
  __device__ void Send(const unsigned char* shared, T* global, int count) {
#if __CUDA_ARCH__ >= 900
    const T* from = reinterpret_cast<const T*>(shared + Misalignment(global));
    const Run16<T> run(global, count);
    Send(from, global, count, static_cast<int>(threadIdx.x));
#else
    StageOut(shared, global, count);
#endif
  }

  // As AskRows.
  template <class T>
  __device__ void SendRows(const unsigned char* shared, T* global, int64_t step, int rows, int count, uint32_t pitch) {
    const unsigned char* first = shared + Misalignment(global);
#if __CUDA_ARCH__ >= 900
    for (int row = threadIdx.x / 32; row < rows; row += blockDim.x / 32) {
      Send(reinterpret_cast<const T*>(first + row * pitch), global + row * step, count, threadIdx.x % 32);
    }
#else
    for (int row = 0; row < rows; ++row) {
      T* to = global + row * step;
      StageOut(first + row * pitch - Misalignment(to), to, count);
    }
#endif
  }

  // The block may end, when every thread that sent something has seen that it was read.
  __device__ void Leave() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 != 0) return;
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  }

 private:
#if __CUDA_ARCH__ >= 900
  // By the threads 0 to 31 of a group, or more.
  template <class T>
  __device__ void Ask(const T* global, int count, T* to, int thread) {
    const Run16<T> run(global, count);
    if (thread == 0 && run.pieces > 0) {
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(arrived_), "r"(run.pieces * 16)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       SharedAddress(to + run.head)),
                   "l"(global + run.head), "r"(run.pieces * 16), "r"(arrived_)
                   : "memory");
    }
    CopyEnds(run, global, count, to, thread);
  }
  template <class T>
  __device__ void Send(const T* from, T* global, int count, int thread) {
    const Run16<T> run(global, count);
    if (thread == 0 && run.pieces > 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global + run.head),
                   "r"(SharedAddress(from + run.head)), "r"(run.pieces * 16)
                   : "memory");
    }
    CopyEnds(run, from, count, global, thread);
  }

  uint32_t arrived_;  // the barrier's address
#endif
};

// Bytes before the first array that may be read: words of halves and codes begin with those left of a row's first.
inline constexpr int kReadBefore = 64;

// How the work of a staged kernel is cut: a block has several planes, or some depths of one, or some rows of one depth.
struct Pieces {
  FastDiv rows, depths;  // pieces along an axis; the rest are groups of planes
  int rows_each, depths_each, planes_each;
  int64_t planes;
  int place[3];  // in shared memory, of what is read second, and of what is written first and second
  // Pieces of rows: of one depth of what is read first and second (or written second) and of what is written first.
  int slab_bytes[3];
  // Where rows are cut, too: pieces along the width, their columns, all columns, and bytes from a row to the next of
  // what is read first and second (or written second) and of what is written first.
  FastDiv columns;
  int columns_each, all_columns;
  uint32_t pitch[3];  // in shared memory addresses count modulo 2^32
};

// A block's piece.
struct Piece {
  int64_t plane;
  int planes, depth, depths, row, rows;
  __device__ Piece(const Pieces& p, int all_depths, int all_rows, uint32_t number = blockIdx.x) {
    uint32_t r = number, d;
    uint32_t rest = p.rows.take(&r);
    d = rest, rest = p.depths.take(&d);
    plane = static_cast<int64_t>(rest) * p.planes_each;
    planes = static_cast<int>(min(static_cast<int64_t>(p.planes_each), p.planes - plane));
    depth = static_cast<int>(d) * p.depths_each, depths = min(p.depths_each, all_depths - depth);
    row = static_cast<int>(r) * p.rows_each, rows = min(p.rows_each, all_rows - row);
  }
};

// The same where rows are cut: some columns of some rows of one depth.
struct CutPiece : Piece {
  int column, columns;
  __device__ CutPiece(const Pieces& p, int all_depths, int all_rows) : CutPiece(p, all_depths, all_rows, blockIdx.x) {}

 private:
  __device__ CutPiece(const Pieces& p, int all_depths, int all_rows, uint32_t c)
      : Piece(p, all_depths, all_rows, p.columns.take(&c)) {
    column = static_cast<int>(c) * p.columns_each, columns = min(p.columns_each, p.all_columns - column);
  }
};

// Which strip a thread's number is: of a group of columns, a strip of rows, a depth, and a plane or sample. Divided
// also where there is one of a kind: asking first made the compiler save registers, so that fewer rows were asked for
// ahead (2x2/2 in f32 with routes: 1.03 of copy became 0.84).
struct StripOf {
  uint32_t column, strip, depth, number;
  template <class Params>
  __device__ StripOf(const Params& p, uint32_t i) : column(i) {
    strip = p.columns.take(&column);
    depth = p.strips.take(&strip);
    number = p.depths.take(&depth);
  }
};

// Keeps the compiler from finding a number again and again instead of keeping it.
__device__ inline uint32_t Kept(uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

// What a block reads, in shared memory: a run of depths (of several planes, if they are whole), or slabs of rows of the
// depths that its windows touch. Addresses are those that row 0 of depth 0 would have (modulo 2^32).
template <class T, int kSlabs>
struct Staged {
  uint32_t run;           // of the piece's first plane
  uint32_t slab[kSlabs];  // of each depth

  __device__ void AskRun(Courier& courier, const T* global, const Piece& piece, int64_t plane_step, int64_t depth_step,
                         int low, int high, unsigned char* shared) {
    const int64_t count = piece.planes > 1 ? piece.planes * plane_step : max(0, high - low) * depth_step;
    run = Ask(courier, global, low * depth_step, count, shared);
  }
  __device__ void AskSlab(Courier& courier, int i, const T* global, int64_t row_step, int low, int high,
                          unsigned char* shared) {
    slab[i] = Ask(courier, global, low * row_step, max(0, high - low) * row_step, shared);
  }

 private:
  __device__ static uint32_t Ask(Courier& courier, const T* global, int64_t from, int64_t count,
                                 unsigned char* shared) {
    return SharedAddress(courier.Ask(global + from, static_cast<int>(count), shared)) -
           static_cast<uint32_t>(from) * static_cast<uint32_t>(sizeof(T));
  }
};

}  // namespace poolgrad::cuda
