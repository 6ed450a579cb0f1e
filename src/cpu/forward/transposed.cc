// fwd_transposed: short rows and large windows, channels first, and few channels last. Vectors along a short row would
// be nearly empty, so planes become lanes: a block of planes is turned over into scratch, where it is an image with
// channels last, pooled there by the kernel that such an image gets, and turned back. Its codes are packed while planes
// are still lanes, so that short lines cost no more than long ones. With channels last a plane is a whole image, each
// of whose channels has lanes of its own. Slices and rows that no tap lands on are left out.
//
// Large windows gain by fwd_large, though it takes turning (f32, AVX-512, planes of 40x40, against the general
// kernels, values and routes: 13x13 1.2 and 1.5 times as fast, 31x31 1.5 and 1.6, 17x17 at stride 2 1.3 and 3.1).
// Planes of 16 KiB and more it takes as they lie, at stride 1.
#define POOLGRAD_WIDER HWY_AVX3  // lines of 64 bytes, or squares of 16
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/transposed.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include <algorithm>
#include <cstring>
#include <numeric>

#include "cpu/cpu.h"
#include "cpu/forward/forward.h"
#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "hwy/highway.h"
#include "spec/fold.h"

#ifndef POOLGRAD_CPU_FORWARD_TRANSPOSED_ONCE_
#define POOLGRAD_CPU_FORWARD_TRANSPOSED_ONCE_
namespace poolgrad {

struct TransposedLayout {
  Problem block;    // channels last; its channels are planes, its codes at least bytes
  Kernel kernel;    // of it
  int64_t lanes;    // planes of a block
  int64_t in, out;  // elements of a plane
  ThinAxis depth, height;
  bool near;  // a block is small enough to be turned over down columns

  explicit TransposedLayout(const Problem& p) : block(p), depth(p.depth()), height(p.height()) {
    block.axis[0] = depth.axis;
    block.axis[1] = height.axis;
  }
};

// What a block keeps in scratch.
struct TransposedScratch {
  const Problem& p;
  const TransposedLayout& l;
  ScratchTaker take;
  const int64_t line_bytes = l.out / p.routes.line * p.routes.line_bytes;  // of a plane
  std::byte* const x = take.Take<std::byte>(l.block.x_bytes());
  std::byte* const y = take.Take<std::byte>(l.block.y_bytes());
  uint8_t* const codes = take.Take<uint8_t>(l.block.routes.bytes());
  uint8_t* const packed = take.Take<uint8_t>(p.routes.bits < 8 ? line_bytes * l.lanes : 0);
  std::byte* const bias = take.Take<std::byte>(p.bias ? l.block.channels * SizeOf(p.dtype) : 0);
  std::byte* const inner = take.Take<std::byte>(l.kernel.scratch_bytes);

  TransposedScratch(const Problem& problem, const TransposedLayout& layout, std::byte* memory)
      : p(problem), l(layout), take(memory) {}
};

}  // namespace poolgrad
#endif

#if HWY_TARGET != HWY_SCALAR
#include "cpu/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Rows of `outputs` positions, a code in a byte of each of `lanes` lanes, to rows of line_bytes.
void PackLanes(const RouteFormat& f, int64_t outputs, int64_t lanes, const uint8_t* codes, uint8_t* packed) {
  const hn::CappedTag<uint8_t, 16> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(d, static_cast<uint8_t>(f.none()));
  const int64_t per_byte = 8 / f.bits;
  for (int64_t row = 0; row < outputs; row += f.line, codes += f.line * lanes) {
    for (int64_t first = 0; first < f.line; first += per_byte, packed += lanes) {
      const int64_t n = std::min(per_byte, f.line - first);
      for (int64_t c = 0; c < lanes; c += step) {  // lanes come in sixteens
        auto byte = hn::Zero(d);
        for (int64_t k = n - 1; k >= 0; --k) {
          const auto code = hn::And(hn::LoadU(d, codes + (first + k) * lanes + c), mask);
          const hn::Repartition<uint16_t, decltype(d)> d16;  // nothing is shifted out of a byte that holds less
          const auto wide = hn::BitCast(d16, byte);
          byte = hn::Or(hn::BitCast(d, f.bits == 2 ? hn::ShiftLeft<2>(wide) : hn::ShiftLeft<4>(wide)), code);
        }
        hn::StoreU(byte, d, packed + c);
      }
    }
  }
}

