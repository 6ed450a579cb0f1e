// The C++ face: the builder, the functional form, the types, and errors that carry the core's sentences.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <type_traits>

#include "support/pool.h"

namespace poolgrad::oracle {
namespace {

TEST(Face, TheFunctionalFormOfTheWorkedExample) {
  const Plan pool(Problem::max<float>(Layout::channels_first, {1, 1, 3, 3}).kernel(2).stride(1));
  const Floats x = Iota(9);
  auto [y, pullback] = vjp(pool, x);
  EXPECT_EQ(y, (Floats{5, 6, 8, 9}));
  EXPECT_EQ(pullback(Floats{1, 10, 100, 1000}), (Floats{0, 0, 0, 0, 1, 10, 0, 100, 1000}));
  EXPECT_EQ(pullback(Floats{0, 0, 0, 2}), (Floats{0, 0, 0, 0, 0, 0, 0, 0, 2})) << "a pullback may be used again";
  EXPECT_EQ(pullback.routes().size(), 2u) << "two bits per output, a byte per row; x is not kept";
  auto [y_again, ty] = jvp(pool, x, Floats{10, 20, 30, 40, 50, 60, 70, 80, 90});
  EXPECT_EQ(y_again, y);
  EXPECT_EQ(ty, (Floats{50, 60, 80, 90}));
}

TEST(Face, AveragesHaveTheSameForm) {
  const Plan pool(Problem::average<double>(Layout::channels_first, {1, 1, 4}).kernel(2));
  auto [y, pullback] = vjp(pool, std::vector<double>{1, 3, 5, 9});
  EXPECT_EQ(y, (std::vector<double>{2, 7}));
  EXPECT_EQ(pullback(std::vector<double>{4, 8}), (std::vector<double>{2, 2, 4, 4}));
  EXPECT_EQ(jvp(pool, std::vector<double>{0, 0, 0, 0}, std::vector<double>{1, 3, 5, 9}).second, y)
      << "linear: its own tangent";
}

TEST(Face, ABiasAndItsGradient) {
  const Plan pool(Problem::max<float>(Layout::channels_last, {2, 4, 2}).kernel(2).relu().bias());
  const Floats x = {1, 1, 2, -5, -3, 7, -4, 8, 0, 0, 0, 0, 3, -9, 3, -9};
  const auto [y, routes] = pool.forward_bias_routes(x, Floats{-1, 2});
  EXPECT_EQ(y, (Floats{1, 3, 0, 10, 0, 2, 2, 0}));
  const Floats dy = {1, 10, 100, 1000, 2, 20, 200, 2000};
  EXPECT_EQ(pool.bias_gradient(dy, routes), (Floats{201, 1030}));
  EXPECT_EQ(pool.backward(dy, routes), (Floats{0, 10, 1, 0, 0, 0, 0, 1000, 0, 20, 0, 0, 200, 0, 0, 0}));
  EXPECT_THROW(pool.forward_bias_routes(x, Floats{1}), Error) << "a bias per channel";
  EXPECT_THROW(pool.forward(x), Error);
}

TEST(Face, TheBuilderSaysWhatTheTextSays) {
  const auto text = [](const Problem& problem) { return problem.text(); };
  EXPECT_EQ(text(Problem::max<float>(Layout::channels_first, {8, 64, 112, 112}).kernel(3).stride(2).pad(1)),
            "max f32 nchw 8x64x112x112 k3 s2 p1x1");
  EXPECT_EQ(text(Problem::max<Float16>(Layout::channels_last, {1, 8, 9, 3}).kernel({2, 3})),
            "max f16 nhwc 1x8x9x3 k2x3 s2x3");
  EXPECT_EQ(text(Problem::max<int8_t>(Layout::channels_first, {1, 2, 9}).kernel(2).stride(1).dilation(3)),
            "max i8 ncw 1x2x9 k2 s1 d3");
  EXPECT_EQ(text(Problem::max<BFloat16>(Layout::channels_last, {1, 4, 4, 4, 2})
                     .kernel(2)
                     .same()
                     .ties(Ties::last)
                     .nan(Nan::ignore)
                     .dialect(Dialect::tfjs)
                     .route_bits(8)),
            "max bf16 ndhwc 1x4x4x4x2 k2 s2 same tfjs ties=last nan=ignore bits=8");
  EXPECT_EQ(text(Problem::average<double>(Layout::channels_first, {1, 1, 5, 5})
                     .kernel(2)
                     .pad({0, 1}, {1, 0})
                     .rounding(Rounding::ceil_keep)
                     .count_padding(true)
                     .divisor(3)),
            "avg f64 nchw 1x1x5x5 k2 s2 p0:1x1:0 ceil_keep count_padding divisor=3");
  EXPECT_EQ(text(Problem::max<float>(Layout::channels_first, {1, 2, 9}).kernel(2).relu().bias()),
            "max f32 ncw 1x2x9 k2 s2 relu bias");
  EXPECT_EQ(text(Problem::max<float>(Layout::channels_first, {1, 2, 7, 5}).global()), "max f32 nchw 1x2x7x5 k7x5 s7x5");
  const std::string line = "max u8 nhwc 2x6x6x4 k3 s1 p1x1 torch";
  EXPECT_EQ(Problem::parse(line).text(), line);
}

template <class T>
class FaceTypes : public testing::Test {};
using Types = testing::Types<float, double, Float16, BFloat16, int8_t, uint8_t, int32_t>;
TYPED_TEST_SUITE(FaceTypes, Types);

TYPED_TEST(FaceTypes, EveryTypePools) {
  using T = TypeParam;
  const Plan pool(Problem::max<T>(Layout::channels_first, {1, 1, 4}).kernel(2));
  const std::vector<T> x = {T(3), T(1), T(2), T(7)};
  const auto [y, routes] = pool.forward_routes(x);
  EXPECT_EQ(static_cast<float>(y[0]), 3.0f);
  EXPECT_EQ(static_cast<float>(y[1]), 7.0f);
  EXPECT_EQ(pool.indices(routes, Numbering::torch), (Indices{0, 3}));
  EXPECT_EQ(static_cast<float>(pool.gather(x, routes)[1]), 7.0f);
  EXPECT_EQ(static_cast<float>(pool.unpool(y, routes)[3]), 7.0f);
  EXPECT_EQ(static_cast<float>(pool.unpool(y, routes)[2]), 0.0f);
  if constexpr (std::is_integral_v<T>) {
    EXPECT_THROW((void)pool.backward(y, routes), Error);
  } else {
    EXPECT_EQ(static_cast<float>(pool.backward(y, routes)[0]), 3.0f);
    EXPECT_EQ(static_cast<float>(pool.backward_x(y, x)[3]), 7.0f);
  }
}

TEST(Face, RoutesOfOneTypeServeAnother) {
  const Plan integers("max i32 ncw 1x1x4 k2");
  const Plan floats("max f32 ncw 1x1x4 k2");
  const auto [y, routes] = integers.forward_routes(std::vector<int32_t>{3, 1, 2, 7});
  EXPECT_EQ(floats.backward(Floats{10, 20}, routes), (Floats{10, 0, 0, 20}));
}

TEST(Face, HalvesConvertAsTheStandardSays) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    ASSERT_TRUE(std::isnan(wide) ? std::isnan(static_cast<float>(Float16(wide))) : Float16(wide).bits == bits) << bits;
    BFloat16 brain;
    brain.bits = static_cast<uint16_t>(bits);
    const auto wide_brain = static_cast<float>(brain);
    ASSERT_TRUE(std::isnan(wide_brain) ? std::isnan(static_cast<float>(BFloat16(wide_brain)))
                                       : BFloat16(wide_brain).bits == bits)
        << bits;
  }
  EXPECT_EQ(Float16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Float16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Float16(1e10f).bits, 0x7C00);
  EXPECT_EQ(Float16(-INFINITY).bits, 0xFC00);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0x0000) << "half of the smallest goes to even";
  EXPECT_EQ(Float16(0x1.8p-24f).bits, 0x0002);
  EXPECT_EQ(Float16(1.0f + 0x1p-11f).bits, 0x3C00);
  EXPECT_EQ(BFloat16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(BFloat16(1.0f + 0x1.8p-8f).bits, 0x3F81);
}

