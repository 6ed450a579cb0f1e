// Every CUDA algorithm against the reference, on random problems, on the GPU of this machine.
//
// A plain program (no test framework), so that it can be built on any machine with nvcc. `cuda_check [problems] [seed]
// [threads]` prints one line per failure and one at the end; exits 0 when all is well, 1 when not, 77 when there is no
// CUDA device. `cuda_check FILE` takes the problems of a case file instead of drawn ones.
//
// Each random problem runs every operation by every algorithm that takes it, twice, into poisoned buffers with guard
// bytes behind them, and compares bits with the reference. Inputs hold ties, both zeros, infinities and NaNs; routes
// for backward are the real ones or random bytes. Several host threads work at once, each on a stream of its own.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cuda/common/tuning.h"
#include "cuda/cuda.h"
#include "draws.h"
#include "plan/indices.h"
#include "plan/plan.h"
#include "reference/reference.h"

namespace poolgrad {
namespace {

constexpr size_t kGuard = 64;
constexpr uint8_t kPoison = 0xA5;

// What a GPU computes has one NaN. The processor that stands in for one has several: which of them an addition gives
// depends on the order of its operands, and kernels have several ways, by how arrays are aligned.
#ifdef POOLGRAD_SOFT_DEVICE
constexpr bool kManyNaNs = true;
#else
constexpr bool kManyNaNs = false;
#endif

std::atomic<int> failures{0};

void Fail(const std::string& text, const std::string& problem) {
  if (failures.fetch_add(1) < 40) std::printf("FAILED %s\n       %s\n", text.c_str(), problem.c_str());
}

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(1);
}

// Device memory with a guard behind it, reused from problem to problem. `shift` moves the start off its alignment.
class Buffer {
 public:
  ~Buffer() { cudaFree(data_); }
  uint8_t* Prepare(size_t bytes, size_t shift, const void* from, cudaStream_t stream) {
    const size_t need = bytes + shift + kGuard;
    if (need > capacity_) {
      cudaFree(data_);
      capacity_ = need * 2 + 4096;
      Must(cudaMalloc(&data_, capacity_), "cudaMalloc");
    }
    bytes_ = bytes, shift_ = shift;
    Must(cudaMemsetAsync(data_, kPoison, need, stream), "cudaMemsetAsync");
    if (from && bytes)
      Must(cudaMemcpyAsync(data_ + shift, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    return data_ + shift;
  }
  // The contents; fails the problem when the guard was written.
  std::vector<uint8_t> Read(cudaStream_t stream, const std::string& what, const std::string& problem) {
    std::vector<uint8_t> all(bytes_ + kGuard);
    Must(cudaMemcpyAsync(all.data(), data_ + shift_, all.size(), cudaMemcpyDeviceToHost, stream),
         (what + ", " + problem).c_str());
    Must(cudaStreamSynchronize(stream), (what + ", " + problem).c_str());
    for (size_t i = bytes_; i < all.size(); ++i) {
      if (all[i] != kPoison) {
        Fail(what + " wrote behind its result", problem);
        break;
      }
    }
    all.resize(bytes_);
    return all;
  }

 private:
  uint8_t* data_ = nullptr;
  size_t capacity_ = 0, bytes_ = 0, shift_ = 0;
};

// Equal bits; where a value was computed (not chosen), any NaN equals any NaN.
template <class T>
bool SameTyped(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, bool computed) {
  if (a == b) return true;
  if constexpr (!std::is_integral_v<T>) {
    const T* x = reinterpret_cast<const T*>(a.data());
    const T* y = reinterpret_cast<const T*>(b.data());
    for (size_t i = 0; computed && i < a.size() / sizeof(T); ++i) {
      if (std::memcmp(x + i, y + i, sizeof(T)) == 0) continue;
      if (Widen(x[i]) == Widen(x[i]) || Widen(y[i]) == Widen(y[i])) return false;
    }
    return computed;
  }
  return false;
}

bool Same(const Problem& p, const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, bool computed) {
  return VisitDtype(p.dtype, [&](auto zero) { return SameTyped<decltype(zero)>(a, b, computed); });
}

void RunReference(const Problem& p, poolgrad_op op, const Args& args) {
  const Kernel kernel = ReferenceAlgorithms()[0].make(p, op, {}).kernel;
  std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes + 64));
  kernel.Run(p, args, 0, kernel.units, scratch.data());
}

struct Worker {
  cudaStream_t stream;
  Buffer source, x, bias, routes, result, scratch, indices;
  int64_t runs = 0;

