#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/collective/chunking.h"
#include "compression/block_payload.h"

namespace kolo {

/// Which blocks of elements a group sends, chosen by all ranks together; equal on all of them.
///
/// A tensor is cut into blocks from its first element on, so that the last one may be shorter. A
/// density keeps so many of each tensor's blocks, whatever is around it. The values of those that
/// are chosen, side by side in the order of elements, are dealt evenly to the ranks, who own their
/// sums: no owner has more to do than another, wherever large sums lie.
///
///     elements   | block 0 | block 1 | block 2 | block 3 | 4 |
///     chosen                    x                   x
///     dealt                | 0  | 1  |         | 2  | 3  |        to 4 owners
///
/// Threads: pure; any.
struct BlockPlan {
  std::vector<std::size_t> tensor_counts = {};
  std::size_t block = 256;
  double density = 0.01;  ///< The largest there will be.
  int ranks = 1;
  DType wire = DType::kFloat16;         ///< Of the values on their way to the owners.
  DType result_wire = DType::kFloat32;  ///< On their way back.

  std::size_t blocks_of(std::size_t tensor) const;
  /// Of all tensors.
  std::size_t blocks() const;
  /// Values, and their blocks, that are chosen at most.
  std::size_t most_values() const;
  std::size_t most_blocks() const;
  /// Which of `values`, by number, an owner has. Of fewer values no owner has more.
  Extent dealt(int owner, std::size_t values) const;

  /// Of a rank's values for one owner.
  BlockPayloadPlan share() const { return payload(wire); }
  /// Of an owner's sums.
  BlockPayloadPlan result() const { return payload(result_wire); }

 private:
  BlockPayloadPlan payload(DType dtype) const;
};

/// The numbers of the `k` blocks of largest score, ascending: of equal scores the lower number, and
/// NaN above all.
///
/// Before:  k <= scores.size(); no score is below zero. Threads: pure; any. `keys` is scratch
///          memory, see `nth_largest_key`.
void choose_blocks(std::span<const float> scores, std::size_t k, std::vector<std::uint32_t>& keys,
                   std::vector<std::uint32_t>& chosen);

}  // namespace kolo
