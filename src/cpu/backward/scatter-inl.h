// bwd_scatter: outputs that each name their winner, one scalar addition each: any window, stride, dilation, rank,
// layout and width of codes. The cost does not depend on the window's size. Codes become places by vectors
// (places-inl.h); then one loop adds, or copies (unpool, and halves whose windows share no
// input), into dx or into the sums of the halves (sums.h).
//
// Neighbouring windows often have the same winner, and a sum that was just stored is not there yet when it is loaded
// again (9 cycles). Where such lie side by side, four images in step put three other additions in between; many
// channels last, or windows that share nothing along a row, are far enough apart.
//
// Sets of ties, and windows of a million taps, go tap by tap.
//
// Tried and left: small windows by vectors, where every tap of an output adds dy if the code names it. With vectors of
// 64 bytes 3x3 takes as long channels last, and 1.5 times as long in short rows channels first. Input by input, in
// registers, from codes and dy staged among margins (330 lines, which could not have replaced bwd_disjoint): with
// vectors of 64 bytes 2x2 at stride 1 is 1.0 to 1.5 times as fast, 3x3 0.9 to 1.4 in rows of 56, 0.5 to 0.7 in rows of
// 14 and 0.3 to 0.6 in rows of 7, 3x3 at stride 2 0.55 to 1.0. Two places loaded at once, as 64 bits: no
// gain; 512 or 1,024 outputs at once: 0.92 to 1.05 times as fast.

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/kept.h"
#include "cpu/backward/backward.h"
#include "cpu/backward/past-inl.h"
#include "cpu/backward/places-inl.h"
#include "cpu/backward/sums.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// How elements of one type are added, or copied: all that depends on the type. Steps and planes count elements.
struct ScatterForm {
  // Of what is added, what is asked for before every few outputs: of each image in step one line, so far apart.
  struct Ahead {
    const std::byte* from;
    int64_t apart, step;  // bytes
  };

  // n outputs from `source` on; `all`: every one of them has a place. `four` is for as many runs in step, which add to
  // images `plane` apart and all have places; null for copies, which wait for nothing.
  template <class Place>
  using AddFn = void (*)(std::byte* sums, int64_t plane, const std::byte* source, int64_t source_step,
                         const Ahead& ahead, const Place* places, int64_t step, int64_t n, bool all,
                         ZeroMeanwhile& meanwhile);
  template <class Place>
  struct Adds {
    AddFn<Place> one, four;
  };
  Adds<uint16_t> near;
  Adds<uint32_t> far;
  void (*share)(std::byte* sum, const std::byte* source, int64_t ties);  // one of as many equal parts
  void (*leave)(const std::byte* sums, int64_t n, std::byte* dx);
};

struct ScatterLayout : SumsLayout {
  const ScatterForm* form = nullptr;
  bool near = false;  // places have 16 bits
};

HWY_INLINE void ZeroSome(ZeroMeanwhile& z) {
  constexpr int64_t kLine = ZeroMeanwhile::kLine;
  const hn::CappedTag<uint8_t, kLine> d;
  for (int64_t k = std::min(z.lines_each, z.left / kLine); k > 0; --k, z.at += kLine, z.left -= kLine) {
    for (int64_t i = 0; i < z.images; ++i) {
      auto* const line = reinterpret_cast<uint8_t*>(z.at + i * z.apart);
      __builtin_prefetch(line + kBytesAhead, 1);
      for (int64_t b = 0; b < kLine; b += static_cast<int64_t>(hn::Lanes(d))) hn::StoreU(hn::Zero(d), d, line + b);
    }
  }
}

// T: the element type, or for unpool the unsigned integer of its size. S: what sums are made in; copies of halves,
// where windows share no input, are what one sum would be.
template <class T, class S, bool kCopy>
struct ScatterOf {
  static constexpr bool kHalfCopies = std::is_same_v<T, S> && !std::is_arithmetic_v<T>;

  static HWY_INLINE S Value(T value, [[maybe_unused]] int64_t ties = 1) {
    if constexpr (kHalfCopies) {
      return Narrow<T>(Widen(value) / static_cast<float>(ties) + 0.0f);
    } else if constexpr (kCopy) {
      return value;
    } else {
      return static_cast<S>(Widen(value) / static_cast<S>(ties));
    }
  }
  static HWY_INLINE void Put(S& sum, S value) {
    if constexpr (kCopy) {
      sum = value;
    } else {
      sum = static_cast<S>(sum + value);
    }
  }

