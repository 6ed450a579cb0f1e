// dx of planes with a single window, channels first (global pooling): zeros, and one value where the code says.
#if defined(POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/backward_lanes-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// T: the element type, or for unpool the unsigned integer of its size, whose bits are kept. Units are planes.
template <class T>
void RunSingle(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  constexpr int64_t kTogether = 32;  // planes cleared before their values are set, in cache
  const int64_t plane = p.in_plane();
  const int64_t kw = p.width().kernel;
  const int64_t kh = p.height().kernel;
  const T* dy = static_cast<const T*>(args.source);
  T* dx = static_cast<T*>(args.result);
  // Where each tap lies in the plane; -1 in the padding and for codes that name no tap.
  int32_t* const places = reinterpret_cast<int32_t*>(scratch);
  const uint32_t taps = static_cast<uint32_t>(p.taps());
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    const int64_t k[] = {tap / kw / kh, tap / kw % kh, tap % kw};
    int64_t place = 0;
    bool valid = true;
    for (int a = 0; a < 3; ++a) {
      const int64_t i = p.axis[a].start(0) + k[a] * p.axis[a].dilation;
      valid = valid && i >= 0 && i < p.axis[a].in;
      place = place * p.axis[a].in + i;
    }
    places[tap] = static_cast<int32_t>(valid ? place : -1);
  }
  places[taps] = -1;
  for (int64_t first = begin; first < end; first += kTogether) {
    const int64_t past = std::min(first + kTogether, end);
    std::memset(static_cast<void*>(dx + first * plane), 0, static_cast<size_t>((past - first) * plane) * sizeof(T));
    for (int64_t i = first; i < past; ++i) {
      const uint32_t code = LoadCode(p.routes, args.routes + LineOffset(p.routes, i), 0);
      const int32_t place = places[std::min(code, taps)];
      if (place < 0) continue;
      if constexpr (std::is_integral_v<T>) {
        dx[i * plane + place] = dy[i];
      } else {
        dx[i * plane + place] = Narrow<T>(Wide<T>{0} + Widen(dy[i]));
      }
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_
