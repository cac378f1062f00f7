#pragma once

#include <cstddef>

namespace kolo::test {

/// What this thread has taken from the heap since the counter was made. Link allocation_counter.cc,
/// which replaces the global operator new.
class AllocationCounter {
 public:
  AllocationCounter();
  std::size_t calls() const;
  std::size_t bytes() const;

 private:
  std::size_t calls_before_, bytes_before_;
};

}  // namespace kolo::test
