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
#include <functional>
#include <tuple>
#include <utility>

namespace soft_device {

// One thread's call of a kernel with copies of its parameters.
using Call = std::function<void()>;
using Bind = Call (*)(const void* kernel, void** params);

template <class... Params>
Call BindTo(const void* kernel, void** params) {
  const auto function = reinterpret_cast<void (*)(Params...)>(const_cast<void*>(kernel));
  return [&]<size_t... i>(std::index_sequence<i...>)->Call {
    return
        [function, held = std::tuple<Params...>(*static_cast<Params*>(params[i])...)] { std::apply(function, held); };
  }
  (std::index_sequence_for<Params...>());
}

// Launches of the kernel find its parameters by these types.
void Know(const void* kernel, Bind bind);
template <class... Params>
void Know(void (*kernel)(Params...)) {
  Know(reinterpret_cast<const void*>(kernel), BindTo<Params...>);
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
