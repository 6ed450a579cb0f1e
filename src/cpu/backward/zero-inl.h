// Zeroes ahead of accumulation: whole cache lines, a few at a time, just before they are added to. Written all at once,
// or far ahead, lines leave the cache again before they are needed: the core takes a long run of whole lines for a
// stream that nobody will read. On Arm a line is zeroed without being read first (DC ZVA).
#if defined(POOLGRAD_CPU_BACKWARD_ZERO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_ZERO_INL_H_
#undef POOLGRAD_CPU_BACKWARD_ZERO_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_ZERO_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Zeroes [begin, end) in ascending order, as far as it is asked to.
class Zeroer {
  static constexpr uintptr_t kLine = 64;

 public:
  Zeroer() = default;
  Zeroer(void* begin, void* end) : at_(Address(begin)), end_(Address(end)) {
    const uintptr_t first = std::min(end_, (at_ + kLine - 1) / kLine * kLine);
    last_ = std::max(first, end_ / kLine * kLine);
    std::memset(begin, 0, first - at_);
    std::memset(reinterpret_cast<void*>(last_), 0, end_ - last_);
    at_ = first;
  }

  // Everything before `to` is zero afterwards.
  HWY_INLINE void UpTo(uintptr_t to) {
    to = std::min(to, last_);
    for (; at_ < to; at_ += kLine) ZeroLine(reinterpret_cast<void*>(at_));
  }

  static HWY_INLINE uintptr_t Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

 private:
  HWY_INLINE void ZeroLine(void* line) const {
#if HWY_ARCH_ARM_A64
    if (whole_lines_) {
      asm volatile("dc zva, %0" : : "r"(line) : "memory");
      return;
    }
#endif
    const hn::CappedTag<uint8_t, kLine> d;
    uint8_t* const to = static_cast<uint8_t*>(line);
    for (uintptr_t i = 0; i < kLine; i += hn::Lanes(d)) hn::StoreU(hn::Zero(d), d, to + i);
  }

#if HWY_ARCH_ARM_A64
  // Whether one instruction zeroes 64 bytes: its size as a power of two of words, and no bit that forbids it.
  static bool ZeroesLines() {
    uint64_t id;
    asm("mrs %0, dczid_el0" : "=r"(id));
    return (id & 31) == 4;
  }
  bool whole_lines_ = ZeroesLines();
#endif
  uintptr_t at_ = 0, end_ = 0;
  uintptr_t last_ = 0;  // where the last whole line ends
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_ZERO_INL_H_
