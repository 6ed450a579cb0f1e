// The C ABI: the only extern "C", the only place that catches, and where the caller's structs and pointers are checked.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>

#include "base/parallel.h"
#include "capi/sized.h"
#include "plan/indices.h"
#include "plan/plan.h"
#include "poolgrad/poolgrad.h"
#include "spec/shard.h"
#ifdef POOLGRAD_HAVE_SIMD
#include "cpu/cpu.h"
#endif

struct poolgrad_plan {
  poolgrad::Plan plan;
};

namespace {

using poolgrad::Args;
using poolgrad::Plan;
using poolgrad::Problem;
using poolgrad::Status;

// Plain memory: to say that memory ran out takes none.
char* LastError() {
  static thread_local char sentence[1024];
  return sentence;
}

poolgrad_status Fail(poolgrad_status code, const char* sentence) {
  constexpr size_t kRoom =
      1024;  // copied, not printed: printing would bring the files of the C library into WebAssembly
  const size_t length = std::strlen(sentence);
  std::memcpy(LastError(), sentence, std::min(length + 1, kRoom));
  if (length >= kRoom) std::memcpy(LastError() + kRoom - 4, "...", 4);
  return code;
}

// Runs body, which returns a Status, and turns it and any exception into a code and a sentence.
template <class Body>
poolgrad_status Guard(Body&& body) {
#ifdef __cpp_exceptions
  try {
#endif
    const Status status = body();
    return status.ok() ? POOLGRAD_OK : Fail(status.code(), status.sentence().c_str());
#ifdef __cpp_exceptions
  } catch (const std::bad_alloc&) {
    return Fail(POOLGRAD_OUT_OF_MEMORY, "memory ran out inside poolgrad; nothing was written");
  } catch (const std::exception& e) {
    return Fail(POOLGRAD_INTERNAL_ERROR, e.what());
  } catch (...) {  // a caller's parallel_for may throw anything
    return Fail(POOLGRAD_INTERNAL_ERROR,
                "something that is no std::exception was thrown, perhaps by the caller's parallel_for");
  }
#endif
}

Status NotNull(const void* pointer, const char* name, const char* expectation) {
  return pointer ? Status() : Status::Invalid(std::string(name) + " is null; it must " + expectation);
}

Status IsPlan(const poolgrad_plan* plan) { return NotNull(plan, "plan", "be a plan made by poolgrad_plan_create"); }

// An array of the call. Empty ones may be null and overlap nothing.
struct Array {
  const char* name;
  const void* begin;
  int64_t bytes;
  bool written = false;
};

bool Overlap(const Array& a, const Array& b) {
  const auto from = [](const Array& array) { return reinterpret_cast<uintptr_t>(array.begin); };
  const auto bytes = [](const Array& array) { return static_cast<uintptr_t>(array.bytes); };
  if (a.bytes == 0 || b.bytes == 0) return false;
  return from(a) < from(b) ? from(b) - from(a) < bytes(a) : from(a) - from(b) < bytes(b);
}

// Kernels read and write in any order, so what is written may share no byte with anything else.
Status CheckArrays(std::initializer_list<Array> arrays) {
  for (const Array& a : arrays) {
    if (a.bytes > 0 && !a.begin) return NotNull(nullptr, a.name, "point to memory of the plan's size");
  }
  for (const Array& a : arrays) {
    if (!a.written) continue;
    for (const Array& b : arrays) {
      if (&a == &b || !Overlap(a, b)) continue;
      return Status::Invalid(std::string(a.name) + " and " + b.name + " overlap; " + a.name +
                             " is written, so it must have memory of its own");
    }
  }
  return {};
}

#define POOLGRAD_TRY(expression)                                      \
  do {                                                                \
    if (Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// Where the structs of version 1.0 end.
constexpr uint64_t kOldestShard = offsetof(poolgrad_shard, has_backward) + sizeof(poolgrad_shard::has_backward);
constexpr uint64_t kOldestPart = offsetof(poolgrad_problem, whole_pad_hi) + sizeof(poolgrad_problem::whole_pad_hi);
constexpr uint64_t kOldestProblem = offsetof(poolgrad_problem, pad_hi) + sizeof(poolgrad_problem::pad_hi);
constexpr uint64_t kOldestOptions =
    offsetof(poolgrad_plan_options, algorithm) + sizeof(poolgrad_plan_options::algorithm);
constexpr uint64_t kOldestInfo = offsetof(poolgrad_info, rounding) + sizeof(poolgrad_info::rounding);
constexpr uint64_t kOldestExec = offsetof(poolgrad_exec, stream) + sizeof(poolgrad_exec::stream);

Status TakeProblem(const poolgrad_problem* given, poolgrad_problem* problem) {
  POOLGRAD_TRY(NotNull(given, "problem", "point to a poolgrad_problem"));
  *problem = poolgrad::DefaultProblem();
  return poolgrad::TakeSized(given, "problem", kOldestProblem, problem);
}

// 0 becomes the default number.
Status TakeThreads(int32_t given, const char* name, int32_t* threads) {
  if (given < 0 || given > poolgrad::kMostThreads) {
    return Status::Invalid(std::string(name) + " is " + std::to_string(given) +
                           "; it must be from 0 (the default) to " + std::to_string(poolgrad::kMostThreads));
  }
  *threads = given;
  if (given != 0) return {};
  const auto fallback = poolgrad::ThreadsAskedFor();
  if (!fallback.ok()) return fallback.status();
  *threads = *fallback;
  return {};
}

// A null exec means the defaults.
Status TakeExec(const poolgrad_exec* given, poolgrad_exec* exec) {
  *exec = {};
  exec->struct_size = sizeof *exec;
  if (given) POOLGRAD_TRY(poolgrad::TakeSized(given, "exec", kOldestExec, exec));
  if (exec->reserved != 0)
    return Status::Invalid("exec.reserved is " + std::to_string(exec->reserved) + "; it must be 0");
  return TakeThreads(exec->threads, "exec.threads", &exec->threads);
}

Status CopyText(const std::string& from, char* text, size_t capacity, size_t* needed) {
  if (needed) *needed = from.size() + 1;
  if (!text)
    return capacity == 0 ? Status() : NotNull(text, "text", "point to memory of `capacity` bytes, or capacity be 0");
  if (capacity < from.size() + 1) {
    return Status::Invalid("capacity is " + std::to_string(capacity) + "; the text needs " +
                           std::to_string(from.size() + 1));
  }
  std::memcpy(text, from.c_str(), from.size() + 1);
  return {};
}

bool IsOp(int op) { return op >= 0 && op < POOLGRAD_OP_COUNT; }

Status CheckNumbering(const Problem& p, int numbering) {
  if (numbering < POOLGRAD_INDEX_TORCH || numbering > POOLGRAD_INDEX_ONNX_COLUMN) {
    return Status::Invalid("numbering is " + std::to_string(numbering) +
                           "; it must be one of poolgrad_numbering's values, 0 to 4");
  }
  if (p.kind == POOLGRAD_AVERAGE) return Status::Unsupported("average pooling has no routes, so it has no indices");
  if (p.routes.masks) return Status::Unsupported("ties are split or all; a set of winners has no single index");
  return {};
}

// The arrays of an operation as the caller names them.
struct Named {
  const char* source;
  const char* result;
  bool source_is_input;  // source has x's size, else y's
};
constexpr Named kNamed[] = {{"x", "y", true},   {"x", "y", true},  {"dy", "dx", false},   {"dy", "dx", false},
                            {"tx", "ty", true}, {"y", "x", false}, {"dy", "dbias", false}};

Status CheckCutPointers(const poolgrad_problem& whole, const int64_t* parts, const int64_t* const* cuts,
                        const int64_t* at, const char* at_name) {
  POOLGRAD_TRY(NotNull(parts, "parts", "say how many parts each axis has"));
  POOLGRAD_TRY(NotNull(cuts, "cuts", "say where each axis is cut"));
  POOLGRAD_TRY(NotNull(at, at_name, "say which part of each axis the rank has"));
  for (int i = 0; i < whole.rank && i < 3; ++i)
    POOLGRAD_TRY(NotNull(cuts[i], "an entry of cuts", "say where its axis is cut"));
  return {};
}

poolgrad_status Run(const poolgrad_plan* plan, poolgrad_op op, const Args& args, const poolgrad_exec* given) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(plan->plan.can(op));
    poolgrad_exec exec;
    POOLGRAD_TRY(TakeExec(given, &exec));
    const Named& named = kNamed[op];
    const bool forward = op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES;
    const bool reads_x = op == POOLGRAD_OP_BACKWARD_X;
    const bool has_routes = p.kind == POOLGRAD_MAX && op != POOLGRAD_OP_FORWARD && !reads_x;
    const uint64_t scratch =
        exec.scratch ? std::min(exec.scratch_bytes, plan->plan.scratch_bytes(op, exec.threads)) : 0;
    POOLGRAD_TRY(
        CheckArrays({{named.source, args.source, named.source_is_input ? p.x_bytes() : p.y_bytes()},
                     {named.result, args.result, p.result_elements(op) * poolgrad::SizeOf(p.dtype), true},
                     {"bias", args.bias, forward && p.bias ? p.channels * poolgrad::SizeOf(p.dtype) : 0},
                     {"x", args.x, reads_x ? p.x_bytes() : 0},
                     {"routes", args.routes, has_routes ? p.routes.bytes() : 0, op == POOLGRAD_OP_FORWARD_ROUTES},
                     {"scratch", exec.scratch, static_cast<int64_t>(scratch), true}}));
    return plan->plan.Run(op, args, exec);
  });
}

