#pragma once

#include <cstddef>

namespace kolo::test {

/// Counts what this thread has allocated from the heap since construction. Link
/// allocation_counter.cc, which replaces the global operator new.
class AllocationCounter {
 public:
  AllocationCounter();
  std::size_t calls() const;
  std::size_t bytes() const;

 private:
  std::size_t calls_before_, bytes_before_;
};

}  // namespace kolo::test
