#include "support/random_problem.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace poolgrad::oracle {

XorShift::XorShift(uint64_t seed) {  // splitmix64: near seeds start far apart
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  state_ = (z ^ z >> 31) | 1u;
}

uint64_t XorShift::Next() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545F4914F6CDD1Du;
}

int64_t XorShift::Between(int64_t lo, int64_t hi) {
  return lo + static_cast<int64_t>(Next() % (static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo) + 1));
}

namespace {

// One axis' window. Most are what networks use; some are wide, dilated, or padded past themselves.
void DrawWindow(Draw& draw, poolgrad_problem* p, int axis) {
  int64_t& kernel = p->kernel[axis];
  kernel = draw.Pick<6>({1, 2, 3, 2, 3, 5});
  if (draw.OneIn(5)) kernel = draw.Between(1, 9);
  if (draw.OneIn(40)) kernel = draw.Between(10, p->rank == 1 ? 300 : 18);
  p->stride[axis] = draw.OneIn(3) ? kernel : draw.Pick<6>({1, 2, 1, 2, 3, 4});
  if (draw.OneIn(5)) p->dilation[axis] = draw.Between(2, 4);
  const int64_t extent = (kernel - 1) * p->dilation[axis] + 1;
  if (draw.OneIn(2)) {
    p->pad_lo[axis] = draw.Between(0, extent / 2);
    p->pad_hi[axis] = draw.OneIn(3) ? draw.Between(0, extent / 2) : p->pad_lo[axis];
  }
  if (draw.OneIn(10)) p->pad_lo[axis] = draw.Between(0, extent + 2);  // windows that see padding only
  if (draw.OneIn(10)) p->pad_hi[axis] = draw.Between(0, extent + 2);
  if (p->dialect == POOLGRAD_DIALECT_JAX && draw.OneIn(4)) p->pad_lo[axis] = draw.Between(-2, 0);
  if (p->dialect == POOLGRAD_DIALECT_JAX && draw.OneIn(4)) p->pad_hi[axis] = draw.Between(-2, 0);
}

// Windows by table on one axis: adaptive, of one size (fractional), or of any sizes. Kernels stay as large as they
// were.
void DrawTable(Draw& draw, poolgrad_problem* p, int axis) {
  static std::vector<int64_t> lists[64][2];  // a problem is checked before so many more were drawn
  static size_t next = 0;
  const int64_t in = p->in[axis], kernel = std::min(p->kernel[axis], in);
  if (in < 1) return;
  if (p->padding != POOLGRAD_PAD_EXPLICIT) p->padding = POOLGRAD_PAD_VALID;
  p->pad_lo[axis] = p->pad_hi[axis] = 0;
  p->dilation[axis] = 1;
  p->outputs[axis] = draw.Between(std::max<int64_t>(1, in / kernel), std::min<int64_t>(in + 1, in / kernel + 4));
  const int64_t way = draw.Between(0, 2);
  p->kernel[axis] = way == 1 ? kernel : 0;
  if (way == 0) return;
  auto& [starts, sizes] = lists[next++ % 64];
  starts.clear();
  sizes.clear();
  for (int64_t o = 0; o < p->outputs[axis]; ++o) {
    const int64_t least = o == 0 ? 0 : starts.back();
    starts.push_back(draw.Between(std::min(least, in - kernel), std::min(in - kernel, least + 2)));
    sizes.push_back(draw.Between(1, kernel));
  }
  p->starts[axis] = starts.data();
  if (way == 2) p->sizes[axis] = sizes.data();
}

// A part of the problem, as one of several ranks pools it forward, or backward, where windows may begin outside it.
void DrawPart(Draw& draw, poolgrad_problem* p) {
  int64_t parts[3], at[3], cut[3][4];
  for (int i = 0; i < p->rank; ++i) {
    parts[i] = draw.Between(1, 3);
    at[i] = draw.Between(0, parts[i] - 1);
    cut[i][0] = 0;
    for (int64_t k = 1; k < parts[i]; ++k) cut[i][k] = draw.Between(cut[i][k - 1], p->in[i]);
    cut[i][parts[i]] = p->in[i];
  }
  const int64_t* const cuts[] = {cut[0], cut[1], cut[2]};
  const bool backward = draw.OneIn(2);
  poolgrad_problem part;
  poolgrad_shard shard = {};
  shard.struct_size = sizeof shard;
  const poolgrad_status status =
      poolgrad_shard_of(p, parts, cuts, at, &shard, backward ? nullptr : &part, backward ? &part : nullptr);
  if (status == POOLGRAD_OK && (backward ? shard.has_backward : shard.has_forward)) *p = part;
}

int64_t Product(const int64_t* values, int n) {
  int64_t product = 1;
  for (int i = 0; i < n; ++i) product *= std::max<int64_t>(values[i], 1);
  return product;
}

}  // namespace

