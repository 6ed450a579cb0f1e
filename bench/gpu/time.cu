// Times the CUDA algorithms alone: `cuda_time [filter] [repeats] [algorithm] [file of problems]`.
//
// The cases are those below, or the lines of the file: a name and a problem, `k5s2 nchw 64x64x112x112 k5 s2 p2`. An
// algorithm that is named is taken for every operation that it does not refuse.
// One line per case, type, layout and operation: the algorithm, milliseconds a call (median of event-timed runs of a
// few calls each, on random data, buffers larger than the cache and rotated) and the fraction of the copy bandwidth
// measured in the same run, by the fewest bytes the operation must move.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/cuda.h"

namespace poolgrad {
namespace {

struct Case {
  std::string name;
  std::string first;  // channels first; the type is put in
  std::string last;   // empty: none
};

// The shapes of docs/benchmarks.md's GPU table.
const Case kCases[] = {
    {"resnet_stem", "nchw 256x64x112x112 k3 s2 p1", "nhwc 256x112x112x64 k3 s2 p1"},
    {"vgg1", "nchw 64x64x224x224 k2 s2", "nhwc 64x224x224x64 k2 s2"},
    {"inception_s1", "nchw 256x192x28x28 k3 s1 p1", "nhwc 256x28x28x192 k3 s1 p1"},
    {"alexnet", "nchw 512x96x55x55 k3 s2", "nhwc 512x55x55x96 k3 s2"},
    {"sppf5", "nchw 64x256x40x40 k5 s1 p2", "nhwc 64x40x40x256 k5 s1 p2"},
    {"spp13", "nchw 64x256x40x40 k13 s1 p6", "nhwc 64x40x40x256 k13 s1 p6"},
    {"unet3d", "ncdhw 4x32x128x128x128 k2 s2", "ndhwc 4x128x128x128x32 k2 s2"},
    {"c3d_overlap", "ncdhw 8x64x16x112x112 k3 s2 p1", "ndhwc 8x16x112x112x64 k3 s2 p1"},
    {"global", "nchw 4096x512x7x7 k7 s7", "nhwc 4096x7x7x512 k7 s7"},
};

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Values in [-2, 2) of every type, by a hash of their place.
__global__ void FillKernel(uint32_t* words, int64_t count, int kind) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t h = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
    const float a = static_cast<int32_t>(h) * 0x1p-30f, b = static_cast<int32_t>(h >> 16) * 0x1p-30f;
    if (kind == POOLGRAD_F32) {
      words[i] = __float_as_uint(a);
    } else if (kind == POOLGRAD_BF16) {
      words[i] = __float_as_uint(a) >> 16 | (__float_as_uint(b) & 0xFFFF0000u);
    } else {  // f16: sign, exponent 12..15, mantissa
      words[i] = (static_cast<uint32_t>(h) & 0x8FFF8FFFu) | 0x30003000u;
    }
  }
}

__global__ void EmptyKernel() {}

// Reads everything, writes next to nothing.
__global__ void ReadKernel(const uint4* words, int64_t count, uint32_t* result) {
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = words[i], b = words[i + step], c = words[i + 2 * step], d = words[i + 3 * step];
    sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  if (sum == 0x12345678u) *result = sum;
}

struct Device {
  static constexpr int kSets = 2;      // each larger than the cache
  static constexpr int kInFlight = 4;  // calls between two events, so that it is not the launch that is timed
  uint8_t* source[kSets];
  uint8_t* routes[kSets];
  uint8_t* result[kSets];
  cudaEvent_t start, stop;
  double copy_bandwidth = 0, read_bandwidth = 0, write_bandwidth = 0;
  float empty_ms = 0;

  void Open(size_t bytes) {
    for (int i = 0; i < kSets; ++i) {
      Must(cudaMalloc(&source[i], bytes), "cudaMalloc");
      Must(cudaMalloc(&result[i], bytes), "cudaMalloc");
      Must(cudaMalloc(&routes[i], bytes / 4), "cudaMalloc");
    }
    Must(cudaEventCreate(&start), "event");
    Must(cudaEventCreate(&stop), "event");
    const size_t n = std::min<size_t>(bytes, size_t{1} << 30);
    const float ms = Time(
        [&](int set) { Must(cudaMemcpyAsync(result[set], source[set], n, cudaMemcpyDeviceToDevice), "copy"); }, 15);
    copy_bandwidth = 2.0 * static_cast<double>(n) / ms * 1e-6;
    write_bandwidth =
        static_cast<double>(n) / Time([&](int set) { Must(cudaMemsetAsync(result[set], 1, n), "memset"); }, 15) * 1e-6;
    read_bandwidth =
        static_cast<double>(n) * 1e-6 /
        Time(
            [&](int set) {
              ReadKernel<<<132 * 8, 256>>>(reinterpret_cast<const uint4*>(source[set]), static_cast<int64_t>(n / 16),
                                           reinterpret_cast<uint32_t*>(result[set]));
            },
            15);
    empty_ms = Time([](int) { EmptyKernel<<<1, 32>>>(); }, 15);
  }