  // n values, less or equal kRun, as they are added: where they lie, or made so.
  static constexpr int64_t kRun = kFewOutputs;
  static HWY_INLINE const S* Values(const T* source, int64_t n, S* wide) {
    if constexpr (std::is_same_v<T, S> && !kHalfCopies) {
      return source;
    } else if (n < kRun) {
      for (int64_t k = 0; k < n; ++k) wide[k] = Value(source[k]);
    } else if constexpr (kHalfCopies) {
      const hn::CappedTag<uint16_t, kRun> d;
      for (int64_t k = 0; k < kRun; k += static_cast<int64_t>(hn::Lanes(d))) {
        const auto bits = hn::LoadU(d, reinterpret_cast<const uint16_t*>(source + k));
        hn::Store(HalfAsSum<T>(d, bits), d, reinterpret_cast<uint16_t*>(wide + k));
      }
    } else {
      const hn::CappedTag<S, kRun> d;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      for (int64_t k = 0; k < kRun; k += lanes) hn::Store(LoadWide(d, source + k), d, wide + k);
    }
    return wide;
  }

  template <int kImages, class Place>
  static void Add(std::byte* sums_at, int64_t plane, const std::byte* from, int64_t source_step,
                  const ScatterForm::Ahead& ahead, const Place* HWY_RESTRICT places, int64_t step, int64_t n, bool all,
                  ZeroMeanwhile& shared_meanwhile) {
    ZeroMeanwhile meanwhile = shared_meanwhile;
    const T* HWY_RESTRICT source = reinterpret_cast<const T*>(from);
    HWY_ALIGN S wide[kImages * kRun];
    S nowhere[kRun] = {};
    const std::byte* next = ahead.from;
    for (; n > 0; n -= kRun, source += kRun, places += kRun, next += ahead.step) {
      const int64_t run = std::min(n, kRun);
      ZeroSome(meanwhile);
      S* sums[kImages];
      const S* values[kImages];
      const Place* to[kImages];
      _Pragma("GCC unroll 4") for (int m = 0; m < kImages; ++m) {
        sums[m] = reinterpret_cast<S*>(sums_at) + m * plane;
        for (size_t line = 0; line < kRun * sizeof(T); line += 64) __builtin_prefetch(next + m * ahead.apart + line);
        values[m] = Values(source + m * source_step, run, wide + m * kRun);
        to[m] = places + m * step;
      }
      const auto add = [&](int64_t i) {
        _Pragma("GCC unroll 4") for (int m = 0; m < kImages; ++m) Put(sums[m][to[m][i]], values[m][i]);
      };
      if (all && run == kRun) {
#ifndef POOLGRAD_SMALL
        _Pragma("GCC unroll 32")
#endif
            for (int64_t i = 0; i < kRun; ++i) add(i);
      } else if (kImages > 1) {
        for (int64_t i = 0; i < run; ++i) add(i);
      } else {
        // Across the edge of a box nobody foresees which outputs have a place: the others add where nobody looks, each
        // somewhere else, or an addition would wait for the one before. By masks, since compilers make a choice of
        // pointers a branch.
        for (int64_t i = 0; i < run; ++i) {
          const uintptr_t none = -static_cast<uintptr_t>(places[i] == kNoPlace<Place>);
          const auto somewhere = reinterpret_cast<uintptr_t>(sums[0] + places[i]);
          Put(*reinterpret_cast<S*>((somewhere & ~none) | (reinterpret_cast<uintptr_t>(nowhere + i) & none)),
              values[0][i]);
        }
      }
    }
    shared_meanwhile = meanwhile;
  }

  // The other way round: outputs take what lies at their places, or 0.
  template <class Place>
  static void Take(std::byte* from, int64_t, const std::byte* outputs, int64_t, const ScatterForm::Ahead&,
                   const Place* HWY_RESTRICT places, int64_t, int64_t n, bool, ZeroMeanwhile&) {
    const T* const tx = reinterpret_cast<const T*>(from);
    T* HWY_RESTRICT ty = reinterpret_cast<T*>(const_cast<std::byte*>(outputs));
    for (int64_t i = 0; i < n; ++i) ty[i] = places[i] != kNoPlace<Place> ? tx[places[i]] : T{};
  }

  static void Share(std::byte* sum, const std::byte* source, int64_t ties) {
    Put(*reinterpret_cast<S*>(sum), Value(*reinterpret_cast<const T*>(source), ties));
  }

  static void Leave([[maybe_unused]] const std::byte* sums, [[maybe_unused]] int64_t n,
                    [[maybe_unused]] std::byte* dx) {
    if constexpr (std::is_same_v<T, S>) {
      std::memcpy(dx, sums, static_cast<size_t>(n) * sizeof(T));
    } else {
      RoundRun<T>(reinterpret_cast<const S*>(sums), n, reinterpret_cast<T*>(dx));
    }
  }

