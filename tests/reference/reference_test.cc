// The definition itself: the worked example of docs/derivation.md, and a second definition written the other way round
// (every window scatters, coordinates as vectors, no shared helper) that must agree with it on drawn problems.
#include "reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad {
namespace {

using oracle::Data;
using oracle::Outcome;
using oracle::RunReference;

template <class T>
std::vector<uint8_t> Bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> As(const std::vector<uint8_t>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

using Floats = std::vector<float>;

Problem Parsed(const std::string& text) { return *Resolve(*ParseProblem(text)); }

TEST(Reference, TheWorkedExample) {
  const Problem p = Parsed("max f32 nchw 1x1x3x3 k2 s1");
  Data data;
  data.x = Bytes<float>({1, 2, 3, 4, 5, 6, 7, 8, 9});
  data.tx = Bytes<float>({10, 20, 30, 40, 50, 60, 70, 80, 90});
  data.dy = Bytes<float>({1, 10, 100, 1000});
  const Outcome forward = RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes);
  EXPECT_EQ(As<float>(forward.result), (Floats{5, 6, 8, 9}));
  EXPECT_EQ(forward.routes, (std::vector<uint8_t>{0b1111, 0b1111}))
      << "every winner is tap 3, two bits each, a row per byte";
  data.routes = forward.routes;
  EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_BACKWARD, data, data.routes).result),
            (Floats{0, 0, 0, 0, 1, 10, 0, 100, 1000}));
  EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result),
            (Floats{0, 0, 0, 0, 1, 10, 0, 100, 1000}));
  EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_GATHER, data, data.routes).result), (Floats{50, 60, 80, 90}));
  EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_UNPOOL, data, data.routes).result),
            (Floats{0, 0, 0, 0, 1, 10, 0, 100, 1000}));
}

TEST(Reference, OneInputThatWinsEveryWindowCollectsEveryGradient) {
  const Problem p = Parsed("max f32 nchw 1x1x3x3 k2 s1");
  Data data;
  data.x = Bytes<float>({1, 2, 3, 4, 99, 6, 7, 8, 9});
  data.dy = Bytes<float>({1, 10, 100, 1000});
  EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result),
            (Floats{0, 0, 0, 0, 1111, 0, 0, 0, 0}));
}

TEST(Reference, TiesUnderEachRule) {
  const std::pair<const char*, Floats> cases[] = {
      {"first", {12, 0, 0, 0}}, {"last", {0, 0, 0, 12}}, {"split", {3, 3, 3, 3}}, {"all", {12, 12, 12, 12}}};
  for (const auto& [ties, expected] : cases) {
    const Problem p = Parsed(std::string("max f32 nchw 1x1x2x2 k2 ties=") + ties);
    Data data;
    data.x = Bytes<float>({7, 7, 7, 7});
    data.dy = Bytes<float>({12});
    EXPECT_EQ(As<float>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result), expected) << ties;
  }
}

TEST(Reference, TangentsOfIntegersAreDividedBeforeTheyWrap) {
  const Problem split = Parsed("max i8 ncw 1x1x4 k4 ties=split");
  Data data;
  data.x = Bytes<int8_t>({5, 5, 5, 1});
  data.tx = Bytes<int8_t>({127, 127, 100, 50});
  data.routes = RunReference(split, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes).routes;
  EXPECT_EQ(As<int8_t>(RunReference(split, POOLGRAD_OP_GATHER, data, data.routes).result), (std::vector<int8_t>{118}))
      << "354 / 3";
  data.tx = Bytes<int8_t>({-128, -128, -1, 50});
  EXPECT_EQ(As<int8_t>(RunReference(split, POOLGRAD_OP_GATHER, data, data.routes).result), (std::vector<int8_t>{-85}))
      << "-257 / 3, towards 0";
  const Problem all = Parsed("max i8 ncw 1x1x4 k4 ties=all");
  EXPECT_EQ(As<int8_t>(RunReference(all, POOLGRAD_OP_GATHER, data, data.routes).result), (std::vector<int8_t>{-1}))
      << "-257 wraps";
  const Problem wide = Parsed("max i32 ncw 1x1x2 k2 ties=split");
  data.x = Bytes<int32_t>({5, 5});
  data.tx = Bytes<int32_t>({2147483647, 2147483645});
  data.routes = RunReference(wide, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes).routes;
  EXPECT_EQ(As<int32_t>(RunReference(wide, POOLGRAD_OP_GATHER, data, data.routes).result),
            (std::vector<int32_t>{2147483646}));
}

