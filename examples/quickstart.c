/* poolgrad in C: one line of text for the problem, a plan, the caller's memory, a gradient. The worked example of
 * docs/derivation.md, and what an error looks like. */
#include <stdio.h>
#include <stdlib.h>

#include "poolgrad/poolgrad.h"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, poolgrad_last_error());
  return 1;
}

int main(void) {
  const float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const float dy[4] = {1, 10, 100, 1000};
  const float expected[9] = {0, 0, 0, 0, 1, 10, 0, 100, 1000};
  float y[4], dx[9];

  poolgrad_problem problem;
  poolgrad_plan* plan = NULL;
  if (poolgrad_problem_parse("max f32 nchw 1x1x3x3 k2 s1", &problem) != POOLGRAD_OK) return failed("parse");
  if (poolgrad_plan_create(&problem, NULL, &plan) != POOLGRAD_OK) return failed("plan");

  poolgrad_info info; /* what the plan needs; the memory is ours */
  info.struct_size = sizeof info;
  if (poolgrad_plan_info(plan, &info) != POOLGRAD_OK) return failed("info");
  void* routes = malloc((size_t)info.route_bytes);
  if (routes == NULL) return 1;

  if (poolgrad_forward(plan, x, y, routes, NULL) != POOLGRAD_OK) return failed("forward");
  if (poolgrad_backward(plan, dy, routes, dx, NULL) != POOLGRAD_OK) return failed("backward");
  printf("y  = %g %g %g %g\n", y[0], y[1], y[2], y[3]);
  printf("dx =");
  int wrong = 0;
  for (int i = 0; i < 9; ++i) {
    printf(" %g", dx[i]);
    wrong += dx[i] != expected[i];
  }
  printf("\nkept for backward: %d bytes\n", (int)info.route_bytes);
  free(routes);
  poolgrad_plan_destroy(plan);

  /* A mistake gets a sentence, and nothing is written. */
  if (poolgrad_problem_parse("max f32 nchw 1x1x3x3 k2 s1 ties=both", &problem) == POOLGRAD_OK) return 1;
  printf("and a mistake: %s\n", poolgrad_last_error());
  return wrong;
}
