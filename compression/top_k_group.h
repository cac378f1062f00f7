#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/compressed_group.h"
#include "compression/owner_sum.h"

namespace kolo {

/// A compression group in which each rank sends its largest sums, as pairs of value and index.
class TopKGroup final : public CompressedGroup {
 public:
  TopKGroup(int rank, const ProcessGrid& grid, SparseOptions options);

  void encode(const CodecElements& contribution, Payloads payloads) override;
  void merge(Payloads sources, Payloads sum) override;
  void decode(Payloads results, const CodecElements& elements, double scale) override;

 private:
  void commit_sparse() override;
  void reserve();
  bool select();
  /// Selects from an owner's sums and encodes the selection.
  void finish_owner(int owner, Pairs& sums, std::span<std::byte> result);
  void put(int owner, const Pairs& result);

  const BlockOwnership ownership_;
  const PayloadPlan share_plan_, result_plan_, contribution_plan_;
  SparsePlan step_plan_;  // with the k of this step

  // Memory of a step.
  Contribution contribution_;
  Shares shares_;
  Share whole_;
  Pairs decoded_;
  OwnerSum sum_;
  Pairs sums_;                 // of this owner, or with the group's indices
  std::vector<Pairs> owners_;  // sums by owner, later results
  std::vector<Pairs> sent_;    // by part
  std::vector<std::uint32_t> keys_;
  std::vector<QuotaPart> quotas_;
  std::vector<std::size_t> cursors_;
  bool sum_is_finite_ = true;
};

}  // namespace kolo
