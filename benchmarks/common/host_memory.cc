#include "benchmarks/common/host_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace kolo::bench {

HostMemory::HostMemory(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t whole = bytes / kHugePage * kHugePage;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole + kHugePage)));
  if (memory_ == nullptr) throw std::bad_alloc();
  // On a machine without huge pages the call fails, and the memory has small pages.
  if (whole > 0) ::madvise(data(), whole, MADV_HUGEPAGE);
  std::memset(data(), 0, bytes);
}

}  // namespace kolo::bench