  template <class Place>
  static constexpr ScatterForm::Adds<Place> kAdds = {Add<1, Place>, kCopy ? nullptr : Add<kImagesInStep, Place>};
  static constexpr ScatterForm kForm = {kAdds<uint16_t>, kAdds<uint32_t>, Share, Leave};
  static constexpr ScatterForm kTaking = {{Take<uint16_t>, nullptr}, {Take<uint32_t>, nullptr}, nullptr, nullptr};
};

// Of copies, which are bits: unpool and gather.
template <class Bits>
const ScatterForm* BitsForm(poolgrad_op op) {
  using Of = ScatterOf<Bits, Bits, true>;
  return op == POOLGRAD_OP_UNPOOL ? &Of::kForm : &Of::kTaking;
}

inline const ScatterForm* ScatterFormOf(const Problem& p, poolgrad_op op) {
#ifdef POOLGRAD_SMALL
  if (p.dtype != POOLGRAD_F32 || op == POOLGRAD_OP_UNPOOL) return nullptr;
  return op == POOLGRAD_OP_GATHER ? &ScatterOf<uint32_t, uint32_t, true>::kTaking
                                  : &ScatterOf<float, float, false>::kForm;
#else
  if (op != POOLGRAD_OP_BACKWARD) {
    if (SizeOf(p.dtype) == 1) return BitsForm<uint8_t>(op);
    if (SizeOf(p.dtype) == 2) return BitsForm<uint16_t>(op);
    return SizeOf(p.dtype) == 4 ? BitsForm<uint32_t>(op) : BitsForm<uint64_t>(op);
  }
  switch (p.dtype) {
    case POOLGRAD_F32:
      return &ScatterOf<float, float, false>::kForm;
    case POOLGRAD_F64:
      return &ScatterOf<double, double, false>::kForm;
    case POOLGRAD_F16:
      return p.disjoint() ? &ScatterOf<F16, F16, true>::kForm : &ScatterOf<F16, float, false>::kForm;
    case POOLGRAD_BF16:
      return p.disjoint() ? &ScatterOf<BF16, BF16, true>::kForm : &ScatterOf<BF16, float, false>::kForm;
    default:
      return nullptr;
  }
#endif
}

class Scatter final : public Adder {
 public:
  Scatter(const Problem& problem, const Args& args, ScratchTaker& take)
      : p_(problem), l_(*static_cast<const ScatterLayout*>(args.layout)), take_(take) {}

  std::byte* sums() const { return sums_; }
  void Begin(const Sums& s) override {
    if (one_by_one_) return;
    near_.used() ? near_.Begin(s) : far_.Begin(s);
  }

  void Leave(const std::byte* from, int64_t n, std::byte* dx, int64_t bytes_of_dx) override {
    form_.leave(from, n, past_.used() ? past_.Aside(dx, bytes_of_dx) : dx);
  }
  void End() { past_.End(); }

  void Add(const Sums& s, const Batch& b) override {
    if (one_by_one_) return TapByTap(s, b);
    near_.used() ? AddAll(s, b, near_, form_.near) : AddAll(s, b, far_, form_.far);
  }

