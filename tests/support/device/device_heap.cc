#include "tests/support/device/device_heap.h"

#include <cstring>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

namespace kolo::test {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kPattern = 0xCB;

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

DeviceHeap::DeviceHeap(std::size_t capacity) : capacity_(capacity) {
  void* const data = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::runtime_error("no addresses for a device's memory");
  data_ = static_cast<std::byte*>(data);
}

DeviceHeap::~DeviceHeap() { ::munmap(data_, capacity_); }

std::byte* DeviceHeap::allocate(std::size_t bytes) {
  const std::size_t taken = rounded_up(bytes, kAlignment);
  if (taken > capacity_ - used_) throw std::runtime_error("a device's memory is used up");
  std::byte* const memory = data_ + used_;
  used_ += taken;
  if (rounded_up(used_, page()) > in_use_) in_use_ = rounded_up(used_, page());
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
