#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/block_ownership.h"
#include "compression/owner_quota.h"
#include "compression/payload.h"

namespace kolo {

/// The steps of a sparse all-reduce, as functions of one rank's buffers: what a schedule calls
/// between its messages. For one group of tensors:
///
///     every rank    prepare          values as receivers will see them
///                   split            a share for each owner           -> to the owners
///     every owner   OwnerSum         of all ranks' shares, in ascending rank
///                   keep_largest, GlobalThreshold or nothing, by rule
///                   round_result     to the wire of the way back      -> to all ranks
///     every rank    returned         what has left the residual, by all owners' results
///
/// Along the pairwise and the log-step route the same payloads reach the owners, and by all-gather
/// every rank does what the owners do (`by_owner`): the bits are the same.
///
/// What they write is the caller's memory, which is reused: what has had the largest step once, or
/// was reserved, does not grow again.
///
/// Threads: pure; any.

/// Fixed when the group is: equal on all ranks.
struct SparsePlan {
  std::vector<std::size_t> tensor_counts;
  int ranks = 1;
  std::size_t k = 0;  ///< Pairs of one rank, of all tensors.
  QuotaRule rule = QuotaRule::kQuota;
  DType wire = DType::kFloat16;         ///< Of the values on their way to the owners.
  DType result_wire = DType::kFloat32;  ///< On their way back.

  std::size_t count() const;
  BlockOwnership ownership() const { return {count(), ranks}; }
  /// Of a rank's share for one owner; indices are the owner's.
  PayloadPlan share() const;
  /// Of an owner's result; indices are the owner's.
  PayloadPlan result() const;
  /// Of all that a rank sends, for the all-gather; indices are the group's.
  PayloadPlan contribution() const;
  /// Pairs in a share and in a result, if a rank's are spread evenly over the owners and no two
  /// ranks send the same element.
  std::size_t usual_share_pairs() const;
  std::size_t usual_result_pairs() const;
};

/// What one rank sends.
struct Contribution {
  std::vector<Pairs> tensors = {};  ///< Indices within the tensor.
  std::vector<int> exponents = {};  ///< Of each tensor's values.
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

/// Pairs of a payload, and how many are each tensor's.
struct Share {
  std::vector<PayloadSegment> segments = {};
  Pairs pairs = {};
};

/// The shares of all owners: theirs one after the other, in ascending order of pairs in each.
struct Shares {
  std::vector<PayloadSegment> segments = {};  ///< One for each owner and tensor.
  std::vector<std::size_t> begins = {};       ///< Of each owner's pairs; and the end of all.
  Pairs pairs = {};

  std::span<const PayloadSegment> segments_of(int owner) const;
  PairsView pairs_of(int owner) const;
};

/// Chooses each tensor's exponent by its largest value and rounds its values, those that were
/// selected, to the wire. A tensor's bits do not depend on which tensors share its group or its
/// payload.
void prepare(const SparsePlan& plan, Contribution& contribution);

/// One share per owner.
void split(const SparsePlan& plan, const Contribution& contribution, Shares& shares);
/// All of it as one share, with the group's indices.
void whole(const SparsePlan& plan, const Contribution& contribution, Share& share);

/// Pairs with the group's indices, told apart by owner, with the owners' indices.
void by_owner(const BlockOwnership& ownership, const Pairs& pairs, std::span<Pairs> owners);

/// The pairs to keep under kQuota, by one owner.
std::size_t quota_of(const SparsePlan& plan, int owner);

/// Rounds an owner's sums to the wire of the way back; what that took away is the owner's to send
/// later: `rounding`, with the owner's indices. The sums become what receivers will see. Returns
/// the exponent of their values.
int round_result(const SparsePlan& plan, Pairs& sums, Pairs& rounding);

/// Those pairs of the contribution whose element is in the result, per tensor. `results` are those
/// of all owners, in order; `cursors` is scratch memory.
void returned(const SparsePlan& plan, const Contribution& contribution,
              std::span<const Pairs> results, std::vector<std::size_t>& cursors,
              std::span<Pairs> tensors);

/// An owner's pairs as pairs of the tensors they belong to.
void by_tensor(const SparsePlan& plan, int owner, const PairsView& pairs, std::span<Pairs> tensors);

}  // namespace kolo
