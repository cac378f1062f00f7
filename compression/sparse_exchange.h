#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/base/dtype.h"
#include "compression/payload.h"

namespace kolo {

/// How pairs travel to all ranks. The route changes no bit of the result.
enum class ExchangeRoute : std::uint8_t {
  kAllGather,  ///< Every rank's pairs go to every rank; all ranks compute what owners would.
  kPairwise,   ///< Through owners, directly to each of them.
  kLogStep,    ///< Through owners, in log2(ranks) rounds each way.
};
std::string_view to_string(ExchangeRoute route);

/// The messages that carry a payload from every rank to every other rank.
///
/// Pairwise: each payload goes directly to its destination, first to rank + 1, then to rank + 2,
/// and so on, so that no two ranks send to the same rank at a time. Each rank sends ranks - 1
/// messages; no byte is sent twice.
///
/// Log-step: in round b a rank forwards, to rank + 2^b, the payloads with bit b set in their
/// remaining distance. Fewer messages; each byte is sent about log2(ranks) / 2 times. For 4 ranks,
/// from rank 0:
///
///     distance        1        2        3
///     round 0      0 -> 1             0 -> 1
///     round 1               0 -> 2    1 -> 3
///
/// Payloads stay whole and separate, so the owner adds the same numbers in the same order.
///
/// Threads: pure; any.
/// Source:  Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8(11), 1997.

struct Forward {
  int source = 0;
  int destination = 0;
  friend bool operator==(const Forward&, const Forward&) = default;
};

/// Destination of message `step` of `rank`, of ranks - 1 messages counted from 0.
int pairwise_destination(int ranks, int rank, int step);

/// ceil(log2(ranks)).
int log_step_rounds(int ranks);
/// Destination of `rank` in `round`.
int log_step_peer(int ranks, int rank, int round);
/// The payloads that `rank` sends to that peer in one message, in ascending distance. It has
/// received them in earlier rounds, or is their source.
std::vector<Forward> log_step_forwards(int ranks, int rank, int round);

/// Assigns the elements of a compressed bucket to the owners of their sums. Blocks are assigned
/// round-robin, so that adjacent tensors with large gradients load all owners alike. For 4 owners:
///
///     block      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
///     owner        0   1   2   3   0   1   2   3   0   1
///     local block  0   0   0   0   1   1   1   1   2   2
///
/// Equal on all ranks, fixed with the group's tensors, and independent of fusion.
///
/// Threads: pure; any.
class BlockOwnership {
 public:
  /// The block size is the largest power of two from 64 to 4096 elements that gives each owner 64
  /// blocks, or else 64. Errors: UsageError unless owners > 0.
  BlockOwnership(std::size_t count, int owners);

  std::size_t count() const { return count_; }
  int owners() const { return static_cast<int>(owners_); }
  std::size_t block() const { return block_; }

  int owner(std::size_t element) const { return static_cast<int>(element / block_ % owners_); }
  /// The element's index among its owner's elements; ascends with the element.
  std::uint32_t local(std::size_t element) const {
    return static_cast<std::uint32_t>(element / (block_ * owners_) * block_ + element % block_);
  }
  /// The inverse of `local`.
  std::size_t element(int owner, std::uint32_t local) const {
    return (local / block_ * owners_ + static_cast<std::size_t>(owner)) * block_ + local % block_;
  }
  /// Number of elements of an owner, in total or below `end`.
  std::size_t local_count(int owner) const { return local_count_below(owner, count_); }
  std::size_t local_count_below(int owner, std::size_t end) const;
  /// The largest number of elements of any owner.
  std::size_t most_local() const { return local_count(0); }

 private:
  std::size_t count_;
  std::size_t owners_;
  std::size_t block_;
};

/// Which sums become part of the result. Each rule gives the same bits on every route; the rules
/// differ from each other.
enum class QuotaRule : std::uint8_t {
  kQuota,     ///< Each owner keeps its largest sums of each tensor, its fair share of the tensor's
              ///< pairs: a result of fixed size, in which no tensor starves beside a larger one.
  kLossless,  ///< Every sum of an element that some rank sent.
};

/// Number of sums that an owner of `local_count` of `count` elements keeps under kQuota: k in
/// proportion, rounded up, so at density one it is all of them.
std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count);

/// A tensor's part of an owner's quota: the indices below `end` that belong to no earlier part.
struct QuotaPart {
  std::size_t end = 0;
  std::size_t quota = 0;
  friend bool operator==(const QuotaPart&, const QuotaPart&) = default;
};

/// Sums the pairs that all ranks send to one owner, in float32 and ascending rank, so the bits do
/// not depend on the route or time of arrival.
///
/// Memory:  4 bytes and one bit per element of the owner. Threads: one.
class OwnerSum {
 public:
  explicit OwnerSum(std::size_t local_count);

  /// Stores the first value of an element and adds later ones. Errors: UsageError for an index that
  /// the owner does not have.
  void add(const Pairs& pairs);

  /// Moves the sums of all elements with a value to `sums`, in ascending order, and starts anew.
  void take(Pairs& sums);

 private:
  std::vector<float> sums_;
  std::vector<std::uint64_t> touched_;  ///< One bit per element.
};

/// Keeps the `quota` largest magnitudes of each part, preferring the lower index among equal ones,
/// in order.
/// Before:  sums in ascending order; `parts` cover all indices. Threads: any; pure. `keys` is
///          scratch memory for at most sums.size() keys.
void keep_largest(Pairs& sums, std::span<const QuotaPart> parts, std::vector<std::uint32_t>& keys);

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
/// On the pairwise and the log-step route, owners receive the same payloads. By all-gather every
/// rank computes what owners would (`by_owner`). The bits are the same.
///
/// Outputs are written to the caller's memory, which is reused and does not grow after the largest
/// step or a reservation.
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
  /// Number of pairs in a share and in a result, if a rank's pairs are spread evenly over the
  /// owners and no two ranks send the same element.
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
  std::vector<PayloadSegment> segments = {};  ///< One per owner and tensor.
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

/// Distributes pairs, whose indices are the group's, over their owners, and converts the indices to
/// those of the owner.
void by_owner(const BlockOwnership& ownership, const Pairs& pairs, std::span<Pairs> owners);

/// The number of pairs of each tensor that one owner keeps under kQuota; indices are the owner's.
/// `parts` is the caller's memory.
void quota_parts(const SparsePlan& plan, int owner, std::vector<QuotaPart>& parts);

/// The pairs of the contribution whose elements are in the result, by tensor. `results` holds the
/// results of all owners, in order; `cursors` is scratch memory.
void returned(const SparsePlan& plan, const Contribution& contribution,
              std::span<const Pairs> results, std::vector<std::size_t>& cursors,
              std::span<Pairs> tensors);

}  // namespace kolo