poolgrad_problem DrawProblem(Draw& draw) {
  poolgrad_problem p = {};
  p.struct_size = sizeof p;
  p.count_padding = -1;
  std::fill(p.stride, p.stride + 3, 1);
  std::fill(p.dilation, p.dilation + 3, 1);

  p.kind = draw.OneIn(7) ? POOLGRAD_AVERAGE : POOLGRAD_MAX;
  p.dtype = static_cast<int32_t>(draw.Between(0, p.kind == POOLGRAD_AVERAGE ? 3 : 6));
  p.layout = static_cast<int32_t>(draw.Between(0, 1));
  p.rank = static_cast<int32_t>(draw.Pick<5>({2, 1, 2, 2, 3}));
  p.dialect = draw.OneIn(3) ? static_cast<int32_t>(draw.Between(1, 5)) : POOLGRAD_DIALECT_DEFAULT;
  if (draw.OneIn(2)) p.ties = static_cast<int32_t>(draw.Between(1, 4));
  if (draw.OneIn(2)) p.nan = static_cast<int32_t>(draw.Between(1, 5));
  for (int i = 0; i < p.rank; ++i) DrawWindow(draw, &p, i);
  if (p.rank >= 2 && draw.OneIn(2)) {  // square windows have kernels of their own
    for (int i = 1; i < p.rank; ++i) {
      p.kernel[i] = p.kernel[0];
      p.stride[i] = p.stride[0];
      p.dilation[i] = p.dilation[0];
      p.pad_lo[i] = p.pad_lo[0];
      p.pad_hi[i] = p.pad_hi[0];
    }
  }
  for (int i = 0; i < p.rank && p.rank > 1; ++i) {  // axes that pool nothing are folded (spec/fold.h)
    if (draw.OneIn(8)) p.kernel[i] = p.stride[i] = 1, p.pad_lo[i] = p.pad_hi[i] = 0;
  }
  if (draw.OneIn(4)) p.padding = static_cast<int32_t>(draw.Between(1, 3));
  const bool same = p.padding == POOLGRAD_PAD_SAME || p.padding == POOLGRAD_PAD_SAME_LOWER;
  if (!same && draw.OneIn(2)) p.rounding = static_cast<int32_t>(draw.Between(1, 5));

  // Backward from x looks at every tap for every input of a window, so a window's taps count twice.
  constexpr int64_t kMostTaps = 1000;
  while (Product(p.kernel, p.rank) > kMostTaps) *std::max_element(p.kernel, p.kernel + p.rank) /= 2;

  // Sizes: from just one window to a few past the longest vectors, within what the slowest reference operation can do,
  // which visits every tap of every window that covers every input.
  const int64_t taps = Product(p.kernel, p.rank);
  int64_t covers = 1;
  for (int i = 0; i < p.rank; ++i) covers *= (p.kernel[i] - 1) / p.stride[i] + 1;
  int64_t budget = std::clamp<int64_t>(1'000'000 / (taps * covers), 1, draw.OneIn(8) ? 40'000 : 5000);
  const auto take = [&](int64_t wanted) {
    const int64_t got = std::clamp<int64_t>(wanted, 0, std::max<int64_t>(budget, 1));
    budget /= std::max<int64_t>(got, 1);
    return got;
  };
  for (int i = 0; i < p.rank; ++i) {
    const int64_t extent = (p.kernel[i] - 1) * p.dilation[i] + 1;
    const bool padded = p.padding == POOLGRAD_PAD_EXPLICIT;
    const int64_t least = same ? 1 : std::max<int64_t>(1, padded ? extent - p.pad_lo[i] - p.pad_hi[i] : extent);
    p.in[i] = least + draw.Between(0, 2 * p.stride[i] + 1);
    budget /= std::max<int64_t>(p.in[i], 1);
  }
  if (draw.OneIn(16)) {  // one window, which is the whole plane
    for (int i = 0; i < p.rank; ++i) {
      p.in[i] = p.kernel[i];
      p.dilation[i] = 1;
      p.pad_lo[i] = p.pad_hi[i] = 0;
    }
  }
  if (draw.OneIn(16)) {  // windows that fill the input side by side
    for (int i = 0; i < p.rank; ++i) {
      p.stride[i] = p.kernel[i];
      p.in[i] = p.kernel[i] * draw.Between(1, 3);
      p.dilation[i] = 1;
      p.pad_lo[i] = p.pad_hi[i] = 0;
    }
  }
  // Deep and thin, or wide and flat: where kernels keep rows or slices, one axis is as long as all the work allows and
  // another shorter than the window, which then hangs over both its ends.
  if (p.padding == POOLGRAD_PAD_EXPLICIT && draw.OneIn(10)) {
    const int longest_axis = static_cast<int>(draw.Between(0, p.rank - 1));
    int64_t room = 1'000'000 / (taps * covers);
    for (int i = 0; i < p.rank; ++i) {
      const int64_t extent = (p.kernel[i] - 1) * p.dilation[i] + 1;
      if (draw.OneIn(2)) p.pad_lo[i] = p.pad_hi[i] = draw.Between(0, extent / 2 + 1);
      p.in[i] = i == longest_axis ? extent + draw.Between(0, 40) : draw.Between(1, 5);
      if (p.pad_lo[i] + p.pad_hi[i] + p.in[i] < extent) p.pad_lo[i] = p.pad_hi[i] = extent / 2;
      if (i != longest_axis) room /= p.in[i];
    }
    // Past 32 KiB of sums, of four or eight bytes each, some kernels cut their rows.
    const int64_t wanted = draw.Pick<4>({0, 300, 1700, 5000}) + draw.Between(0, 40);
    p.in[longest_axis] = std::clamp<int64_t>(wanted, p.in[longest_axis], std::max<int64_t>(p.in[longest_axis], room));
    budget = std::max<int64_t>(1, room / p.in[longest_axis]);
  }
  const bool long_width = draw.OneIn(2);
  int64_t longest = draw.OneIn(3) ? draw.Pick<6>({15, 31, 32, 63, 64, 127}) + draw.Between(0, 3) : draw.Between(1, 24);
  if (draw.OneIn(16)) longest = draw.Between(130, 1300);  // many blocks of channels, long rows
  if (long_width && p.layout == POOLGRAD_CHANNELS_FIRST) {
    const int64_t width = p.in[p.rank - 1];
    p.in[p.rank - 1] += take(p.stride[p.rank - 1] * longest);
    budget = std::max<int64_t>(1, budget / std::max<int64_t>(1, p.in[p.rank - 1] / std::max<int64_t>(1, width)));
    p.channels = take(draw.Between(1, 3));
  } else {
    p.channels = take(p.layout == POOLGRAD_CHANNELS_LAST ? longest : draw.Between(1, 7));
  }
  p.batch = take(draw.Between(1, 3));
  if (draw.OneIn(60)) p.batch = 0;
  if (draw.OneIn(60)) p.channels = 0;

  const bool codes = p.ties != POOLGRAD_TIES_SPLIT && p.ties != POOLGRAD_TIES_ALL;
  if (p.kind == POOLGRAD_MAX && codes && draw.OneIn(4)) {
    p.route_bits = static_cast<int32_t>(taps < 4     ? draw.Pick<5>({4, 8, 2, 16, 32})
                                        : taps < 16  ? draw.Pick<4>({8, 4, 16, 32})
                                        : taps < 256 ? draw.Pick<3>({16, 8, 32})
                                                     : draw.Pick<2>({32, 16}));
  }
  if (p.kind == POOLGRAD_MAX && draw.OneIn(4)) {
    p.relu = 1;
    if (p.route_bits == 2 && taps == 4) p.route_bits = 0;  // `no route` needs a code
  }
  if (draw.OneIn(6)) {
    const int table = static_cast<int>(draw.Between(0, p.rank - 1));
    for (int i = 0; i < p.rank; ++i) {
      if (i == table || draw.OneIn(3)) DrawTable(draw, &p, i);
    }
  }
  if (p.kind == POOLGRAD_AVERAGE) {
    if (draw.OneIn(2)) p.count_padding = static_cast<int32_t>(draw.Between(0, 1));
    if (draw.OneIn(6)) p.divisor = draw.Between(1, 20);
  }
  if (draw.OneIn(8)) DrawPart(draw, &p);
  if (p.relu && !IsInteger(static_cast<poolgrad_dtype>(p.dtype)) && draw.OneIn(2)) p.bias = 1;
  return p;
}

namespace {

template <class T>
T FromDouble(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int64_t>(value));
  } else {
    return Narrow<T>(static_cast<Wide<T>>(value));
  }
}

