// Malformed calls: each gets a status and a full sentence, and changes nothing. Outputs are poisoned before every call
// and must still be poison after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/pool.h"

namespace poolgrad::oracle {
namespace {

constexpr unsigned char kPoison = 0xA5;

poolgrad_problem Good() {
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  p.in[0] = p.in[1] = 6;
  p.kernel[0] = p.kernel[1] = 2;
  p.stride[0] = p.stride[1] = 2;
  return p;
}

// Runs a call that must fail: with this status, and with a sentence that contains `part`.
template <class Call>
void ExpectRefusal(poolgrad_status status, const std::string& part, Call&& call) {
  ASSERT_EQ(call(), status) << "expected a refusal about '" << part << "'";
  const std::string sentence = poolgrad_last_error();
  EXPECT_NE(sentence.find(part), std::string::npos) << "'" << sentence << "' lacks '" << part << "'";
  EXPECT_GT(sentence.size(), 15u) << "a full sentence";
}

class Malformed : public testing::Test {
 protected:
  void SetUp() override {
    const poolgrad_problem p = Good();
    ASSERT_EQ(poolgrad_plan_create(&p, nullptr, &plan_), POOLGRAD_OK) << poolgrad_last_error();
    std::memset(out_, kPoison, sizeof out_);
    std::memset(routes_, 0, sizeof routes_);
  }
  void TearDown() override {
    EXPECT_TRUE(std::all_of(std::begin(out_), std::end(out_), [](unsigned char b) { return b == kPoison; }))
        << "a call that failed wrote something";
    poolgrad_plan_destroy(plan_);
  }

