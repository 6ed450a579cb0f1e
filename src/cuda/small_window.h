// The host's side of the small-window kernels (strip.cuh, cells.cuh): which form a problem wants, and launching it.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "cuda/cuda.h"
#include "cuda/forms.cuh"

namespace poolgrad::cuda {

// The problem as its kernels see it. Signals: where channels are first, each is a row of one plane; where they are
// last, they run down, so that what a thread has found serves the next output too.
Problem Folded(const Problem& p);

// The form for `op` (forward, with routes or not, and backward), if the window is small enough for one.
std::optional<Form> FormOf(const Problem& p, poolgrad_op op);

// The same, where it would read or write whole vectors of rows, without: fewer windows have that compiled ahead.
std::optional<Form> PlainFormOf(const Problem& p, poolgrad_op op);

// The kernel of a form, if it was compiled ahead.
const void* AheadKernel(poolgrad_dtype dtype, poolgrad_op op, const Form& form);
template <class T>
const void* AheadStrip(const Form& form);  // one file for each type
template <class T>
const void* AheadCells(const Form& form);

// cudaErrorNotSupported, having launched nothing, when the pointers are not aligned as the form needs.
cudaError_t LaunchForm(const void* kernel, const Form& form, const Problem& folded, poolgrad_op op, const Args& args,
                       void* stream);

}  // namespace poolgrad::cuda