TEST(Reference, HalvesAreSummedInF32AndRoundedOnce) {
  // 1 + 2^-11 three times: each step would round away in f16; summed in f32 the three add up to one unit in the last
  // place.
  const Problem p = Parsed("max f16 ncw 1x1x3 k2 s1 p1");
  Data data;
  data.x = Bytes<F16>({ToF16(0), ToF16(9), ToF16(0)});
  data.dy = Bytes<F16>({ToF16(1), ToF16(1.0f), ToF16(0x1p-11f), ToF16(0)});
  const auto dx = As<F16>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result);
  EXPECT_EQ(ToF32(dx[1]), ToF32(ToF16(1.0f + 0x1p-11f)));
  data.dy = Bytes<F16>({ToF16(0), ToF16(0x1p-11f), ToF16(1), ToF16(0)});
  EXPECT_EQ(ToF32(As<F16>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result)[1]),
            ToF32(ToF16(1.0f + 0x1p-11f)));
}

// y has the bits of adding, rectifying and pooling one after the other. Rounding may make ties there; the route is that
// of the maximum of x where something is left of it.
template <class T>
void CheckRoundedBias(const std::string& dtype) {
  oracle::XorShift random(5);
  int routed = 0, ties = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string window = " nhwc 2x9x9x7 k3 s2 p1 bits=8";
    const Problem p = Parsed("max " + dtype + window + " relu bias"), relu = Parsed("max " + dtype + window + " relu");
    const auto draw = [&](int64_t n) {
      std::vector<T> values(static_cast<size_t>(n));
      for (T& v : values) v = Narrow<T>(static_cast<Wide<T>>(random.Between(-1000, 1000)) / 770);
      return values;
    };
    Data data, added;
    const auto x = draw(p.x_elements()), bias = draw(p.channels);
    auto sum = x;
    for (size_t i = 0; i < x.size(); ++i) sum[i] = Narrow<T>(Widen(x[i]) + Widen(bias[i % 7]));
    data.x = Bytes(x), data.bias = Bytes(bias), added.x = Bytes(sum);
    const Outcome one = RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes);
    const Outcome steps = RunReference(relu, POOLGRAD_OP_FORWARD_ROUTES, added, added.routes);
    const Outcome plain = RunReference(Parsed("max " + dtype + window), POOLGRAD_OP_FORWARD_ROUTES, data, data.routes);
    ASSERT_EQ(one.result, steps.result);
    for (size_t o = 0; o < one.routes.size(); ++o) {
      const bool none = steps.routes[o] == 0xFF;
      ASSERT_EQ(one.routes[o], none ? 0xFF : plain.routes[o]);
      routed += !none;
      ties += one.routes[o] != steps.routes[o];
    }
  }
  EXPECT_GT(routed, 1000);
  EXPECT_EQ(ties > 0, sizeof(T) == 2);  // only these are short enough
}

TEST(Reference, ABiasIsAddedAndRoundedOnce) {
  CheckRoundedBias<float>("f32");
  CheckRoundedBias<double>("f64");
  CheckRoundedBias<F16>("f16");
  CheckRoundedBias<BF16>("bf16");
}

TEST(Reference, WhatIsNotFiniteMeetsABias) {
  const Problem p = Parsed("max f32 nwc 1x3x5 k1 s2 p2 jax relu bias bits=8");  // the first and last window are empty
  constexpr float kNan = NAN, kInf = INFINITY;
  Data data;
  data.bias = Bytes<float>({1, kInf, -kInf, kNan, -0.0f});
  data.x = Bytes<float>({kNan, -kInf, kInf, -5, -0.0f, 9, 9, 9, 9, 9, -kInf, -7, kNan, -kInf, 2});
  const Outcome got = RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes);
  const auto y = As<float>(got.result);
  const Floats expected = {0, 0, 0, 0, 0, kNan, 0, kNan, kNan, 0, 0, kInf, kNan, 0, 2, 0, 0, 0, 0, 0};
  ASSERT_EQ(y.size(), expected.size());
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(y[i]) : y[i] == expected[i] && !std::signbit(y[i])) << i;
    EXPECT_EQ(got.routes[i], expected[i] == 0 ? 0xFF : 0) << i;
  }
}

