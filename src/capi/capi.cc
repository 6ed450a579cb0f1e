// The C ABI: the only extern "C", the only place that catches, and where pointers are checked.
#include <cstring>
#include <new>
#include <string>

#include "base/parallel.h"
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

std::string& LastError() {
  static thread_local std::string sentence;
  return sentence;
}

poolgrad_status Fail(const Status& status) {
  LastError() = status.sentence();
  return status.code();
}

// Runs body, which returns a Status, and turns it and any exception into a code and a sentence.
template <class Body>
poolgrad_status Guard(Body&& body) {
#ifdef __cpp_exceptions
  try {
#endif
    const Status status = body();
    return status.ok() ? POOLGRAD_OK : Fail(status);
#ifdef __cpp_exceptions
  } catch (const std::bad_alloc&) {
    return Fail({POOLGRAD_OUT_OF_MEMORY, "memory ran out"});
  } catch (const std::exception& e) {
    return Fail({POOLGRAD_INTERNAL_ERROR, std::string("an unexpected error inside poolgrad: ") + e.what()});
  }
#endif
}

Status NotNull(const void* pointer, const char* name) {
  return pointer ? Status()
                 : Status::Invalid(std::string(name) + " is null; it must point to memory of the plan's size");
}

// Empty arrays may be null.
Status Array(const void* pointer, const char* name, int64_t elements) {
  return elements == 0 ? Status() : NotNull(pointer, name);
}

#define POOLGRAD_TRY(expression)                                      \
  do {                                                                \
    if (Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// A null exec means the defaults.
Status CheckExec(const poolgrad_exec* exec, poolgrad_exec* checked) {
  *checked = {};
  checked->struct_size = sizeof *checked;
  if (!exec) return {};
  if (exec->struct_size != sizeof *exec) {
    return Status::Invalid("exec.struct_size is " + std::to_string(exec->struct_size) +
                           "; this version of poolgrad expects " + std::to_string(sizeof *exec));
  }
  if (exec->threads < 0 || exec->threads > 4096) {
    return Status::Invalid("exec.threads is " + std::to_string(exec->threads) +
                           "; it must be from 0 (the default) to 4096");
  }
  *checked = *exec;
  return {};
}

Status CopyText(const std::string& from, char* text, size_t capacity, size_t* needed) {
  if (needed) *needed = from.size() + 1;
  if (!text) return capacity == 0 ? Status() : NotNull(text, "text");
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
  bool source_is_input;  // source has x's size and result y's; else the other way
};
constexpr Named kNamed[] = {{"x", "y", true},    {"x", "y", true},   {"dy", "dx", false},
                            {"dy", "dx", false}, {"tx", "ty", true}, {"y", "x", false}};

Status CheckCutPointers(const poolgrad_problem& whole, const int64_t* parts, const int64_t* const* cuts, const int64_t* at,
                        const char* at_name) {
  POOLGRAD_TRY(NotNull(parts, "parts"));
  POOLGRAD_TRY(NotNull(cuts, "cuts"));
  POOLGRAD_TRY(NotNull(at, at_name));
  for (int i = 0; i < whole.rank && i < 3; ++i) POOLGRAD_TRY(NotNull(cuts[i], "an entry of cuts"));
  return {};
}

poolgrad_status Run(const poolgrad_plan* plan, poolgrad_op op, const Args& args, const poolgrad_exec* exec) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(plan->plan.can(op));
    const Named& named = kNamed[op];
    POOLGRAD_TRY(Array(args.source, named.source, named.source_is_input ? p.x_elements() : p.y_elements()));
    POOLGRAD_TRY(Array(args.result, named.result, named.source_is_input ? p.y_elements() : p.x_elements()));
    if (op == POOLGRAD_OP_BACKWARD_X) POOLGRAD_TRY(Array(args.x, "x", p.x_elements()));
    const bool reads_routes = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_GATHER || op == POOLGRAD_OP_UNPOOL;
    if (reads_routes && p.kind == POOLGRAD_MAX) POOLGRAD_TRY(Array(args.routes, "routes", p.routes.bytes()));
    poolgrad_exec checked;
    POOLGRAD_TRY(CheckExec(exec, &checked));
    return plan->plan.Run(op, args, checked);
  });
}