  Worker() { Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Worker() { cudaStreamDestroy(stream); }

  void Check(Random& r, const poolgrad_problem& raw) {
    const Result<Problem> resolved = Resolve(raw);
    if (!resolved.ok()) return;
    const Problem& p = *resolved;
    if (CudaRefusesTables(p)) return;
    if (p.x_elements() > 400000 || p.y_elements() > 400000 || p.taps() * p.y_elements() > 2000000) return;
    const std::string text = FormatProblem(raw);
    const int style = static_cast<int>(Pick(r, 0, 2));
    const std::vector<uint8_t> x_data = Filled(r, p, p.x_elements(), style);
    const std::vector<uint8_t> y_data = Filled(r, p, p.y_elements(), Chance(r, 20) ? 2 : 0);
    const std::vector<uint8_t> bias_data = Filled(r, p, p.bias ? p.channels : 0, style);
    std::vector<uint8_t> true_routes(static_cast<size_t>(p.kind == POOLGRAD_MAX ? p.routes.bytes() : 0));
    for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
      const auto op = static_cast<poolgrad_op>(i);
      const bool keeps = p.kind == POOLGRAD_MAX;
      if (!keeps && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD) continue;
      if (p.bias ? op == POOLGRAD_OP_BACKWARD_X : op == POOLGRAD_OP_BIAS_GRADIENT) continue;
      // The reference looks at every window again for every input under it.
      if (op == POOLGRAD_OP_BACKWARD_X && p.taps() * p.taps() * p.y_elements() > 20000000) continue;
      if (IsInteger(p.dtype) && (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X)) continue;
      const bool forward = op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES;
      const std::vector<uint8_t>& in = forward || op == POOLGRAD_OP_GATHER ? x_data : y_data;
      const bool writes_routes = op == POOLGRAD_OP_FORWARD_ROUTES;
      const bool reads_routes = keeps && (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_GATHER ||
                                          op == POOLGRAD_OP_UNPOOL || op == POOLGRAD_OP_BIAS_GRADIENT);
      std::vector<uint8_t> routes_data = true_routes;
      if (reads_routes && Chance(r, 25)) {
        for (uint8_t& byte : routes_data) byte = static_cast<uint8_t>(r());
      }
      std::vector<uint8_t> expected(static_cast<size_t>(p.result_elements(op) * SizeOf(p.dtype)));
      Args right{in.data(), x_data.data(),
                 writes_routes  ? true_routes.data()
                 : reads_routes ? routes_data.data()
                                : nullptr,
                 expected.data()};
      right.bias = bias_data.data();
      RunReference(p, op, right);
      const bool computed = op == POOLGRAD_OP_BIAS_GRADIENT || (forward && p.bias) || op == POOLGRAD_OP_BACKWARD ||
                            op == POOLGRAD_OP_BACKWARD_X || !keeps || (op == POOLGRAD_OP_GATHER && p.routes.masks);
      for (const CudaAlgorithm& a : CudaAlgorithms()) {
        if (a.refuse(p, op)) continue;
        const std::string what = std::string(a.name) + " " + Name(op);
        const CudaKernel kernel = a.make(p, op);
        if (!kernel.launch) {
          Fail(what + ": " + kernel.note, text);
          continue;
        }
        // Pointers of any alignment an element allows.
        const auto shift = [&](int64_t unit) {
          return Chance(r, 15) ? static_cast<size_t>(unit * Pick(r, 1, 3)) : size_t{0};
        };
        const size_t element = static_cast<size_t>(SizeOf(p.dtype));
        std::vector<uint8_t> first;
        for (int repeat = 0; repeat < 2; ++repeat) {
          Args args;
          args.source = source.Prepare(in.size(), shift(element), in.data(), stream);
          if (op == POOLGRAD_OP_BACKWARD_X) args.x = x.Prepare(x_data.size(), shift(element), x_data.data(), stream);
          if (writes_routes) args.routes = routes.Prepare(true_routes.size(), shift(1), nullptr, stream);
          if (reads_routes) args.routes = routes.Prepare(routes_data.size(), shift(1), routes_data.data(), stream);
          if (forward && p.bias) args.bias = bias.Prepare(bias_data.size(), shift(element), bias_data.data(), stream);
          args.result = result.Prepare(expected.size(), shift(element), nullptr, stream);
          uint8_t* space = scratch.Prepare(static_cast<size_t>(kernel.scratch_bytes), 0, nullptr, stream);
          const Status status = kernel.Launch(p, op, args, space, stream);
          ++runs;
          if (!status.ok()) {
            Fail(what + ": " + status.sentence(), text);
            break;
          }
          std::vector<uint8_t> got = result.Read(stream, what, text);
          if (!Same(p, got, expected, computed))
            Fail(what + " differs from the reference", text + Difference(p, got, expected));
          if (repeat == 1 && !Same(p, got, first, computed && kManyNaNs))
            Fail(what + " differs from its own first run", text + Difference(p, got, first));
          first = std::move(got);
          if (writes_routes && routes.Read(stream, what, text) != true_routes)
            Fail(what + " routes differ from the reference", text);
        }
      }
    }
    if (p.kind == POOLGRAD_MAX && !p.routes.masks) {
      std::vector<uint8_t> codes = true_routes;
      if (Chance(r, 25)) {
        for (uint8_t& byte : codes) byte = static_cast<uint8_t>(r());
      }
      CheckIndices(r, p, codes, text);
    }
  }

