#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace kolo {

/// Alignment in bytes of every buffer that Kolo allocates: the size of a cache line and of the
/// widest vector register.
inline constexpr std::size_t kMemoryAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete (memory, std::align_val_t{kMemoryAlignment});
  }
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedDelete>;

/// Allocates uninitialised memory. Errors: std::bad_alloc.
inline AlignedMemory allocate_aligned(std::size_t bytes) {
  return AlignedMemory(static_cast<std::byte*>(
      ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{kMemoryAlignment})));
}

}  // namespace kolo
