// One plan, many threads; thread counts; the caller's own loop. The bits never depend on any of it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "support/pool.h"
#include "support/random_problem.h"

namespace poolgrad::oracle {
namespace {

// Large enough that a plan really splits it.
constexpr const char* kProblems[] = {
#if defined(__SANITIZE_THREAD__)  // a hundred times as slow: what threads share does not depend on the window
    "max f32 nchw 1x16x64x64 k3 s2 p1",
    "avg f32 nhwc 1x64x64x16 k2 s2",
#else
    "max f32 nchw 4x16x64x64 k3 s2 p1",
    "max f32 nhwc 4x64x64x16 k3 s2 p1",
    "max f32 nchw 2x16x64x64 k2 s2 torch",
    "max f64 nhwc 2x48x48x24 k3 s1 p1",
    "max f16 nchw 4x16x96x64 k5 s1 p2",
    "max f32 nhwc 2x64x64x24 k2 ties=split",
    "avg f32 nchw 4x16x64x64 k3 s2 p1",
    "max bf16 ncdhw 2x8x16x48x32 k2x3x3 s1",
    "max f32 ncw 4x64x4096 k4 s4",
    // An image so large that backward from x cuts it into bands.
    "max f32 nhwc 1x96x512x32 k3 s2 p1",
    "max bf16 ncw 1x2x800000 k5 s2 p2",
#endif
};

struct Results {
  std::vector<uint8_t> y, dx, dx_x, ty;
  Routes routes;
  bool operator==(const Results&) const = default;
};

struct Inputs {
  explicit Inputs(const Plan& plan) {
    const auto dtype = static_cast<poolgrad_dtype>(plan.dtype());
    x = RandomGradients(1, dtype, plan.info().x_elements);
    dy = RandomGradients(2, dtype, plan.info().y_elements);
  }
  std::vector<uint8_t> x, dy;
};

Results RunAll(const Plan& plan, const Inputs& in, const Exec& exec) {
  Results run;
  run.y.resize(static_cast<size_t>(plan.info().y_bytes));
  run.dx.resize(static_cast<size_t>(plan.info().x_bytes));
  run.routes = plan.make_routes();
  if (plan.is_average()) {
    check(poolgrad_forward(plan.raw(), in.x.data(), run.y.data(), nullptr, exec.raw()));
    check(poolgrad_backward(plan.raw(), in.dy.data(), nullptr, run.dx.data(), exec.raw()));
    return run;
  }
  run.dx_x.resize(run.dx.size());
  run.ty.resize(run.y.size());
  check(poolgrad_forward(plan.raw(), in.x.data(), run.y.data(), run.routes.data(), exec.raw()));
  check(poolgrad_backward(plan.raw(), in.dy.data(), run.routes.data(), run.dx.data(), exec.raw()));
  check(poolgrad_backward_x(plan.raw(), in.dy.data(), in.x.data(), run.dx_x.data(), exec.raw()));
  check(poolgrad_gather(plan.raw(), in.x.data(), run.routes.data(), run.ty.data(), exec.raw()));
  return run;
}

TEST(Threads, TheBitsDoNotDependOnTheirNumber) {
  for (const char* text : kProblems) {
    const Plan plan{std::string(text)};
    const Inputs in(plan);
    const Results one = RunAll(plan, in, Exec().threads(1));
    for (const int threads : {2, 3, 5, 16})
      EXPECT_EQ(RunAll(plan, in, Exec().threads(threads)), one) << text << " on " << threads;
    if (!plan.is_average()) {
      EXPECT_EQ(one.dx, one.dx_x) << text << ": backward from routes and from x";
    }
  }
}

TEST(Threads, ManyShareOnePlan) {
  const Plan plan{std::string(kProblems[0])};
  const Inputs in(plan);
  const Results expected = RunAll(plan, in, Exec().threads(1));
  std::atomic<int> different = 0;
  std::vector<std::thread> users;
  for (int i = 0; i < 6; ++i) {
    users.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) different += !(RunAll(plan, in, Exec().threads(1 + i % 3)) == expected);
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(different, 0);
}

TEST(Threads, PlansAreMadeAndErrorsKeptPerThread) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> users;
  for (int i = 0; i < 6; ++i) {
    users.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        try {
          const Plan plan("max f32 ncw 1x1x4 k" + std::to_string(5 + i));
          ++wrong;
        } catch (const Error& error) {
          const std::string sentence = error.what();
          wrong += sentence.find("kernel[0] is " + std::to_string(5 + i)) == std::string::npos;
        }
        const Plan good("max f32 ncw 1x1x16 k" + std::to_string(1 + i));
        wrong += good.info().taps != 1 + i;
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, AForkedChildHasThreadsOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no new threads after a fork";
#endif
  const Plan plan{std::string(kProblems[0])};
  const Inputs in(plan);
  const Exec exec = Exec().threads(2);
  const Results expected = RunAll(plan, in, exec);  // the parent's pool has been used
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // rather than wait for threads that are not there
    _exit(RunAll(plan, in, exec) == expected ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Threads, TheCallersOwnLoopRunsEveryTaskOnce) {
  const Plan plan{std::string(kProblems[0])};
  const Inputs in(plan);
  const Results expected = RunAll(plan, in, Exec().threads(1));
  int64_t calls = 0;
  int64_t tasks = 0;
  auto backwards = [&](int64_t count, auto task) {  // any order will do
    ++calls;
    tasks += count;
    for (int64_t i = count - 1; i >= 0; --i) task(i);
  };
  EXPECT_EQ(RunAll(plan, in, Exec().threads(4).parallel_for(backwards)), expected);
  EXPECT_EQ(calls, 4) << "one loop per operation";
  EXPECT_GT(tasks, calls) << "the work was split";

  auto on_threads = [](int64_t count, auto task) {
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < count; ++i) workers.emplace_back([task, i] { task(i); });
    for (std::thread& worker : workers) worker.join();
  };
  EXPECT_EQ(RunAll(plan, in, Exec().threads(2).parallel_for(on_threads)), expected);
}

TEST(Threads, AHostsOpenMpTeamRunsEveryTaskOnce) {
  const Plan plan{std::string(kProblems[0])};
  const Inputs in(plan);
  const Results expected = RunAll(plan, in, Exec().threads(1));
  // As GOMP_parallel does: every member runs the same function, the caller is one of them. A nested call gets no
  // others.
  const auto team = [](void (*member)(void*), void* data, unsigned threads, unsigned) {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(member, data);
    member(data);
    for (std::thread& other : others) other.join();
  };
  const auto alone = [](void (*member)(void*), void* data, unsigned, unsigned) { member(data); };
  for (const poolgrad_openmp& host : {poolgrad_openmp{team, 3}, poolgrad_openmp{alone, 3}, poolgrad_openmp{team, 1}}) {
    auto loop = [&](int64_t count, auto task) {
      poolgrad_parallel_for_openmp(
          const_cast<poolgrad_openmp*>(&host), count,
          [](void* context, int64_t i) { (*static_cast<decltype(task)*>(context))(i); }, &task);
    };
    EXPECT_EQ(RunAll(plan, in, Exec().threads(3).parallel_for(loop)), expected);
  }
}

TEST(Threads, TheCallersScratchIsUsedAndSuffices) {
  for (const char* text : kProblems) {
    const Plan plan{std::string(text)};
    if (plan.is_average()) continue;
    const Inputs in(plan);
    const Results expected = RunAll(plan, in, Exec().threads(1));
    for (const int threads : {1, 2, 5}) {
      const uint64_t bytes = plan.scratch_bytes(POOLGRAD_OP_BACKWARD_X, threads);
      std::vector<std::byte> memory(bytes + 256, std::byte{0xC3});
      std::byte* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
      std::vector<uint8_t> dx(static_cast<size_t>(plan.info().x_bytes));
      const Exec exec = Exec().threads(threads).scratch({aligned, bytes});
      check(poolgrad_backward_x(plan.raw(), in.dy.data(), in.x.data(), dx.data(), exec.raw()));
      EXPECT_EQ(dx, expected.dx_x) << text;
      for (std::byte* guard = aligned + bytes; guard < memory.data() + memory.size(); ++guard) {
        ASSERT_EQ(*guard, std::byte{0xC3}) << text << ": wrote past its scratch";
      }
    }
  }
}

}  // namespace
}  // namespace poolgrad::oracle
