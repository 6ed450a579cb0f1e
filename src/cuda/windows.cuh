// The windows that get kernels of their own: known at compile time, so that loops unroll and partial results stay in
// registers.
#pragma once

#include "cuda/device.cuh"
#include "cuda/tuning.h"

namespace poolgrad::cuda {

template <int kD, int kH, int kW, int kStride>
struct Window {
  static constexpr int KD = kD, KH = kH, KW = kW;
  // An axis of one tap moves by one (it has no stride worth the name); the others share a stride.
  static constexpr int SD = kD == 1 ? 1 : kStride, SH = kH == 1 ? 1 : kStride, SW = kStride;
  static constexpr int kTaps = KD * KH * KW;
  static constexpr int kBits = kTaps <= 4 ? 2 : kTaps <= 16 ? 4 : 8;
};

using Window2x2s2 = Window<1, 2, 2, 2>;
using Window3x3s2 = Window<1, 3, 3, 2>;
using Window3x3s1 = Window<1, 3, 3, 1>;
using Window2x2x2s2 = Window<2, 2, 2, 2>;
using Window3x3x3s2 = Window<3, 3, 3, 2>;
using Window2s2 = Window<1, 1, 2, 2>;
using Window4s4 = Window<1, 1, 4, 4>;
using Window5x5s1 = Window<1, 5, 5, 1>;

// How a thread's share lies in memory.
enum class Mode {
  kLast,         // channels last: 16 bytes of channels at one place
  kFirst,        // channels first, rows aligned: 4 neighbouring outputs, whole vectors
  kFirstOdd,     // channels first, any alignment: a byte's worth of outputs, element by element
  kFirstStaged,  // the same, with the input side of whole planes held in shared memory
};

// What tuning.h asks about a kernel.
template <class T, class W, Mode kMode>
constexpr SmallWindow Describe() {
  return {.last = kMode == Mode::kLast,
          .whole = kMode == Mode::kLast || kMode == Mode::kFirst,
          .halves = sizeof(T) == 2,
          .stride = W::SW,
          .taps = W::kTaps,
          .disjoint = W::KD <= W::SD && W::KH <= W::SH && W::KW <= W::SW};
}

// Whether a problem's window is W, dilation 1, with the route width the kernels are made for.
template <class W>
bool IsWindow(const Problem& p) {
  const int64_t kernel[] = {W::KD, W::KH, W::KW};
  const int64_t stride[] = {W::SD, W::SH, W::SW};
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    if (a.kernel != kernel[i] || a.stride != stride[i] || (a.dilation != 1 && a.kernel > 1) || a.pad_lo < 0)
      return false;
  }
  return p.routes.bits == W::kBits;
}

// Calls f(W{}) for the problem's window; false when it has none of its own.
template <class F>
bool VisitWindow(const Problem& p, F&& f) {
  const auto visit = [&](auto w) { return IsWindow<decltype(w)>(p) && (f(w), true); };
  return visit(Window2x2s2{}) || visit(Window3x3s2{}) || visit(Window3x3s1{}) || visit(Window2x2x2s2{}) ||
         visit(Window3x3x3s2{}) || visit(Window2s2{}) || visit(Window4s4{});
}

// The same for backward, which has one more.
template <class F>
bool VisitBackwardWindow(const Problem& p, F&& f) {
  return VisitWindow(p, f) || (IsWindow<Window5x5s1>(p) && (f(Window5x5s1{}), true));
}

}  // namespace poolgrad::cuda