TEST(Reference, TheGradientOfABiasIsSummedInItsOrder) {
  for (const char* text : {"max f64 nwc 3x3001x2 k2 relu bias", "max f64 ncw 3x2x3001 k2 relu bias",
                           "max f64 ncw 3x2x9002 k2 s1 p1:0 relu bias"}) {
    const Problem p = Parsed(text);
    oracle::XorShift random(3);
    Data data;
    data.x = Bytes(std::vector<double>(static_cast<size_t>(p.x_elements()), 1.0));
    data.bias = Bytes<double>({0, 0});
    std::vector<double> dy(static_cast<size_t>(p.y_elements()));
    for (double& v : dy)
      v = std::ldexp(static_cast<double>(random.Between(-1 << 30, 1 << 30)), static_cast<int>(random.Between(-40, 40)));
    data.dy = Bytes(dy);
    data.routes = RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes).routes;
    const auto dbias = As<double>(RunReference(p, POOLGRAD_OP_BIAS_GRADIENT, data, data.routes).result);
    for (size_t c = 0; c < 2; ++c) {
      std::vector<double> mine;  // of this channel, in order
      const auto plane = static_cast<size_t>(p.out_plane());
      for (size_t n = 0; n < 3; ++n) {
        for (size_t o = 0; o < plane; ++o)
          mine.push_back(dy[p.channels_last() ? (n * plane + o) * 2 + c : (n * 2 + c) * plane + o]);
      }
      double total = 0;
      for (size_t block = 0; block < mine.size(); block += 4096) {
        const std::function<double(size_t, size_t)> sum = [&](size_t first, size_t step) {
          if (step < 32) return sum(first, 2 * step) + sum(first + step, 2 * step);
          double lane = 0;
          for (size_t i = block + first; i < std::min(block + 4096, mine.size()); i += 32) lane += mine[i];
          return lane;
        };
        total += sum(0, 1);
      }
      EXPECT_EQ(dbias[c], total) << text;
    }
  }
}

// --- The second definition ---

struct Second {
  std::vector<double> y;
  std::vector<std::vector<int64_t>> winners;  // per output: the x indices it routes to
};

// Strides of a tensor in memory order for (n, c, d, h, w).
std::vector<int64_t> Strides(const Problem& p, const int64_t (&size)[3]) {
  const int64_t C = p.channels;
  const int64_t plane = size[0] * size[1] * size[2];
  if (p.channels_last()) return {plane * C, 1, size[1] * size[2] * C, size[2] * C, C};
  return {C * plane, plane, size[1] * size[2], size[2], 1};
}

Second PoolAgain(const Problem& p, const std::vector<double>& x) {
  const int64_t in[3] = {p.axis[0].in, p.axis[1].in, p.axis[2].in};
  const int64_t out[3] = {p.axis[0].out, p.axis[1].out, p.axis[2].out};
  const auto xs = Strides(p, in);
  const auto ys = Strides(p, out);
  Second second;
  second.y.assign(static_cast<size_t>(p.y_elements()), -INFINITY);
  second.winners.resize(static_cast<size_t>(p.y_elements()));
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t c = 0; c < p.channels; ++c)
      for (int64_t o = 0; o < out[0] * out[1] * out[2]; ++o) {
        const int64_t at[3] = {o / out[2] / out[1], o / out[2] % out[1], o % out[2]};
        std::vector<std::pair<double, int64_t>> taps;  // value, x index; in row-major order
        for (int64_t t = 0; t < p.taps(); ++t) {
          const int64_t k[3] = {t / p.axis[2].kernel / p.axis[1].kernel, t / p.axis[2].kernel % p.axis[1].kernel,
                                t % p.axis[2].kernel};
          int64_t index = n * xs[0] + c * xs[1];
          bool inside = true;
          for (int a = 0; a < 3; ++a) {
            const AxisTable* table = p.axis[a].table.get();
            const auto o_at = static_cast<size_t>(at[a]);
            const int64_t i = table ? table->starts[o_at] + k[a]
                                    : at[a] * p.axis[a].stride + k[a] * p.axis[a].dilation - p.axis[a].pad_lo;
            inside = inside && i >= 0 && i < in[a] && (!table || k[a] < table->sizes[o_at]);
            index += i * xs[static_cast<size_t>(a) + 2];
          }
          if (inside) taps.emplace_back(x[static_cast<size_t>(index)], index);
        }
        const auto yi = static_cast<size_t>(n * ys[0] + c * ys[1] + at[0] * ys[2] + at[1] * ys[3] + at[2] * ys[4]);
        if (p.relu) {  // the rectifier first, then the maximum; what it held back has no gradient
          second.y[yi] = 0;
          std::erase_if(taps, [](const auto& tap) { return tap.first <= 0; });
        }
        if (taps.empty()) continue;
        double best = -INFINITY;
        for (const auto& [value, index] : taps) best = std::max(best, value);
        second.y[yi] = best;
        for (const auto& [value, index] : taps) {
          if (value != best) continue;
          if (p.ties == POOLGRAD_TIES_FIRST && !second.winners[yi].empty()) continue;
          if (p.ties == POOLGRAD_TIES_LAST) second.winners[yi].clear();
          second.winners[yi].push_back(index);
        }
      }
  return second;
}

