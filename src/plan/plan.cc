#include "plan/plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/parallel.h"
#include "cpu/tuning.h"
#include "plan/indices.h"
#include "reference/reference.h"
#include "spec/fold.h"
#ifdef POOLGRAD_HAVE_SIMD
#include "cpu/cpu.h"
#endif

namespace poolgrad {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLargeScratch = 8 << 20;  // of a task (docs/guides/memory.md)

// The vector kernels, fastest first; after them comes the reference.
std::span<const Algorithm> VectorKernels([[maybe_unused]] poolgrad_op op) {
#ifdef POOLGRAD_HAVE_SIMD
  const bool forward = op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES;
  return forward ? ForwardAlgorithms() : BackwardAlgorithms();
#else
  return {};
#endif
}

bool IsVector(const char* algorithm) { return algorithm && algorithm != ReferenceAlgorithms().front().name; }

// Operations a problem has at all; null, or why not.
const char* Missing(const Problem& p, poolgrad_op op) {
  if (p.kind == POOLGRAD_AVERAGE) {
    if (op == POOLGRAD_OP_FORWARD_ROUTES || op == POOLGRAD_OP_GATHER || op == POOLGRAD_OP_UNPOOL) {
      return "average pooling keeps no routes; its forward pass is its own tangent";
    }
    if (op == POOLGRAD_OP_BACKWARD_X) return "the gradient of average pooling does not depend on x; use backward";
  }
  if (IsInteger(p.dtype) && (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X)) {
    return "integer types have no gradient; use the routes with a plan of a floating-point type";
  }
  if (op == POOLGRAD_OP_BIAS_GRADIENT && !p.bias) return "the problem has no bias";
  if (op == POOLGRAD_OP_BACKWARD_X && p.bias) {
    return "x does not say who outlives the bias; keep the routes of poolgrad_forward_bias and use backward";
  }
  return nullptr;
}

struct Job {
  const Problem* problem;
  const Args* args;
  const Kernel* kernel;
  int64_t tasks;
  std::byte* scratch;
  int64_t scratch_step;
};

void RunTask(void* context, int64_t task) {
  const Job& job = *static_cast<const Job*>(context);
  const auto unit = [&](int64_t t) {  // floor(units * t / tasks) without overflow
    if (job.tasks == 1) return t * job.kernel->units;
    return job.kernel->units / job.tasks * t + job.kernel->units % job.tasks * t / job.tasks;
  };
  job.kernel->Run(*job.problem, *job.args, unit(task), unit(task + 1), job.scratch + task * job.scratch_step);
}

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string Bytes(int64_t n) {
  if (n < 10 * 1024) return std::to_string(n) + " B";
  if (n < 10 * 1024 * 1024) return std::to_string(n / 1024) + " KiB";
  return std::to_string(n / 1024 / 1024) + " MiB";
}

}  // namespace

