// bias_sums: dbias[channel] = the sum of dy over the outputs of the channel that have a route, in the order that
// spec/rules.h fixes (kBiasBlock), whatever the instruction set, the threads and the layout.
//
// Channels first, a channel is a unit: codes and values of a block are spread into scratch line by line, then added
// kBiasSums at a time. Channels last, a group of channels is: their sums lie side by side, kBiasSums rows of them.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/bias.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/backward/backward.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/scratch.h"
#include "spec/rules.h"

#ifndef POOLGRAD_CPU_BACKWARD_BIAS_ONCE_
#define POOLGRAD_CPU_BACKWARD_BIAS_ONCE_
namespace poolgrad {
struct BiasLayout {
  int64_t group;  // channels of a unit
};
}  // namespace poolgrad
#endif

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

Selected SelectBias(const Problem&, int64_t) { return {}; }

#else

struct BiasScratch {
  BiasScratch(std::byte* memory, int64_t group) {
    ScratchTaker take(memory);
    codes = take.Take<uint32_t>(kRowLead + kBiasBlock + kRowSlack) + kRowLead;
    values = take.Take<double>(kBiasBlock);
    sums = take.Take<double>(kBiasSums * group);
    totals = take.Take<double>(group);
    bytes = take.used();
  }
  uint32_t* codes;
  void* values;
  double* sums;
  double* totals;
  int64_t bytes;
};

// sums[k] += values[k] where codes[k] names a tap, k < n.
template <class V>
HWY_INLINE void AddRouted(const V* values, const uint32_t* codes, uint32_t taps, int64_t n, double* sums) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<V, decltype(d)> dv;
  const hn::Rebind<uint32_t, decltype(d)> dc;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    const auto code = hn::LoadU(dc, codes + k);
    const auto value = hn::LoadU(dv, values + k);
    if constexpr (sizeof(V) == 4) {
      const auto kept = hn::IfThenElseZero(hn::RebindMask(dv, hn::Lt(code, hn::Set(dc, taps))), value);
      hn::StoreU(hn::Add(hn::LoadU(d, sums + k), hn::PromoteTo(d, kept)), d, sums + k);
    } else {
      const hn::RebindToSigned<decltype(d)> di;
      const hn::RebindToUnsigned<decltype(d)> du;
      const auto wide = hn::BitCast(di, hn::PromoteTo(du, code));
      const auto kept = hn::IfThenElseZero(hn::RebindMask(d, hn::Lt(wide, hn::Set(di, int64_t{taps}))), value);
      hn::StoreU(hn::Add(hn::LoadU(d, sums + k), kept), d, sums + k);
    }
  }
  for (; k < n; ++k) sums[k] += codes[k] < taps ? static_cast<double>(values[k]) : 0.0;
}

template <class T>
double SumOfBlock(const Problem& p, const Args& args, int64_t channel, Range block, const BiasScratch& s) {
  const int64_t plane = p.out_plane(), width = p.width().out;
  auto* const values = static_cast<Wide<T>*>(s.values);
  for (int64_t i = block.begin; i < block.end;) {
    const int64_t first = (i / plane * p.channels + channel) * plane, o = i % plane, ow = o % width;
    const int64_t n = std::min(width - ow, block.end - i);
    ReadCodes<uint32_t>(p, args.routes, (first + o) / width, ow, n, 0, 1, s.codes + (i - block.begin), nullptr);
    SpreadSum<T>(static_cast<const T*>(args.source) + first + o, n, values + (i - block.begin));
    i += n;
  }
  std::fill_n(s.sums, kBiasSums, 0.0);
  for (int64_t i = 0; i < block.size(); i += kBiasSums) {
    AddRouted(values + i, s.codes + i, static_cast<uint32_t>(p.taps()), std::min(kBiasSums, block.size() - i), s.sums);
  }
  return FoldBiasSums(s.sums);
}

// Adds the sums of a block to s.totals, a channel each.
template <class T>
void AddBlock(const Problem& p, const Args& args, Range channels, Range block, const BiasScratch& s) {
  const int64_t n = channels.size();
  auto* const values = static_cast<Wide<T>*>(s.values);
  std::fill_n(s.sums, kBiasSums * n, 0.0);
  for (int64_t i = block.begin; i < block.end; ++i) {
    const uint8_t* line = args.routes + LineOffset(p.routes, i);
    SpreadCodes(p.routes.bits, line + channels.begin * p.routes.bits / 8, n, s.codes);
    SpreadSum<T>(static_cast<const T*>(args.source) + i * p.channels + channels.begin, n, values);
    AddRouted(values, s.codes, static_cast<uint32_t>(p.taps()), n, s.sums + i % kBiasSums * n);
  }
  for (int64_t half = kBiasSums / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half * n; ++k) s.sums[k] += s.sums[k + half * n];
  }
  for (int64_t c = 0; c < n; ++c) s.totals[c] += s.sums[c];
}

template <class T>
void RunBias(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const int64_t group = static_cast<const BiasLayout*>(args.layout)->group;
  const int64_t outputs = p.batch * p.out_plane();
  const BiasScratch s(scratch, group);
  for (int64_t unit = begin; unit < end; ++unit) {
    const Range channels{unit * group, std::min(unit * group + group, p.channels)};
    std::fill_n(s.totals, channels.size(), 0.0);
    for (int64_t i = 0; i < outputs; i += kBiasBlock) {
      const Range block{i, std::min(i + kBiasBlock, outputs)};
      if (p.channels_last()) {
        AddBlock<T>(p, args, channels, block, s);
      } else {
        s.totals[0] += SumOfBlock<T>(p, args, channels.begin, block, s);
      }
    }
    for (int64_t c = 0; c < channels.size(); ++c) {
      static_cast<T*>(args.result)[channels.begin + c] = Narrow<T>(static_cast<Wide<T> >(s.totals[c]));
    }
  }
}

Selected SelectBias(const Problem& p, int64_t group) {
  const int64_t bytes = BiasScratch(nullptr, group).bytes;
  switch (p.dtype) {
#ifndef POOLGRAD_SMALL
    case POOLGRAD_F32:
      return {RunBias<float>, bytes};
    case POOLGRAD_F64:
      return {RunBias<double>, bytes};
    case POOLGRAD_F16:
      return {RunBias<F16>, bytes};
    case POOLGRAD_BF16:
      return {RunBias<BF16>, bytes};
#endif
    default:
      return {};
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectBias);

Made MakeBias(const Problem& p, poolgrad_op op, const Host& host) {
  if (op != POOLGRAD_OP_BIAS_GRADIENT) return "it sums the gradient of a bias only";
  if (!p.bias) return "the problem has no bias";
  if (p.routes.masks) return "the routes are sets of taps";
  // As many channels side by side as leave every thread a group; whole bytes of codes.
  const int64_t share = CeilDiv(p.channels, std::max(1, host.threads));
  const int64_t group = p.channels_last() ? std::clamp<int64_t>(CeilDiv(share, 16) * 16, 16, 64) : 1;
  const Selected selected = POOLGRAD_DISPATCH(SelectBias, host.simd)(p, group);
  if (!selected.run) return kNoVectors;
  Kernel kernel{selected.run, CeilDiv(p.channels, group), selected.bytes};
  kernel.layout = std::make_shared<const BiasLayout>(BiasLayout{group});
  return kernel;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