  void CheckIndices(Random& r, const Problem& p, const std::vector<uint8_t>& codes, const std::string& text) {
    const auto numbering = static_cast<poolgrad_numbering>(Pick(r, 0, 4));
    std::vector<int64_t> expected(static_cast<size_t>(p.y_elements()));
    RoutesToIndices(p, codes.data(), numbering, expected.data(), {0, p.y_elements()});
    const uint8_t* device_codes = routes.Prepare(codes.size(), 0, codes.data(), stream);
    auto* device_indices = reinterpret_cast<int64_t*>(indices.Prepare(expected.size() * 8, 0, nullptr, stream));
    const Status status = CudaRoutesToIndices(p, device_codes, numbering, device_indices, stream);
    if (!status.ok()) Fail("routes_to_indices: " + status.sentence(), text);
    const std::vector<uint8_t> got = indices.Read(stream, "routes_to_indices", text);
    if (!expected.empty() && std::memcmp(got.data(), expected.data(), got.size()) != 0) {
      Fail("routes_to_indices differs from the reference", text);
    }
  }

  static std::string Difference(const Problem& p, const std::vector<uint8_t>& got,
                                const std::vector<uint8_t>& expected) {
    const size_t size = static_cast<size_t>(SizeOf(p.dtype));
    size_t first = 0, count = 0;
    for (size_t i = got.size() / size; i-- > 0;) {
      if (std::memcmp(got.data() + i * size, expected.data() + i * size, size) != 0) first = i, ++count;
    }
    const auto value = [&](const std::vector<uint8_t>& from) {
      return VisitDtype(p.dtype, [&](auto zero) {
        using T = decltype(zero);
        return static_cast<double>(Widen(reinterpret_cast<const T*>(from.data())[first]));
      });
    };
    char text[160];
    std::snprintf(text, sizeof text, "  [%zu of %zu differ, the first at %zu: %g, expected %g]", count,
                  got.size() / size, first, value(got), value(expected));
    return text;
  }
};

// Forward with routes and backward of one problem, captured in a graph and replayed; then the same on two streams at
// once.
void CheckGraphAndStreams() {
  poolgrad_problem raw;
  if (poolgrad_problem_parse("max f32 nchw 4x16x56x56 k3 s2 p1", &raw) != POOLGRAD_OK) return Fail("parse", "graph");
  const Problem p = *Resolve(raw);
  Random r(7);
  const std::vector<uint8_t> x = Filled(r, p, p.x_elements(), 1), dy = Filled(r, p, p.y_elements(), 0);
  std::vector<uint8_t> y(static_cast<size_t>(p.y_bytes())), routes(static_cast<size_t>(p.routes.bytes())), dx(x.size());
  RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, {x.data(), nullptr, routes.data(), y.data()});
  RunReference(p, POOLGRAD_OP_BACKWARD, {dy.data(), nullptr, routes.data(), dx.data()});
  Worker workers[2];
  uint8_t *dev_x[2] = {}, *dev_dy[2] = {}, *dev_y[2] = {}, *dev_routes[2] = {}, *dev_dx[2] = {};
  const CudaAlgorithm& fast = CudaAlgorithms()[0];
  const auto enqueue = [&](int w) {
    Worker& k = workers[w];
    Status a =
        fast.make(p, POOLGRAD_OP_FORWARD_ROUTES)
            .Launch(p, POOLGRAD_OP_FORWARD_ROUTES, {dev_x[w], nullptr, dev_routes[w], dev_y[w]}, nullptr, k.stream);
    Status b = fast.make(p, POOLGRAD_OP_BACKWARD)
                   .Launch(p, POOLGRAD_OP_BACKWARD, {dev_dy[w], nullptr, dev_routes[w], dev_dx[w]}, nullptr, k.stream);
    if (!a.ok() || !b.ok()) Fail("graph or stream: " + a.sentence() + b.sentence(), FormatProblem(raw));
  };
  for (int w = 0; w < 2; ++w) {
    Worker& k = workers[w];
    dev_x[w] = k.x.Prepare(x.size(), 0, x.data(), k.stream);
    dev_dy[w] = k.source.Prepare(dy.size(), 0, dy.data(), k.stream);
    dev_y[w] = k.indices.Prepare(y.size(), 0, nullptr, k.stream);
    dev_routes[w] = k.routes.Prepare(routes.size(), 0, nullptr, k.stream);
    dev_dx[w] = k.result.Prepare(dx.size(), 0, nullptr, k.stream);
    Must(cudaStreamSynchronize(k.stream), "prepare");
  }
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Must(cudaStreamBeginCapture(workers[0].stream, cudaStreamCaptureModeGlobal), "begin capture");
  enqueue(0);
  Must(cudaStreamEndCapture(workers[0].stream, &graph), "end capture");
  Must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  for (int i = 0; i < 3; ++i) Must(cudaGraphLaunch(exec, workers[0].stream), "graph launch");
  if (workers[0].result.Read(workers[0].stream, "graph", "graph") != dx)
    Fail("a replayed graph gives another dx", FormatProblem(raw));
  if (workers[0].routes.Read(workers[0].stream, "graph", "graph") != routes)
    Fail("a replayed graph gives other routes", FormatProblem(raw));
  Must(cudaGraphExecDestroy(exec), "destroy");
  Must(cudaGraphDestroy(graph), "destroy");
  for (int i = 0; i < 20; ++i) {
    enqueue(0);
    enqueue(1);
  }
  for (Worker& k : workers) {
    if (k.result.Read(k.stream, "streams", "streams") != dx)
      Fail("two streams at once give another dx", FormatProblem(raw));
    if (k.indices.Read(k.stream, "streams", "streams") != y)
      Fail("two streams at once give another y", FormatProblem(raw));
  }
}

