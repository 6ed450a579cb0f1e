// Backward for channels last and small windows: outputs are visited in row-major order, and each gives its dy to the
// pixels of its window, 16 channels at a time: dx[tap] += route == tap ? dy : 0. The routes and dy of an output are
// unpacked once for all its taps, and the rows of dx it touches stay in cache. A pixel gets its sums in row-major order
// of outputs, as it must.
//
// Assumes disjoint depth windows, so that a plane of dx belongs to one output depth. A row is zeroed just before its
// first window; where windows tile the plane without gaps it is assigned instead. The halves add up in f32 rows of
// scratch and are rounded when no later window reaches a row.

// Per-target include guard
#if defined(POOLGRAD_CPU_BACKWARD_PIXELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_PIXELS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_PIXELS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_PIXELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/pixels.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// 16 codes of kBits each, as bytes.
template <int kBits>
HWY_INLINE void UnpackBlock(const uint8_t* from, uint8_t* HWY_RESTRICT codes) {
  const hn::FixedTag<uint8_t, 16> d8;
  if constexpr (kBits == 8) {
    hn::Store(hn::LoadU(d8, from), d8, codes);
  } else if constexpr (kBits == 4) {
    const hn::FixedTag<uint8_t, 8> half;
    const auto v = hn::LoadU(half, from);
    const auto low = hn::And(v, hn::Set(half, 15));
    const auto high = hn::ShiftRight<4>(v);
    hn::Store(hn::Combine(d8, hn::InterleaveUpper(half, low, high), hn::InterleaveLower(half, low, high)), d8, codes);
  } else {
    const hn::FixedTag<uint32_t, 4> d32;
    const hn::FixedTag<uint8_t, 4> quarter;
    const auto v = hn::PromoteTo(d32, hn::LoadU(quarter, from));
    const auto pairs = hn::Or(v, hn::ShiftLeft<12>(v));
    hn::Store(hn::And(hn::BitCast(d8, hn::Or(pairs, hn::ShiftLeft<6>(pairs))), hn::Set(d8, 3)), d8, codes);
  }
}

// The sums of a dx row: A is the type they are made in (the halves' bits when every pixel is assigned once).
template <class T, class A, int kBits, int kWidth, bool kAssign>
class Pixels {
  using U = hwy::MakeUnsigned<A>;
  static constexpr bool kRounds = !kAssign && !std::is_same_v<T, A>;  // sums are kept apart from dx

 public:
  Pixels(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        t_(LayOutPixels(problem)),
        channels_(problem.channels),
        dy_(static_cast<const T*>(args.source)),
        dx_(static_cast<T*>(args.result)),
        routes_(args.routes),
        sums_(reinterpret_cast<A*>(scratch)) {
    for (size_t i = 0; i < kMostPixelTaps * kTagLanes; ++i) taps_[i] = static_cast<U>(i / kTagLanes);
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t band = unit % t_.bands;
      const int64_t group = unit / t_.bands % t_.groups;
      const int64_t n = unit / t_.bands / t_.groups;
      const Range rows = {band * t_.band, std::min((band + 1) * t_.band, p_.height().in)};
      if (group == p_.depth().out) {
        ZeroUncovered(n, rows);
      } else {
        Band(n, group, rows);
      }
    }
  }

 private:
  // The row of dx, or where its sums are kept until they are rounded.
  A* SumRow(int64_t n, int64_t id, int64_t kd, int64_t ih) const {
    if constexpr (!kRounds) {
      return reinterpret_cast<A*>(DxRow(n, id, ih));
    } else {
      return sums_ + (kd * t_.slots + ih % t_.slots) * t_.row;
    }
  }
  T* DxRow(int64_t n, int64_t id, int64_t ih) const {
    return dx_ + ((n * p_.depth().in + id) * p_.height().in + ih) * t_.row;
  }

  void ZeroUncovered(int64_t n, Range rows) const {
    for (int64_t id = 0; id < p_.depth().in; ++id) {
      bool covered = false;
      const Range over = p_.depth().covering(id);
      for (int64_t od = over.begin; od < over.end; ++od) covered = covered || p_.depth().tap_at(od, id) >= 0;
      if (!covered) std::memset(static_cast<void*>(DxRow(n, id, rows.begin)), 0, Bytes(rows.size() * t_.row));
    }
  }

