#pragma once

#include <cstddef>

namespace kolo::test {

/// While it lives, the calling thread's requests for memory are counted, and the one that brings
/// `left` to zero throws std::bad_alloc. Link allocation_fault.cc, which replaces the global
/// operator new.
class AllocationFault {
 public:
  /// `left` outlives it.
  explicit AllocationFault(std::size_t& left);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
};

}  // namespace kolo::test
