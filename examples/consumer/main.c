/* The same from C, for pkg-config: cc main.c $(pkg-config --cflags --libs poolgrad) */
#include <poolgrad/poolgrad.h>
#include <stdio.h>

int main(void) {
  const float x[4] = {3, 1, 2, 7};
  const float dy[2] = {10, 20};
  float y[2], dx[4];
  unsigned char routes[8];
  poolgrad_problem problem;
  poolgrad_plan* plan = NULL;
  if (poolgrad_problem_parse("max f32 ncw 1x1x4 k2", &problem) != POOLGRAD_OK ||
      poolgrad_plan_create(&problem, NULL, &plan) != POOLGRAD_OK ||
      poolgrad_forward(plan, x, y, routes, NULL) != POOLGRAD_OK ||
      poolgrad_backward(plan, dy, routes, dx, NULL) != POOLGRAD_OK) {
    fprintf(stderr, "%s\n", poolgrad_last_error());
    return 1;
  }
  poolgrad_plan_destroy(plan);
  printf("y = %g %g, dx = %g %g %g %g\n", y[0], y[1], dx[0], dx[1], dx[2], dx[3]);
  return dx[0] == 10 && dx[1] == 0 && dx[2] == 0 && dx[3] == 20 ? 0 : 1;
}
