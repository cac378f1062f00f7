#include "tests/support/allocation_counter.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t total_calls = 0;
thread_local std::size_t total_bytes = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++total_calls;
  total_bytes += bytes;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms of operator new and delete call these.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kolo::test {

AllocationCounter::AllocationCounter() : calls_before_(total_calls), bytes_before_(total_bytes) {}
std::size_t AllocationCounter::calls() const { return total_calls - calls_before_; }
std::size_t AllocationCounter::bytes() const { return total_bytes - bytes_before_; }

}  // namespace kolo::test
