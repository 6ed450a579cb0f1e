#include "reference/reference.h"

#include <algorithm>
#include <cstring>

#include "spec/rules.h"
#include "spec/walk.h"

namespace poolgrad {
namespace {

// Who won the window of output o over x (bias: null where the problem has none), written to y and (if not null) to the
// route line of that output.
template <class T>
void Select(const Problem& p, const T* x, const T* bias, const Place& o, T* y, uint8_t* line, int64_t at) {
  using V = Wide<T>;
  const RouteFormat& f = p.routes;
  const bool keeps_set = f.masks;
  uint8_t* mask = line && keeps_set ? line + at * f.mask_bytes() : nullptr;
  if (mask) std::memset(mask, 0, f.mask_bytes());
  const auto set = [&](int64_t tap) {
    if (mask) mask[tap / 8] = static_cast<uint8_t>(mask[tap / 8] | 1u << (tap % 8));
  };

  T winner = Narrow<T>(Lowest<V>());
  V best = Lowest<V>();
  bool started = StartsFromLowest<V>(p.nan);
  uint32_t code = f.none();
  ForEachTap(p, o, [&](int64_t tap, int64_t index) {
    const V v = Widen(x[index]);
    const Standing standing = started ? Compare(v, best, p.nan) : Standing::kBeats;
    started = true;
    if (standing == Standing::kLoses) return;
    if (standing == Standing::kTies && keeps_set) {
      set(tap);
      return;
    }
    if (standing == Standing::kTies && p.ties == POOLGRAD_TIES_FIRST) return;
    winner = x[index];
    best = v;
    code = static_cast<uint32_t>(tap);
    if (mask) std::memset(mask, 0, f.mask_bytes());
    set(tap);
  });
#ifdef POOLGRAD_SMALL
  constexpr bool adds = false;
#else
  constexpr bool adds = !std::is_integral_v<T>;
#endif
  if constexpr (adds) {
    if (p.bias && best != Lowest<V>()) {
      winner = Narrow<T>(best + Widen(bias[o.c]));
      best = Widen(winner);
    }
  }
  if (p.relu && !PassesRelu(best)) {
    winner = Narrow<T>(0);
    code = f.none();
    if (mask) std::memset(mask, 0, f.mask_bytes());
  }
  *y = winner;
  if (line && !keeps_set) StoreCode(f, line, at, code);
}

// Whether a tap won output `at` of a route line, and how many shared the win.
struct Won {
  bool won;
  int64_t count;
};

Won WonBy(const RouteFormat& f, const uint8_t* line, int64_t at, int64_t tap) {
  if (!f.masks) return {LoadCode(f, line, at) == static_cast<uint64_t>(tap), 1};
  return {LoadMaskBit(f, line, at, tap), CountMaskBits(f, line, at)};
}

Won WonBy(const Problem& p, const uint8_t* routes, const Place& o, int64_t tap) {
  const int64_t index = IndexOf<&Axis::out>(p, o);
  return WonBy(p.routes, routes + LineOffset(p.routes, index / p.routes.line), index % p.routes.line, tap);
}

// What tap `tap` of output o receives of dy.
template <class T>
Wide<T> Share(const Problem& p, const Won& won, T dy) {
  const Wide<T> value = Widen(dy);
  return p.ties == POOLGRAD_TIES_SPLIT ? value / static_cast<Wide<T>>(won.count) : value;
}

// What the tangents of a set of winners are summed in. Integers have 64 bits there, so that `split` divides the true
// sum; only what does not fit the result (`all`) wraps around, as it does in every framework.
template <class T>
using TangentSum = std::conditional_t<std::is_integral_v<T>, int64_t, Wide<T>>;

template <class T>
T NarrowSum(TangentSum<T> sum) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum);
  } else {
    return Narrow<T>(sum);
  }
}

// Units of forward and gather are route lines; units of backward and unpool are elements of the input.

