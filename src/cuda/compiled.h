// Kernels compiled while the program runs, for exactly the window of a plan: a form is a few dozen numbers, and there
// are far too many to compile ahead. NVRTC does it, where it is found (a CUDA installation has it, and so do PyTorch's
// and JAX's packages); what it made is kept for the process, and on disk for the next.
#pragma once

#include <string>

#include "cuda/any/sums_form.h"
#include "cuda/small/small_window.h"
#include "cuda/tables/tables_form.h"

namespace poolgrad::cuda {

// Null, or why nothing is compiled: it was turned off (POOLGRAD_JIT=0), or there is no NVRTC.
const char* RefuseCompiling();

struct Compiled {
  const void* kernel = nullptr;
  std::string note;  // how it came about; without a kernel, why it did not
};
Compiled Compile(const std::string& source, int device);

// The text that is compiled: a kernel for a small window, backward by summing for a large one, and
// windows by table and averages.
std::string SourceOf(poolgrad_dtype dtype, poolgrad_op op, const Form& form);
std::string SourceOf(poolgrad_dtype dtype, const SumsForm& form);
std::string SourceOf(poolgrad_dtype dtype, const TableForm& form);

// What Compile makes of it, for tests where there is no device: its code for an architecture, e.g. sm_90 (empty: `why`
// says why not).
std::string CodeOf(const std::string& source, const std::string& architecture, std::string* why);

}  // namespace poolgrad::cuda