// More than 2^31 elements: the last sample of a large batch equals a batch of that sample alone.
void CheckLarge() {
  size_t free_bytes = 0, total = 0;
  Must(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  for (const char* text : {"max bf16 nchw 2100x1x1024x1024 k3 s2 p1", "max bf16 nhwc 2100x256x256x16 k3 s2 p1",
                           "max bf16 nchw 2100x1x1024x1024 k3x2 s2x3 p1x0"}) {
    poolgrad_problem raw, one;
    if (poolgrad_problem_parse(text, &raw) != POOLGRAD_OK) {
      Fail(std::string("parse: ") + poolgrad_last_error(), text);
      continue;
    }
    one = raw;
    one.batch = 1;
    const Problem p = *Resolve(raw), last = *Resolve(one);
    if (static_cast<size_t>(2 * p.x_bytes()) + (size_t{2} << 30) > free_bytes) {
      std::printf("skipped: %s needs more device memory than is free\n", text);
      continue;
    }
    uint8_t *x, *y, *routes, *dx;
    Must(cudaMalloc(&x, static_cast<size_t>(p.x_bytes())), "cudaMalloc");
    Must(cudaMalloc(&y, static_cast<size_t>(p.y_bytes())), "cudaMalloc");
    Must(cudaMalloc(&routes, static_cast<size_t>(p.routes.bytes())), "cudaMalloc");
    Must(cudaMalloc(&dx, static_cast<size_t>(p.x_bytes())), "cudaMalloc");
    Random r(11);
    const std::vector<uint8_t> sample = Filled(r, last, last.x_elements(), 1);
    std::vector<uint8_t> want_y(static_cast<size_t>(last.y_bytes())), want_dx(sample.size()),
        codes(static_cast<size_t>(last.routes.bytes()));
    RunReference(last, POOLGRAD_OP_FORWARD_ROUTES, {sample.data(), nullptr, codes.data(), want_y.data()});
    RunReference(last, POOLGRAD_OP_BACKWARD, {want_y.data(), nullptr, codes.data(), want_dx.data()});
    Must(cudaMemset(x, 0, static_cast<size_t>(p.x_bytes())), "cudaMemset");
    Must(cudaMemcpy(x + p.x_bytes() - last.x_bytes(), sample.data(), sample.size(), cudaMemcpyHostToDevice), "copy");
    const auto run = [&](poolgrad_op op, const Args& args) {
      for (const CudaAlgorithm& a : CudaAlgorithms()) {
        if (a.refuse(p, op)) continue;
        const Status status = a.make(p, op).Launch(p, op, args, nullptr, nullptr);
        if (!status.ok()) Fail(status.sentence(), text);
        return;
      }
    };
    run(POOLGRAD_OP_FORWARD_ROUTES, {x, nullptr, routes, y});
    run(POOLGRAD_OP_BACKWARD, {y, nullptr, routes, dx});
    std::vector<uint8_t> got_y(want_y.size()), got_dx(want_dx.size());
    Must(cudaMemcpy(got_y.data(), y + p.y_bytes() - last.y_bytes(), got_y.size(), cudaMemcpyDeviceToHost), "copy back");
    Must(cudaMemcpy(got_dx.data(), dx + p.x_bytes() - last.x_bytes(), got_dx.size(), cudaMemcpyDeviceToHost),
         "copy back");
    if (got_y != want_y) Fail("y past 2^31 elements differs", text);
    if (got_dx != want_dx) Fail("dx past 2^31 elements differs", text);
    for (uint8_t* buffer : {x, y, routes, dx}) Must(cudaFree(buffer), "cudaFree");
  }
}

// Errors come back as sentences and leave nothing in the runtime.
void CheckErrors() {
  poolgrad_problem raw;
  poolgrad_plan* plan = nullptr;
  if (poolgrad_problem_parse("max f32 nchw 1x1x8x8 k2 s2 cuda:99", &raw) != POOLGRAD_OK)
    return Fail("parse", "cuda:99");
  if (poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_DEVICE_ERROR)
    Fail("a plan for device 99 was made", "cuda:99");
  const Problem p = *Resolve(raw);
  const Status status =
      CudaAlgorithms()[0].make(p, POOLGRAD_OP_FORWARD).Launch(p, POOLGRAD_OP_FORWARD, {}, nullptr, nullptr);
  if (status.ok()) Fail("a launch on device 99 succeeded", "cuda:99");
  if (cudaPeekAtLastError() != cudaSuccess) Fail("an error was left in the runtime", "cuda:99");
}

// The C ABI end to end on device memory.
void CheckPlan(const char* text) {
  poolgrad_problem raw;
  poolgrad_plan* plan = nullptr;
  if (poolgrad_problem_parse(text, &raw) != POOLGRAD_OK || poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_OK) {
    return Fail(std::string("plan: ") + poolgrad_last_error(), text);
  }
  const Problem p = *Resolve(raw);
  Random r(3);
  const std::vector<uint8_t> x = Filled(r, p, p.x_elements(), 2), dy = Filled(r, p, p.y_elements(), 0);
  std::vector<uint8_t> y(static_cast<size_t>(p.y_bytes())), routes(static_cast<size_t>(p.routes.bytes())), dx(x.size());
  RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, {x.data(), nullptr, routes.data(), y.data()});
  RunReference(p, POOLGRAD_OP_BACKWARD, {dy.data(), nullptr, routes.data(), dx.data()});
  Worker k;
  uint8_t* dev_x = k.x.Prepare(x.size(), 0, x.data(), k.stream);
  uint8_t* dev_dy = k.source.Prepare(dy.size(), 0, dy.data(), k.stream);
  uint8_t* dev_y = k.indices.Prepare(y.size(), 0, nullptr, k.stream);
  uint8_t* dev_dx = k.result.Prepare(dx.size(), 0, nullptr, k.stream);
  uint64_t scratch_bytes = 0;
  poolgrad_plan_scratch_bytes(plan, POOLGRAD_OP_BACKWARD_X, 0, &scratch_bytes);
  poolgrad_exec exec{};
  exec.struct_size = sizeof exec;
  exec.stream = k.stream;
  exec.scratch = k.scratch.Prepare(scratch_bytes, 0, nullptr, k.stream);
  exec.scratch_bytes = scratch_bytes;
  if (poolgrad_forward(plan, dev_x, dev_y, nullptr, &exec) != POOLGRAD_OK ||
      poolgrad_backward_x(plan, dev_dy, dev_x, dev_dx, &exec) != POOLGRAD_OK) {
    Fail(std::string("plan run: ") + poolgrad_last_error(), text);
  }
  if (k.indices.Read(k.stream, "plan", text) != y) Fail("the plan's y differs", text);
  if (!Same(p, k.result.Read(k.stream, "plan", text), dx, true)) Fail("the plan's dx differs", text);
  poolgrad_plan_destroy(plan);
}

