#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/collective/chunking.h"
#include "compression/block_payload.h"

namespace kolo {

/// The blocks of elements that a group sends, chosen by all ranks together; equal on all of them.
///
/// A tensor is cut into blocks from its first element, so its last block may be shorter. A density
/// keeps the same share of each tensor's blocks, whatever other tensors there are. The values of
/// the chosen blocks, side by side in element order, are dealt evenly to the ranks, who own their
/// sums: no owner has more work than another, wherever large sums lie.
///
///     elements   | block 0 | block 1 | block 2 | block 3 | 4 |
///     chosen                    x                   x
///     dealt                | 0  | 1  |         | 2  | 3  |        to 4 owners
///
/// Threads: pure; any.
struct BlockPlan {
  std::vector<std::size_t> tensor_counts = {};
  std::size_t block = 256;
  double density = 0.01;  ///< The largest density of any step.
  int ranks = 1;
  DType wire = DType::kFloat16;         ///< Dtype of values on their way to the owners.
  DType result_wire = DType::kFloat32;  ///< Dtype of sums on their way back.

  std::size_t blocks_of(std::size_t tensor) const;
  /// Number of blocks of all tensors.
  std::size_t blocks() const;
  /// The largest number of chosen values, and of their blocks.
  std::size_t most_values() const;
  std::size_t most_blocks() const;
  /// The range of `values`, by index, that an owner has. With fewer values no owner has more.
  Extent dealt(int owner, std::size_t values) const;

  /// The plan of payloads from a rank to one owner.
  BlockPayloadPlan share() const { return payload(wire); }
  /// The plan of payloads of an owner's sums.
  BlockPayloadPlan result() const { return payload(result_wire); }

 private:
  BlockPayloadPlan payload(DType dtype) const;
};

/// The indices of the `k` blocks with the largest scores, ascending. Among equal scores the lower
/// index wins; NaN is above all.
///
/// Before:  k <= scores.size(); no score is below zero. Threads: pure; any. `keys` is scratch
///          memory, see `nth_largest_key`.
void choose_blocks(std::span<const float> scores, std::size_t k, std::vector<std::uint32_t>& keys,
                   std::vector<std::uint32_t>& chosen);

}  // namespace kolo