Status Plan::Make(const poolgrad_problem& raw, const char* algorithm, bool may_compile) {
  Result<Problem> problem = Resolve(raw);
  if (!problem.ok()) return problem.status();
  raw_ = raw;
  if (raw.starts[0] || raw.starts[1] || raw.starts[2]) text_ = FormatProblem(raw);
  problem_ = *std::move(problem);
  problem_.may_compile = may_compile;
  const Problem& p = problem_;
  bytes_shared_ = Tuning().bytes_shared;
  bytes_per_thread_ = Tuning().bytes_per_thread;
  bytes_per_task_ = Tuning().bytes_per_task;
  host_.threads = DefaultThreads();
#ifdef POOLGRAD_HAVE_SIMD
  const Result<SimdSet> simd = ChooseSimd();
  if (!simd.ok()) return simd.status();
  host_.simd = simd->simd;
#endif
  const char* who = "algorithm";
  if (!algorithm) {
    algorithm = std::getenv("POOLGRAD_ALGORITHM");
    who = "the environment variable POOLGRAD_ALGORITHM";
  }
  if (algorithm && !*algorithm) algorithm = nullptr;
  bool known = algorithm == nullptr;

  if (p.device == POOLGRAD_CUDA) {
#ifdef POOLGRAD_HAVE_CUDA
    if (const char* reason = CudaRefusesTables(p)) return Status::Unsupported(std::string("device is CUDA; ") + reason);
    for (const Axis& a : p.axis) {
      if (p.kind == POOLGRAD_AVERAGE && a.whole.size() > 0) {
        return Status::Unsupported("device is CUDA; averages of a part of a problem are pooled on the CPU only");
      }
    }
    if (Status status = CheckCudaDevice(p.device_index); !status.ok()) return status;
    launched_ = p;
    FoldChannel(&launched_);
#else
    return Status::Unsupported("device is CUDA; this build of poolgrad has no CUDA support");
#endif
  }
  const bool empty =
      p.x_elements() == 0 || p.y_elements() == 0;  // left to the last resort: kernels may divide by sizes
  refusals_.reserve(40);                           // most plans have fewer
  // Whether a candidate was taken; make(choice) gives null, or why not.
  const auto takes = [&](poolgrad_op op, const char* name, bool last_resort, const auto& make) {
    const bool named = algorithm && std::strcmp(name, algorithm) == 0;
    known = known || named;
    const char* reason = algorithm && !named && !last_resort ? "another algorithm was asked for"
                         : empty && !last_resort             ? "there is nothing to pool"
                                                             : make(chosen_[op]);
    if (reason) {
      refusals_.push_back({op, name, reason});
    } else {
      chosen_[op].name = name;
    }
    return !reason;
  };
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    const auto op = static_cast<poolgrad_op>(i);
    if (Missing(p, op)) continue;
#ifdef POOLGRAD_HAVE_CUDA
    if (p.device == POOLGRAD_CUDA) {
      const std::span<const CudaAlgorithm> list = CudaAlgorithms();
      for (const CudaAlgorithm& candidate : list) {
        const auto make = [&](Choice& choice) {
          const char* reason = candidate.refuse(launched_, op);
          if (reason) return reason;
          choice.cuda = candidate.make(launched_, op);
          return choice.cuda.launch ? nullptr : "it could not be compiled";
        };
        if (takes(op, candidate.name, &candidate == &list.back(), make)) break;
      }
      continue;
    }
#endif
    Host host = host_;
    const int64_t work = Work(op);
    host.threads = ThreadsFor(work, host.threads);
    host.tasks = TasksWorth(work, host.threads, kTasksPerThread);
    if (const Choice& find = chosen_[POOLGRAD_OP_FORWARD_ROUTES], &use = chosen_[POOLGRAD_OP_BACKWARD];
        op == POOLGRAD_OP_BACKWARD_X && !algorithm && IsVector(find.name) && IsVector(use.name)) {
      host.same = &p;
      host.forward_routes = &find.kernel;
      host.backward = &use.kernel;
    }
    Wanted wanted(p, op, host);
    const auto any_of = [&](std::span<const Algorithm> list, bool last_resort) {
      for (const Algorithm& candidate : list) {
        const auto make = [&](Choice& choice) { return candidate.make(wanted, &choice.kernel); };
        if (takes(op, candidate.name, last_resort, make)) return true;
      }
      return false;
    };
    if (!any_of(VectorKernels(op), false)) any_of(ReferenceAlgorithms(), true);
  }
  if (!known) {
    return Status::Invalid(std::string(who) + " is " + Quoted(algorithm) +
                           "; no operation of this problem has an algorithm of that name");
  }
  return {};
}

Status Plan::can(poolgrad_op op) const {
  if (const char* reason = Missing(problem_, op)) {
    return Status::Unsupported(std::string("the operation ") + Name(op) + " is not to be had: " + reason);
  }
  if (!chosen_[op].name) {
    return Status::Unsupported(std::string("the operation ") + Name(op) + " has no algorithm on this device");
  }
  return {};
}

