#pragma once

#include <cstddef>
#include <cstring>

#include "benchmarks/all_reduce/all_reduce_case.h"
#include "benchmarks/common/host_memory.h"

namespace kolo::bench {

/// The host memory of a case on a system without an arena: one buffer in place, else two.
class CallerMemory {
 public:
  explicit CallerMemory(const AllReduceCase& what)
      : bytes_(what.bytes),
        sum_(bytes_),
        contribution_(what.in_place ? HostMemory() : HostMemory(bytes_)) {}

  std::size_t bytes() const { return bytes_; }
  bool in_place() const { return !contribution_; }
  /// The same memory as `sum` in place.
  void* contribution() const { return in_place() ? sum_.data() : contribution_.data(); }
  void* sum() const { return sum_.data(); }

  void write(const void* elements) { std::memcpy(contribution(), elements, bytes_); }
  void read(void* elements) const { std::memcpy(elements, sum(), bytes_); }
  void read_contribution(void* elements) const { std::memcpy(elements, contribution(), bytes_); }
  /// For a system that works in place only.
  void copy_contribution() {
    if (!in_place()) std::memcpy(sum(), contribution(), bytes_);
  }

 private:
  std::size_t bytes_;
  HostMemory sum_;
  HostMemory contribution_;
};

}  // namespace kolo::bench
