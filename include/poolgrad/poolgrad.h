/* poolgrad: max pooling and its gradient. The C ABI; every binding stands on it.
 *
 * The one idea: pooling picks, for each output, one input of its window. That choice is a selection matrix S; it is
 * found once by forward and kept as `routes`, a few bits per output (docs/routes.md). Backward is dx = S^T dy.
 *
 * How a call goes:
 *   1. fill a poolgrad_problem (poolgrad_problem_init, then the fields; or poolgrad_problem_parse from one line of
 * text);
 *   2. poolgrad_plan_create checks it, resolves its geometry and chooses algorithms. A plan is immutable: share it
 * freely;
 *   3. poolgrad_plan_info says shapes and sizes; the caller owns all memory;
 *   4. run poolgrad_forward, poolgrad_backward, ... on that memory. Nothing is allocated while running on a GPU.
 *
 * Every function that returns poolgrad_status writes nothing when it fails, and leaves a full sentence for
 * poolgrad_last_error (per thread). All arrays are dense, in the memory order of the problem's layout. An array that a
 * call writes (scratch among them) must not overlap any other array of that call; such a call is refused.
 *
 * Structs begin with the size they had when the caller was compiled, and only ever grow at their end: what an older
 * caller does not know takes its default, and a newer caller may leave 0 what an older library does not know. */
#ifndef POOLGRAD_POOLGRAD_H_
#define POOLGRAD_POOLGRAD_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define POOLGRAD_API
#elif defined(__wasm__)
#define POOLGRAD_API __attribute__((visibility("default"), used))
#else
#define POOLGRAD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define POOLGRAD_VERSION_MAJOR 1
#define POOLGRAD_VERSION_MINOR 0
#define POOLGRAD_VERSION_PATCH 0
#define POOLGRAD_VERSION_TEXT "1.0.0"

typedef enum poolgrad_status {
  POOLGRAD_OK = 0,
  POOLGRAD_INVALID_ARGUMENT = 1, /* a value that can never be right */
  POOLGRAD_UNSUPPORTED = 2,      /* a right value that this build or operation does not do */
  POOLGRAD_OUT_OF_MEMORY = 3,
  POOLGRAD_DEVICE_ERROR = 4, /* the CUDA runtime refused */
  POOLGRAD_INTERNAL_ERROR = 5
} poolgrad_status;

/* Which element type x, y, dy and dx have. Halves are compared exactly and accumulated in f32, rounded once. The
 * integer types pool forward, keep routes and gather; they have no gradient of their own, but routes do not depend on
 * the type, so routes found by an i32 plan may be used by an f32 plan of the same geometry. */
typedef enum poolgrad_dtype {
  POOLGRAD_F32 = 0,
  POOLGRAD_F64 = 1,
  POOLGRAD_F16 = 2,
  POOLGRAD_BF16 = 3,
  POOLGRAD_I8 = 4,
  POOLGRAD_U8 = 5,
  POOLGRAD_I32 = 6
} poolgrad_dtype;

typedef enum poolgrad_kind { POOLGRAD_MAX = 0, POOLGRAD_AVERAGE = 1 } poolgrad_kind;

typedef enum poolgrad_layout {
  POOLGRAD_CHANNELS_FIRST = 0, /* N C [D [H]] W */
  POOLGRAD_CHANNELS_LAST = 1   /* N [D [H]] W C */
} poolgrad_layout;

/* A dialect makes us agree with one framework. It fills every rule left at 0 and adds that framework's own limits. */
typedef enum poolgrad_dialect {
  POOLGRAD_DIALECT_DEFAULT = 0,
  POOLGRAD_DIALECT_TORCH = 1,
  POOLGRAD_DIALECT_TENSORFLOW = 2,
  POOLGRAD_DIALECT_TFJS = 3,
  POOLGRAD_DIALECT_JAX = 4,
  POOLGRAD_DIALECT_ONNX = 5
} poolgrad_dialect;