  poolgrad_plan* plan_ = nullptr;
  float x_[36] = {};
  unsigned char out_[1024];
  unsigned char routes_[64];
};

TEST_F(Malformed, ProblemsLeaveThePlanPointerAlone) {
  struct Case {
    const char* part;
    void (*change)(poolgrad_problem&);
  };
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  const Case cases[] = {
      {"stride[0] is 0; every stride must be at least 1", [](poolgrad_problem& p) { p.stride[0] = 0; }},
      {"stride[1] is -2; every stride must be at least 1", [](poolgrad_problem& p) { p.stride[1] = -2; }},
      {"kernel[0] is 0", [](poolgrad_problem& p) { p.kernel[0] = 0; }},
      {"kernel[0] is -1", [](poolgrad_problem& p) { p.kernel[0] = -1; }},
      {"dilation[1] is 0", [](poolgrad_problem& p) { p.dilation[1] = 0; }},
      {"dilation[0] is 2147483647", [](poolgrad_problem& p) { p.dilation[0] = 2147483647, p.kernel[0] = 1 << 20; }},
      {"2147483648, longer than the padded input", [](poolgrad_problem& p) { p.dilation[0] = 2147483647; }},
      {"dilation[0] is 9223372036854775807", [](poolgrad_problem& p) { p.dilation[0] = kMax; }},
      {"pad_lo[0] is 9223372036854775807", [](poolgrad_problem& p) { p.pad_lo[0] = kMax; }},
      {"pad_hi[1] is 9223372036854775807", [](poolgrad_problem& p) { p.pad_hi[1] = kMax; }},
      {"pad_hi[1] is -9223372036854775808", [](poolgrad_problem& p) { p.pad_hi[1] = -kMax - 1; }},
      {"more than 2^60", [](poolgrad_problem& p) { p.batch = p.channels = int64_t{1} << 31; }},
      {"more than 2^60", [](poolgrad_problem& p) { p.batch = kMax; }},
      {"in[0] is 9223372036854775807", [](poolgrad_problem& p) { p.in[0] = kMax; }},
      {"in[1] is -4", [](poolgrad_problem& p) { p.in[1] = -4; }},
      {"in[1] is 0", [](poolgrad_problem& p) { p.in[1] = 0; }},
      {"longer than the padded input", [](poolgrad_problem& p) { p.kernel[1] = 7; }},
      {"struct_size is 0", [](poolgrad_problem& p) { p.struct_size = 0; }},
      {"struct_size is 4096", [](poolgrad_problem& p) { p.struct_size = 4096; }},
      {"rank is 0", [](poolgrad_problem& p) { p.rank = 0; }},
      {"dtype is 99", [](poolgrad_problem& p) { p.dtype = 99; }},
      {"route_bits is 2", [](poolgrad_problem& p) { p.kernel[0] = 3, p.route_bits = 2; }},
  };
  for (const Case& c : cases) {
    poolgrad_problem problem = Good();
    c.change(problem);
    poolgrad_plan* untouched = reinterpret_cast<poolgrad_plan*>(&problem);
    poolgrad_plan* plan = untouched;
    ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, c.part, [&] { return poolgrad_plan_create(&problem, nullptr, &plan); });
    EXPECT_EQ(plan, untouched) << c.part;
  }
}

TEST_F(Malformed, HugeProblemsThatAreNotWrongAreMerelyPlanned) {
  poolgrad_problem p = Good();
  p.batch = int64_t{1} << 40;  // past 2^31 elements, and nothing is allocated for it
  poolgrad_plan* plan = nullptr;
  ASSERT_EQ(poolgrad_plan_create(&p, nullptr, &plan), POOLGRAD_OK) << poolgrad_last_error();
  poolgrad_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(poolgrad_plan_info(plan, &info), POOLGRAD_OK);
  EXPECT_EQ(info.x_elements, 36 * (int64_t{1} << 40));
  poolgrad_plan_destroy(plan);
  // One window over more inputs than 32 bits count: what layouts estimate stays within 64.
  EXPECT_EQ(Plan("max f32 ncw 1x1x4200000000 k4200000000").info().y_elements, 1);
}

TEST_F(Malformed, NullPointers) {
  float y[9];
  const auto refused = POOLGRAD_INVALID_ARGUMENT;
  poolgrad_problem p = Good();
  ExpectRefusal(refused, "problem is null", [&] { return poolgrad_plan_create(nullptr, nullptr, &plan_); });
  ExpectRefusal(refused, "plan is null", [&] { return poolgrad_plan_create(&p, nullptr, nullptr); });
  ExpectRefusal(refused, "text is null", [&] { return poolgrad_problem_parse(nullptr, &p); });
  ExpectRefusal(refused, "problem is null", [&] { return poolgrad_problem_parse("max f32 ncw 1x1x3 k2", nullptr); });
  ExpectRefusal(refused, "problem is null", [&] { return poolgrad_problem_format(nullptr, nullptr, 0, nullptr); });
  ExpectRefusal(refused, "plan is null", [&] { return poolgrad_forward(nullptr, x_, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "x is null", [&] { return poolgrad_forward(plan_, nullptr, out_, out_ + 512, nullptr); });
  ExpectRefusal(refused, "y is null", [&] { return poolgrad_forward(plan_, x_, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "dy is null", [&] { return poolgrad_backward(plan_, nullptr, routes_, out_, nullptr); });
  ExpectRefusal(refused, "routes is null", [&] { return poolgrad_backward(plan_, x_, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "dx is null", [&] { return poolgrad_backward(plan_, x_, routes_, nullptr, nullptr); });
  ExpectRefusal(refused, "x is null", [&] { return poolgrad_backward_x(plan_, x_, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "tx is null", [&] { return poolgrad_gather(plan_, nullptr, routes_, out_, nullptr); });
  ExpectRefusal(refused, "routes is null", [&] { return poolgrad_gather(plan_, x_, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "ty is null", [&] { return poolgrad_gather(plan_, x_, routes_, nullptr, nullptr); });
  ExpectRefusal(refused, "y is null", [&] { return poolgrad_unpool(plan_, nullptr, routes_, out_, nullptr); });
  ExpectRefusal(refused, "routes is null", [&] { return poolgrad_unpool(plan_, y, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "info is null", [&] { return poolgrad_plan_info(plan_, nullptr); });
  ExpectRefusal(refused, "bytes is null",
                [&] { return poolgrad_plan_scratch_bytes(plan_, POOLGRAD_OP_FORWARD, 1, nullptr); });
  ExpectRefusal(refused, "row_start is null",
                [&] { return poolgrad_jacobian(plan_, routes_, nullptr, nullptr, nullptr); });
  ExpectRefusal(refused, "indices is null",
                [&] { return poolgrad_routes_to_indices(plan_, routes_, POOLGRAD_INDEX_TORCH, nullptr, nullptr); });
  ExpectRefusal(refused, "indices is null",
                [&] { return poolgrad_routes_from_indices(plan_, nullptr, POOLGRAD_INDEX_TORCH, out_); });
  poolgrad_problem_init(nullptr);
  EXPECT_EQ(poolgrad_plan_algorithm(nullptr, POOLGRAD_OP_FORWARD), nullptr);
}

TEST_F(Malformed, MismatchedStructSizes) {
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec - 8;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "exec.struct_size is",
                [&] { return poolgrad_forward(plan_, x_, out_, nullptr, &exec); });
  poolgrad_info info = {};
  info.struct_size = 1;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "info.struct_size is 1", [&] { return poolgrad_plan_info(plan_, &info); });
  EXPECT_EQ(info.x_elements, 0);
  poolgrad_plan_options options = {};
  const poolgrad_problem p = Good();
  poolgrad_plan* plan = nullptr;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "options.struct_size is 0",
                [&] { return poolgrad_plan_create(&p, &options, &plan); });
  options.struct_size = sizeof options;
  options.never_compile = 2;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "options.never_compile is 2; it must be 0 or 1",
                [&] { return poolgrad_plan_create(&p, &options, &plan); });
  options.never_compile = 1, options.reserved = -1;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "options.reserved is -1",
                [&] { return poolgrad_plan_create(&p, &options, &plan); });
}

TEST_F(Malformed, ExecValues) {
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec;
  exec.threads = -1;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "threads is -1",
                [&] { return poolgrad_forward(plan_, x_, out_, nullptr, &exec); });
  exec.threads = 1000000;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "threads is 1000000",
                [&] { return poolgrad_forward(plan_, x_, out_, nullptr, &exec); });
  uint64_t bytes = 7;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "threads is -5",
                [&] { return poolgrad_plan_scratch_bytes(plan_, POOLGRAD_OP_FORWARD, -5, &bytes); });
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "op is 7",
                [&] { return poolgrad_plan_scratch_bytes(plan_, static_cast<poolgrad_op>(7), 1, &bytes); });
  EXPECT_EQ(bytes, 7u);
}

TEST_F(Malformed, ReservedFieldsAreZero) {
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec;
  exec.reserved = 3;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "exec.reserved is 3; it must be 0",
                [&] { return poolgrad_forward(plan_, x_, out_, nullptr, &exec); });
  poolgrad_problem p = Good();
  p.reserved = -1;
  poolgrad_plan* plan = nullptr;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "reserved is -1; it must be 0",
                [&] { return poolgrad_plan_create(&p, nullptr, &plan); });
}

TEST_F(Malformed, AnEnvironmentThatIsNoNumberOfThreads) {
  for (const char* value : {"99999999999", "0", "-1", "many", "2 ", "4097", "1e3", "\x1b[2J"}) {
    setenv("POOLGRAD_THREADS", value, 1);
    ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "the environment variable POOLGRAD_THREADS is '",
                  [&] { return poolgrad_forward(plan_, x_, out_, nullptr, nullptr); });
    EXPECT_EQ(std::strchr(poolgrad_last_error(), '\x1b'), nullptr);
    uint64_t bytes;
    ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "it must be a number from 1 to 4096",
                  [&] { return poolgrad_plan_scratch_bytes(plan_, POOLGRAD_OP_FORWARD, 0, &bytes); });
    EXPECT_GE(poolgrad_default_threads(), 1) << value;
    EXPECT_LE(poolgrad_default_threads(), 4096) << value;
    float y[9];
    poolgrad_exec exec = {};
    exec.struct_size = sizeof exec;
    exec.threads = 1;
    EXPECT_EQ(poolgrad_forward(plan_, x_, y, nullptr, &exec), POOLGRAD_OK) << "a caller who says how many is not asked";
  }
  unsetenv("POOLGRAD_THREADS");
}

