#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/tensor.h"

namespace kolo::trainer {

/// An array of bytes with its shape, from an IDX file.
struct IdxArray {
  Shape shape;  ///< Outermost first; no dimension is 0.
  std::vector<std::uint8_t> bytes;
};

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions, plain or gzip.
///
/// Format: two zero bytes, type 8, the number of dimensions, then the dimensions as 32-bit
///         big-endian numbers, then the elements.
/// Errors: KoloError(kData) naming file and offset: missing, unreadable, wrong magic, truncated,
///         trailing bytes, corrupt gzip. Memory grows with the size of the file, not with the size
///         in its header.
/// Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions);

}  // namespace kolo::trainer
