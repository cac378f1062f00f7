#pragma once

#include <cstddef>
#include <cstring>

#include "benchmarks/all_reduce/all_reduce_case.h"
#include "comm/base/aligned_memory.h"

namespace kolo::bench {

/// The host memory of a case on a system without an arena: one buffer in place, else two.
class CallerMemory {
 public:
  explicit CallerMemory(const AllReduceCase& what)
      : bytes_(what.bytes),
        sum_(allocate_aligned(bytes_)),
        contribution_(what.in_place ? nullptr : allocate_aligned(bytes_)) {}

  bool in_place() const { return contribution_ == nullptr; }
  /// The same memory as `sum` in place.
  void* contribution() const { return in_place() ? sum_.get() : contribution_.get(); }
  void* sum() const { return sum_.get(); }

  void write(const void* elements) { std::memcpy(contribution(), elements, bytes_); }
  void read(void* elements) const { std::memcpy(elements, sum(), bytes_); }
  void read_contribution(void* elements) const { std::memcpy(elements, contribution(), bytes_); }
  /// For a system that works in place only.
  void copy_contribution() {
    if (!in_place()) std::memcpy(sum(), contribution(), bytes_);
  }

 private:
  std::size_t bytes_;
  AlignedMemory sum_;
  AlignedMemory contribution_;
};

}  // namespace kolo::bench
