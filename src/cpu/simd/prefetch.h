// Asking for input before it is needed. On Neoverse-V1 the hardware sees one stream coming, but not the few rows at
// once that windows read: 2x2 windows over memory reach half of the copy bandwidth by themselves, and 0.8 of it when
// lines are asked into L2 16 to 32 KiB ahead. Into L1, or 4 KiB ahead, it is slower than without.
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

// The same for windows that share nothing, a little with every block of outputs. It stays in registers: a store
// between the lines of y costs more than asking gains. What is asked for lies at least one row of windows ahead, in the
// order of memory, and waits in L2.
class RowsAhead {
 public:
  RowsAhead() = default;  // asks for nothing
  // A row of outputs takes all of `row_bytes`; `one_run` where it takes them in order.
  RowsAhead(const void* begin, const void* end, int64_t row_bytes, bool one_run)
      : row_(static_cast<uintptr_t>(row_bytes)) {
    ahead_ = one_run ? kAhead : std::max(kAhead, row_);
    const bool worth_it = ahead_ <= kInCache && Address(end) - Address(begin) >= kInCache;
    end_ = worth_it ? Address(end) : 0;
  }

  // A row of windows begins to read at `row`; rows come in order.
  void Start(const void* row) {
    const uintptr_t from = Address(row) + ahead_;
    if (next_ < from || next_ > from + row_) next_ = from;
    goal_ = std::min(from + row_, end_);
  }

  // Asks for what a block of outputs will take that takes `bytes` now; `bytes` is known to the compiler.
  inline __attribute__((always_inline)) void Block(uintptr_t bytes) {
    if (next_ >= goal_) return;
    constexpr uintptr_t kLine = 64;
    for (uintptr_t at = 0; at < bytes; at += kLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(next_ + at), 0, 2);
    }
    next_ += bytes;
  }

 private:
  static constexpr uintptr_t kAhead = 24 << 10;
  static constexpr uintptr_t kInCache = 256 << 10;
  static uintptr_t Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

  uintptr_t ahead_ = 0, row_ = 0, end_ = 0;
  uintptr_t next_ = 0, goal_ = 0;
};

}  // namespace poolgrad
