// poolgrad in C++20: header-only, over the C ABI of poolgrad.h.
//
//   auto pool = poolgrad::Plan(poolgrad::Problem::max<float>(poolgrad::Layout::channels_first, {8, 64, 112, 112})
//                                  .kernel(3).stride(2).pad(1));
//   auto [y, pullback] = poolgrad::vjp(pool, x);   // x: any contiguous range of float
//   auto dx = pullback(dy);
//
// A Problem is built by naming what differs from the default, a Plan is an immutable handle that may be copied and
// shared between threads, and every failure is a poolgrad::Error that carries the library's own sentence. Where a
// buffer is passed its element type and its length are checked against the plan before anything runs.
//
// Everything lives in the inline namespace v1, so that no symbol made here can meet one inside a static libpoolgrad.
#pragma once

#if (defined(_MSVC_LANG) && _MSVC_LANG <= 201703L) || (!defined(_MSVC_LANG) && __cplusplus <= 201703L)
#error "poolgrad.hpp is C++20: compile with -std=c++20, or target_compile_features(YOURS PRIVATE cxx_std_20) in CMake"
#endif

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "poolgrad/poolgrad.h"

namespace poolgrad {
inline namespace v1 {

// What went wrong, in a full sentence (what()), and its code.
class Error : public std::runtime_error {
 public:
  Error(poolgrad_status status, const std::string& sentence) : std::runtime_error(sentence), status_(status) {}
  poolgrad_status status() const noexcept { return status_; }

 private:
  poolgrad_status status_;
};

inline void check(poolgrad_status status) {
  if (status != POOLGRAD_OK) throw Error(status, poolgrad_last_error());
}

enum class Dtype : int32_t {
  f32 = POOLGRAD_F32,
  f64 = POOLGRAD_F64,
  f16 = POOLGRAD_F16,
  bf16 = POOLGRAD_BF16,
  i8 = POOLGRAD_I8,
  u8 = POOLGRAD_U8,
  i32 = POOLGRAD_I32
};
enum class Layout : int32_t { channels_first = POOLGRAD_CHANNELS_FIRST, channels_last = POOLGRAD_CHANNELS_LAST };
enum class Dialect : int32_t {
  standard = POOLGRAD_DIALECT_DEFAULT,
  torch = POOLGRAD_DIALECT_TORCH,
  tensorflow = POOLGRAD_DIALECT_TENSORFLOW,
  tfjs = POOLGRAD_DIALECT_TFJS,
  jax = POOLGRAD_DIALECT_JAX,
  onnx = POOLGRAD_DIALECT_ONNX
};
enum class Rounding : int32_t {
  floor = POOLGRAD_ROUND_FLOOR,
  ceil = POOLGRAD_ROUND_CEIL,
  ceil_drop = POOLGRAD_ROUND_CEIL_DROP,
  ceil_keep = POOLGRAD_ROUND_CEIL_KEEP,
  nearest = POOLGRAD_ROUND_NEAREST
};
enum class Ties : int32_t {
  first = POOLGRAD_TIES_FIRST,
  last = POOLGRAD_TIES_LAST,
  split = POOLGRAD_TIES_SPLIT,
  all = POOLGRAD_TIES_ALL
};
enum class Nan : int32_t {
  propagate_first = POOLGRAD_NAN_PROPAGATE_FIRST,
  propagate_last = POOLGRAD_NAN_PROPAGATE_LAST,
  first_place = POOLGRAD_NAN_FIRST_PLACE,
  greater_equal = POOLGRAD_NAN_GREATER_EQUAL,
  ignore = POOLGRAD_NAN_IGNORE
};
enum class Numbering : int32_t {
  torch = POOLGRAD_INDEX_TORCH,
  tensorflow = POOLGRAD_INDEX_TENSORFLOW,
  tensorflow_batch = POOLGRAD_INDEX_TENSORFLOW_BATCH,
  onnx = POOLGRAD_INDEX_ONNX,
  onnx_column = POOLGRAD_INDEX_ONNX_COLUMN
};

// The half types: two bytes, exact to float, rounded once (to nearest even) from float.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(wide >> 16 & 0x8000u);
    const uint32_t magnitude = wide & 0x7FFFFFFFu;
    uint32_t half;
    if (magnitude > 0x7F800000u) {  // NaN: keep the top of its payload, and quiet it
      half = 0x7E00u | (magnitude >> 13 & 0x3FFu);
    } else if (magnitude < 0x38800000u) {  // below the smallest normal half: count units of 2^-24
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    } else {  // drop 13 bits of the fraction, to nearest even; the carry may reach infinity
      half = std::min(0x7C00u, (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13);
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  explicit operator float() const {
    const uint32_t exponent = bits >> 10 & 0x1Fu;
    const uint32_t fraction = bits & 0x3FFu;
    uint32_t wide;
    if (exponent == 0x1Fu) {
      wide = 0x7F800000u | fraction << 13;
    } else if (exponent == 0) {
      wide = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
    } else {
      wide = (exponent + 112u) << 23 | fraction << 13;
    }
    return std::bit_cast<float>(wide | static_cast<uint32_t>(bits & 0x8000u) << 16);
  }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const bool nan = (wide & 0x7FFFFFFFu) > 0x7F800000u;
    bits = static_cast<uint16_t>(nan ? wide >> 16 | 0x40u : (wide + 0x7FFFu + (wide >> 16 & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
inline constexpr Dtype dtype_of = [] {
  static_assert(sizeof(T) == 0, "poolgrad pools float, double, Float16, BFloat16, int8_t, uint8_t and int32_t");
  return Dtype::f32;
}();
template <>
inline constexpr Dtype dtype_of<float> = Dtype::f32;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::f64;
template <>
inline constexpr Dtype dtype_of<Float16> = Dtype::f16;
template <>
inline constexpr Dtype dtype_of<BFloat16> = Dtype::bf16;
template <>
inline constexpr Dtype dtype_of<int8_t> = Dtype::i8;
template <>
inline constexpr Dtype dtype_of<uint8_t> = Dtype::u8;
template <>
inline constexpr Dtype dtype_of<int32_t> = Dtype::i32;

inline const char* name(Dtype dtype) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32"};
  const auto at = static_cast<size_t>(dtype);
  return at < std::size(kNames) ? kNames[at] : "unknown";
}

// A problem under construction. The stride defaults to the kernel, as in the text form; everything is checked by Plan.
class Problem {
 public:
  // `shape` is the whole tensor's, in the layout's memory order: its length minus two is the number of spatial axes.
  template <class T>
  static Problem max(Layout layout, std::initializer_list<int64_t> shape) {
    return Problem(POOLGRAD_MAX, dtype_of<T>, layout, {shape.begin(), shape.size()});
  }
  template <class T>
  static Problem average(Layout layout, std::initializer_list<int64_t> shape) {
    return Problem(POOLGRAD_AVERAGE, dtype_of<T>, layout, {shape.begin(), shape.size()});
  }
  Problem(poolgrad_kind kind, Dtype dtype, Layout layout, std::span<const int64_t> shape) {
    poolgrad_problem_init(&raw_);
    if (shape.size() < 3 || shape.size() > 5) {
      throw Error(POOLGRAD_INVALID_ARGUMENT,
                  "shape has " + std::to_string(shape.size()) +
                      " dimensions; a tensor to pool has 3, 4 or 5 (batch, channels, space)");
    }
    const bool last = layout == Layout::channels_last;
    raw_.kind = kind;
    raw_.dtype = static_cast<int32_t>(dtype);
    raw_.layout = static_cast<int32_t>(layout);
    raw_.rank = static_cast<int32_t>(shape.size()) - 2;
    raw_.batch = shape[0];
    raw_.channels = last ? shape.back() : shape[1];
    const auto space = shape.subspan(last ? 1 : 2, static_cast<size_t>(raw_.rank));
    std::copy(space.begin(), space.end(), raw_.in);
  }
  explicit Problem(const poolgrad_problem& raw) : raw_(raw), stride_given_(true) {}

  // From its one-line text form, e.g. "max f32 nchw 8x64x112x112 k3 s2 p1".
  static Problem parse(const std::string& text) {
    if (text.find('\0') != std::string::npos) {
      throw Error(POOLGRAD_INVALID_ARGUMENT, "the text of the problem has a NUL inside; it must be one line of words");
    }
    poolgrad_problem raw;
    check(poolgrad_problem_parse(text.c_str(), &raw));
    Problem parsed(raw);
    parsed.keep_lists();
    return parsed;
  }

  // Per-axis values: one for every axis, or one each, outermost axis first.
  Problem& kernel(std::initializer_list<int64_t> k) {
    fill("kernel", raw_.kernel, k);
    if (!stride_given_) fill("kernel", raw_.stride, k);
    return *this;
  }
  Problem& kernel(int64_t k) { return kernel({k}); }
  Problem& stride(std::initializer_list<int64_t> s) {
    stride_given_ = true;
    return fill("stride", raw_.stride, s);
  }
  Problem& stride(int64_t s) { return stride({s}); }
  Problem& dilation(std::initializer_list<int64_t> d) { return fill("dilation", raw_.dilation, d); }
  Problem& dilation(int64_t d) { return dilation({d}); }
  Problem& pad(std::initializer_list<int64_t> lo, std::initializer_list<int64_t> hi) {
    raw_.padding = POOLGRAD_PAD_EXPLICIT;
    fill("pad_lo", raw_.pad_lo, lo);
    return fill("pad_hi", raw_.pad_hi, hi);
  }
  Problem& pad(int64_t both) { return pad({both}, {both}); }
  Problem& same() { return set(raw_.padding, POOLGRAD_PAD_SAME); }
  Problem& same_lower() { return set(raw_.padding, POOLGRAD_PAD_SAME_LOWER); }
  Problem& valid() { return set(raw_.padding, POOLGRAD_PAD_VALID); }
  // The window that covers the whole plane.
  Problem& global() {
    std::copy(raw_.in, raw_.in + 3, raw_.kernel);
    if (!stride_given_) std::copy(raw_.in, raw_.in + 3, raw_.stride);
    return *this;
  }

  Problem& rounding(Rounding v) { return set(raw_.rounding, v); }
  Problem& ties(Ties v) { return set(raw_.ties, v); }
  Problem& nan(Nan v) { return set(raw_.nan, v); }
  Problem& dialect(Dialect v) { return set(raw_.dialect, v); }
  Problem& relu(bool rectify = true) { return set(raw_.relu, rectify ? 1 : 0); }
  // relu of x + bias[channel]: forward is then forward_bias.
  Problem& bias(bool add = true) { return set(raw_.bias, add ? 1 : 0); }
  Problem& route_bits(int32_t bits) { return set(raw_.route_bits, bits); }
  Problem& count_padding(bool count) { return set(raw_.count_padding, count ? 1 : 0); }
  Problem& divisor(int64_t divisor) {
    raw_.divisor = divisor;
    return *this;
  }
  Problem& cuda(int32_t device_index = 0) {
    raw_.device = POOLGRAD_CUDA;
    return set(raw_.device_index, device_index);
  }

  const poolgrad_problem& raw() const { return raw_; }
  std::string text() const {
    return sized_text(
        [&](char* text, size_t n, size_t* needed) { return poolgrad_problem_format(&raw_, text, n, needed); });
  }

  // Calls a C function that writes text into a buffer, twice: for the size, then for the text.
  template <class Write>
  static std::string sized_text(Write&& write) {
    size_t needed = 0;
    check(write(nullptr, size_t{0}, &needed));
    std::string text(needed, '\0');
    check(write(text.data(), text.size(), &needed));
    text.resize(std::strlen(text.c_str()));
    return text;
  }

 private:
  Problem& fill(const char* what, int64_t (&axes)[3], std::initializer_list<int64_t> values) {
    const auto rank = static_cast<size_t>(std::clamp(raw_.rank, 1, 3));
    if (values.size() != 1 && values.size() != rank) {
      throw Error(POOLGRAD_INVALID_ARGUMENT, std::string(what) + " has " + std::to_string(values.size()) +
                                                 " values; the problem has " + std::to_string(rank) + " spatial axes");
    }
    for (size_t i = 0; i < rank; ++i) axes[i] = values.size() == 1 ? *values.begin() : values.begin()[i];
    return *this;
  }
  template <class V>
  Problem& set(int32_t& field, V value) {
    field = static_cast<int32_t>(value);
    return *this;
  }

  // starts= and sizes= are the library's only until this thread parses the next.
  void keep_lists() {
    const auto for_each = [this](auto visit) {
      for (int i = 0; i < raw_.rank; ++i) {
        for (const int64_t** list : {&raw_.starts[i], &raw_.sizes[i]}) {
          if (*list) visit(*list, static_cast<size_t>(raw_.outputs[i]));
        }
      }
    };
    std::vector<int64_t> all;
    for_each([&](const int64_t* list, size_t n) { all.insert(all.end(), list, list + n); });
    lists_ = std::make_shared<const std::vector<int64_t>>(std::move(all));
    const int64_t* at = lists_->data();
    for_each([&](const int64_t*& list, size_t n) { list = std::exchange(at, at + n); });
  }

  poolgrad_problem raw_;
  std::shared_ptr<const std::vector<int64_t>> lists_;  // that raw_ points to, of a problem that was parsed
  bool stride_given_ = false;
};

// How to run: threads, scratch, stream, or the caller's own loop. Cheap to make; default: all threads, scratch from the
// heap.
class Exec {
 public:
  Exec() {
    std::memset(&raw_, 0, sizeof raw_);
    raw_.struct_size = sizeof raw_;
  }
  Exec& threads(int32_t n) {
    raw_.threads = n;
    return *this;
  }
  Exec& stream(void* cuda_stream) {
    raw_.stream = cuda_stream;
    return *this;
  }
  Exec& scratch(std::span<std::byte> memory) {
    raw_.scratch = memory.data();
    raw_.scratch_bytes = memory.size();
    return *this;
  }
  // loop(count, task) must call task(i) once for every i in [0, count). `loop` must outlive this object.
  template <class Loop>
  Exec& parallel_for(Loop& loop) {
    raw_.parallel_for_context = const_cast<void*>(static_cast<const void*>(std::addressof(loop)));
    raw_.parallel_for = [](void* context, int64_t count, poolgrad_task_fn task, void* task_context) {
      (*static_cast<Loop*>(context))(count, [task, task_context](int64_t i) { task(task_context, i); });
    };
    return *this;
  }
  const poolgrad_exec* raw() const { return &raw_; }

 private:
  poolgrad_exec raw_;
};

using Routes = std::vector<std::byte>;

// The Jacobian: row r's entries are columns[row_start[r] .. row_start[r + 1]), with their values beside them.
struct Csr {
  std::vector<int64_t> row_start;
  std::vector<int64_t> columns;
  std::vector<double> values;
};

template <class R>
concept Buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R>;
template <Buffer R>
using ElementOf = std::remove_cv_t<std::ranges::range_value_t<R>>;

// A checked problem with its algorithms chosen. Immutable; copies share one plan.
class Plan {
 public:
  explicit Plan(const Problem& problem, const std::string& algorithm = {}) {
    poolgrad_plan_options options{};
    options.struct_size = sizeof options;
    options.algorithm = algorithm.empty() ? nullptr : algorithm.c_str();
    poolgrad_plan* plan = nullptr;
    check(poolgrad_plan_create(&problem.raw(), &options, &plan));
    plan_ = {plan, poolgrad_plan_destroy};
    dtype_ = static_cast<Dtype>(problem.raw().dtype);
    average_ = problem.raw().kind == POOLGRAD_AVERAGE;
    channels_ = problem.raw().channels;
    rank_ = problem.raw().rank;
    info_.struct_size = sizeof info_;
    check(poolgrad_plan_info(plan, &info_));
  }
  explicit Plan(const std::string& text) : Plan(Problem::parse(text)) {}

  const poolgrad_info& info() const { return info_; }
  const poolgrad_plan* raw() const { return plan_.get(); }
  Dtype dtype() const { return dtype_; }
  bool is_average() const { return average_; }
  std::string explain() const {
    return Problem::sized_text(
        [&](char* text, size_t n, size_t* needed) { return poolgrad_plan_explain(raw(), text, n, needed); });
  }
  // The algorithm chosen for an operation; empty when the plan cannot do it.
  std::string algorithm(poolgrad_op op) const {
    const char* chosen = poolgrad_plan_algorithm(raw(), op);
    return chosen ? chosen : "";
  }
  uint64_t scratch_bytes(poolgrad_op op, int32_t threads = 0) const {
    uint64_t bytes = 0;
    check(poolgrad_plan_scratch_bytes(raw(), op, threads, &bytes));
    return bytes;
  }

  // On the caller's memory. An empty span of routes means: do not keep any (forward), there are none (average).
  template <Buffer X, Buffer Y>
  void forward(const X& x, Y&& y, std::span<std::byte> routes = {}, const Exec& exec = {}) const {
    const auto* from = source("x", x, info_.x_elements);
    auto* to = result<X>("y", y, info_.y_elements);
    check(poolgrad_forward(raw(), from, to, routes.empty() ? nullptr : of_size(routes), exec.raw()));
  }
  template <Buffer Y, Buffer X>
  void backward(const Y& dy, std::span<const std::byte> routes, X&& dx, const Exec& exec = {}) const {
    const auto* from = source("dy", dy, info_.y_elements);
    auto* to = result<Y>("dx", dx, info_.x_elements);
    check(poolgrad_backward(raw(), from, of_size(routes), to, exec.raw()));
  }
  template <Buffer Y, Buffer X, Buffer D>
  void backward_x(const Y& dy, const X& x, D&& dx, const Exec& exec = {}) const {
    const auto* from = source("dy", dy, info_.y_elements);
    const auto* input = source("x", x, info_.x_elements);
    auto* to = result<Y>("dx", dx, info_.x_elements);
    check(poolgrad_backward_x(raw(), from, input, to, exec.raw()));
  }
  template <Buffer X, Buffer Y>
  void gather(const X& tx, std::span<const std::byte> routes, Y&& ty, const Exec& exec = {}) const {
    const auto* from = source("tx", tx, info_.x_elements);
    auto* to = result<X>("ty", ty, info_.y_elements);
    check(poolgrad_gather(raw(), from, of_size(routes), to, exec.raw()));
  }
  template <Buffer Y, Buffer X>
  void unpool(const Y& y, std::span<const std::byte> routes, X&& x, const Exec& exec = {}) const {
    const auto* from = source("y", y, info_.y_elements);
    auto* to = result<Y>("x", x, info_.x_elements);
    check(poolgrad_unpool(raw(), from, of_size(routes), to, exec.raw()));
  }

  // Of a problem with bias, which has an element per channel.
  template <Buffer X, Buffer B, Buffer Y>
  void forward_bias(const X& x, const B& bias, Y&& y, std::span<std::byte> routes = {}, const Exec& exec = {}) const {
    const auto* from = source("x", x, info_.x_elements);
    const auto* added = source("bias", bias, channels_);
    auto* to = result<X>("y", y, info_.y_elements);
    check(poolgrad_forward_bias(raw(), from, added, to, routes.empty() ? nullptr : of_size(routes), exec.raw()));
  }
  template <Buffer Y, Buffer B>
  void bias_gradient(const Y& dy, std::span<const std::byte> routes, B&& dbias, const Exec& exec = {}) const {
    const auto* from = source("dy", dy, info_.y_elements);
    auto* to = result<Y>("dbias", dbias, channels_);
    check(poolgrad_bias_gradient(raw(), from, of_size(routes), to, exec.raw()));
  }

  // Returning new memory.
  template <Buffer X>
  std::vector<ElementOf<X>> forward(const X& x) const {
    std::vector<ElementOf<X>> y(static_cast<size_t>(info_.y_elements));
    forward(x, y);
    return y;
  }
  template <Buffer X>
  std::pair<std::vector<ElementOf<X>>, Routes> forward_routes(const X& x) const {
    std::pair<std::vector<ElementOf<X>>, Routes> kept(static_cast<size_t>(info_.y_elements), make_routes());
    forward(x, kept.first, kept.second);
    return kept;
  }
  template <Buffer X, Buffer B>
  std::pair<std::vector<ElementOf<X>>, Routes> forward_bias_routes(const X& x, const B& bias) const {
    std::pair<std::vector<ElementOf<X>>, Routes> kept(static_cast<size_t>(info_.y_elements), make_routes());
    forward_bias(x, bias, kept.first, kept.second);
    return kept;
  }
  template <Buffer Y>
  std::vector<ElementOf<Y>> bias_gradient(const Y& dy, std::span<const std::byte> routes) const {
    std::vector<ElementOf<Y>> dbias(static_cast<size_t>(channels_));
    bias_gradient(dy, routes, dbias);
    return dbias;
  }
  template <Buffer Y>
  std::vector<ElementOf<Y>> backward(const Y& dy, std::span<const std::byte> routes = {}) const {
    std::vector<ElementOf<Y>> dx(static_cast<size_t>(info_.x_elements));
    backward(dy, routes, dx);
    return dx;
  }
  template <Buffer Y, Buffer X>
  requires std::same_as<ElementOf<Y>, ElementOf<X>> std::vector<ElementOf<Y>> backward_x(const Y& dy, const X& x)
  const {
    std::vector<ElementOf<Y>> dx(static_cast<size_t>(info_.x_elements));
    backward_x(dy, x, dx);
    return dx;
  }
  template <Buffer X>
  std::vector<ElementOf<X>> gather(const X& tx, std::span<const std::byte> routes = {}) const {
    std::vector<ElementOf<X>> ty(static_cast<size_t>(info_.y_elements));
    gather(tx, routes, ty);
    return ty;
  }
  template <Buffer Y>
  std::vector<ElementOf<Y>> unpool(const Y& y, std::span<const std::byte> routes) const {
    std::vector<ElementOf<Y>> x(static_cast<size_t>(info_.x_elements));
    unpool(y, routes, x);
    return x;
  }

  Csr jacobian(std::span<const std::byte> routes = {}) const {
    Csr csr;
    csr.row_start.resize(static_cast<size_t>(info_.y_elements) + 1);
    const void* from = of_size(routes);
    check(poolgrad_jacobian(raw(), from, csr.row_start.data(), nullptr, nullptr));
    csr.columns.resize(static_cast<size_t>(csr.row_start.back()));
    csr.values.resize(csr.columns.size());
    check(poolgrad_jacobian(raw(), from, csr.row_start.data(), csr.columns.data(), csr.values.data()));
    return csr;
  }
  std::vector<int64_t> indices(std::span<const std::byte> routes, Numbering numbering, const Exec& exec = {}) const {
    std::vector<int64_t> found(static_cast<size_t>(info_.y_elements));
    check(poolgrad_routes_to_indices(raw(), of_size(routes), c(numbering), found.data(), exec.raw()));
    return found;
  }
  Routes routes_from(std::span<const int64_t> indices, Numbering numbering) const {
    of_length("indices", indices.size(), info_.y_elements);
    Routes routes = make_routes();
    check(poolgrad_routes_from_indices(raw(), indices.data(), c(numbering), routes.data()));
    return routes;
  }
  // index_shape: the spatial shape the indices are numbered in; empty: the plan's input shape.
  template <Buffer Y>
  std::vector<ElementOf<Y>> unpool_indices(const Y& y, std::span<const int64_t> indices, Numbering numbering,
                                           std::span<const int64_t> index_shape = {}) const {
    of_length("indices", indices.size(), info_.y_elements);
    if (!index_shape.empty()) of_length("index_shape", index_shape.size(), rank_);
    const auto* from = source("y", y, info_.y_elements);
    std::vector<ElementOf<Y>> x(static_cast<size_t>(info_.x_elements));
    check(poolgrad_unpool_indices(raw(), from, indices.data(), c(numbering),
                                  index_shape.empty() ? nullptr : index_shape.data(), x.data()));
    return x;
  }
  Routes make_routes() const { return Routes(average_ ? 0 : static_cast<size_t>(info_.route_bytes)); }

 private:
  static poolgrad_numbering c(Numbering numbering) { return static_cast<poolgrad_numbering>(numbering); }

  static void of_length(const char* what, size_t length, int64_t expected) {
    if (static_cast<int64_t>(length) != expected) {
      throw Error(POOLGRAD_INVALID_ARGUMENT, std::string(what) + " holds " + std::to_string(length) +
                                                 " elements; the plan expects " + std::to_string(expected));
    }
  }
  template <Buffer R>
  const ElementOf<R>* source(const char* what, const R& buffer, int64_t elements) const {
    if (dtype_of<ElementOf<R>> != dtype_) {
      throw Error(POOLGRAD_INVALID_ARGUMENT, std::string(what) + " is of type " + name(dtype_of<ElementOf<R>>) +
                                                 "; the plan pools " + name(dtype_));
    }
    of_length(what, std::ranges::size(buffer), elements);
    return std::ranges::data(buffer);
  }
  template <Buffer From, Buffer To>
  ElementOf<From>* result(const char* what, To&& buffer, int64_t elements) const {
    static_assert(std::same_as<ElementOf<From>, ElementOf<To>>, "the result has the source's element type");
    of_length(what, std::ranges::size(buffer), elements);
    return std::ranges::data(buffer);
  }
  // Routes as the C ABI takes them; null for average pooling, which keeps none.
  template <class Byte>
  Byte* of_size(std::span<Byte> routes) const {
    if (average_ && routes.empty()) return nullptr;
    if (static_cast<int64_t>(routes.size()) != info_.route_bytes) {
      throw Error(POOLGRAD_INVALID_ARGUMENT, "routes hold " + std::to_string(routes.size()) +
                                                 " bytes; the plan keeps " + std::to_string(info_.route_bytes));
    }
    return routes.data();
  }

  std::shared_ptr<poolgrad_plan> plan_;
  poolgrad_info info_{};
  Dtype dtype_ = Dtype::f32;
  int32_t rank_ = 0;
  int64_t channels_ = 0;
  bool average_ = false;
};

// What vjp returns beside y: dy -> dx = S^T dy. Holds the plan and the routes, never x; may be called any number of
// times.
class Pullback {
 public:
  Pullback(Plan plan, Routes routes) : plan_(std::move(plan)), routes_(std::move(routes)) {}
  template <Buffer Y>
  std::vector<ElementOf<Y>> operator()(const Y& dy) const {
    return plan_.backward(dy, routes_);
  }
  const Routes& routes() const { return routes_; }

 private:
  Plan plan_;
  Routes routes_;
};

template <Buffer X>
std::pair<std::vector<ElementOf<X>>, Pullback> vjp(const Plan& pool, const X& x) {
  auto [y, routes] = pool.forward_routes(x);
  return {std::move(y), Pullback(pool, std::move(routes))};
}

// y and its tangent ty = S tx. Average pooling is linear, so there its tangent is its own forward pass.
template <Buffer X, Buffer T>
std::pair<std::vector<ElementOf<X>>, std::vector<ElementOf<T>>> jvp(const Plan& pool, const X& x, const T& tx) {
  auto [y, routes] = pool.forward_routes(x);
  return {std::move(y), pool.is_average() ? pool.forward(tx) : pool.gather(tx, routes)};
}

}  // namespace v1
}  // namespace poolgrad