// Every pair of arrays of a call of which one is written, by its first and by its last byte.
TEST_F(Malformed, ArraysThatOverlap) {
  const Plan plan(Problem(Good()), "reference");
  const auto x_bytes = static_cast<size_t>(plan.info().x_bytes), y_bytes = static_cast<size_t>(plan.info().y_bytes);
  const auto route_bytes = static_cast<size_t>(plan.info().route_bytes);
  alignas(64) unsigned char memory[2048], before[2048];
  unsigned char* const middle = memory + 1024;
  std::memset(memory, 1, sizeof memory);
  std::memcpy(before, memory, sizeof memory);
  const auto refused = [&](const char* sentence, auto&& call) {
    ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, sentence, call);
    EXPECT_EQ(std::memcmp(memory, before, sizeof memory), 0) << sentence << ": something was written";
  };
  const auto raw = plan.raw();
  for (const bool below : {true, false}) {
    const auto beside = [&](size_t own, size_t other) { return below ? middle - own + 4 : middle + other - 4; };
    const auto touching = [&](size_t own, size_t other) { return below ? middle - own : middle + other; };
    refused("y and x overlap; y is written",
            [&] { return poolgrad_forward(raw, middle, beside(y_bytes, x_bytes), nullptr, nullptr); });
    refused("routes and x overlap; routes is written",
            [&] { return poolgrad_forward(raw, middle, out_, beside(route_bytes, x_bytes), nullptr); });
    refused("y and routes overlap; y is written",
            [&] { return poolgrad_forward(raw, x_, middle, beside(route_bytes, y_bytes), nullptr); });
    refused("dx and dy overlap; dx is written",
            [&] { return poolgrad_backward(raw, middle, routes_, beside(x_bytes, y_bytes), nullptr); });
    refused("dx and routes overlap",
            [&] { return poolgrad_backward(raw, x_, beside(route_bytes, x_bytes), middle, nullptr); });
    refused("dx and x overlap",
            [&] { return poolgrad_backward_x(raw, x_, beside(x_bytes, x_bytes), middle, nullptr); });
    refused("ty and tx overlap",
            [&] { return poolgrad_gather(raw, middle, routes_, beside(y_bytes, x_bytes), nullptr); });
    refused("x and y overlap; x is written",
            [&] { return poolgrad_unpool(raw, middle, routes_, beside(x_bytes, y_bytes), nullptr); });
    poolgrad_exec exec = {};
    exec.struct_size = sizeof exec;
    exec.threads = 1;
    exec.scratch = middle;
    exec.scratch_bytes = plan.scratch_bytes(POOLGRAD_OP_BACKWARD_X, 1);
    refused("scratch and x overlap; scratch is written",
            [&] { return poolgrad_backward_x(raw, x_, beside(x_bytes, exec.scratch_bytes), out_, &exec); });
    refused("dx and scratch overlap; dx is written",
            [&] { return poolgrad_backward_x(raw, x_, x_, beside(x_bytes, exec.scratch_bytes), &exec); });
    auto* const words = reinterpret_cast<int64_t*>(middle);
    refused("indices and routes overlap", [&] {
      return poolgrad_routes_to_indices(raw, below ? middle - route_bytes + 1 : middle + 71, POOLGRAD_INDEX_TORCH,
                                        words, nullptr);
    });
    refused("routes and indices overlap", [&] {
      return poolgrad_routes_from_indices(raw, words, POOLGRAD_INDEX_TORCH,
                                          below ? middle - route_bytes + 1 : middle + 71);
    });
    refused("x and indices overlap", [&] {
      return poolgrad_unpool_indices(raw, x_, words, POOLGRAD_INDEX_TORCH, nullptr, beside(x_bytes, 72));
    });
    refused("row_start and routes overlap", [&] {
      return poolgrad_jacobian(raw, below ? middle - route_bytes + 1 : middle + 79, words, nullptr, nullptr);
    });
    int64_t rows[10], columns[9];
    refused("columns and routes overlap", [&] {
      return poolgrad_jacobian(raw, below ? middle - route_bytes + 1 : middle + 71, rows, words, nullptr);
    });
    refused("columns and values overlap",
            [&] { return poolgrad_jacobian(raw, routes_, rows, words, reinterpret_cast<double*>(words + 8)); });
    refused("row_start and values overlap",
            [&] { return poolgrad_jacobian(raw, routes_, words, columns, reinterpret_cast<double*>(words + 9)); });
    // Arrays that touch do not overlap, and what is only read may.
    EXPECT_EQ(poolgrad_forward(raw, middle, touching(y_bytes, x_bytes), nullptr, nullptr), POOLGRAD_OK)
        << poolgrad_last_error();
    float dx[36];
    EXPECT_EQ(poolgrad_backward_x(raw, x_, x_, dx, nullptr), POOLGRAD_OK) << poolgrad_last_error();
    std::memcpy(memory, before, sizeof memory);
  }
}

