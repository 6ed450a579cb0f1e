#include "support/harness.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/parallel.h"
#include "cpu/tuning.h"
#include "reference/reference.h"
#include "support/random_problem.h"
#ifdef POOLGRAD_HAVE_SIMD
#include "cpu/cpu.h"
#include "cpu/simd/targets.h"  // before Highway: it says which targets are compiled
#include "hwy/highway.h"
#endif

namespace poolgrad::oracle {

bool ReadsRoutes(poolgrad_op op) {
  return op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_GATHER || op == POOLGRAD_OP_UNPOOL ||
         op == POOLGRAD_OP_BIAS_GRADIENT;
}

bool MakesSums(const Problem& p, poolgrad_op op) {
  if (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X || op == POOLGRAD_OP_BIAS_GRADIENT) return true;
  if (p.bias && (op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES)) return true;
  if (op == POOLGRAD_OP_UNPOOL) return false;
  return p.kind == POOLGRAD_AVERAGE || (op == POOLGRAD_OP_GATHER && p.routes.masks);
}

int64_t ResultBytes(const Problem& p, poolgrad_op op) { return p.result_elements(op) * SizeOf(p.dtype); }

namespace {

// Which of the arrays `op` reads, and what it needs of them.
Args ArgsFor(const Problem& p, poolgrad_op op, const uint8_t* x, const uint8_t* tx, const uint8_t* dy, uint8_t* routes,
             const uint8_t* bias) {
  Args args;
  const bool forward = op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES;
  args.source = forward ? x : op == POOLGRAD_OP_GATHER ? tx : dy;
  if (op == POOLGRAD_OP_BACKWARD_X) args.x = x;
  if (forward && p.bias) args.bias = bias;
  if (ReadsRoutes(op) && p.kind == POOLGRAD_MAX) args.routes = routes;
  return args;
}

}  // namespace

namespace {

template <class T>
bool IsNan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    const Wide<T> wide = Widen(value);
    return wide != wide;
  }
}

std::string Hex(const uint8_t* bytes, int64_t n) {
  std::string text = "0x";
  char digits[3];
  for (int64_t i = n - 1; i >= 0; --i) {
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

std::string RouteDifference(const std::vector<uint8_t>& expected, const uint8_t* got) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != got[i]) {
      return "route byte " + std::to_string(i) + " is " + Hex(got + i, 1) + ", the reference has " +
             Hex(&expected[i], 1);
    }
  }
  return "";
}

}  // namespace

std::string Difference(poolgrad_dtype dtype, const uint8_t* expected, const uint8_t* got, int64_t bytes,
                       bool nan_is_nan) {
  if (bytes == 0 || std::memcmp(expected, got, static_cast<size_t>(bytes)) == 0) return "";
  return VisitDtype(dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < bytes / kSize; ++i) {
      T a, b;
      std::memcpy(&a, expected + i * kSize, sizeof(T));
      std::memcpy(&b, got + i * kSize, sizeof(T));
      if (std::memcmp(&a, &b, sizeof(T)) == 0 || (nan_is_nan && IsNan(a) && IsNan(b))) continue;
      return "element " + std::to_string(i) + " is " + Hex(got + i * kSize, kSize) + " (" +
             std::to_string(static_cast<double>(Widen(b))) + "), the reference has " +
             Hex(expected + i * kSize, kSize) + " (" + std::to_string(static_cast<double>(Widen(a))) + ")";
    }
    return "";
  });
}

Outcome RunReference(const Problem& p, poolgrad_op op, Data& data, std::vector<uint8_t>& routes) {
  const Kernel kernel = ReferenceAlgorithms().front().make(p, op, {}).kernel;
  if (!kernel.run) return {};
  Outcome outcome;
  outcome.result.resize(static_cast<size_t>(ResultBytes(p, op)));
  Args args = ArgsFor(p, op, data.x.data(), data.tx.data(), data.dy.data(), routes.data(), data.bias.data());
  if (op == POOLGRAD_OP_FORWARD_ROUTES) {
    outcome.routes.resize(static_cast<size_t>(p.routes.bytes()));
    args.routes = outcome.routes.data();
  }
  args.result = outcome.result.data();
  AlignedScratch scratch(kernel.scratch_bytes);
  kernel.Run(p, args, 0, kernel.units, scratch.data());
  return outcome;
}

#ifdef POOLGRAD_HAVE_SIMD

std::vector<int64_t> SimdTargets() {
  std::vector<int64_t> targets;
  for (const SimdSet& set : SimdSets()) targets.push_back(set.simd);
  return targets;
}

