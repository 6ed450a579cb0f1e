// dx of windows that tile the plane, channels first, from packed codes of 2 or 4 bits read where they lie.
//
// A vector of dx holds the windows of a few outputs: dy is repeated for every tap of its window and kept where the code
// names it. A step is a few vectors of dy whose codes fill a word.
//
// dx is written in the order it lies in memory, and nothing else is stored in between: only then does the processor
// write whole lines without reading them first. So rows that do not fill vectors end with shorter stores, not with one
// that goes back.
#if defined(POOLGRAD_CPU_BACKWARD_TILING_FIRST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_TILING_FIRST_INL_H_
#undef POOLGRAD_CPU_BACKWARD_TILING_FIRST_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_TILING_FIRST_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "cpu/backward/fields-inl.h"
#include "cpu/backward/tiling.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// T: the element type, or for unpool the unsigned integer of its size. Units are output rows.
template <class T, int kTaps, int kBits, Way kWay = Way::kCached>
class TilingFirst {
  using Bits = typename UnsignedOfSize<sizeof(T)>::Type;
  static constexpr int64_t kN = 16 / sizeof(Bits);
  using D = hn::FixedTag<Bits, kN>;
  using V = hn::Vec<D>;
  using Watched = WatchOf<T, D>;

  static constexpr int64_t kLaneBits = 8 * sizeof(Bits);
  static constexpr int64_t kVectorBits = kN * kBits;  // codes of a vector of dy
  // Whether the codes of a vector of dx lie in several lanes' worth of bits, and each lane looks up its own.
  static constexpr bool kLookUp = kVectorBits > kLaneBits && (kN % kTaps != 0 || kN / kTaps * kBits > kLaneBits);
  // Vectors of dy. With more taps, more would not fit the registers: what is kept in memory is stored between rows.
  static constexpr int64_t kStep = std::clamp<int64_t>((kTaps > 2 || kLookUp ? kLaneBits : 64) / kVectorBits, 1, 4);
  // Those of them whose codes share a lane's worth; 1 also where a vector's codes fill several.
  static constexpr int64_t kPerLane = std::clamp<int64_t>(kLaneBits / kVectorBits, 1, kStep);
  static constexpr int64_t kStepBytes = kStep * kVectorBits / 8;
  static constexpr int64_t kChunks = kLookUp ? 1 : CeilDiv(kStepBytes, sizeof(Bits));
  static_assert(kStep * kVectorBits % 8 == 0);
  static constexpr int64_t kReadable = sizeof(uint64_t);  // bytes of codes that may be read in place of a step's
  static constexpr int64_t kFields = kPerLane * kTaps;    // vectors of dx with different fields
  // Whether both rows of dx of windows two rows high may be written at once. Arm only.
  static constexpr bool kPairs =
      HWY_ARCH_ARM_A64 && kTaps == 2 && !kLookUp && kStep * kTaps * kN * sizeof(Bits) % 64 == 0;

 public:
  TilingFirst(const Problem& problem, const Args& args)
      : p_(problem),
        out_(problem.width().out),
        in_(problem.width().in),
        whole_(std::min(out_, in_ / kTaps)),
        ragged_(out_ * kTaps != in_),
        lines_(in_ * static_cast<int64_t>(sizeof(Bits)) % 64 == 0 && out_ % (kStep * kN) == 0 &&
               reinterpret_cast<uintptr_t>(args.result) % 64 == 0),
        dy_(static_cast<const Bits*>(args.source)),
        routes_(args.routes),
        dx_(static_cast<Bits*>(args.result)) {
    for (int64_t i = 0; i < kFields * kN; ++i) {
      const int64_t output = i / kTaps;
      fields_[i] = static_cast<Bits>(((uint64_t{1} << kBits) - 1) << (output * kBits % kLaneBits));
      if (i >= kTaps * kN) continue;
      own_codes_[i] = BytesOf(output * kBits / kLaneBits);
      columns_[i] = static_cast<Bits>(static_cast<uint64_t>(i % kTaps) * OneInEveryField(kBits));
      repeat_[i] = BytesOf(output);
    }
    // From a row that does not fill steps a little more is read than it has: not where dy or the routes end.
    readable_ = p_.routes.lines;
    if (whole_ % (kStep * kN) != 0) {
      readable_ -= std::max(CeilDiv(kStep * kN, out_), CeilDiv(kReadable, p_.routes.line_bytes));
    }
  }

