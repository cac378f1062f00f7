#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// Computes y[row] = token[tokens[row]] + position[row % length], in float32.
///
/// Shape: tokens is [rows], token [vocabulary, width], position [length, width], y [rows, width] of
///        `dtype`. The tables and y are aligned to 16 bytes.
struct EmbeddingForward {
  DType dtype;
  std::size_t rows;
  std::size_t length;
  std::size_t width;
  const std::int32_t* tokens;
  const float* token;
  const float* position;
  void* y;
};

void embed(NativeStream stream, const EmbeddingForward& step);

/// Writes the numbers of the rows to `order`, sorted by token, and those of a token in ascending
/// order. `ends` is scratch memory of one element per token of the vocabulary.
///
/// Before: tokens are in [0, ends.size()), and `order` has as many elements as `tokens`.
/// Cost:   rows plus vocabulary: some 10 microseconds for 16,384 rows of GPT-2's tokens.
inline void order_rows(std::span<const std::int32_t> tokens, std::vector<std::uint32_t>& ends,
                       std::span<std::int32_t> order) {
  ends.assign(ends.size(), 0);
  for (const std::int32_t token : tokens) ++ends[static_cast<std::size_t>(token)];
  std::uint32_t end = 0;
  for (std::uint32_t& count : ends) count = end += count;
  for (std::size_t row = tokens.size(); row-- > 0;) {
    order[--ends[static_cast<std::size_t>(tokens[row])]] = static_cast<std::int32_t>(row);
  }
}

/// Computes the gradients of both tables. `dposition` is overwritten or, with kAdd, added to;
/// `dtoken` already holds the gradient from another layer, to which this gradient is added. There
/// are no atomics: a block sums the rows of a slice of `order`, token by token. Sums of tokens with
/// rows in several slices are partial, and the last launch adds them up in order. Three launches.
///
/// Shape: dy is [rows, width] of `dtype`; order is that of `order_rows`; partials
///        [token_slices(rows), 2, width].
/// Cost:  reads dy once and writes only rows of tokens that occur, for any vocabulary.
struct EmbeddingBackward {
  DType dtype;
  std::size_t rows;
  std::size_t length;
  std::size_t width;
  const std::int32_t* tokens;
  const std::int32_t* order;
  const void* dy;
  float* partials;
  float* dtoken;
  Into position_mode = Into::kOverwrite;
  float* dposition;
};

/// Rows of a slice. A thread adds up the rows of a slice, and then the slices of a token, one after
/// the other. The sum of both is least where a slice has the square root of the rows of the
/// commonest token, a sixth of 16,384 bytes of text.
inline constexpr std::size_t kSliceRows = 64;

constexpr std::size_t token_slices(std::size_t rows) { return ceil_div(rows, kSliceRows); }

void embed_backward(NativeStream stream, const EmbeddingBackward& step);

}  // namespace kolo::trainer::cuda