// Host threads that launch one kernel with different sizes of shared memory do not take it from each other.
void CheckSharedMemory() {
  const auto any = [](const CudaAlgorithm& a) { return std::string(a.name) == "cuda_any_window"; };
  const std::span<const CudaAlgorithm> all = CudaAlgorithms();
  const auto algorithm = std::find_if(all.begin(), all.end(), any);
  if (algorithm == all.end()) return Fail("there is no cuda_any_window", "shared memory");
  std::vector<std::thread> pool;
  for (const char* text :
       {"max f64 nwc 64x261x6 k10 s3", "max f64 nwc 64x150x6 k10 s3", "max f64 nwc 64x500x6 k10 s3"}) {
    pool.emplace_back([text, algorithm] {
      poolgrad_problem raw;
      if (poolgrad_problem_parse((std::string(text) + " cuda").c_str(), &raw) != POOLGRAD_OK)
        return Fail("parse", text);
      const Problem p = *Resolve(raw);
      const CudaKernel kernel = algorithm->make(p, POOLGRAD_OP_BACKWARD);
      Worker k;
      const uint8_t* dy = k.source.Prepare(p.y_bytes(), 0, nullptr, k.stream);
      uint8_t* routes = k.routes.Prepare(p.routes.bytes(), 0, nullptr, k.stream);
      uint8_t* dx = k.result.Prepare(p.x_bytes(), 0, nullptr, k.stream);
      for (int i = 0; i < 2000; ++i) {
        const Status status = kernel.Launch(p, POOLGRAD_OP_BACKWARD, {dy, nullptr, routes, dx}, nullptr, k.stream);
        if (!status.ok()) return Fail(status.sentence(), text);
      }
      Must(cudaStreamSynchronize(k.stream), "launch many times");
    });
  }
  for (std::thread& t : pool) t.join();
}