TEST_F(Malformed, ABiasInTheWrongPlace) {
  const auto refused = POOLGRAD_INVALID_ARGUMENT;
  ExpectRefusal(refused, "the plan's problem has no bias",
                [&] { return poolgrad_forward_bias(plan_, x_, x_, out_, nullptr, nullptr); });
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "the operation bias_gradient is not to be had: the problem has no bias",
                [&] { return poolgrad_bias_gradient(plan_, x_, routes_, out_, nullptr); });
  ExpectRefusal(refused, "plan is null",
                [&] { return poolgrad_forward_bias(nullptr, x_, x_, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "plan is null", [&] { return poolgrad_bias_gradient(nullptr, x_, routes_, out_, nullptr); });

  poolgrad_problem p = Good();
  p.bias = 1;
  poolgrad_plan* none = nullptr;
  const auto create = [&] { return poolgrad_plan_create(&p, nullptr, &none); };
  ExpectRefusal(refused, "bias is 1; a bias goes with relu", create);
  p.relu = 1, p.bias = 2;
  ExpectRefusal(refused, "bias is 2; it must be 0 (no) or 1 (yes)", create);
  p.bias = 1, p.dtype = POOLGRAD_I32;
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "dtype is i32; a bias takes f32, f64, f16 and bf16", create);
  p.dtype = POOLGRAD_F32, p.reserved3 = 1;
  ExpectRefusal(refused, "reserved3 is 1", create);
  p.reserved3 = 0;
  const int64_t parts[] = {1, 1}, all[] = {0, 6}, at[] = {0, 0};
  const int64_t* cuts[] = {all, all};
  poolgrad_shard shard = {};
  shard.struct_size = sizeof shard;
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "the problem has a bias; add it before",
                [&] { return poolgrad_shard_of(&p, parts, cuts, at, &shard, nullptr, nullptr); });

  const Plan plan{Problem(p)};
  const auto raw = plan.raw();
  float bias[1] = {1}, y[9];
  ExpectRefusal(refused, "the plan's problem has a bias; give it to poolgrad_forward_bias",
                [&] { return poolgrad_forward(raw, x_, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "bias is null",
                [&] { return poolgrad_forward_bias(raw, x_, nullptr, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "x is null",
                [&] { return poolgrad_forward_bias(raw, nullptr, bias, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "y and bias overlap; y is written",
                [&] { return poolgrad_forward_bias(raw, x_, out_ + 32, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "routes and bias overlap; routes is written",
                [&] { return poolgrad_forward_bias(raw, x_, out_, y, out_ + 2, nullptr); });
  ExpectRefusal(refused, "dy is null", [&] { return poolgrad_bias_gradient(raw, nullptr, routes_, out_, nullptr); });
  ExpectRefusal(refused, "routes is null", [&] { return poolgrad_bias_gradient(raw, x_, nullptr, out_, nullptr); });
  ExpectRefusal(refused, "dbias is null", [&] { return poolgrad_bias_gradient(raw, x_, routes_, nullptr, nullptr); });
  ExpectRefusal(refused, "dbias and dy overlap; dbias is written",
                [&] { return poolgrad_bias_gradient(raw, out_, routes_, out_ + 32, nullptr); });
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "keep the routes of poolgrad_forward_bias and use backward",
                [&] { return poolgrad_backward_x(raw, y, x_, out_, nullptr); });
}

TEST_F(Malformed, WhatACallersLoopThrowsIsCaught) {
  const Plan plan("max f32 nchw 4x16x64x64 k3 s2 p1");
  const std::vector<float> x(static_cast<size_t>(plan.info().x_elements));
  std::vector<float> y(static_cast<size_t>(plan.info().y_elements));
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec;
  exec.threads = 4;
  exec.parallel_for = [](void*, int64_t, poolgrad_task_fn, void*) { throw 7; };
  ExpectRefusal(POOLGRAD_INTERNAL_ERROR, "thrown",
                [&] { return poolgrad_forward(plan.raw(), x.data(), y.data(), nullptr, &exec); });
}

TEST_F(Malformed, ALongSentenceIsCutNotLost) {
  poolgrad_problem p = Good();
  const std::string text = "max f32 ncw 1x1x3 " + std::string(5000, 'q');
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "the word 'qqqq", [&] { return poolgrad_problem_parse(text.c_str(), &p); });
  const std::string sentence = poolgrad_last_error();
  EXPECT_EQ(sentence.size(), 1023u);
  EXPECT_EQ(sentence.substr(1020), "...");
}

TEST_F(Malformed, SentencesNameWhatAPointerShouldPointTo) {
  poolgrad_plan* plan = nullptr;
  const auto refused = POOLGRAD_INVALID_ARGUMENT;
  ExpectRefusal(refused, "problem is null; it must point to a poolgrad_problem",
                [&] { return poolgrad_plan_create(nullptr, nullptr, &plan); });
  ExpectRefusal(refused, "plan is null; it must be a plan made by",
                [&] { return poolgrad_forward(nullptr, x_, out_, nullptr, nullptr); });
  ExpectRefusal(refused, "info is null; it must point to a poolgrad_info",
                [&] { return poolgrad_plan_info(plan_, nullptr); });
}

TEST_F(Malformed, ScratchThatIsTooSmallOrCrooked) {
  // Forced to the reference, backward_x needs scratch on every machine.
  const Plan plan(Problem(Good()), "reference");
  const uint64_t needed = plan.scratch_bytes(POOLGRAD_OP_BACKWARD_X, 1);
  ASSERT_GT(needed, 0u);
  alignas(64) unsigned char scratch[4096];
  poolgrad_exec exec = {};
  exec.struct_size = sizeof exec;
  exec.threads = 1;
  exec.scratch = scratch;
  exec.scratch_bytes = needed - 1;
  const float dy[9] = {};
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "scratch_bytes is",
                [&] { return poolgrad_backward_x(plan.raw(), dy, x_, out_, &exec); });
  exec.scratch = scratch + 1;
  exec.scratch_bytes = sizeof scratch - 1;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "aligned",
                [&] { return poolgrad_backward_x(plan.raw(), dy, x_, out_, &exec); });
}

TEST_F(Malformed, TextBuffers) {
  const poolgrad_problem p = Good();
  auto* text = reinterpret_cast<char*>(out_);
  size_t needed = 0;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "capacity is 5",
                [&] { return poolgrad_problem_format(&p, text, 5, &needed); });
  EXPECT_GT(needed, 5u) << "the size that would do is told all the same";
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "capacity is 1",
                [&] { return poolgrad_plan_explain(plan_, text, 1, nullptr); });
  poolgrad_problem parsed = p;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "'f33'",
                [&] { return poolgrad_problem_parse("max f33 ncw 1x1x3 k2", &parsed); });
  EXPECT_EQ(std::memcmp(&parsed, &p, sizeof p), 0);
}

