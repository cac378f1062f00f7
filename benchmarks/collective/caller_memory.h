#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/common/host_memory.h"

namespace kolo::bench {

/// The host memory of a rank for a case, on a system without an arena: one buffer in place, else
/// two.
class CallerMemory {
 public:
  CallerMemory(const CollectiveCase& what, int rank, int ranks)
      : CallerMemory(what, counts_of(what, rank, ranks)) {}
  /// For an all-reduce.
  explicit CallerMemory(const CollectiveCase& what)
      : CallerMemory(what, {what.count(), what.count()}) {}

  bool in_place() const { return !contribution_; }
  /// The same memory as `result` in place.
  void* contribution() const { return in_place() ? result_.data() : contribution_.data(); }
  void* result() const { return result_.data(); }
  std::size_t result_bytes() const { return received_; }

  void write(const void* elements) { copy(contribution(), elements, contributed_); }
  void read(void* elements) const { copy(elements, result(), received_); }
  void read_contribution(void* elements) const { copy(elements, contribution(), contributed_); }
  /// For a system that works in place only.
  void copy_contribution() {
    if (!in_place()) copy(result(), contribution(), contributed_);
  }

 private:
  CallerMemory(const CollectiveCase& what, const CaseCounts& counts)
      : contributed_(counts.contributed * size_of(what.dtype)),
        received_(counts.received * size_of(what.dtype)),
        result_(what.in_place ? std::max(contributed_, received_) : received_),
        contribution_(what.in_place ? HostMemory()
                                    : HostMemory(std::max<std::size_t>(contributed_, 1))) {}

  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  std::size_t contributed_, received_;  // bytes
  HostMemory result_;
  HostMemory contribution_;
};

}  // namespace kolo::bench