// n planes into lanes. Those of the next block are asked for, which are needed when this one has been pooled.
template <class Bits>
void TurnOver(const Bits* planes, const Problem& p, const TransposedLayout& l, int64_t n, Bits* to) {
  const int64_t row = p.width().in * (p.channels_last() ? p.channels : 1);
  const int64_t rows = l.height.apart > 1 ? 1 : p.height().in;  // that follow one another
  const int64_t slices = rows == 1 || l.depth.apart > 1 ? 1 : p.depth().in;
  for (int64_t d = 0; d < l.depth.axis.in; d += slices) {
    for (int64_t h = 0; h < l.height.axis.in; h += rows) {
      const int64_t first = l.depth.At(d) * p.height().in + l.height.At(h);
      Transpose(planes + first * row, n, slices * rows * row, l.in, to, l.lanes, l.near, n * l.in);
      to += slices * rows * row * l.lanes;
    }
  }
}

// Units are blocks of planes. Bits: the unsigned integer of the element's size.
template <class Bits>
void RunTransposed(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const auto& l = *static_cast<const TransposedLayout*>(args.layout);
  const TransposedScratch s(p, l, scratch);
  const int64_t in = l.in, out = l.out, lanes = l.lanes;
  const RouteFormat& f = p.routes;
  const int64_t planes = p.batch * p.channels * p.in_plane() / in;
  for (int64_t plane = begin * lanes; plane < std::min(end * lanes, planes); plane += lanes) {
    const int64_t n = std::min(lanes, planes - plane);
    if (n < lanes) std::memset(s.x, 0, static_cast<size_t>(l.block.x_bytes()));
    TurnOver(static_cast<const Bits*>(args.source) + plane * in, p, l, n, reinterpret_cast<Bits*>(s.x));
    Args inner;
    inner.source = s.x;
    inner.result = s.y;
    inner.routes = args.routes ? s.codes : nullptr;
    inner.bias = s.bias;
    for (int64_t i = 0; p.bias && i < l.block.channels; ++i) {
      const int64_t channel = p.channels_last() ? i / lanes : (plane + i) % p.channels;
      reinterpret_cast<Bits*>(s.bias)[i] = static_cast<const Bits*>(args.bias)[channel];
    }
    l.kernel.Run(l.block, inner, 0, l.kernel.units, s.inner);
    Transpose(reinterpret_cast<const Bits*>(s.y), out, n, lanes, static_cast<Bits*>(args.result) + plane * out, out,
              l.near);
    if (!args.routes) continue;
    const int64_t bytes = out / f.line * f.line_bytes;
    uint8_t* const routes = args.routes + plane * bytes;
    if (f.bits == 16) {
      Transpose(reinterpret_cast<const uint16_t*>(s.codes), out, n, lanes, reinterpret_cast<uint16_t*>(routes), out,
                l.near);
    } else if (f.bits == 32) {
      Transpose(reinterpret_cast<const uint32_t*>(s.codes), out, n, lanes, reinterpret_cast<uint32_t*>(routes), out,
                l.near);
    } else {
      if (f.bits < 8) PackLanes(f, out, lanes, s.codes, s.packed);
      Transpose(f.bits < 8 ? s.packed : s.codes, bytes, n, lanes, routes, bytes, l.near);
    }
  }
}

