#pragma once

#include <cstddef>

/// Observes a thread's heap allocations. Link allocations.cc, which replaces every form of the
/// global operator new.
namespace kolo::test {

/// Counts the allocations of this thread since construction.
class AllocationCounter {
 public:
  AllocationCounter();
  std::size_t calls() const;
  std::size_t bytes() const;
  /// The largest number of bytes held at a time. Before: no counter was constructed after this one.
  std::size_t most_held_bytes() const;

 private:
  std::size_t calls_before_, bytes_before_;
  std::ptrdiff_t held_before_;
};

/// During its lifetime, `left` counts down the calling thread's allocations; the one that brings it
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
