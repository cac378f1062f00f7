#pragma once

#include <cstddef>

#include "comm/device/stream.h"

namespace kolo {

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