template <class T>
void Forward(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* x = static_cast<const T*>(args.source);
  T* y = static_cast<T*>(args.result);
  const RouteFormat& f = p.routes;
  for (int64_t line = begin; line < end; ++line) {
    uint8_t* routes = args.routes ? args.routes + LineOffset(f, line) : nullptr;
    for (int64_t at = 0; at < f.line; ++at) {
      const int64_t o = line * f.line + at;
      Select(p, x, static_cast<const T*>(args.bias), PlaceOf<&Axis::out>(p, o), y + o, routes, at);
    }
  }
}

template <class T>
void Backward(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* dy = static_cast<const T*>(args.source);
  T* dx = static_cast<T*>(args.result);
  for (int64_t i = begin; i < end; ++i) {
    Wide<T> sum = 0;
    ForEachCover(p, PlaceOf<&Axis::in>(p, i), [&](const Place& o, int64_t tap) {
      const Won won = WonBy(p, args.routes, o, tap);
      if (won.won) sum += Share(p, won, dy[IndexOf<&Axis::out>(p, o)]);
    });
    dx[i] = Narrow<T>(sum);
  }
}

// Like Backward, but who won is found again from x for every window that covers an input.
template <class T>
void BackwardX(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const T* dy = static_cast<const T*>(args.source);
  const T* x = static_cast<const T*>(args.x);
  T* dx = static_cast<T*>(args.result);
  uint8_t* route = reinterpret_cast<uint8_t*>(scratch);  // of one output
  for (int64_t i = begin; i < end; ++i) {
    Wide<T> sum = 0;
    ForEachCover(p, PlaceOf<&Axis::in>(p, i), [&](const Place& o, int64_t tap) {
      T y;
      Select<T>(p, x, nullptr, o, &y, route, 0);
      const Won won = WonBy(p.routes, route, 0, tap);
      if (won.won) sum += Share(p, won, dy[IndexOf<&Axis::out>(p, o)]);
    });
    dx[i] = Narrow<T>(sum);
  }
}

template <class T>
void Gather(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* tx = static_cast<const T*>(args.source);
  T* ty = static_cast<T*>(args.result);
  const RouteFormat& f = p.routes;
  for (int64_t line = begin; line < end; ++line) {
    const uint8_t* routes = args.routes + LineOffset(f, line);
    for (int64_t at = 0; at < f.line; ++at) {
      const int64_t o = line * f.line + at;
      TangentSum<T> sum = 0;
      int64_t count = 0;
      T single = Narrow<T>(0);
      ForEachTap(p, PlaceOf<&Axis::out>(p, o), [&](int64_t tap, int64_t index) {
        const Won won = WonBy(f, routes, at, tap);
        if (!won.won) return;
        single = tx[index];
        sum += Widen(tx[index]);
        count = won.count;
      });
      if (f.masks && p.ties == POOLGRAD_TIES_SPLIT && count > 0) sum /= static_cast<TangentSum<T>>(count);
      ty[o] = f.masks ? NarrowSum<T>(sum) : single;
    }
  }
}

template <class T>
void Unpool(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* y = static_cast<const T*>(args.source);
  T* x = static_cast<T*>(args.result);
  for (int64_t i = begin; i < end; ++i) {
    x[i] = Narrow<T>(0);
    ForEachCover(p, PlaceOf<&Axis::in>(p, i), [&](const Place& o, int64_t tap) {
      if (WonBy(p, args.routes, o, tap).won) x[i] = y[IndexOf<&Axis::out>(p, o)];
    });
  }
}

bool HasRoute(const RouteFormat& f, const uint8_t* line, int64_t at) {
  if (!f.masks) return LoadCode(f, line, at) < f.taps;
  for (int64_t tap = 0; tap < f.taps; ++tap) {
    if (LoadMaskBit(f, line, at, tap)) return true;
  }
  return false;
}

