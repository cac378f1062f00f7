#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/block_plan.h"
#include "compression/compressed_group.h"

namespace kolo {

/// A compression group whose ranks all send the same blocks: those with the most energy in the sums
/// of all ranks.
///
///     encode   folds, and scores every block of this rank's sums
///     count · tally · narrow   adds up the scores of all ranks: the choice
///     finish   sends the values of the chosen blocks to the owners of their sums
///     merge · decode   sums in the order of ranks, and puts sums back in their places
///
/// The score of a block is its sum of squares. For a given number of blocks this choice leaves the
/// least energy in the residuals of all ranks together; a choice by magnitudes would not.
///
/// Source: chunks chosen by an all-reduced norm as in CSC: Sun, Feng, Han, Yan and Wen, 2019.
class BlockGroup final : public CompressedGroup {
 public:
  BlockGroup(int rank, const ProcessGrid& grid, SparseOptions options);

  void encode(const CodecElements& contribution, Payloads payloads) override;
  void count(std::uint32_t round, Payloads counts) override;
  void tally(Payloads sources, std::span<std::byte> sum) override;
  void narrow(std::uint32_t round, Payloads counts) override;
  void finish(Payloads results) override;
  void merge(Payloads sources, Payloads sum) override;
  void decode(Payloads results, const CodecElements& elements, double scale) override;

 private:
  /// A chosen block.
  struct Chosen {
    std::size_t part = 0;
    std::size_t element = 0;  ///< Its first element in the part.
    std::size_t count = 0;
    std::size_t position = 0;  ///< Place of its first value among all chosen ones.
    int exponent = 0;          ///< Exponent of this rank's values.

    std::size_t end() const { return position + count; }
  };

  void commit_sparse() override;
  /// Fills `chosen_` from the scores of all ranks.
  void choose();
  /// Rounds this rank's values of the chosen blocks to the wire.
  void round_values();
  /// Calls visit(block, Extent) for the values of each block that an owner has.
  template <typename Visit>
  void for_blocks_of(int owner, Visit visit) const;
  /// Rounds this owner's sums to the wire on which they return.
  void round_sums();
  Extent own_extent() const { return plan_.dealt(layout_.position, values_); }

  const BlockPlan plan_;
  const BlockPayloadPlan share_plan_, result_plan_;

  // Memory of a step.
  std::vector<float> scores_;  // of this rank, later of all together
  std::vector<std::uint32_t> keys_, numbers_;
  std::vector<Chosen> chosen_;  // ascending
  std::size_t values_ = 0;      // of all chosen blocks
  bool scores_are_finite_ = true;
  std::vector<float> sent_;  // this rank's values, as the owners see them
  std::vector<BlockValues> payload_;
  std::vector<std::size_t> counts_;
  std::vector<float> decoded_, sums_, rounding_;  // of one owner
  std::vector<ValueRun> sent_runs_, kept_runs_;
};

}  // namespace kolo