  void Run(int64_t begin, int64_t end) const {
    const Axis& depth = p_.depth();
    const Axis& height = p_.height();
    const int64_t most = kIsHalfType<T> ? std::max<int64_t>(1, 4096 / out_) : end;  // rows between looks at the watch
    // Planes whose windows leave no rows over follow each other as if they were one.
    const bool seamless =
        depth.in == 1 && depth.out == 1 && depth.kernel == 1 && height.in == height.out * height.kernel;
    for (int64_t unit = begin; unit < end;) {
      const int64_t oh = unit % height.out;
      const int64_t od = unit / height.out % depth.out;
      const int64_t image = unit / height.out / depth.out;
      // Rows of whole windows that can be read further than needed.
      const int64_t together = seamless ? end - unit : std::min(height.out, height.in / height.kernel) - oh;
      const int64_t even = std::min({end - unit, together, readable_ - unit, most});
      const int64_t rows = std::max<int64_t>(1, even);
      const int64_t tap_rows = std::clamp<int64_t>(height.in - oh * height.kernel, 0, height.kernel);
      const Range over_d = OwnedBy(depth, od);
      const int64_t begin_h = OwnedBy(height, oh).begin;
      const Range over_h = {begin_h, seamless ? begin_h + rows * height.kernel : OwnedBy(height, oh + rows - 1).end};
      Values values = kFirstValues<T>;
      for (int64_t d = over_d.begin; d < over_d.end; ++d) {
        Bits* const to = dx_ + ((image * depth.in + d) * height.in + over_h.begin) * in_;
        const int64_t tap_d = OwnTap(depth, od, d);
        int64_t written = 0;
        if (tap_d >= 0 && tap_rows > 0) {
          written = rows * tap_rows;
          const Job job = {unit, rows, tap_rows, tap_d * height.kernel * kTaps};
          if constexpr (kIsHalfType<T>) {
            if (values == Values::kPlain) Write<Values::kPlain>(job, to);
            if (values == Values::kWatched) values = Write<Values::kWatched>(job, to) ? Values::kSums : Values::kPlain;
          }
          if (values == Values::kSums) Write<Values::kSums>(job, to);
        }
        const int64_t left = over_h.size() - written;
        if (left > 0) std::memset(to + written * in_, 0, static_cast<size_t>(left * in_) * sizeof(Bits));
      }
      unit += rows;
    }
  }

 private:
  // What stays the same from row to row, by lane of the vectors of dx that a step, or one vector of dy, becomes.
  struct Lanes {
    V fields[kFields];   // of its output
    V repeat[kTaps];     // the bytes of dy
    V own_codes[kTaps];  // the bytes of its chunk

    HWY_INLINE Lanes() {}  // GCC compiles implicit constructors without the target's instructions
  };

  // Output rows with the same number of input rows each.
  struct Job {
    int64_t unit, rows, tap_rows, first_tap;
  };

  // Each of these returns whether the watch fired.
  template <Values kValues>
  bool Write(const Job& job, Bits* to) const {
    const Bits* dy = dy_ + job.unit * out_;
    const uint8_t* line = routes_ + LineOffset(p_.routes, job.unit);
    if (job.unit >= readable_) return WriteUnreadable<kValues>(job, dy, line, to);
    if (ragged_) return WriteRows<kValues, true>(dy, line, job, whole_, to);
    if constexpr (kPairs) {
      if (lines_ && job.tap_rows == 2) return WritePairs<kValues>(dy, line, job, to);
    }
    return WriteRows<kValues, false>(dy, line, job, whole_, to);
  }

  // One output row where dy or the routes end: whole steps in place, the rest from a copy.
  template <Values kValues>
  HWY_NOINLINE bool WriteUnreadable(const Job& job, const Bits* dy, const uint8_t* line, Bits* to) const {
    const int64_t steps = whole_ / (kStep * kN);
    const int64_t done = steps * kStep * kN;
    Bits rest[kStep * kN] = {};
    uint8_t rest_codes[kReadable] = {};
    std::memcpy(rest, dy + done, static_cast<size_t>(whole_ - done) * sizeof(Bits));
    std::memcpy(rest_codes, line + steps * kStepBytes, static_cast<size_t>(((whole_ - done) * kBits + 7) / 8));
    bool fired = false;
    for (int64_t row = 0; row < job.tap_rows; ++row, to += in_) {
      const Job one = {job.unit, 1, 1, job.first_tap + row * kTaps};
      fired |= WriteRows<kValues, false>(dy, line, one, done, to);
      fired |= WriteRows<kValues, false>(rest, rest_codes, one, whole_ - done, to + done * kTaps);
      FinishRow(dy, line, one.first_tap, to);
    }
    return fired;
  }

