// dx past the caches. Where dx is larger than they are, every line that is written the usual way is read first and
// pushes out another; written as a whole, by instructions for that (x86), it does neither. Where that is faster
// (GainsPastCaches), what is ready is put aside, in L1, as long as it follows on in memory, and leaves line by line.

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "spec/kernel.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class PastCaches {
  static constexpr int64_t kLine = 64;

 public:
  // `most`: from so many bytes of dx on whatever the processor.
  static bool IsWorthIt(const Problem& p, const Host& host, int64_t most = kNever) {
    return HWY_ARCH_X86 && std::max(p.x_bytes(), host.whole_bytes) >= std::min(Tuning().past_caches, most);
  }

  // `most`: bytes that are put aside at once; 0: none are.
  PastCaches(int64_t most, ScratchTaker& take)
      : room_(most > 0 ? std::max(most, Tuning().past_aside) + kLine : 0),
        aside_(take.Take<std::byte>(most > 0 ? room_ + kSlack : 0)) {}

  bool used() const { return room_ > 0; }
  const std::byte* end() const { return aside_ + room_; }  // and up to kSlack more may be written
  static constexpr int64_t kSlack = 256;

  // Where to write n bytes of dx in its place.
  std::byte* Aside(std::byte* dx, int64_t n) {
    if (dx != dx_ + waiting_ || line_ + waiting_ + n > room_) {
      Pass();
      dx_ = dx;
      line_ = static_cast<int64_t>(reinterpret_cast<uintptr_t>(dx) % kLine);  // lines begin as dx's do
    }
    waiting_ += n;
    return aside_ + line_ + waiting_ - n;
  }

  void Pass() {
    if (waiting_ == 0) return;
    const hn::ScalableTag<uint8_t> d;
    const auto* const from = reinterpret_cast<const uint8_t*>(aside_ + line_);
    auto* const to = reinterpret_cast<uint8_t*>(dx_);
    int64_t i = std::min(waiting_, (kLine - line_) % kLine);
    std::memcpy(to, from, static_cast<size_t>(i));
    for (; i + kLine <= waiting_; i += kLine) {
      for (int64_t k = i; k < i + kLine; k += static_cast<int64_t>(hn::Lanes(d))) {
        hn::Stream(hn::Load(d, from + k), d, to + k);
      }
    }
    std::memcpy(to + i, from + i, static_cast<size_t>(waiting_ - i));
    waiting_ = 0;
  }

  void End() {
    if (!used()) return;
    Pass();
    hwy::FlushStream();
  }

 private:
  const int64_t room_;
  std::byte* const aside_;
  std::byte* dx_ = nullptr;
  int64_t waiting_ = 0, line_ = 0;  // bytes, and where in a line they begin
};

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
