#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// The values of one block, or of a part of it, on the wire.
struct BlockValues {
  std::span<const float> values = {};
  int exponent = 0;
};

/// The form of payloads without indices: values of blocks that both ends know.
///
///     | header: used bytes, values, blocks | exponents, of float16 only | to 4 bytes | values |
///
/// A buffer has the planned capacity; the first `used_bytes` of it are sent.
struct BlockPayloadPlan {
  DType wire = DType::kFloat16;
  std::size_t most_blocks = 0;
  std::size_t most_values = 0;

  /// Bytes of a payload with `values` values of `blocks` blocks.
  std::size_t bytes(std::size_t blocks, std::size_t values) const;
  std::size_t capacity() const { return bytes(most_blocks, most_values); }
};

/// Writes the values of `blocks`, each with its exponent, to the front of `out`. Returns the bytes
/// used, which the header also holds.
///
/// Shape:   `out` has at least the plan's capacity.
/// Threads: pure; any.
/// Errors:  UsageError for more than planned, and those of `encode_values`.
std::size_t encode_blocks(const BlockPayloadPlan& plan, std::span<const BlockValues> blocks,
                          std::span<std::byte> out);
/// Writes a payload that says that a number is not finite, so there is no result.
std::size_t encode_blocks_not_finite(const BlockPayloadPlan& plan, std::span<std::byte> out);
/// Errors: KoloError(kInternal) if `payload` is not one of this plan.
bool blocks_are_finite(const BlockPayloadPlan& plan, std::span<const std::byte> payload);

/// The inverse: the values of `counts.size()` blocks with these numbers of values, side by side.
/// Errors: KoloError(kInternal) if `payload` does not fit this plan, or is of other blocks.
void decode_blocks(const BlockPayloadPlan& plan, std::span<const std::byte> payload,
                   std::span<const std::size_t> counts, std::span<float> values);

}  // namespace kolo