TEST_F(Malformed, IndicesThatNameNoTapOfTheirWindow) {
  std::vector<int64_t> good = {0, 2, 4, 12, 14, 16, 24, 26, 28};
  unsigned char routes[64];
  ASSERT_EQ(poolgrad_routes_from_indices(plan_, good.data(), POOLGRAD_INDEX_TORCH, routes), POOLGRAD_OK);
  for (const int64_t bad : {int64_t{2}, int64_t{-1}, int64_t{-2}, int64_t{36}, int64_t{1} << 62,
                            std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    for (const auto numbering : {POOLGRAD_INDEX_TORCH, POOLGRAD_INDEX_TENSORFLOW, POOLGRAD_INDEX_TENSORFLOW_BATCH,
                                 POOLGRAD_INDEX_ONNX, POOLGRAD_INDEX_ONNX_COLUMN}) {
      std::vector<int64_t> indices(9, bad);
      ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "indices[0] is " + std::to_string(bad),
                    [&] { return poolgrad_routes_from_indices(plan_, indices.data(), numbering, out_); });
    }
  }
  good[7] = 0;
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "indices[7] is 0",
                [&] { return poolgrad_routes_from_indices(plan_, good.data(), POOLGRAD_INDEX_TORCH, out_); });
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "numbering is 5", [&] {
    return poolgrad_routes_from_indices(plan_, good.data(), static_cast<poolgrad_numbering>(5), out_);
  });
}

