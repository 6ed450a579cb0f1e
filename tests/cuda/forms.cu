// Compiles the kernels of random windows as a plan would, without a device: `cuda_forms [forms] [seed] [architecture]`,
// and counts the kinds of forms among the problems that check.cu draws: each must be among those compiled for them.
// Prints one line per failure and one at the end; exits 77 where there is no NVRTC.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "cuda/any/sums_launch.h"
#include "cuda/common/tuning.h"
#include "cuda/compiled.h"
#include "cuda/fast.h"
#include "cuda/small/small_window.h"
#include "draws.h"
#include "spec/problem.h"

namespace poolgrad {
namespace {

struct Kind {
  const char* name;
  bool (*has)(const cuda::Form& f, bool backward);
  int count = 0;
};

// Problems whose dx is put.
struct PutKind {
  const char* name;
  bool (*has)(const Problem&);
  int count = 0;
};

// Those of backward by summing.
struct SumsKind {
  const char* name;
  bool (*has)(const cuda::SumsForm&);
  int count = 0;
};

// Those of windows by table and averages.
struct TableKind {
  const char* name;
  bool (*has)(const cuda::TableForm&);
  int count = 0;
};

// What a plan would have compiled for windows by table or averages.
std::optional<cuda::TableForm> TableFormOf(const Problem& p, poolgrad_op op) {
  for (const CudaAlgorithm& algorithm : CudaAlgorithms()) {
    if (std::string(algorithm.name) == "cuda_compiled_tables" && algorithm.refuse(p, op)) return {};
  }
  std::optional<cuda::TableForm> found;
  const auto keep = [&](const cuda::TableForm& form) -> const void* { return &found.emplace(form); };
  if (p.dtype == POOLGRAD_F32) cuda::MakeKnownTables<float>(p, op, keep);
  if (p.dtype == POOLGRAD_F16) cuda::MakeKnownTables<__half>(p, op, keep);
  if (p.dtype == POOLGRAD_BF16) cuda::MakeKnownTables<__nv_bfloat16>(p, op, keep);
  return found;
}

template <class Kinds>
int CountMissing(const Kinds& kinds, int draws) {
  int missing = 0;
  for (const auto& kind : kinds) {
    if (std::getenv("POOLGRAD_VERBOSE")) std::printf("%5d forms: %s\n", kind.count, kind.name);
    if (kind.count > 0) continue;
    ++missing;
    std::printf("FAILED no problem of %d has a form with %s\n", draws, kind.name);
  }
  return missing;
}

// How many kinds of forms are missing from `draws` problems.
int CountKinds(int draws) {
  using cuda::Form, cuda::Mode;
  Kind kinds[] = {
      {"channels last", [](const Form& f, bool) { return f.mode == Mode::kLast; }},
      {"odd channels last", [](const Form& f, bool) { return f.mode == Mode::kLastOdd; }},
      {"aligned rows", [](const Form& f, bool) { return f.mode == Mode::kFirst; }},
      {"odd rows", [](const Form& f, bool) { return f.mode == Mode::kFirstOdd; }},
      {"staged rows", [](const Form& f, bool) { return f.mode == Mode::kFirstStaged; }},
      {"staged channels", [](const Form& f, bool) { return f.mode == Mode::kLastStaged; }},
      {"cut rows", [](const Form& f, bool) { return f.cut; }},
      {"nothing outside", [](const Form& f, bool) { return f.inside; }},
      {"outputs that share their middle",
       [](const Form& f, bool backward) { return f.run > 0 && f.staged() && !backward; }},
      {"the same with codes in bytes",
       [](const Form& f, bool backward) { return f.run > 0 && !backward && f.apart(); }},
      {"cells in a run", [](const Form& f, bool backward) { return f.run > 0 && f.staged() && backward; }},
      {"strided cells in a run", [](const Form& f, bool) { return f.run > 0 && f.staged() && f.stride[2] > 1; }},
      {"outputs that share depths", [](const Form& f, bool) { return f.deep > 1 && f.staged(); }},
      {"the same, channels last", [](const Form& f, bool) { return f.deep > 1 && f.last(); }},
      {"marching, forward", [](const Form& f, bool backward) { return f.mode == Mode::kFirstMarch && !backward; }},
      {"the same with codes of several threads in a byte",
       [](const Form& f, bool backward) { return f.mode == Mode::kFirstMarch && !backward && f.routes && f.bits < 8; }},
      {"marching, backward", [](const Form& f, bool backward) { return f.mode == Mode::kFirstMarch && backward; }},
      {"marching, channels last", [](const Form& f, bool) { return f.mode == Mode::kLastMarch && f.even; }},
      {"marching, odd channels last", [](const Form& f, bool) { return f.mode == Mode::kLastMarch && !f.even; }},
  };
  using cuda::SumsForm;
  SumsKind sums_kinds[] = {
      {"sums of several planes", [](const SumsForm& f) { return f.planes > 1; }},
      {"sums of channels at one place", [](const SumsForm& f) { return f.channels > 1; }},
      {"sums of vectors of channels", [](const SumsForm& f) { return f.vector > 1; }},
      {"sums of vectors by codes of two bytes", [](const SumsForm& f) { return f.vector > 1 && f.bits == 16; }},
      {"sums of one channel, called the last", [](const SumsForm& f) { return f.last && f.channels == 1; }},
      {"sums of volumes", [](const SumsForm& f) { return !f.flat; }},
      {"sums of rows in several goes", [](const SumsForm& f) { return !f.once; }},
      {"sums of dilated windows", [](const SumsForm& f) { return f.dilation[2] > 1; }},
      {"sums by codes of several to a byte", [](const SumsForm& f) { return f.bits < 8; }},
      {"sums by codes of two bytes", [](const SumsForm& f) { return f.bits == 16; }},
      {"sums of axes shorter than the window",
       [](const SumsForm& f) { return f.ring < (f.kernel[0] - 1) * f.dilation[0] + 1; }},
  };
  using cuda::TableForm;
  TableKind table_kinds[] = {
      {"tables forward, unrolled", [](const TableForm& f) { return !f.backward && f.unrolled; }},
      {"tables forward in a loop", [](const TableForm& f) { return !f.backward && !f.unrolled && f.whole; }},
      {"tables forward, cut planes", [](const TableForm& f) { return !f.backward && !f.whole; }},
      {"tables backward, unrolled", [](const TableForm& f) { return f.backward && !f.last && f.unrolled; }},
      {"tables backward in a loop",
       [](const TableForm& f) { return f.backward && !f.last && !f.unrolled && !f.looks_up; }},
      {"averages backward that look outputs up, whole planes",
       [](const TableForm& f) { return f.looks_up && f.whole; }},
      {"averages backward that look outputs up, in pieces", [](const TableForm& f) { return f.looks_up && !f.whole; }},
      {"averages backward that look outputs up, of volumes with gaps",
       [](const TableForm& f) { return f.looks_up && !f.whole && f.in[0] > 1 && f.stride[0] > f.kernel[0]; }},
      {"tables backward, cut planes", [](const TableForm& f) { return f.backward && !f.last && !f.whole; }},
      {"tables backward, channels last, unrolled",
       [](const TableForm& f) { return f.backward && f.last && f.unrolled; }},
      {"tables backward, channels last", [](const TableForm& f) { return f.backward && f.last && !f.unrolled; }},
      {"tables of signals backward", [](const TableForm& f) { return f.signal && f.what != cuda::TableOp::kAverage; }},
      {"tables of volumes", [](const TableForm& f) { return f.in[0] > 1 && f.over[0] > 1 && f.backward; }},
      {"lists", [](const TableForm& f) { return f.form[1] == cuda::kListed || f.form[2] == cuda::kListed; }},
      {"dilated windows by columns", [](const TableForm& f) { return cuda::IsDilated(f); }},
      {"tables, channels last, one at a time", [](const TableForm& f) { return f.last && f.vector == 1; }},
      {"tables whose lanes share bytes of routes", [](const TableForm& f) { return f.last && f.log_sharers > 0; }},
      {"tables whose lanes share outputs", [](const TableForm& f) { return !f.last && f.log_sharers > 0; }},
      {"tables of wide rows", [](const TableForm& f) { return !f.backward && f.kernel[2] > cuda::kTableKnownRow; }},
      {"averages with padding",
       [](const TableForm& f) { return f.what == cuda::TableOp::kAverage && f.pad_lo[2] > 0; }},
  };
  PutKind put_kinds[] = {
      {"windows that put dx", [](const Problem&) { return true; }},  // dilated ones are in cases/regressions.txt
      {"few channels that are last and put dx", [](const Problem& p) { return p.channels_last() && p.channels > 1; }},
      {"dx that is put in pieces of planes", [](const Problem& p) { return p.in_plane() * 4 > cuda::staged_bytes; }},
  };
  const int64_t usual = cuda::staged_bytes, worth = std::exchange(cuda::bytes_worth_compiling, 0);
  const int64_t columns = cuda::table_unrolled_columns;
  for (int i = 0; i < draws; ++i) {
    cuda::staged_bytes = i % 2 == 0 ? usual : 2048;  // as check.cu does
    cuda::march_always = i % 5 == 4;
    const bool tables = i % 4 >= 2;
    cuda::table_unrolled_columns = i % 4 == 3 ? 0 : columns;
    Random r(static_cast<uint64_t>(i));
    Lists lists;
    poolgrad_problem raw = RandomProblem(r, lists);
    while (tables && !ByTableOrAverage(raw)) raw = RandomProblem(r, lists);
    const Result<Problem> problem = Resolve(raw);
    for (const poolgrad_op op : {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES, POOLGRAD_OP_BACKWARD}) {
      const auto form = problem.ok() ? TableFormOf(*problem, op) : std::nullopt;
      for (TableKind& kind : table_kinds) kind.count += form && kind.has(*form);
    }
    const bool of_forms = problem.ok() && problem->kind == POOLGRAD_MAX && SizeOf(problem->dtype) != 1 &&
                          problem->dtype != POOLGRAD_F64 && problem->dtype != POOLGRAD_I32 && !problem->by_table();
    if (!of_forms) continue;
    for (const poolgrad_op op : {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES, POOLGRAD_OP_BACKWARD}) {
      const auto form = cuda::FormOf(*problem, op);
      for (Kind& kind : kinds) kind.count += form && kind.has(*form, op == POOLGRAD_OP_BACKWARD);
    }
    for (PutKind& kind : put_kinds) kind.count += cuda::PutsFaster(*problem) && kind.has(*problem);
    cuda::SumsParams sums;
    if (problem->routes.masks || cuda::PrepareSums(*problem, true, &sums).blocks == 0) continue;
    for (SumsKind& kind : sums_kinds) kind.count += kind.has(sums.form);
  }
  cuda::staged_bytes = usual, cuda::march_always = false, cuda::bytes_worth_compiling = worth;
  cuda::table_unrolled_columns = columns;
  return CountMissing(kinds, draws) + CountMissing(sums_kinds, draws) + CountMissing(table_kinds, draws) +
         CountMissing(put_kinds, draws);
}

}  // namespace
}  // namespace poolgrad

