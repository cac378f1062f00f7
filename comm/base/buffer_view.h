#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/dtype.h"

namespace kolo {

/// Where memory is, and so who can touch it and how fast copies go.
enum class MemoryKind : std::uint8_t {
  kHost,    ///< Ordinary memory. Copies to and from a device would be staged, so they are refused.
  kPinned,  ///< Host memory that a device copies from and to by itself.
  kDevice,  ///< On the device: the processor must not dereference it.
};

constexpr std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"host", "pinned", "device"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// A typed view of contiguous memory that somebody else owns.
/// Units: `count` is elements; `bytes()` is bytes.
struct BufferView {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;

  std::size_t bytes() const { return count * size_of(dtype); }
  std::span<std::byte> as_bytes() const { return {static_cast<std::byte*>(data), bytes()}; }
};

}  // namespace kolo