// The bits of a float type: where its exponent begins.
template <class T>
constexpr int kFractionBits = std::is_same_v<T, double>  ? 52
                              : std::is_same_v<T, float> ? 23
                              : std::is_same_v<T, F16>   ? 10
                                                         : 7;

// NaNs of either sign with a payload, infinities, both zeros, denormals, the largest and the smallest; for integers the
// ends.
template <class T>
T Special(XorShift& random) {
  if constexpr (std::is_integral_v<T>) {
    const T ends[] = {std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max(), T{0}, T{1}, static_cast<T>(-1)};
    return ends[random.Between(0, 4)];
  } else {
    constexpr int kBits = 8 * sizeof(T);
    constexpr uint64_t kSign = uint64_t{1} << (kBits - 1);
    constexpr uint64_t kInfinity = kSign - (uint64_t{1} << kFractionBits<T>);
    const uint64_t fraction = random.Next() & ((uint64_t{1} << kFractionBits<T>)-1);
    uint64_t bits = 0;
    switch (random.Between(0, 6)) {
      case 0:
        bits = kInfinity | fraction | 1u;
        break;  // NaN, quiet or signalling
      case 1:
        bits = kInfinity;
        break;
      case 2:
        bits = 0;
        break;
      case 3:
        bits = fraction;
        break;  // denormal
      case 4:
        bits = kInfinity - 1;
        break;  // largest finite
      case 5:
        bits = uint64_t{1} << kFractionBits<T>;
        break;  // smallest normal
      default:
        return FromDouble<T>(static_cast<double>(random.Between(-3, 3)));
    }
    if (random.Between(0, 1)) bits |= kSign;
    T value;
    std::memcpy(&value, &bits, sizeof value);  // little-endian machines only, like the route format
    return value;
  }
}

