/* Max pooling of a volume that is split in space among the ranks of an MPI program, forward and backward, with the bits
 * of one process. poolgrad's C ABI says what each rank owns, reads and sends (poolgrad_shard_of, poolgrad_shard_halo);
 * this program moves the boxes. Backward exchanges dy and routes of the borders, never sums of dx.
 *
 *   mpirun -np 4 ./split_volume ["max f32 ncdhw 1x4x20x24x28 k3 s2 p1"]
 *
 * Every rank makes the same volume from a seed and keeps its own piece; the last step compares with the whole, computed
 * by rank 0, which a real program would not do. */
#include <mpi.h>
#include <poolgrad/poolgrad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, ranks;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", me, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static void check(poolgrad_status status) {
  if (status != POOLGRAD_OK) fail(poolgrad_last_error());
}

static void* take(size_t bytes) {
  void* memory = malloc(bytes ? bytes : 1);
  if (!memory) fail("memory ran out");
  return memory;
}

/* A box of the volume and its elements: batch x channels planes, each in row-major order. */
typedef struct {
  int64_t begin[3], end[3];
  size_t element;
  int64_t planes;
  char* data;
} Box;

static int64_t length(const Box* b, int i) { return b->end[i] - b->begin[i]; }
static int64_t places(const Box* b) { return length(b, 0) * length(b, 1) * length(b, 2); }

static Box make_box(const int64_t* begin, const int64_t* end, int64_t planes, size_t element) {
  Box b;
  for (int i = 0; i < 3; ++i) b.begin[i] = begin[i], b.end[i] = end[i];
  b.element = element;
  b.planes = planes;
  b.data = take((size_t)(places(&b) * planes) * element);
  return b;
}

/* Copies `part` (begin, end) between a box and a run of memory, row by row. */
static void move(const Box* b, const int64_t* begin, const int64_t* end, char* run, int out) {
  const size_t row = (size_t)(end[2] - begin[2]) * b->element;
  for (int64_t p = 0; p < b->planes; ++p) {
    for (int64_t d = begin[0]; d < end[0]; ++d) {
      for (int64_t h = begin[1]; h < end[1]; ++h) {
        char* at =
            b->data + (size_t)(((p * length(b, 0) + d - b->begin[0]) * length(b, 1) + h - b->begin[1]) * length(b, 2) +
                               begin[2] - b->begin[2]) *
                          b->element;
        if (out)
          memcpy(run, at, row);
        else
          memcpy(at, run, row);
        run += row;
      }
    }
  }
}

static poolgrad_problem whole;
static int64_t parts[3], cut_memory[3][65];
static const int64_t* cuts[3] = {cut_memory[0], cut_memory[1], cut_memory[2]};

static void place_of(int rank, int64_t* at) {
  at[2] = rank % parts[2];
  at[1] = rank / parts[2] % parts[1];
  at[0] = rank / parts[2] / parts[1];
}

/* Fills `need` with what all ranks own of it (`mine` is this rank's share), and says how many bytes crossed the
 * network. */
static int64_t exchange(poolgrad_halo halo, const Box* mine, Box* need) {
  MPI_Request* requests = take(2 * (size_t)ranks * sizeof *requests);
  char** runs = take(2 * (size_t)ranks * sizeof *runs);
  int64_t(*boxes)[2][3] = take((size_t)ranks * sizeof *boxes);
  int64_t here[3], there[3], received = 0;
  int count = 0;
  place_of(me, here);
  for (int other = 0; other < ranks; ++other) { /* receive first, so that nobody waits for anybody */
    place_of(other, there);
    check(poolgrad_shard_halo(&whole, parts, cuts, there, here, halo, boxes[other][0], boxes[other][1]));
    int64_t n = need->planes;
    for (int i = 0; i < 3; ++i) n *= boxes[other][1][i] - boxes[other][0][i];
    runs[other] = take((size_t)n * need->element);
    if (n > 0 && other != me) {
      MPI_Irecv(runs[other], (int)((size_t)n * need->element), MPI_BYTE, other, halo, MPI_COMM_WORLD,
                &requests[count++]);
      received += n * (int64_t)need->element;
    }
  }
  for (int other = 0; other < ranks; ++other) {
    int64_t begin[3], end[3], n = mine->planes;
    place_of(other, there);
    check(poolgrad_shard_halo(&whole, parts, cuts, here, there, halo, begin, end));
    for (int i = 0; i < 3; ++i) n *= end[i] - begin[i];
    char* run = other == me ? runs[me] : take((size_t)n * mine->element);
    runs[ranks + other] = other == me ? NULL : run;
    if (n == 0) continue;
    move(mine, begin, end, run, 1);
    if (other != me)
      MPI_Isend(run, (int)((size_t)n * mine->element), MPI_BYTE, other, halo, MPI_COMM_WORLD, &requests[count++]);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int other = 0; other < ranks; ++other) {
    if (boxes[other][1][0] > boxes[other][0][0] && boxes[other][1][1] > boxes[other][0][1] &&
        boxes[other][1][2] > boxes[other][0][2]) {
      move(need, boxes[other][0], boxes[other][1], runs[other], 0);
    }
  }
  for (int i = 0; i < 2 * ranks; ++i) free(runs[i]);
  free(boxes);
  free(runs);
  free(requests);
  return received;
}

