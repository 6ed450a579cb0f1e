// What a kernel laid out when it was made, kept for its runs, in memory asked for without exceptions: files of kernels
// are compiled without tables for unwinding (CMakeLists.txt), so that nothing may be thrown through them.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace poolgrad {

inline constexpr char kNoMemory[] = "there is no memory for its layout";

// Gives the beginning of a block, once, and the block back.
template <class T>
struct BlockAllocator {
  using value_type = T;
  static constexpr size_t kRoom = 64;

  explicit BlockAllocator(void* memory) : block(memory) {}
  template <class U>
  BlockAllocator(const BlockAllocator<U>& other) : block(other.block) {}  // NOLINT: as allocators are

  T* allocate(size_t) {
    static_assert(sizeof(T) <= kRoom);
    return static_cast<T*>(block);
  }
  void deallocate(T*, size_t) { operator delete(block); }

  void* block;
};

// A copy of the layout; null, or that there is no memory. What counts its owners lies before it, in the same block.
template <class Layout>
const char* Keep(const Layout& layout, std::shared_ptr<const void>* kept) {
  static_assert(std::is_trivially_destructible_v<Layout> && std::is_nothrow_copy_constructible_v<Layout>);
  static_assert(alignof(Layout) <= alignof(std::max_align_t));
  using Allocator = BlockAllocator<std::byte>;
  void* block = operator new(Allocator::kRoom + sizeof(Layout), std::nothrow);
  if (!block) return kNoMemory;
  const void* copy = new (static_cast<std::byte*>(block) + Allocator::kRoom) Layout(layout);
  *kept = std::shared_ptr<const void>(
      copy, [](const void*) {}, Allocator(block));
  return nullptr;
}

}  // namespace poolgrad
