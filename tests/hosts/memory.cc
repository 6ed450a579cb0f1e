// Memory that runs out, everywhere: this program's own malloc refuses the n-th request, for every n, while a plan is
// made, run on several threads and destroyed. Whatever it is refused, a call returns a status and a sentence, nothing
// crashes or hangs, and once there is memory again the same calls give the right bits. Each n has a process of its own,
// since the library's threads stay. Also: a process that forks when there is no memory.
//
// Needs glibc, whose malloc can be reached under another name.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "poolgrad/poolgrad.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> left{0};  // requests until one is refused
std::atomic<bool> refuse_all{false};
std::atomic<bool> refused{false};

bool Refuse() {
  if (!counting.load(std::memory_order_relaxed)) return false;
  if (!refuse_all && left.fetch_sub(1) != 1) return false;
  refused = true;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t bytes) { return Refuse() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t n, size_t bytes) { return Refuse() ? nullptr : __libc_calloc(n, bytes); }
void* realloc(void* old, size_t bytes) { return Refuse() ? nullptr : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) { return Refuse() ? nullptr : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return Refuse() ? nullptr : __libc_memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (Refuse()) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}

namespace {

constexpr int kThreads = 4;
constexpr char kProblem[] = "max f32 nchw 1x4x208x192 k2";

struct Results {
  std::vector<float> y, dx, dx_x;
  std::vector<unsigned char> routes;
  poolgrad_info info;
};

Results Room() {
  poolgrad_problem problem;
  poolgrad_plan* plan = nullptr;
  Results r;
  r.info.struct_size = sizeof r.info;
  if (poolgrad_problem_parse(kProblem, &problem) || poolgrad_plan_create(&problem, nullptr, &plan) ||
      poolgrad_plan_info(plan, &r.info)) {
    std::fprintf(stderr, "%s\n", poolgrad_last_error());
    _exit(3);
  }
  poolgrad_plan_destroy(plan);
  r.y.resize(static_cast<size_t>(r.info.y_elements));
  r.dx.resize(static_cast<size_t>(r.info.x_elements));
  r.dx_x.resize(r.dx.size());
  r.routes.resize(static_cast<size_t>(r.info.route_bytes));
  return r;
}

std::vector<float> Numbers(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i * 7919 % 1009);
  return values;
}

// Whether everything was done. A failure must say so, as it should.
bool RunAll(const std::vector<float>& x, Results& r, int threads = kThreads) {
  bool done = true;
  const auto good = [&](poolgrad_status status) {
    if (status == POOLGRAD_OK) return true;
    done = false;
    if (status != POOLGRAD_OUT_OF_MEMORY || std::strlen(poolgrad_last_error()) < 15) {
      std::fprintf(stderr, "status %d with the sentence '%s'\n", status, poolgrad_last_error());
      _exit(4);
    }
    return false;
  };
  poolgrad_problem problem;
  poolgrad_plan* plan = nullptr;
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec;
  exec.threads = threads;
  if (!good(poolgrad_problem_parse(kProblem, &problem)) || !good(poolgrad_plan_create(&problem, nullptr, &plan)))
    return false;
  size_t needed;
  good(poolgrad_plan_explain(plan, nullptr, 0, &needed));
  good(poolgrad_forward(plan, x.data(), r.y.data(), r.routes.data(), &exec));
  good(poolgrad_backward(plan, x.data(), r.routes.data(), r.dx.data(), &exec));
  good(poolgrad_backward_x(plan, x.data(), x.data(), r.dx_x.data(), &exec));
  poolgrad_plan_destroy(plan);
  return done;
}

bool Equal(const Results& a, const Results& b) {
  return a.y == b.y && a.dx == b.dx && a.dx_x == b.dx_x && a.routes == b.routes;
}

// Runs body in a child; its exit status, or 128 and more for a signal.
template <class Body>
int InAChild(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Failed(const char* what, int status) {
  std::fprintf(stderr, "%s: exit status %d\n", what, status);
  return 1;
}

}  // namespace

int main() {
  const Results room = Room();
  const std::vector<float> x = Numbers(room.dx.size());
  Results expected = room;
  if (!RunAll(x, expected, 1))
    return Failed("with all the memory there is", 1);  // no threads: children begin without any

  constexpr int kNotReached = 9;
  int n = 1;
  for (;; ++n) {
    const int status = InAChild([&] {
      Results r = room;
      left = n;
      counting = true;
      const bool done = RunAll(x, r);
      counting = false;
      if (!refused) return done ? kNotReached : 1;
      if (!RunAll(x, r)) return 1;  // there is memory again
      return Equal(r, expected) ? 0 : 2;
    });
    if (status == kNotReached) break;
    if (status != 0) return Failed(("request " + std::to_string(n) + " was refused").c_str(), status);
  }
  std::printf("%d requests for memory refused, one at a time\n", n - 1);
  if (n < 10) return Failed("hardly anything asked for memory; is this malloc in use?", n);

  const int forked = InAChild([&] {
    Results r = room;
    if (!RunAll(x, r)) return 1;  // with threads
    refuse_all = counting = true;
    const pid_t child = fork();
    if (child == 0) {
      counting = false;
      alarm(60);
      r = room;
      _exit(RunAll(x, r) && Equal(r, expected) ? 0 : 1);
    }
    counting = false;
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  });
  if (forked != 0) return Failed("forking without memory", forked);
  return 0;
}
