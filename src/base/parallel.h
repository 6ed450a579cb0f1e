// Running tasks on threads: the library's own pool, or whatever the caller brings.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "poolgrad/poolgrad.h"

namespace poolgrad {

inline constexpr int kMostThreads = 4096;

// What the environment variable POOLGRAD_THREADS says; without it, the processors that this process may run on, as they
// were when first asked for. 1 in a build without threads. A variable that holds anything but a number from 1 to
// kMostThreads is an error here, and as good as none to DefaultThreads.
Result<int> ThreadsAskedFor();
int DefaultThreads();

// Calls task(context, i) once for every i in [0, count) on at most `threads` threads; the calling thread takes part.
// One task, or one thread, never wakes another thread.
void ParallelFor(int threads, int64_t count, poolgrad_task_fn task, void* context);

// The same on a host's OpenMP threads. Every member of the team takes the next task until none is left, so fewer
// members than were asked for (inside another parallel region there is one) do all of them too.
void ParallelForOpenMp(const poolgrad_openmp& host, int64_t count, poolgrad_task_fn task, void* context);

}  // namespace poolgrad
