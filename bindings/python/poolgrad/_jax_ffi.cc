// XLA FFI handlers over poolgrad's C ABI: forward, forward with routes, scatter, gather, and spread (the scatter of
// averages, which need no routes); with a bias forward again, and the sum that is its gradient; on the CPU and on a
// CUDA stream.
//
// Built where JAX is present (poolgrad/_jax_build.py does it on first use), since the FFI's headers come with jaxlib.
// The problem arrives as its one-line text with batch 1; the batch is whatever the buffers hold, so leading axes that
// vmap added are folded into it. Plans are made once and kept. Buffer sizes are checked against the plan before
// anything runs.
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "poolgrad/poolgrad.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Buffer = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

constexpr int32_t kCpu = -1;  // a device ordinal, or this

struct Prepared {
  poolgrad_plan* plan = nullptr;
  poolgrad_info info = {};
};

ffi::Error LastError(poolgrad_status status) {
  const std::string sentence = poolgrad_last_error();
  return status == POOLGRAD_INVALID_ARGUMENT ? ffi::Error::InvalidArgument(sentence) : ffi::Error::Internal(sentence);
}

// The plan of `text` for `batch` items on `device`. Plans are immutable and few, so they are never given back.
poolgrad_status Prepare(std::string_view text, int64_t batch, int32_t device, Prepared* out) {
  static std::mutex mutex;
  static auto* plans = new std::map<std::tuple<std::string, int64_t, int32_t>, Prepared>;
  const std::lock_guard<std::mutex> lock(mutex);
  Prepared& kept = (*plans)[{std::string(text), batch, device}];
  if (kept.plan == nullptr) {
    poolgrad_problem problem;
    poolgrad_status status = poolgrad_problem_parse(std::string(text).c_str(), &problem);
    if (status != POOLGRAD_OK) return status;
    problem.batch = batch;
    problem.device = device == kCpu ? POOLGRAD_CPU : POOLGRAD_CUDA;
    problem.device_index = device == kCpu ? 0 : device;
    status = poolgrad_plan_create(&problem, nullptr, &kept.plan);
    if (status != POOLGRAD_OK) return status;
    kept.info.struct_size = sizeof(kept.info);
    status = poolgrad_plan_info(kept.plan, &kept.info);
    if (status != POOLGRAD_OK) return status;
  }
  *out = kept;
  return POOLGRAD_OK;
}

// How many items of the problem's batch a buffer of `elements` holds.
poolgrad_status CountBatch(std::string_view text, int64_t elements, int64_t* batch) {
  poolgrad_problem problem;
  const poolgrad_status status = poolgrad_problem_parse(std::string(text).c_str(), &problem);
  if (status != POOLGRAD_OK) return status;
  int64_t item = problem.channels;
  for (int i = 0; i < problem.rank; ++i) item *= problem.in[i];
  *batch = item > 0 ? elements / item : 0;
  return POOLGRAD_OK;
}

int64_t Channels(std::string_view text) {
  poolgrad_problem problem;
  return poolgrad_problem_parse(std::string(text).c_str(), &problem) == POOLGRAD_OK ? problem.channels : -1;
}

struct Call {
  std::string_view text;
  int32_t device = kCpu;
  void* stream = nullptr;
  ffi::ScratchAllocator* scratch = nullptr;
};

// The exec of an operation: on a GPU its scratch is XLA's.
ffi::Error Ready(const Call& call, const Prepared& p, poolgrad_op op, poolgrad_exec* exec) {
  exec->struct_size = sizeof(*exec);
  exec->stream = call.stream;
  if (call.device == kCpu) return ffi::Error::Success();
  const poolgrad_status status = poolgrad_plan_scratch_bytes(p.plan, op, 0, &exec->scratch_bytes);
  if (status != POOLGRAD_OK) return LastError(status);
  if (exec->scratch_bytes == 0) return ffi::Error::Success();
  constexpr uintptr_t kAlignment = 64;  // XLA promises no more than 16
  const auto memory = call.scratch->Allocate(exec->scratch_bytes + kAlignment, 16);
  if (!memory.has_value()) return ffi::Error::Internal("XLA could not allocate poolgrad's scratch memory on the GPU");
  exec->scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(*memory) + kAlignment - 1) & ~(kAlignment - 1));
  return ffi::Error::Success();
}