// Adaptive windows are a formula of any length; lists are not.
void CheckLongLists() {
  std::vector<int64_t> starts(5000);
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int64_t>(3 * i + i % 2);
  poolgrad_problem raw;
  poolgrad_problem_init(&raw);
  raw.rank = 1, raw.in[0] = 15010, raw.outputs[0] = 5000, raw.device = POOLGRAD_CUDA;
  poolgrad_plan* plan = nullptr;
  if (poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_OK) Fail(poolgrad_last_error(), "5000 adaptive windows");
  poolgrad_plan_destroy(plan);
  raw.starts[0] = starts.data(), raw.kernel[0] = 4;
  if (poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_UNSUPPORTED) Fail("a list of 5000 was taken", "lists");
}

// Kernels that are compiled for their window count the bits of a line of codes in 31 bits. Signals of more than 2^28
// bytes of codes are for others; forward without routes they may be as long as they want.
void CheckLongLines() {
  for (const char* text : {"max bf16 ncw 1x1x300000000 k17 s1 cuda", "max bf16 nwc 1x20x300000000 k17 s1 cuda",
                           "max bf16 nhwc 1x2x600000000x1 k1x5 s1 cuda", "max bf16 ncw 1x1x600000000 k9 s1 cuda"}) {
    poolgrad_problem raw;
    if (poolgrad_problem_parse(text, &raw) != POOLGRAD_OK) return Fail(poolgrad_last_error(), text);
    const Problem p = *Resolve(raw);
    for (const CudaAlgorithm& a : CudaAlgorithms()) {
      if (std::string(a.name) != "cuda_small_window" && std::string(a.name) != "cuda_compiled") continue;
      for (const poolgrad_op op : {POOLGRAD_OP_FORWARD_ROUTES, POOLGRAD_OP_BACKWARD}) {
        if (!a.refuse(p, op)) Fail(std::string(a.name) + " takes a line of so many bits, " + Name(op), text);
      }
    }
  }
}