// Units are channels. rules.h says in which order.
template <class T>
void BiasGradient(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* dy = static_cast<const T*>(args.source);
  const int64_t plane = p.out_plane(), outputs = p.batch * plane;
  for (int64_t c = begin; c < end; ++c) {
    double total = 0;
    for (int64_t block = 0; block < outputs; block += kBiasBlock) {
      double sums[kBiasSums] = {};
      for (int64_t i = block; i < std::min(block + kBiasBlock, outputs); ++i) {
        const int64_t o = p.channels_last() ? i * p.channels + c : (i / plane * p.channels + c) * plane + i % plane;
        const uint8_t* line = args.routes + LineOffset(p.routes, o / p.routes.line);
        if (HasRoute(p.routes, line, o % p.routes.line)) sums[i % kBiasSums] += static_cast<double>(Widen(dy[o]));
      }
      total += FoldBiasSums(sums);
    }
    static_cast<T*>(args.result)[c] = Narrow<T>(static_cast<Wide<T>>(total));
  }
}

template <class T>
void AverageForward(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* x = static_cast<const T*>(args.source);
  T* y = static_cast<T*>(args.result);
  for (int64_t o = begin * p.routes.line; o < end * p.routes.line; ++o) {
    const Place place = PlaceOf<&Axis::out>(p, o);
    Wide<T> sum = 0;
    ForEachTap(p, place, [&](int64_t, int64_t index) { sum += Widen(x[index]); });
    const int64_t count = AverageCount(p, place.at[0], place.at[1], place.at[2]);
    y[o] = Narrow<T>(count == 0 ? Wide<T>{0} : sum / static_cast<Wide<T>>(count));
  }
}

template <class T>
void AverageBackward(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte*) {
  const T* dy = static_cast<const T*>(args.source);
  T* dx = static_cast<T*>(args.result);
  for (int64_t i = begin; i < end; ++i) {
    Wide<T> sum = 0;
    ForEachCover(p, PlaceOf<&Axis::in>(p, i), [&](const Place& o, int64_t) {
      const int64_t count = p.whole_window_gradient ? p.taps() : AverageCount(p, o.at[0], o.at[1], o.at[2]);
      sum += Widen(dy[IndexOf<&Axis::out>(p, o)]) / static_cast<Wide<T>>(count);
    });
    dx[i] = Narrow<T>(sum);
  }
}

template <class T>
RunFn RunOf(const Problem& p, poolgrad_op op) {
  constexpr bool real = !std::is_integral_v<T>;
  if (p.kind == POOLGRAD_AVERAGE) {
    if constexpr (real) {
      return op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X ? AverageBackward<T> : AverageForward<T>;
    }
    return nullptr;
  }
  switch (op) {
    case POOLGRAD_OP_FORWARD:
    case POOLGRAD_OP_FORWARD_ROUTES:
      return Forward<T>;
    case POOLGRAD_OP_BACKWARD:
      if constexpr (real) return Backward<T>;
      return nullptr;
    case POOLGRAD_OP_BACKWARD_X:
      if constexpr (real) return BackwardX<T>;
      return nullptr;
    case POOLGRAD_OP_GATHER:
      return Gather<T>;
    case POOLGRAD_OP_UNPOOL:
      return Unpool<T>;
    case POOLGRAD_OP_BIAS_GRADIENT:
#ifndef POOLGRAD_SMALL  // which takes no bias
      if constexpr (real) return BiasGradient<T>;
#endif
      return nullptr;
  }
  return nullptr;
}

const char* Make(const Problem& p, poolgrad_op op, const Host&, Kernel* kernel) {
  kernel->run = VisitDtype(p.dtype, [&](auto zero) { return RunOf<decltype(zero)>(p, op); });
  const bool by_input = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X || op == POOLGRAD_OP_UNPOOL;
  kernel->units = op == POOLGRAD_OP_BIAS_GRADIENT ? p.channels : by_input ? p.x_elements() : p.routes.lines;
  kernel->scratch_bytes =
      op == POOLGRAD_OP_BACKWARD_X && p.routes.lines > 0 ? CeilDiv(std::max(p.routes.bits, 8), 8) : 0;
  return nullptr;
}

constexpr Algorithm kReference[] = {{"reference", kDoesAll, Seen::kAsIs, Make}};

}  // namespace

std::span<const Algorithm> ReferenceAlgorithms() { return kReference; }

}  // namespace poolgrad
