#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/payload.h"

namespace kolo {

/// How pairs are sent to all ranks. The result is the same on every route, bit for bit.
enum class ExchangeRoute : std::uint8_t {
  kAllGather,  ///< Every rank sends its pairs to all ranks; every rank computes all sums.
  kPairwise,   ///< Every rank sends pairs to each owner; owners send their sums to all ranks.
};
std::string_view to_string(ExchangeRoute route);

/// Returns the destination of message `step` of `rank`; `step` counts from 0 to ranks - 2. Each
/// rank sends first to rank + 1, then to rank + 2, and so on, so that no two ranks send to the same
/// rank at a time.
int pairwise_destination(int ranks, int rank, int step);

/// Assigns each element of a compressed bucket to an owner, the rank that sums it. Blocks are
/// assigned round-robin, so that large gradients load all owners equally. For 4 owners:
///
///     block      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
///     owner        0   1   2   3   0   1   2   3   0   1
///     local block  0   0   0   0   1   1   1   1   2   2
///
/// Equal on all ranks, fixed with the compressed bucket, and independent of other buckets.
///
/// Threads: pure; any.
class BlockOwnership {
 public:
  /// The block size is the largest power of two from 64 to 4096 elements that gives each owner at
  /// least 64 blocks, or 64 if no such size exists. Errors: UsageError unless owners > 0.
  BlockOwnership(std::size_t count, int owners);

  std::size_t count() const { return count_; }
  int owners() const { return static_cast<int>(owners_); }
  std::size_t block() const { return block_; }

  int owner(std::size_t element) const { return static_cast<int>(element / block_ % owners_); }
  /// Returns the element's index among its owner's elements; it ascends with the element.
  std::uint32_t local(std::size_t element) const {
    return static_cast<std::uint32_t>(element / (block_ * owners_) * block_ + element % block_);
  }
  /// The inverse of `local`.
  std::size_t element(int owner, std::uint32_t local) const {
    return (local / block_ * owners_ + static_cast<std::size_t>(owner)) * block_ + local % block_;
  }
  /// Return the number of an owner's elements, in total or below `end`.
  std::size_t local_count(int owner) const { return local_count_below(owner, count_); }
  std::size_t local_count_below(int owner, std::size_t end) const;
  /// The largest number of elements of any owner.
  std::size_t most_local() const { return local_count(0); }

 private:
  std::size_t count_;
  std::size_t owners_;
  std::size_t block_;
};

/// The rule that selects the sums that become part of the result. The result of a rule is the same
/// on every route, bit for bit; the rules differ in their results.
enum class QuotaRule : std::uint8_t {
  kQuota,     ///< Each owner keeps its largest sums of each tensor, as many as its share of the
              ///< tensor's pairs. The result has a fixed size and includes every tensor. Methods
              ///< that code sums send all sums back as codes.
  kLossless,  ///< Owners keep the sums of all elements that some rank sent. Methods that code sums
              ///< send them back as values of the wire dtype.
};

/// Returns the number of sums that an owner of `local_count` of `count` elements keeps under
/// kQuota: k in proportion, rounded up, so at density one all sums.
std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count);

/// The quota of one tensor at an owner. The tensor has the owner's indices below `end` that belong
/// to no earlier part.
struct QuotaPart {
  std::size_t end = 0;
  std::size_t quota = 0;
  friend bool operator==(const QuotaPart&, const QuotaPart&) = default;
};

/// Sums the pairs that all ranks send to one owner, in float32 and in ascending order of ranks, so
/// that results depend neither on the route nor on the order of arrival.
class OwnerSum {
 public:
  explicit OwnerSum(std::size_t local_count);

  /// Stores the first value of an element and adds later values to it. Errors: UsageError for an
  /// index that the owner does not have.
  void add(const Pairs& pairs);

  /// Moves the sums of all elements with a value to `sums`, ascending by index, and clears them.
  void take(Pairs& sums);

 private:
  std::vector<float> sums_;
  std::vector<std::uint64_t> touched_;  ///< One bit per element: it has a value.
};

/// Keeps the `quota` largest magnitudes of each part, in the order of indices; of equal magnitudes
/// the lower index is kept.
/// Before:  `sums` ascend by index; `parts` cover all indices. Threads: any; pure. `keys` is
///          scratch memory for at most sums.size() keys.
void keep_largest(Pairs& sums, std::span<const QuotaPart> parts, std::vector<std::uint32_t>& keys);

/// The steps of a sparse all-reduce of a compressed bucket as functions on one rank's buffers,
/// which a schedule calls between its messages:
///
///     every rank    prepare          values as receivers will see them
///                   split            a share for each owner           -> to the owners
///     every owner   OwnerSum         of all ranks' shares, in ascending rank
///                   keep_largest or nothing, by rule
///                                                            result -> to all ranks
///     every rank    returned         the pairs to subtract from the residual
///
/// On the all-gather route every rank computes all owners' results (`by_owner`), with the same
/// bits.
///
/// Outputs are written to the caller's memory, which is reused and does not grow after the largest
/// step or a reservation.
///
/// Threads: pure; any.

