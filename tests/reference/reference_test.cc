// The definition itself: the worked example of docs/derivation.md, and a second definition written the other way round
// (every window scatters, coordinates as vectors, no shared helper) that must agree with it on drawn problems.
#include "reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
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
    const Second second = PoolAgain(p, x);
    std::vector<double> dx(x.size(), 0.0);
    for (size_t o = 0; o < second.winners.size(); ++o) {
      const double share =
          p.ties == POOLGRAD_TIES_SPLIT ? dy[o] / static_cast<double>(second.winners[o].size()) : dy[o];
      for (const int64_t i : second.winners[o]) dx[static_cast<size_t>(i)] += share;
    }
    Data data;
    data.x = Bytes(x);
    data.dy = Bytes(dy);
    ASSERT_EQ(As<double>(RunReference(p, POOLGRAD_OP_FORWARD, data, data.routes).result), second.y);
    const auto got = As<double>(RunReference(p, POOLGRAD_OP_BACKWARD_X, data, data.routes).result);
    for (size_t i = 0; i < dx.size(); ++i) {
      ASSERT_NEAR(got[i], dx[i], 1e-6) << "input " << i;
    }
  }
}

}  // namespace
}  // namespace poolgrad