const char* SimdTargetName(int64_t target) { return hwy::TargetName(target); }

void UseSimdTarget(int64_t target) {
  if (target == 0) {
    unsetenv("POOLGRAD_SIMD");
  } else {
    setenv("POOLGRAD_SIMD", SimdTargetName(target), 1);
  }
}

std::span<const Algorithm> SimdAlgorithms(poolgrad_op op) {
  const bool forward = op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES;
  return forward ? ForwardAlgorithms() : BackwardAlgorithms();
}

#else  // a build without vector kernels still has a plan to check

std::vector<int64_t> SimdTargets() { return {1}; }
const char* SimdTargetName(int64_t) { return "scalar"; }
void UseSimdTarget(int64_t) {}
std::span<const Algorithm> SimdAlgorithms(poolgrad_op) { return {}; }

#endif

namespace {

std::map<std::string, int64_t> runs;  // by kernel and type

// Cut sizes so small that drawn problems cross them: threads really split, blocks really end.
CpuTuning SmallTuning(int64_t size) {
  CpuTuning t;
  t.bytes_shared = 128 << size;
  t.bytes_per_thread = 64 << size;
  t.bytes_per_task = 32 << size;
  t.piece_least = 512 << size;
  t.piece_most = 4096 << size;
  t.piece_small_share = 256 << size;
  t.piece_worth = 128 << size;
  t.sums_cache = 128 << (2 * size);
  t.sums_cache_2 = 512 << (2 * size);
  t.sums_least = 64 << size;
  t.sums_piece = 32 << size;
  t.sums_near = 1024 << size;
  t.past_caches = 2048 << size;
  t.past_aside = 64 << size;
  t.lanes_tile = 64 << (2 * size);
  t.lanes_cache = 512 << (2 * size);
  t.forward_values_block = 256 << size;
  t.forward_routes_block = 512 << size;
  t.forward_piece = 1024 << size;
  t.forward_kept = 128 << size;
  t.forward_ring = 512 << size;
  t.forward_asks = 1024 << size;
  t.large_row = 16 << size;
  t.large_plane = 64 << size;
  t.forward_sweep_codes = 64 << size;
  t.forward_looks = 16 << size;
  t.transposed_row = t.transposed_far = 32 << size;
  t.transposed_planes = 2 << size;
  t.transposed_taps = 16 << size;
  t.transposed_block = 4096 << (2 * size);
  t.cut_channels = 8 << size;
  return t;
}

Data RandomData(const Problem& p, uint64_t seed) {
  Data data;
  data.x = RandomValues(seed, p.dtype, p.x_elements());
  data.tx = RandomValues(seed + 1, p.dtype, p.x_elements());
  data.dy = RandomGradients(seed + 2, p.dtype, p.y_elements());
  data.hostile = RandomBytes(seed + 3, p.routes.bytes());
  if (p.bias) data.bias = RandomValues(seed + 4, p.dtype, p.channels);
  return data;
}

// Repeats `bytes` from a different place for each array.
Data DataOf(const Problem& p, std::span<const uint8_t> bytes) {
  const auto repeat = [&](int64_t n, size_t from) {
    std::vector<uint8_t> filled(static_cast<size_t>(n));
    for (size_t i = 0; i < filled.size(); ++i) filled[i] = bytes.empty() ? 0 : bytes[(i + from) % bytes.size()];
    return filled;
  };
  const size_t third = bytes.size() / 3;
  return {repeat(p.x_bytes(), 0),         repeat(p.x_bytes(), third),
          repeat(p.y_bytes(), 2 * third), {},
          repeat(p.routes.bytes(), 1),    repeat(p.bias ? p.channels * SizeOf(p.dtype) : 0, 2)};
}

// One checked problem: the data, what the reference made of it, and the comparison of everything else with that.
class Checker {
 public:
  Checker(const poolgrad_problem& raw, const Problem& problem, Data data, uint64_t seed, const Effort& effort)
      : raw_(raw), p_(problem), random_(seed ^ 0xC4EC4), seed_(seed), data_(std::move(data)), effort_(effort) {
    Outcome forward = RunReference(p_, POOLGRAD_OP_FORWARD_ROUTES, data_, data_.routes);
    data_.routes = std::move(forward.routes);
    for (size_t i = 0; i < data_.hostile.size(); ++i) {  // half any bytes, half true ones
      if (random_.Between(0, 1)) data_.hostile[i] = data_.routes[i];
    }
  }