static float drawn(int64_t i, unsigned seed) {
  uint64_t z = (uint64_t)i * 0x9e3779b97f4a7c15u + seed;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return (float)((double)(z >> 40) / (1 << 23) - 1.0);
}

static void fill(Box* b, const int64_t* sizes, unsigned seed) {
  float* at = (float*)b->data;
  for (int64_t p = 0; p < b->planes; ++p)
    for (int64_t d = b->begin[0]; d < b->end[0]; ++d)
      for (int64_t h = b->begin[1]; h < b->end[1]; ++h)
        for (int64_t w = b->begin[2]; w < b->end[2]; ++w)
          *at++ = drawn(((p * sizes[0] + d) * sizes[1] + h) * sizes[2] + w, seed);
}

static poolgrad_plan* plan_of(const poolgrad_problem* problem, poolgrad_info* info) {
  poolgrad_plan* plan = NULL;
  check(poolgrad_plan_create(problem, NULL, &plan));
  info->struct_size = sizeof *info;
  check(poolgrad_plan_info(plan, info));
  return plan;
}

/* Collects every rank's box at rank 0 and counts the bytes that differ from the same places of `all`. */
static int64_t differing(const Box* mine, const Box* all) {
  if (me != 0) {
    int64_t head[6];
    memcpy(head, mine->begin, sizeof mine->begin);
    memcpy(head + 3, mine->end, sizeof mine->end);
    MPI_Send(head, 6, MPI_INT64_T, 0, 7, MPI_COMM_WORLD);
    MPI_Send(mine->data, (int)((size_t)(places(mine) * mine->planes) * mine->element), MPI_BYTE, 0, 8, MPI_COMM_WORLD);
    return 0;
  }
  int64_t wrong = 0;
  for (int other = 0; other < ranks; ++other) {
    int64_t head[6];
    memcpy(head, mine->begin, sizeof mine->begin);
    memcpy(head + 3, mine->end, sizeof mine->end);
    if (other != 0) MPI_Recv(head, 6, MPI_INT64_T, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    Box b = make_box(head, head + 3, mine->planes, mine->element);
    const size_t bytes = (size_t)(places(&b) * b.planes) * b.element;
    if (other != 0)
      MPI_Recv(b.data, (int)bytes, MPI_BYTE, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
      memcpy(b.data, mine->data, bytes);
    char* expected = take(bytes);
    move(all, head, head + 3, expected, 1);
    for (size_t i = 0; i < bytes; ++i) wrong += b.data[i] != expected[i];
    free(expected);
    free(b.data);
  }
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  check(poolgrad_problem_parse(argc > 1 ? argv[1] : "max f32 ncdhw 1x4x20x24x28 k3 s2 p1", &whole));
  if (whole.rank != 3 || whole.dtype != POOLGRAD_F32 || whole.layout != POOLGRAD_CHANNELS_FIRST ||
      whole.kind != POOLGRAD_MAX) {
    fail("this example takes max pooling of f32 volumes, channels first");
  }
  int grid[3] = {0, 0, 0};
  MPI_Dims_create(ranks, 3, grid);
  if (grid[0] > 64 || grid[1] > 64 || grid[2] > 64) fail("this example cuts an axis into at most 64 parts");
  for (int i = 0; i < 3; ++i) {
    parts[i] = grid[i];
    for (int k = 0; k <= grid[i]; ++k) cut_memory[i][k] = whole.in[i] * k / grid[i];
  }
  int64_t at[3];
  place_of(me, at);
  poolgrad_shard s;
  poolgrad_problem forward, backward;
  s.struct_size = sizeof s;
  check(poolgrad_shard_of(&whole, parts, cuts, at, &s, &forward, &backward));
  const int64_t planes = whole.batch * whole.channels;

  poolgrad_info info, all_info;
  poolgrad_problem one = whole; /* the whole in one process, with routes as the shards keep them */
  poolgrad_plan* once = plan_of(&whole, &all_info);
  one.route_bits = all_info.route_bits > 8 ? all_info.route_bits : 8;
  poolgrad_plan_destroy(once);
  once = plan_of(&one, &all_info);
  const size_t code = (size_t)all_info.route_bits / 8;

  Box x = make_box(s.in_begin, s.in_end, planes, 4), dx = make_box(s.in_begin, s.in_end, planes, 4);
  Box y = make_box(s.out_begin, s.out_end, planes, 4), dy = make_box(s.out_begin, s.out_end, planes, 4);
  Box routes = make_box(s.out_begin, s.out_end, planes, code);
  Box read = make_box(s.read_begin, s.read_end, planes, 4);
  Box over_dy = make_box(s.over_begin, s.over_end, planes, 4),
      over_routes = make_box(s.over_begin, s.over_end, planes, code);
  fill(&x, whole.in, 1);
  fill(&dy, all_info.out, 2);

  int64_t bytes = exchange(POOLGRAD_HALO_X, &x, &read);
  if (s.has_forward) {
    poolgrad_plan* plan = plan_of(&forward, &info);
    check(poolgrad_forward(plan, read.data, y.data, routes.data, NULL));
    poolgrad_plan_destroy(plan);
  }
  bytes += exchange(POOLGRAD_HALO_DY, &dy, &over_dy);
  bytes += exchange(POOLGRAD_HALO_DY, &routes, &over_routes);
  memset(dx.data, 0, (size_t)(places(&dx) * planes) * 4);
  if (s.has_backward) {
    poolgrad_plan* plan = plan_of(&backward, &info);
    check(poolgrad_backward(plan, over_dy.data, over_routes.data, dx.data, NULL));
    poolgrad_plan_destroy(plan);
  }

  const int64_t zeros[3] = {0, 0, 0};
  Box all_x = make_box(zeros, whole.in, planes, 4), all_dx = make_box(zeros, whole.in, planes, 4);
  Box all_y = make_box(zeros, all_info.out, planes, 4), all_dy = make_box(zeros, all_info.out, planes, 4);
  Box all_routes = make_box(zeros, all_info.out, planes, code);
  if (me == 0) {
    fill(&all_x, whole.in, 1);
    fill(&all_dy, all_info.out, 2);
    check(poolgrad_forward(once, all_x.data, all_y.data, all_routes.data, NULL));
    check(poolgrad_backward(once, all_dy.data, all_routes.data, all_dx.data, NULL));
  }
  const int64_t wrong = differing(&y, &all_y) + differing(&routes, &all_routes) + differing(&dx, &all_dx);
  int64_t moved = 0;
  MPI_Reduce(&bytes, &moved, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) {
    printf("%d ranks, %d x %d x %d: %lld bytes exchanged, %lld bytes of y, routes and dx differ from one process\n",
           ranks, grid[0], grid[1], grid[2], (long long)moved, (long long)wrong);
    if (wrong != 0) fail("the split volume differs from the whole");
  }
  Box* boxes[] = {&x,           &dx,    &y,      &dy,    &routes, &read,      &over_dy,
                  &over_routes, &all_x, &all_dx, &all_y, &all_dy, &all_routes};
  for (size_t i = 0; i < sizeof boxes / sizeof *boxes; ++i) free(boxes[i]->data);
  poolgrad_plan_destroy(once);
  MPI_Finalize();
  return 0;
}