int64_t Words(int64_t n) { return n * static_cast<int64_t>(sizeof(int64_t)); }

uint8_t* AsRoutes(const void* routes) { return const_cast<uint8_t*>(static_cast<const uint8_t*>(routes)); }

}  // namespace

extern "C" {

void poolgrad_problem_init_sized(poolgrad_problem* problem, size_t size) {
  if (problem && poolgrad::CheckStructSize(size, "problem", kOldestProblem).ok()) {
    poolgrad::GiveSized(poolgrad::DefaultProblem(), size, problem);
  }
}

poolgrad_status poolgrad_problem_parse_sized(const char* text, poolgrad_problem* problem, size_t size) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(text, "text", "be a problem in its one-line form"));
    POOLGRAD_TRY(NotNull(problem, "problem", "point to a poolgrad_problem"));
    POOLGRAD_TRY(poolgrad::CheckStructSize(size, "problem", kOldestProblem));
    auto parsed = poolgrad::ParseProblem(text);
    if (!parsed.ok()) return parsed.status();
    const poolgrad_problem plain = poolgrad::DefaultProblem();
    const size_t known = std::min(size, sizeof plain);
    if (std::memcmp(reinterpret_cast<const char*>(&*parsed) + known, reinterpret_cast<const char*>(&plain) + known,
                    sizeof plain - known) != 0) {
      return Status::Unsupported(
          "the text asks for something that poolgrad_problem had no field for when the caller was compiled; compile it "
          "again");
    }
    poolgrad::GiveSized(*parsed, size, problem);
    return {};
  });
}