ffi::Error OtherSizes(const Call& call) {
  return ffi::Error::InvalidArgument("the buffers have sizes other than those of the problem '" +
                                     std::string(call.text) + "'");
}

int64_t Count(const Buffer& buffer) { return static_cast<int64_t>(buffer.element_count()); }

// `x` and `y` are the buffers with x's and y's elements, in whichever direction the operation goes; routes may be null.
ffi::Error Run(const Call& call, poolgrad_op op, const Buffer& x, const Buffer& y, const Buffer* routes) {
  int64_t batch = 0;
  poolgrad_status status = CountBatch(call.text, Count(x), &batch);
  Prepared p;
  if (status == POOLGRAD_OK) status = Prepare(call.text, batch, call.device, &p);
  if (status != POOLGRAD_OK) return LastError(status);
  if (Count(x) != p.info.x_elements || Count(y) != p.info.y_elements ||
      (routes != nullptr && Count(*routes) != p.info.route_bytes)) {
    return OtherSizes(call);
  }
  poolgrad_exec exec = {};
  if (ffi::Error error = Ready(call, p, op, &exec); error.failure()) return error;
  void* const kept = routes == nullptr ? nullptr : routes->untyped_data();
  switch (op) {
    case POOLGRAD_OP_BACKWARD:
      status = poolgrad_backward(p.plan, y.untyped_data(), kept, x.untyped_data(), &exec);
      break;
    case POOLGRAD_OP_GATHER:
      status = poolgrad_gather(p.plan, x.untyped_data(), kept, y.untyped_data(), &exec);
      break;
    default:
      status = poolgrad_forward(p.plan, x.untyped_data(), y.untyped_data(), kept, &exec);
  }
  return status == POOLGRAD_OK ? ffi::Error::Success() : LastError(status);
}

// Forward with a bias; routes may be null.
ffi::Error RunBias(const Call& call, const Buffer& x, const Buffer& bias, const Buffer& y, const Buffer* routes) {
  int64_t batch = 0;
  poolgrad_status status = CountBatch(call.text, Count(x), &batch);
  Prepared p;
  if (status == POOLGRAD_OK) status = Prepare(call.text, batch, call.device, &p);
  if (status != POOLGRAD_OK) return LastError(status);
  if (Count(x) != p.info.x_elements || Count(y) != p.info.y_elements || Count(bias) != Channels(call.text) ||
      (routes != nullptr && Count(*routes) != p.info.route_bytes)) {
    return OtherSizes(call);
  }
  poolgrad_exec exec = {};
  const poolgrad_op op = routes == nullptr ? POOLGRAD_OP_FORWARD : POOLGRAD_OP_FORWARD_ROUTES;
  if (ffi::Error error = Ready(call, p, op, &exec); error.failure()) return error;
  status = poolgrad_forward_bias(p.plan, x.untyped_data(), bias.untyped_data(), y.untyped_data(),
                                 routes == nullptr ? nullptr : routes->untyped_data(), &exec);
  return status == POOLGRAD_OK ? ffi::Error::Success() : LastError(status);
}

ffi::Error BiasSum(const Call& call, Buffer dy, Buffer routes, Out dbias) {
  Prepared one, p;
  poolgrad_status status = Prepare(call.text, 1, kCpu, &one);  // which tells the size of an item
  const int64_t batch = one.info.y_elements > 0 ? Count(dy) / one.info.y_elements : 0;
  if (status == POOLGRAD_OK) status = Prepare(call.text, batch, call.device, &p);
  if (status != POOLGRAD_OK) return LastError(status);
  if (Count(dy) != p.info.y_elements || Count(routes) != p.info.route_bytes || Count(*dbias) != Channels(call.text)) {
    return OtherSizes(call);
  }
  poolgrad_exec exec = {};
  if (ffi::Error error = Ready(call, p, POOLGRAD_OP_BIAS_GRADIENT, &exec); error.failure()) return error;
  status = poolgrad_bias_gradient(p.plan, dy.untyped_data(), routes.untyped_data(), dbias->untyped_data(), &exec);
  return status == POOLGRAD_OK ? ffi::Error::Success() : LastError(status);
}

ffi::Error ForwardBias(const Call& call, Buffer x, Buffer bias, Out y) { return RunBias(call, x, bias, *y, nullptr); }
ffi::Error ForwardBiasRoutes(const Call& call, Buffer x, Buffer bias, Out y, Out routes) {
  const Buffer kept = *routes;
  return RunBias(call, x, bias, *y, &kept);
}

