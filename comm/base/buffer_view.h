#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// A typed view of contiguous host memory that somebody else owns.
/// Units: `count` is elements; `bytes()` is bytes.
struct BufferView {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;

  std::size_t bytes() const { return count * size_of(dtype); }
  std::span<std::byte> as_bytes() const { return {static_cast<std::byte*>(data), bytes()}; }
};

}  // namespace kolo
