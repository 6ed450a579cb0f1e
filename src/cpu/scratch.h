// Taking typed arrays out of a task's scratch, 64 bytes aligned each. Taken from null it only counts, so that the same
// code says how much is needed and hands it out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/kernel.h"

namespace poolgrad {

class ScratchTaker {
 public:
  explicit ScratchTaker(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Take(int64_t count) {
    // Counting, it gives places that nobody reads: so one may add to them, which to null one may not.
    constexpr uintptr_t kNowhere = 4096;
    T* taken = reinterpret_cast<T*>((memory_ ? reinterpret_cast<uintptr_t>(memory_) : kNowhere) +
                                    static_cast<uintptr_t>(used_));
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }

  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

// Kernel::run of those that are a class, which takes its scratch when it is made.
template <class Runner>
void RunAs(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  ScratchTaker take(memory);
  Runner(p, args, take).Run(begin, end);
}

// Kernel::scratch_bytes of those.
template <class Runner>
int64_t ScratchOf(const Problem& p, const void* layout) {
  Args args;
  args.layout = layout;
  ScratchTaker take(nullptr);
  Runner(p, args, take);
  return take.used();
}

}  // namespace poolgrad
