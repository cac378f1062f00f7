#include "tests/support/allocations.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__clang__) && defined(__SANITIZE_THREAD__)
#include <sanitizer/allocator_interface.h>
#endif

namespace {

thread_local std::size_t total_calls = 0;
thread_local std::size_t total_bytes = 0;
// Memory that another thread frees is subtracted from that thread's count.
thread_local std::ptrdiff_t held_bytes = 0;
thread_local std::ptrdiff_t most_held = 0;
thread_local std::size_t* requests_left = nullptr;

void count(std::size_t bytes) {
  ++total_calls;
  total_bytes += bytes;
}

/// `sign` is 1 for newly allocated memory, and -1 for memory that will be freed.
void hold(void* memory, int sign) {
  held_bytes += sign * static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  most_held = std::max(most_held, held_bytes);
}

// Clang's ThreadSanitizer does not allow its operators to be replaced. It reports each request, but
// AllocationFault cannot make one fail.
#if defined(__clang__) && defined(__SANITIZE_THREAD__)
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void* memory, std::size_t bytes) {
      count(bytes);
      hold(const_cast<void*>(memory), 1);
    },
    [](const volatile void* memory) { hold(const_cast<void*>(memory), -1); });

}  // namespace
#else
void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  count(bytes);
  if (requests_left != nullptr && *requests_left > 0 && --*requests_left == 0) return nullptr;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
  hold(memory, 1);
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  hold(memory, -1);
  std::free(memory);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::size_t kDefaultAlignment = alignof(std::max_align_t);

}  // namespace

// The array forms call these. The non-throwing forms are replaced too, because a sanitizer's form
// would not match the operator delete below.
void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, kDefaultAlignment); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, kDefaultAlignment);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
#endif

namespace kolo::test {

AllocationCounter::AllocationCounter()
    : calls_before_(total_calls), bytes_before_(total_bytes), held_before_(held_bytes) {
  most_held = held_bytes;
}
std::size_t AllocationCounter::calls() const { return total_calls - calls_before_; }
std::size_t AllocationCounter::bytes() const { return total_bytes - bytes_before_; }
std::size_t AllocationCounter::most_held_bytes() const {
  return static_cast<std::size_t>(most_held - held_before_);
}

AllocationFault::AllocationFault(std::size_t& left) { requests_left = &left; }
AllocationFault::~AllocationFault() { requests_left = nullptr; }

}  // namespace kolo::test