  Checked Run() {
    const std::vector<int64_t> targets = SimdTargets();
    Tuning() = random_.OneIn(4) ? CpuTuning{} : SmallTuning(random_.Between(0, 3));
    setenv("POOLGRAD_HALF_FMAX", random_.OneIn(3) ? "0" : "1", 1);  // not every processor has it
    for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
      const auto op = static_cast<poolgrad_op>(i);
      if (!Has(op)) {
        CheckPlanRefuses(op);
        continue;
      }
      CheckOp(op, data_.routes, "its own routes", targets);
      if (ReadsRoutes(op) && p_.kind == POOLGRAD_MAX) CheckOp(op, data_.hostile, "hostile routes", targets);
    }
    UseSimdTarget(0);
    Tuning() = CpuTuning{};
    return checked_;
  }

 private:
  bool Has(poolgrad_op op) const {
    const bool gradient = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X;
    if (op == POOLGRAD_OP_BIAS_GRADIENT || (op == POOLGRAD_OP_BACKWARD_X && p_.bias)) {
      return p_.bias && op == POOLGRAD_OP_BIAS_GRADIENT;
    }
    if (p_.kind == POOLGRAD_AVERAGE) return op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_BACKWARD;
    return !(gradient && IsInteger(p_.dtype));
  }

  void CheckOp(poolgrad_op op, std::vector<uint8_t>& routes, const char* routes_kind,
               const std::vector<int64_t>& targets) {
    const Outcome expected = RunReference(p_, op, data_, routes);
    const bool empty = p_.x_elements() == 0 || p_.y_elements() == 0;  // the plan leaves these to the reference
    for (const int64_t target : targets) {
      UseSimdTarget(target);
      const bool low = random_.OneIn(2);  // the same arrays against the other page for another target or operation
      Inputs in{Guarded(data_.x, low), Guarded(data_.tx, low), Guarded(data_.dy, low), Guarded(routes, low),
                Guarded(data_.bias, low)};
      where_ = std::string(Name(op)) + " from " + routes_kind + " on " + SimdTargetName(target);
      for (const Algorithm& algorithm : SimdAlgorithms(op)) {
        if (empty) continue;
        const auto threads = static_cast<int>(random_.OneIn(4) ? 16 : random_.Between(1, 4));
        const Made made = algorithm.make(p_, op, {target, threads, threads > 1 ? random_.Between(threads, 16) : 1});
        if (made.refusal) continue;
        const Kernel& kernel = made.kernel;
        ++runs[std::string(algorithm.name) + " " + Name(p_.dtype) + (p_.by_table() ? " by table" : "")];
        for (const int tasks : effort_.splits) RunKernel(algorithm, kernel, op, in, expected, tasks);
      }
      for (const int threads : effort_.splits) RunPlan(op, in, expected, threads);
      if (!in.Same(data_, routes)) Fail(where_ + ": what it was given to read was changed");
    }
    const Kernel kernel = ReferenceAlgorithms().front().make(p_, op, {}).kernel;  // its units must be independent too
    where_ = std::string(Name(op)) + " from " + routes_kind;
    Inputs in{Guarded(data_.x, true), Guarded(data_.tx, true), Guarded(data_.dy, true), Guarded(routes, true),
              Guarded(data_.bias, true)};
    RunKernel(ReferenceAlgorithms().front(), kernel, op, in, expected, 3);
  }

  // What an operation reads, between guards.
  struct Inputs {
    Guarded x, tx, dy, routes, bias;

    Args For(const Problem& p, poolgrad_op op) {
      return ArgsFor(p, op, x.data(), tx.data(), dy.data(), routes.data(), bias.data());
    }
    bool Same(const Data& data, const std::vector<uint8_t>& given) {
      const auto same = [](Guarded& guarded, const std::vector<uint8_t>& values) {
        return guarded.GuardsIntact() && std::equal(values.begin(), values.end(), guarded.data());
      };
      return same(x, data.x) && same(tx, data.tx) && same(dy, data.dy) && same(routes, given) && same(bias, data.bias);
    }
  };

  // Outputs flush with a page, or so many elements away that they begin anywhere in a vector.
  struct Output {
    Output(const Problem& p, poolgrad_op op, XorShift& random)
        : result(ResultBytes(p, op), SizeOf(p.dtype) * Offset(random), random.OneIn(2), Poison(random)),
          routes(op == POOLGRAD_OP_FORWARD_ROUTES ? p.routes.bytes() : 0, Offset(random), random.OneIn(2),
                 Poison(random)) {}
    static int64_t Offset(XorShift& random) { return random.OneIn(2) ? 0 : random.Between(1, 3); }
    static uint8_t Poison(XorShift& random) { return static_cast<uint8_t>(random.Between(0xA0, 0xFE)); }
    Guarded result;
    Guarded routes;
  };

