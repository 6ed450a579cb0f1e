// Running tasks on threads: the library's own pool, or whatever the caller brings.
#pragma once

#include <cstdint>

#include "poolgrad/poolgrad.h"

namespace poolgrad {

// POOLGRAD_THREADS when it is a positive number, else the machine's. 1 in a build without threads.
int DefaultThreads();

// Calls task(context, i) once for every i in [0, count) on at most `threads` threads; the calling thread takes part. One
// task, or one thread, never wakes another thread.
void ParallelFor(int threads, int64_t count, poolgrad_task_fn task, void* context);

// The same on a host's OpenMP threads. Every member of the team takes the next task until none is left, so fewer members than
// were asked for (inside another parallel region there is one) do all of them too.
void ParallelForOpenMp(const poolgrad_openmp& host, int64_t count, poolgrad_task_fn task, void* context);

}  // namespace poolgrad
