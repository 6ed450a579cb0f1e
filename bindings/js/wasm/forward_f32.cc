// Forward kernels for f32, in place of the core's file of this name: pooling without routes is there in two builds,
// because WebAssembly has two maximum instructions, and each is a single one on some processors and several on others:
//   f32x4.pmax   one on x86, two on Arm; every input has to be watched
//   f32x4.max    one on Arm, about eight on x86; it passes NaN on, so watching winners is enough
// Which processor is below is told by the sign of a NaN that it makes, positive on Arm and negative on x86. A wrong
// guess costs time and nothing else.
#include "cpu/simd/targets.h"
// After targets.h
#include <cmath>
#include <limits>

#include "cpu/forward/ways-inl.h"
#include "windows-inl.h"

namespace poolgrad {

const char* MakeWindowsPassing(const Problem& problem, Kernel* kernel);

namespace {

bool NanIsPositive() {
  volatile float infinity = std::numeric_limits<float>::infinity();  // or the compiler would decide
  return !std::signbit(infinity - infinity);
}

bool max_passes_nan = NanIsPositive();

}  // namespace

const char* MakeForwardF32(ForwardWay way, const Problem& problem, bool routes, int64_t, Kernel* kernel) {
  return N_WASM::MakeGeneral<float>(way, problem, routes, kernel);
}

const char* MakeForwardF32SpecialRoutes(ForwardWay way, const Problem& problem, bool, int64_t, Kernel* kernel) {
  return N_WASM::MakeSpecialWith<float, true>(way, problem, true, kernel);
}

const char* MakeForwardF32Special(ForwardWay way, const Problem& problem, bool, int64_t, Kernel* kernel) {
  if (way != ForwardWay::kRows) return kNotBuilt;  // in place of the core's, which reads row after row
  return (max_passes_nan ? MakeWindowsPassing : N_WASM::MakeWindows<float>)(problem, kernel);
}

}  // namespace poolgrad

// For tests, which run both on one processor: which of the two the plans made from now on have. Says which it was.
extern "C" int poolgrad_wasm_max_passes_nan(int passes) {
  const bool before = poolgrad::max_passes_nan;
  poolgrad::max_passes_nan = passes != 0;
  return before;
}
