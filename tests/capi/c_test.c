/* The C ABI from C: the worked example of docs/derivation.md, start to end, and the struct sizes that bindings rely on.
 */
#include <stdio.h>
#include <string.h>

#include "poolgrad/poolgrad.h"

static int failures = 0;

#define EXPECT(condition)                                                                                        \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      fprintf(stderr, "%s:%d: %s; the last error: %s\n", __FILE__, __LINE__, #condition, poolgrad_last_error()); \
      ++failures;                                                                                                \
    }                                                                                                            \
  } while (0)

static void run_in_order(void* context, int64_t count, poolgrad_task_fn task, void* task_context) {
  int64_t i;
  *(int64_t*)context += count;
  for (i = 0; i < count; ++i) task(task_context, i);
}

int main(void) {
  const float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const float dy[4] = {1, 10, 100, 1000};
  const float expected_y[4] = {5, 6, 8, 9};
  const float expected_dx[9] = {0, 0, 0, 0, 1, 10, 0, 100, 1000};
  float y[4], dx[9], ty[4];
  unsigned char routes[16];
  int64_t indices[4], row_start[5], columns[4];
  double values[4];
  poolgrad_problem problem, parsed;
  poolgrad_plan* plan = NULL;
  poolgrad_info info;
  poolgrad_exec exec;
  int64_t tasks = 0;
  char text[128];
  size_t needed = 0;

  EXPECT(strcmp(poolgrad_version(), "1.0.0") == 0);
  EXPECT(strlen(poolgrad_simd_target()) > 0);
  EXPECT(poolgrad_default_threads() >= 1);

  poolgrad_problem_init(&problem);
  EXPECT(problem.struct_size == sizeof problem);
  problem.in[0] = problem.in[1] = 3;
  problem.kernel[0] = problem.kernel[1] = 2;
  EXPECT(poolgrad_problem_format(&problem, text, sizeof text, &needed) == POOLGRAD_OK);
  EXPECT(strcmp(text, "max f32 nchw 1x1x3x3 k2 s1") == 0);
  EXPECT(needed == strlen(text) + 1);
  EXPECT(poolgrad_problem_parse(text, &parsed) == POOLGRAD_OK);
  EXPECT(parsed.in[1] == 3 && parsed.kernel[0] == 2 && parsed.stride[1] == 1);

  EXPECT(poolgrad_plan_create(&problem, NULL, &plan) == POOLGRAD_OK);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT(poolgrad_plan_info(plan, &info) == POOLGRAD_OK);
  EXPECT(info.out[0] == 2 && info.out[1] == 2 && info.taps == 4 && info.route_bits == 2 && info.route_bytes == 2);

  memset(&exec, 0, sizeof exec);
  exec.struct_size = sizeof exec;
  exec.threads = 1;
  exec.parallel_for = run_in_order;
  exec.parallel_for_context = &tasks;
  EXPECT(poolgrad_forward(plan, x, y, routes, &exec) == POOLGRAD_OK);
  EXPECT(memcmp(y, expected_y, sizeof y) == 0);
  EXPECT(poolgrad_backward(plan, dy, routes, dx, NULL) == POOLGRAD_OK);
  EXPECT(memcmp(dx, expected_dx, sizeof dx) == 0);
  memset(dx, 0xFF, sizeof dx);
  EXPECT(poolgrad_backward_x(plan, dy, x, dx, NULL) == POOLGRAD_OK);
  EXPECT(memcmp(dx, expected_dx, sizeof dx) == 0);
  EXPECT(poolgrad_gather(plan, x, routes, ty, NULL) == POOLGRAD_OK);
  EXPECT(memcmp(ty, expected_y, sizeof ty) == 0);
  EXPECT(poolgrad_routes_to_indices(plan, routes, POOLGRAD_INDEX_TORCH, indices, NULL) == POOLGRAD_OK);
  EXPECT(indices[0] == 4 && indices[1] == 5 && indices[2] == 7 && indices[3] == 8);
  EXPECT(poolgrad_jacobian(plan, routes, row_start, columns, values) == POOLGRAD_OK);
  EXPECT(row_start[4] == 4 && columns[3] == 8 && values[3] == 1.0);

  EXPECT(poolgrad_forward(plan, NULL, y, NULL, NULL) == POOLGRAD_INVALID_ARGUMENT);
  EXPECT(strcmp(poolgrad_last_error(), "x is null; it must point to memory of the plan's size") == 0);
  poolgrad_plan_destroy(plan);
  poolgrad_plan_destroy(NULL);
  return failures == 0 ? 0 : 1;
}
