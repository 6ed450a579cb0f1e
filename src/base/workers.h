// Threads that wait for work: one team for the whole library, which grows to the most threads ever asked for.
//
// A worker that has nothing to do looks for work a little longer, a few times as long as waking it would take, and then
// sleeps: layers that follow each other at once find it awake, and a host's own threads have the core back after that
// moment. Workers wake each other, so that the caller does not spend its time waking all of them, and the caller waits
// only for those that came in time: a late one finds the call closed and goes back to sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "poolgrad/poolgrad.h"

namespace poolgrad {

class Workers {
 public:
  constexpr Workers() = default;
  // Never destroyed: its threads never end.

  // Calls task(context, i) once for every i in [0, count), on the calling thread and at most `threads` - 1 workers.
  // Each thread begins with its own range of neighbouring tasks and then helps the others. Callers take turns. Where
  // the system gives fewer threads than asked for, those there are do all the work. std::bad_alloc comes before the
  // first task.
  void Run(int threads, int64_t count, poolgrad_task_fn task, void* context);

 private:
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  struct alignas(64) Worker {
    Workers* team;
    int number;  // from 1 on; the caller is 0
    std::atomic<uint32_t> calls{0};
    std::atomic<bool> asleep{false};
  };

  void Grow(int threads);
  void Live(Worker& self);
  void Wake(int number);
  void WakeAfter(int number);
  void Work(int number);

  std::mutex turn_;
  std::unique_ptr<Worker*[]> workers_;  // room for as many as ranges_ has, less one; they live as long as their threads
  std::unique_ptr<Range[]> ranges_;     // one for each thread, the caller's first
  int room_ = 0;                        // of ranges_
  int started_ = 0;                     // of workers_
  int team_ = 0;                        // threads of this call, the caller included
  poolgrad_task_fn task_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint32_t> state_{0};  // kOpen while workers may join, and how many are in
};

}  // namespace poolgrad
