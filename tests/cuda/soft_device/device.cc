#undef _FORTIFY_SOURCE  // which would have it that nobody jumps from one stack to another
#include "device.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "cuda_runtime.h"
#include "run.h"

// ThreadSanitizer sees every fiber as a thread that knows of the others only what barriers tell it, so that it finds
// what two threads of a block do to the same word of shared or global memory between two barriers, in whatever order
// they ran. This file itself is left out.
#ifdef POOLGRAD_SOFT_DEVICE_RACES
#include <sanitizer/tsan_interface.h>
#define SANITIZED(...) __VA_ARGS__
#else
#define SANITIZED(...)
#endif

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim;

extern "C" {
alignas(1024) thread_local unsigned char poolgrad_soft_shared[soft_device::kMostShared + soft_device::kFence];
}
// Kernels have names of their own for it.
#define SHARED(type, name) extern thread_local type name[] __attribute__((alias("poolgrad_soft_shared")))
namespace poolgrad::cuda {
SHARED(unsigned char, strip_shared);
SHARED(unsigned char, cells_shared);
SHARED(unsigned char, table_shared);
SHARED(unsigned char, rows_shared);
SHARED(unsigned char, sums_shared);
SHARED(unsigned char, shared);
SHARED(uint32_t, gather_shared);
SHARED(uint32_t, separable_words);
SHARED(uint32_t, doubling_words);
}  // namespace poolgrad::cuda

namespace soft_device {
namespace {

constexpr size_t kStack = 256 << 10, kStackFence = 16 << 10;
constexpr int kWarp = 32;
constexpr uint32_t kReserved = 1 << 10;  // shared memory that is the system's lies before a block's
constexpr uint64_t kGarbage = 0xA5A5A5A5A5A5A5A5u;

enum class Wait { kNothing, kBlock, kWarp, kEnd };

// Where a fiber, or who runs them, goes on.
struct Place {
  ucontext_t start;
  std::jmp_buf jump;
  bool began = false;
};

// Leaves `from` and goes on at `to`: by a jump, since swapcontext asks the system for the signals twice, which took
// half of the tests' time. ThreadSanitizer knows of contexts alone.
void Switch(Place& from, Place& to) {
  from.began = true;
#ifdef POOLGRAD_SOFT_DEVICE_RACES
  swapcontext(&from.start, &to.start);
#else
  if (_setjmp(from.jump) != 0) return;
  if (to.began) _longjmp(to.jump, 1);
  setcontext(&to.start);
#endif
}

// A thread of a block. It outlives blocks: its stack is made once.
struct Fiber {
  Place at;
  SANITIZED(void* thread = nullptr;)
  Wait wait = Wait::kEnd;
  uint32_t mask = 0;       // of those it waits for in its warp
  uint64_t shown = 0;      // to them
  uint64_t seen[kWarp];    // what they showed when all were there
  uint32_t seen_mask = 0;  // lanes that did
};

struct Block {
  std::deque<Fiber> fibers;
  int threads = 0, ended = 0, at_block = 0;
  bool seen = false, any = false;  // what SyncBlockOr gathers, and what it gathered last
  int running = 0;
  size_t shared_bytes = 0;
  const Call* call = nullptr;
  Place scheduler;
  SANITIZED(void* thread = __tsan_get_current_fiber();)

  ~Block() {
    for (Fiber& f : fibers) {
      SANITIZED(__tsan_destroy_fiber(f.thread);)
      munmap(f.at.start.uc_stack.ss_sp, kStack);
    }
  }

  Fiber& fiber() { return fibers[static_cast<size_t>(running)]; }
  int lane() const { return running % kWarp; }
  Fiber* warp(int lane) {
    const int thread = running / kWarp * kWarp + lane;
    return thread < threads ? &fibers[static_cast<size_t>(thread)] : nullptr;
  }

  // Gives way; comes back when nothing is waited for.
  void Yield() {
    SANITIZED(__tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);)
    Switch(fiber().at, scheduler);
  }

  // Lets go of the lanes of `mask`, if all of them wait for one another or have ended.
  void TryWarp(uint32_t mask) {
    uint64_t shown[kWarp];
    uint32_t there = 0;
    for (int i = 0; i < kWarp; ++i) {
      const Fiber* f = mask >> i & 1 ? warp(i) : nullptr;
      if (!f || f->wait == Wait::kEnd) continue;
      if (f->wait != Wait::kWarp || f->mask != mask) return;
      shown[i] = f->shown, there |= 1u << i;
    }
    for (int i = 0; i < kWarp; ++i) {
      if (!(there >> i & 1)) continue;
      Fiber* f = warp(i);
      f->wait = Wait::kNothing, f->seen_mask = there;
      for (int j = 0; j < kWarp; ++j) {
        if (there >> j & 1) f->seen[j] = shown[j];
      }
    }
  }

  void Resume(int thread) {
    running = thread;
    threadIdx = {static_cast<unsigned>(thread), 0, 0};
    SANITIZED(__tsan_switch_to_fiber(fiber().thread, __tsan_switch_to_fiber_no_sync);)
    Switch(scheduler, fiber().at);
  }

