#pragma once

#include <cstddef>

namespace kolo::bench {

/// Memory for a streaming limit, zero: mapped afresh, on huge pages where it is large and the
/// system has them, and touched before any clock runs. Move-only.
class StreamMemory {
 public:
  StreamMemory() = default;
  /// Errors: std::bad_alloc.
  explicit StreamMemory(std::size_t bytes);
  StreamMemory(StreamMemory&& other) noexcept;
  StreamMemory& operator=(StreamMemory&& other) noexcept;
  ~StreamMemory();

  /// Aligned to a huge page; null if nothing was asked for.
  std::byte* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace kolo::bench