template <class T>
T AnyBits(XorShift& random) {
  const uint64_t bits = random.Next();
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T Ordinary(XorShift& random) {
  constexpr double kScales[] = {1.0, 0.001, 30.0, 1.0 / 3.0};
  return FromDouble<T>(static_cast<double>(random.Between(-100000, 100000)) * 0.001 * kScales[random.Between(0, 3)]);
}

enum class Palette {
  kTies,
  kOrdinary,
  kSpecials,
  kSomeSpecials,
  kConstant,
  kNegative,
  kLowest,
  kAnyBits,
  kRectified,           // many zeros, nothing below
  kRectifiedButForOne,  // and one special value, often near the end
};

template <class T>
T Value(XorShift& random, Palette palette, T constant) {
  switch (palette) {
    case Palette::kTies:
      return FromDouble<T>(static_cast<double>(random.Between(-1, 1)));
    case Palette::kSpecials:
      return Special<T>(random);
    case Palette::kSomeSpecials:
      return random.Between(0, 7) == 0 ? Special<T>(random) : Ordinary<T>(random);
    case Palette::kConstant:
      return constant;
    case Palette::kNegative:
      return FromDouble<T>(static_cast<double>(random.Between(-100, std::is_unsigned_v<T> ? 0 : -1)));
    case Palette::kLowest:  // windows where only -inf, or only NaN and -inf, is found
      if constexpr (std::is_integral_v<T>)
        return std::numeric_limits<T>::lowest();
      else
        return random.Between(0, 9) == 0 ? Special<T>(random) : Narrow<T>(-std::numeric_limits<Wide<T>>::infinity());
    case Palette::kAnyBits:
      return AnyBits<T>(random);
    case Palette::kRectified:
    case Palette::kRectifiedButForOne:
      return FromDouble<T>(static_cast<double>(std::max<int64_t>(0, random.Between(-100, 100))) * 0.25);
    case Palette::kOrdinary:
      break;
  }
  return Ordinary<T>(random);
}

std::vector<uint8_t> Values(XorShift& random, Palette palette, poolgrad_dtype dtype, int64_t elements) {
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * SizeOf(dtype)));
  VisitDtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T constant = random.Between(0, 1) ? Special<T>(random) : Ordinary<T>(random);
    for (int64_t i = 0; i < elements; ++i) {
      const T value = Value<T>(random, palette, constant);
      std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
    if (palette == Palette::kRectifiedButForOne && elements > 0) {
      const int64_t from_end =
          random.Between(0, random.Between(0, 1) ? elements - 1 : std::min<int64_t>(8, elements - 1));
      const T value = random.Between(0, 1) ? Special<T>(random) : FromDouble<T>(-1.0);
      std::memcpy(bytes.data() + (elements - 1 - from_end) * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace

std::vector<uint8_t> RandomValues(uint64_t seed, poolgrad_dtype dtype, int64_t elements) {
  XorShift random(seed);
  const auto palette = static_cast<Palette>(random.Between(0, 9));
  return Values(random, palette, dtype, elements);
}

std::vector<uint8_t> RandomGradients(uint64_t seed, poolgrad_dtype dtype, int64_t elements) {
  XorShift random(seed);
  constexpr Palette kPalettes[] = {Palette::kOrdinary, Palette::kOrdinary, Palette::kSomeSpecials, Palette::kTies};
  const Palette palette = kPalettes[random.Between(0, 3)];
  return Values(random, palette, dtype, elements);
}

std::vector<uint8_t> RandomBytes(uint64_t seed, int64_t bytes) {
  XorShift random(seed);
  std::vector<uint8_t> values(static_cast<size_t>(bytes));
  for (uint8_t& value : values) value = static_cast<uint8_t>(random.Next() >> 40);
  return values;
}

}  // namespace poolgrad::oracle
