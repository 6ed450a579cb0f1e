// Structs that grow from version to version. Every struct of the C ABI begins with the size that its caller was
// compiled with; fields are only ever appended. An older caller's struct is shorter: what it has no field for takes the
// default. A newer caller's is longer: that is fine as long as it asks for nothing that this version does not know,
// which is to say as long as those bytes are 0. So to append a field is one line in poolgrad.h, and one where its
// default is not 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.h"

namespace poolgrad {

// No struct of ours will be larger; a size beyond it is a field that was never set, and nobody reads that far.
inline constexpr uint64_t kLargestStruct = 1024;

// `oldest`: the struct's size in the first version that had it.
inline Status CheckStructSize(uint64_t size, const char* name, uint64_t oldest) {
  if (size >= oldest && size <= kLargestStruct && size % alignof(uint64_t) == 0) return {};
  return Status::Invalid(std::string(name) + ".struct_size is " + std::to_string(size) +
                         "; it must be the sizeof of its struct, at least " + std::to_string(oldest));
}

// Copies a caller's struct over `taken`, which holds the defaults.
template <class T>
Status TakeSized(const T* given, const char* name, uint64_t oldest, T* taken) {
  uint64_t size;  // not through `given`: there may be less than a T
  std::memcpy(&size, given, sizeof size);
  if (Status status = CheckStructSize(size, name, oldest); !status.ok()) return status;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (uint64_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Status::Unsupported(std::string(name) + " has a value in byte " + std::to_string(i) +
                               ", where a poolgrad newer than this one, " + POOLGRAD_VERSION_TEXT +
                               ", keeps a field; leave what this version does not know 0");
  }
  std::memcpy(static_cast<void*>(taken), given, std::min<uint64_t>(size, sizeof(T)));
  taken->struct_size = sizeof(T);
  return {};
}

// Writes as much of `from` as a caller's struct of `size` bytes holds, and 0 into what this version does not know.
template <class T>
void GiveSized(const T& from, uint64_t size, void* to) {
  const uint64_t known = std::min<uint64_t>(size, sizeof(T));
  std::memcpy(to, &from, known);
  std::memset(static_cast<unsigned char*>(to) + known, 0, size - known);
  std::memcpy(to, &size, sizeof size);
}

}  // namespace poolgrad
