// The C heap of a module that lives inside another module's memory: every block comes from the host's malloc and free.
// The host promises no more than 8-byte alignment, and only malloc and free; so each block carries the host's address
// in front of it, and starts where its alignment wants.
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {

__attribute__((import_module("env"), import_name("malloc"))) void* host_malloc(size_t bytes);
__attribute__((import_module("env"), import_name("free"))) void host_free(void* block);

void* aligned_alloc(size_t alignment, size_t bytes) {
  void* block = host_malloc(bytes + alignment + sizeof(void*));
  if (!block) return nullptr;
  const uintptr_t start = (reinterpret_cast<uintptr_t>(block) + sizeof(void*) + alignment - 1) & ~(alignment - 1);
  reinterpret_cast<void**>(start)[-1] = block;
  return reinterpret_cast<void*>(start);
}

void* malloc(size_t bytes) { return aligned_alloc(16, bytes); }

void free(void* memory) {
  if (memory) host_free(static_cast<void**>(memory)[-1]);
}

void* calloc(size_t count, size_t bytes) {
  void* memory = malloc(count * bytes);
  if (memory) std::memset(memory, 0, count * bytes);
  return memory;
}

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = aligned_alloc(alignment, bytes);
  return *memory ? 0 : 12;  // ENOMEM
}

}  // extern "C"