  void Run(int64_t number);
};

thread_local Block* block = nullptr;

// What a fiber does: the call of each block, one after the other.
void Live() {
  while (true) {
    SANITIZED(__tsan_acquire(&block->threads);)
    (*block->call)();
    Block& b = *block;
    SANITIZED(__tsan_release(&b.ended);)
    Fiber& f = b.fiber();
    f.wait = Wait::kEnd, ++b.ended;
    for (int i = 0; i < kWarp; ++i) {
      if (Fiber* other = b.warp(i); other && other->wait == Wait::kWarp) b.TryWarp(other->mask);
    }
    b.Yield();
  }
}

void Block::Run(int64_t number) {
  while (fibers.size() < static_cast<size_t>(threads)) {
    void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kStackFence, PROT_NONE) != 0) {
      Die("there is no memory for a thread's stack");
    }
    Fiber& f = fibers.emplace_back();
    ucontext_t& start = f.at.start;
    getcontext(&start);
    start.uc_stack.ss_sp = stack, start.uc_stack.ss_size = kStack, start.uc_link = nullptr;
    makecontext(&start, Live, 0);
    SANITIZED(f.thread = __tsan_create_fiber(0);)
  }
  for (int i = 0; i < threads; ++i) fibers[static_cast<size_t>(i)].wait = Wait::kNothing;
  ended = at_block = 0, seen = any = false;
  std::memset(poolgrad_soft_shared, 0xA5, shared_bytes + kFence);
  SANITIZED(__tsan_release(&threads);)
  for (int64_t round = number; ended < threads; ++round) {
    bool moved = false;
    for (int i = 0; i < threads; ++i) {
      const int thread = round % 2 == 0 ? i : threads - 1 - i;
      if (fibers[static_cast<size_t>(thread)].wait == Wait::kNothing) Resume(thread), moved = true;
    }
    if (ended < threads && at_block == threads - ended) {
      for (Fiber& f : fibers) {
        if (f.wait == Wait::kBlock) f.wait = Wait::kNothing;
      }
      at_block = 0, any = seen, seen = false, moved = true;
    }
    if (!moved) Die("threads of a block wait for different things, for ever");
  }
  SANITIZED(__tsan_acquire(&ended);)
  for (size_t i = 0; i < kFence; ++i) {
    if (poolgrad_soft_shared[shared_bytes + i] != 0xA5) Die("a thread wrote behind the shared memory of its block");
  }
}

}  // namespace

void Die(const char* why) {
  std::printf("FAILED %s (block %u, thread %u)\n", why, blockIdx.x, threadIdx.x);
  std::fflush(stdout);
  std::_Exit(1);
}

void RunGrid(const Call& call, int64_t blocks, int threads, size_t shared_bytes) {
  static thread_local int64_t launches = 0;
  static thread_local Block own;
  block = &own;
  own.threads = threads, own.shared_bytes = shared_bytes, own.call = &call;
  blockDim = dim3(static_cast<unsigned>(threads));
  ++launches;
  for (int64_t i = 0; i < blocks; ++i) {
    blockIdx = {static_cast<unsigned>(i), 0, 0};
    own.Run(i + launches);
  }
}

void SyncBlock() {
  block->fiber().wait = Wait::kBlock, ++block->at_block;
  SANITIZED(__tsan_release(&block->at_block);)
  block->Yield();
  SANITIZED(__tsan_acquire(&block->at_block);)
}

bool SyncBlockOr(bool mine) {
  block->seen |= mine;
  SyncBlock();
  return block->any;
}

void SyncWarp(uint32_t mask) {
  Block& b = *block;
  if (!(mask >> b.lane() & 1)) Die("a lane waits for others by a mask that it is not in");
  b.fiber().wait = Wait::kWarp, b.fiber().mask = mask;
  void* const met = &b.warp(static_cast<int>(__builtin_ctz(mask)))->mask;  // of those of the mask
  SANITIZED(__tsan_release(met);)
  b.TryWarp(mask);
  b.Yield();
  SANITIZED(__tsan_acquire(met);)
}

bool Any(uint32_t mask, bool mine) {
  Fiber& f = block->fiber();
  f.shown = mine;
  SyncWarp(mask);
  bool any = false;
  for (int i = 0; i < kWarp; ++i) any |= (f.seen_mask >> i & 1) && f.seen[i] != 0;
  return any;
}

uint64_t ShuffleDown(uint32_t mask, uint64_t mine, unsigned delta, int width) {
  Fiber& f = block->fiber();
  const unsigned lane = static_cast<unsigned>(block->lane()), from = lane + delta, end = static_cast<unsigned>(width);
  f.shown = mine;
  SyncWarp(mask);
  if (lane % end + delta >= end) return mine;
  return f.seen_mask >> from & 1 ? f.seen[from] : kGarbage;
}

uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(at) - poolgrad_soft_shared) + kReserved;
}

void* AtShared(uint32_t address, size_t bytes) {
  const uint32_t offset = address - kReserved;
  if (bytes > 0 && offset + bytes > block->shared_bytes) {
    Die("a thread reads or writes outside the shared memory of its block");
  }
  return poolgrad_soft_shared + offset;
}

}  // namespace soft_device
