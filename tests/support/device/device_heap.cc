#include "tests/support/device/device_heap.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include <sys/mman.h>

namespace kolo::test {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kPattern = 0xCB;

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

DeviceHeap::DeviceHeap(std::size_t capacity)
    : capacity_(rounded_up(capacity, kHugePage)), mapped_bytes_(capacity_ + kHugePage) {
  mapped_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::runtime_error("no addresses for a device's memory");
  const auto address = reinterpret_cast<std::uintptr_t>(mapped_);
  data_ = static_cast<std::byte*>(mapped_) + (rounded_up(address, kHugePage) - address);
  // Huge pages make it faster to open and close the heap, which takes time per page. It may fail.
  ::madvise(data_, capacity_, MADV_HUGEPAGE);
}

DeviceHeap::~DeviceHeap() { ::munmap(mapped_, mapped_bytes_); }

std::byte* DeviceHeap::allocate(std::size_t bytes) {
  const std::size_t taken = rounded_up(bytes, kAlignment);
  if (taken > capacity_ - used_) throw std::runtime_error("a device's memory is used up");
  std::byte* const memory = data_ + used_;
  used_ += taken;
  in_use_ = rounded_up(used_, kHugePage);
  std::memset(memory, kPattern, taken);
  return memory;
}

void DeviceHeap::protect(bool is_open) {
  if (in_use_ == 0) return;
  if (::mprotect(data_, in_use_, is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    throw std::runtime_error("mprotect");
  }
}

}  // namespace kolo::test
