#pragma once

#include <cstddef>

namespace kolo::bench {

/// Host memory for a measured buffer, initially zero: the same for every system, so that none gains
/// by its allocator. It is mapped anew, on huge pages where it is large and the machine has them
/// (as Kolo's arena is), and touched before timing starts. Move-only.
class HostMemory {
 public:
  HostMemory() = default;
  /// Errors: std::bad_alloc.
  explicit HostMemory(std::size_t bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  /// Aligned to a huge page; null if it was made without a size.
  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace kolo::bench