 private:
  template <class Place>
  void AddAll(const Sums& s, const Batch& b, Places<Place>& places_of, const ScatterForm::Adds<Place>& adds) const {
    auto* const all_places = reinterpret_cast<Place*>(to_);
    const int64_t n = b.rows * b.ow.size() * s.lanes;
    const int64_t bytes = s.l.bytes, few = kFewOutputs * bytes;
    const std::byte* const source = s.Source(s.OutputOf(b.image, b.od, b.oh, b.ow.begin));
    std::byte* const first = s.OriginOf(b).sums;
    const auto add_one = [&](std::byte* sums, const std::byte* from, const Place* places, int64_t count, bool all) {
      adds.one(sums, 0, from, 0, {from + kBytesAhead, 0, few}, places, 0, count, all, s.meanwhile);
    };
    // Of images in step, which are short, the next ones, as they follow each other in memory.
    const auto add_four = [&](int64_t plane, int64_t image, int64_t begun, int64_t step, int64_t count) {
      const bool near = kImagesInStep * image * bytes <= Tuning().sums_cache_2;
      const ScatterForm::Ahead next = {source + (kImagesInStep * image + (kImagesInStep - 1) * begun) * bytes, few,
                                       kImagesInStep * few};
      const ScatterForm::Ahead own = {source + kBytesAhead, image * bytes, few};
      adds.four(first, plane, source, image, near ? next : own, all_places, step, count, true, s.meanwhile);
    };
    if (b.whole) {
      const bool all = places_of.Find(s, b, 0, b.images * b.rows, all_places);
      if (b.images % kImagesInStep != 0 || !all || !adds.four)
        return add_one(first, source, all_places, b.images * n, all);
      const int64_t quarter = b.images / kImagesInStep * n;
      return add_four(0, quarter, 0, quarter, quarter);
    }
    const int64_t image = p_.out_plane() * s.l.lanes;
    const int64_t step = places_of.capacity();
    bool all[kImagesInStep];
    bool every = true;
    for (int64_t i = 0; i < b.images; ++i) every &= all[i] = places_of.Find(s, b, i, b.rows, all_places + i * step);
    if (b.images == kImagesInStep && every && adds.four) {
      const int64_t begun = s.OutputOf(0, b.od, b.oh, b.ow.begin) - s.OutputOf(0, 0, 0, 0);
      return add_four(s.plane, image, begun * s.l.lanes, step, n);
    }
    for (int64_t i = 0; i < b.images; ++i) {
      std::byte* const sums = first + i * s.plane * s.l.sum_bytes;
      const std::byte* const from = source + i * image * bytes;
      const Place* const places = all_places + i * step;
      if (s.flat()) {
        add_one(sums, from, places, n, all[i]);
        continue;
      }
      for (int64_t r = 0; r < b.ow.size(); ++r) {
        add_one(sums, from + r * s.l.lanes * bytes, places + r * s.lanes, s.lanes, all[i]);
      }
    }
  }

  // Where a tap of output (od, oh, ow) of image i, lane c, adds; null where it is none, or outside the box.
  std::byte* PlaceOf(const Sums& s, int64_t i, int64_t od, int64_t oh, int64_t ow, int64_t c, int64_t tap) const {
    if (tap >= p_.taps()) return nullptr;
    const int64_t o[] = {od, oh, ow};
    int64_t at[3];
    for (int axis = 2; axis >= 0; --axis) {
      const Axis& a = p_.axis[axis];
      if (tap % a.kernel >= a.size(o[axis])) return nullptr;
      at[axis] = a.start(o[axis]) + tap % a.kernel * a.dilation;
      if (at[axis] < s.span[axis].in.begin || at[axis] >= s.span[axis].in.end) return nullptr;
      tap /= a.kernel;
    }
    return s.At(i, at[0], at[1], at[2]) + c * s.l.sum_bytes;
  }

  HWY_NOINLINE void TapByTap(const Sums& s, const Batch& b) const {
    const RouteFormat& f = p_.routes;
    const int64_t height = p_.height().out;
    for (int64_t i = b.image; i < b.image + b.images; ++i) {
      for (int64_t r = 0; r < b.rows; ++r) {
        const int64_t od = b.od + (b.oh + r) / height;
        const int64_t oh = (b.oh + r) % height;
        for (int64_t ow = b.ow.begin; ow < b.ow.end; ++ow) {
          const int64_t output = s.OutputOf(i, od, oh, ow);
          const std::byte* const source = s.Source(output);
          const int64_t index = output * s.l.lanes + s.lane;
          const uint8_t* const line = s.args.routes + LineOffset(f, index / f.line);
          for (int64_t c = 0; c < s.lanes; ++c) {
            const auto put = [&](int64_t tap, int64_t ties) {
              std::byte* const sum = PlaceOf(s, i, od, oh, ow, c, tap);
              if (sum) form_.share(sum, source + c * s.l.bytes, ties);
            };
            const int64_t at = index % f.line + c;
            if (!f.masks) {
              put(LoadCode(f, line, at), 1);
            } else {
              GiveToTies(line + at * f.mask_bytes(), put);
            }
          }
        }
      }
    }
  }

  template <class PutTo>
  void GiveToTies(const uint8_t* mask, const PutTo& put) const {
    const int64_t bytes_of_mask = p_.routes.mask_bytes();
    int64_t count = 0;
    for (int64_t b = 0; b < bytes_of_mask; ++b) count += std::popcount(mask[b]);
    const int64_t ties = p_.ties == POOLGRAD_TIES_SPLIT ? count : 1;
    for (int64_t b = 0; b < bytes_of_mask; ++b) {
      for (unsigned bits = mask[b]; bits != 0; bits &= bits - 1) put(b * 8 + std::countr_zero(bits), ties);
    }
  }

