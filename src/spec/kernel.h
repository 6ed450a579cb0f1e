// The contract between the plan and whatever computes: reference and cpu give kernels that run on a range of units, so
// that the plan can split them among threads; units never share a byte of output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "spec/problem.h"

namespace poolgrad {

struct Args;
struct Kernel;

// Finishes outputs of problems with relu: stored as they were before it.
using Finisher = void (*)(const Problem& problem, const Args& args, Range outputs);

// The arrays of one run. Which are set depends on the operation:
//   forward         source = x                      result = y
//   forward_routes  source = x   routes (written)   result = y
//   backward        source = dy  routes (read)      result = dx
//   backward_x      source = dy  x                  result = dx
//   gather          source = tx  routes (read)      result = ty
//   unpool          source = y   routes (read)      result = x
//   bias_gradient   source = dy  routes (read)      result = dbias
// Forward of a problem with bias has that, too.
// Average pooling has no routes in any of them.
struct Args {
  const void* source = nullptr;
  const void* x = nullptr;
  uint8_t* routes = nullptr;
  void* result = nullptr;
  const void* layout = nullptr;  // Kernel::layout, set by Kernel::Run
  bool* unfit = nullptr;         // a Shortcut's: where it says that the input was not its kind
  const void* bias = nullptr;
  Finisher finish = nullptr;  // Kernel::finish, set by Kernel::Run
};

// Tasks per thread: several, so that a thread that was held up holds up the run less.
inline constexpr int kTasksPerThread = 4;

// What kernels are made for. A plan asks once and keeps the answer: nothing is chosen again while it runs. Kernels that
// cut their work ahead cut it for so many threads, into so many pieces.
struct Host {
  int64_t simd = 0;  // the instruction set, as Highway numbers them; 0: none that was built
  int threads = 1;   // that a run may have, and is worth
  int64_t tasks = threads > 1 ? int64_t{threads} * kTasksPerThread : 1;  // that it is worth
  int64_t whole_bytes = 0;  // of x, where the problem is a piece of a larger one
  // What the plan has of the same problem by now, for backward from x, which needs both: where it would make the same,
  // it shares them. Null: nothing.
  const Problem* same = nullptr;
  const Kernel *forward_routes = nullptr, *backward = nullptr;
};

// Runs units [begin, end). Source and result have at least one element each (only the reference sees less). `scratch`
// is this task's own, 64-byte aligned, Kernel::scratch_bytes long.
using RunFn = void (*)(const Problem& problem, const Args& args, int64_t begin, int64_t end, std::byte* scratch);

// A faster kernel that holds for some inputs only. It has the same units, and where it holds, the same result to the
// bit.
struct Shortcut {
  // Whether it is worth a try, from a glance at what units [begin, end) of `units` read.
  bool (*suits)(const Problem& problem, const Args& args, int64_t begin, int64_t end, int64_t units) = nullptr;
  RunFn run = nullptr;  // sets *Args::unfit where it does not hold: then what it wrote means nothing
};

struct Kernel {
  RunFn run = nullptr;
  int64_t units = 0;                       // independent pieces of the result
  int64_t scratch_bytes = 0;               // per task
  int tasks_per_thread = kTasksPerThread;  // fewer where tasks begin slowly
  int64_t repeated = 0;                    // units whose work a task does again, of what the one before it knew
  Shortcut shortcut = {};
  std::shared_ptr<const void> layout = {};  // what was laid out when it was made, for its runs to read
  Finisher finish = nullptr;                // for `run` to call
  std::shared_ptr<const Problem> as = {};   // the problem as `run` sees it, where that is another one (spec/fold.h)

  // `dares` takes the shortcut without the glance that it asks for.
  void Run(const Problem& of_plan, Args args, int64_t begin, int64_t end, std::byte* scratch,
           bool dares = false) const {
    const Problem& problem = as ? *as : of_plan;
    args.layout = layout.get();
    args.finish = finish;
    const bool tries = shortcut.run && (dares || shortcut.suits(problem, args, begin, end, units));
    if (!tries || !RunShortcut(problem, args, begin, end, scratch)) run(problem, args, begin, end, scratch);
  }

 private:
  // Whether the result stands.
  bool RunShortcut(const Problem& problem, Args args, int64_t begin, int64_t end, std::byte* scratch) const {
    bool unfit = false;
    args.unfit = &unfit;
    shortcut.run(problem, args, begin, end, scratch);
    return !unfit;
  }
};

// Operations of a kind of pooling.
using Does = uint32_t;
constexpr Does OfMax(poolgrad_op op) { return Does{1} << op; }
constexpr Does OfAverages(poolgrad_op op) { return Does{1} << (16 + op); }
constexpr bool Includes(Does does, poolgrad_kind kind, poolgrad_op op) {
  return (does & (kind == POOLGRAD_MAX ? OfMax(op) : OfAverages(op))) != 0;
}
inline constexpr Does kDoesAll = ~Does{0};

// What is wanted, and the folded problem (spec/fold.h), which is found once for all that are asked.
class Wanted {
 public:
  Wanted(const Problem& of_plan, poolgrad_op operation, const Host& on) : problem(of_plan), op(operation), host(on) {}

  const Problem& problem;
  const poolgrad_op op;
  const Host& host;

  // Null where the problem stays as it is; and folded to rows.
  const std::shared_ptr<const Problem>& Folded() {
    if (!folded_known_) Fold();
    return folded_;
  }
  const std::shared_ptr<const Problem>& Rows();

  // What `refuse` says of a problem as some of them see it. Most ask the same, one after the other.
  const char* Refused(const char* (*refuse)(const Problem& problem, poolgrad_op op), const Problem& seen) {
    if (asked_ != refuse || asked_of_ != &seen) refusal_ = refuse(seen, op);
    asked_ = refuse;
    asked_of_ = &seen;
    return refusal_;
  }

 private:
  void Fold();

  bool folded_known_ = false, rows_known_ = false;
  std::shared_ptr<const Problem> folded_, rows_;
  const char* (*asked_)(const Problem& problem, poolgrad_op op) = nullptr;
  const Problem* asked_of_ = nullptr;
  const char* refusal_ = nullptr;
};

// How an algorithm sees problems: as they are, folded, or folded to rows.
enum class Seen { kAsIs, kFolded, kAsRows };

// Makes *kernel, which is as new: null, or why there is none, e.g. "the windows overlap"; then, if its `run` was set,
// it is not as new any more. Most of a plan's cost is asking for kernels that refuse.
using MakeKernel = const char*(const Problem& problem, poolgrad_op op, const Host& host, Kernel* kernel);

// A kernel, or why there is none.
struct Made {
  Kernel kernel;
  const char* refusal = nullptr;
};

// One way to do some operations. The plan walks a list of these, fastest first. Kernels see no empty problem.
struct Algorithm {
  const char* name;
  Does does;
  Seen seen;
  MakeKernel* made_of;
  // What is asked first, if anything: null, or why there is none.
  const char* (*refuse)(const Problem& problem, poolgrad_op op) = nullptr;

  // The same; but a kernel that is refused stays as new.
  const char* make(Wanted& wanted, Kernel* kernel) const;
  Made make(const Problem& problem, poolgrad_op op, const Host& host) const {
    Wanted wanted(problem, op, host);
    Made made;
    made.refusal = make(wanted, &made.kernel);
    return made;
  }
};

}  // namespace poolgrad
