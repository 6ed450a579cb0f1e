// A plan: a problem, the algorithm chosen for each operation, and how a run is split. Immutable after Make.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "spec/kernel.h"
#ifdef POOLGRAD_HAVE_CUDA
#include "cuda/cuda.h"
#endif

namespace poolgrad {

class Plan {
 public:
  // Of a new plan, once, before all else; where it fails there is no plan. `algorithm`: null, or the only one to use
  // besides the reference. `may_compile`: kernels, while the program runs.
  Status Make(const poolgrad_problem& raw, const char* algorithm, bool may_compile = true);

  const Problem& problem() const { return problem_; }
  bool on_cpu() const { return problem_.device == POOLGRAD_CPU; }
  // Null when the plan cannot do `op`.
  const char* algorithm(poolgrad_op op) const { return chosen_[op].name; }
  // OK, or why the plan cannot do `op`.
  Status can(poolgrad_op op) const;
  uint64_t scratch_bytes(poolgrad_op op, int threads) const;
  std::string Explain() const;

  // The pointers were checked by the caller.
  Status Run(poolgrad_op op, const Args& args, const poolgrad_exec& exec) const;
  Status RoutesToIndices(const uint8_t* routes, poolgrad_numbering numbering, int64_t* indices,
                         const poolgrad_exec& exec) const;

 private:
  struct Choice {
    const char* name = nullptr;
    Kernel kernel;
#ifdef POOLGRAD_HAVE_CUDA
    CudaKernel cuda;
#endif
  };
  struct Refusal {
    poolgrad_op op;
    const char *algorithm, *reason;
  };

  int64_t Work(poolgrad_op op) const;
  int ThreadsFor(int64_t work, int threads) const;
  int64_t TasksWorth(int64_t work, int threads, int per_thread) const;
  void RunTasks(int threads, int64_t tasks, const poolgrad_exec& exec, poolgrad_task_fn task, void* context) const;
  int64_t TasksFor(poolgrad_op op, int threads) const;

  std::string text_;  // the problem's one line, if it has a table: those are the caller's
  poolgrad_problem raw_{};
  Problem problem_;
#ifdef POOLGRAD_HAVE_CUDA
  Problem launched_;  // the same work on the same bytes
#endif
  Host host_;
  int64_t bytes_shared_ = 0;
  int64_t bytes_per_thread_ = 0;
  int64_t bytes_per_task_ = 0;
  Choice chosen_[POOLGRAD_OP_COUNT];
  std::vector<Refusal> refusals_;
};

}  // namespace poolgrad