  // Nothing but dx is stored between the rows, and what the loops need has to fit the registers: hence a function of
  // its own with as little as possible in it. `count`: outputs of each row. kRagged: rows end with something else.
  template <Values kValues, bool kRagged>
  HWY_NOINLINE bool WriteRows(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT line, const Job& job,
                              int64_t count, Bits* HWY_RESTRICT to) const {
    constexpr Values kOthers = kValues == Values::kWatched ? Values::kPlain : kValues;  // one row of taps is enough
    const D d;
    const int64_t out = out_;
    const int64_t in = in_;
    const int64_t line_bytes = p_.routes.line_bytes;
    const int64_t tap_rows = job.tap_rows;
    Lanes lanes;
    for (int i = 0; i < kFields; ++i) lanes.fields[i] = hn::LoadU(d, fields_ + i * kN);
    for (int k = 0; k < kTaps; ++k) {
      lanes.repeat[k] = hn::LoadU(d, repeat_ + k * kN);
      lanes.own_codes[k] = hn::LoadU(d, own_codes_ + k * kN);
    }
    HWY_ALIGN Bits all_taps[kMostRows][kTaps * kN];  // of every row, in every field
    for (int64_t row = 0; row < tap_rows; ++row) {
      const auto first = static_cast<uint64_t>(job.first_tap + row * kTaps) * OneInEveryField(kBits);
      for (int64_t i = 0; i < kTaps * kN; ++i) all_taps[row][i] = static_cast<Bits>(first + columns_[i]);
    }
    Watched watch;
    for (int64_t r = job.rows; r > 0; --r, dy += out, line += line_bytes) {
      for (int64_t row = 0; row < tap_rows; ++row, to += in) {
        V taps[kTaps];
        for (int k = 0; k < kTaps; ++k) taps[k] = hn::Load(d, all_taps[row] + k * kN);
        if (kValues != kOthers && row == 0) {
          WriteRow<kValues>(dy, line, count, taps, lanes, to, watch);
        } else {
          WriteRow<kOthers>(dy, line, count, taps, lanes, to, watch);
        }
        if constexpr (kRagged) FinishRow(dy, line, job.first_tap + row * kTaps, to);
      }
    }
    return watch.Fired();
  }

  // Windows two rows high, both rows of dx at once, by whole lines: the core writes these without reading them as well
  // as it does one row after the other, and what dy and its codes become is found once. Rows are whole steps.
  template <Values kValues>
  HWY_NOINLINE bool WritePairs(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT line, const Job& job,
                               Bits* HWY_RESTRICT to) const {
    const D d;
    const int64_t out = out_;
    const int64_t in = in_;
    Lanes lanes;
    for (int i = 0; i < kFields; ++i) lanes.fields[i] = hn::LoadU(d, fields_ + i * kN);
    for (int k = 0; k < kTaps; ++k) lanes.repeat[k] = lanes.own_codes[k] = hn::Zero(d);  // not looked at
    const V columns = hn::LoadU(d, columns_);
    const auto first_of = [&](int64_t row) {
      return static_cast<Bits>(static_cast<uint64_t>(job.first_tap + row * kTaps) * OneInEveryField(kBits));
    };
    const V tap0 = hn::Add(columns, hn::Set(d, first_of(0)));
    const V tap2 = hn::Add(columns, hn::Set(d, first_of(1)));
    const V upper[kTaps] = {tap0, tap0}, lower[kTaps] = {tap2, tap2};
    Watched watch;
    for (int64_t r = job.rows; r > 0; --r, to += in) {
      for (int64_t count = out; count > 0; count -= kStep * kN) {
        V codes[kChunks], values[kStep];
        for (int c = 0; c < kChunks; ++c) codes[c] = LoadChunk<kStepBytes>(line, c);
        for (int q = 0; q < kStep; ++q) values[q] = LoadValues<T, kValues>(d, dy + q * kN, watch);
        StoreStep<0>(codes, values, upper, lanes, to);
        Bits* below = to + in;
        asm("" : "+r"(below));  // so that stores go out in pairs
        StoreStep<0>(codes, values, lower, lanes, below);
        dy += kStep * kN;
        line += kStepBytes;
        to += kStep * kTaps * kN;
      }
    }
    return watch.Fired();
  }