TEST(Reference, AgreesWithASecondDefinition) {
  oracle::XorShift random(11);
  int compared = 0;
  while (compared < 400) {
    poolgrad_problem raw = oracle::DrawProblem(random);
    raw.kind = POOLGRAD_MAX;
    raw.dtype = POOLGRAD_F64;
    raw.divisor = 0;
    const auto resolved = Resolve(raw);
    if (!resolved.ok()) continue;
    ++compared;
    const Problem& p = *resolved;
    SCOPED_TRACE(FormatProblem(raw));
    std::vector<double> x(static_cast<size_t>(p.x_elements()));
    for (double& v : x)
      v = static_cast<double>(random.Between(-3, 3));  // many ties, no NaN: those have tests of their own
    std::vector<double> dy(static_cast<size_t>(p.y_elements()));
    for (double& v : dy)
      v = static_cast<double>(random.Between(-64, 64)) * 720720;  // sums and shares up to 13 are exact
    std::vector<double> bias(p.bias ? static_cast<size_t>(p.channels) : 0), dbias(bias.size(), 0.0);
    for (double& v : bias) v = static_cast<double>(random.Between(-2, 2));
    const auto channel = [&](size_t index, int64_t plane) {
      return index / static_cast<size_t>(p.channels_last() ? 1 : plane) % static_cast<size_t>(p.channels);
    };
    std::vector<double> sum = x;  // small integers: adding a bias makes no tie
    for (size_t i = 0; p.bias && i < x.size(); ++i) sum[i] += bias[channel(i, p.in_plane())];
    const Second second = PoolAgain(p, sum);
    std::vector<double> dx(x.size(), 0.0);
    for (size_t o = 0; o < second.winners.size(); ++o) {
      const double share =
          p.ties == POOLGRAD_TIES_SPLIT ? dy[o] / static_cast<double>(second.winners[o].size()) : dy[o];
      for (const int64_t i : second.winners[o]) dx[static_cast<size_t>(i)] += share;
      if (p.bias && !second.winners[o].empty()) dbias[channel(o, p.out_plane())] += dy[o];
    }
    Data data;
    data.x = Bytes(x);
    data.dy = Bytes(dy);
    data.bias = Bytes(bias);
    data.routes = RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes).routes;
    ASSERT_EQ(As<double>(RunReference(p, POOLGRAD_OP_FORWARD, data, data.routes).result), second.y);
    if (p.bias) {
      ASSERT_EQ(As<double>(RunReference(p, POOLGRAD_OP_BIAS_GRADIENT, data, data.routes).result), dbias);
    }
    const auto way = p.bias ? POOLGRAD_OP_BACKWARD : POOLGRAD_OP_BACKWARD_X;
    const auto got = As<double>(RunReference(p, way, data, data.routes).result);
    for (size_t i = 0; i < dx.size(); ++i) {
      ASSERT_NEAR(got[i], dx[i], 1e-6) << "input " << i;
    }
  }
}

}  // namespace
}  // namespace poolgrad
