// The families of tiled kernels, each compiled once per element type. They return cudaErrorNotSupported, having
// launched nothing, when the pointers are not aligned as they need; the caller then takes the generic kernels.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "cuda/any/sums_form.h"
#include "cuda/cuda.h"
#include "cuda/tables/tables_form.h"

namespace poolgrad::cuda {

// Thread numbers stay under this, so that they are divided in 32 bits.
inline constexpr int64_t kFastThreads = int64_t{1} << 31;

template <class T>
cudaError_t RunVectors(const Problem& p, bool forward, const Args& args, void* stream);  // vectors.cuh
template <class T>
cudaError_t RunPlanes(const Problem& p, bool forward, const Args& args, void* stream);  // planes.cuh
// separable.cuh, doubling.cuh: what a plan keeps for its launches, and a launch with it in args.layout.
std::shared_ptr<const void> MakeSeparable(const Problem& p);
template <class T>
cudaError_t RunSeparable(const Problem& p, const Args& args, void* stream);
template <class T>
cudaError_t RunAnyWindow(const Problem& p, const Args& args, void* stream);  // rows.cuh
// sums.cuh: the kernel that reads its window and tile from its parameters.
template <class T>
const void* SumsKernelOf(const SumsForm& form);
template <class T>
cudaError_t RunGather(const Problem& p, const Args& args, void* stream);  // gather.cuh
// tables.cuh: what a plan keeps for its launches (null: its pieces do not fit), and a launch with it in args.layout.
template <class T>
std::shared_ptr<const void> MakeTables(const Problem& p, bool forward);
// The same compiled for its axes (null: it shall not, or could not be).
using TableCompiler = std::function<const void*(const TableForm&)>;
template <class T>
std::shared_ptr<const void> MakeKnownTables(const Problem& p, poolgrad_op op, const TableCompiler& compile);
template <class T>
cudaError_t RunTables(const Problem& p, bool forward, const Args& args, void* stream);

inline bool IsForward(poolgrad_op op) { return op == POOLGRAD_OP_FORWARD || op == POOLGRAD_OP_FORWARD_ROUTES; }

// Null, or what every tiled kernel asks for: whatever the type, of f32, f16 and bf16; and forward of what wins.
const char* RefuseShape(const Problem& p);
const char* RefuseTiled(const Problem& p);
const char* RefuseRules(const Problem& p);
const char* RefuseWindows(const Problem& p);
const char* RefuseForward(const Problem& p);
// relu, with its bias or where no kernel does it, is a pass after another forward kernel (cuda_rectified).
inline constexpr const char* kRectifies = "relu is a pass of its own";

// Null, or why nothing is compiled for this problem.
const char* RefuseCompilingFor(const Problem& p);

// Null, or why the family does not take the problem, beyond what all tiled kernels ask.
const char* RefuseVectors(const Problem& p);
const char* RefusePlanes(const Problem& p, bool forward);
const char* RefuseSeparable(const Problem& p);
const char* RefuseDoubling(const Problem& p);
// The same with signals, channels first, as rows of an image, or of two for halves, which are compared in pairs, for
// kernels whose blocks have several rows; or as it is.
Problem RowsOfSignals(const Problem& p);
const char* RefuseAny(const Problem& p);
// Backward of 1x1/1 without padding, which has a kernel beside the gather.
bool IsOneTap(const Problem& p);
inline constexpr const char* kOneTap = "dx is dy where a code names the tap; copying is faster";
const char* RefuseGather(const Problem& p);
const char* RefuseTables(const Problem& p, poolgrad_op op);
// Channels that are last, a few that fill no words.
bool HasFewOddChannels(const Problem& p);
// Which ordinary windows tables.cuh is faster for.
bool IsDilated(const Problem& p);
bool IsOrdinary(const Problem& p);
bool LargeAndApart(const Problem& p, poolgrad_op op);
bool ApartUncompiled(const Problem& p, poolgrad_op op);
bool SharesNoInput(const Problem& p);  // dilated windows may lie in one another
bool PutsFaster(const Problem& p);     // backward
bool Puts(const Problem& p);
bool SpillsRoutes(const Problem& p);
double MostOverlapping(const Problem& p);  // along an axis
double AllOverlapping(const Problem& p);
// Backward by table: whether an output has hundreds of inputs, so that dx is cleared first (tables_cleared.cuh).
bool TablesClear(const Problem& p);

}  // namespace poolgrad::cuda