  static size_t Bytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(T); }

  void Band(int64_t n, int64_t od, Range rows) const {
    const Axis& height = p_.height();
    const Range kd = p_.depth().valid_taps(od);
    const auto plane = [&](int64_t k) { return p_.depth().start(od) + k * p_.depth().dilation; };
    int64_t ready = rows.begin;    // rows before this may be added to
    int64_t rounded = rows.begin;  // rows before this are final
    const auto finish = [&](int64_t to) {
      if constexpr (kRounds) {
        for (; rounded < std::min(to, rows.end); ++rounded) {
          for (int64_t k = kd.begin; k < kd.end; ++k) {
            RoundRow(SumRow(n, plane(k), k, rounded), DxRow(n, plane(k), rounded));
          }
        }
      } else {
        (void)to;
      }
    };
    const auto prepare = [&](int64_t to) {
      for (; ready < std::min(to, rows.end); ++ready) {
        if constexpr (kRounds) finish(ready + 1 - t_.slots);  // whose slot this row takes
        for (int64_t k = kd.begin; k < kd.end; ++k) {
          std::memset(static_cast<void*>(SumRow(n, plane(k), k, ready)), 0, static_cast<size_t>(t_.row) * sizeof(A));
        }
      }
    };
    const int64_t last = height.covering(rows.end - 1).end;
    for (int64_t oh = height.covering(rows.begin).begin; oh < last; ++oh) {
      const int64_t start = height.start(oh);
      if constexpr (!kAssign) {
        prepare(start);  // rows that no window reaches
        finish(start);
        prepare(start + height.extent());
      }
      if constexpr (kAssign) ready = std::clamp(start + height.kernel, ready, rows.end);
      OutputRow(n, od, oh, rows, kd);
    }
    if constexpr (kAssign) {  // what the last window did not reach
      for (int64_t k = kd.begin; k < kd.end && ready < rows.end; ++k) {
        std::memset(static_cast<void*>(DxRow(n, plane(k), ready)), 0, Bytes((rows.end - ready) * t_.row));
      }
    } else {
      prepare(rows.end);
      finish(rows.end);
    }
  }

  void RoundRow(const A* from, T* to) const {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    if constexpr (kRounds) {
      for (; i + lanes <= t_.row; i += lanes) StoreNarrow(d, hn::LoadU(d, from + i), to + i);
      for (; i < t_.row; ++i) to[i] = Narrow<T>(from[i]);
    }
  }

  // The rows of dx that an output row reaches, with the code of their first tap.
  struct Reached {
    A* row;
    uint32_t code;
  };

  void OutputRow(int64_t n, int64_t od, int64_t oh, Range rows, Range kd) const {
    const Axis& height = p_.height();
    const Axis& width = p_.width();
    Reached reached[kMostRows];
    int64_t count = 0;
    for (int64_t k = kd.begin; k < kd.end; ++k) {
      const int64_t id = p_.depth().start(od) + k * p_.depth().dilation;
      for (int64_t kh = 0; kh < height.kernel; ++kh) {
        const int64_t ih = height.start(oh) + kh * height.dilation;
        if (ih < rows.begin || ih >= rows.end) continue;
        reached[count++] = {SumRow(n, id, k, ih), static_cast<uint32_t>((k * height.kernel + kh) * kWidth)};
      }
    }
    const int64_t first = ((n * p_.depth().out + od) * height.out + oh) * width.out;
    const Range whole = width.interior();
    for (int64_t ow = 0; ow < width.out; ++ow) {
      const T* dy = dy_ + (first + ow) * channels_;
      const uint8_t* line = routes_ + LineOffset(p_.routes, first + ow);
      const int64_t at = width.start(ow) * channels_;
      if (ow >= whole.begin && ow < whole.end) {
        Output<true>(reached, count, dy, line, at, {0, kWidth});
      } else {
        Output<false>(reached, count, dy, line, at, width.valid_taps(ow));
      }
    }
    if constexpr (kAssign) {  // columns to the right of the last window
      const int64_t covered = std::min(width.in, width.out * width.stride);
      for (int64_t i = 0; i < count && covered < width.in; ++i) {
        std::memset(static_cast<void*>(reached[i].row + covered * channels_), 0,
                    Bytes((width.in - covered) * channels_));
      }
    }
  }

  // One output pixel, all channels.
  template <bool kInterior>
  HWY_INLINE void Output(const Reached* reached, int64_t count, const T* dy, const uint8_t* line, int64_t at,
                         Range valid) const {
    const int64_t step = p_.width().dilation * channels_;
    int64_t c = 0;
    for (; c + kPixelBlock <= channels_; c += kPixelBlock)
      Block<kInterior>(reached, count, dy + c, line + c * kBits / 8, at + c, step, valid);
    if (c < channels_) {  // the last channels, as a block of copies
      const int64_t left = channels_ - c;
      HWY_ALIGN T some_dy[kPixelBlock] = {};
      HWY_ALIGN uint8_t some_codes[kPixelBlock] = {};
      std::memcpy(static_cast<void*>(some_dy), dy + c, Bytes(left));
      std::memcpy(some_codes, line + c * kBits / 8, static_cast<size_t>(CeilDiv(left * kBits, 8)));
      Tail(reached, count, some_dy, some_codes, at + c, step, valid, left);
    }
  }

  // dy as it is added: widened, or the bits of 0 + dy.
  template <class DA>
  HWY_INLINE hn::Vec<DA> LoadDy(DA d, const T* from) const {
    if constexpr (std::is_same_v<A, uint16_t>) {
      return HalfAsSum<T>(d, hn::LoadU(d, reinterpret_cast<const uint16_t*>(from)));
    } else {
      const auto v = LoadWide(d, from);
      return kAssign ? hn::Add(v, hn::Zero(d)) : v;
    }
  }

  template <bool kInterior>
  HWY_INLINE void Block(const Reached* reached, int64_t count, const T* dy, const uint8_t* codes8, int64_t at,
                        int64_t step, Range valid) const {
    const hn::CappedTag<A, kPixelBlock> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint8_t, decltype(d)> d8;
    constexpr size_t kLanes = hn::MaxLanes(d);
    constexpr size_t kVectors = kPixelBlock / kLanes;
    static_assert(kVectors * kLanes == kPixelBlock);
    HWY_ALIGN uint8_t codes[kPixelBlock];
    UnpackBlock<kBits>(codes8, codes);
    hn::Vec<decltype(d)> value[kVectors];
    hn::Vec<decltype(du)> code[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      value[v] = LoadDy(d, dy + v * kLanes);
      code[v] = Promoted(du, hn::LoadU(d8, codes + v * kLanes));
    }
    for (int64_t i = 0; i < count; ++i) {
      A* to = reached[i].row + at;
      const U* taps = taps_ + reached[i].code * kLanes;
      const auto give = [&](int64_t kw) HWY_ATTR {
        const auto tap = hn::LoadU(du, taps + kw * static_cast<int64_t>(kLanes));
        A* pixel = to + kw * step;
        for (size_t v = 0; v < kVectors; ++v) {
          const auto share = hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(code[v], tap)), value[v]);
          A* here = pixel + v * kLanes;
          if constexpr (kAssign) {
            hn::StoreU(share, d, here);
          } else {
            hn::StoreU(hn::Add(hn::LoadU(d, here), share), d, here);
          }
        }
      };
      if constexpr (kInterior) {
        for (int64_t kw = 0; kw < kWidth; ++kw) give(kw);
      } else {
        for (int64_t kw = valid.begin; kw < valid.end; ++kw) give(kw);
      }
    }
  }

  template <class DU>
  HWY_INLINE static hn::Vec<DU> Promoted(DU du, hn::Vec<hn::Rebind<uint8_t, DU>> codes) {
    if constexpr (sizeof(hn::TFromD<DU>) == 8) {
      const hn::Rebind<uint32_t, DU> d32;
      return hn::PromoteTo(du, hn::PromoteTo(d32, codes));
    } else {
      return hn::PromoteTo(du, codes);
    }
  }

  // `left` channels, one by one.
  void Tail(const Reached* reached, int64_t count, const T* dy, const uint8_t* line, int64_t at, int64_t step,
            Range valid, int64_t left) const {
    HWY_ALIGN uint8_t codes[kPixelBlock];
    UnpackBlock<kBits>(line, codes);
    HWY_ALIGN A values[kPixelBlock];
    const hn::CappedTag<A, kPixelBlock> d;
    for (size_t v = 0; v < kPixelBlock; v += hn::Lanes(d)) hn::Store(LoadDy(d, dy + v), d, values + v);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t kw = valid.begin; kw < valid.end; ++kw) {
        A* to = reached[i].row + at + kw * step;
        const uint32_t code = reached[i].code + static_cast<uint32_t>(kw);
        for (int64_t c = 0; c < left; ++c) {
          const A share = codes[c] == code ? values[c] : A{0};
          to[c] = kAssign ? share : static_cast<A>(to[c] + share);
        }
      }
    }
  }

  static constexpr int64_t kMostRows = kMostPixelTaps;
  static constexpr size_t kTagLanes = hn::MaxLanes(hn::CappedTag<A, kPixelBlock>());

  const Problem& p_;
  const PixelTiles t_;
  const int64_t channels_;
  const T* dy_;
  T* dx_;
  const uint8_t* routes_;
  A* sums_;
  HWY_ALIGN U taps_[kMostPixelTaps * kTagLanes];  // vectors of every tap's number
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