RunFn TransposedOf(const Problem& p) {
  switch (SizeOf(p.dtype)) {
    case 4:
      return RunTransposed<uint32_t>;
#ifndef POOLGRAD_SMALL  // which has f32 alone
    case 1:
      return RunTransposed<uint8_t>;
    case 2:
      return RunTransposed<uint16_t>;
    case 8:
      return RunTransposed<uint64_t>;
#endif
    default:
      return nullptr;
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {

constexpr const char* kLongRows = "rows are long enough for vectors along them";

const char* MakeForwardTransposed(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  const int64_t inner = p.channels_last() ? p.channels : 1;
  const auto fills_lanes = [](const Problem& q) { return q.channels_last() && q.channels >= 16; };
  bool fills = fills_lanes(p);
#ifndef POOLGRAD_SMALL
  if (const auto folded = Folded(p, op)) fills = fills_lanes(*folded);  // as the others see it
#endif
  if (fills) return "there are channels enough to fill lanes";
  const int64_t planes = p.batch * p.channels / inner;
  const CpuTuning& tuning = Tuning();
  if (planes < tuning.transposed_planes) return "there are too few planes to fill lanes";
  const bool table = p.by_table();
  const int64_t wide = std::min<int64_t>(SizeOf(p.dtype), 2) * p.width().in * inner;
  if (table && wide >= 2 * tuning.transposed_table) return kLongRows;
  const int64_t vector = std::min(CeilDiv(planes, 16), std::max<int64_t>(1, 4 / SizeOf(p.dtype))) * 16;
  // What general kernels do for each row they do for few outputs here; for values alone they lie along rows of x. A
  // signal has nothing but rows, and those of outputs far apart are slow to collect; the same holds for images of
  // signals.
  const bool along = p.out_plane() == p.width().out || p.depth().kernel * p.height().kernel == 1;
  const bool signal = along && p.width().stride > 2;
  const bool few = signal || op == POOLGRAD_OP_FORWARD_ROUTES;
  const int64_t row = (few ? p.width().out : p.width().in) * SizeOf(p.dtype) * inner;
  // Values of windows whose neighbours meet first (any/values-inl.h) are not.
  const int64_t common = std::gcd(p.width().kernel, p.width().stride);
  const bool joins = op == POOLGRAD_OP_FORWARD && p.width().stride > 4 && p.width().dilation == 1 &&
                     (common % 2 == 0 || common % 3 == 0);
  // Of windows of several slices they make each slice anew, row by row.
  const bool deep = p.depth().kernel > 1;
  // Two to four channels at a stride they make at all places, with routes, and pick.
  const bool picked = inner > 1 && inner <= 4 && op == POOLGRAD_OP_FORWARD_ROUTES && p.width().stride > 1;
  const bool is_short =
      table || picked || row <= ((signal && !joins) || deep ? tuning.transposed_far : tuning.transposed_row);
  // Large windows are worth it in long rows too: channels last has a kernel whose time hardly depends on them.
  const bool is_large = p.taps() >= tuning.transposed_taps && planes >= 2 * vector * host.threads;
  if (!is_short && !is_large) return kLongRows;
  auto layout = std::make_shared<TransposedLayout>(p);
  Problem& q = layout->block;
  const int64_t each = vector * (q.in_plane() + q.out_plane()) * inner * SizeOf(p.dtype);
  // Beyond L2 only windows gain with routes that the general kernel has to put together: at strides of 2 to 4 it sorts
  // columns and takes every tap once. (96x96 turned over: 12x12 at stride 3 0.6 times as fast, 31x31 at stride 4 1.9.)
  // Deep ones gain up to 1 MiB. (3x3x3 at stride 2, bf16, 28x28x12 2.0 times as fast, 36x36x12 1.0, 48x48x8 0.7.)
  const int64_t stride = p.width().stride;
  const int64_t large = tuning.transposed_taps * (stride > 1 && stride <= 4 ? 3 * stride : 4) / 4;
  const bool far = op == POOLGRAD_OP_FORWARD_ROUTES && p.taps() >= large;
  const bool apart = op == POOLGRAD_OP_FORWARD_ROUTES && deep;
  const int64_t room = tuning.transposed_block * (far ? 8 : apart ? 4 : 2);
  if (each > room && !table) return "planes are too large to be held side by side";
  // Blocks of about the same size, of whole vectors, as many for every thread. What is left of one takes as long. More
  // than four vectors are for planes so small that beginning a block would take longer than pooling it.
  const int64_t vectors = std::max<int64_t>(4, tuning.transposed_block / 8 / each);
  const int64_t most = std::clamp<int64_t>(tuning.transposed_block / each, 1, vectors);
  const int64_t fair = CeilDiv(CeilDiv(planes, most * vector), host.threads) * host.threads;
  const int64_t blocks = std::min(fair, CeilDiv(planes, vector));

  q.layout = POOLGRAD_CHANNELS_LAST;
  q.batch = 1;
  layout->lanes = CeilDiv(CeilDiv(planes, blocks), vector) * vector;
  layout->in = p.in_plane() * inner;
  layout->out = p.out_plane() * inner;
  layout->near = layout->lanes * layout->in * SizeOf(p.dtype) <= tuning.transposed_block / 2;
  q.channels = layout->lanes * inner;
  q.routes.bits = std::max(8, p.routes.bits);
  SetRouteLines(&q);
  const auto of_channels_last = ForwardAlgorithms().subspan(static_cast<size_t>(ForwardWay::kRows));
  const Algorithm* const way = MakeFirst(of_channels_last, q, op, Host{host.simd}, &layout->kernel);
  const auto of = POOLGRAD_DISPATCH(RunFn(const Problem&), TransposedOf, host.simd);
  kernel->run = of ? of(p) : nullptr;
  if (!kernel->run || !way) return kNoSimdHere;
  if (!is_short && std::strcmp(way->name, "fwd_large") != 0) return kLongRows;
  kernel->units = CeilDiv(planes, layout->lanes);
  kernel->scratch_bytes = TransposedScratch(p, *layout, nullptr).take.used();
  kernel->layout = std::move(layout);
  return nullptr;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