/// A run of elements of one tensor that one rank owns.
struct OwnedRun {
  std::size_t tensor = 0;
  std::size_t first = 0;  ///< Index of the run's first element in the tensor.
  std::size_t count = 0;
  std::size_t local = 0;    ///< Index of the run's first element among the owner's elements.
  std::size_t element = 0;  ///< Index of the run's first element among all elements of the plan.
};

/// The parameters of the exchange of a compressed bucket; equal on all ranks.
struct SparsePlan {
  std::vector<std::size_t> tensor_counts;
  int ranks = 1;
  std::size_t k = 0;  ///< Number of pairs that one rank sends, over all tensors.
  QuotaRule rule = QuotaRule::kQuota;
  DType wire = DType::kFloat16;  ///< As SparseOptions::wire.
  /// Numbers in the left and in the right factors of all tensors; 0 unless factors are sent.
  std::array<std::size_t, 2> factors = {};

  std::size_t count() const;
  BlockOwnership ownership() const { return {count(), ranks}; }
  /// Calls visit(run) for each run of elements that `owner` owns, in ascending order.
  template <typename Visit>
  void for_runs(int owner, const Visit& visit) const;
  /// Returns the plan of a rank's share for one owner; indices are the owner's.
  PayloadPlan share() const;
  /// Returns the plan of an owner's result, with float32 sums; indices are the owner's.
  PayloadPlan result() const;
  /// Returns the plan of all pairs of a rank, for the all-gather; indices are the bucket's.
  PayloadPlan contribution() const;
  /// Return the number of pairs in a share and in a result, on the assumption that a rank's pairs
  /// are spread evenly over the owners and no two ranks send the same element.
  std::size_t usual_share_pairs() const;
  std::size_t usual_result_pairs() const;

 private:
  /// Returns the largest number of pairs that an owner keeps under kQuota.
  std::size_t most_by_quota() const;
};

template <typename Visit>
void SparsePlan::for_runs(int owner, const Visit& visit) const {
  const BlockOwnership blocks = ownership();
  const std::size_t round = blocks.block() * static_cast<std::size_t>(ranks);
  std::size_t begin = 0;
  for (std::size_t t = 0; t < tensor_counts.size(); begin += tensor_counts[t++]) {
    const std::size_t end = begin + tensor_counts[t];
    std::size_t block = begin / round * round + blocks.block() * static_cast<std::size_t>(owner);
    for (; block < end; block += round) {
      const std::size_t first = std::max(block, begin);
      const std::size_t last = std::min(block + blocks.block(), end);
      if (first >= last) continue;
      visit(OwnedRun{.tensor = t,
                     .first = first - begin,
                     .count = last - first,
                     .local = blocks.local(first),
                     .element = first});
    }
  }
}

/// The pairs that one rank sends.
struct Contribution {
  std::vector<Pairs> tensors = {};  ///< Pairs by tensor; indices within the tensor.
  std::vector<int> exponents = {};  ///< Exponent of each tensor's values.
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

/// The pairs of a payload, with one segment per tensor.
struct Share {
  std::vector<PayloadSegment> segments = {};
  Pairs pairs = {};
};

/// The shares of all owners, one after the other; the pairs of each share ascend by index.
struct Shares {
  std::vector<PayloadSegment> segments = {};  ///< One per owner and tensor.
  std::vector<std::size_t> begins = {};       ///< Starts of owners' pairs, and the end of all.
  Pairs pairs = {};

  std::span<const PayloadSegment> segments_of(int owner) const;
  PairsView pairs_of(int owner) const;
};

/// Chooses each tensor's exponent by its largest value and rounds its selected values to the wire
/// dtype. The result of a tensor does not depend on other tensors of the bucket or payload.
void prepare(const SparsePlan& plan, Contribution& contribution);

/// Divides the pairs into one share per owner.
void split(const SparsePlan& plan, const Contribution& contribution, Shares& shares);
/// Writes all pairs to one share, with indices of the bucket.
void whole(const SparsePlan& plan, const Contribution& contribution, Share& share);

/// Distributes pairs with indices of the bucket over their owners, and converts the indices to
/// those of the owner.
void by_owner(const BlockOwnership& ownership, const Pairs& pairs, std::span<Pairs> owners);

/// Writes the quota of each tensor at one owner under kQuota to `parts`; indices are the owner's.
void quota_parts(const SparsePlan& plan, int owner, std::vector<QuotaPart>& parts);

/// Writes the pairs of the contribution whose elements are in the result to `tensors`, by tensor.
/// `results` holds the results of all owners, in order; `cursors` is scratch memory.
void returned(const SparsePlan& plan, const Contribution& contribution,
              std::span<const Pairs> results, std::vector<std::size_t>& cursors,
              std::span<Pairs> tensors);

}  // namespace kolo
