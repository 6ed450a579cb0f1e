// XNNPACK: max pooling (fwd) and argmax pooling (train; disjoint windows only), channels last, f32. It has no gradient.
// One operator per set of buffers is made ready beforehand, because making it ready for other buffers costs a pass of
// its own.
#include <pthreadpool.h>
#include <xnnpack.h>

#include <limits>
#include <memory>

#include "cell.h"

namespace {

void Must(xnn_status status, const char* doing) {
  if (status != xnn_status_success)
    throw std::runtime_error(std::string(doing) + " failed with status " + std::to_string(status));
}

struct Deleter {
  void operator()(xnn_operator* op) const { xnn_delete_operator(op); }
  void operator()(pthreadpool* pool) const { pthreadpool_destroy(pool); }
};

// XNN_EXTRA_BYTES: it may read a little past the end of its input.
struct Set {
  std::vector<float> x, y;
  std::vector<uint32_t> index;
  std::unique_ptr<xnn_operator, Deleter> op;
};

poolgrad::cli::Timing MeasureCell(const peers::Cell& cell) {
  const peers::Axis &d = cell.axis[0], &h = cell.axis[1], &w = cell.axis[2];
  if (cell.layout != "nhwc" || cell.dtype != "f32") throw std::runtime_error("only channels last in f32");
  if (cell.op != "fwd" && cell.op != "train") throw std::runtime_error("no gradient");
  if (d.kernel != 1 || d.stride != 1) throw std::runtime_error("no windows over three axes");
  const bool argmax = cell.op == "train";
  for (const peers::Axis* a : {&h, &w}) {
    const bool disjoint = a->kernel == a->stride && a->dilation == 1 && a->pad_lo == 0 && a->in == a->out * a->kernel;
    if (argmax && !disjoint) throw std::runtime_error("argmax needs disjoint windows that cover the input");
  }
  Must(xnn_initialize(nullptr), "xnn_initialize");
  const std::unique_ptr<pthreadpool, Deleter> pool(pthreadpool_create(static_cast<size_t>(cell.threads)));
  auto u32 = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto channels = static_cast<size_t>(cell.channels), batch = static_cast<size_t>(cell.batch * d.in);
  const auto height = static_cast<size_t>(h.in), width = static_cast<size_t>(w.in);
  const auto values = peers::RandomFloats(cell.x_elements());
  std::vector<Set> sets(static_cast<size_t>(cell.sets));
  for (Set& set : sets) {
    set.x = values;
    set.x.resize(values.size() + XNN_EXTRA_BYTES);
    set.y.resize(static_cast<size_t>(cell.y_elements()) + XNN_EXTRA_BYTES);
    xnn_operator_t op = nullptr;
    if (argmax) {
      set.index.resize(set.y.size());
      Must(xnn_create_argmax_pooling2d_nhwc_f32(0, 0, 0, 0, u32(h.kernel), u32(w.kernel), channels, channels, channels,
                                                0, &op),
           "xnn_create_argmax_pooling2d_nhwc_f32");
      set.op.reset(op);
      Must(xnn_setup_argmax_pooling2d_nhwc_f32(op, batch, height, width, set.x.data(), set.y.data(), set.index.data(),
                                               pool.get()),
           "xnn_setup_argmax_pooling2d_nhwc_f32");
    } else {
      Must(xnn_create_max_pooling2d_nhwc_f32(
               u32(h.pad_lo), u32(w.pad_hi), u32(h.pad_hi), u32(w.pad_lo), u32(h.kernel), u32(w.kernel), u32(h.stride),
               u32(w.stride), u32(h.dilation), u32(w.dilation), channels, channels, channels,
               -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(), 0, &op),
           "xnn_create_max_pooling2d_nhwc_f32");
      set.op.reset(op);
      Must(xnn_setup_max_pooling2d_nhwc_f32(op, batch, height, width, set.x.data(), set.y.data(), pool.get()),
           "xnn_setup_max_pooling2d_nhwc_f32");
    }
  }
  return poolgrad::cli::Measure(cell.seconds, cell.sets, [&](int64_t i) {
    Must(xnn_run_operator(sets[static_cast<size_t>(i % cell.sets)].op.get(), pool.get()), "xnn_run_operator");
  });
}

}  // namespace

int main() { return peers::Serve(MeasureCell); }
