#include "support/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

namespace poolgrad::oracle {

namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Free mappings by size; the differential driver makes thousands of buffers a second, of a few sizes.
struct Mappings {
  std::mutex mutex;
  std::map<size_t, std::vector<uint8_t*>> free;
  size_t count = 0;
};
Mappings& mappings = *new Mappings;

uint8_t* TakePages(size_t bytes) {
  {
    const std::lock_guard lock(mappings.mutex);
    if (auto& list = mappings.free[bytes]; !list.empty()) {
      uint8_t* pages = list.back();
      list.pop_back();
      --mappings.count;
      return pages;
    }
  }
  void* all = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(static_cast<uint8_t*>(all) + kPage, bytes, PROT_READ | PROT_WRITE) != 0) {
    throw std::bad_alloc();
  }
  return static_cast<uint8_t*>(all) + kPage;
}

void GivePages(uint8_t* pages, size_t bytes) {
  constexpr size_t kMostKept = 4096, kLargestKept = 1 << 20;
  if (bytes <= kLargestKept) {
    const std::lock_guard lock(mappings.mutex);
    if (mappings.count < kMostKept) {
      mappings.free[bytes].push_back(pages);
      ++mappings.count;
      return;
    }
  }
  munmap(pages - kPage, bytes + 2 * kPage);
}

}  // namespace

Guarded::Guarded(int64_t bytes, int64_t offset, bool low, uint8_t poison)
    : bytes_(bytes), poison_(poison), page_bytes_((static_cast<size_t>(bytes + offset) + kPage - 1) / kPage * kPage) {
  page_bytes_ = std::max(page_bytes_, kPage);
  pages_ = TakePages(page_bytes_);
  data_ = low ? pages_ + offset : pages_ + page_bytes_ - offset - bytes;
  std::memset(pages_, poison, page_bytes_);
}

Guarded::Guarded(const std::vector<uint8_t>& values, bool low)
    : Guarded(static_cast<int64_t>(values.size()), 0, low, 0xE7) {
  std::copy(values.begin(), values.end(), data_);
}

Guarded::Guarded(Guarded&& other) noexcept
    : data_(other.data_),
      bytes_(other.bytes_),
      poison_(other.poison_),
      pages_(other.pages_),
      page_bytes_(other.page_bytes_) {
  other.pages_ = nullptr;
}

Guarded::~Guarded() {
  if (pages_) GivePages(pages_, page_bytes_);
}

bool Guarded::GuardsIntact() const {
  // The first is right, and each is as the one before it.
  const auto untouched = [&](const uint8_t* begin, const uint8_t* end) {
    return begin == end ||
           (*begin == poison_ && std::memcmp(begin, begin + 1, static_cast<size_t>(end - begin - 1)) == 0);
  };
  return untouched(pages_, data_) && untouched(data_ + bytes_, pages_ + page_bytes_);
}

}  // namespace poolgrad::oracle