// How long an operation takes, as the bytes of values that could be pooled instead. Of 103 small problems drawn at
// random routes and gradients took a median of 150 ns for each KiB of x and y, and averages 130 to 220, where values
// took 75.
int64_t Plan::Work(poolgrad_op op) const {
  const bool values = op == POOLGRAD_OP_FORWARD && problem_.kind == POOLGRAD_MAX && !problem_.by_table();
  return (problem_.x_bytes() + problem_.y_bytes()) * (values ? 1 : 2);
}

int Plan::ThreadsFor(int64_t work, int threads) const {
  if (threads <= 0) threads = host_.threads;
  if (work < bytes_shared_) return 1;
  return static_cast<int>(std::clamp<int64_t>(work / bytes_per_thread_, 1, threads));
}

// `threads` as ThreadsFor has them.
int64_t Plan::TasksWorth(int64_t work, int threads, int per_thread) const {
  if (threads == 1) return 1;
  return std::clamp<int64_t>(work / bytes_per_task_ / threads, 1, per_thread) * threads;
}

int64_t Plan::TasksFor(poolgrad_op op, int threads) const {
  const Kernel& kernel = chosen_[op].kernel;
  const int used = ThreadsFor(Work(op), threads);
  int64_t tasks = std::min(TasksWorth(Work(op), used, kernel.tasks_per_thread), kernel.units);
  if (kernel.scratch_bytes > kLargeScratch) tasks = std::min<int64_t>(tasks, used);  // each of them has its own
  if (kernel.repeated > 0) {  // a thread may do twice its share, to be done sooner; more tasks may cost an eighth
    const int64_t sooner = std::min<int64_t>(used, kernel.units / kernel.repeated);
    tasks = std::min(tasks, std::max(sooner, kernel.units / (8 * kernel.repeated)));
  }
  return std::max<int64_t>(tasks, 1);
}

uint64_t Plan::scratch_bytes(poolgrad_op op, int threads) const {
  if (!chosen_[op].name) return 0;
#ifdef POOLGRAD_HAVE_CUDA
  if (!on_cpu()) return static_cast<uint64_t>(chosen_[op].cuda.scratch_bytes);
#endif
  const int64_t step = RoundUp(chosen_[op].kernel.scratch_bytes);
  return step == 0 ? 0 : static_cast<uint64_t>(step * TasksFor(op, threads));
}

Status Plan::Run(poolgrad_op op, const Args& args, const poolgrad_exec& exec) const {
  const uint64_t needed = scratch_bytes(op, exec.threads);
  if (exec.scratch || !on_cpu()) {
    if (exec.scratch_bytes < needed) {
      return Status::Invalid("scratch_bytes is " + std::to_string(exec.scratch_bytes) + "; " + Name(op) + " needs " +
                             std::to_string(needed) + " with this number of threads");
    }
    if (reinterpret_cast<uintptr_t>(exec.scratch) % kAlignment != 0) {
      return Status::Invalid("scratch is not aligned; it must start at a multiple of 64 bytes");
    }
  }
  if (problem_.result_elements(op) == 0) return {};  // kernels see no empty result
#ifdef POOLGRAD_HAVE_CUDA
  if (!on_cpu()) return chosen_[op].cuda.Launch(launched_, op, args, exec.scratch, exec.stream);
#endif
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Free> own;
  auto* scratch = static_cast<std::byte*>(exec.scratch);
  if (!scratch && needed > 0) {
    own.reset(static_cast<std::byte*>(::operator new (needed, std::align_val_t{kAlignment}, std::nothrow)));
    if (!own) return {POOLGRAD_OUT_OF_MEMORY, "no memory for " + std::to_string(needed) + " bytes of scratch"};
    scratch = own.get();
  }
  const Kernel& kernel = chosen_[op].kernel;
  Job job{&problem_, &args, &kernel, TasksFor(op, exec.threads), scratch, RoundUp(kernel.scratch_bytes)};
  RunTasks(ThreadsFor(Work(op), exec.threads), job.tasks, exec, RunTask, &job);
  return {};
}