  struct Task {
    const Problem* problem;
    const Args* args;
    const Kernel* kernel;
    bool dares;  // takes a kernel's shortcut without the look that it asks for
    std::vector<int64_t> bounds;
    std::vector<AlignedScratch> scratch;
  };

  void RunKernel(const Algorithm& algorithm, const Kernel& kernel, poolgrad_op op, Inputs& in, const Outcome& expected,
                 int tasks) {
    if (expected.result.empty()) return;  // the plan never asks a kernel for nothing
    Output output(p_, op, random_);
    Args args = in.For(p_, op);
    args.result = output.result.data();
    if (op == POOLGRAD_OP_FORWARD_ROUTES) args.routes = output.routes.data();

    // Cut anywhere, not only where the plan would: units promise to be independent.
    Task job{&p_, &args, &kernel, kernel.shortcut.run && random_.OneIn(2), {0, kernel.units}, {}};
    for (int i = 1; i < tasks; ++i) job.bounds.push_back(random_.Between(0, kernel.units));
    std::sort(job.bounds.begin(), job.bounds.end());
    for (int i = 0; i < tasks; ++i) job.scratch.emplace_back(kernel.scratch_bytes, random_.OneIn(3));
    const auto run = [](void* context, int64_t i) {
      Task& task = *static_cast<Task*>(context);
      const auto at = static_cast<size_t>(i);
      if (task.bounds[at] == task.bounds[at + 1]) return;
      const int64_t begin = task.bounds[at], end = task.bounds[at + 1];
      std::byte* scratch = task.scratch[at].data();
      task.kernel->Run(*task.problem, *task.args, begin, end, scratch, task.dares);
    };
    if (effort_.threads && random_.OneIn(4)) {
      ParallelFor(tasks, tasks, run, &job);
    } else {  // the same cuts, last one first: cheaper than threads, and an order that threads rarely give
      for (int64_t i = tasks - 1; i >= 0; --i) run(&job, i);
    }

    const std::string what = where_ + " by " + algorithm.name + " in " + std::to_string(tasks) + " tasks";
    Compare(what, op, expected, output);
  }

  void RunPlan(poolgrad_op op, Inputs& in, const Outcome& expected, int threads) {
    poolgrad_plan* plan = nullptr;
    if (poolgrad_plan_create(&raw_, nullptr, &plan) != POOLGRAD_OK)
      return Fail(std::string("plan_create: ") + poolgrad_last_error());
    Output output(p_, op, random_);
    const Args args = in.For(p_, op);
    poolgrad_exec exec = {};
    exec.struct_size = sizeof exec;
    exec.threads = threads;
    std::optional<AlignedScratch>
        scratch;  // half of the time ours, between guards, and not a byte more than was asked for
    if (random_.OneIn(2) && poolgrad_plan_scratch_bytes(plan, op, threads, &exec.scratch_bytes) == POOLGRAD_OK) {
      scratch.emplace(static_cast<int64_t>(exec.scratch_bytes), random_.OneIn(3));
      exec.scratch = scratch->data();
    }
    const poolgrad_status status = Call(plan, op, args, output.result.data(), output.routes.data(), &exec);
    const std::string what = where_ + " by the plan's " +
                             (poolgrad_plan_algorithm(plan, op) ? poolgrad_plan_algorithm(plan, op) : "?") + " on " +
                             std::to_string(threads) + " threads";
    if (status != POOLGRAD_OK) {
      Fail(what + ": " + poolgrad_last_error());
    } else {
      Compare(what, op, expected, output);
    }
    poolgrad_plan_destroy(plan);
  }

  void CheckPlanRefuses(poolgrad_op op) {
    poolgrad_plan* plan = nullptr;
    if (poolgrad_plan_create(&raw_, nullptr, &plan) != POOLGRAD_OK)
      return Fail(std::string("plan_create: ") + poolgrad_last_error());
    if (poolgrad_plan_algorithm(plan, op))
      Fail(std::string(Name(op)) + " has an algorithm, but the problem has no such operation");
    poolgrad_plan_destroy(plan);
  }

