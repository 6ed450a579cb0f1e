// bias_sums: dbias[channel] = the sum of dy over the outputs of the channel that have a route, in the order that
// spec/rules.h fixes (kBiasBlock), whatever the instruction set, the threads and the layout.
//
// Channels first, a channel is a unit: codes and values of a block are spread into scratch line by line, then added
// kBiasSums at a time. Channels last, a group of channels is: their sums lie side by side, kBiasSums rows of them.

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "base/kept.h"
#include "cpu/backward/backward.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/scratch.h"
#include "spec/rules.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// What depends on the type: values as sums are made of them, and their addition.
struct BiasForm {
  int64_t bytes, wide_bytes;
  void (*spread)(const void* from, int64_t count, void* to);
  void (*add)(const void* values, const uint32_t* codes, uint32_t taps, int64_t n, double* sums);
  void (*round)(double sum, void* to);
};

struct BiasLayout {
  int64_t group;  // channels of a unit
  const BiasForm* form;
};

struct BiasScratch {
  const int64_t group;
  ScratchTaker take;
  uint32_t* const codes = take.Take<uint32_t>(kRowLead + kBiasBlock + kRowSlack) + kRowLead;
  std::byte* const values = take.Take<std::byte>(kBiasBlock * static_cast<int64_t>(sizeof(double)));
  double* const sums = take.Take<double>(kBiasSums * group);
  double* const totals = take.Take<double>(group);
};

// sums[k] += values[k] where codes[k] names a tap, k < n.
template <class V>
void AddRouted(const void* of, const uint32_t* codes, uint32_t taps, int64_t n, double* sums) {
  const V* const values = static_cast<const V*>(of);
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

inline const std::byte* BiasSource(const Args& args, int64_t place, const BiasForm& form) {
  return static_cast<const std::byte*>(args.source) + place * form.bytes;
}

inline double SumOfBlock(const Problem& p, const Args& args, int64_t channel, Range block, const BiasScratch& s,
                         const BiasForm& form) {
  const int64_t plane = p.out_plane(), width = p.width().out;
  for (int64_t i = block.begin; i < block.end;) {
    const int64_t first = (i / plane * p.channels + channel) * plane, o = i % plane, ow = o % width;
    const int64_t n = std::min(width - ow, block.end - i);
    ReadCodes<uint32_t>(p, args.routes, (first + o) / width, ow, n, 0, 1, s.codes + (i - block.begin), nullptr);
    form.spread(BiasSource(args, first + o, form), n, s.values + (i - block.begin) * form.wide_bytes);
    i += n;
  }
  std::fill_n(s.sums, kBiasSums, 0.0);
  for (int64_t i = 0; i < block.size(); i += kBiasSums) {
    form.add(s.values + i * form.wide_bytes, s.codes + i, static_cast<uint32_t>(p.taps()),
             std::min(kBiasSums, block.size() - i), s.sums);
  }
  return FoldBiasSums(s.sums);
}

// Adds the sums of a block to s.totals, a channel each.
inline void AddBlock(const Problem& p, const Args& args, Range channels, Range block, const BiasScratch& s,
                     const BiasForm& form) {
  const int64_t n = channels.size();
  std::fill_n(s.sums, kBiasSums * n, 0.0);
  for (int64_t i = block.begin; i < block.end; ++i) {
    const uint8_t* line = args.routes + LineOffset(p.routes, i);
    SpreadCodes(p.routes.bits, line + channels.begin * p.routes.bits / 8, n, s.codes);
    form.spread(BiasSource(args, i * p.channels + channels.begin, form), n, s.values);
    form.add(s.values, s.codes, static_cast<uint32_t>(p.taps()), n, s.sums + i % kBiasSums * n);
  }
  for (int64_t half = kBiasSums / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half * n; ++k) s.sums[k] += s.sums[k + half * n];
  }
  for (int64_t c = 0; c < n; ++c) s.totals[c] += s.sums[c];
}

inline void RunBias(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const auto& [group, form] = *static_cast<const BiasLayout*>(args.layout);
  const int64_t outputs = p.batch * p.out_plane();
  const BiasScratch s = {group, ScratchTaker(scratch)};
  for (int64_t unit = begin; unit < end; ++unit) {
    const Range channels{unit * group, std::min(unit * group + group, p.channels)};
    std::fill_n(s.totals, channels.size(), 0.0);
    for (int64_t i = 0; i < outputs; i += kBiasBlock) {
      const Range block{i, std::min(i + kBiasBlock, outputs)};
      if (p.channels_last()) {
        AddBlock(p, args, channels, block, s, *form);
      } else {
        s.totals[0] += SumOfBlock(p, args, channels.begin, block, s, *form);
      }
    }
    for (int64_t c = 0; c < channels.size(); ++c) {
      form->round(s.totals[c], static_cast<std::byte*>(args.result) + (channels.begin + c) * form->bytes);
    }
  }
}

template <class T>
inline constexpr BiasForm kBiasForm = {
    sizeof(T), sizeof(Wide<T>), SpreadSum<T>, AddRouted<Wide<T>>,
    [](double sum, void* to) { *static_cast<T*>(to) = Narrow<T>(static_cast<Wide<T>>(sum)); }};

inline const BiasForm* BiasFormOf([[maybe_unused]] int32_t dtype) {
#ifndef POOLGRAD_SMALL
  if (dtype == POOLGRAD_F32) return &kBiasForm<float>;
  if (dtype == POOLGRAD_F64) return &kBiasForm<double>;
  if (dtype == POOLGRAD_F16) return &kBiasForm<F16>;
  if (dtype == POOLGRAD_BF16) return &kBiasForm<BF16>;
#endif
  return nullptr;
}

inline const char* MakeBias(const Problem& p, poolgrad_op, const Host& host, Kernel* kernel) {
  if (!p.bias) return "the problem has no bias";
  if (p.routes.masks) return "the routes are sets of taps";
  // As many channels side by side as leave every thread a group; whole bytes of codes.
  const int64_t share = CeilDiv(p.channels, std::max(1, host.threads));
  const int64_t group = p.channels_last() ? std::clamp<int64_t>(CeilDiv(share, 16) * 16, 16, 64) : 1;
  const BiasForm* const form = BiasFormOf(p.dtype);
  if (!form) return kNotBuilt;
  kernel->run = RunBias;
  kernel->units = CeilDiv(p.channels, group);
  kernel->scratch_bytes = BiasScratch{group, ScratchTaker(nullptr)}.take.used();
  return Keep(BiasLayout{group, form}, &kernel->layout);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
