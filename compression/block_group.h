#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/block_plan.h"
#include "compression/compressed_group.h"

namespace kolo {

/// A compression group whose ranks send the same blocks: those with most energy in the sums of all
/// ranks together.
///
///     encode   folds, and scores every block of this rank's sums
///     count · tally · narrow   scores of all ranks, added up: the choice
///     finish   the chosen blocks' values, to those who own their sums
///     merge · decode   sums in the order of ranks, and back to their places
///
/// A block's score is its sum of squares. What all ranks together then keep in their residuals has
/// the least energy that so many blocks allow: with magnitudes it would not.
///
/// Source:  chunks chosen by an all-reduced norm as in CSC: Sun, Feng, Han, Yan and Wen, 2019.
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
  /// A block that all ranks have chosen.
  struct Chosen {
    std::size_t part = 0;
    std::size_t element = 0;  ///< Its first one, of the part's.
    std::size_t count = 0;
    std::size_t position = 0;  ///< Of its first value, among all that were chosen.
    int exponent = 0;          ///< Of this rank's values.

    std::size_t end() const { return position + count; }
  };

  void commit_sparse() override;
  /// Makes `chosen_` of the scores of all ranks.
  void choose();
  /// Rounds this rank's values of what is chosen to the wire.
  void round_values();
  /// Calls visit(block, Extent): what of an owner's values is of this block, by its values.
  template <typename Visit>
  void for_blocks_of(int owner, Visit visit) const;
  /// Rounds this owner's sums to the wire of the way back.
  void round_sums();
  Extent own_extent() const { return plan_.dealt(layout_.position, values_); }

  const BlockPlan plan_;
  const BlockPayloadPlan share_plan_, result_plan_;

  // Memory of a step.
  std::vector<float> scores_;  // of this rank, then of all together
  std::vector<std::uint32_t> keys_, numbers_;
  std::vector<Chosen> chosen_;  // ascending
  std::size_t values_ = 0;      // of all that are chosen
  bool scores_are_finite_ = true;
  std::vector<float> sent_;  // this rank's values, as the owners see them
  std::vector<BlockValues> payload_;
  std::vector<std::size_t> counts_;
  std::vector<float> decoded_, sums_, rounding_;  // of one owner
  std::vector<ValueRun> sent_runs_, kept_runs_;
};

}  // namespace kolo
