#pragma once

#include <cstddef>

/// Watches what a thread requests from the heap. Link allocations.cc, which replaces every form of
/// the global operator new.
namespace kolo::test {

/// Counts what this thread has allocated since construction.
class AllocationCounter {
 public:
  AllocationCounter();
  std::size_t calls() const;
  std::size_t bytes() const;
  /// The most of them at a time. Before: no counter was constructed after this one.
  std::size_t most_held_bytes() const;

 private:
  std::size_t calls_before_, bytes_before_;
  std::ptrdiff_t held_before_;
};

/// While it lives, the calling thread's requests are counted down, and the one that brings `left`
/// to zero throws std::bad_alloc.
class AllocationFault {
 public:
  /// `left` outlives it.
  explicit AllocationFault(std::size_t& left);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
};

}  // namespace kolo::test
