// Problems and their inputs, drawn at random: what check.cu runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "spec/problem.h"

namespace poolgrad {

using Random = std::mt19937_64;

inline int64_t Pick(Random& r, int64_t lo, int64_t hi) {
  return lo + static_cast<int64_t>(r() % static_cast<uint64_t>(hi - lo + 1));
}
inline bool Chance(Random& r, int percent) { return Pick(r, 1, 100) <= percent; }

// An extent of 1 to `most`, small ones more often.
inline int64_t PickSmall(Random& r, int64_t most) { return Pick(r, 1, Pick(r, 1, most)); }

// Any window: kernels up to 31 along each axis, dilated, strided, in any layout and type that kernels of their own
// take.
inline poolgrad_problem AnyWindow(Random& r) {
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  const int dtypes[] = {POOLGRAD_F32, POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_BF16, POOLGRAD_F16,
                        POOLGRAD_F64, POOLGRAD_I8,  POOLGRAD_U8,   POOLGRAD_I32};
  p.dtype = dtypes[Pick(r, 0, 8)];
  p.layout = static_cast<int32_t>(Pick(r, 0, 1));
  p.rank = static_cast<int32_t>(Pick(r, 1, 3));
  p.batch = Pick(r, 1, 5);
  p.channels = Chance(r, 50) ? 8 * Pick(r, 1, 10) : PickSmall(r, 70);
  const int64_t most[] = {400, 70, 20}, kernels[] = {40, 31, 7};
  for (int i = 0; i < p.rank; ++i) {
    p.in[i] = Pick(r, 1, most[p.rank - 1]);
    p.kernel[i] = PickSmall(r, kernels[p.rank - 1]);
    p.stride[i] = Chance(r, 40) ? 1 : PickSmall(r, p.kernel[i] + 2);
    p.dilation[i] = Chance(r, 75) ? 1 : Pick(r, 1, 4);
    p.pad_lo[i] = Pick(r, 0, p.kernel[i] / 2);
    p.pad_hi[i] = Pick(r, 0, p.kernel[i] / 2);
  }
  if (p.rank < 3 && Chance(r, 12)) {  // rows too long for shared memory; of two axes, the first may move by any step
    for (int i = 0; i + 1 < p.rank; ++i) p.in[i] = p.kernel[i] = 1, p.pad_lo[i] = p.pad_hi[i] = 0;
    p.in[p.rank - 1] = Pick(r, 1000, 12000);
    p.batch = Pick(r, 1, 3), p.channels = PickSmall(r, 9);
  }
  if (Chance(r, 4)) {  // one tap that leaves nothing out
    for (int i = 0; i < p.rank; ++i) p.kernel[i] = p.stride[i] = 1, p.pad_lo[i] = p.pad_hi[i] = 0;
  }
  if (Chance(r, 20)) p.rounding = static_cast<int32_t>(Pick(r, 1, 5));
  if (Chance(r, 30)) p.nan = static_cast<int32_t>(Pick(r, 1, 5));
  if (Chance(r, 10)) p.route_bits = 8 << Pick(r, 0, 2);
  if (Chance(r, 15)) p.relu = 1;
  return p;
}

// Windows that move by one and share most of their inputs, wide or deep ones, along one axis or several.
inline poolgrad_problem SharingWindow(Random& r) {
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  const int dtypes[] = {POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_F16};
  p.dtype = dtypes[Pick(r, 0, 2)];
  p.layout = static_cast<int32_t>(Pick(r, 0, 1));
  p.rank = static_cast<int32_t>(Chance(r, 40) ? 1 : Pick(r, 2, 3));
  p.batch = Pick(r, 1, 3);
  p.channels = Chance(r, 50) ? 8 * Pick(r, 1, 5) : Pick(r, 1, 20);
  const int64_t most[] = {300, 50, 22}, kernels[] = {Chance(r, 60) ? 14 : 31, 8, 4};
  const int64_t dilation = Chance(r, 20) ? Pick(r, 2, 3) : 1;
  for (int i = 0; i < p.rank; ++i) {
    p.in[i] = Pick(r, most[p.rank - 1] / 2, most[p.rank - 1]);
    p.kernel[i] = Chance(r, 25) && p.rank > 1 ? 1 : Pick(r, 2, kernels[p.rank - 1]);
    p.stride[i] = Chance(r, 85) ? 1 : 2;
    p.dilation[i] = Chance(r, 85) ? dilation : 2;
    p.pad_lo[i] = p.pad_hi[i] = Chance(r, 50) ? 0 : Pick(r, 0, p.kernel[i] / 2);
  }
  if (Chance(r, 30)) p.nan = static_cast<int32_t>(Pick(r, 1, 5));
  if (Chance(r, 15)) p.relu = 1;
  return p;
}

// What the starts and sizes of a problem point to.
struct Lists {
  std::vector<int64_t> starts[3], sizes[3];
};

// Windows by table: adaptive ones of any ratio, listed ones of one size or of many, beside axes that have neither.
inline poolgrad_problem TableProblem(Random& r, Lists& lists) {
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  p.kind = Chance(r, 35) ? POOLGRAD_AVERAGE : POOLGRAD_MAX;
  const int dtypes[] = {POOLGRAD_F32, POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_BF16, POOLGRAD_F16,
                        POOLGRAD_F64, POOLGRAD_I8,  POOLGRAD_U8,   POOLGRAD_I32};
  p.dtype = dtypes[Pick(r, 0, p.kind == POOLGRAD_AVERAGE ? 5 : 8)];
  p.layout = static_cast<int32_t>(Pick(r, 0, 1));
  p.rank = static_cast<int32_t>(Chance(r, 60) ? 2 : Pick(r, 1, 3));
  p.batch = Pick(r, 1, 5);
  p.channels = Chance(r, 50) ? 8 * Pick(r, 1, 10) : PickSmall(r, 70);
  const int64_t most[] = {Chance(r, 30) ? 5000 : 900, 70, 20};
  if (p.rank == 1 && most[0] > 900) p.batch = Pick(r, 1, 2), p.channels = PickSmall(r, 33);
  const bool same = Chance(r, 60);
  const int64_t common_in = Pick(r, 1, most[p.rank - 1]);
  const int64_t common_out = Chance(r, 80) ? PickSmall(r, common_in) : Pick(r, 1, common_in * 2);
  const bool gaps = p.rank == 3 && Chance(r, 30);  // between the depths of windows
  for (int i = 0; i < p.rank; ++i) {
    const int64_t in = same ? common_in : Pick(r, 1, most[p.rank - 1]);
    p.in[i] = in;
    if (gaps && i == 0) {
      p.kernel[i] = 1, p.stride[i] = Pick(r, 3, 6);
      continue;
    }
    if (!same && Chance(r, 20)) {  // a regular one
      p.kernel[i] = PickSmall(r, 5);
      p.stride[i] = Pick(r, 1, 4);
      if (Chance(r, 10)) p.dilation[i] = 2;
      continue;
    }
    p.outputs[i] = same ? common_out : Chance(r, 80) ? PickSmall(r, in) : Pick(r, 1, 2 * in);
    if (Chance(r, 60)) continue;  // adaptive
    const int64_t size = PickSmall(r, in);
    const bool sized = Chance(r, 40);
    for (int64_t o = 0; o < p.outputs[i]; ++o) {
      lists.sizes[i].push_back(sized ? Pick(r, 1, size) : size);
      lists.starts[i].push_back(Pick(r, 0, in - size));
    }
    std::sort(lists.starts[i].begin(), lists.starts[i].end());
    p.starts[i] = lists.starts[i].data();
    if (sized) {
      p.sizes[i] = lists.sizes[i].data();
    } else {
      p.kernel[i] = size;
    }
  }
  if (p.kind == POOLGRAD_MAX) {
    if (Chance(r, 40)) p.ties = static_cast<int32_t>(Pick(r, 1, 4));
    if (Chance(r, 60)) p.nan = static_cast<int32_t>(Pick(r, 1, 5));
    if (Chance(r, 8) && p.ties <= POOLGRAD_TIES_LAST) p.route_bits = 8 << Pick(r, 0, 2);
    if (Chance(r, 15)) p.relu = 1;
  } else if (Chance(r, 15)) {
    p.divisor = Pick(r, 1, 9);
  }
  return p;
}

// Problems of every kind, most of them near the windows that have kernels of their own.
inline poolgrad_problem RandomProblem(Random& r, Lists& lists) {
  if (Chance(r, 25)) return TableProblem(r, lists);
  if (Chance(r, 20)) return SharingWindow(r);
  if (Chance(r, 40)) return AnyWindow(r);
  poolgrad_problem p;
  poolgrad_problem_init(&p);
  p.kind = Chance(r, 12) ? POOLGRAD_AVERAGE : POOLGRAD_MAX;
  const int dtypes[] = {POOLGRAD_F32, POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_BF16, POOLGRAD_F16,
                        POOLGRAD_F16, POOLGRAD_F64, POOLGRAD_I8,   POOLGRAD_U8,   POOLGRAD_I32};
  p.dtype = dtypes[Pick(r, 0, p.kind == POOLGRAD_AVERAGE ? 6 : 9)];
  p.layout = static_cast<int32_t>(Pick(r, 0, 1));
  p.rank = static_cast<int32_t>(Chance(r, 60) ? 2 : Pick(r, 1, 3));
  p.batch = Pick(r, 1, 3);
  p.channels = Chance(r, 60) ? 8 * Pick(r, 1, 4) : Pick(r, 1, 20);
  const bool common = Chance(r, 70);  // one window for all axes
  int64_t k = Pick(r, 2, 4), s = Chance(r, 70) ? 2 : Pick(r, 1, 4), pad = Chance(r, 50) ? 1 : Pick(r, 0, k / 2);
  if (k == 4) s = 4, pad = 0;
  if (Chance(r, 30)) k = 3, s = 1, pad = 1;
  if (Chance(r, 20) && p.rank <= 2)
    k = Pick(r, 5, 31), s = Chance(r, 70) ? 1 : Pick(r, 1, 4), pad = Chance(r, 80) ? k / 2 : 0;
  const bool whole = Chance(r, 12);  // global pooling
  for (int i = 0; i < p.rank; ++i) {
    p.in[i] = Chance(r, 50) ? 4 * Pick(r, 1, p.rank == 3 ? 4 : 12) : Pick(r, 1, p.rank == 3 ? 15 : 45);
    if (p.rank == 1) p.in[i] *= Pick(r, 1, 8);
    p.kernel[i] = common ? k : Pick(r, 1, 5);
    p.stride[i] = common ? s : Pick(r, 1, 4);
    p.dilation[i] = common ? 1 : Pick(r, 1, 3);
    p.pad_lo[i] = common ? pad : Pick(r, 0, p.kernel[i] - 1);
    p.pad_hi[i] = common ? pad : Pick(r, 0, p.kernel[i] - 1);
    if (whole) p.kernel[i] = p.stride[i] = p.in[i], p.dilation[i] = 1, p.pad_lo[i] = p.pad_hi[i] = 0;
  }
  if (p.rank == 3 && Chance(r, 20)) p.kernel[0] = p.stride[0] = p.dilation[0] = 1, p.pad_lo[0] = p.pad_hi[0] = 0;
  if (Chance(r, 15)) p.padding = static_cast<int32_t>(Pick(r, 1, 3));
  if (Chance(r, 20) && p.padding <= POOLGRAD_PAD_VALID) p.rounding = static_cast<int32_t>(Pick(r, 1, 5));
  if (p.kind == POOLGRAD_MAX) {
    if (Chance(r, 25)) p.ties = static_cast<int32_t>(Pick(r, 1, 4));
    if (Chance(r, 50)) p.nan = static_cast<int32_t>(Pick(r, 1, 5));
    if (Chance(r, 8) && p.ties <= POOLGRAD_TIES_LAST) p.route_bits = 8 << Pick(r, 0, 2);
  } else {
    p.count_padding = static_cast<int32_t>(Pick(r, -1, 1));
    if (Chance(r, 15)) p.divisor = Pick(r, 1, 9);
  }
  if (Chance(r, 20)) p.dialect = static_cast<int32_t>(Pick(r, 0, 5));
  if (p.kind == POOLGRAD_MAX && Chance(r, 15)) p.relu = 1;
  if (p.relu && !IsInteger(static_cast<poolgrad_dtype>(p.dtype)) && Chance(r, 50)) p.bias = 1;
  return p;
}

// What the kernels for windows by table take.
inline bool ByTableOrAverage(const poolgrad_problem& p) {
  return p.kind == POOLGRAD_AVERAGE || p.outputs[0] > 0 || p.starts[0] || p.outputs[1] > 0 || p.starts[1];
}

// `style` 0: continuous values; 1: few values, so many ties; 2: the same with NaN, infinities and both zeros.
template <class T>
void FillTyped(Random& r, int style, std::vector<uint8_t>& bytes) {
  T* values = reinterpret_cast<T*>(bytes.data());
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<T>(style == 0 ? r() : static_cast<uint64_t>(Pick(r, 0, 3)));
    } else {
      double v = style == 0 ? normal(r) : static_cast<double>(Pick(r, -2, 2));
      if (style == 2) {
        const int64_t special = Pick(r, 0, 39);
        if (special == 0) v = std::nan("");
        if (special == 1) v = -std::nan("");
        if (special >= 2 && special <= 4) v = -INFINITY;
        if (special == 5) v = INFINITY;
        if (special >= 6 && special <= 9) v = -0.0;
      }
      values[i] = Narrow<T>(static_cast<Wide<T>>(v));
    }
  }
}

inline std::vector<uint8_t> Filled(Random& r, const Problem& p, int64_t elements, int style) {
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * SizeOf(p.dtype)));
  VisitDtype(p.dtype, [&](auto zero) { FillTyped<decltype(zero)>(r, style, bytes); });
  return bytes;
}

}  // namespace poolgrad
