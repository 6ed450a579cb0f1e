// The list of CUDA algorithms, fastest first, with the reason for each refusal; and the device's error sentences.
#include <string>

#include "cuda/any/sums_launch.h"
#include "cuda/common/device.cuh"
#include "cuda/common/tuning.h"
#include "cuda/compiled.h"
#include "cuda/cuda.h"
#include "cuda/fast.h"
#include "cuda/generic/bias.cuh"
#include "cuda/generic/generic.cuh"
#include "cuda/generic/rectify.cuh"
#include "cuda/small/small_window.h"

namespace poolgrad {
namespace cuda {

Status ErrorStatus(cudaError_t error, const std::string& while_doing) {
  cudaGetLastError();  // not left behind for the caller
  const poolgrad_status code = error == cudaErrorMemoryAllocation ? POOLGRAD_OUT_OF_MEMORY : POOLGRAD_DEVICE_ERROR;
  return {code, "the CUDA runtime refused " + while_doing + ": " + cudaGetErrorName(error) + ", " +
                    cudaGetErrorString(error)};
}

namespace {

template <class F>
cudaError_t VisitFastType(poolgrad_dtype dtype, F&& f) {
  switch (dtype) {
    case POOLGRAD_F32:
      return f(float{});
    case POOLGRAD_F16:
      return f(__half{});
    case POOLGRAD_BF16:
      return f(__nv_bfloat16{});
    default:
      return cudaErrorNotSupported;
  }
}

Generic GenericOf(const Problem& p, poolgrad_op op) {
  if (p.kind == POOLGRAD_AVERAGE) return IsForward(op) ? Generic::kAverage : Generic::kAverageBackward;
  switch (op) {
    case POOLGRAD_OP_GATHER:
      return Generic::kGather;
    case POOLGRAD_OP_UNPOOL:
      return Generic::kUnpool;
    case POOLGRAD_OP_BACKWARD:
    case POOLGRAD_OP_BACKWARD_X:
      return Generic::kBackward;
    default:
      return Generic::kForward;
  }
}

cudaError_t RunGenericOp(const Problem& p, poolgrad_op op, const Args& args, void* stream) {
  return VisitDtype(p.dtype,
                    [&](auto zero) { return RunGeneric<OnDevice<decltype(zero)>>(p, GenericOf(p, op), args, stream); });
}

// The kernels that take pointers of any alignment.
cudaError_t RunAnyAlignment(const Problem& p, poolgrad_op op, const Args& args, void* stream);

// Runs `run` on the problem's device; falls back to kernels for any alignment when it cannot take these pointers.
template <class F>
Status OnDeviceOf(const Problem& p, poolgrad_op op, const Args& args, void* stream, F&& run) {
  const DeviceScope scope(p.device_index);
  if (scope.status() != cudaSuccess) {
    return ErrorStatus(scope.status(), "to use device " + std::to_string(p.device_index));
  }
  cudaError_t error = run();
  if (error == cudaErrorNotSupported) error = RunAnyAlignment(p, op, args, stream);
  if (error != cudaSuccess) return ErrorStatus(error, std::string("to launch ") + Name(op));
  return {};
}

// run(zero, forward) launches one family's kernel for the type of `zero`.
template <class F>
Status LaunchFamily(const Problem& p, poolgrad_op op, const Args& args, void* stream, F&& run) {
  return OnDeviceOf(p, op, args, stream,
                    [&] { return VisitFastType(p.dtype, [&](auto zero) { return run(zero, IsForward(op)); }); });
}

// ---- small windows, known when their kernel was compiled ----

const char* RefuseLargeWindow(const Problem& p, poolgrad_op op);

// Windows of 8x8 that move by one, channels last: maxima that they share are found once (0.40 of copy against 0.21 to
// 0.28; 7x7 and channels first are the other way round, 0.22 against 0.33 and 0.34 against 0.45).
bool SharesMaxima(const Problem& p, poolgrad_op op) {
  const auto shares = [](const Axis& a) { return a.kernel >= 8 && a.stride == 1; };
  return IsForward(op) && p.channels_last() && shares(p.axis[1]) && shares(p.axis[2]) && !RefuseLargeWindow(p, op);
}

// Backward by summing (sums.cuh), compiled for the window.
const char* RefuseSums(const Problem& p, poolgrad_op op) {
  if (op != POOLGRAD_OP_BACKWARD) return "it does backward from routes";
  if (const char* reason = RefuseTiled(p)) return reason;
  if (const char* reason = RefuseAny(p)) return reason;
  if (IsOneTap(p)) return kOneTap;
  const bool vectors = p.channels_last() && p.channels % (16 / SizeOf(p.dtype)) == 0;
  const bool few = Covers(p).all <= kGatherCovers || (IsDilated(p) && AllOverlapping(p) <= kGatherDilated);
  if (vectors && few && !RefuseGather(p)) return "few windows overlap; a gather is faster";
  return RefuseCompilingFor(p);
}

// Whether so many outputs lie over an input that adding each where it belongs is faster than looking at all of them.
bool SumsFaster(const Problem& p, poolgrad_op op) {
  if (op != POOLGRAD_OP_BACKWARD || RefuseSums(p, op)) return false;
  const Covers covers(p);
  if (p.axis[0].kernel > 1) return covers.all >= kSumsDeepCovers;
  if (HasFewOddChannels(p) && covers.width >= kSumsWide[0]) return true;
  return covers.all >= kSumsCovers || (covers.width >= kSumsWide[p.channels_last()] && covers.all >= kSumsWideCovers);
}

bool ScattersFaster(const Problem& p, poolgrad_op op);
bool GoesDownFaster(const Problem& p, poolgrad_op op);

const char* RefuseForms(const Problem& p, poolgrad_op op) {
  if (!IsForward(op) && op != POOLGRAD_OP_BACKWARD) return "it does forward and backward from routes";
  if (const char* reason = RefuseTiled(p)) return reason;
  if (const char* reason = IsForward(op) ? RefuseRules(p) : nullptr) return reason;
  if (p.bias && IsForward(op)) return kRectifies;
  if (!IsForward(op) && IsOneTap(p)) return kOneTap;
  if (SumsFaster(p, op)) return "many windows overlap; adding in their order is faster";
  if (ScattersFaster(p, op)) return "the windows are large and share little; clearing and putting is faster";
  if (GoesDownFaster(p, op)) return "the windows share little; going down columns is faster";
  if (!FormOf(p, op)) return "the window is too large to be unrolled";
  return SharesMaxima(p, op) ? "neighbouring windows share most of their maxima" : nullptr;
}

struct Chosen {
  Form form{};
  const void* kernel = nullptr;
  bool best = true;  // no other form suits the problem better
};

Status LaunchChosen(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  const auto& chosen = *static_cast<const FormLaunch*>(args.layout);
  return OnDeviceOf(p, op, args, stream, [&] { return chosen.Launch(args, stream); });
}

CudaKernel MakeChosen(const Problem& p, poolgrad_op op, const Chosen& chosen, std::string note) {
  std::shared_ptr<const FormLaunch> launch = MakeFormLaunch(chosen.kernel, chosen.form, p, op);
  if (!launch) return {nullptr, 0, nullptr, "it would take more than 2^31 threads"};
  return {LaunchChosen, 0, std::move(launch), std::move(note)};
}

const char* RefuseCompiled(const Problem& p, poolgrad_op op) {
  const char* reason = RefuseForms(p, op);
  return reason ? reason : RefuseCompilingFor(p);
}

CudaKernel MakeCompiled(const Problem& p, poolgrad_op op) {
  const Form form = *FormOf(p, op);
  Compiled compiled = Compile(SourceOf(p.dtype, op, form), p.device_index);
  if (!compiled.kernel) return {nullptr, 0, nullptr, std::move(compiled.note)};
  return MakeChosen(p, op, {form, compiled.kernel}, std::move(compiled.note));
}

// Where the form that suits best was not compiled ahead, another one may have been.
Chosen FindAhead(const Problem& p, poolgrad_op op) {
  bool best = true;
  for (const auto of : {FormOf, KeptFormOf, PlainFormOf}) {
    const std::optional<Form> form = of(p, op);
    if (const void* kernel = form ? AheadKernel(p.dtype, op, *form) : nullptr) return {*form, kernel, best};
    best = false;
  }
  return {};
}

const char* RefuseSmallWindow(const Problem& p, poolgrad_op op) {
  if (const char* reason = RefuseForms(p, op)) return reason;
  const Chosen ahead = FindAhead(p, op);
  if (!ahead.kernel) return "no kernel was compiled ahead for this window";
  return ahead.best || RefuseCompiled(p, op) ? nullptr : "one compiled for just this problem is faster";
}

CudaKernel MakeSmallWindow(const Problem& p, poolgrad_op op) { return MakeChosen(p, op, FindAhead(p, op), {}); }

// ---- kernels whose windows are loops ----

const char* RefuseDirection(const Problem& p, poolgrad_op op) {
  if (IsForward(op)) return RefuseForward(p);
  return op == POOLGRAD_OP_BACKWARD ? RefuseTiled(p) : "it does forward and backward from routes";
}

const char* RefusePlanesOp(const Problem& p, poolgrad_op op) {
  const char* reason = RefuseDirection(p, op);
  return reason ? reason : RefusePlanes(p, IsForward(op));
}

const char* RefuseVectorsOp(const Problem& p, poolgrad_op op) {
  const char* reason = RefuseDirection(p, op);
  return reason ? reason : RefuseVectors(p);
}

// By separable maxima.
const char* RefuseLargeWindow(const Problem& p, poolgrad_op op) {
  if (!IsForward(op)) return "it does forward";
  const char* reason = RefuseForward(p);
  return reason ? reason : RefuseSeparable(p);
}

Status LaunchPlanesOp(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return LaunchFamily(p, op, args, stream,
                      [&](auto zero, bool forward) { return RunPlanes<decltype(zero)>(p, forward, args, stream); });
}

Status LaunchVectorsOp(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return LaunchFamily(p, op, args, stream,
                      [&](auto zero, bool forward) { return RunVectors<decltype(zero)>(p, forward, args, stream); });
}

Status LaunchLargeWindow(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return LaunchFamily(p, op, args, stream,
                      [&](auto zero, bool) { return RunSeparable<decltype(zero)>(p, args, stream); });
}

// ---- any window ----

const char* RefuseAnyOp(const Problem& p, poolgrad_op op) {
  if (!IsForward(op) && op != POOLGRAD_OP_BACKWARD) return "it does forward and backward from routes";
  if (!IsForward(op) && IsInteger(p.dtype)) return "integers have no gradient";
  if (const char* reason = RefuseShape(p)) return reason;
  if (const char* reason = IsForward(op) ? RefuseWindows(p) : nullptr) return reason;
  return RefuseAny(p);
}

cudaError_t RunAnyForward(const Problem& p, const Args& args, void* stream) {
  return VisitDtype(p.dtype, [&](auto zero) { return RunAnyWindow<OnDevice<decltype(zero)>>(p, args, stream); });
}

Status LaunchAnyForward(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return OnDeviceOf(p, op, args, stream, [&] { return RunAnyForward(p, args, stream); });
}

// Backward by summing (sums.cuh), all but the pointers.
struct SumsReady {
  const void* kernel = nullptr;  // null: no tile of its inputs fits
  SumsGrid grid;
  SumsParams params;
};

SumsReady ReadySums(const Problem& p) {
  SumsReady ready;
  ready.grid = PrepareSums(p, false, &ready.params);
  if (ready.grid.blocks == 0) return ready;
  VisitDtype(p.dtype, [&](auto zero) {
    using T = OnDevice<decltype(zero)>;
    if constexpr (!std::is_integral_v<T>) ready.kernel = SumsKernelOf<T>(ready.params.form);
    return cudaSuccess;
  });
  return ready;
}

cudaError_t RunSums(const SumsReady& ready, const Args& args, void* stream) {
  if (!ready.kernel) return cudaErrorNotSupported;
  SumsParams now = ready.params;
  if (now.form.vector > 1 && !(Aligned(args.source, 16) && Aligned(args.routes, 8) && Aligned(args.result, 16))) {
    return cudaErrorNotSupported;
  }
  now.dy = args.source, now.routes = args.routes, now.dx = args.result;
  void* pointers[] = {&now};
  return LaunchPointers(ready.kernel, ready.grid.blocks, ready.grid.threads,
                        static_cast<size_t>(ready.grid.shared_bytes), stream, pointers);
}

Status LaunchSums(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return OnDeviceOf(p, op, args, stream,
                    [&] { return RunSums(*static_cast<const SumsReady*>(args.layout), args, stream); });
}

// ---- windows by table, averages ----

CudaKernel MakeTablesOp(const Problem& p, poolgrad_op op);
const char* RefuseKnownTables(const Problem& p, poolgrad_op op);

const char* RefuseTablesOp(const Problem& p, poolgrad_op op) {
  if (const char* reason = RefuseTables(p, op)) return reason;
  if (IsDilated(p) && (IsForward(op) || !(TablesClear(p) || Puts(p)))) return "the window is dilated";
  if (IsOrdinary(p) && IsForward(op) && !ApartUncompiled(p, op) &&
      (p.taps() < kTableLargeUnknown || MostOverlapping(p) > kTableApart))
    return "windows that are alike have faster kernels";
  return MakeTablesOp(p, op).launch ? nullptr : "what reaches a row does not fit into shared memory";
}

// Channels first, or few, backward (5x5x5/5 in f32 and bf16 0.51 0.46 of copy to 0.72 0.54, 4x4x4/4 0.57 0.50 to 0.78
// 0.60, 8x8/8 0.53 0.45 to 0.61 0.49; 9x9/9 0.67 0.58 to 0.70 0.55, 10x10/10 0.64 0.52 to 0.61 0.51; three channels
// last 5x5x5/5 0.47 0.44 to 0.82 0.63, 9x9/8 0.50 0.24 to 0.74 0.50).
bool ScattersFaster(const Problem& p, poolgrad_op op) {
  return op == POOLGRAD_OP_BACKWARD && (!p.channels_last() || HasFewOddChannels(p)) && LargeAndApart(p, op) &&
         !RefuseTablesOp(p, op);
}

// Dilated, channels last (with routes 4x4/4 in f32 and bf16 0.80 0.57 of copy to 0.96 0.71, 7x7/7 0.51 0.90 to 1.45
// 1.12; forward 6x6/5 0.54 0.29 to 0.79 0.73, 4x6/1x6 0.40 0.35 to 0.52 0.45; three channels of halves 0.53 to 0.42);
// and with routes where unrolled they do not fit into registers (13x13/13 in f32, channels last, 0.18 to 0.78).
bool GoesDownFaster(const Problem& p, poolgrad_op op) {
  if (!IsForward(op) || !LargeAndApart(p, op)) return false;
  const bool gains =
      IsDilated(p) ? p.channels_last() && p.channels * SizeOf(p.dtype) >= 16 && AllOverlapping(p) <= kTableOverlapping
                   : op == POOLGRAD_OP_FORWARD_ROUTES && SpillsRoutes(p);
  return gains && !RefuseKnownTables(p, op);
}

// Compiled for the axes (tables_known.cuh).
std::shared_ptr<const void> KnownTables(const Problem& p, poolgrad_op op, const TableCompiler& compile) {
  std::shared_ptr<const void> job;
  VisitFastType(p.dtype, [&](auto zero) {
    job = MakeKnownTables<decltype(zero)>(p, op, compile);
    return cudaSuccess;
  });
  return job;
}
const char* RefuseKnownTables(const Problem& p, poolgrad_op op) {
  if (const char* reason = RefuseTables(p, op)) return reason;
  const bool forward = IsForward(op), max = p.kind == POOLGRAD_MAX;
  const bool last = p.channels_last(), clears = !forward && TablesClear(p);
  // Where dx would be cleared first: many channels that are last, and floats in planes that are whole (60x60 to 2x2
  // 0.83 of copy to 0.92; 224x224 to 6x6 0.90 to 0.56).
  const bool gains = last ? p.channels * SizeOf(p.dtype) >= kFewChannelBytes
                          : p.dtype == POOLGRAD_F32 && p.in_plane() * SizeOf(p.dtype) <= staged_bytes;
  if (clears && !gains) return "windows are large; clearing and putting is faster";
  const bool gathers = max && !forward && (last || clears);
  if (max && !forward && !p.by_table() && !gathers) return "windows that are alike have faster kernels";
  if (p.out_plane() == 1 && !gathers) return "there is one window";
  if (const char* reason = RefuseCompilingFor(p)) return reason;
  return KnownTables(p, op, [](const TableForm& form) { return &form; }) ? nullptr : "its windows are not compiled for";
}

Status LaunchTablesOp(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return LaunchFamily(p, op, args, stream,
                      [&](auto zero, bool forward) { return RunTables<decltype(zero)>(p, forward, args, stream); });
}

CudaKernel MakeTablesOp(const Problem& p, poolgrad_op op) {
  std::shared_ptr<const void> job;
  VisitFastType(p.dtype, [&](auto zero) {
    job = MakeTables<decltype(zero)>(p, IsForward(op));
    return cudaSuccess;
  });
  return {job ? LaunchTablesOp : nullptr, 0, job, {}};
}

CudaKernel MakeKnownTablesOp(const Problem& p, poolgrad_op op) {
  Compiled compiled;
  const auto job = KnownTables(p, op, [&](const TableForm& form) {
    compiled = Compile(SourceOf(p.dtype, form), p.device_index);
    return compiled.kernel;
  });
  return {job ? LaunchTablesOp : nullptr, 0, job, std::move(compiled.note)};
}

cudaError_t RunRelu(const Problem& p, const Args& args, void* stream) {
  return VisitDtype(p.dtype, [&](auto zero) { return RunRectify<OnDevice<decltype(zero)>>(p, args, stream); });
}

cudaError_t RunAnyAlignment(const Problem& p, poolgrad_op op, const Args& args, void* stream) {
  const bool relu = p.relu && IsForward(op);
  Problem plain = p;
  plain.relu = plain.bias = false;
  cudaError_t error = cudaErrorNotSupported;
  if (!RefuseAnyOp(plain, op)) {
    error = IsForward(op) ? RunAnyForward(plain, args, stream) : RunSums(ReadySums(plain), args, stream);
  }
  if (error == cudaErrorNotSupported) error = RunGenericOp(plain, op, args, stream);
  return error == cudaSuccess && relu ? RunRelu(p, args, stream) : error;
}

const char* RefuseGatherOp(const Problem& p, poolgrad_op op) {
  if (op != POOLGRAD_OP_BACKWARD) return "it does backward from routes";
  const char* reason = RefuseTiled(p);
  return reason ? reason : RefuseGather(p);
}

Status LaunchGatherOp(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return LaunchFamily(p, op, args, stream, [&](auto zero, bool) { return RunGather<decltype(zero)>(p, args, stream); });
}

CudaKernel MakeSums(const Problem& p, poolgrad_op) {
  auto ready = std::make_shared<SumsReady>();
  ready->grid = PrepareSums(p, true, &ready->params);
  if (ready->grid.blocks == 0) return {nullptr, 0, nullptr, "no tile of its inputs fits"};
  Compiled compiled = Compile(SourceOf(p.dtype, ready->params.form), p.device_index);
  if (!compiled.kernel) return {nullptr, 0, nullptr, std::move(compiled.note)};
  ready->kernel = compiled.kernel;
  return {LaunchSums, 0, std::move(ready), std::move(compiled.note)};
}

CudaKernel MakeGather(const Problem&, poolgrad_op) { return {LaunchGatherOp, 0, {}, {}}; }
CudaKernel MakeAny(const Problem& p, poolgrad_op op) {
  if (IsForward(op)) return {LaunchAnyForward, 0, {}, {}};
  auto ready = std::make_shared<SumsReady>(ReadySums(p));
  if (!ready->kernel) return {nullptr, 0, nullptr, "no tile of its inputs fits"};
  return {LaunchSums, 0, std::move(ready), {}};
}
CudaKernel MakePlanes(const Problem&, poolgrad_op) { return {LaunchPlanesOp, 0, {}, {}}; }
CudaKernel MakeVectors(const Problem&, poolgrad_op) { return {LaunchVectorsOp, 0, {}, {}}; }
CudaKernel MakeLargeWindow(const Problem& p, poolgrad_op) { return {LaunchLargeWindow, 0, MakeSeparable(p), {}}; }

// ---- backward from x: routes into scratch, then backward from them ----

const char* RefuseTwoPasses(const Problem&, poolgrad_op op) {
  return op == POOLGRAD_OP_BACKWARD_X ? nullptr : "it does backward from x";
}

Status LaunchTwoPasses(const Problem& p, poolgrad_op, const Args& args, void* scratch, void* stream);

// Routes, and where relu has to see it, y.
int64_t RoundedRoutes(const Problem& p) { return CeilDiv(p.routes.bytes(), 256) * 256; }

// The fastest kernel for an operation that a kernel of this list is made of.
CudaKernel MakeFirst(const Problem& p, poolgrad_op op);

struct Passes {
  CudaKernel find, backward;
};

CudaKernel MakeTwoPasses(const Problem& p, poolgrad_op) {
  const bool keeps = p.kind == POOLGRAD_MAX;
  Passes passes;
  if (keeps) passes.find = MakeFirst(p, POOLGRAD_OP_FORWARD_ROUTES);
  passes.backward = MakeFirst(p, POOLGRAD_OP_BACKWARD);
  const int64_t bytes = !keeps ? 0 : p.relu ? RoundedRoutes(p) + p.y_bytes() : p.routes.bytes();
  return {LaunchTwoPasses, bytes, std::make_shared<Passes>(std::move(passes)), {}};
}

// ---- relu ----

const char* RefuseRectified(const Problem& p, poolgrad_op op) {
  if (!IsForward(op)) return "it does forward";
  return p.relu ? nullptr : "the problem has no relu";
}

struct Rectified {
  Problem plain;
  CudaKernel kernel;
};

Status LaunchRectified(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  const auto& rectified = *static_cast<const Rectified*>(args.layout);
  if (Status status = rectified.kernel.Launch(rectified.plain, op, args, nullptr, stream); !status.ok()) return status;
  return OnDeviceOf(p, op, args, stream, [&] { return RunRelu(p, args, stream); });
}

CudaKernel MakeRectified(const Problem& p, poolgrad_op op) {
  Rectified rectified{p, {}};
  rectified.plain.relu = rectified.plain.bias = false;
  rectified.kernel = MakeFirst(rectified.plain, op);
  return {LaunchRectified, 0, std::make_shared<Rectified>(std::move(rectified)), {}};
}

// ---- the last resort ----

const char* RefuseGeneric(const Problem& p, poolgrad_op op) {
  if (op == POOLGRAD_OP_BIAS_GRADIENT) return p.bias ? nullptr : "the problem has no bias";
  const bool empty = p.x_elements() == 0 || p.y_elements() == 0;  // which it is the only one to take
  if (p.relu && IsForward(op) && !empty) return kRectifies;
  if (op == POOLGRAD_OP_BACKWARD_X) return "it needs routes";
  if (IsInteger(p.dtype) && op == POOLGRAD_OP_BACKWARD) return "integers have no gradient";
  if (p.kind == POOLGRAD_AVERAGE && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD)
    return "an average has no routes";
  return nullptr;
}

Status LaunchGenericOp(const Problem& p, poolgrad_op op, const Args& args, void*, void* stream) {
  return OnDeviceOf(p, op, args, stream, [&] { return RunGenericOp(p, op, args, stream); });
}

Status LaunchBias(const Problem& p, poolgrad_op op, const Args& args, void* scratch, void* stream) {
  return OnDeviceOf(p, op, args, stream, [&] {
    return VisitDtype(p.dtype, [&](auto zero) {
      if constexpr (std::is_integral_v<decltype(zero)>)
        return cudaErrorInvalidValue;
      else
        return RunBiasGradient<OnDevice<decltype(zero)>>(p, args, scratch, stream);
    });
  });
}

CudaKernel MakeGeneric(const Problem& p, poolgrad_op op) {
  if (op == POOLGRAD_OP_BIAS_GRADIENT) return {LaunchBias, BiasScratchBytes(p), {}, {}};
  return {LaunchGenericOp, 0, {}, {}};
}

// clang-format off
constexpr CudaAlgorithm kAlgorithms[] = {
    {"cuda_small_window", RefuseSmallWindow, MakeSmallWindow},
    {"cuda_planes", RefusePlanesOp, MakePlanes},
    {"cuda_vectors", RefuseVectorsOp, MakeVectors},
    {"cuda_compiled", RefuseCompiled, MakeCompiled},
    {"cuda_compiled_tables", RefuseKnownTables, MakeKnownTablesOp},
    {"cuda_tables", RefuseTablesOp, MakeTablesOp},
    {"cuda_compiled_sums", RefuseSums, MakeSums},
    {"cuda_large_window", RefuseLargeWindow, MakeLargeWindow},
    {"cuda_gather", RefuseGatherOp, MakeGather},
    {"cuda_any_window", RefuseAnyOp, MakeAny},
    {"cuda_rectified", RefuseRectified, MakeRectified},
    {"cuda_two_passes", RefuseTwoPasses, MakeTwoPasses},
    {"cuda_generic", RefuseGeneric, MakeGeneric},
};
// clang-format on

CudaKernel MakeFirst(const Problem& p, poolgrad_op op) {
  for (const CudaAlgorithm& a : kAlgorithms) {
    if (a.refuse(p, op)) continue;
    if (CudaKernel kernel = a.make(p, op); kernel.launch) return kernel;
  }
  return {LaunchGenericOp, 0, {}, {}};
}

Status LaunchTwoPasses(const Problem& p, poolgrad_op, const Args& args, void* scratch, void* stream) {
  const auto& passes = *static_cast<const Passes*>(args.layout);
  auto* routes = static_cast<uint8_t*>(scratch);
  if (passes.find.launch) {
    const Args find{args.x, nullptr, routes, p.relu ? routes + RoundedRoutes(p) : nullptr};
    if (Status status = passes.find.Launch(p, POOLGRAD_OP_FORWARD_ROUTES, find, nullptr, stream); !status.ok()) {
      return status;
    }
  }
  return passes.backward.Launch(p, POOLGRAD_OP_BACKWARD, {args.source, nullptr, routes, args.result}, nullptr, stream);
}

}  // namespace
}  // namespace cuda

std::span<const CudaAlgorithm> CudaAlgorithms() { return cuda::kAlgorithms; }

Status CheckCudaDevice(int device_index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda::ErrorStatus(error, "to count its devices");
  if (device_index < count) return {};
  return {POOLGRAD_DEVICE_ERROR, "device_index is " + std::to_string(device_index) + "; this machine has " +
                                     std::to_string(count) + " CUDA device" + (count == 1 ? "" : "s")};
}

const char* CudaRefusesTables(const Problem& problem) {
  auto g = std::make_unique<cuda::ListedGeo<int64_t>>();
  return cuda::FillLists(problem, g->axis, g->lists) ? nullptr
                                                     : "the lists of its windows (starts, and sizes where they differ) "
                                                       "are longer than a launch can carry, 1728 "
                                                       "entries of at most 65535 each";
}

}  // namespace poolgrad
