// Memory in which a byte too far is noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace poolgrad::oracle {

// Memory between two inaccessible pages. It ends `offset` bytes before the one above, or (low) begins `offset` bytes
// behind the one below. What is left of its own pages is poisoned, and no run may change that unnoticed. Mappings are
// used again.
class Guarded {
 public:
  Guarded(int64_t bytes, int64_t offset, bool low, uint8_t poison);
  // A copy of `values`, flush with a page.
  Guarded(const std::vector<uint8_t>& values, bool low);
  ~Guarded();
  Guarded(Guarded&& other) noexcept;
  Guarded& operator=(Guarded&&) = delete;

  uint8_t* data() { return data_; }
  int64_t size() const { return bytes_; }
  bool GuardsIntact() const;

 private:
  uint8_t* data_;
  int64_t bytes_;
  uint8_t poison_;
  uint8_t* pages_;  // between the guards; null once moved from
  size_t page_bytes_;
};

// Scratch as a kernel is promised it: aligned to 64 bytes, poisoned.
class AlignedScratch {
 public:
  explicit AlignedScratch(int64_t bytes, bool low = false) : memory_((bytes + 63) / 64 * 64, 0, low, 0xDB) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }

 private:
  Guarded memory_;
};

}  // namespace poolgrad::oracle
