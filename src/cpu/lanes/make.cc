// Which problems the kernels of lanes.cc take, and how each is laid out. A file of its own: here memory is asked for.
#include <memory>
#include <utility>

#include "cpu/lanes/lanes.h"
#include "cpu/simd/targets.h"

namespace poolgrad {
namespace {

const char* NoRun(const Host& host) { return host.simd == kNoSimd ? kNoSimdHere : kNotBuilt; }

}  // namespace

const char* MakeAverage(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  const bool back = op == POOLGRAD_OP_BACKWARD;
  constexpr int64_t kExact = 1 << 24;  // counts that f32 holds
  if (p.depth().kernel * p.height().kernel > kExact || p.width().kernel > kExact) return "a window has too many taps";
  for (const Axis& a : p.axis) {
    if (back && !EndsInOrder(a)) return "a window ends before an earlier one does";
  }
  const LaneRuns runs = RunsOn(p, host);
  if (!runs.average) return NoRun(host);
  auto layout = std::make_shared<const LaneLayout>(LayOutLanes(p, back, runs.lanes, runs.size));
  kernel->run = runs.average;
  kernel->units = layout->units(runs.lanes);
  kernel->scratch_bytes = runs.average_scratch(p, layout.get());
  kernel->layout = std::move(layout);
  return kernel->scratch_bytes > MostScratch(p) ? "its rows would take too much scratch" : nullptr;
}

const char* MakeAveragePlanes(const Problem& p, poolgrad_op, const Host& host, Kernel* kernel) {
  if (p.channels_last() && p.channels > 1) return "it is for channels first";
  for (const Axis& a : p.axis) {
    const bool whole = !a.table && a.out == 1 && a.kernel == a.in && a.pad_lo == 0 && a.dilation == 1;
    if (!whole) return "a plane is more than one window";
  }
  const LaneRuns runs = RunsOn(p, host);
  const int64_t planes = p.batch * p.channels;
  if (!runs.planes) return NoRun(host);
  if (planes < runs.lanes) return "there are fewer planes than lanes";
  if (p.x_bytes() < 16 * planes) return "the planes are too small";
  kernel->run = runs.planes;
  kernel->units = CeilDiv(planes, runs.lanes);
  return nullptr;
}

}  // namespace poolgrad
