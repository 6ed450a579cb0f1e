// dx of planes with a single window, channels first (global pooling): zeros, and one value where the code says. As many
// planes are cleared at a time as stay in L2: the more, the longer the core writes whole lines without reading them
// (32x512 planes of 7x7, two threads: 6 KiB at a time 0.45 of copy, 50 KiB 0.70, 200 KiB 0.85).
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

#include "cpu/backward/lanes-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Planes [begin, end), whose codes are of type Code. `places`: where each tap lies in the plane, -1 in the padding and,
// after the last tap, for codes that name none.
template <class T, class Code>
void SetSingles(const Problem& p, const Args& args, int64_t begin, int64_t end, const int32_t* places) {
  const int64_t plane = p.in_plane();
  const uint32_t taps = static_cast<uint32_t>(p.taps());
  const uint32_t mask = p.routes.none();
  const T* dy = static_cast<const T*>(args.source);
  T* dx = static_cast<T*>(args.result);
  for (int64_t i = begin; i < end; ++i) {
    Code code;
    std::memcpy(&code, args.routes + i * static_cast<int64_t>(sizeof(Code)), sizeof(Code));
    const int32_t place = places[std::min<uint32_t>(code & mask, taps)];
    if (place < 0) continue;
    if constexpr (std::is_integral_v<T>) {
      dx[i * plane + place] = dy[i];
    } else {
      dx[i * plane + place] = Narrow<T>(Wide<T>{0} + Widen(dy[i]));
    }
  }
}

// T: the element type, or for unpool the unsigned integer of its size, whose bits are kept. Units are planes.
template <class T>
void RunSingle(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const int64_t kw = p.width().kernel;
  const int64_t kh = p.height().kernel;
  int32_t* const places = reinterpret_cast<int32_t*>(scratch);
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
  places[p.taps()] = -1;
  const int64_t plane_bytes = p.in_plane() * static_cast<int64_t>(sizeof(T));
  const int64_t together = std::max<int64_t>(1, (192 << 10) / plane_bytes);
  for (int64_t first = begin; first < end; first += together) {
    const int64_t past = std::min(first + together, end);
    std::memset(static_cast<std::byte*>(args.result) + first * plane_bytes, 0,
                static_cast<size_t>((past - first) * plane_bytes));
    if (p.routes.bits <= 8) SetSingles<T, uint8_t>(p, args, first, past, places);
    if (p.routes.bits == 16) SetSingles<T, uint16_t>(p, args, first, past, places);
    if (p.routes.bits == 32) SetSingles<T, uint32_t>(p, args, first, past, places);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SINGLE_INL_H_