  // One row of dx of a step, from vector kAt on.
  template <int kAt>
  static HWY_INLINE void StoreStep(const V (&codes)[kChunks], const V (&values)[kStep], const V (&taps)[kTaps],
                                   const Lanes& lanes, Bits* to) {
    if constexpr (kAt < kStep * kTaps) {
      constexpr int kQ = kAt / kTaps;
      constexpr int kK = kAt % kTaps;
      const V kept = Kept(values[kQ], codes[ChunkOf(kQ, kK)], kK, taps, lanes.fields[kAt % kFields], lanes);
      hn::StoreU(kept, D(), to + kAt * kN);
      // Compilers turn the order around, the processor minds.
      if constexpr (kAt % 2 == 1) std::atomic_signal_fence(std::memory_order_seq_cst);
      StoreStep<kAt + 1>(codes, values, taps, lanes, to);
    }
  }

  template <Values kValues>
  static HWY_INLINE void WriteRow(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT line, int64_t count,
                                  const V (&taps)[kTaps], const Lanes& lanes, Bits* HWY_RESTRICT to, Watched& watch) {
    const D d;
    for (; count >= kStep * kN; count -= kStep * kN, dy += kStep * kN, line += kStepBytes, to += kStep * kTaps * kN) {
      // Everything is loaded before the first store, which for all the compiler knows might change it.
      V codes[kChunks], values[kStep];
      for (int c = 0; c < kChunks; ++c) codes[c] = LoadChunk<kStepBytes>(line, c);
      for (int q = 0; q < kStep; ++q) values[q] = LoadValues<T, kValues>(d, dy + q * kN, watch);
      for (int q = 0; q < kStep; ++q) {
        for (int k = 0; k < kTaps; ++k) {
          Put<kWay>(d, Kept(values[q], codes[ChunkOf(q, k)], k, taps, lanes.fields[q % kPerLane * kTaps + k], lanes),
                    to + (q * kTaps + k) * kN);
        }
      }
    }
    WriteRest<kValues, 0>(dy, line, count * kTaps, hn::Zero(d), taps, lanes, to, watch);
  }

  // What is left of a row: the first `left` lanes of a step's dx, from vector kAt on. A whole step can be read.
  template <Values kValues, int kAt>
  static HWY_INLINE void WriteRest(const Bits* HWY_RESTRICT dy, const uint8_t* HWY_RESTRICT line, int64_t left, V value,
                                   const V (&taps)[kTaps], const Lanes& lanes, Bits* HWY_RESTRICT to, Watched& watch) {
    if constexpr (kAt < kStep * kTaps) {
      const D d;
      constexpr int kQ = kAt / kTaps;
      constexpr int kK = kAt % kTaps;
      if (left <= kAt * kN) return;
      if constexpr (kK == 0) value = LoadValues<T, kValues>(d, dy + kQ * kN, watch);
      const V codes = LoadChunk<kReadable>(line, ChunkOf(kQ, kK));
      const V kept = Kept(value, codes, kK, taps, lanes.fields[kAt % kFields], lanes);
      if (left < (kAt + 1) * kN) return StoreFirst(kept, left - kAt * kN, to + kAt * kN);
      Put<kWay>(d, kept, to + kAt * kN);
      WriteRest<kValues, kAt + 1>(dy, line, left, value, taps, lanes, to, watch);
    }
  }

  // Which chunk of a step's codes vector k of the dx of vector q of dy needs.
  static constexpr int64_t ChunkOf(int64_t q, int64_t k) {
    return kLookUp ? 0 : (q * kN + k * kN / kTaps) * kBits / kLaneBits;
  }

  // In every lane a chunk of the codes at `line` as wide as it, or (kLookUp) all of them in every 8 bytes.
  template <int64_t kBytes>
  static HWY_INLINE V LoadChunk(const uint8_t* line, int64_t chunk) {
    const D d;
    const hn::Repartition<uint64_t, D> d64;
    if constexpr (kLookUp) return hn::BitCast(d, hn::Set(d64, LoadWord<uint64_t, kBytes>(line)));
    return hn::Set(d, LoadWord<Bits, kBytes>(line + chunk * kLaneBits / 8));
  }

