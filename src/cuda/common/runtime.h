// The CUDA runtime as the host uses it: the current device, launches, and the error sentences. Any C++ compiler takes
// it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "cuda/cuda.h"

namespace poolgrad::cuda {

// Makes `device` current for as long as it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    status_ = cudaGetDevice(&before_);
    if (status_ == cudaSuccess && before_ != device) {
      status_ = cudaSetDevice(device);
      changed_ = status_ == cudaSuccess;
    }
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t status_;
};

// The sentence for a runtime error; takes the error out of the runtime's state.
Status ErrorStatus(cudaError_t error, const std::string& while_doing);

// Lets a kernel have more shared memory than every device gives. The bound becomes all that the device has, whatever
// one launch asks for: host threads launch the same kernel with different sizes, and one that lowered it would make the
// launch of another fail. Not supported: the device has less.
inline cudaError_t AllowShared(const void* kernel, size_t bytes) {
  constexpr int kOwn = 64;  // what kernels hold beside what launches give them
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  if (bytes + kOwn > static_cast<size_t>(most)) return cudaErrorNotSupported;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - kOwn);
}

// What launches take for a kernel that was compiled ahead.
template <class... Params>
const void* AddressOf(void (*kernel)(Params...)) {
#ifdef POOLGRAD_SOFT_DEVICE
  soft_device::Know(kernel);
#endif
  return reinterpret_cast<const void*>(kernel);
}

inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

// Launches on the current device a kernel that was compiled ahead, or while the program runs. Grids are
// one-dimensional; `blocks` of 0 launches nothing. early: the kernel itself waits for what is before it on the stream
// (WaitForEarlier), so that its blocks may be there when that ends.
inline cudaError_t LaunchPointers(const void* kernel, int64_t blocks, int threads, size_t shared_bytes, void* stream,
                                  void** params, bool early = false) {
  if (blocks <= 0) return cudaSuccess;
  if (blocks > kMaxBlocks) return cudaErrorInvalidConfiguration;
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = AllowShared(kernel, shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks)), config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes, config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute, config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, params);
}

inline bool Aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace poolgrad::cuda
