// oneDNN (2.x): its pooling primitive, on plain layouts, writing into memory that exists. Threads come from
// OMP_NUM_THREADS.
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "cell.h"

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

Tag TagOf(const peers::Cell& cell) {
  constexpr Tag kTags[2][3] = {{Tag::ncw, Tag::nchw, Tag::ncdhw}, {Tag::nwc, Tag::nhwc, Tag::ndhwc}};
  return kTags[cell.layout == "nhwc"][cell.rank - 1];
}

memory::data_type TypeOf(const std::string& dtype) {
  if (dtype == "f32") return memory::data_type::f32;
  if (dtype == "bf16") return memory::data_type::bf16;
  if (dtype == "f16") return memory::data_type::f16;
  throw std::runtime_error("no such type");
}

// Memory with small random numbers; the bytes of random floats are read as whatever type it has.
memory Filled(const memory::desc& desc, const dnnl::engine& engine) {
  memory m(desc, engine);
  auto* bytes = static_cast<uint8_t*>(m.get_data_handle());
  const bool halves = desc.data_type() != memory::data_type::f32;
  const auto values = peers::RandomFloats(static_cast<int64_t>(desc.get_size() / (halves ? 2 : 4)));
  for (size_t i = 0; i < values.size(); ++i) {
    // The high half of an f32 is a bf16; as an f16 it is some other number, which serves as well.
    const auto* raw = reinterpret_cast<const uint8_t*>(&values[i]);
    std::memcpy(bytes + i * (halves ? 2 : 4), halves ? raw + 2 : raw, halves ? 2 : 4);
  }
  return m;
}

struct Set {
  memory x, y, workspace, dx, dy;
};

poolgrad::cli::Timing MeasureCell(const peers::Cell& cell) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  memory::dims x_dims{cell.batch, cell.channels}, y_dims = x_dims, kernel, stride, dilation, pad_lo, pad_hi;
  for (int i = 3 - cell.rank; i < 3; ++i) {
    const peers::Axis& a = cell.axis[i];
    x_dims.push_back(a.in);
    y_dims.push_back(a.out);
    kernel.push_back(a.kernel);
    stride.push_back(a.stride);
    dilation.push_back(a.dilation - 1);
    pad_lo.push_back(a.pad_lo);
    pad_hi.push_back(a.pad_hi);
  }
  const memory::desc x_desc(x_dims, TypeOf(cell.dtype), TagOf(cell)), y_desc(y_dims, TypeOf(cell.dtype), TagOf(cell));
  const bool training = cell.op != "fwd";
  using Forward = dnnl::pooling_v2_forward;
  using Backward = dnnl::pooling_v2_backward;
  const Forward::primitive_desc forward_desc(
      Forward::desc(training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
                    dnnl::algorithm::pooling_max, x_desc, y_desc, stride, kernel, dilation, pad_lo, pad_hi),
      engine);
  const Forward forward(forward_desc);
  std::vector<Set> sets(static_cast<size_t>(cell.sets));
  for (Set& set : sets) {
    set.x = Filled(x_desc, engine);
    set.y = memory(y_desc, engine);
    if (training) set.workspace = memory(forward_desc.workspace_desc(), engine);
    if (cell.op == "bwd") {
      set.dy = Filled(y_desc, engine);
      set.dx = memory(x_desc, engine);
    }
  }
  auto set_of = [&](int64_t i) -> Set& { return sets[static_cast<size_t>(i % cell.sets)]; };
  auto run_forward = [&](int64_t i) {
    Set& set = set_of(i);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, set.x}, {DNNL_ARG_DST, set.y}};
    if (training) arguments[DNNL_ARG_WORKSPACE] = set.workspace;
    forward.execute(stream, arguments);
    stream.wait();
  };
  if (cell.op != "bwd") return poolgrad::cli::Measure(cell.seconds, cell.sets, run_forward);
  const Backward backward(Backward::primitive_desc(
      Backward::desc(dnnl::algorithm::pooling_max, x_desc, y_desc, stride, kernel, dilation, pad_lo, pad_hi), engine,
      forward_desc));
  for (int64_t i = 0; i < cell.sets; ++i) run_forward(i);
  return poolgrad::cli::Measure(cell.seconds, cell.sets, [&](int64_t i) {
    Set& set = set_of(i);
    backward.execute(stream,
                     {{DNNL_ARG_DIFF_DST, set.dy}, {DNNL_ARG_DIFF_SRC, set.dx}, {DNNL_ARG_WORKSPACE, set.workspace}});
    stream.wait();
  });
}

}  // namespace

int main() { return peers::Serve(MeasureCell); }