// A bias and its gradient through the C ABI, over more outputs than a block of the sum has.
void CheckBias() {
  for (const char* text :
       {"max f32 nchw 3x5x90x90 k3 s1 p1 relu bias cuda", "max bf16 nhwc 5x70x70x67 k2 s1 relu bias cuda",
        "max f16 nchw 40x3x60x60 k3 s2 p1 relu bias cuda", "max f64 nwc 2x20000x2 k2 relu bias cuda",
        "max f32 nchw 0x3x8x8 k2 relu bias cuda"}) {
    poolgrad_problem raw;
    poolgrad_plan* plan = nullptr;
    if (poolgrad_problem_parse(text, &raw) != POOLGRAD_OK ||
        poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_OK) {
      return Fail(std::string("plan: ") + poolgrad_last_error(), text);
    }
    const Problem p = *Resolve(raw);
    Random r(9);
    const std::vector<uint8_t> x = Filled(r, p, p.x_elements(), 0), dy = Filled(r, p, p.y_elements(), 0),
                               bias = Filled(r, p, p.channels, 0);
    std::vector<uint8_t> y(dy.size()), routes(static_cast<size_t>(p.routes.bytes())), dbias(bias.size());
    Args forward{x.data(), nullptr, routes.data(), y.data()};
    forward.bias = bias.data();
    RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, forward);
    RunReference(p, POOLGRAD_OP_BIAS_GRADIENT, {dy.data(), nullptr, routes.data(), dbias.data()});
    Worker k;
    const uint8_t* dev_x = k.x.Prepare(x.size(), 0, x.data(), k.stream);
    const uint8_t* dev_dy = k.source.Prepare(dy.size(), 0, dy.data(), k.stream);
    const uint8_t* dev_bias = k.bias.Prepare(bias.size(), 0, bias.data(), k.stream);
    uint8_t* dev_y = k.indices.Prepare(y.size(), 0, nullptr, k.stream);
    uint8_t* dev_routes = k.routes.Prepare(routes.size(), 0, nullptr, k.stream);
    uint8_t* dev_dbias = k.result.Prepare(dbias.size(), 0, nullptr, k.stream);
    poolgrad_exec exec{};
    exec.struct_size = sizeof exec;
    exec.stream = k.stream;
    poolgrad_plan_scratch_bytes(plan, POOLGRAD_OP_BIAS_GRADIENT, 0, &exec.scratch_bytes);
    exec.scratch = k.scratch.Prepare(exec.scratch_bytes, 0, nullptr, k.stream);
    if (poolgrad_forward_bias(plan, dev_x, dev_bias, dev_y, dev_routes, &exec) != POOLGRAD_OK ||
        poolgrad_bias_gradient(plan, dev_dy, dev_routes, dev_dbias, &exec) != POOLGRAD_OK) {
      Fail(std::string("bias: ") + poolgrad_last_error(), text);
    }
    if (k.indices.Read(k.stream, "bias", text) != y) Fail("y with a bias differs", text);
    if (k.routes.Read(k.stream, "bias", text) != routes) Fail("routes with a bias differ", text);
    if (k.result.Read(k.stream, "bias", text) != dbias) Fail("dbias differs", text);
    poolgrad_plan_destroy(plan);
  }
}