// As version 1.0 had them: callers compiled then have no more room.
void(poolgrad_problem_init)(poolgrad_problem* problem) { poolgrad_problem_init_sized(problem, kOldestProblem); }

poolgrad_status(poolgrad_problem_parse)(const char* text, poolgrad_problem* problem) {
  return poolgrad_problem_parse_sized(text, problem, kOldestProblem);
}

poolgrad_status poolgrad_problem_format(const poolgrad_problem* given, char* text, size_t capacity, size_t* needed) {
  return Guard([&]() -> Status {
    poolgrad_problem problem;
    POOLGRAD_TRY(TakeProblem(given, &problem));
    auto resolved = poolgrad::Resolve(problem);
    if (!resolved.ok()) return resolved.status();
    return CopyText(poolgrad::FormatProblem(problem), text, capacity, needed);
  });
}

poolgrad_status poolgrad_plan_create(const poolgrad_problem* given, const poolgrad_plan_options* given_options,
                                     poolgrad_plan** plan) {
  return Guard([&]() -> Status {
    poolgrad_problem problem;
    POOLGRAD_TRY(TakeProblem(given, &problem));
    POOLGRAD_TRY(NotNull(plan, "plan", "point to where the plan goes"));
    poolgrad_plan_options options = {};
    if (given_options) POOLGRAD_TRY(poolgrad::TakeSized(given_options, "options", kOldestOptions, &options));
    if (options.never_compile != 0 && options.never_compile != 1) {
      return Status::Invalid("options.never_compile is " + std::to_string(options.never_compile) +
                             "; it must be 0 or 1");
    }
    if (options.reserved != 0) {
      return Status::Invalid("options.reserved is " + std::to_string(options.reserved) + "; it must be 0");
    }
    auto made = std::make_unique<poolgrad_plan>();
    POOLGRAD_TRY(made->plan.Make(problem, options.algorithm, options.never_compile == 0));
    *plan = made.release();
    return {};
  });
}