// Four taps in two bits: no code is left to say that nobody won. The last of the part's windows lies outside it.
TEST_F(Malformed, NoRouteForAWindowInsideAPart) {
  poolgrad_problem p;
  ASSERT_EQ(poolgrad_problem_parse("max f32 ncw 1x1x8 k4 s2 p0:4 part=0/16:0:0", &p), POOLGRAD_OK);
  poolgrad_plan* plan = nullptr;
  ASSERT_EQ(poolgrad_plan_create(&p, nullptr, &plan), POOLGRAD_OK);
  unsigned char routes[2];
  const int64_t outside[] = {3, 5, 7, 7, -1}, inside[] = {3, -1, 7, 7, -1};
  EXPECT_EQ(poolgrad_routes_from_indices(plan, outside, POOLGRAD_INDEX_TORCH, routes), POOLGRAD_OK);
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "indices[1] is -1",
                [&] { return poolgrad_routes_from_indices(plan, inside, POOLGRAD_INDEX_TORCH, out_); });
  poolgrad_plan_destroy(plan);
}

TEST_F(Malformed, UnpoolIndicesOutsideTheTensor) {
  const float y[9] = {};
  for (const int64_t bad :
       {int64_t{36}, int64_t{-2}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    std::vector<int64_t> indices(9, 0);
    indices[8] = bad;
    ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "indices[8] is " + std::to_string(bad), [&] {
      return poolgrad_unpool_indices(plan_, y, indices.data(), POOLGRAD_INDEX_TORCH, nullptr, out_);
    });
  }
  const std::vector<int64_t> zeros(9, 0);
  const int64_t larger[] = {6, 7};
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "index_shape[1] is 7",
                [&] { return poolgrad_unpool_indices(plan_, y, zeros.data(), POOLGRAD_INDEX_TORCH, larger, out_); });
  const int64_t none[] = {0, 6};
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "index_shape[0] is 0",
                [&] { return poolgrad_unpool_indices(plan_, y, zeros.data(), POOLGRAD_INDEX_ONNX, none, out_); });
}

