#ifndef POOLGRAD_NO_THREADS

#include "base/workers.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace poolgrad {

namespace {

constexpr uint32_t kOpen = uint32_t{1} << 31;
constexpr int kFanOut = 5;  // workers that one thread wakes; 2 to 16 were tried on 16 cores
// Waking a thread takes 3 to 30 us, by the machine, and of 16 the last one is done long after the first: with 60 or 200
// us in place of 20, calls of 60 to 150 us took 0.9 of their time there, shorter ones the same.
constexpr std::chrono::microseconds kPatience{100};

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Whether `done()` became true within kPatience.
template <class Done>
bool Spin(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

void Workers::Run(int threads, int64_t count, poolgrad_task_fn task, void* context) {
  const std::lock_guard lock(turn_);
  Grow(threads);
  task_ = task;
  context_ = context;
  team_ = std::min(threads, started_ + 1);
  for (int t = 0; t < team_; ++t) {
    const auto begin = [&](int64_t of) { return count / team_ * of + count % team_ * of / team_; };
    ranges_[t].next.store(begin(t), std::memory_order_relaxed);
    ranges_[t].end = begin(t + 1);
  }
  state_.store(kOpen, std::memory_order_release);
  WakeAfter(0);
  Work(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto left = [this] { return state_.load(std::memory_order_acquire) == 0; };
  if (Spin(left)) return;
  for (uint32_t in; (in = state_.load(std::memory_order_acquire)) != 0;) state_.wait(in, std::memory_order_acquire);
}

// All memory is taken before the thread that stands on it is started.
void Workers::Grow(int threads) {
  if (room_ < threads) {
    auto ranges = std::make_unique<Range[]>(static_cast<size_t>(threads));
    auto workers = std::make_unique<Worker*[]>(static_cast<size_t>(threads));
    std::copy_n(workers_.get(), started_, workers.get());
    ranges_ = std::move(ranges);
    workers_ = std::move(workers);
    room_ = threads;
  }
  while (started_ < threads - 1) {
    auto worker = std::make_unique<Worker>();
    worker->team = this;
    worker->number = started_ + 1;
    pthread_t thread;
    const auto live = [](void* self) -> void* {
      static_cast<Worker*>(self)->team->Live(*static_cast<Worker*>(self));
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, live, worker.get()) != 0) return;
    pthread_detach(thread);
    workers_[static_cast<size_t>(started_++)] = worker.release();
  }
}

void Workers::Live(Worker& self) {
  for (uint32_t seen = 0;;) {
    const auto called = [&] { return self.calls.load(std::memory_order_acquire) != seen; };
    if (!Spin(called)) {
      self.asleep.store(true);  // before it looks again, and whoever calls looks at it after the call
      while (self.calls.load() == seen) self.calls.wait(seen);
      self.asleep.store(false);
    }
    seen = self.calls.load(std::memory_order_acquire);
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kOpen) && !state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
    }
    if (!(state & kOpen)) continue;
    if (self.number < team_) {
      WakeAfter(self.number);
      Work(self.number);
    }
    if (state_.fetch_sub(1, std::memory_order_release) == 1)
      state_.notify_one();  // closed, and this was the last one in
  }
}

void Workers::Wake(int number) {
  Worker& worker = *workers_[static_cast<size_t>(number - 1)];
  worker.calls.fetch_add(1);
  if (worker.asleep.load()) worker.calls.notify_one();
}

void Workers::WakeAfter(int number) {
  for (int i = 1; i <= kFanOut; ++i) {
    if (const int next = number * kFanOut + i; next < team_) Wake(next);
  }
}

void Workers::Work(int number) {
  for (int t = 0; t < team_; ++t) {
    Range& range = ranges_[(number + t) % team_];
    if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
    for (int64_t i; (i = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) task_(context_, i);
  }
}

}  // namespace poolgrad

#endif  // POOLGRAD_NO_THREADS
