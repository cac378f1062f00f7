#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/block_ownership.h"
#include "compression/owner_quota.h"
#include "compression/payload.h"

namespace kolo {

/// The steps of a sparse all-reduce as functions of one rank's buffers, which a schedule calls
/// between its messages. For one group of tensors:
///
///     every rank    prepare          values as receivers will see them
///                   split            a share for each owner           -> to the owners
///     every owner   OwnerSum         of all ranks' shares, in ascending rank
///                   keep_largest or nothing, by rule
///                                                            result -> to all ranks
///     every rank    returned         what has left the residual, by all owners' results
///
/// On the pairwise and the log-step route the same payloads reach the owners. By all-gather every
/// rank computes as the owners do (`by_owner`). The bits are the same.
///
/// Outputs are the caller's memory, which is reused and does not grow after the largest step or a
/// reservation.
///
/// Threads: pure; any.

/// Fixed with the group; equal on all ranks.
struct SparsePlan {
  std::vector<std::size_t> tensor_counts;
  int ranks = 1;
  std::size_t k = 0;  ///< Number of pairs of one rank, over all tensors.
  QuotaRule rule = QuotaRule::kQuota;
  DType wire = DType::kFloat16;  ///< Dtype of values on their way to the owners.

  std::size_t count() const;
  BlockOwnership ownership() const { return {count(), ranks}; }
  /// The plan of a rank's share for one owner; indices are the owner's.
  PayloadPlan share() const;
  /// The plan of an owner's result, of float32 sums; indices are the owner's.
  PayloadPlan result() const;
  /// The plan of all pairs of a rank, for the all-gather; indices are the group's.
  PayloadPlan contribution() const;
  /// Number of pairs in a share and in a result if a rank's pairs are spread evenly over the owners
  /// and no two ranks send the same element.
  std::size_t usual_share_pairs() const;
  std::size_t usual_result_pairs() const;

 private:
  /// The most pairs that an owner keeps under kQuota: rounded up for each tensor.
  std::size_t most_by_quota() const;
};

/// The pairs that one rank sends.
struct Contribution {
  std::vector<Pairs> tensors = {};  ///< Indices within the tensor.
  std::vector<int> exponents = {};  ///< Exponent of each tensor's values.
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

/// The pairs of a payload, and the number of each tensor.
struct Share {
  std::vector<PayloadSegment> segments = {};
  Pairs pairs = {};
};

/// The shares of all owners in succession, each in ascending order of pairs.
struct Shares {
  std::vector<PayloadSegment> segments = {};  ///< One for each owner and tensor.
  std::vector<std::size_t> begins = {};       ///< Start of each owner's pairs, and the end of all.
  Pairs pairs = {};

  std::span<const PayloadSegment> segments_of(int owner) const;
  PairsView pairs_of(int owner) const;
};

/// Chooses each tensor's exponent by its largest value and rounds its selected values to the wire.
/// The bits of a tensor do not depend on which tensors share its group or its payload.
void prepare(const SparsePlan& plan, Contribution& contribution);

/// One share per owner.
void split(const SparsePlan& plan, const Contribution& contribution, Shares& shares);
/// All pairs as one share, with the group's indices.
void whole(const SparsePlan& plan, const Contribution& contribution, Share& share);

/// Divides pairs with the group's indices by owner and gives them the owners' indices.
void by_owner(const BlockOwnership& ownership, const Pairs& pairs, std::span<Pairs> owners);

/// The pairs that one owner keeps of each tensor under kQuota; indices are the owner's. `parts` is
/// the caller's memory.
void quota_parts(const SparsePlan& plan, int owner, std::vector<QuotaPart>& parts);

/// The pairs of the contribution whose elements are in the result, by tensor. `results` are those
/// of all owners, in order; `cursors` is scratch memory.
void returned(const SparsePlan& plan, const Contribution& contribution,
              std::span<const Pairs> results, std::vector<std::size_t>& cursors,
              std::span<Pairs> tensors);

}  // namespace kolo
