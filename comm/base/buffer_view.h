#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/dtype.h"

namespace kolo {

/// Where memory is, which decides who can access it and how fast copies are.
enum class MemoryKind : std::uint8_t {
  kHost,    ///< Ordinary memory. A device would copy it through a staging buffer; Kolo refuses to.
  kPinned,  ///< Host memory that a device reads and writes directly.
  kDevice,  ///< Memory of a device; the processor must not dereference it.
};

/// "host", "pinned" or "device".
constexpr std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"host", "pinned", "device"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// A typed view of contiguous memory. It owns nothing.
struct BufferView {
  void* data = nullptr;                   ///< The first element.
  std::size_t count = 0;                  ///< Number of elements.
  DType dtype = DType::kFloat32;          ///< Element type.
  MemoryKind memory = MemoryKind::kHost;  ///< Where the memory is.

  /// Size in bytes.
  std::size_t bytes() const { return count * size_of(dtype); }
  /// The same memory as bytes.
  std::span<std::byte> as_bytes() const { return {static_cast<std::byte*>(data), bytes()}; }
};

/// The buffers of one of several tensors that an operation takes together.
struct TensorBuffers {
  const void* input = nullptr;  ///< Only read; null where the operation works in place.
  void* result = nullptr;       ///< Or what the operation works on in place.
  /// Elements of each rank's part; of the whole tensor if the operation knows no parts.
  std::size_t count = 0;
  /// Where parts differ, instead of `count`: elements of each rank's part, or for an all-to-all of
  /// each pair's, sender by sender.
  std::span<const std::size_t> counts = {};
};

/// Tensors of one element type, in memory of one kind.
struct Tensors {
  DType dtype = DType::kFloat32;
  std::span<const TensorBuffers> each = {};
  MemoryKind memory = MemoryKind::kHost;
};

}  // namespace kolo
