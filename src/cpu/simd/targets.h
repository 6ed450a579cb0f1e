// Which instruction sets are compiled, and the choice among them. Included before any Highway header.
//
// The sets that kernels are compiled for, each for a reason; a newer Highway's further ones are not, since each would
// multiply the build for no measured gain:
//   NEON   every 64-bit Arm processor
//   SSE4   every x86 processor of the last fifteen years
//   AVX2   most of them
//   AVX3   AVX-512 as Skylake has it
//   WASM   the 128-bit instructions of WebAssembly
//   SCALAR Highway's stand-in where the compiler's baseline has no SIMD: every algorithm refuses there. It comes last,
//          and the files that are compiled for every set leave out all but the choice for it
#pragma once

#include <cstdint>

// Clang and newer GCC would have Highway's emulation of 128-bit vectors for it instead, and every kernel once more.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 1
#endif

// A file that defines POOLGRAD_WIDER as 0 or HWY_AVX2 leaves out what is wider, where it gains too little for its
// compile time; processors that have it run what the file has.
#ifndef POOLGRAD_WIDER
#define POOLGRAD_WIDER (HWY_AVX2 | HWY_AVX3)
#endif
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_NEON | HWY_SSE4 | POOLGRAD_WIDER | HWY_WASM | HWY_SCALAR))
#endif

// The function FUNC of instruction set `simd` (Host::simd), of type F; null where there is none. For use under
// HWY_ONCE, where all of them are declared.
#define POOLGRAD_DISPATCH(F, FUNC, simd)                                                                     \
  ::poolgrad::PickTarget<F>(simd, POOLGRAD_AT(AVX3, FUNC), POOLGRAD_AT(AVX2, FUNC), POOLGRAD_AT(SSE4, FUNC), \
                            POOLGRAD_AT(NEON, FUNC), POOLGRAD_AT(WASM, FUNC))
#define POOLGRAD_AT(SET, FUNC) HWY_CHOOSE_##SET(FUNC)

namespace poolgrad {

inline constexpr int64_t kNoSimd = 0;

// The bits of Host::simd that stand for AVX3 and AVX2.
extern const int64_t kAvx3, kAvx2;

template <class F>
F* PickTarget(int64_t simd, F* avx3, F* avx2, F* sse4, F* neon, F* wasm) {
  if (simd == kNoSimd) return nullptr;
  if (simd == kAvx3 && avx3) return avx3;
  if ((simd == kAvx3 || simd == kAvx2) && avx2) return avx2;
  return sse4 ? sse4 : neon ? neon : wasm;
}

inline constexpr const char* kNoSimdHere = "this processor has none of the SIMD instruction sets that were built";
inline constexpr char kNotBuilt[] = "it is not built for this type and instruction set";  // one address for all

}  // namespace poolgrad
