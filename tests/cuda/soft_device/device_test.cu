// The device in software itself: what kernels rely on, and that what is undefined on a GPU does not pass unseen.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "cuda/common/packs.cuh"
#include "cuda/common/runtime.h"

namespace poolgrad::cuda {

constexpr int kThreads = 96, kBlocks = 4;

struct Params {
  int* out;
};

// Every thread reads what its neighbour wrote, behind a barrier or not.
template <bool kWaits>
__global__ void Neighbour(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) unsigned char shared[];
  int* values = reinterpret_cast<int*>(shared);
  const int i = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  values[i] = 1000 * static_cast<int>(blockIdx.x) + i;
  if (kWaits) __syncthreads();
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = values[(i + 1) % n] + values[(i + n - 1) % n];
}

// The sum of a warp's lanes, by halves of it; some threads have left, and the blocks' verdict on any of them.
__global__ void Sums(const __grid_constant__ Params p) {
  const unsigned lane = threadIdx.x % 32;
  const int any = __syncthreads_or(threadIdx.x == blockIdx.x);
  if (threadIdx.x >= 64) return;
  const unsigned group = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  int sum = static_cast<int>(threadIdx.x);
  for (int i = 8; i > 0; i /= 2) {
    const int other = __shfl_down_sync(group, sum, static_cast<unsigned>(i), 16);
    if (lane % 16 + static_cast<unsigned>(i) < 16) sum += other;
  }
  if (lane < 16 && __any_sync(group, lane == 3)) sum += 1000;
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = lane % 16 == 0 ? sum : any;
}

__global__ void WaitsAlone(const __grid_constant__ Params p) {
  if (threadIdx.x == 0) __syncthreads();
  if (threadIdx.x == 1) __syncwarp();
  p.out[0] = 1;
}
__global__ void ReadsUnaligned(const __grid_constant__ Params p) {
  uint32_t word = 0;
  LoadWordsIf<4>(true, reinterpret_cast<const char*>(p.out) + 1, &word);
}
__global__ void WritesBehind(const __grid_constant__ Params) {
  extern __shared__ __align__(16) unsigned char shared[];
  shared[kThreads * sizeof(int)] = 1;
}
__global__ void ReadsBehind(const __grid_constant__ Params) {
  extern __shared__ __align__(16) unsigned char shared[];
  uint32_t word = 0;
  LoadSharedIf<4>(true, static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + kThreads * sizeof(int), &word);
}

namespace {

int out[kBlocks * kThreads];

cudaError_t Run(void (*kernel)(Params), int threads = kThreads, size_t shared = kThreads * sizeof(int)) {
  Params p{out};
  void* params[] = {&p};
  return LaunchPointers(AddressOf(kernel), kBlocks, threads, shared, nullptr, params);
}

int failures = 0;

void Expect(bool right, const char* what) {
  if (!right) ++failures, std::printf("FAILED %s\n", what);
}

// In a process of its own.
void ExpectDeath(void (*kernel)(Params), const char* what) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stdout)) _exit(3);
    Run(kernel);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, what);
}

int CountWrongNeighbours() {
  int wrong = 0;
  for (int i = 0; i < kBlocks * kThreads; ++i) {
    const int block = i / kThreads, at = i % kThreads;
    wrong += out[i] != 2000 * block + (at + 1) % kThreads + (at + kThreads - 1) % kThreads;
  }
  return wrong;
}

int Main() {
  Expect(Run(Neighbour<true>) == cudaSuccess && CountWrongNeighbours() == 0, "neighbours behind a barrier");
  Run(Neighbour<false>);
  Expect(CountWrongNeighbours() > 0, "a missing barrier is not seen");
  Expect(Run(Sums) == cudaSuccess, "shuffles");
  for (int i = 0; i < kBlocks * kThreads; ++i) {
    const int at = i % kThreads, sum = 16 * at + 120 + (at % 32 == 0 ? 1000 : 0);
    if (at < 64) Expect(out[i] == (at % 16 == 0 ? sum : 1), "a sum by shuffles");
  }
  Expect(Run(Neighbour<true>, 2048) == cudaErrorInvalidConfiguration, "2,048 threads are too many");
  Expect(Run(Neighbour<true>, kThreads, 240 << 10) == cudaErrorNotSupported, "240 KB are too many");
  ExpectDeath(WaitsAlone, "threads that wait for different things");
  ExpectDeath(ReadsUnaligned, "an address that is not aligned");
  ExpectDeath(WritesBehind, "a byte written behind shared memory");
  ExpectDeath(ReadsBehind, "a word read behind shared memory");
  std::printf("the device in software: %d failures\n", failures);
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace poolgrad::cuda

int main() { return poolgrad::cuda::Main(); }
