#pragma once

#include <cstddef>

#include "comm/device/stream.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// Moves elements between the caller's tensors and a host bucket that is not in place; see
/// `fusion/`. Threads: the executor's and those that help it, each with other elements. Nothing
/// allocates.
class Packer {
 public:
  virtual ~Packer() = default;
  /// Writes elements [offset, offset + count) of the bucket to `bucket`, cast from the tensors.
  /// `stores` is a hint, as in `convert`.
  virtual void pack(std::size_t offset, std::size_t count, void* bucket, Stores stores) = 0;
  /// Writes elements [offset, offset + count) of the bucket, given at `bucket`, to the tensors.
  virtual void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) = 0;

  /// Elements of the bucket that lie side by side in a tensor, or in a gap between tensors.
  struct Piece {
    std::byte* data = nullptr;  ///< Where results go; null if there are none.
    /// Where contributions are: `data`, unless out of place; null for a gap.
    const std::byte* input = nullptr;
    std::size_t count = 0;
  };
  /// The longest piece that begins with element `offset`, but at most `count` > 0 elements.
  /// Before: the tensors have the bucket's dtype (Placement::kUser).
  virtual Piece piece(std::size_t offset, std::size_t count) = 0;
};

/// Moves elements between the caller's tensors and a staged device bucket, both in device memory;
/// the counterpart of `Packer`. Calls enqueue and return. Threads: the executor's.
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
