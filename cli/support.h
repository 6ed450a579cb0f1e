// What every command shares: errors as exceptions (the command line is the only place that prints them), and owners of
// the C ABI's plan and of aligned memory. Only include/poolgrad/poolgrad.h is used of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "poolgrad/poolgrad.h"

namespace poolgrad::cli {

// A full sentence for the user. main prints it on stderr and exits with 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Passes the library's own sentence on, unchanged.
void Check(poolgrad_status status);

// 64-byte aligned, as kernels like it; uninitialised.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  int64_t bytes_ = 0;
};

poolgrad_problem ParseProblem(const std::string& text);
std::string FormatProblem(const poolgrad_problem& problem);
int64_t SizeOf(int32_t dtype);
const char* DtypeName(int32_t dtype);
int32_t DtypeFromName(const std::string& name);

class Plan {
 public:
  // An empty algorithm leaves the choice to the library.
  explicit Plan(const poolgrad_problem& problem, const std::string& algorithm = "");
  const poolgrad_problem& problem() const { return problem_; }
  const poolgrad_info& info() const { return info_; }
  const poolgrad_plan* get() const { return plan_.get(); }
  const char* Algorithm(poolgrad_op op) const { return poolgrad_plan_algorithm(plan_.get(), op); }
  std::string Explain() const;

 private:
  struct Destroy {
    void operator()(poolgrad_plan* p) const { poolgrad_plan_destroy(p); }
  };
  poolgrad_problem problem_;
  std::unique_ptr<poolgrad_plan, Destroy> plan_;
  poolgrad_info info_{};
};

// How to run `op` of `plan`, with scratch that was taken once instead of on every call.
class Exec {
 public:
  Exec(const Plan& plan, poolgrad_op op, int threads);
  const poolgrad_exec* get() const { return &exec_; }

 private:
  Buffer scratch_;
  poolgrad_exec exec_{};
};

// Forward for who gives no bias: a problem that has one gets zeros.
void Forward(const Plan& plan, const void* x, void* y, void* routes, const poolgrad_exec* exec);

}  // namespace poolgrad::cli