void poolgrad_plan_destroy(poolgrad_plan* plan) { delete plan; }

poolgrad_status poolgrad_plan_info(const poolgrad_plan* plan, poolgrad_info* info) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    POOLGRAD_TRY(NotNull(info, "info", "point to a poolgrad_info"));
    POOLGRAD_TRY(poolgrad::CheckStructSize(info->struct_size, "info", kOldestInfo));
    const Problem& p = plan->plan.problem();
    poolgrad_info i = {};
    for (int a = 0; a < p.rank; ++a) {
      const poolgrad::Axis& axis = p.axis[3 - p.rank + a];
      i.out[a] = axis.out;
      i.pad_lo[a] = axis.pad_lo;
      i.pad_hi[a] = axis.pad_hi;
    }
    i.x_elements = p.x_elements();
    i.y_elements = p.y_elements();
    i.x_bytes = p.x_bytes();
    i.y_bytes = p.y_bytes();
    i.taps = p.taps();
    i.route_bits = p.routes.bits;
    i.route_masks = p.routes.masks;
    i.route_bytes = p.routes.bytes();
    i.may_have_no_route = p.routes.may_be_none;
    i.ties = p.ties;
    i.nan = p.nan;
    i.rounding = p.rounding;
    poolgrad::GiveSized(i, info->struct_size, info);
    return {};
  });
}

poolgrad_status poolgrad_plan_scratch_bytes(const poolgrad_plan* plan, poolgrad_op op, int32_t threads,
                                            uint64_t* bytes) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    POOLGRAD_TRY(NotNull(bytes, "bytes", "point to where the number goes"));
    if (!IsOp(op))
      return Status::Invalid("op is " + std::to_string(op) + "; it must be one of poolgrad_op's values, 0 to 6");
    POOLGRAD_TRY(TakeThreads(threads, "threads", &threads));
    *bytes = plan->plan.scratch_bytes(op, threads);
    return {};
  });
}

poolgrad_status poolgrad_plan_explain(const poolgrad_plan* plan, char* text, size_t capacity, size_t* needed) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    return CopyText(plan->plan.Explain(), text, capacity, needed);
  });
}

const char* poolgrad_plan_algorithm(const poolgrad_plan* plan, poolgrad_op op) {
  return plan && IsOp(op) ? plan->plan.algorithm(op) : nullptr;
}

poolgrad_status poolgrad_forward(const poolgrad_plan* plan, const void* x, void* y, void* routes,
                                 const poolgrad_exec* exec) {
  if (plan && plan->plan.problem().bias) {
    return Fail(POOLGRAD_INVALID_ARGUMENT, "the plan's problem has a bias; give it to poolgrad_forward_bias");
  }
  return Run(plan, routes ? POOLGRAD_OP_FORWARD_ROUTES : POOLGRAD_OP_FORWARD, {x, nullptr, AsRoutes(routes), y}, exec);
}

poolgrad_status poolgrad_backward(const poolgrad_plan* plan, const void* dy, const void* routes, void* dx,
                                  const poolgrad_exec* exec) {
  return Run(plan, POOLGRAD_OP_BACKWARD, {dy, nullptr, AsRoutes(routes), dx}, exec);
}