// The sentence of the Error that `call` throws.
template <class Call>
std::string Sentence(poolgrad_status status, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Face, ErrorsCarryTheCoresSentences) {
  const auto invalid = POOLGRAD_INVALID_ARGUMENT;
  EXPECT_EQ(Sentence(invalid,
                     [] {
                       Plan(Problem::max<float>(Layout::channels_first, {1, 1, 4}).kernel(2).stride(0));
                     }),
            "stride[0] is 0; every stride must be at least 1");
  EXPECT_EQ(Sentence(invalid,
                     [] {
                       (void)Problem::max<float>(Layout::channels_first, {1, 1, 4, 4}).kernel({1, 2, 3});
                     }),
            "kernel has 3 values; the problem has 2 spatial axes");
  EXPECT_EQ(Sentence(invalid,
                     [] {
                       (void)Problem::max<float>(Layout::channels_first, {1, 1});
                     }),
            "shape has 2 dimensions; a tensor to pool has 3, 4 or 5 (batch, channels, space)");
  const Plan pool("max f32 ncw 1x1x4 k2");
  EXPECT_EQ(Sentence(invalid, [&] { (void)pool.forward(Floats{1, 2, 3}); }), "x holds 3 elements; the plan expects 4");
  EXPECT_EQ(Sentence(invalid, [&] { (void)pool.forward(std::vector<double>(4)); }),
            "x is of type f64; the plan pools f32");
  EXPECT_EQ(Sentence(invalid,
                     [&] {
                       (void)pool.backward(Floats{1, 2}, Routes(5));
                     }),
            "routes hold 5 bytes; the plan keeps 1");
  EXPECT_EQ(Sentence(invalid, [&] { (void)pool.backward(Floats{1, 2}); }), "routes hold 0 bytes; the plan keeps 1");
  EXPECT_EQ(Sentence(invalid, [&] { (void)pool.routes_from(Indices{0}, Numbering::torch); }),
            "indices holds 1 elements; the plan expects 2");
  const Plan image("max f32 nchw 1x1x4x4 k4");
  EXPECT_EQ(Sentence(invalid, [&] { (void)image.unpool_indices(Floats{1}, Indices{0}, Numbering::onnx, Indices{4}); }),
            "index_shape holds 1 elements; the plan expects 2");
  EXPECT_EQ(Sentence(POOLGRAD_UNSUPPORTED, [] { Plan("avg i8 ncw 1x1x4 k2"); }),
            "dtype is i8; average pooling takes f32, f64, f16 and bf16");
}

