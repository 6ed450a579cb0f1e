#include "base/parallel.h"

#include <algorithm>
#include <atomic>

#ifndef POOLGRAD_NO_THREADS
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/workers.h"
#endif

namespace poolgrad {

#ifdef POOLGRAD_NO_THREADS

int DefaultThreads() { return 1; }

void ParallelFor(int, int64_t count, poolgrad_task_fn task, void* context) {
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

#else

namespace {

// The team lives as long as the process: joining threads in a static destructor can deadlock in a host that unloads us.
Workers* workers = nullptr;

// A forked child has none of its parent's threads: it starts anew, and leaves alone what a thread may have held just then.
void StartAnew() { workers = new Workers; }

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
  if (threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  static std::once_flag once;
  std::call_once(once, [] {
    StartAnew();
    pthread_atfork(nullptr, nullptr, StartAnew);
  });
  workers->Run(static_cast<int>(std::min<int64_t>(threads, count)), count, task, context);
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
