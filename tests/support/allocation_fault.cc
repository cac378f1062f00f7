#include "tests/support/allocation_fault.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t* requests_left = nullptr;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (requests_left != nullptr && *requests_left > 0 && --*requests_left == 0) {
    throw std::bad_alloc();
  }
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms of operator new and delete call these.
void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kolo::test {

AllocationFault::AllocationFault(std::size_t& left) { requests_left = &left; }
AllocationFault::~AllocationFault() { requests_left = nullptr; }

}  // namespace kolo::test