TEST(Face, CallersMemoryOfAnyContiguousKind) {
  const Plan pool("max f32 ncw 1x1x4 k2");
  const std::array<float, 4> x = {4, 3, 2, 1};
  float y[2];
  Routes routes = pool.make_routes();
  pool.forward(x, y, routes, Exec().threads(1));
  EXPECT_EQ(y[0], 4);
  EXPECT_EQ(y[1], 2);
  std::array<float, 4> dx;
  dx.fill(-1);
  pool.backward(std::span<const float>(y), routes, dx);
  EXPECT_EQ(dx, (std::array<float, 4>{4, 0, 2, 0}));
}

TEST(Face, PlansAreCopiedByReference) {
  const Plan pool("max f32 ncw 1x1x4 k2");
  const Plan copy = pool;
  EXPECT_EQ(copy.raw(), pool.raw());
  EXPECT_FALSE(copy.algorithm(POOLGRAD_OP_FORWARD).empty());
  EXPECT_NE(copy.explain().find("max f32 ncw 1x1x4 k2 s2"), std::string::npos);
}

TEST(Face, ParsedProblemsKeepTheirLists) {
  const std::string texts[] = {"max f32 nchw 1x1x8x8 k0x2 s1x2 starts=0,2,5x sizes=3,2,1x",
                               "max f32 ncw 1x1x9 k3 starts=4,5"};
  const Problem first = Problem::parse(texts[0]);
  const Problem second = Problem(Problem::parse(texts[1]));  // a copy, whose original is gone
  EXPECT_EQ(first.text(), texts[0]);
  EXPECT_EQ(second.text(), texts[1]);
}

TEST(Face, ATextWithANulInsideIsRefusedWhole) {
  EXPECT_THROW((void)Problem::parse(std::string("max f32 ncw 1x1x4 k2\0 bananas", 30)), Error);
}

}  // namespace
}  // namespace poolgrad::oracle
