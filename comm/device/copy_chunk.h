#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// A piece of one tensor and its place in a bucket: the work of one thread block. A large tensor
/// gets many blocks, and a small one does not waste one. Plain data that the device reads.
struct CopyChunk {
  void* tensor = nullptr;    ///< First element of the piece; null on pack writes zeros (a gap).
  std::uint64_t offset = 0;  ///< Place of that element in the bucket, in elements.
  std::uint64_t count = 0;   ///< Number of elements.
};

/// Size of the largest piece, in bytes of the wider dtype.
inline constexpr std::size_t kCopyChunkBytes = std::size_t{32} << 10;

}  // namespace kolo
