#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "comm/base/buffer_view.h"

namespace kolo {

/// Owner of memory that a device or a communicator has allocated. Move-only.
class DeviceMemory {
 public:
  using Free = std::function<void(void*)>;  ///< Must not throw; logs instead.

  DeviceMemory() = default;
  DeviceMemory(void* data, std::size_t bytes, MemoryKind kind, Free free)
      : data_(data, std::move(free)), bytes_(bytes), kind_(kind) {}

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::unique_ptr<void, Free> data_{nullptr, {}};
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

}  // namespace kolo