  template <class F>
  float Time(F&& run, int repeats) {
    run(0);
    run(1);
    std::vector<float> times;
    for (int i = 0; i < repeats; ++i) {
      Must(cudaEventRecord(start), "record");
      for (int k = 0; k < kInFlight; ++k) run(k % kSets);
      Must(cudaEventRecord(stop), "record");
      Must(cudaEventSynchronize(stop), "synchronize");
      float ms = 0;
      Must(cudaEventElapsedTime(&ms, start, stop), "elapsed");
      times.push_back(ms / kInFlight);
    }
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[repeats / 2];
  }
};

int Main(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  const int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 15;
  const std::string wanted = argc > 3 ? argv[3] : "";
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  if (argc > 4) {
    std::ifstream file(argv[4]);
    cases.clear();
    for (std::string name, line; file >> name && std::getline(file, line);) cases.push_back({name, line, ""});
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  cudaDeviceProp device_properties;
  Must(cudaGetDeviceProperties(&device_properties, 0), "properties");
  Device device;
  device.Open(size_t{1300} << 20);
  std::printf("%s, copy %.0f GB/s, only reading %.0f, only writing %.0f, an empty kernel %.1f us\n",
              device_properties.name, device.copy_bandwidth, device.read_bandwidth, device.write_bandwidth,
              device.empty_ms * 1e3);
  for (const Case& c : cases) {
    for (const poolgrad_dtype dtype :
         {POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_F16, POOLGRAD_F64, POOLGRAD_I32, POOLGRAD_I8, POOLGRAD_U8}) {
      const bool usual = dtype == POOLGRAD_F32 || dtype == POOLGRAD_BF16 || dtype == POOLGRAD_F16;
      if (!usual && filter.find(Name(dtype)) == std::string::npos) continue;
      for (int set = 0; set < Device::kSets; ++set) {
        FillKernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(device.source[set]), (int64_t{1300} << 20) / 4, dtype);
      }
      for (const std::string& shape : {c.first, c.last}) {
        if (shape.empty()) continue;
        const bool last = shape.find("c ") != std::string::npos;  // nwc, nhwc, ndhwc
        const std::string label = c.name + " " + Name(dtype) + (last ? " last" : " first");
        if (!filter.empty() && label.find(filter) == std::string::npos) continue;
        const auto raw = ParseProblem(std::string("max ") + Name(dtype) + " " + shape);
        const auto resolved = raw.ok() ? Resolve(*raw) : Result<Problem>(raw.status());
        if (!resolved.ok()) {
          std::printf("FAILED %s\n", resolved.status().sentence().c_str());
          return 1;
        }
        const Problem& p = *resolved;
        if (p.x_bytes() > int64_t{1300} << 20 || p.y_bytes() > int64_t{1300} << 20 ||
            p.routes.bytes() > int64_t{325} << 20)
          continue;
        std::printf("%-26s", label.c_str());
        for (const poolgrad_op op : {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES, POOLGRAD_OP_BACKWARD}) {
          const CudaAlgorithm* algorithm = nullptr;
          for (const CudaAlgorithm& a : CudaAlgorithms()) {
            if (a.refuse(p, op)) continue;
            if (!algorithm || a.name == wanted) algorithm = &a;
          }
          if (!algorithm) continue;  // integers have no gradient
          const CudaKernel kernel = algorithm->make(p, op);
          const auto run = [&](int set) {
            uint8_t* routes = op == POOLGRAD_OP_FORWARD ? nullptr : device.routes[set];
            const Status status =
                kernel.Launch(p, op, {device.source[set], nullptr, routes, device.result[set]}, nullptr, nullptr);
            if (!status.ok()) std::printf("FAILED %s\n", status.sentence().c_str()), std::exit(1);
          };
          const double bytes =
              static_cast<double>(p.x_bytes() + p.y_bytes() + (op == POOLGRAD_OP_FORWARD ? 0 : p.routes.bytes()));
          const float ms = device.Time(run, repeats);
          std::printf(" | %-9s %.3f %.2f", algorithm->name + 5, ms, bytes / ms * 1e-6 / device.copy_bandwidth);
        }
        std::printf("\n");
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace poolgrad

int main(int argc, char** argv) { return poolgrad::Main(argc, argv); }