// The `name: problem` lines of a case file: each as it comes and cut into small pieces, on some seeds of data.
int CheckCases(const char* path) {
  std::ifstream file(path);
  Worker worker;
  int problems = 0;
  const int64_t usual = cuda::enough_threads, staged = cuda::staged_bytes, tile = cuda::separable_tile;
  cuda::bytes_worth_compiling = int64_t{1} << 60;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    poolgrad_problem raw;
    if (poolgrad_problem_parse((line.substr(colon + 2) + " cuda").c_str(), &raw) != POOLGRAD_OK) {
      Fail(std::string("parse: ") + poolgrad_last_error(), line);
      continue;
    }
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const bool small = seed % 2 != 0;
      cuda::enough_threads = small ? 1 : usual, cuda::staged_bytes = small ? 2048 : staged;
      cuda::separable_tile = small ? 16 : tile;
      Random r(seed);
      worker.Check(r, raw);
    }
    ++problems;
  }
  if (problems == 0) Fail("there are no problems", path);
  std::printf("%d problems, %lld runs, %d failures\n", problems, static_cast<long long>(worker.runs), failures.load());
  return failures ? 1 : 0;
}

int Main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  if (argc == 2 && std::atoi(argv[1]) == 0) return CheckCases(argv[1]);
  const int problems = argc > 1 ? std::atoi(argv[1]) : 1000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 4;
  std::atomic<int> next{0};
  std::atomic<int64_t> runs{0};
  // Problems as they come, where strips are short, or with strips as long as they get and planes cut into bands and
  // tiles; most by kernels compiled ahead, some by kernels compiled for them. None of it may change a bit.
  const int64_t usual = cuda::enough_threads, staged = cuda::staged_bytes, tile = cuda::separable_tile;
  const int64_t cleared = cuda::table_cleared, large = cuda::table_large_backward, last = cuda::table_large_last;
  const int64_t columns = cuda::table_unrolled_columns, apart = cuda::apart_fewest;
  struct Phase {
    bool long_strips, compiled, marching, tables;  // tables: only windows by table and averages
    int until;                                     // of 100 problems
  };
  int begin = 0;
  for (const Phase phase : {Phase{false, false, false, false, 36},
                            {true, false, false, false, 72},
                            {false, true, false, false, 76},
                            {true, true, false, false, 80},
                            {false, true, true, false, 84},
                            {true, true, true, false, 88},
                            {false, true, false, true, 94},
                            {true, true, false, true, 100}}) {
    cuda::enough_threads = phase.long_strips ? 1 : usual;
    cuda::staged_bytes = phase.long_strips ? 2048 : staged;
    cuda::march_always = phase.marching;
    cuda::table_unrolled_columns = phase.tables && phase.long_strips ? 0 : columns;
    cuda::separable_tile = phase.long_strips ? 16 : tile;
    cuda::table_cleared = phase.long_strips ? 2 : cleared;
    cuda::apart_fewest = phase.long_strips ? 0 : apart;
    cuda::table_large_backward = phase.long_strips ? 4 : large;
    cuda::table_large_last = phase.long_strips ? 4 : last;
    cuda::bytes_worth_compiling = phase.compiled ? 0 : int64_t{1} << 60;
    const int end = problems * phase.until / 100;
    next = begin, begin = end;
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&] {
        Worker worker;
        for (int i; (i = next.fetch_add(1)) < end;) {
          Random r(seed * 1000003 + static_cast<uint64_t>(i));
          Lists lists;
          poolgrad_problem drawn = RandomProblem(r, lists);
          while (phase.tables && !ByTableOrAverage(drawn)) drawn = RandomProblem(r, lists);
          worker.Check(r, drawn);
        }
        runs += worker.runs;
      });
    }
    for (std::thread& t : pool) t.join();
  }
  cuda::enough_threads = usual;
  cuda::staged_bytes = staged;
  cuda::march_always = false;
  cuda::separable_tile = tile;
  cuda::table_cleared = cleared, cuda::table_large_backward = large, cuda::table_large_last = last;
  cuda::table_unrolled_columns = columns, cuda::apart_fewest = apart;
  CheckGraphAndStreams();
  CheckErrors();
  CheckPlan("max f32 nhwc 2x20x20x8 k3 s2 p1 cuda");
  CheckPlan("max f32 nchw 2x8x20x30 adaptive=7x13 cuda");
  CheckLongLists();
  CheckLongLines();
  CheckBias();
  if (problems >= 1000) {  // not under a sanitizer
    CheckSharedMemory();
    CheckLarge();
  }
  std::printf("%d problems, %lld runs, %d failures\n", problems, static_cast<long long>(runs.load()), failures.load());
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace poolgrad

int main(int argc, char** argv) { return poolgrad::Main(argc, argv); }
