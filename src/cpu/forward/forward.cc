// The list of SIMD ways to pool forward, fastest first, and what is asked of every problem before its kernel is made.
#include "cpu/forward/forward.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "cpu/cpu.h"
#include "cpu/lanes/lanes.h"
#include "cpu/tuning.h"

namespace poolgrad {
namespace {

const char* MakeOfType(ForwardWay way, const Problem& p, bool routes, const Host& host, Kernel* kernel) {
  if (way == ForwardWay::kTransposed) {
    return MakeForwardTransposed(p, routes ? POOLGRAD_OP_FORWARD_ROUTES : POOLGRAD_OP_FORWARD, host, kernel);
  }
  switch (p.dtype) {
    case POOLGRAD_F32:
      if (IsGeneral(way)) return MakeForwardF32(way, p, routes, host.simd, kernel);
      return (routes ? MakeForwardF32SpecialRoutes : MakeForwardF32Special)(way, p, routes, host.simd, kernel);
    case POOLGRAD_F64:
    case POOLGRAD_I32:
      return MakeForwardF64(way, p, routes, host.simd, kernel);
    case POOLGRAD_F16:
    case POOLGRAD_BF16:
      if (HasHalfFmax() && !MakeForwardHalfFmax(way, p, routes, host.simd, kernel)) return nullptr;
      return (IsGeneral(way) ? MakeForwardHalf : MakeForwardHalfSpecial)(way, p, routes, host.simd, kernel);
    default:
      return MakeForwardInt(way, p, routes, host.simd, kernel);
  }
}

// Whether the signs of a few values, some here and some there in what the units read, are all plus.
template <class Bits>
bool SeesNoSign(const Problem& p, const Args& args, int64_t begin, int64_t end, int64_t units) {
  constexpr int64_t kRun = 64 / sizeof(Bits);            // a line
  constexpr int64_t kApart = (32 << 10) / sizeof(Bits);  // far enough to cost nothing beside the pooling
  const auto* x = static_cast<const Bits*>(args.source);
  const auto place = [&](int64_t unit) {
    return p.x_elements() / units * unit + p.x_elements() % units * unit / units;
  };
  const int64_t first = place(begin);
  const int64_t last = place(end);
  const int64_t runs = std::clamp<int64_t>((last - first) / kApart, 1, 16);
  Bits seen = 0;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t at = first + (last - first) / runs * i;
    const int64_t n = std::min(kRun, last - at);
    for (int64_t k = 0; k < n; ++k) seen |= x[at + k];
  }
  return seen >> (8 * sizeof(Bits) - 1) == 0;
}

// Behind a rectifier values are never negative: then their bits can be compared. For halves that is cheaper than making
// keys; for f32 it saves looking for -0 where +0 won, which among many taps is rare. Bits lie in scratch as their
// floats do, in one layout.
void AddShortcut(ForwardWay way, const Problem& p, bool routes, const Host& host, Kernel* kernel) {
  const bool half = p.dtype == POOLGRAD_F16 || p.dtype == POOLGRAD_BF16;
  const bool planar = !p.channels_last() || p.channels == 1;
  if (!half && (p.dtype != POOLGRAD_F32 || (planar && p.taps() > 16))) return;
  if (p.axis[0].has_empty_window() || p.axis[1].has_empty_window() || p.axis[2].has_empty_window()) return;
  Kernel bits;
  if ((half ? MakeForwardBits16 : MakeForwardBits32)(way, p, routes, host.simd, &bits)) return;
  kernel->shortcut = {half ? SeesNoSign<uint16_t> : SeesNoSign<uint32_t>, bits.run};
  kernel->scratch_bytes = std::max(kernel->scratch_bytes, bits.scratch_bytes);
}

// What every way of max pooling asks for. Those that only compare keys ask for more, and all but fwd_transposed for
// windows at regular distances.
const char* RefuseTaps(const Problem& p, poolgrad_op op) {
  const int64_t most_taps = SizeOf(p.dtype) == 1 ? 65534 : int64_t{1} << 31;
  return p.taps() > most_taps && op == POOLGRAD_OP_FORWARD_ROUTES ? "a window has more taps than can be numbered"
                                                                  : nullptr;
}

template <bool kTables>
const char* RefuseKeys(const Problem& p, poolgrad_op op) {
  if (const char* reason = RefuseTaps(p, op)) return reason;
  if (!kTables && p.by_table()) return "it needs windows at regular distances";
  if (p.routes.masks && op == POOLGRAD_OP_FORWARD_ROUTES) return "it keeps one winner, not a set of ties";
  if (p.width().has_empty_window()) return "a window has no valid tap along the width";
  if (p.x_bytes() > int64_t{1} << 48 || p.y_bytes() > int64_t{1} << 48) return "no memory holds so much";
  return nullptr;
}

// Rows of outputs that take as long as what a task makes again of rows above its first one: these ways reduce rows of
// inputs once for all windows down that share them. Values do so where windows are large; else they take rows as they
// are.
int64_t RowsRepeated(ForwardWay way, const Problem& p) {
  const Axis& h = p.height();
  const bool shares = way == ForwardWay::kRows || way == ForwardWay::kLarge || way == ForwardWay::kRoutes ||
                      (way == ForwardWay::kValues && h.kernel > 10 + 2 * h.stride);
  return shares ? std::clamp<int64_t>(CeilDiv(h.extent() - h.stride, h.stride), 0, h.out - 1) : 0;
}

// Windows with routes that fwd_exact pools faster than fwd_routes, which reduces all rows that a window reaches along
// the width. Channels last: of more than 9 taps and few for each input, which it takes one by one. Channels first: of
// many rows that share few of them: it reduces columns down as they lie and picks from them, which is 1.0 to 3.4 times
// as fast as loading every tap of a row for outputs that lie apart. The reason, or null.
const char* SuitsExact(const Problem& p) {
  const Axis &d = p.depth(), &h = p.height(), &w = p.width();
  const bool last = p.channels_last() && p.channels > 1;
  const int64_t least = std::min(w.valid_taps(0).size(), w.valid_taps(w.out - 1).size());
  if (!(last && p.channels > 8) && w.kernel - least >= 4) return nullptr;  // windows are picked: of sizes at hand
  if (last) return p.taps() > 9 && HasFewTaps(p) ? "windows have few taps for each input" : nullptr;
  const int64_t rows = d.kernel * h.kernel;
  const double read = static_cast<double>(d.out * h.out) * static_cast<double>(rows);
  const bool few = rows >= (w.stride > 4 ? 4 : 10) && 2 * read <= 3 * static_cast<double>(d.in * h.in);
  return few ? "windows of many rows share few of them" : nullptr;
}

const char* MakeMax(ForwardWay way, const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  if (way == ForwardWay::kCut) return MakeForwardCut(p, op, host, kernel);
  const bool routes = op == POOLGRAD_OP_FORWARD_ROUTES;
  const bool usual = Tuning().forward_kept >> 10 > 0;  // tests take kernels also where they are slow
  if (usual && way == ForwardWay::kLarge && routes && p.taps() <= 255 &&
      CeilDiv(p.height().kernel, p.height().stride) <= 3) {
    return "at most three windows share a row";  // fwd_cl_rows takes those, if rows are long enough to be worth it
  }
  if (usual && way == ForwardWay::kRoutes) {
    if (const char* reason = SuitsExact(p)) return reason;
  }
  if (const char* reason = MakeOfType(way, p, routes, host, kernel)) return reason;
  kernel->repeated = std::max(kernel->repeated, RowsRepeated(way, p));
  AddShortcut(way, p, routes, host, kernel);
  // Rows are kept with the padding around them, so that windows far larger than the input could ask for any memory.
  const int64_t most = MostScratch(p) + (routes ? p.routes.bytes() : 0);
  if (kernel->scratch_bytes > most) return "its scratch would be far larger than the data";
  if (p.bias && !(kernel->finish = MakeRectifier(p, host.simd))) return kNotBuilt;
  return nullptr;
}

template <ForwardWay kWay>
const char* Make(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  if constexpr (kWay == ForwardWay::kAveragePlanes) return MakeAveragePlanes(p, op, host, kernel);
  if constexpr (kWay == ForwardWay::kAverage) return MakeAverage(p, op, host, kernel);
  return MakeMax(kWay, p, op, host, kernel);
}

constexpr auto RefusalOf(ForwardWay way) -> const char* (*)(const Problem&, poolgrad_op) {
  if (way == ForwardWay::kAverage || way == ForwardWay::kAveragePlanes) return nullptr;
  if (way == ForwardWay::kExact) return RefuseTaps;
  return way == ForwardWay::kTransposed ? RefuseKeys<true> : RefuseKeys<false>;
}

constexpr auto kForward = []<size_t... kRows>(std::index_sequence<kRows...>) {
  return std::array{Algorithm{kForwardTable[kRows].name, kForwardTable[kRows].does, kForwardTable[kRows].seen,
                              Make<kForwardTable[kRows].way>, RefusalOf(kForwardTable[kRows].way)}...};
}
(std::make_index_sequence<std::size(kForwardTable)>());

}  // namespace

bool HasFewTaps(const Problem& p) {
  const auto reads = static_cast<double>(p.out_plane()) * static_cast<double>(p.taps());
  return reads <= Tuning().forward_few * static_cast<double>(p.in_plane());
}

std::span<const Algorithm> ForwardAlgorithms() { return kForward; }

}  // namespace poolgrad
