// Taking typed arrays out of a task's scratch, 64 bytes aligned each. Taken from null it only counts, so that the same
// code says how much is needed and hands it out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poolgrad {

class ScratchTaker {
 public:
  explicit ScratchTaker(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Take(int64_t count) {
    T* taken = memory_ ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }

  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

}  // namespace poolgrad
