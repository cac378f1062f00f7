#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace kolo::bench {

/// Host memory for a measured buffer, initially zero: the same for every system, so that none gains
/// by its allocator. It is on huge pages where it is large and the machine has them (as Kolo's
/// arena is), and touched before timing starts. Move-only.
class HostMemory {
 public:
  HostMemory() = default;
  /// Errors: std::bad_alloc.
  explicit HostMemory(std::size_t bytes);

  /// Aligned to a huge page; null if it was made without a size.
  std::byte* data() const { return memory_.get(); }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace kolo::bench
