// Pooling, written from docs/problem.md and docs/routes.md alone: it shares no line with src/, and what it gives is
// compared with the library's in oracle.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace poolgrad_oracle {

using I = int64_t;

[[noreturn]] inline void Die(const std::string& sentence) {
  std::printf("%s\n", sentence.c_str());
  std::exit(1);
}

// ---- Numbers. Each type as bits and as the double that is its value.

inline I SizeOf(const std::string& type) {
  return type == "f64" ? 8 : type == "f32" || type == "i32" ? 4 : type[0] == 'i' || type[0] == 'u' ? 1 : 2;
}
inline bool IsWhole(const std::string& type) { return type[0] == 'i' || type[0] == 'u'; }

inline double Small(uint64_t bits, int fraction, int bias,
                    int exponent_bits) {  // a small IEEE format, from its definition
  const uint64_t e = bits >> fraction & ((1u << exponent_bits) - 1), f = bits & ((uint64_t{1} << fraction) - 1);
  const double sign = bits >> (fraction + exponent_bits) & 1 ? -1.0 : 1.0;
  if (e == (1u << exponent_bits) - 1) return f ? std::nan("") : sign * HUGE_VAL;
  const double mantissa = static_cast<double>(f) + (e ? std::ldexp(1.0, fraction) : 0.0);
  return sign * std::ldexp(mantissa, static_cast<int>(e ? e : 1) - bias - fraction);
}

inline double Double(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline double Value(const std::string& type, const uint8_t* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(SizeOf(type)));
  if (type == "f64") return Double(bits);
  if (type == "f32") return Small(bits, 23, 127, 8);
  if (type == "f16") return Small(bits, 10, 15, 5);
  if (type == "bf16") return Small(bits, 7, 127, 8);
  if (type == "u8") return static_cast<double>(bits);
  return type == "i8" ? static_cast<double>(static_cast<int8_t>(bits))
                      : static_cast<double>(static_cast<int32_t>(bits));
}

// The nearest half to a float, ties to the even one: found among all of them.
inline uint64_t NearestHalf(const std::string& type, float value) {
  const int fraction = type == "f16" ? 10 : 7, bias = type == "f16" ? 15 : 127, exponents = type == "f16" ? 5 : 8;
  const uint64_t sign = std::signbit(value) ? 0x8000 : 0, infinity = ((uint64_t{1} << exponents) - 1) << fraction;
  if (std::isnan(value)) return infinity | 1;
  const double magnitude = std::fabs(static_cast<double>(value));
  uint64_t lo = 0, hi = infinity;  // bits are ordered like their values
  while (hi - lo > 1) {
    const uint64_t middle = (lo + hi) / 2;
    (Small(middle, fraction, bias, exponents) <= magnitude ? lo : hi) = middle;
  }
  if (std::isinf(magnitude)) return sign | infinity;
  const double low = Small(lo, fraction, bias, exponents);
  const double high = hi == infinity ? 2 * Small(infinity - (uint64_t{1} << fraction), fraction, bias, exponents)
                                     : Small(hi, fraction, bias, exponents);
  const double below = magnitude - low, above = high - magnitude;
  return sign | (below < above ? lo : above < below ? hi : lo % 2 ? hi : lo);
}

// ---- The problem, read from its line.

struct Axis {
  I in, kernel, stride, dilation, lo, hi, out;
  std::vector<I> starts = {}, sizes = {};  // of windows by table

  I first(I o) const { return starts.empty() ? o * stride - lo : starts[static_cast<size_t>(o)]; }
  I taps(I o) const { return starts.empty() ? kernel : sizes[static_cast<size_t>(o)]; }
};

struct Problem {
  std::string line, seed, kind, type, dialect = "default", ties, nan, rounding = "floor";
  bool last = false, counts = false, whole_window_gradient = false, relu = false;
  I batch = 1, channels = 1, divisor = 0, bits = 0;
  std::vector<Axis> axes;
};

inline std::vector<I> Numbers(const std::string& word, char by) {
  std::vector<I> numbers;
  std::stringstream parts(word);
  for (std::string part; std::getline(parts, part, by);) numbers.push_back(std::stoll(part));
  return numbers;
}

