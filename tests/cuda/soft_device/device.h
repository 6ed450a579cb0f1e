// A GPU in software, for tests: kernels compiled by any C++ compiler run on the processor, so that their logic is
// tested where there is no GPU.
//
// A block's threads are fibers, one at a time on the host thread that launched them, from one place where they wait for
// each other to the next; now the first goes first, now the last, so that what depends on an order shows. Shared memory
// begins as garbage. What a GPU leaves undefined is made to fail: threads that wait for different things, lanes that
// read from lanes outside their mask, more shared memory than was asked for. Copies that a Hopper's units would make
// are made by threads, as on the GPUs before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace soft_device {

// Calls a kernel with the parameters that lie at `params`.
using Run = void (*)(const void* kernel, const void* const* params);

template <class... Params>
void RunWith(const void* kernel, const void* const* params) {
  const auto function = reinterpret_cast<void (*)(Params...)>(const_cast<void*>(kernel));
  [&]<size_t... i>(std::index_sequence<i...>) { function(*static_cast<const Params*>(params[i])...); }
  (std::index_sequence_for<Params...>());
}

// Launches of the kernel find its parameters by their sizes, and keep copies of their bytes. (These headers are read
// for every kernel that is compiled while a program runs: they ask little of the standard library.)
inline constexpr size_t kMostParams = 8;
void Know(const void* kernel, Run run, const size_t* sizes, size_t count);
template <class... Params>
void Know(void (*kernel)(Params...)) {
  static_assert(sizeof...(Params) <= kMostParams);
  static_assert(((std::is_trivially_copyable_v<Params> && alignof(Params) <= alignof(std::max_align_t)) && ...));
  const size_t sizes[] = {sizeof(Params)..., 0};
  Know(reinterpret_cast<const void*>(kernel), RunWith<Params...>, sizes, sizeof...(Params));
}

// Ends the program: a kernel did what a GPU leaves undefined.
[[noreturn]] void Die(const char* why);

// ---- what a thread of a kernel may do ----

void SyncBlock();
bool SyncBlockOr(bool mine);
void SyncWarp(uint32_t mask);
bool Any(uint32_t mask, bool mine);
// `mine` of the lane `delta` further on among `width`; one's own where there is none.
uint64_t ShuffleDown(uint32_t mask, uint64_t mine, unsigned delta, int width);
// An address of shared memory as the instructions take it; and where one lies: `bytes` from it must be what the launch
// asked for.
uint32_t SharedAddress(const void* at);
void* AtShared(uint32_t address, size_t bytes);
// A GPU faults on addresses that are not.
inline void MustAlign(const void* at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) Die("a thread reads or writes an address that is not aligned");
}

}  // namespace soft_device
