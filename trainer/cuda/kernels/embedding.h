#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// Number of rows of the token table, one per value of a byte.
inline constexpr std::size_t kTokens = 256;

/// Computes y[row] = token[bytes[row]] + position[row % length], in float32.
///
/// Shape: bytes is [rows], token [256, width], position [length, width], y [rows, width] of
///        `dtype`. The tables and y are aligned to 16 bytes.
struct EmbeddingForward {
  DType dtype;
  std::size_t rows;
  std::size_t length;
  std::size_t width;
  const std::uint8_t* bytes;
  const float* token;
  const float* position;
  void* y;
};

void embed(NativeStream stream, const EmbeddingForward& step);

/// Computes the gradients of both tables. `dposition` is overwritten; `dtoken` already holds the
/// gradient from another layer, to which this gradient is added. There are no atomics: each slice
/// of rows writes a partial sum per token, in row order, and `fold` adds the slices in order. Three
/// launches.
///
/// Shape: dy is [rows, width] of `dtype`; partials [token_parts(rows), 256, width].
struct EmbeddingBackward {
  DType dtype;
  std::size_t rows;
  std::size_t length;
  std::size_t width;
  const std::uint8_t* bytes;
  const void* dy;
  float* partials;
  float* dtoken;
  float* dposition;
};

inline std::size_t token_parts(std::size_t rows) {
  constexpr std::size_t kRowsPerPart = 1024;
  constexpr std::size_t kMostParts = 8;
  return std::clamp<std::size_t>(ceil_div(rows, kRowsPerPart), 1, kMostParts);
}

void embed_backward(NativeStream stream, const EmbeddingBackward& step);

}  // namespace kolo::trainer::cuda