typedef enum poolgrad_padding {
  POOLGRAD_PAD_EXPLICIT = 0, /* pad_lo, pad_hi as given */
  POOLGRAD_PAD_VALID = 1,    /* none */
  POOLGRAD_PAD_SAME = 2,     /* out = ceil(in / stride), the odd one on the high side */
  POOLGRAD_PAD_SAME_LOWER = 3
} poolgrad_padding;

typedef enum poolgrad_rounding {
  POOLGRAD_ROUND_DEFAULT = 0, /* floor */
  POOLGRAD_ROUND_FLOOR = 1,
  POOLGRAD_ROUND_CEIL = 2,      /* the dialect's own ceil: drop for default, torch and onnx, keep for tfjs */
  POOLGRAD_ROUND_CEIL_DROP = 3, /* ceil; a last window that starts in the high padding is dropped */
  POOLGRAD_ROUND_CEIL_KEEP = 4, /* ceil; such a window is kept */
  POOLGRAD_ROUND_NEAREST = 5    /* halves away from zero, as JavaScript's Math.round does for positives */
} poolgrad_rounding;

typedef enum poolgrad_ties {
  POOLGRAD_TIES_DEFAULT = 0,
  POOLGRAD_TIES_FIRST = 1,
  POOLGRAD_TIES_LAST = 2,
  POOLGRAD_TIES_SPLIT = 3, /* every maximum gets dy / count */
  POOLGRAD_TIES_ALL = 4    /* every maximum gets dy */
} poolgrad_ties;

/* What a NaN does. best starts as said; taps are visited in row-major order; v is the tap's value. */
typedef enum poolgrad_nan {
  POOLGRAD_NAN_DEFAULT = 0,
  POOLGRAD_NAN_PROPAGATE_FIRST = 1, /* any NaN makes y NaN; the first NaN is routed */
  POOLGRAD_NAN_PROPAGATE_LAST = 2,  /* the same with the last NaN (torch) */
  POOLGRAD_NAN_FIRST_PLACE = 3,     /* best = first valid tap, replaced when v > best (tensorflow) */
  POOLGRAD_NAN_GREATER_EQUAL = 4,   /* best = first valid tap, kept only while best >= v (XLA's gradient) */
  POOLGRAD_NAN_IGNORE = 5           /* best = -inf with no route, replaced when v > best (tfjs) */
} poolgrad_nan;

typedef enum poolgrad_device { POOLGRAD_CPU = 0, POOLGRAD_CUDA = 1 } poolgrad_device;

