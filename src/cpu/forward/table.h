// Which forward kernels are compiled, by element type and instruction set. The general ones (fwd_values, fwd_routes,
// fwd_exact) take any problem; the others are there where one was measured to be at least 1.2 times as fast on windows
// that people use. Every cell more costs compile time (about a second each) and size.
#pragma once

#include <cstdint>

#include "spec/kernel.h"

namespace poolgrad {

// The ways to pool forward, fastest first: the order in which a plan asks them.
enum class ForwardWay {
  kCut,
  kFolded,
  kTiled,
  kRows,
  kLarge,
  kRoutes3x3,
  kTransposed,
  kValues,
  kRoutes,
  kAveragePlanes,
  kAverage,
  kExact
};

// How elements are held: as themselves; or, where no value of x is negative, as the bits of floats (simd/order-inl.h).
// `halves` are f16 and bf16, `wide` f64 and i32, `bytes` i8 and u8.
enum class Held { kF32, kHalves, kWide, kBytes, kBits32, kBits16 };

using Sets = uint32_t;  // of instruction sets
inline constexpr Sets kOnNone = 0, kOnSse4 = 1, kOnAvx2 = 2, kOnAvx3 = 4, kOnNeon = 8, kOnWasm = 16;
inline constexpr Sets kOnMost = kOnAvx2 | kOnNeon, kOnOld = kOnMost | kOnSse4, kOnFast = kOnMost | kOnAvx3,
                      kOnNative = kOnFast | kOnSse4;

struct ForwardRow {
  ForwardWay way;
  const char* name;
  Does does;
  Seen seen;      // the general kernels go row by row; turned over, planes are lanes: a few with many rows
  Sets built[6];  // by Held
};

inline constexpr Does kMaxValues = OfMax(POOLGRAD_OP_FORWARD), kMaxRoutes = OfMax(POOLGRAD_OP_FORWARD_ROUTES),
                      kMaxBoth = kMaxValues | kMaxRoutes, kAverages = OfAverages(POOLGRAD_OP_FORWARD);

// Why some have few. What was measured is in docs/performance/x86-avx512.md (2026-11-17):
//   AVX-512  Processors that have it run AVX2's kernels where there is no other. f32 and halves have all; wide and
//            bytes none, for size and to build faster.
//   SSE4     f32, and the values of bytes, for quantized networks. What else is pooled there goes by the letter
//            (fwd_exact), averages of other types than f32 by the reference.
//   WASM     f32 alone, for the size of the module.
//   bits     worth it where winners of zero ask for a look at the inputs (Arm), and for halves there, which have no
//            instructions of their own; on x86 they gain 1.0 to 1.1.
// clang-format off
inline constexpr ForwardRow kForwardTable[] = {
    //                                                    does        sees            f32                  halves             wide      bytes      bits32     bits16
    {ForwardWay::kCut,           "fwd_cl_cut",            kMaxBoth,   Seen::kFolded, {kOnNative,           kOnNative,         kOnOld,    kOnOld,    kOnNone,   kOnNone}},
    {ForwardWay::kFolded,        "fwd_cf_folded",         kMaxBoth,   Seen::kFolded, {kOnFast,             kOnFast,           kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kTiled,         "fwd_cf_tiled",          kMaxBoth,   Seen::kFolded, {kOnFast,             kOnFast,           kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kRows,          "fwd_cl_rows",           kMaxBoth,   Seen::kFolded, {kOnFast | kOnWasm,   kOnFast,           kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kLarge,         "fwd_large",             kMaxBoth,   Seen::kFolded, {kOnFast,             kOnAvx3 | kOnNeon, kOnNone,   kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kRoutes3x3,     "fwd_cf_routes3x3",      kMaxRoutes, Seen::kFolded, {kOnNeon,             kOnNone,           kOnNone,   kOnNone,   kOnNeon,   kOnNone}},
    {ForwardWay::kTransposed,    "fwd_transposed",        kMaxBoth,   Seen::kAsIs,   {kOnNative,           kOnNative,         kOnOld,    kOnOld,    kOnNone,   kOnNone}},
    {ForwardWay::kValues,        "fwd_values",            kMaxValues, Seen::kAsRows, {kOnNative | kOnWasm, kOnFast,           kOnMost,   kOnOld,    kOnNeon,   kOnNeon}},
    {ForwardWay::kRoutes,        "fwd_routes",            kMaxRoutes, Seen::kAsRows, {kOnNative | kOnWasm, kOnFast,           kOnMost,   kOnMost,   kOnNone,   kOnNone}},
    {ForwardWay::kAveragePlanes, "fwd_cf_average_planes", kAverages,  Seen::kFolded, {kOnNative,           kOnFast,           kOnMost,   kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kAverage,       "fwd_average",           kAverages,  Seen::kFolded, {kOnNative | kOnWasm, kOnFast,           kOnMost,   kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kExact,         "fwd_exact",             kMaxBoth,   Seen::kFolded, {kOnNative | kOnWasm, kOnNative,         kOnOld,    kOnOld,    kOnNone,   kOnNone}},
};
// clang-format on

static_assert([] {  // rows are found by their way
  for (int i = 0; const ForwardRow& row : kForwardTable) {
    if (static_cast<int>(row.way) != i++) return false;
  }
  return true;
}());

constexpr bool IsBuilt(ForwardWay way, Held held, Sets on) {
  return (kForwardTable[static_cast<int>(way)].built[static_cast<int>(held)] & on) != 0;
}

// Takes any problem, or nearly.
constexpr bool IsGeneral(ForwardWay way) { return way >= ForwardWay::kValues; }

}  // namespace poolgrad