  // Vector k of the dx of a vector of dy: `value` where the codes say so.
  static HWY_INLINE V Kept(V value, V codes, int k, const V (&taps)[kTaps], V fields, const Lanes& lanes) {
    const D d;
    const hn::Repartition<uint8_t, D> d8;
    constexpr bool kSame = kN % kTaps == 0;  // every vector of dx begins with the same tap
    if constexpr (kLookUp) {
      codes = hn::BitCast(d, LookUpBytes(hn::BitCast(d8, codes), hn::BitCast(d8, lanes.own_codes[k])));
    }
    const V different = hn::Xor(codes, taps[kSame ? 0 : k]);
    return ZeroWhereDifferent(d, different, fields, Repeated(value, k, lanes.repeat[k]));
  }

  // Vector k of those that hold every lane of `v` kTaps times.
  static HWY_INLINE V Repeated(V v, int k, V places) {
    const D d;
    const hn::Repartition<uint8_t, D> d8;
    if constexpr (kTaps == 1) return v;
    if constexpr (kTaps == 2) return k == 0 ? hn::InterleaveLower(d, v, v) : hn::InterleaveUpper(d, v, v);
    if constexpr (kTaps == 4) {
      const V twice = k < 2 ? hn::InterleaveLower(d, v, v) : hn::InterleaveUpper(d, v, v);
      return k % 2 == 0 ? hn::InterleaveLower(d, twice, twice) : hn::InterleaveUpper(d, twice, twice);
    }
    return hn::BitCast(d, LookUpBytes(hn::BitCast(d8, v), hn::BitCast(d8, places)));
  }

  // The first n lanes, less than all.
  static HWY_INLINE void StoreFirst(V v, int64_t n, Bits* to) {
    const hn::Repartition<uint64_t, D> d64;
    uint64_t bits = hn::GetLane(hn::BitCast(d64, v));
    if (n >= kN / 2) {
      std::memcpy(to, &bits, sizeof(bits));
      bits = hn::ExtractLane(hn::BitCast(d64, v), 1);
      to += kN / 2;
      n -= kN / 2;
    }
    for (int64_t lanes = kN / 4; lanes > 0; lanes /= 2) {
      if (n < lanes) continue;
      std::memcpy(to, &bits, static_cast<size_t>(lanes) * sizeof(Bits));
      bits >>= lanes * kLaneBits % 64;
      to += lanes;
      n -= lanes;
    }
  }

  // A window that lies in the row in part, and the inputs that no window covers.
  HWY_INLINE void FinishRow(const Bits* dy, const uint8_t* line, int64_t first_tap, Bits* to) const {
    int64_t i = whole_ * kTaps;
    if (whole_ < out_) {
      const int code = line[whole_ * kBits / 8] >> (whole_ * kBits % 8) & ((1 << kBits) - 1);
      for (int64_t k = 0; i < in_; ++i, ++k) to[i] = Chosen<T>(dy[whole_], static_cast<Bits>(code), first_tap + k);
    }
    for (; i < in_; ++i) to[i] = 0;
  }

  // The places of the bytes of element i, as a lane.
  static Bits BytesOf(int64_t i) {
    uint8_t bytes[sizeof(Bits)];
    for (size_t b = 0; b < sizeof(Bits); ++b)
      bytes[b] = static_cast<uint8_t>(static_cast<size_t>(i) * sizeof(Bits) + b);
    Bits lane;
    std::memcpy(&lane, bytes, sizeof(Bits));
    return lane;
  }

  static constexpr int64_t kMostRows = (1 << kBits) / kTaps;  // of a window in one slice

  const Problem& p_;
  const int64_t out_, in_;
  const int64_t whole_;  // outputs of a row all of whose taps lie inside; at most the last one's do not
  const bool ragged_;    // they do not fill the row
  const bool lines_;     // rows of dx are whole lines, and rows of dy whole steps
  const Bits* const dy_;
  const uint8_t* const routes_;
  Bits* const dx_;
  int64_t readable_;           // rows
  Bits fields_[kFields * kN];  // see Lanes
  Bits repeat_[kTaps * kN];
  Bits own_codes_[kTaps * kN];
  Bits columns_[kTaps * kN];  // the column of each lane's tap, in every field
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_TILING_FIRST_INL_H_
