#pragma once

#include <cstddef>

#include "comm/device/stream.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Copies elements between the caller's tensors and a host bucket not in place (see `fusion/`).
/// Threads: the executor's and its helpers, each with different elements. Allocates nothing.
class Packer {
 public:
  virtual ~Packer() = default;
  /// Casts elements [offset, offset + count) of the bucket from the tensors and writes them to
  /// `bucket`. `stores` changes speed, not results; see Stores.
  virtual void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) = 0;
  /// Writes elements [offset, offset + count) of the bucket, stored at `bucket`, to the tensors.
  virtual void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) = 0;

  /// A run of bucket elements that are contiguous in one tensor, or in a gap between tensors.
  struct Piece {
    std::byte* data = nullptr;  ///< Address of results; null if there are none.
    /// Address of contributions; equal to `data` unless the bucket is out of place; null in a gap.
    const std::byte* input = nullptr;
    std::size_t count = 0;
  };
  /// Returns the longest piece that begins with element `offset`, limited to `count` > 0 elements.
  /// Before: the tensors have the bucket's dtype (Placement::kUser).
  virtual Piece piece(std::size_t offset, std::size_t count) = 0;
};

/// Copies elements between the caller's tensors and a staged device bucket, both in device memory.
/// Calls enqueue work on a stream and return. Threads: the executor's.
class StreamPacker {
 public:
  virtual ~StreamPacker() = default;
  /// Casts elements [offset, offset + count) from the tensors and writes them to `bucket`.
  virtual void pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) = 0;
  /// Writes elements [offset, offset + count) of the bucket, stored at `bucket`, to the tensors.
  virtual void unpack(Stream& stream, std::size_t offset, std::size_t count,
                      const void* bucket) = 0;
};

}  // namespace kolo
