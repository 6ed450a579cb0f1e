// Asking for input before it is needed. On Neoverse-V1 the hardware sees one stream coming, but not the few rows at
// once that windows read: 2x2 windows over memory reach half of the copy bandwidth by themselves, and 0.8 of it when
// lines are asked into L2 16 to 32 KiB ahead. Into L1, or 4 KiB ahead, it is slower than without; and where windows
// read several slices, which begin far from each other.
#pragma once

#include <algorithm>
#include <cstdint>

namespace poolgrad {

class Lookahead {
 public:
  Lookahead() = default;  // asks for nothing
  // `end` is the end of what may be asked for. What fits L2 many times over is not worth asking for.
  Lookahead(const void* begin, const void* end) : next_(Address(begin)), end_(Address(end)) {
    if (end_ - next_ < (256 << 10)) end_ = next_;
  }

  // Says that everything before `position` is about to be read; it goes forward from call to call, or back a little.
  void At(const void* position) {
    constexpr uintptr_t kAhead = 24 << 10;
    constexpr uintptr_t kLine = 64;
    const uintptr_t goal = std::min(Address(position) + kAhead, end_);
    uintptr_t at = next_;
    if (at >= goal) return;
    if (at + kAhead + (8 << 10) < goal) at = goal - kAhead;  // far from where it was
    for (; at < goal; at += kLine) __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
    next_ = at;
  }

 private:
  static uintptr_t Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

  uintptr_t next_ = 0, end_ = 0;
};

}  // namespace poolgrad