void Plan::RunTasks(int threads, int64_t tasks, const poolgrad_exec& exec, poolgrad_task_fn task, void* context) const {
  if (tasks > 1 && exec.parallel_for) {
    exec.parallel_for(exec.parallel_for_context, tasks, task, context);
  } else {
    ParallelFor(threads, tasks, task, context);
  }
}

Status Plan::RoutesToIndices(const uint8_t* routes, poolgrad_numbering numbering, int64_t* indices,
                             const poolgrad_exec& exec) const {
#ifdef POOLGRAD_HAVE_CUDA
  if (!on_cpu()) return CudaRoutesToIndices(problem_, routes, numbering, indices, exec.stream);
#endif
  struct Indexing {
    const Problem* problem;
    const uint8_t* routes;
    poolgrad_numbering numbering;
    int64_t* indices;
    int64_t step;
  };
  const int64_t outputs = problem_.y_elements();
  const int64_t work = 64 * outputs;  // a guess, not measured: some ns for each
  const int threads = ThreadsFor(work, exec.threads);
  const int64_t tasks = std::clamp<int64_t>(outputs, 1, TasksWorth(work, threads, kTasksPerThread));
  Indexing job{&problem_, routes, numbering, indices, CeilDiv(outputs, tasks)};
  const auto run = [](void* context, int64_t task) {
    const Indexing& j = *static_cast<const Indexing*>(context);
    poolgrad::RoutesToIndices(*j.problem, j.routes, j.numbering, j.indices,
                              {task * j.step, std::min((task + 1) * j.step, j.problem->y_elements())});
  };
  RunTasks(threads, tasks, exec, run, &job);
  return {};
}

std::string Plan::Explain() const {
  const Problem& p = problem_;
  std::string text = "problem   " + (text_.empty() ? FormatProblem(raw_) : text_) + "\n";
  const char* names[] = {"depth", "height", "width"};
  for (int i = 3 - p.rank; i < 3; ++i) {
    const Axis& a = p.axis[i];
    text += std::string(names[i]).append(10 - std::strlen(names[i]), ' ') + "in " + std::to_string(a.in) + ", out " +
            std::to_string(a.out);
    if (a.table) {
      text += ", windows by table of at most " + std::to_string(a.kernel) + "\n";
      continue;
    }
    text += ", kernel " + std::to_string(a.kernel) + ", stride " + std::to_string(a.stride) + ", dilation " +
            std::to_string(a.dilation) + ", padding " + std::to_string(a.pad_lo) + " low and " +
            std::to_string(a.pad_hi) + " high\n";
  }
  text += std::string("rules     ties ") + Name(p.ties) + ", nan " + Name(p.nan) + ", rounding " + Name(p.rounding) +
          ", dialect " + Name(p.dialect) + (p.relu ? ", relu" : "") + (p.bias ? " of x + bias" : "") + "\n";
  if (p.kind == POOLGRAD_MAX) {
    text += "routes    " + std::to_string(p.routes.bits) + " bits per output" +
            (p.routes.masks ? ", a set of taps" : ", one tap's number") + (p.routes.may_be_none ? " or none" : "") +
            ": " + Bytes(p.routes.bytes()) + " kept for backward; PyTorch would keep " +
            Bytes(8 * p.y_elements() + p.x_bytes()) + "\n";
  }
  text += "bytes     x " + Bytes(p.x_bytes()) + ", y " + Bytes(p.y_bytes()) + "\n";
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    const auto op = static_cast<poolgrad_op>(i);
    if (Missing(p, op)) continue;
    const Choice& choice = chosen_[i];
    text += std::string(Name(op)).append(16 - std::strlen(Name(op)), ' ') + (choice.name ? choice.name : "none");
    if (choice.kernel.shortcut.run) text += ", faster where no value of x is negative";
#ifdef POOLGRAD_HAVE_CUDA
    if (!choice.cuda.note.empty()) text += ", " + choice.cuda.note;
#endif
    text += "\n";
    for (const Refusal& r : refusals_) {
      if (r.op == op) text += std::string("  not ") + r.algorithm + ": " + r.reason + "\n";
    }
  }
  return text;
}

}  // namespace poolgrad
