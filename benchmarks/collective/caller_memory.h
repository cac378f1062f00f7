#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/common/host_memory.h"

namespace kolo::bench {

/// The host memory of a rank for a call: one buffer in place, else two.
class CallerMemory {
 public:
  /// Makes a buffer of so many bytes.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;

  CallerMemory(const CollectiveCase& what, int rank, int ranks,
               const Allocate& allocate = host_memory)
      : CallerMemory(what, counts_of(what, rank, ranks), allocate) {}
  /// For an all-reduce.
  explicit CallerMemory(const CollectiveCase& what)
      : CallerMemory(what, {what.count(), what.count()}, host_memory) {}

  bool in_place() const { return contribution_ == nullptr; }
  /// The same memory as `result` in place.
  void* contribution() const { return in_place() ? result_.get() : contribution_.get(); }
  void* result() const { return result_.get(); }
  std::size_t result_bytes() const { return received_; }

  void write(const void* elements) { copy(contribution(), elements, contributed_); }
  void read(void* elements) const { copy(elements, result(), received_); }
  void read_contribution(void* elements) const { copy(elements, contribution(), contributed_); }
  /// For a system that works in place only.
  void copy_contribution() {
    if (!in_place()) copy(result(), contribution(), contributed_);
  }

 private:
  static std::shared_ptr<void> host_memory(std::size_t bytes) {
    auto memory = std::make_shared<HostMemory>(bytes);
    return {memory, memory->data()};
  }

  CallerMemory(const CollectiveCase& what, const CaseCounts& counts, const Allocate& allocate)
      : contributed_(counts.contributed * size_of(what.dtype)),
        received_(counts.received * size_of(what.dtype)),
        result_(result_of(what, allocate)),
        contribution_(what.in_place ? nullptr : allocate(std::max<std::size_t>(contributed_, 1))) {}

  /// Null for a rank that receives nothing of what there is.
  std::shared_ptr<void> result_of(const CollectiveCase& what, const Allocate& allocate) const {
    const std::size_t bytes = what.in_place ? std::max(contributed_, received_) : received_;
    if (bytes == 0 && what.count() > 0) return nullptr;
    return allocate(std::max<std::size_t>(bytes, 1));
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  std::size_t contributed_, received_;  // bytes
  std::shared_ptr<void> result_;
  std::shared_ptr<void> contribution_;
};

}  // namespace kolo::bench
