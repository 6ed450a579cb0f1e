// The runtime's functions: memory is the host's, launches run at once, or are kept where a graph is captured.
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "run.h"

struct CUstream_st {
  bool capturing = false;
  std::vector<std::function<void()>> captured;
};
struct CUgraph_st {
  std::vector<std::function<void()>> launches;
};
struct CUgraphExec_st : CUgraph_st {};

namespace {

constexpr size_t kAlignment = 256, kOwnShared = 48 << 10;

struct Kernel {
  soft_device::Run run = nullptr;
  std::vector<size_t> sizes;  // of its parameters
  size_t most_shared = kOwnShared;
};

std::mutex mutex;
std::map<const void*, Kernel> kernels;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// A thread's call: every launch has its own copies of the parameters.
soft_device::Call CallOf(const void* code, const Kernel& kernel, void** params) {
  std::vector<std::vector<std::max_align_t>> held;
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    held.emplace_back(kernel.sizes[i] / sizeof(std::max_align_t) + 1);
    std::memcpy(held.back().data(), params[i], kernel.sizes[i]);
  }
  return [code, run = kernel.run, held = std::move(held)] {
    const void* at[soft_device::kMostParams];
    for (size_t i = 0; i < held.size(); ++i) at[i] = held[i].data();
    run(code, at);
  };
}

}  // namespace

void soft_device::Know(const void* kernel, Run run, const size_t* sizes, size_t count) {
  const std::lock_guard lock(mutex);
  kernels[kernel].run = run;
  kernels[kernel].sizes.assign(sizes, sizes + count);
}

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return Said(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return Said(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrComputeCapabilityMajor   ? 9
           : attribute == cudaDevAttrComputeCapabilityMinor ? 0
                                                            : static_cast<int>(soft_device::kMostShared);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "an error"; }
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  return (text = "error " + std::to_string(error) + " of the device in software").c_str();
}

cudaError_t cudaMalloc(void** at, size_t bytes) {
  *at = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return Said(*at || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* at) { return std::free(at), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return *free_bytes = *total = size_t{1} << 30, cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) { return std::memset(at, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) { return cudaMemset(at, value, bytes); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = new CUstream_st, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return stream->capturing = true, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = new CUgraph_st{std::move(stream->captured)};
  stream->capturing = false, stream->captured.clear();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new CUgraphExec_st{*graph}, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& launch : exec->launches) launch();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const std::lock_guard lock(mutex);
  if (static_cast<size_t>(value) > soft_device::kMostShared) return Said(cudaErrorInvalidValue);
  kernels[kernel].most_shared = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return *attributes = {64, 1024, 90, 90, 0, 0}, cudaSuccess;
}

// Code is the name of a shared library, which nvrtc.cc has made.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, int*, void**, unsigned, int*, void**,
                                unsigned) {
  *library = static_cast<cudaLibrary_t>(dlopen(static_cast<const char*>(code), RTLD_NOW | RTLD_LOCAL));
  return Said(*library ? cudaSuccess : cudaErrorInvalidKernelImage);
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  *kernel = static_cast<cudaKernel_t>(dlsym(library, name));
  return Said(*kernel ? cudaSuccess : cudaErrorInvalidKernelImage);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** params) {
  soft_device::Call call;
  {
    const std::lock_guard lock(mutex);
    const Kernel& known = kernels[kernel];
    if (!known.run) soft_device::Die("a kernel is launched that nobody has made known (AddressOf)");
    const unsigned threads = config->blockDim.x;
    if (config->gridDim.x == 0 || threads == 0 || threads > 1024) return Said(cudaErrorInvalidConfiguration);
    if (config->dynamicSmemBytes > known.most_shared) return Said(cudaErrorInvalidValue);
    call = CallOf(kernel, known, params);
  }
  const auto launch = [call, blocks = config->gridDim.x, threads = static_cast<int>(config->blockDim.x),
                       shared = config->dynamicSmemBytes] { soft_device::RunGrid(call, blocks, threads, shared); };
  if (config->stream && config->stream->capturing) {
    config->stream->captured.push_back(launch);
  } else {
    launch();
  }
  return cudaSuccess;
}
