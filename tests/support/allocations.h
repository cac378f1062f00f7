#pragma once

#include <cstddef>

/// Counts or fails the heap allocations of a thread. A test links allocations.cc, which replaces
/// every form of the global operator new.
namespace kolo::test {

/// Counts the allocations of this thread since the counter was constructed.
class AllocationCounter {
 public:
  AllocationCounter();
  std::size_t calls() const;
  std::size_t bytes() const;
  /// Returns the largest number of bytes held at a time. Before: no counter was constructed later.
  std::size_t most_held_bytes() const;

 private:
  std::size_t calls_before_, bytes_before_;
  std::ptrdiff_t held_before_;
};

/// During the lifetime of this object, each allocation of the calling thread decrements `left`. The
/// allocation that brings `left` to zero throws std::bad_alloc.
class AllocationFault {
 public:
  /// `left` must outlive this object.
  explicit AllocationFault(std::size_t& left);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
};

}  // namespace kolo::test