poolgrad_status poolgrad_backward_x(const poolgrad_plan* plan, const void* dy, const void* x, void* dx,
                                    const poolgrad_exec* exec) {
  return Run(plan, POOLGRAD_OP_BACKWARD_X, {dy, x, nullptr, dx}, exec);
}

poolgrad_status poolgrad_gather(const poolgrad_plan* plan, const void* tx, const void* routes, void* ty,
                                const poolgrad_exec* exec) {
  return Run(plan, POOLGRAD_OP_GATHER, {tx, nullptr, AsRoutes(routes), ty}, exec);
}

poolgrad_status poolgrad_unpool(const poolgrad_plan* plan, const void* y, const void* routes, void* x,
                                const poolgrad_exec* exec) {
  return Run(plan, POOLGRAD_OP_UNPOOL, {y, nullptr, AsRoutes(routes), x}, exec);
}

poolgrad_status poolgrad_jacobian(const poolgrad_plan* plan, const void* routes, int64_t* row_start, int64_t* columns,
                                  double* values) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    const Problem& p = plan->plan.problem();
    if (!plan->plan.on_cpu())
      return Status::Unsupported("the Jacobian is built on the CPU; make a CPU plan and copy the routes");
    const Array kept = {"routes", routes, p.kind == POOLGRAD_MAX ? p.routes.bytes() : 0};
    const Array rows = {"row_start", row_start, Words(p.y_elements() + 1), true};
    POOLGRAD_TRY(CheckArrays({kept, rows}));
    const int64_t entries =
        Words(columns || values ? poolgrad::Jacobian(p, AsRoutes(routes), nullptr, nullptr, nullptr) : 0);
    POOLGRAD_TRY(CheckArrays({kept,
                              rows,
                              {"columns", columns, columns ? entries : 0, true},
                              {"values", values, values ? entries : 0, true}}));
    poolgrad::Jacobian(p, AsRoutes(routes), row_start, columns, values);
    return {};
  });
}

poolgrad_status poolgrad_routes_to_indices(const poolgrad_plan* plan, const void* routes, poolgrad_numbering numbering,
                                           int64_t* indices, const poolgrad_exec* given) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    POOLGRAD_TRY(
        CheckArrays({{"routes", routes, p.routes.bytes()}, {"indices", indices, Words(p.y_elements()), true}}));
    poolgrad_exec exec;
    POOLGRAD_TRY(TakeExec(given, &exec));
    return plan->plan.RoutesToIndices(AsRoutes(routes), numbering, indices, exec);
  });
}

poolgrad_status poolgrad_routes_from_indices(const poolgrad_plan* plan, const int64_t* indices,
                                             poolgrad_numbering numbering, void* routes) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    if (!plan->plan.on_cpu()) return Status::Unsupported("indices are imported on the CPU; make a CPU plan");
    POOLGRAD_TRY(
        CheckArrays({{"indices", indices, Words(p.y_elements())}, {"routes", routes, p.routes.bytes(), true}}));
    return poolgrad::RoutesFromIndices(p, indices, numbering, AsRoutes(routes));
  });
}

poolgrad_status poolgrad_unpool_indices(const poolgrad_plan* plan, const void* y, const int64_t* indices,
                                        poolgrad_numbering numbering, const int64_t* index_shape, void* x) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(IsPlan(plan));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    if (!plan->plan.on_cpu()) return Status::Unsupported("unpooling by indices runs on the CPU; make a CPU plan");
    POOLGRAD_TRY(CheckArrays({{"y", y, p.y_bytes()},
                              {"indices", indices, Words(p.y_elements())},
                              {"index_shape", index_shape, index_shape ? Words(p.rank) : 0},
                              {"x", x, p.x_bytes(), true}}));
    return poolgrad::UnpoolIndices(p, y, indices, numbering, index_shape, x);
  });
}

