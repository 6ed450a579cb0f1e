// The run-time choice of the instruction set, made in one place for all kernels.
#include "cpu/simd/targets.h"

#include <cstdlib>
#include <cstring>

#include "cpu/cpu.h"
#include "hwy/highway.h"

namespace poolgrad {

const int64_t kAvx3 = HWY_AVX3, kAvx2 = HWY_AVX2;

namespace {

#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0  // one target: nothing to ask
int64_t Supported() { return HWY_STATIC_TARGET; }
#else
// What Highway lets the compiler use on each set, but for LZCNT and F16C, which clang 14 cannot ask for: what has BMI2
// and FMA has them. The compiler's runtime asks the processor once per process, so that a release needs nothing of
// Highway's library, which runs CPUID anew each time; in a virtual machine each one traps (0.1 ms).
int64_t Supported() {
#define POOLGRAD_HAS(feature) (__builtin_cpu_supports(feature) != 0)
  const bool sse4 = POOLGRAD_HAS("sse4.2") && POOLGRAD_HAS("pclmul") && POOLGRAD_HAS("aes");
  const bool avx2 = sse4 && POOLGRAD_HAS("avx2") && POOLGRAD_HAS("bmi") && POOLGRAD_HAS("bmi2") && POOLGRAD_HAS("fma");
  const bool avx3 = avx2 && POOLGRAD_HAS("avx512f") && POOLGRAD_HAS("avx512vl") && POOLGRAD_HAS("avx512dq") &&
                    POOLGRAD_HAS("avx512bw");
#undef POOLGRAD_HAS
  return ((sse4 ? HWY_SSE4 : 0) | (avx2 ? HWY_AVX2 : 0) | (avx3 ? HWY_AVX3 : 0)) & HWY_TARGETS;
}
#endif

// Highway numbers better ones lower.
SimdSet BestOf(int64_t bits) {
  if (bits == 0) return {};
  return {bits & -bits, hwy::TargetName(bits & -bits)};
}

}  // namespace

std::vector<SimdSet> SimdSets() {
  std::vector<SimdSet> sets;
  for (int64_t bits = Supported() & ~HWY_SCALAR; bits != 0; bits &= bits - 1) sets.push_back(BestOf(bits));
  return sets;
}

Result<SimdSet> ChooseSimd() {
  const char* wanted = std::getenv("POOLGRAD_SIMD");
  if (wanted == nullptr || *wanted == '\0') return BestOf(Supported() & ~HWY_SCALAR);
  std::string known;
  for (const SimdSet& set : SimdSets()) {
    if (std::strcmp(set.name, wanted) == 0) return set;
    known += (known.empty() ? "" : ", ") + std::string(set.name);
  }
  return Status::Invalid(std::string("the environment variable POOLGRAD_SIMD is '") + wanted + "'; this machine has " +
                         (known.empty() ? "none of the instruction sets that were built" : known));
}

}  // namespace poolgrad