inline std::vector<std::vector<I>> Lists(const std::string& word) {  // "0,2,5x0,3", where an axis may have none
  std::vector<std::vector<I>> lists;
  std::stringstream axes(word);
  for (std::string axis; std::getline(axes, axis, 'x');) lists.push_back(Numbers(axis, ','));
  return lists;
}

inline I FloorDiv(I a, I b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

inline Problem Read(const std::string& line) {
  Problem p;
  p.line = line;
  std::stringstream words(line);
  std::string layout, shape, padding = "explicit", counting;
  words >> p.kind >> p.type >> layout >> shape;
  p.last = layout.back() == 'c';
  std::vector<I> sizes = Numbers(shape, 'x'), kernel, stride, dilation, lo, hi, adaptive;
  std::vector<std::vector<I>> starts, taps;
  const size_t rank = sizes.size() - 2;
  p.batch = sizes[0];
  p.channels = p.last ? sizes.back() : sizes[1];
  sizes = {sizes.begin() + (p.last ? 1 : 2), sizes.end() - (p.last ? 1 : 0)};
  const auto spread = [&](std::vector<I> numbers) {
    return numbers.size() == 1 ? std::vector<I>(rank, numbers[0]) : numbers;
  };
  for (std::string word; words >> word;) {
    const std::string rest = word.substr(1), value = word.substr(word.find('=') + 1);
    if (word == "valid" || word == "same" || word == "same_lower")
      padding = word;
    else if (word == "torch" || word == "tensorflow" || word == "tfjs" || word == "jax" || word == "onnx")
      p.dialect = word;
    else if (word == "floor" || word == "round" || word.find("ceil") == 0)
      p.rounding = word;
    else if (word == "relu")
      p.relu = true;
    else if (word.find("adaptive=") == 0)
      adaptive = spread(Numbers(value, 'x'));
    else if (word.find("starts=") == 0)
      starts = Lists(value);
    else if (word.find("sizes=") == 0)
      taps = Lists(value);
    else if (word.find("count") != std::string::npos)
      counting = word;
    else if (word.find("ties=") == 0)
      p.ties = value;
    else if (word.find("nan=") == 0)
      p.nan = value;
    else if (word.find("bits=") == 0)
      p.bits = std::stoll(value);
    else if (word.find("divisor=") == 0)
      p.divisor = std::stoll(value);
    else if (word[0] == 'k')
      kernel = spread(Numbers(rest, 'x'));
    else if (word[0] == 's')
      stride = spread(Numbers(rest, 'x'));
    else if (word[0] == 'd')
      dilation = spread(Numbers(rest, 'x'));
    else if (word[0] == 'p') {
      std::stringstream parts(rest);
      for (std::string part; std::getline(parts, part, 'x');) {
        lo.push_back(std::stoll(part));
        hi.push_back(part.find(':') == std::string::npos ? lo.back() : std::stoll(part.substr(part.find(':') + 1)));
      }
      lo = spread(lo), hi = spread(hi);
    } else
      Die("the oracle does not know the word " + word);
  }
  const std::string& d = p.dialect;
  if (p.ties.empty()) p.ties = d == "tfjs" && rank == 3 ? "last" : "first";
  if (p.nan.empty())
    p.nan = d == "torch"        ? "propagate_last"
            : d == "tensorflow" ? "first_place"
            : d == "tfjs"       ? "ignore"
                                : "propagate_first";
  if (p.rounding == "ceil") p.rounding = d == "tfjs" ? "ceil_keep" : "ceil_drop";
  p.counts = counting.empty() ? d == "torch" || d == "jax" : counting == "count_padding";
  starts.resize(rank), taps.resize(rank), adaptive.resize(rank), kernel.resize(rank);
  const auto given = [](const std::vector<I>& list) { return !list.empty(); };
  const bool by_table = std::any_of(starts.begin(), starts.end(), given) ||
                        std::any_of(adaptive.begin(), adaptive.end(), [](I outputs) { return outputs != 0; });
  p.whole_window_gradient = d == "tfjs" && p.divisor == 0 && !by_table;
  for (size_t i = 0; i < rank; ++i) {
    for (I o = 0; o < adaptive[i]; ++o) {
      starts[i].push_back(o * sizes[i] / adaptive[i]);
      taps[i].push_back(((o + 1) * sizes[i] + adaptive[i] - 1) / adaptive[i] - starts[i].back());
    }
    if (given(starts[i])) {
      if (taps[i].empty()) taps[i].assign(starts[i].size(), kernel[i]);
      const I largest = *std::max_element(taps[i].begin(), taps[i].end()), out = static_cast<I>(starts[i].size());
      p.axes.push_back({sizes[i], largest, 1, 1, 0, 0, out, starts[i], taps[i]});
      continue;
    }
    Axis a{sizes[i], kernel[i], stride.empty() ? kernel[i] : stride[i], dilation.empty() ? 1 : dilation[i], 0, 0, 0};
    const I extent = (a.kernel - 1) * a.dilation + 1;
    if (padding == "explicit" && !lo.empty()) a.lo = lo[i], a.hi = hi[i];
    if (padding.find("same") == 0) {
      a.out = (a.in + a.stride - 1) / a.stride;
      const I total = std::max<I>(0, (a.out - 1) * a.stride + extent - a.in);
      a.lo = padding == "same" ? total / 2 : total - total / 2;
      a.hi = total - a.lo;
    } else {
      const I span = a.in + a.lo + a.hi - extent;
      if (p.rounding == "floor")
        a.out = FloorDiv(span, a.stride) + 1;
      else if (p.rounding == "round")
        a.out = static_cast<I>(std::floor(static_cast<double>(span) / static_cast<double>(a.stride) + 0.5)) + 1;
      else
        a.out = -FloorDiv(-span, a.stride) + 1;
      if (p.rounding == "ceil_drop" && (a.out - 1) * a.stride - a.lo >= a.in) --a.out;
      if (d == "tfjs" && rank == 3 && span < 0) a.out = 0;
      a.out = std::max<I>(a.out, 0);
    }
    p.axes.push_back(a);
  }
  while (p.axes.size() < 3) p.axes.insert(p.axes.begin(), {1, 1, 1, 1, 0, 0, 1});
  return p;
}

// ---- Pooling. Windows are listed once, each with its taps; everything else walks that list.

struct Tap {
  I number, input;  // in the window, in the plane
};
struct Window {
  std::vector<Tap> taps;  // the valid ones
  I counted = 1;          // positions inside the input or its padding
};

inline std::vector<Window> WindowsOf(const Problem& p) {
  std::vector<Window> windows;
  const Axis &D = p.axes[0], &H = p.axes[1], &W = p.axes[2];
  const auto inside = [](const Axis& a, I i) { return i >= 0 && i < a.in; };
  for (I d = 0; d < D.out; ++d)
    for (I h = 0; h < H.out; ++h)
      for (I w = 0; w < W.out; ++w) {
        Window window;
        const I at[3] = {d, h, w};
        for (int i = 0; i < 3; ++i) {
          const Axis& a = p.axes[static_cast<size_t>(i)];
          I count = 0;
          for (I k = 0; k < a.taps(at[i]); ++k) {
            const I place = a.first(at[i]) + k * a.dilation;
            count += place >= -a.lo && place < a.in + a.hi;
          }
          window.counted *= count;
        }
        I number = 0;
        for (I kd = 0; kd < D.kernel; ++kd)
          for (I kh = 0; kh < H.kernel; ++kh)
            for (I kw = 0; kw < W.kernel; ++kw, ++number) {
              const I id = D.first(d) + kd * D.dilation, ih = H.first(h) + kh * H.dilation,
                      iw = W.first(w) + kw * W.dilation;
              if (kd >= D.taps(d) || kh >= H.taps(h) || kw >= W.taps(w)) continue;
              if (inside(D, id) && inside(H, ih) && inside(W, iw))
                window.taps.push_back({number, (id * H.in + ih) * W.in + iw});
            }
        windows.push_back(window);
      }
  return windows;
}

// The taps that win, in order (several only for ties split and all); none when nobody does.
inline std::vector<Tap> Winners(const Problem& p, const std::vector<Tap>& taps, const std::vector<double>& v) {
  const auto nan = [&](size_t i) { return std::isnan(v[i]); };
  std::vector<size_t> candidates;
  for (size_t i = 0; i < taps.size(); ++i) candidates.push_back(i);
  const auto just = [&](size_t i) { return std::vector<Tap>{taps[i]}; };
  if (taps.empty()) return {};
  const bool any_nan = std::any_of(v.begin(), v.end(), [](double x) { return std::isnan(x); });
  if (any_nan && p.nan == "propagate_first")
    return just(
        static_cast<size_t>(std::find_if(v.begin(), v.end(), [](double x) { return std::isnan(x); }) - v.begin()));
  if (any_nan && p.nan == "propagate_last") {
    for (size_t i = v.size(); i-- > 0;)
      if (nan(i)) return just(i);
  }
  if (p.nan == "first_place" && nan(0)) return just(0);
  if (p.nan == "first_place" || p.nan == "ignore") {
    std::erase_if(candidates, nan);
    if (p.nan == "ignore" && !IsWhole(p.type)) {  // it starts from -inf, which a tie first does not replace
      const bool replaces = p.ties != "first";
      std::erase_if(candidates, [&](size_t i) { return v[i] == -HUGE_VAL && !replaces; });
    }
  }
  if (any_nan &&
      p.nan == "greater_equal") {  // whatever came before the last NaN is forgotten; the tap behind it begins anew
    size_t from = 0;
    for (size_t i = 0; i < v.size(); ++i)
      if (nan(i)) from = i + 1 < v.size() ? i + 1 : i;
    if (nan(from)) return just(from);
    std::erase_if(candidates, [&](size_t i) { return i < from; });
  }
  if (candidates.empty()) return {};
  double best = v[candidates[0]];
  for (const size_t i : candidates) best = std::max(best, v[i]);
  std::vector<Tap> winners;
  for (const size_t i : candidates)
    if (v[i] == best) winners.push_back(taps[i]);
  if (p.relu && !(best > 0)) return {};
  if (p.ties == "first") winners.resize(1);
  if (p.ties == "last") winners = {winners.back()};
  return winners;
}

struct Pooled {
  std::vector<uint8_t> y, routes, dx;
  std::vector<uint8_t> ty, unpooled;  // of x's tangent tx, and of dy
  std::vector<I> indices;             // numbered inside the plane
};

inline Pooled Pool(const Problem& p, const std::vector<uint8_t>& x, const std::vector<uint8_t>& tx,
                   const std::vector<uint8_t>& dy) {
  const I size = SizeOf(p.type), C = p.channels;
  I in = 1, out = 1, taps = 1;
  for (const Axis& a : p.axes) in *= a.in, out *= a.out, taps *= a.kernel;
  const auto windows = WindowsOf(p);
  const bool average = p.kind == "avg", sets = p.ties == "split" || p.ties == "all", whole = IsWhole(p.type);
  const auto at = [&](I plane, I n, I c, I i) { return p.last ? (n * plane + i) * C + c : (n * C + c) * plane + i; };
  const auto put = [&](std::vector<uint8_t>& to, I i, uint64_t bits) {
    std::memcpy(to.data() + i * size, &bits, static_cast<size_t>(size));
  };

  // The route format: lines along the innermost axis of y, each from a byte of its own.
  bool none = p.nan == "ignore" || p.relu;
  for (const Axis& a : p.axes) {
    for (I o = 0; o < a.out; ++o) {
      bool any = false;
      for (I k = 0; k < a.taps(o); ++k)
        any = any || (a.first(o) + k * a.dilation >= 0 && a.first(o) + k * a.dilation < a.in);
      none = none || !any;
    }
  }
  I bits = 2;
  while (taps + none > I{1} << bits) bits *= 2;
  if (p.bits) bits = p.bits;
  if (sets) bits = (taps + 7) / 8 * 8;
  const I line = p.last ? C : p.axes[2].out, lines = line ? p.batch * C * out / line : 0,
          line_bytes = (line * bits + 7) / 8;

  Pooled r;
  r.y.resize(static_cast<size_t>(p.batch * C * out * size));
  r.dx.resize(static_cast<size_t>(p.batch * C * in * size));
  r.ty.resize(average ? 0 : r.y.size());
  r.unpooled.resize(average ? 0 : r.dx.size());
  r.routes.resize(average ? 0 : static_cast<size_t>(lines * line_bytes));
  r.indices.resize(static_cast<size_t>(p.batch * C * out), -1);
  std::vector<double> sums64(static_cast<size_t>(p.batch * C * in));
  std::vector<float> sums32(sums64.size());
  const bool wide = p.type == "f64";
  const auto store = [&](std::vector<uint8_t>& to, I i, float narrow, double full) {
    uint64_t b = 0;
    if (wide)
      std::memcpy(&b, &full, 8);
    else if (p.type == "f32")
      std::memcpy(&b, &narrow, 4);
    else
      b = NearestHalf(p.type, narrow);
    put(to, i, b);
  };
  for (I n = 0; n < p.batch; ++n)
    for (I c = 0; c < C; ++c)
      for (I o = 0; o < out; ++o) {
        const Window& window = windows[static_cast<size_t>(o)];
        const I yi = at(out, n, c, o);
        std::vector<double> v;
        for (const Tap& t : window.taps) v.push_back(Value(p.type, x.data() + at(in, n, c, t.input) * size));
        const double g = whole ? 0 : Value(p.type, dy.data() + yi * size);
        const auto give = [&](const Tap& t, I parts) {
          const auto i = static_cast<size_t>(at(in, n, c, t.input));
          sums64[i] += g / static_cast<double>(parts);
          sums32[i] += static_cast<float>(g) / static_cast<float>(parts);
        };
        if (average) {
          const I count = p.divisor ? p.divisor : p.counts ? window.counted : static_cast<I>(window.taps.size());
          double full = 0;
          float narrow = 0;
          for (const double value : v) full += value, narrow += static_cast<float>(value);
          store(r.y, yi, count ? narrow / static_cast<float>(count) : 0, count ? full / static_cast<double>(count) : 0);
          for (const Tap& t : window.taps) give(t, p.whole_window_gradient ? taps : count);
          continue;
        }
        const auto winners = Winners(p, window.taps, v);
        // y is the bits of a winner: of a set, its first.
        if (winners.empty()) {
          const uint64_t lowest = p.relu             ? 0
                                  : p.type == "f32"  ? 0xFF800000
                                  : p.type == "f64"  ? 0xFFF0000000000000
                                  : p.type == "f16"  ? 0xFC00
                                  : p.type == "bf16" ? 0xFF80
                                  : p.type == "i8"   ? 0x80
                                  : p.type == "i32"  ? 0x80000000
                                                     : 0;
          put(r.y, yi, lowest);
        } else {
          std::memcpy(r.y.data() + yi * size, x.data() + at(in, n, c, winners[0].input) * size,
                      static_cast<size_t>(size));
          if (!sets) r.indices[static_cast<size_t>(yi)] = winners[0].input;
        }
        uint8_t* route = r.routes.data() + yi / line * line_bytes;
        const auto set_bit = [&](I b) { route[b / 8] = static_cast<uint8_t>(route[b / 8] | 1 << b % 8); };
        const I first_bit = yi % line * bits;
        if (sets) {
          for (const Tap& t : winners) set_bit(first_bit + t.number);
        } else {
          const uint64_t code = winners.empty() ? ~uint64_t{0} : static_cast<uint64_t>(winners[0].number);
          for (I b = 0; b < bits; ++b)
            if (code >> b & 1) set_bit(first_bit + b);
        }
        const I shares = p.ties == "split" ? std::max<I>(1, static_cast<I>(winners.size())) : 1;
        for (const Tap& t : winners) {
          give(t, shares);
          std::memcpy(r.unpooled.data() + at(in, n, c, t.input) * size, dy.data() + yi * size,
                      static_cast<size_t>(size));
        }
        double full = 0;
        float narrow = 0;
        I sum = 0;
        for (const Tap& t : winners) {
          const double tangent = Value(p.type, tx.data() + at(in, n, c, t.input) * size);
          full += tangent, narrow += static_cast<float>(tangent), sum += whole ? static_cast<I>(tangent) : 0;
        }
        if (whole)
          put(r.ty, yi, static_cast<uint64_t>(sum / shares));
        else if (sets)
          store(r.ty, yi, narrow / static_cast<float>(shares), full / static_cast<double>(shares));
        else if (!winners.empty())
          std::memcpy(r.ty.data() + yi * size, tx.data() + at(in, n, c, winners[0].input) * size,
                      static_cast<size_t>(size));
      }
  if (!whole) {
    for (size_t i = 0; i < sums64.size(); ++i) store(r.dx, static_cast<I>(i), sums32[i], sums64[i]);
  }
  return r;
}

}  // namespace poolgrad_oracle
