#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace kolo::bench {

/// Host memory for a measured buffer, initially zero. All systems use it, so that none has an
/// advantage from its allocator. Large buffers use huge pages if the machine has them, like Kolo's
/// arena. The constructor touches all pages. Move-only.
class HostMemory {
 public:
  HostMemory() = default;
  /// Errors: std::bad_alloc.
  explicit HostMemory(std::size_t bytes);

  /// Returns the address, aligned to a huge page. It is null without a size.
  std::byte* data() const { return memory_.get(); }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace kolo::bench