uint8_t* AsRoutes(const void* routes) { return const_cast<uint8_t*>(static_cast<const uint8_t*>(routes)); }

}  // namespace

extern "C" {

void poolgrad_problem_init(poolgrad_problem* problem) {
  if (problem) *problem = poolgrad::DefaultProblem();
}

poolgrad_status poolgrad_problem_parse(const char* text, poolgrad_problem* problem) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(text, "text"));
    POOLGRAD_TRY(NotNull(problem, "problem"));
    auto parsed = poolgrad::ParseProblem(text);
    if (!parsed.ok()) return parsed.status();
    *problem = *parsed;
    return {};
  });
}

poolgrad_status poolgrad_problem_format(const poolgrad_problem* problem, char* text, size_t capacity, size_t* needed) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(problem, "problem"));
    auto resolved = poolgrad::Resolve(*problem);
    if (!resolved.ok()) return resolved.status();
    return CopyText(poolgrad::FormatProblem(*problem), text, capacity, needed);
  });
}

poolgrad_status poolgrad_plan_create(const poolgrad_problem* problem, const poolgrad_plan_options* options,
                                     poolgrad_plan** plan) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(problem, "problem"));
    POOLGRAD_TRY(NotNull(plan, "plan"));
    if (options && options->struct_size != sizeof *options) {
      return Status::Invalid("options.struct_size is " + std::to_string(options->struct_size) +
                             "; this version of poolgrad expects " + std::to_string(sizeof *options));
    }
    auto made = Plan::Create(*problem, options ? options->algorithm : nullptr);
    if (!made.ok()) return made.status();
    *plan = new poolgrad_plan{std::move(*made)};
    return {};
  });
}

void poolgrad_plan_destroy(poolgrad_plan* plan) { delete plan; }

poolgrad_status poolgrad_plan_info(const poolgrad_plan* plan, poolgrad_info* info) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    POOLGRAD_TRY(NotNull(info, "info"));
    if (info->struct_size != sizeof *info) {
      return Status::Invalid("info.struct_size is " + std::to_string(info->struct_size) +
                             "; this version of poolgrad expects " + std::to_string(sizeof *info));
    }
    const Problem& p = plan->plan.problem();
    poolgrad_info i = {};
    i.struct_size = sizeof i;
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
    *info = i;
    return {};
  });
}

poolgrad_status poolgrad_plan_scratch_bytes(const poolgrad_plan* plan, poolgrad_op op, int32_t threads,
                                            uint64_t* bytes) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    POOLGRAD_TRY(NotNull(bytes, "bytes"));
    if (!IsOp(op))
      return Status::Invalid("op is " + std::to_string(op) + "; it must be one of poolgrad_op's values, 0 to 5");
    if (threads < 0 || threads > 4096) {
      return Status::Invalid("threads is " + std::to_string(threads) + "; it must be from 0 (the default) to 4096");
    }
    *bytes = plan->plan.scratch_bytes(op, threads);
    return {};
  });
}

poolgrad_status poolgrad_plan_explain(const poolgrad_plan* plan, char* text, size_t capacity, size_t* needed) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    return CopyText(plan->plan.Explain(), text, capacity, needed);
  });
}

const char* poolgrad_plan_algorithm(const poolgrad_plan* plan, poolgrad_op op) {
  return plan && IsOp(op) ? plan->plan.algorithm(op) : nullptr;
}

