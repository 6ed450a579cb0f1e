// Structs that grow: callers compiled with an older version have shorter ones, callers of a newer version longer ones.
// The structs of version 1.0 are kept here as they were, byte for byte; a program that has them must work for ever.
#include "capi/sized.h"

#include <gtest/gtest.h>

#include <cstring>

#include "poolgrad/poolgrad.h"

namespace {

struct Problem10 {
  uint64_t struct_size;
  int32_t kind, dtype, layout, dialect, rank, padding, rounding, ties, nan, route_bits, count_padding, device,
      device_index, reserved;
  int64_t divisor, batch, channels, in[3], kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
};
struct Options10 {
  uint64_t struct_size;
  const char* algorithm;
};
struct Info10 {
  uint64_t struct_size;
  int64_t out[3], pad_lo[3], pad_hi[3], x_elements, y_elements, x_bytes, y_bytes, taps;
  int32_t route_bits, route_masks;
  int64_t route_bytes;
  int32_t may_have_no_route, ties, nan, rounding;
};
struct Exec10 {
  uint64_t struct_size;
  int32_t threads, reserved;
  void (*parallel_for)(void*, int64_t, void (*)(void*, int64_t), void*);
  void *parallel_for_context, *scratch;
  uint64_t scratch_bytes;
  void* stream;
};
static_assert(sizeof(Problem10) == 232 && sizeof(Options10) == 16 && sizeof(Info10) == 152 && sizeof(Exec10) == 56);
static_assert(offsetof(Problem10, pad_hi) == offsetof(poolgrad_problem, pad_hi));
static_assert(offsetof(Problem10, reserved) == offsetof(poolgrad_problem, reserved));
static_assert(offsetof(Info10, rounding) == offsetof(poolgrad_info, rounding));
static_assert(offsetof(Exec10, stream) == offsetof(poolgrad_exec, stream));

template <class T>
struct Fenced {  // what lies behind a struct is not the library's
  T value;
  uint64_t fence = 0x5A5A5A5A5A5A5A5A;
  bool Intact() const { return fence == 0x5A5A5A5A5A5A5A5A; }
};

template <class T>
T* As(void* pointer) {
  return static_cast<T*>(pointer);
}

TEST(Sized, AProgramOfVersionOneWorks) {
  Fenced<Problem10> problem{};
  (poolgrad_problem_init)(As<poolgrad_problem>(&problem.value));
  EXPECT_TRUE(problem.Intact());
  EXPECT_EQ(problem.value.struct_size, sizeof(Problem10));
  EXPECT_EQ(problem.value.rank, 2);
  EXPECT_EQ(problem.value.count_padding, -1);
  ASSERT_EQ((poolgrad_problem_parse)("max f32 ncw 1x1x4 k2", As<poolgrad_problem>(&problem.value)), POOLGRAD_OK);
  EXPECT_TRUE(problem.Intact());
  EXPECT_EQ(problem.value.struct_size, sizeof(Problem10));
  EXPECT_EQ(problem.value.kernel[0], 2);

  Options10 options{sizeof options, "reference"};
  poolgrad_plan* plan = nullptr;
  ASSERT_EQ(poolgrad_plan_create(As<poolgrad_problem>(&problem.value), As<poolgrad_plan_options>(&options), &plan),
            POOLGRAD_OK)
      << poolgrad_last_error();
  Fenced<Info10> info{};
  info.value.struct_size = sizeof info.value;
  ASSERT_EQ(poolgrad_plan_info(plan, As<poolgrad_info>(&info.value)), POOLGRAD_OK) << poolgrad_last_error();
  EXPECT_TRUE(info.Intact());
  EXPECT_EQ(info.value.struct_size, sizeof(Info10));
  EXPECT_EQ(info.value.y_elements, 2);
  EXPECT_EQ(info.value.rounding, POOLGRAD_ROUND_FLOOR);

  Exec10 exec{};
  exec.struct_size = sizeof exec;
  exec.threads = 1;
  const float x[] = {1, 4, 3, 2};
  float y[2] = {};
  ASSERT_EQ(poolgrad_forward(plan, x, y, nullptr, As<poolgrad_exec>(&exec)), POOLGRAD_OK) << poolgrad_last_error();
  EXPECT_EQ(y[0], 4);
  EXPECT_EQ(y[1], 3);
  poolgrad_plan_destroy(plan);
}

// As if the next version had appended two fields to each struct.
template <class T>
struct Newer {
  T known;
  int64_t flag = 0;
  double factor = 0;
};

TEST(Sized, ANewerCallerMayAskForNothingNew) {
  Newer<poolgrad_problem> problem;
  poolgrad_problem_init_sized(&problem.known, sizeof problem);
  EXPECT_EQ(problem.known.struct_size, sizeof problem);
  ASSERT_EQ(poolgrad_problem_parse_sized("max f32 ncw 1x1x4 k2", &problem.known, sizeof problem), POOLGRAD_OK);
  EXPECT_EQ(problem.known.struct_size, sizeof problem);
  Newer<poolgrad_plan_options> options{};
  options.known.struct_size = sizeof options;
  poolgrad_plan* plan = nullptr;
  ASSERT_EQ(poolgrad_plan_create(&problem.known, &options.known, &plan), POOLGRAD_OK) << poolgrad_last_error();
  Newer<poolgrad_info> info{};
  info.known.struct_size = sizeof info;
  info.flag = 7;
  ASSERT_EQ(poolgrad_plan_info(plan, &info.known), POOLGRAD_OK) << poolgrad_last_error();
  EXPECT_EQ(info.known.y_elements, 2);
  EXPECT_EQ(info.flag, 0) << "what this version does not know is 0";
  Newer<poolgrad_exec> exec{};
  exec.known.struct_size = sizeof exec;
  const float x[] = {1, 4, 3, 2};
  float y[2] = {};
  EXPECT_EQ(poolgrad_forward(plan, x, y, nullptr, &exec.known), POOLGRAD_OK) << poolgrad_last_error();

  exec.factor = 0.5;
  y[0] = 99;
  EXPECT_EQ(poolgrad_forward(plan, x, y, nullptr, &exec.known), POOLGRAD_UNSUPPORTED);
  EXPECT_NE(std::strstr(poolgrad_last_error(), "exec has a value in byte"), nullptr) << poolgrad_last_error();
  EXPECT_EQ(y[0], 99);
  poolgrad_plan_destroy(plan);
  problem.flag = 1;
  poolgrad_plan* none = nullptr;
  EXPECT_EQ(poolgrad_plan_create(&problem.known, nullptr, &none), POOLGRAD_UNSUPPORTED);
  EXPECT_EQ(none, nullptr);
}

TEST(Sized, SizesThatNoVersionHadAreRefused) {
  poolgrad_problem problem;
  poolgrad_problem_init(&problem);
  problem.in[0] = problem.in[1] = problem.kernel[0] = problem.kernel[1] = 2;
  for (const uint64_t size : {uint64_t{0}, uint64_t{8}, uint64_t{231}, uint64_t{1032}, ~uint64_t{0}}) {
    problem.struct_size = size;
    poolgrad_plan* plan = nullptr;
    EXPECT_EQ(poolgrad_plan_create(&problem, nullptr, &plan), POOLGRAD_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::strstr(poolgrad_last_error(), "problem.struct_size is "), nullptr) << poolgrad_last_error();
  }
}

// The other direction cannot be tried on the C ABI before a struct has grown: what an old caller lacks takes the
// default.
struct Grown {
  uint64_t struct_size = sizeof(Grown);
  int64_t old_field = 0;
  int64_t new_field = 42;
};

TEST(Sized, WhatAnOldCallerLacksTakesItsDefault) {
  const int64_t old_caller[] = {16, 5, 77};  // its struct ends before the last
  Grown taken;
  ASSERT_TRUE(poolgrad::TakeSized(reinterpret_cast<const Grown*>(old_caller), "grown", 16, &taken).ok());
  EXPECT_EQ(taken.old_field, 5);
  EXPECT_EQ(taken.new_field, 42);
  EXPECT_EQ(taken.struct_size, sizeof(Grown));
  int64_t given[] = {0, 0, 77};
  poolgrad::GiveSized(Grown{24, 1, 2}, 16, given);
  EXPECT_EQ(given[0], 16);
  EXPECT_EQ(given[1], 1);
  EXPECT_EQ(given[2], 77) << "beyond the caller's struct";
}

}  // namespace
