#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// A piece of one tensor and its place in a bucket: the unit of work of one thread block, so that a
/// large tensor gets many blocks and a small one does not waste one. Plain data, read by the
/// device.
struct CopyChunk {
  void* tensor = nullptr;    ///< First element of the piece; null on pack: writes zeros (a gap).
  std::uint64_t offset = 0;  ///< Of that element in the bucket, in bucket elements.
  std::uint64_t count = 0;   ///< Elements.
};

/// Largest piece, in bytes of the wider of the two dtypes.
inline constexpr std::size_t kCopyChunkBytes = std::size_t{32} << 10;

}  // namespace kolo
