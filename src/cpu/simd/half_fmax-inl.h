// Maxima and comparisons of f16 on Arm processors that have them (ASIMDHP), of eight halves held as int16_t.
//
// The instructions are written as numbers, into which the assembler puts those of the registers: not every assembler
// knows their names, and to have them by a compiler's option would let it use them where nobody asked whether they
// exist.

#include <cstdint>

#include "hwy/highway.h"

// From the name of a register to its number.
asm(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\t"
    ".equ .Lpoolgrad_v\\n, \\n\n\t"
    ".endr");

// `result` = the instruction of this number on a and b.
#define POOLGRAD_HALF_INSTRUCTION(number, result, a, b) \
  asm(".inst " #number " | .Lpoolgrad_%2 << 16 | .Lpoolgrad_%1 << 5 | .Lpoolgrad_%0" : "=w"(result) : "w"(a), "w"(b))

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using HalfTag = hn::ScalableTag<int16_t>;
using Halves = hn::Vec<HalfTag>;

// NaN if one of them is; +0 of zeros with different signs.
HWY_INLINE Halves HalfFmax(Halves a, Halves b) {
  decltype(a.raw) result;
  POOLGRAD_HALF_INSTRUCTION(0x4E403400, result, a.raw, b.raw);  // fmax .8h
  return Halves(result);
}

// The greater of each pair of neighbours: those of `low` in the lower half.
HWY_INLINE Halves HalfFmaxPairs(Halves low, Halves high) {
  decltype(low.raw) result;
  POOLGRAD_HALF_INSTRUCTION(0x6E403400, result, low.raw, high.raw);  // fmaxp .8h
  return Halves(result);
}

HWY_INLINE hn::Mask<HalfTag> HalfAbove(Halves a, Halves b) {
  decltype(a.raw) result;
  POOLGRAD_HALF_INSTRUCTION(0x6EC02400, result, a.raw, b.raw);  // fcmgt .8h
  return hn::MaskFromVec(Halves(result));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
