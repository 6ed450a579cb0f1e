#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#ifndef POOLGRAD_NO_THREADS
#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <charconv>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "base/workers.h"
#endif

namespace poolgrad {

#ifdef POOLGRAD_NO_THREADS

Result<int> ThreadsAskedFor() { return 1; }
int DefaultThreads() { return 1; }

void ParallelFor(int, int64_t count, poolgrad_task_fn task, void* context) {
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

#else

namespace {

// The team lives as long as the process: joining threads in a static destructor can deadlock in a host that unloads us.
// It lies in memory that is there from the start, so that a forked child need not ask for any.
union Place {
  constexpr Place() : team() {}
  ~Place() {}
  Workers team;
};
constinit Place place;

// A forked child has none of its parent's threads: it starts anew, and forgets what a thread may have held just then.
void StartAnew() { ::new (&place.team) Workers; }

// Without it a child would wait for threads that it does not have: then there is no team, and callers work alone.
const bool forks_are_noticed = pthread_atfork(nullptr, nullptr, StartAnew) == 0;

// Processors that this process may use, which may be fewer than the machine has.
int Processors() {
#ifdef __linux__
  for (int most = 1024; most <= 1 << 20; most *= 4) {  // the kernel refuses a set that is too small for its machine
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int MachineThreads() {
  static const int threads = std::min(Processors(), kMostThreads);
  return threads;
}

// 0 when `text` is no number from 1 to kMostThreads.
int ParseThreads(std::string_view text) {
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && threads >= 1 && threads <= kMostThreads ? threads : 0;
}

}  // namespace

Result<int> ThreadsAskedFor() {
  const char* text = std::getenv("POOLGRAD_THREADS");
  if (!text || !*text) return MachineThreads();
  if (const int threads = ParseThreads(text)) return threads;
  return Status::Invalid("the environment variable POOLGRAD_THREADS is " + Quoted(text) +
                         "; it must be a number from 1 to " + std::to_string(kMostThreads));
}

int DefaultThreads() {
  const Result<int> asked = ThreadsAskedFor();
  return asked.ok() ? *asked : MachineThreads();
}

void ParallelFor(int threads, int64_t count, poolgrad_task_fn task, void* context) {
  if (threads <= 1 || count <= 1 || !forks_are_noticed) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  place.team.Run(static_cast<int>(std::min<int64_t>(threads, count)), count, task, context);
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
  host.parallel(member, &team, static_cast<unsigned>(std::clamp<int64_t>(count, 1, std::max<int64_t>(host.threads, 1))),
                0);
}

}  // namespace poolgrad