poolgrad_status poolgrad_forward(const poolgrad_plan* plan, const void* x, void* y, void* routes,
                                 const poolgrad_exec* exec) {
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
    POOLGRAD_TRY(NotNull(plan, "plan"));
    POOLGRAD_TRY(NotNull(row_start, "row_start"));
    const Problem& p = plan->plan.problem();
    if (!plan->plan.on_cpu())
      return Status::Unsupported("the Jacobian is built on the CPU; make a CPU plan and copy the routes");
    if (p.kind == POOLGRAD_MAX) POOLGRAD_TRY(Array(routes, "routes", p.routes.bytes()));
    poolgrad::Jacobian(p, AsRoutes(routes), row_start, columns, values);
    return {};
  });
}

poolgrad_status poolgrad_routes_to_indices(const poolgrad_plan* plan, const void* routes, poolgrad_numbering numbering,
                                           int64_t* indices, const poolgrad_exec* exec) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    POOLGRAD_TRY(Array(routes, "routes", p.routes.bytes()));
    POOLGRAD_TRY(Array(indices, "indices", p.y_elements()));
    poolgrad_exec checked;
    POOLGRAD_TRY(CheckExec(exec, &checked));
    return plan->plan.RoutesToIndices(AsRoutes(routes), numbering, indices, checked);
  });
}

poolgrad_status poolgrad_routes_from_indices(const poolgrad_plan* plan, const int64_t* indices,
                                             poolgrad_numbering numbering, void* routes) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    if (!plan->plan.on_cpu()) return Status::Unsupported("indices are imported on the CPU; make a CPU plan");
    POOLGRAD_TRY(Array(indices, "indices", p.y_elements()));
    POOLGRAD_TRY(Array(routes, "routes", p.routes.bytes()));
    return poolgrad::RoutesFromIndices(p, indices, numbering, AsRoutes(routes));
  });
}

poolgrad_status poolgrad_unpool_indices(const poolgrad_plan* plan, const void* y, const int64_t* indices,
                                        poolgrad_numbering numbering, const int64_t* index_shape, void* x) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(plan, "plan"));
    const Problem& p = plan->plan.problem();
    POOLGRAD_TRY(CheckNumbering(p, numbering));
    if (!plan->plan.on_cpu()) return Status::Unsupported("unpooling by indices runs on the CPU; make a CPU plan");
    POOLGRAD_TRY(Array(y, "y", p.y_elements()));
    POOLGRAD_TRY(Array(indices, "indices", p.y_elements()));
    POOLGRAD_TRY(Array(x, "x", p.x_elements()));
    return poolgrad::UnpoolIndices(p, y, indices, numbering, index_shape, x);
  });
}

poolgrad_status poolgrad_shard_of(const poolgrad_problem* whole, const int64_t* parts, const int64_t* const* cuts,
                                  const int64_t* at, poolgrad_shard* shard) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(whole, "whole"));
    POOLGRAD_TRY(CheckCutPointers(*whole, parts, cuts, at, "at"));
    POOLGRAD_TRY(NotNull(shard, "shard"));
    auto made = poolgrad::ShardOf(*whole, {parts, cuts}, at);
    if (!made.ok()) return made.status();
    *shard = *made;
    return {};
  });
}

poolgrad_status poolgrad_shard_halo(const poolgrad_problem* whole, const int64_t* parts, const int64_t* const* cuts,
                                    const int64_t* from, const int64_t* to, poolgrad_halo halo, int64_t* begin, int64_t* end) {
  return Guard([&]() -> Status {
    POOLGRAD_TRY(NotNull(whole, "whole"));
    POOLGRAD_TRY(CheckCutPointers(*whole, parts, cuts, from, "from"));
    POOLGRAD_TRY(NotNull(to, "to"));
    POOLGRAD_TRY(NotNull(begin, "begin"));
    POOLGRAD_TRY(NotNull(end, "end"));
    if (halo != POOLGRAD_HALO_X && halo != POOLGRAD_HALO_DY) {
      return Status::Invalid("halo is " + std::to_string(halo) + "; it must be 0 (x) or 1 (dy and routes)");
    }
    return poolgrad::HaloOf(*whole, {parts, cuts}, from, to, halo, begin, end);
  });
}

const char* poolgrad_last_error(void) { return LastError().c_str(); }

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
