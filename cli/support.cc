// Owners and small translations over the C ABI; see support.h.
#include "support.h"

#include <array>
#include <new>
#include <utility>
#include <vector>

namespace poolgrad::cli {
namespace {

struct DtypeWord {
  const char* name;
  int64_t size;
};
// In the order of poolgrad_dtype.
constexpr std::array<DtypeWord, 7> kDtypes{
    {{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"u8", 1}, {"i32", 4}}};

// The C ABI's texts are asked for twice: once for the size, once for the text.
template <class Ask>
std::string TextOf(Ask ask) {
  size_t needed = 0;
  Check(ask(nullptr, 0, &needed));
  std::vector<char> text(needed > 0 ? needed : 1);
  Check(ask(text.data(), text.size(), &needed));
  return std::string(text.data());
}

}  // namespace

void Check(poolgrad_status status) {
  if (status != POOLGRAD_OK) throw Failure(poolgrad_last_error());
}

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + 127) / 64 * 64;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
  if (!data_) throw std::bad_alloc();
}

poolgrad_problem ParseProblem(const std::string& text) {
  poolgrad_problem problem;
  poolgrad_problem_init(&problem);
  Check(poolgrad_problem_parse(text.c_str(), &problem));
  return problem;
}

std::string FormatProblem(const poolgrad_problem& problem) {
  return TextOf([&](char* text, size_t capacity, size_t* needed) {
    return poolgrad_problem_format(&problem, text, capacity, needed);
  });
}

int64_t SizeOf(int32_t dtype) { return kDtypes.at(static_cast<size_t>(dtype)).size; }
const char* DtypeName(int32_t dtype) { return kDtypes.at(static_cast<size_t>(dtype)).name; }

int32_t DtypeFromName(const std::string& name) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (name == kDtypes[i].name) return static_cast<int32_t>(i);
  }
  throw Failure("dtype is '" + name + "'; expected one of f32, f64, f16, bf16, i8, u8, i32");
}

Plan::Plan(const poolgrad_problem& problem, const std::string& algorithm) : problem_(problem) {
  poolgrad_plan_options options{};
  options.struct_size = sizeof(options);
  options.algorithm = algorithm.empty() ? nullptr : algorithm.c_str();
  poolgrad_plan* plan = nullptr;
  Check(poolgrad_plan_create(&problem_, &options, &plan));
  plan_.reset(plan);
  info_.struct_size = sizeof(info_);
  Check(poolgrad_plan_info(plan_.get(), &info_));
}

std::string Plan::Explain() const {
  return TextOf([&](char* text, size_t capacity, size_t* needed) {
    return poolgrad_plan_explain(plan_.get(), text, capacity, needed);
  });
}

Exec::Exec(const Plan& plan, poolgrad_op op, int threads) {
  uint64_t bytes = 0;
  Check(poolgrad_plan_scratch_bytes(plan.get(), op, threads, &bytes));
  scratch_ = Buffer(static_cast<int64_t>(bytes));
  exec_.struct_size = sizeof(exec_);
  exec_.threads = threads;
  exec_.scratch = scratch_.data();
  exec_.scratch_bytes = bytes;
}

void Forward(const Plan& plan, const void* x, void* y, void* routes, const poolgrad_exec* exec) {
  if (plan.problem().bias == 0) return Check(poolgrad_forward(plan.get(), x, y, routes, exec));
  const std::vector<double> zeros(static_cast<size_t>(plan.problem().channels));  // of any type
  Check(poolgrad_forward_bias(plan.get(), x, zeros.data(), y, routes, exec));
}

}  // namespace poolgrad::cli