ffi::Error Forward(const Call& call, Buffer x, Out y) { return Run(call, POOLGRAD_OP_FORWARD, x, *y, nullptr); }
ffi::Error ForwardRoutes(const Call& call, Buffer x, Out y, Out routes) {
  const Buffer kept = *routes;
  return Run(call, POOLGRAD_OP_FORWARD_ROUTES, x, *y, &kept);
}
ffi::Error Scatter(const Call& call, Buffer dy, Buffer routes, Out dx) {
  return Run(call, POOLGRAD_OP_BACKWARD, *dx, dy, &routes);
}
ffi::Error Gather(const Call& call, Buffer tx, Buffer routes, Out ty) {
  return Run(call, POOLGRAD_OP_GATHER, tx, *ty, &routes);
}
ffi::Error Spread(const Call& call, Buffer dy, Out dx) { return Run(call, POOLGRAD_OP_BACKWARD, *dx, dy, nullptr); }

auto Bind() { return ffi::Ffi::Bind().Attr<std::string_view>("problem"); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_cpu, +[](std::string_view text, Buffer x, Out y) { return Forward({text}, x, y); },
    Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_routes_cpu,
    +[](std::string_view text, Buffer x, Out y, Out routes) { return ForwardRoutes({text}, x, y, routes); },
    Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_scatter_cpu,
    +[](std::string_view text, Buffer dy, Buffer routes, Out dx) { return Scatter({text}, dy, routes, dx); },
    Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_gather_cpu,
    +[](std::string_view text, Buffer tx, Buffer routes, Out ty) { return Gather({text}, tx, routes, ty); },
    Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_spread_cpu, +[](std::string_view text, Buffer dy, Out dx) { return Spread({text}, dy, dx); },
    Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_bias_cpu,
    +[](std::string_view text, Buffer x, Buffer bias, Out y) { return ForwardBias({text}, x, bias, y); },
    Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_bias_routes_cpu,
    +[](std::string_view text, Buffer x, Buffer bias, Out y, Out routes) {
      return ForwardBiasRoutes({text}, x, bias, y, routes);
    },
    Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_bias_sum_cpu,
    +[](std::string_view text, Buffer dy, Buffer routes, Out dbias) { return BiasSum({text}, dy, routes, dbias); },
    Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

#ifdef POOLGRAD_JAX_CUDA

// Which GPU: XLA says, where its headers are new enough to be asked; elsewhere the first.
#ifdef POOLGRAD_JAX_DEVICE_ORDINAL
#define POOLGRAD_JAX_ON_STREAM \
  Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::ScratchAllocator>().Ctx<ffi::DeviceOrdinal>()
#define POOLGRAD_JAX_STREAM std::string_view text, void *stream, ffi::ScratchAllocator scratch, int32_t device
#else
#define POOLGRAD_JAX_ON_STREAM Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::ScratchAllocator>()
#define POOLGRAD_JAX_STREAM std::string_view text, void *stream, ffi::ScratchAllocator scratch
static constexpr int32_t device = 0;
#endif

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer x, Out y) {
      return Forward({text, device, stream, &scratch}, x, y);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_routes_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer x, Out y, Out routes) {
      return ForwardRoutes({text, device, stream, &scratch}, x, y, routes);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_scatter_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer dy, Buffer routes, Out dx) {
      return Scatter({text, device, stream, &scratch}, dy, routes, dx);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_gather_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer tx, Buffer routes, Out ty) {
      return Gather({text, device, stream, &scratch}, tx, routes, ty);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_spread_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer dy, Out dx) {
      return Spread({text, device, stream, &scratch}, dy, dx);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_bias_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer x, Buffer bias, Out y) {
      return ForwardBias({text, device, stream, &scratch}, x, bias, y);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_forward_bias_routes_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer x, Buffer bias, Out y, Out routes) {
      return ForwardBiasRoutes({text, device, stream, &scratch}, x, bias, y, routes);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    poolgrad_jax_bias_sum_cuda,
    +[](POOLGRAD_JAX_STREAM, Buffer dy, Buffer routes, Out dbias) {
      return BiasSum({text, device, stream, &scratch}, dy, routes, dbias);
    },
    POOLGRAD_JAX_ON_STREAM.Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

#endif  // POOLGRAD_JAX_CUDA
