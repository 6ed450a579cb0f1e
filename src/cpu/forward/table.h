// Which forward kernels are compiled, by element type and instruction set. The general ones (fwd_values, fwd_routes,
// fwd_exact) take any problem; the others are there where one was measured to be at least 1.2 times as fast on windows
// that people use. Every cell more costs compile time (about a second each) and size.
#pragma once

#include <cstdint>

namespace poolgrad {

// The ways to pool forward, fastest first: the order in which a plan asks them.
enum class ForwardWay {
  kCut,
  kGlobal,
  kTiled,
  kRows,
  kLarge,
  kRoutes3x3,
  kTransposed,
  kValues,
  kRoutes,
  kAverage,
  kTables,
  kExact
};

// How elements are held: as themselves; or, where no value of x is negative, as the bits of floats (simd/order-inl.h).
// `halves` are f16 and bf16.
enum class Held { kF32, kHalves, kF64, kInt, kBits32, kBits16 };

using Sets = uint32_t;  // of instruction sets
inline constexpr Sets kOnNone = 0, kOnSse4 = 1, kOnAvx2 = 2, kOnAvx3 = 4, kOnNeon = 8, kOnWasm = 16;
inline constexpr Sets kOnWide = kOnAvx2 | kOnAvx3, kOnFast = kOnWide | kOnNeon, kOnNative = kOnFast | kOnSse4,
                      kOnAll = kOnNative | kOnWasm;

struct ForwardRow {
  ForwardWay way;
  const char* name;
  Sets built[6];  // by Held
};

// WebAssembly has f32 alone, for the size of the module. Bits of f32 are worth it where winners of zero ask for a look
// at the inputs (Arm), bits of halves there too, where they have no instructions of their own; on x86 they gain 1.0 to
// 1.1.
// f64.cc and ints.cc leave AVX-512 out, to build faster: f64, i32 and bytes run AVX2 there. (f64: values as fast,
// routes up to 1.4 times slower; bytes: 1.04 to 1.07 and 1.05 to 1.17 times.)
// clang-format off
inline constexpr ForwardRow kForwardTable[] = {
    //                                           f32        halves     f64        integers   bits32     bits16
    {ForwardWay::kCut, "fwd_cl_cut",            {kOnNative, kOnNative, kOnNative, kOnNative, kOnNone,   kOnNone}},
    {ForwardWay::kGlobal, "fwd_global",         {kOnFast,   kOnFast,   kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kTiled, "fwd_cf_tiled",        {kOnFast,   kOnFast,   kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kRows, "fwd_cl_rows",          {kOnFast | kOnWasm, kOnFast,     kOnNone,   kOnNone,   kOnNeon,   kOnNeon}},
    {ForwardWay::kLarge, "fwd_cl_large",        {kOnFast,   kOnAvx3 | kOnNeon,   kOnNone,   kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kRoutes3x3, "fwd_cf_routes3x3", {kOnNeon,  kOnNone,   kOnNone,   kOnNone,   kOnNeon,   kOnNone}},
    {ForwardWay::kTransposed, "fwd_cf_transposed", {kOnNative, kOnNative, kOnNative, kOnNative, kOnNone,  kOnNone}},
    {ForwardWay::kValues, "fwd_values",         {kOnAll,    kOnNative, kOnNative, kOnNative, kOnNeon,   kOnNeon}},
    {ForwardWay::kRoutes, "fwd_routes",         {kOnAll,    kOnNative, kOnNative, kOnNative, kOnNone,   kOnNone}},
    {ForwardWay::kAverage, "fwd_average",       {kOnAll,    kOnNative, kOnNative, kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kTables, "fwd_tables",         {kOnNative, kOnNative, kOnNative, kOnNone,   kOnNone,   kOnNone}},
    {ForwardWay::kExact, "fwd_exact",           {kOnAll,    kOnNative, kOnNative, kOnNative, kOnNone,   kOnNone}},
};
// clang-format on

constexpr bool IsBuilt(ForwardWay way, Held held, Sets on) {
  for (const ForwardRow& row : kForwardTable) {
    if (row.way == way) return (row.built[static_cast<int>(held)] & on) != 0;
  }
  return false;
}

// Takes any problem, or nearly.
constexpr bool IsGeneral(ForwardWay way) { return way >= ForwardWay::kValues; }

}  // namespace poolgrad
