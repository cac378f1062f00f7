#pragma once

#include <cstddef>

#include "comm/device/stream.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Moves elements between the caller's tensors and a host bucket that is not in place; see
/// `fusion/`. Threads: the executor's and its helpers, each with different elements. Allocates
/// nothing.
class Packer {
 public:
  virtual ~Packer() = default;
  /// Writes elements [offset, offset + count) of the bucket to `bucket`, cast from the tensors.
  /// `stores` is a hint, as in `convert`.
  virtual void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) = 0;
  /// Writes elements [offset, offset + count) of the bucket, given at `bucket`, to the tensors.
  virtual void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) = 0;

  /// Contiguous elements of the bucket in a tensor, or in a gap between tensors.
  struct Piece {
    std::byte* data = nullptr;  ///< Address of results; null if there are none.
    /// Address of contributions: equal to `data` unless out of place; null for a gap.
    const std::byte* input = nullptr;
    std::size_t count = 0;
  };
  /// The longest piece that begins with element `offset`, limited to `count` > 0 elements.
  /// Before: the tensors have the bucket's dtype (Placement::kUser).
  virtual Piece piece(std::size_t offset, std::size_t count) = 0;
};

/// Moves elements between the caller's tensors and a staged device bucket, both in device memory;
/// the counterpart of `Packer`. Calls enqueue work and return. Threads: the executor's.
class StreamPacker {
 public:
  virtual ~StreamPacker() = default;
  /// Writes elements [offset, offset + count) of the bucket to `bucket`, cast from the tensors.
  virtual void pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) = 0;
  /// Writes elements [offset, offset + count) of the bucket, given at `bucket`, to the tensors.
  virtual void unpack(Stream& stream, std::size_t offset, std::size_t count,
                      const void* bucket) = 0;
};

}  // namespace kolo