  const Problem& p_;
  const ScatterLayout& l_;
  ScratchTaker& take_;
  const ScatterForm& form_ = *l_.form;
  std::byte* const sums_ = take_.Take<std::byte>(l_.sums * l_.sum_bytes);
  PastCaches past_ = {l_.past ? kMostLeaving : 0, take_};
  const bool one_by_one_ = p_.routes.masks || p_.taps() > kMostArithmeticTaps;
  Places<uint16_t> near_ = {p_, l_, l_.near, take_};
  Places<uint32_t> far_ = {p_, l_, !l_.near, take_};  // one of them is used
  std::byte* const to_ = take_.Take<std::byte>((near_.bytes() + far_.bytes()) * (l_.whole ? 1 : l_.group));
};

inline void RunScatter(const Problem& p, const Args& of_run, int64_t begin, int64_t end, std::byte* scratch) {
  const auto& layout = *static_cast<const ScatterLayout*>(of_run.layout);
  Args args = of_run;
  if (layout.reads) {  // what lies at places is the source then
    args.source = of_run.result;
    args.result = const_cast<void*>(of_run.source);
  }
  ScratchTaker take(scratch);
  Scatter scatter(p, args, take);
  Sums(p, args, layout, scatter.sums(), scatter).Run(begin, end);
  scatter.End();
}

// More than the furthest place, and than the furthest position along an axis, from the first output of a piece on.
inline double ReachOf(const Problem& p, const SumsLayout& l) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const auto size = [&](int i) { return l.direct ? p.axis[i].in : l.band[i]; };
  const double images = l.whole ? d(l.piece / p.out_plane()) : 1;
  const int64_t columns = std::min(l.piece, p.axis[2].out);
  const int64_t rows = l.roll == 2 ? 1 : std::min(std::max<int64_t>(1, l.piece / columns), p.axis[1].out);
  const int64_t outputs[] = {l.whole ? p.axis[0].out : 1, l.whole ? p.axis[1].out : rows, columns};
  double step = d(l.direct ? l.lanes : l.block), reach = step, most = 0;
  for (int i = 2; i >= 0; --i) {
    const Axis& a = p.axis[i];
    const double all = std::abs(d(a.start(0))) + std::abs(d(a.start(a.out - 1)));
    const double moved = a.table ? all : d(a.stride) * d(outputs[i] - 1);
    const double window = (d(a.kernel) - 1) * d(a.dilation) + 1;
    reach += (moved + window - 1) * step;
    most = std::max(most, 2 * window + (l.reads || l.band[i] == a.in ? d(a.in) + all : d(l.band[i])));
    step *= d(size(i));
  }
  const double plane = l.direct ? 0 : d(l.sums) / d(l.group);  // of a ring
  return std::max({most, reach + (images - 1) * step, plane});
}

inline const char* MakeScatter(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  const ScatterForm* const form = ScatterFormOf(p, op);
  if (!form) return kNotBuilt;
  const bool rounds = SizeOf(p.dtype) == 2 && op == POOLGRAD_OP_BACKWARD && !p.disjoint();
  const auto laid_out = [&](bool past) {
    const int64_t sum_bytes = rounds ? 4 : SizeOf(p.dtype);
    ScatterLayout l = {LayOutSums(p, host, !rounds && !past, sum_bytes, op == POOLGRAD_OP_GATHER), form, false};
    l.past = past;
    return l;
  };
  ScatterLayout layout = laid_out(PastCaches::IsWorthIt(p, host) && op != POOLGRAD_OP_GATHER);
  // What could be added straight into dx is not kept elsewhere before it leaves unless that stays in a cache.
  if (layout.past && !rounds && layout.sums * layout.sum_bytes > 8 * Tuning().sums_cache_2) layout = laid_out(false);
  const double reach = ReachOf(p, layout);
  if (reach >= 1 << 30) return "the windows span too much";
  const int64_t columns = p.width().kernel, taps = p.taps();
  layout.near = reach < static_cast<double>(Tuning().sums_near) && p.routes.bits <= kMostShortBits &&
                DividesShort(taps, columns) && DividesShort(taps, columns * p.height().kernel);
  kernel->run = RunScatter;
  kernel->units = layout.units();
  kernel->scratch_bytes = ScratchOf<Scatter>(p, &layout);
  // Every task zeroes its sums first.
  if (layout.sums * host.tasks > p.x_elements() / 8) kernel->tasks_per_thread = 1;
  return Keep(layout, &kernel->layout);
}

// gather_winners: ty = S tx. Every output takes the tangent of the input that won it, bit for bit; 0 where the code
// names no valid tap. What is summed in bwd_scatter is read.
inline const char* MakeWinners(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  if (p.routes.masks) return "the routes are sets of taps";
  if (p.taps() > kMostArithmeticTaps) return "the window has too many taps";
  return MakeScatter(p, op, host, kernel);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
