#include "base/parallel.h"

#include <algorithm>
#include <atomic>

#ifndef POOLGRAD_NO_THREADS
#include <pthread.h>
#include <pthreadpool.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#endif

namespace poolgrad {

#ifdef POOLGRAD_NO_THREADS

int DefaultThreads() { return 1; }

void ParallelFor(int, int64_t count, poolgrad_task_fn task, void* context) {
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

#else

namespace {

// One pool per thread count, made when first asked for. pthreadpool lets several threads use a pool: they take turns. The
// pools live as long as the process: joining threads in a static destructor can deadlock in a host that unloads us.
struct Pools {
  std::mutex mutex;
  std::map<int, pthreadpool_t> of_size;
};
Pools* pools = nullptr;

// A forked child has none of its parent's threads: it starts anew, and leaves alone what a thread may have held just then.
void StartAnew() { pools = new Pools; }

pthreadpool_t PoolOf(int threads) {
  static std::once_flag once;
  std::call_once(once, [] {
    StartAnew();
    pthread_atfork(nullptr, nullptr, StartAnew);
  });
  const std::lock_guard lock(pools->mutex);
  pthreadpool_t& pool = pools->of_size[threads];
  if (!pool) pool = pthreadpool_create(static_cast<size_t>(threads));
  return pool;
}

struct Call {
  poolgrad_task_fn task;
  void* context;
};

// pthreadpool orders its threads with atomics that ThreadSanitizer cannot see into; these tell it what they guarantee.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
void Before(void* call) { __tsan_acquire(call); }
void After(void* call) { __tsan_release(call); }
#else
void Before(void*) {}
void After(void*) {}
#endif

}  // namespace

int DefaultThreads() {
  if (const char* text = std::getenv("POOLGRAD_THREADS")) {
    const int threads = std::atoi(text);
    if (threads > 0) return threads;
  }
  static const int machine = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return machine;
}

void ParallelFor(int threads, int64_t count, poolgrad_task_fn task, void* context) {
  pthreadpool_t pool = threads > 1 && count > 1 ? PoolOf(threads) : nullptr;
  if (!pool) {  // not wanted, or no thread could be made
    for (int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  // Idle workers sleep rather than spin: a spinning pool slows the host's own threads (PyTorch's, say) by more than it saves.
  Call call{task, context};
  After(&call);
  pthreadpool_parallelize_1d(
      pool,
      [](void* c, size_t i) {
        Before(c);
        const Call& one = *static_cast<const Call*>(c);
        one.task(one.context, static_cast<int64_t>(i));
        After(c);
      },
      &call, static_cast<size_t>(count), PTHREADPOOL_FLAG_YIELD_WORKERS);
  Before(&call);
}

#endif

namespace {

struct Team {
  std::atomic<int64_t> next{0};
  int64_t count;
  poolgrad_task_fn task;
  void* context;
};

}  // namespace

void ParallelForOpenMp(const poolgrad_openmp& host, int64_t count, poolgrad_task_fn task, void* context) {
  Team team{.count = count, .task = task, .context = context};
  const auto member = [](void* data) {
    Team& own = *static_cast<Team*>(data);
    for (int64_t i; (i = own.next.fetch_add(1, std::memory_order_relaxed)) < own.count;) own.task(own.context, i);
  };
  host.parallel(member, &team, static_cast<unsigned>(std::clamp<int64_t>(count, 1, std::max<int64_t>(host.threads, 1))), 0);
}

}  // namespace poolgrad
