// Finished sums of the halves become dx, each rounded once, and are zero again for the sums that come next: one pass
// reads them, writes dx in order and clears them.
//
// Arm processors with the bf16 extension round four sums by one instruction (BFCVTN): to nearest even, and a NaN keeps
// the top of its payload and becomes quiet, as Narrow does. It does one vector per cycle, 0.25 cycles per sum, which
// leaves room for the stores of zeros. Others round the bits, and clear the sums afterwards.
#if defined(POOLGRAD_CPU_BACKWARD_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_ROUND_INL_H_
#undef POOLGRAD_CPU_BACKWARD_ROUND_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_ROUND_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#if HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "cpu/backward/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Rounds sums to `to`; the sums are zero afterwards.
template <class T>
class SumRounder {
 public:
  HWY_NOINLINE void Run(float* HWY_RESTRICT sums, int64_t n, T* HWY_RESTRICT to) const {
    const int64_t done = RunSixteens(sums, n, to);
    if (done < n) Finish(sums + done, n - done, to + done);
  }

  // `runs` of n sums each, `step` from one to the next, and to_step in dx. (One loop: a call for each would store to
  // the stack between the lines of dx, and the core would read these before it writes them.)
  HWY_NOINLINE void Run(float* HWY_RESTRICT sums, int64_t runs, int64_t n, int64_t step, T* HWY_RESTRICT to,
                        int64_t to_step) const {
    for (; runs > 0; --runs, sums += step, to += to_step) {
      const int64_t done = RunSixteens(sums, n, to);
      if (done < n) Finish(sums + done, n - done, to + done);
    }
  }

 private:
  // Returns how many sums it rounded.
  HWY_INLINE int64_t RunSixteens(float* HWY_RESTRICT sums, int64_t n, T* HWY_RESTRICT to) const {
    int64_t i = 0;
#if HWY_ARCH_ARM_A64
    if (by_instruction_) {
      const hn::FixedTag<float, 4> d;
      const hn::FixedTag<uint16_t, 8> d16;
      uint16_t* HWY_RESTRICT bits = reinterpret_cast<uint16_t*>(to);
      const auto zero = hn::Zero(d);
      for (; i + 16 <= n; i += 16) {  // everything is loaded before the first store: the stores of dx stay in order
        const auto a = hn::LoadU(d, sums + i);
        const auto b = hn::LoadU(d, sums + i + 4);
        const auto c = hn::LoadU(d, sums + i + 8);
        const auto e = hn::LoadU(d, sums + i + 12);
        hn::StoreU(zero, d, sums + i);
        hn::StoreU(zero, d, sums + i + 4);
        hn::StoreU(zero, d, sums + i + 8);
        hn::StoreU(zero, d, sums + i + 12);
        Eight low, high;
        RoundSixteen(a, b, c, e, low, high);
        hn::StoreU(low, d16, bits + i);
        hn::StoreU(high, d16, bits + i + 8);
      }
    }
#else
    (void)sums;
    (void)n;
    (void)to;
#endif
    return i;
  }

  static HWY_NOINLINE void Finish(float* HWY_RESTRICT sums, int64_t n, T* HWY_RESTRICT to) {
    RoundRun<T>(sums, n, to);
    std::memset(sums, 0, static_cast<size_t>(n) * sizeof(float));
  }

#if HWY_ARCH_ARM_A64
  using Four = hn::Vec<hn::FixedTag<float, 4>>;
  using Eight = hn::Vec<hn::FixedTag<uint16_t, 8>>;

  static HWY_INLINE void RoundSixteen(Four a, Four b, Four c, Four e, Eight& low, Eight& high) {
    if constexpr (std::is_same_v<T, BF16>) {
      register decltype(a.raw) v16 asm("v16") = a.raw;
      register decltype(b.raw) v17 asm("v17") = b.raw;
      register decltype(c.raw) v18 asm("v18") = c.raw;
      register decltype(e.raw) v19 asm("v19") = e.raw;
      register decltype(low.raw) v20 asm("v20");
      register decltype(high.raw) v21 asm("v21");
      asm(".inst 0x0EA16A14\n\t"  // bfcvtn v20.4h, v16.4s: as numbers, since not every assembler knows the name
          ".inst 0x4EA16A34\n\t"  // bfcvtn2 v20.8h, v17.4s
          ".inst 0x0EA16A55\n\t"  // bfcvtn v21.4h, v18.4s
          ".inst 0x4EA16A75"      // bfcvtn2 v21.8h, v19.4s
          : "=&w"(v20), "=&w"(v21)
          : "w"(v16), "w"(v17), "w"(v18), "w"(v19));
      low = Eight(v20);
      high = Eight(v21);
    } else {
      const hn::FixedTag<float, 4> d;
      const hn::FixedTag<uint16_t, 8> d16;
      low = hn::Combine(d16, NarrowTo<T>(d, b), NarrowTo<T>(d, a));
      high = hn::Combine(d16, NarrowTo<T>(d, e), NarrowTo<T>(d, c));
    }
  }

  static bool ByInstruction() {
    if constexpr (std::is_same_v<T, F16>) return kNativeF16;
#if defined(__linux__) && defined(HWCAP2_BF16)
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#else
    return false;
#endif
  }
  const bool by_instruction_ = ByInstruction();
#endif
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_ROUND_INL_H_
