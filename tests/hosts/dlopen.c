/* A host that unloads the library: loads it, runs it on threads of its own, closes it while those threads wait for
 * work, and loads it again. Links nothing of poolgrad:  dlopen_test LIBRARY */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "poolgrad/poolgrad.h"

enum { kElements = 1 << 20 };

static int run(const char* path, const float* x, float* y) {
  poolgrad_problem problem;
  poolgrad_plan* plan = NULL;
  poolgrad_exec exec;
  int good;
  poolgrad_status (*parse)(const char*, poolgrad_problem*, size_t);
  poolgrad_status (*create)(const poolgrad_problem*, const poolgrad_plan_options*, poolgrad_plan**);
  poolgrad_status (*forward)(const poolgrad_plan*, const void*, void*, void*, const poolgrad_exec*);
  void (*destroy)(poolgrad_plan*);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
  *(void**)&parse = dlsym(library, "poolgrad_problem_parse_sized");
  *(void**)&create = dlsym(library, "poolgrad_plan_create");
  *(void**)&forward = dlsym(library, "poolgrad_forward");
  *(void**)&destroy = dlsym(library, "poolgrad_plan_destroy");
  if (!parse || !create || !forward || !destroy) return 0;
  memset(&exec, 0, sizeof exec);
  exec.struct_size = sizeof exec;
  exec.threads = 4;
  good = parse("max f32 ncw 1x1x1048576 k2", &problem, sizeof problem) == POOLGRAD_OK &&
         create(&problem, NULL, &plan) == POOLGRAD_OK && forward(plan, x, y, NULL, &exec) == POOLGRAD_OK;
  destroy(plan);
  dlclose(library);
  return good;
}

int main(int argc, char** argv) {
  const struct timespec pause = {
      0, 50 * 1000 * 1000}; /* long enough for every thread to look once more, and to fall asleep */
  float* x = malloc(kElements * sizeof *x);
  float* y = malloc(kElements / 2 * sizeof *y);
  int i, round;
  if (argc != 2) {
    fprintf(stderr, "usage: dlopen_test LIBRARY\n");
    return 2;
  }
  for (i = 0; i < kElements; ++i) x[i] = (float)i;
  for (round = 0; round < 3; ++round) {
    if (!run(argv[1], x, y)) return 1;
    nanosleep(&pause, NULL);
    for (i = 0; i < kElements / 2; ++i) {
      if (y[i] != (float)(2 * i + 1)) return 1;
    }
  }
  free(x);
  free(y);
  return 0;
}
