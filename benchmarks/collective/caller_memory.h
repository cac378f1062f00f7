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

  static std::shared_ptr<void> host_memory(std::size_t bytes) {
    auto memory = std::make_shared<HostMemory>(bytes);
    return {memory, memory->data()};
  }

  /// `counts` are those of the rank; a system that puts results elsewhere in place says where.
  CallerMemory(const CollectiveCase& what, const CaseCounts& counts,
               const Allocate& allocate = host_memory)
      : in_place_(what.in_place),
        contributed_(bytes_of(what, counts.contributed)),
        received_(bytes_of(what, counts.received)),
        contributed_at_(what.in_place ? bytes_of(what, counts.contributed_at) : 0),
        received_at_(what.in_place ? bytes_of(what, counts.received_at) : 0),
        result_(result_of(what, allocate)),
        contribution_(what.in_place ? result_ : allocate(std::max<std::size_t>(contributed_, 1))) {}

  bool in_place() const { return in_place_; }
  /// In place, it lies in the same buffer as `result`.
  void* contribution() const { return at(contribution_, contributed_at_); }
  /// Null for a rank that receives nothing of what there is, out of place.
  void* result() const { return at(result_, received_at_); }
  std::size_t contribution_bytes() const { return contributed_; }

  void write(const void* elements) { copy(contribution(), elements, contributed_); }
  void read(void* elements) const { copy(elements, result(), received_); }
  void read_contribution(void* elements) const { copy(elements, contribution(), contributed_); }
  /// For a system that works in place only, in the memory of the result.
  void copy_contribution() {
    if (!in_place()) copy(result(), contribution(), contributed_);
  }

 private:
  static std::size_t bytes_of(const CollectiveCase& what, std::size_t count) {
    return count * size_of(what.dtype);
  }
  static void* at(const std::shared_ptr<void>& memory, std::size_t bytes) {
    return memory == nullptr ? nullptr : static_cast<std::byte*>(memory.get()) + bytes;
  }
  std::shared_ptr<void> result_of(const CollectiveCase& what, const Allocate& allocate) const {
    const std::size_t bytes =
        in_place_ ? std::max(contributed_at_ + contributed_, received_at_ + received_) : received_;
    if (bytes == 0 && what.count() > 0) return nullptr;
    return allocate(std::max<std::size_t>(bytes, 1));
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  bool in_place_;
  std::size_t contributed_, received_;        // bytes
  std::size_t contributed_at_, received_at_;  // bytes
  std::shared_ptr<void> result_;
  std::shared_ptr<void> contribution_;
};

}  // namespace kolo::bench
