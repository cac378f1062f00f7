#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/dtype.h"
#include "comm/base/element.h"

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

/// A typed view of contiguous memory. It owns nothing. The dtype is that of the pointer's type,
/// or it is said: a pointer to a type that Kolo does not know makes no view without one.
struct BufferView {
  /// No memory.
  constexpr BufferView() = default;
  template <Element T>
  constexpr BufferView(T* elements, std::size_t number, MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(*kDTypeOf<T>), memory(kind) {}
  constexpr BufferView(void* elements, std::size_t number, DType type,
                       MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(type), memory(kind) {}
  /// All of a vector, an array or a span, in host memory.
  template <Elements Range>
  constexpr BufferView(Range&& elements)  // NOLINT(*-explicit-*): it is the same memory.
      : BufferView(std::ranges::data(elements), std::ranges::size(elements)) {}

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
  GivenDType dtype;
  std::span<const TensorBuffers> each = {};
  MemoryKind memory = MemoryKind::kHost;
};

}  // namespace kolo