/* The spatial axes use the first `rank` entries: [W], [H W] or [D H W]. */
typedef struct poolgrad_problem {
  uint64_t struct_size;  /* sizeof(poolgrad_problem) */
  int32_t kind;          /* poolgrad_kind */
  int32_t dtype;         /* poolgrad_dtype */
  int32_t layout;        /* poolgrad_layout */
  int32_t dialect;       /* poolgrad_dialect */
  int32_t rank;          /* 1, 2 or 3 */
  int32_t padding;       /* poolgrad_padding */
  int32_t rounding;      /* poolgrad_rounding */
  int32_t ties;          /* poolgrad_ties */
  int32_t nan;           /* poolgrad_nan */
  int32_t route_bits;    /* 0: the smallest that fits; or 2, 4, 8, 16, 32 to force a width (ties first and last only) */
  int32_t count_padding; /* average: padding counts in the divisor: 0 no, 1 yes, -1 as the dialect does */
  int32_t device;        /* poolgrad_device */
  int32_t device_index;  /* which GPU */
  int32_t reserved;      /* must be 0 */
  int64_t divisor;       /* average: override of the divisor; 0: none */
  int64_t batch;
  int64_t channels;
  int64_t in[3];
  int64_t kernel[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t pad_lo[3]; /* explicit padding only; the jax dialect allows negative values, which crop */
  int64_t pad_hi[3];
  int32_t relu;      /* max: 1 pools max(x, 0): y is at least 0, and a window with nothing above 0 has no route */
  int32_t reserved2; /* 0 */
  /* Windows by table. outputs[i] > 0: axis i has so many windows, and kernel, stride, dilation and padding of that axis
   * stay at their defaults. starts[i] null: adaptive pooling, window o spans [floor(o*in/outputs),
   * ceil((o+1)*in/outputs)). Else window o begins at starts[i][o] (never falling) and has sizes[i][o] taps, or
   * kernel[i] taps where sizes[i] is null (fractional pooling); it must lie inside the input. The arrays are read while
   * a plan is made or a problem formatted, not later. */
  int64_t outputs[3];
  const int64_t* starts[3];
  const int64_t* sizes[3];
  /* A part of a longer problem, as poolgrad_shard_of makes them: whole_in[i] > 0 says that inputs [whole_at[i],
   * whole_at[i] + in[i]) of whole_in[i] are here, that what lies beyond them is somebody else's, and how far the whole
   * was padded. */
  int64_t whole_in[3];
  int64_t whole_at[3];
  int64_t whole_pad_lo[3];
  int64_t whole_pad_hi[3];
  int32_t bias;      /* with relu: 1 pools max(x + bias[channel], 0), and forward is poolgrad_forward_bias */
  int32_t reserved3; /* 0 */
} poolgrad_problem;

/* f32, channels first, rank 2, batch 1, channels 1, stride and dilation 1, no padding, count_padding -1; shape and
 * kernel 0. */
POOLGRAD_API void poolgrad_problem_init(poolgrad_problem* problem);

/* The one-line text form, e.g. "max f32 nchw 8x64x112x112 k3 s2 p1 ceil torch" (docs/problem.md). The lists of windows
 * by table (starts=, sizes=) live until the same thread parses the next that has some. */
POOLGRAD_API poolgrad_status poolgrad_problem_parse(const char* text, poolgrad_problem* problem);

/* Both have to know how large the caller's struct is. The functions above write what version 1.0 had and no more;
 * compiled with this header, their names mean these. */
POOLGRAD_API void poolgrad_problem_init_sized(poolgrad_problem* problem, size_t size);
POOLGRAD_API poolgrad_status poolgrad_problem_parse_sized(const char* text, poolgrad_problem* problem, size_t size);
#define poolgrad_problem_init(problem) poolgrad_problem_init_sized((problem), sizeof(poolgrad_problem))
#define poolgrad_problem_parse(text, problem) poolgrad_problem_parse_sized((text), (problem), sizeof(poolgrad_problem))

/* Writes at most `capacity` bytes, terminating NUL included; *needed (may be null) is the size that holds all of it. */
POOLGRAD_API poolgrad_status poolgrad_problem_format(const poolgrad_problem* problem, char* text, size_t capacity,
                                                     size_t* needed);

typedef struct poolgrad_plan poolgrad_plan;

typedef struct poolgrad_plan_options {
  uint64_t struct_size;
  const char* algorithm; /* null: the fastest that accepts; or a name from explain, used for every operation it can do
                            (the environment variable POOLGRAD_ALGORITHM does the same when this is null) */
  int32_t never_compile; /* CUDA. 0: a plan may compile a kernel for its window, where NVRTC is found and the problem is
                            large enough (explain says so); 1: it does not (POOLGRAD_JIT=0 does the same) */
  int32_t reserved;      /* 0 */
} poolgrad_plan_options;

POOLGRAD_API poolgrad_status poolgrad_plan_create(const poolgrad_problem* problem, const poolgrad_plan_options* options,
                                                  poolgrad_plan** plan);
POOLGRAD_API void poolgrad_plan_destroy(poolgrad_plan* plan); /* null is fine */

typedef enum poolgrad_op {
  POOLGRAD_OP_FORWARD = 0,        /* x -> y */
  POOLGRAD_OP_FORWARD_ROUTES = 1, /* x -> y, routes */
  POOLGRAD_OP_BACKWARD = 2,       /* dy, routes -> dx */
  POOLGRAD_OP_BACKWARD_X = 3,     /* dy, x -> dx */
  POOLGRAD_OP_GATHER = 4,         /* tx, routes -> ty */
  POOLGRAD_OP_UNPOOL = 5,         /* y, routes -> x */
  POOLGRAD_OP_BIAS_GRADIENT = 6   /* dy, routes -> dbias */
} poolgrad_op;
#define POOLGRAD_OP_COUNT 7

typedef struct poolgrad_info {
  uint64_t struct_size; /* sizeof(poolgrad_info), set by the caller */
  int64_t out[3];       /* first `rank` entries */
  int64_t pad_lo[3];    /* as resolved */
  int64_t pad_hi[3];
  int64_t x_elements;
  int64_t y_elements;
  int64_t x_bytes;
  int64_t y_bytes;
  int64_t taps;              /* positions in a window */
  int32_t route_bits;        /* per output; for ties split and all: 8 * ceil(taps / 8), one bit per tap */
  int32_t route_masks;       /* 1 for ties split and all: a route is a set of taps, one bit each */
  int64_t route_bytes;       /* of the whole array */
  int32_t may_have_no_route; /* 1 when some window may have no winner */
  int32_t ties;              /* the rules after the dialect was applied */
  int32_t nan;
  int32_t rounding;
} poolgrad_info;

POOLGRAD_API poolgrad_status poolgrad_plan_info(const poolgrad_plan* plan, poolgrad_info* info);
/* Scratch that `op` needs when run with `threads` threads (0: the default number). Ignored on null exec. */
POOLGRAD_API poolgrad_status poolgrad_plan_scratch_bytes(const poolgrad_plan* plan, poolgrad_op op, int32_t threads,
                                                         uint64_t* bytes);
/* Geometry, chosen algorithm per operation, why each faster one refused, bytes. Same buffer rules as problem_format. */
POOLGRAD_API poolgrad_status poolgrad_plan_explain(const poolgrad_plan* plan, char* text, size_t capacity,
                                                   size_t* needed);
/* The name of the algorithm chosen for `op`, or null when the plan cannot do it. Lives as long as the plan. */
POOLGRAD_API const char* poolgrad_plan_algorithm(const poolgrad_plan* plan, poolgrad_op op);

/* Calls task(task_context, i) once for every i in [0, count), in any order, on any threads, and returns when all are
 * done. */
typedef void (*poolgrad_task_fn)(void* task_context, int64_t index);
typedef void (*poolgrad_parallel_for_fn)(void* context, int64_t count, poolgrad_task_fn task, void* task_context);

/* How to run. Null means: default threads, scratch from the heap (CPU), the default stream (CUDA). */
typedef struct poolgrad_exec {
  uint64_t struct_size;
  int32_t threads;                       /* 0: poolgrad_default_threads; the result's bits never depend on it */
  int32_t reserved;                      /* must be 0 */
  poolgrad_parallel_for_fn parallel_for; /* null: poolgrad's own pool */
  void* parallel_for_context;
  void* scratch; /* at least poolgrad_plan_scratch_bytes bytes, 64-byte aligned; null on CPU: taken from the heap */
  uint64_t scratch_bytes;
  void* stream; /* a cudaStream_t; all pointers are then device pointers */
} poolgrad_exec;

/* A parallel_for for hosts whose own threads are OpenMP's, as PyTorch's are: its context is a poolgrad_openmp. Two sets
 * of threads on one machine take each other's cores; this way there is one. */
typedef struct poolgrad_openmp {
  /* The address of GOMP_parallel in the OpenMP runtime the host uses; GNU's, LLVM's and Intel's all have it. */
  void (*parallel)(void (*member)(void*), void* data, unsigned threads, unsigned flags);
  int64_t threads;
} poolgrad_openmp;
POOLGRAD_API void poolgrad_parallel_for_openmp(void* context, int64_t count, poolgrad_task_fn task, void* task_context);

/* routes may be null: then they are not kept. Average pooling keeps none. */
POOLGRAD_API poolgrad_status poolgrad_forward(const poolgrad_plan* plan, const void* x, void* y, void* routes,
                                              const poolgrad_exec* exec);
/* Writes every element of dx. Average pooling takes null routes. Routes of any content are safe: a code that names no
 * tap of its window adds nothing. */
POOLGRAD_API poolgrad_status poolgrad_backward(const poolgrad_plan* plan, const void* dy, const void* routes, void* dx,
                                               const poolgrad_exec* exec);
/* The same dx for a caller that kept x and no routes. */
POOLGRAD_API poolgrad_status poolgrad_backward_x(const poolgrad_plan* plan, const void* dy, const void* x, void* dx,
                                                 const poolgrad_exec* exec);
/* ty = S tx: forward mode, and the gradient of the gradient. 0 where there is no route. */
POOLGRAD_API poolgrad_status poolgrad_gather(const poolgrad_plan* plan, const void* tx, const void* routes, void* ty,
                                             const poolgrad_exec* exec);
/* x = y at each output's route, 0 elsewhere; where windows share a winner the last output in row-major order is kept.
 */
POOLGRAD_API poolgrad_status poolgrad_unpool(const poolgrad_plan* plan, const void* y, const void* routes, void* x,
                                             const poolgrad_exec* exec);

/* The Jacobian S as CSR: rows are elements of y, columns elements of x, both in memory order. row_start has y_elements
 * + 1 entries. Call with columns and values null to learn the count: row_start[y_elements]. CPU memory. Average: routes
 * null. */
POOLGRAD_API poolgrad_status poolgrad_jacobian(const poolgrad_plan* plan, const void* routes, int64_t* row_start,
                                               int64_t* columns, double* values);

typedef enum poolgrad_numbering {
  POOLGRAD_INDEX_TORCH = 0,            /* inside each plane: (d*H + h)*W + w */
  POOLGRAD_INDEX_TENSORFLOW = 1,       /* ((d*H + h)*W + w)*C + c, batch left out */
  POOLGRAD_INDEX_TENSORFLOW_BATCH = 2, /* the same with the batch */
  POOLGRAD_INDEX_ONNX = 3,             /* flat over N C D H W */
  POOLGRAD_INDEX_ONNX_COLUMN = 4       /* flat over N C, column-major inside the plane (storage_order = 1) */
} poolgrad_numbering;

/* One index per output, in y's memory order; -1 where there is no route. Ties first and last only. CPU and CUDA. */
POOLGRAD_API poolgrad_status poolgrad_routes_to_indices(const poolgrad_plan* plan, const void* routes,
                                                        poolgrad_numbering numbering, int64_t* indices,
                                                        const poolgrad_exec* exec);
/* Every index must name a valid tap of its own window (or be -1); otherwise an error names the first that does not.
 * CPU. */
POOLGRAD_API poolgrad_status poolgrad_routes_from_indices(const poolgrad_plan* plan, const int64_t* indices,
                                                          poolgrad_numbering numbering, void* routes);
/* Unpool by framework indices, which may point outside their windows but not outside the tensor. index_shape: the
 * spatial shape the indices are numbered in (null: the plan's input shape); ONNX numbers them in the shape implied by
 * the window, and the result is zero-extended. CPU. */
POOLGRAD_API poolgrad_status poolgrad_unpool_indices(const poolgrad_plan* plan, const void* y, const int64_t* indices,
                                                     poolgrad_numbering numbering, const int64_t* index_shape, void* x);

/* ---- a problem split in space among ranks ----
 * Each axis i is cut into parts[i] pieces at cuts[i]: parts[i] + 1 numbers from 0 to in[i] that never fall; a rank is
 * named by its piece on every axis, at[i]. An output belongs to the rank that owns the first input of its window (of
 * those inside). */
typedef struct poolgrad_shard {
  uint64_t struct_size;
  int64_t in_begin[3], in_end[3];     /* inputs it owns: its x and dx */
  int64_t out_begin[3], out_end[3];   /* outputs it owns: its y, routes and dy */
  int64_t read_begin[3], read_end[3]; /* inputs that its outputs read, its own and its neighbours' */
  int64_t over_begin[3], over_end[3]; /* outputs over its inputs, whose dy and routes backward reads */
  int32_t has_forward;                /* 0: it owns no output */
  int32_t has_backward;               /* 0: no window reaches its inputs; its dx is 0 */
} poolgrad_shard;

/* The shard of rank `at`; shard->struct_size is set by the caller. And its problems, structs as large as *whole's, or
 * null: forward, x of `read` -> y and routes of `out`; backward, dy and routes of `over` -> dx of `in`. Where it has
 * none, they are the whole's. They number taps as the whole does and keep routes in whole bytes per output, so that
 * a border's routes can be cut out and sent: backward then needs dy and routes of neighbours, never sums of dx, and has
 * the bits of one process. */
POOLGRAD_API poolgrad_status poolgrad_shard_of(const poolgrad_problem* whole, const int64_t* parts,
                                               const int64_t* const* cuts, const int64_t* at, poolgrad_shard* shard,
                                               poolgrad_problem* forward, poolgrad_problem* backward);

typedef enum poolgrad_halo {
  POOLGRAD_HALO_X = 0, /* inputs that `to` reads forward and `from` owns */
  POOLGRAD_HALO_DY = 1 /* outputs that `to` reads backward and `from` owns: dy and routes */
} poolgrad_halo;
/* The box [begin, end) of inputs or outputs of the whole that rank `from` sends to rank `to`; empty (end <= begin on
 * some axis) where there is nothing to send. */
POOLGRAD_API poolgrad_status poolgrad_shard_halo(const poolgrad_problem* whole, const int64_t* parts,
                                                 const int64_t* const* cuts, const int64_t* from, const int64_t* to,
                                                 poolgrad_halo halo, int64_t* begin, int64_t* end);

/* ---- a bias per channel, in problems with relu and bias ----
 * y = max(0, maximum + bias[channel]); bias has `channels` elements of x's type. The rest is as in poolgrad_forward;
 * backward, gather, unpool and the Jacobian take its routes as they take any. Backward from x alone is refused. */
POOLGRAD_API poolgrad_status poolgrad_forward_bias(const poolgrad_plan* plan, const void* x, const void* bias, void* y,
                                                   void* routes, const poolgrad_exec* exec);
/* dbias[channel] = the sum of dy over the channel's outputs that have a route, in an order that depends on nothing but
 * the shape of y (docs/problem.md), so that its bits are the same everywhere. */
POOLGRAD_API poolgrad_status poolgrad_bias_gradient(const poolgrad_plan* plan, const void* dy, const void* routes,
                                                    void* dbias, const poolgrad_exec* exec);

POOLGRAD_API const char* poolgrad_last_error(void);  /* "" when nothing failed yet on this thread */
POOLGRAD_API const char* poolgrad_version(void);     /* "1.0.0" */
POOLGRAD_API const char* poolgrad_simd_target(void); /* the SIMD target plans made now would use, e.g. "NEON", "AVX3" */
POOLGRAD_API int32_t poolgrad_has_cuda(void);        /* 1 when this build can make CUDA plans */
/* The environment variable POOLGRAD_THREADS, a number from 1 to 4096; without it, the processors this process may run
 * on. A run with the default threads is refused while the variable holds anything else; this function then passes it
 * over. */
POOLGRAD_API int32_t poolgrad_default_threads(void);

#ifdef __cplusplus
}
#endif
#endif /* POOLGRAD_POOLGRAD_H_ */
