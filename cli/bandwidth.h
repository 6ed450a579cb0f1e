// What this machine's memory can do, measured with plain loops: the yardstick of every benchmark. Bytes read plus bytes
// written per second, with as many threads as the kernels will use, on arrays that no cache holds.
#pragma once

#include <cstdint>

namespace poolgrad::cli {

struct Bandwidth {
  double copy_gbps = 0;         // one read, one write: memcpy
  double read_heavy_gbps = 0;   // four reads, one write
  double write_heavy_gbps = 0;  // one read, four writes
};

// Size of the largest data cache, from the system; 32 MiB when it does not say.
int64_t LastLevelCacheBytes();

// Best of several passes over more than 4 * cache_bytes.
Bandwidth MeasureBandwidth(int threads, int64_t cache_bytes);

}  // namespace poolgrad::cli
