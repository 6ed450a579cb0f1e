// The host's side of the small-window kernels (strip.cuh, cells.cuh, march.cuh): which form a problem wants, and
// launching it.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <optional>

#include "cuda/common/forms.cuh"
#include "cuda/cuda.h"

namespace poolgrad::cuda {

// The form for `op` (forward, with routes or not, and backward), if the window is small enough for one.
std::optional<Form> FormOf(const Problem& p, poolgrad_op op);

// The same without marching, which is never compiled ahead; and where it would read or write whole vectors of rows,
// without those: fewer windows have that compiled ahead.
std::optional<Form> KeptFormOf(const Problem& p, poolgrad_op op);
std::optional<Form> PlainFormOf(const Problem& p, poolgrad_op op);

// The kernel of a form, if it was compiled ahead.
const void* AheadKernel(poolgrad_dtype dtype, poolgrad_op op, const Form& form);
template <class T>
const void* AheadStrip(const Form& form);  // one file for each type
template <class T>
const void* AheadCells(const Form& form);

// A kernel of a form with all its parameters but the pointers.
struct FormLaunch {
  virtual ~FormLaunch() = default;
  // cudaErrorNotSupported, having launched nothing, when the pointers are not aligned as the form needs.
  virtual cudaError_t Launch(const Args& args, void* stream) const = 0;
};

// Null where the problem has too many threads.
std::shared_ptr<const FormLaunch> MakeFormLaunch(const void* kernel, const Form& form, const Problem& p,
                                                 poolgrad_op op);

}  // namespace poolgrad::cuda
