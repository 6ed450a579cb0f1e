// Instructions that CUDA C++ has no name for, each as a function. Where kernels run on the processor
// (tests/cuda/soft_device) another file of this name stands in for this one.
#pragma once

#include <cstdint>

namespace poolgrad::cuda {

// NaN where one of them is, else either.
__device__ inline float EitherOrNaN(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return b != b ? b : a;
#endif
}

// Where the first half of `pair` equals that of `wanted`, `a` gets `from_a` added; where the second does, `b` gets
// `from_b`. stays: behind the loads written before it.
#define POOLGRAD_ADD_WHERE                              \
  "{\n .reg .pred p, q;\n setp.eq.f16x2 p|q, %2, %3;\n" \
  " @p add.rn.f32 %0, %0, %4;\n @q add.rn.f32 %1, %1, %5;\n}"
template <bool kStays>
__device__ inline void AddWhereEqual(uint32_t pair, uint32_t wanted, float from_a, float from_b, float* a, float* b) {
  if constexpr (kStays) {
    asm volatile(POOLGRAD_ADD_WHERE : "+f"(*a), "+f"(*b) : "r"(pair), "r"(wanted), "f"(from_a), "f"(from_b));
  } else {
    asm(POOLGRAD_ADD_WHERE : "+f"(*a), "+f"(*b) : "r"(pair), "r"(wanted), "f"(from_a), "f"(from_b));
  }
}
#undef POOLGRAD_ADD_WHERE

// The same for one of them, the second or the first; it stays.
__device__ inline void AddWhereOneEquals(uint32_t pair, uint32_t wanted, bool second, float from, float* to) {
  if (second) {
    asm volatile("{\n .reg .pred p, q;\n setp.eq.f16x2 p|q, %1, %2;\n @q add.rn.f32 %0, %0, %3;\n}"
                 : "+f"(*to)
                 : "r"(pair), "r"(wanted), "f"(from));
  } else {
    asm volatile("{\n .reg .pred p, q;\n setp.eq.f16x2 p|q, %1, %2;\n @p add.rn.f32 %0, %0, %3;\n}"
                 : "+f"(*to)
                 : "r"(pair), "r"(wanted), "f"(from));
  }
}

// An instruction that is carried out where operand number `wanted` is not 0.
#define POOLGRAD_IF(wanted, instruction) "{\n .reg .pred p;\n setp.ne.u32 p, %" #wanted ", 0;\n @p " instruction ";\n}"

// `kBytes` consecutive bytes, aligned to their size (16 at most), as 32-bit words, where `valid`; elsewhere `words`
// stay what they were and nothing is read. One predicated instruction: unlike a load behind a branch it waits for
// nothing before it, and nothing has to be replaced afterwards. Volatile, so that it stays where it is written: well
// before its use. Global memory that no kernel is writing.
template <int kBytes>
__device__ void LoadWordsIf(bool valid, const void* at, uint32_t* words) {
  const uint32_t wanted = valid;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      uint32_t* w = words + 4 * i;
      asm volatile(POOLGRAD_IF(5, "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]")
                   : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
                   : "l"(static_cast<const char*>(at) + 16 * i), "r"(wanted));
    }
  } else if constexpr (kBytes % 8 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 8; ++i) {
      asm volatile(POOLGRAD_IF(3, "ld.global.nc.v2.u32 {%0, %1}, [%2]")
                   : "+r"(words[2 * i]), "+r"(words[2 * i + 1])
                   : "l"(static_cast<const char*>(at) + 8 * i), "r"(wanted));
    }
  } else if constexpr (kBytes == 4) {
    asm volatile(POOLGRAD_IF(2, "ld.global.nc.u32 %0, [%1]") : "+r"(words[0]) : "l"(at), "r"(wanted));
  } else if constexpr (kBytes == 2) {
    asm volatile(POOLGRAD_IF(2, "ld.global.nc.u16 %0, [%1]") : "+r"(words[0]) : "l"(at), "r"(wanted));
  } else {
    static_assert(kBytes == 1);
    asm volatile(POOLGRAD_IF(2, "ld.global.nc.u8 %0, [%1]") : "+r"(words[0]) : "l"(at), "r"(wanted));
  }
}

// The same for shared memory, at an address of 32 bits: those of generic pointers take twice as many instructions.
template <int kBytes>
__device__ void LoadSharedIf(bool valid, uint32_t at, uint32_t* words) {
  const uint32_t wanted = valid;
  if constexpr (kBytes == 8) {
    asm volatile(POOLGRAD_IF(3, "ld.shared.v2.u32 {%0, %1}, [%2]")
                 : "+r"(words[0]), "+r"(words[1])
                 : "r"(at), "r"(wanted)
                 : "memory");
  } else if constexpr (kBytes == 4) {
    asm volatile(POOLGRAD_IF(2, "ld.shared.u32 %0, [%1]") : "+r"(words[0]) : "r"(at), "r"(wanted) : "memory");
  } else if constexpr (kBytes == 2) {
    asm volatile(POOLGRAD_IF(2, "ld.shared.u16 %0, [%1]") : "+r"(words[0]) : "r"(at), "r"(wanted) : "memory");
  } else {
    static_assert(kBytes == 1);
    asm volatile(POOLGRAD_IF(2, "ld.shared.u8 %0, [%1]") : "+r"(words[0]) : "r"(at), "r"(wanted) : "memory");
  }
}
template <int kBytes>
__device__ void StoreSharedIf(bool valid, uint32_t at, uint32_t bits) {
  const uint32_t wanted = valid;
  if constexpr (kBytes == 4) {
    asm volatile(POOLGRAD_IF(2, "st.shared.u32 [%0], %1")::"r"(at), "r"(bits), "r"(wanted) : "memory");
  } else if constexpr (kBytes == 2) {
    asm volatile(POOLGRAD_IF(2, "st.shared.u16 [%0], %1")::"r"(at), "r"(bits), "r"(wanted) : "memory");
  } else {
    static_assert(kBytes == 1);
    asm volatile(POOLGRAD_IF(2, "st.shared.u8 [%0], %1")::"r"(at), "r"(bits), "r"(wanted) : "memory");
  }
}
__device__ inline void StoreSharedPairIf(bool valid, uint32_t at, uint32_t first, uint32_t second) {
  const uint32_t wanted = valid;
  asm volatile(POOLGRAD_IF(3, "st.shared.v2.u32 [%0], {%1, %2}")::"r"(at), "r"(first), "r"(second), "r"(wanted)
               : "memory");
}
#undef POOLGRAD_IF

// The same without a condition, from global memory.
template <int kBytes>
__device__ void LoadWords(const void* at, uint32_t* words) {
  if constexpr (kBytes == 16) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(at));
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(at));
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(words[0]) : "l"(at));
  } else if constexpr (kBytes == 2) {
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=r"(words[0]) : "l"(at));
  } else {
    static_assert(kBytes == 1);
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(words[0]) : "l"(at));
  }
}

}  // namespace poolgrad::cuda