TEST_F(Malformed, IndicesIntoAnEmptyInput) {
  // jax pads an empty input into windows that see padding only: there is nothing an index could name.
  const Plan plan("max f32 nchw 1x1x0x3 k1 s1 p1x0 jax");
  ASSERT_EQ(plan.info().y_elements, 6);
  const float y[6] = {};
  for (const auto numbering :
       {Numbering::torch, Numbering::tensorflow_batch, Numbering::onnx, Numbering::onnx_column}) {
    const Indices zeros(6, 0);
    EXPECT_THROW((void)plan.routes_from(zeros, numbering), Error);
    EXPECT_THROW((void)plan.unpool_indices(y, zeros, numbering), Error);
    EXPECT_EQ(plan.indices(plan.routes_from(Indices(6, -1), numbering), numbering), Indices(6, -1));
    EXPECT_EQ(poolgrad_unpool_indices(plan.raw(), y, Indices(6, -1).data(), static_cast<poolgrad_numbering>(numbering),
                                      nullptr, nullptr),
              POOLGRAD_OK)
        << "an array of no element may be null";
  }
}

TEST_F(Malformed, OperationsThatAProblemDoesNotHave) {
  const Plan average("avg f32 nchw 1x1x6x6 k2");
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "average",
                [&] { return poolgrad_forward(average.raw(), x_, out_, out_ + 512, nullptr); });
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "average",
                [&] { return poolgrad_gather(average.raw(), x_, routes_, out_, nullptr); });
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "average",
                [&] { return poolgrad_unpool(average.raw(), x_, routes_, out_, nullptr); });
  auto* indices = reinterpret_cast<int64_t*>(out_);
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "average", [&] {
    return poolgrad_routes_to_indices(average.raw(), routes_, POOLGRAD_INDEX_ONNX, indices, nullptr);
  });
  const Plan integers("max i8 nchw 1x1x6x6 k2");
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "integer",
                [&] { return poolgrad_backward(integers.raw(), x_, routes_, out_, nullptr); });
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "integer",
                [&] { return poolgrad_backward_x(integers.raw(), x_, x_, out_, nullptr); });
  const Plan sets("max f32 nchw 1x1x6x6 k2 ties=all");
  ExpectRefusal(POOLGRAD_UNSUPPORTED, "ties",
                [&] { return poolgrad_routes_to_indices(sets.raw(), routes_, POOLGRAD_INDEX_ONNX, indices, nullptr); });
}

TEST_F(Malformed, UnknownAlgorithmAndMissingDevice) {
  EXPECT_THROW(Plan(Problem(Good()), "quicksort"), Error);
  if (!poolgrad_has_cuda()) {
    poolgrad_problem p = Good();
    p.device = POOLGRAD_CUDA;
    poolgrad_plan* plan = nullptr;
    ExpectRefusal(POOLGRAD_UNSUPPORTED, "no CUDA", [&] { return poolgrad_plan_create(&p, nullptr, &plan); });
  }
}

TEST_F(Malformed, TheLastErrorBelongsToItsThreadAndStays) {
  ExpectRefusal(POOLGRAD_INVALID_ARGUMENT, "x is null",
                [&] { return poolgrad_forward(plan_, nullptr, out_, nullptr, nullptr); });
  float y[9];
  ASSERT_EQ(poolgrad_forward(plan_, x_, y, nullptr, nullptr), POOLGRAD_OK);
  EXPECT_NE(std::string(poolgrad_last_error()).find("x is null"), std::string::npos);
}

}  // namespace
}  // namespace poolgrad::oracle
