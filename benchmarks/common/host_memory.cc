#include "benchmarks/common/host_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace kolo::bench {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HostMemory::HostMemory(std::size_t bytes) : mapped_bytes_(bytes + kHugePage) {
  mapping_ =
      ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  const std::size_t skipped = (kHugePage - address % kHugePage) % kHugePage;
  data_ = static_cast<std::byte*>(mapping_) + skipped;
  // A machine without huge pages refuses, and small ones are measured.
  if (bytes >= kHugePage) ::madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

HostMemory::~HostMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
}

}  // namespace kolo::bench