int main(int count, char** arguments) {
  using namespace poolgrad;
  const int forms = count > 1 ? std::atoi(arguments[1]) : 30;
  std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  const std::string architecture = count > 3 ? arguments[3] : "sm_90";
  if (const char* reason = cuda::RefuseCompiling()) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int made = 0, failed = CountKinds(900);  // about as many as check.cu compiles for, of 3000
  double longest = 0, all = 0;
  size_t largest = 0;
  while (made < forms) {
    poolgrad_problem raw;
    poolgrad_problem_init(&raw);
    const int dtypes[] = {POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_F16};
    raw.dtype = dtypes[pick(0, 2)];
    raw.layout = static_cast<int32_t>(pick(0, 1));
    raw.rank = static_cast<int32_t>(pick(1, 3));
    raw.channels = pick(0, 1) ? 8 * pick(1, 8) : pick(1, 9);
    raw.relu = pick(0, 5) == 0;
    for (int i = 0; i < raw.rank; ++i) {
      raw.kernel[i] = pick(1, raw.rank == 3 ? 4 : 9);
      raw.stride[i] = pick(1, raw.kernel[i] + 1);
      raw.dilation[i] = pick(0, 3) ? 1 : pick(1, 3);
      raw.pad_lo[i] = raw.pad_hi[i] = pick(0, raw.kernel[i] / 2);
      raw.in[i] = pick(0, 1) ? 4 * raw.stride[i] * pick(8, 20) : pick(32, 400);
    }
    Random drawn(random());
    Lists lists;
    const bool table = made % 4 == 3;
    if (table) raw = RandomProblem(drawn, lists);
    const Result<Problem> problem = Resolve(raw);
    if (!problem.ok()) continue;
    const poolgrad_op ops[] = {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES, POOLGRAD_OP_BACKWARD};
    const poolgrad_op op = ops[pick(0, 2)];
    cuda::march_always = made % 3 == 0;
    std::string source;
    const char* kind = "sums";
    cuda::SumsParams sums;
    if (table) {
      const int64_t worth = std::exchange(cuda::bytes_worth_compiling, 0);
      const auto form = TableFormOf(*problem, op);
      cuda::bytes_worth_compiling = worth;
      if (!form) continue;
      source = cuda::SourceOf(problem->dtype, *form);
      kind = "tables";
    } else if (made % 5 == 4 && op == POOLGRAD_OP_BACKWARD && cuda::PrepareSums(*problem, true, &sums).blocks > 0) {
      source = cuda::SourceOf(problem->dtype, sums.form);
    } else if (const auto form = cuda::FormOf(*problem, op)) {
      source = cuda::SourceOf(problem->dtype, op, *form);
      kind = form->marches() ? "march" : op == POOLGRAD_OP_BACKWARD ? "cells" : "strips";
    } else {
      continue;
    }
    ++made;
    std::string why;
    const auto begin = std::chrono::steady_clock::now();
    const std::string code = cuda::CodeOf(source, architecture, &why);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    all += seconds, longest = std::max(longest, seconds), largest = std::max(largest, code.size());
    if (code.empty()) {
      ++failed;
      std::printf("FAILED %s of %s\n%s\n", Name(op), FormatProblem(raw).c_str(), why.c_str());
    }
    if (std::getenv("POOLGRAD_VERBOSE")) {
      std::printf("%5.2f s %7zu bytes  %s  %s  %s\n", seconds, code.size(), kind, Name(op), FormatProblem(raw).c_str());
    }
  }
  std::printf("%d forms, %d failed; %.2f s each, at most %.2f s and %zu bytes\n", made, failed, all / made, longest,
              largest);
  return failed != 0;
}
