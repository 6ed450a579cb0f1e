// What the runtime (runtime.cc) asks of the device.
#pragma once

#include <functional>

#include "device.h"

namespace soft_device {

using Call = std::function<void()>;  // one thread's, of a kernel with copies of its parameters

inline constexpr size_t kMostShared = 227 << 10;  // a Hopper's
inline constexpr size_t kFence = 64;              // bytes behind that nobody may write

void RunGrid(const Call& call, int64_t blocks, int threads, size_t shared_bytes);

}  // namespace soft_device