poolgrad_status poolgrad_shard_of(const poolgrad_problem* given, const int64_t* parts, const int64_t* const* cuts,
                                  const int64_t* at, poolgrad_shard* shard, poolgrad_problem* forward,
                                  poolgrad_problem* backward) {
  return Guard([&]() -> Status {
    poolgrad_problem whole;
    POOLGRAD_TRY(TakeProblem(given, &whole));
    POOLGRAD_TRY(CheckCutPointers(whole, parts, cuts, at, "at"));
    POOLGRAD_TRY(NotNull(shard, "shard", "point to a poolgrad_shard"));
    const uint64_t shard_size = shard->struct_size, problem_size = given->struct_size;
    POOLGRAD_TRY(poolgrad::CheckStructSize(shard_size, "shard", kOldestShard));
    if (problem_size < kOldestPart && (forward || backward)) {
      return Status::Invalid("problem.struct_size is " + std::to_string(problem_size) + "; a part of a problem takes " +
                             std::to_string(kOldestPart) + " bytes");
    }
    auto made = poolgrad::ShardOf(whole, {parts, cuts}, at);
    if (!made.ok()) return made.status();
    poolgrad::GiveSized(made->boxes, shard_size, shard);
    if (forward) poolgrad::GiveSized(made->forward, problem_size, forward);
    if (backward) poolgrad::GiveSized(made->backward, problem_size, backward);
    return {};
  });
}

poolgrad_status poolgrad_shard_halo(const poolgrad_problem* given, const int64_t* parts, const int64_t* const* cuts,
                                    const int64_t* from, const int64_t* to, poolgrad_halo halo, int64_t* begin,
                                    int64_t* end) {
  return Guard([&]() -> Status {
    poolgrad_problem whole;
    POOLGRAD_TRY(TakeProblem(given, &whole));
    POOLGRAD_TRY(CheckCutPointers(whole, parts, cuts, from, "from"));
    POOLGRAD_TRY(NotNull(to, "to", "say which part of each axis the rank has"));
    POOLGRAD_TRY(NotNull(begin, "begin", "have room for a number per axis"));
    POOLGRAD_TRY(NotNull(end, "end", "have room for a number per axis"));
    if (halo != POOLGRAD_HALO_X && halo != POOLGRAD_HALO_DY) {
      return Status::Invalid("halo is " + std::to_string(halo) + "; it must be 0 (x) or 1 (dy and routes)");
    }
    return poolgrad::HaloOf(whole, {parts, cuts}, from, to, halo, begin, end);
  });
}

poolgrad_status poolgrad_forward_bias(const poolgrad_plan* plan, const void* x, const void* bias, void* y, void* routes,
                                      const poolgrad_exec* exec) {
  if (plan && !plan->plan.problem().bias) {
    return Fail(POOLGRAD_INVALID_ARGUMENT,
                "the plan's problem has no bias; set relu and bias to 1 in the problem, or use poolgrad_forward");
  }
  Args args{x, nullptr, AsRoutes(routes), y};
  args.bias = bias;
  return Run(plan, routes ? POOLGRAD_OP_FORWARD_ROUTES : POOLGRAD_OP_FORWARD, args, exec);
}

poolgrad_status poolgrad_bias_gradient(const poolgrad_plan* plan, const void* dy, const void* routes, void* dbias,
                                       const poolgrad_exec* exec) {
  return Run(plan, POOLGRAD_OP_BIAS_GRADIENT, {dy, nullptr, AsRoutes(routes), dbias}, exec);
}

const char* poolgrad_last_error(void) { return LastError(); }

const char* poolgrad_version(void) { return POOLGRAD_VERSION_TEXT; }

const char* poolgrad_simd_target(void) {
#ifdef POOLGRAD_HAVE_SIMD
  static thread_local poolgrad::SimdSet set;
  if (const auto chosen = poolgrad::ChooseSimd(); chosen.ok()) set = *chosen;
  return set.name;
#else
  return "scalar";
#endif
}

int32_t poolgrad_has_cuda(void) {
#ifdef POOLGRAD_HAVE_CUDA
  return 1;
#else
  return 0;
#endif
}

void poolgrad_parallel_for_openmp(void* context, int64_t count, poolgrad_task_fn task, void* task_context) {
  poolgrad::ParallelForOpenMp(*static_cast<const poolgrad_openmp*>(context), count, task, task_context);
}

int32_t poolgrad_default_threads(void) { return poolgrad::DefaultThreads(); }

}  // extern "C"