  static poolgrad_status Call(const poolgrad_plan* plan, poolgrad_op op, const Args& args, uint8_t* result,
                              uint8_t* routes, const poolgrad_exec* exec) {
    switch (op) {
      case POOLGRAD_OP_FORWARD:
        return args.bias ? poolgrad_forward_bias(plan, args.source, args.bias, result, nullptr, exec)
                         : poolgrad_forward(plan, args.source, result, nullptr, exec);
      case POOLGRAD_OP_FORWARD_ROUTES:
        return args.bias ? poolgrad_forward_bias(plan, args.source, args.bias, result, routes, exec)
                         : poolgrad_forward(plan, args.source, result, routes, exec);
      case POOLGRAD_OP_BACKWARD:
        return poolgrad_backward(plan, args.source, args.routes, result, exec);
      case POOLGRAD_OP_BACKWARD_X:
        return poolgrad_backward_x(plan, args.source, args.x, result, exec);
      case POOLGRAD_OP_GATHER:
        return poolgrad_gather(plan, args.source, args.routes, result, exec);
      case POOLGRAD_OP_UNPOOL:
        return poolgrad_unpool(plan, args.source, args.routes, result, exec);
      case POOLGRAD_OP_BIAS_GRADIENT:
        return poolgrad_bias_gradient(plan, args.source, args.routes, result, exec);
    }
    return POOLGRAD_INTERNAL_ERROR;
  }

  void Compare(const std::string& what, poolgrad_op op, const Outcome& expected, Output& output) {
    ++checked_.comparisons;
    if (!output.result.GuardsIntact()) Fail(what + ": wrote outside its result");
    if (!output.routes.GuardsIntact()) Fail(what + ": wrote outside its routes");
    const std::string difference = Difference(p_.dtype, expected.result.data(), output.result.data(),
                                              static_cast<int64_t>(expected.result.size()), MakesSums(p_, op));
    if (!difference.empty()) Fail(what + ": " + difference);
    const std::string routes = RouteDifference(expected.routes, output.routes.data());
    if (!routes.empty()) Fail(what + ": " + routes);
  }

  // The first failure is the one to look at.
  void Fail(const std::string& sentence) {
    if (checked_.failure.empty()) {
      checked_.failure =
          "problem '" + FormatProblem(raw_) + "' with data seed " + std::to_string(seed_) + ": " + sentence;
    }
  }

  const poolgrad_problem& raw_;
  const Problem& p_;
  XorShift random_;
  uint64_t seed_;
  Data data_;
  const Effort& effort_;
  std::string where_;
  Checked checked_;
};

// What is being checked, for ReportCrashes. Plain memory: a signal handler reads it.
char current_case[512];

void Print(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void PrintCurrentCase() {
  Print("crashed while checking ");
  Print(current_case);
}

// What the slowest build, on the slowest machine, under the slowest emulator, does not need for one drawn problem.
constexpr unsigned kPatience = 300;

// `running` seconds of the processor, `waiting` of the clock; 0 for none.
void SetTimers(unsigned running, unsigned waiting) {
  const itimerval once = {{0, 0}, {static_cast<time_t>(running), 0}};
  setitimer(ITIMER_PROF, &once, nullptr);
  alarm(waiting);
}

}  // namespace

TimeLimit::TimeLimit(const char* what, unsigned seconds) {
  std::snprintf(current_case, sizeof current_case, "%s\n", what);
  for (const int signal : {SIGPROF, SIGALRM}) {
    std::signal(signal, [](int caught) {
      Print("took too long: ");
      Print(current_case);
      std::signal(caught, SIG_DFL);
      std::raise(caught);
    });
  }
  SetTimers(seconds, 12 * seconds);
}

TimeLimit::~TimeLimit() { SetTimers(0, 0); }

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

void ReportCrashes() {
  if (__sanitizer_set_death_callback) return __sanitizer_set_death_callback(PrintCurrentCase);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    std::signal(signal, [](int caught) {
      PrintCurrentCase();
      std::signal(caught, SIG_DFL);
      std::raise(caught);
    });
  }
}

Checked CheckProblem(const poolgrad_problem& raw, uint64_t data_seed, const Effort& effort) {
  const Result<Problem> problem = Resolve(raw);
  if (!problem.ok()) {
    Checked refused;
    refused.refused = true;
    return refused;
  }
  const TimeLimit limit(("problem '" + FormatProblem(raw) + "' with data seed " + std::to_string(data_seed)).c_str(),
                        kPatience);
  return Checker(raw, *problem, RandomData(*problem, data_seed), data_seed, effort).Run();
}

Checked CheckProblemOnBytes(const poolgrad_problem& raw, const Problem& problem, std::span<const uint8_t> bytes,
                            const Effort& effort) {
  return Checker(raw, problem, DataOf(problem, bytes), bytes.size(), effort).Run();
}

const std::map<std::string, int64_t>& Runs() { return runs; }
void ForgetRuns() { runs.clear(); }

}  // namespace poolgrad::oracle
