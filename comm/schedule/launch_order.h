#pragma once

#include <cstdint>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

/// Makes all ranks launch native steps in the same order, although buckets differ in speed.
///
/// A device runs collectives in launch order. If two ranks launched two collectives in different
/// orders, the ranks would deadlock. Therefore the first rank of each node decides the order for
/// its node: it numbers native steps as they become ready on it, and signals each number to the
/// node's other ranks as the value of the step's flag. These ranks launch steps in the order of the
/// numbers. Rank 0 numbers the steps of NativeGroup::kWorld in the same way, and sends the numbers
/// to the first rank of each other node by message.
///
///   first rank   RS a   RS b   AG a   AG b        flags of rank 1:  a.0 = 1  b.0 = 2  a.1 = 3 ...
///   rank 1       RS a   RS b   AG a   AG b        even if b was packed before a on rank 1
///
/// There is no deadlock: a step that the first rank launches is ready on it, so all ranks have
/// launched every collective that the step depends on. (The verifier checks that the first rank's
/// step depends on everything that the other ranks' steps depend on.)
///
/// Threads: one, the transport's.
class LaunchOrder {
 public:
  LaunchOrder(Transport& transport, const ProcessGrid& grid);

  /// A native step of a bucket and the launch state of its current iteration.
  struct Launch {
    Launch(const Step& step, BucketId bucket, std::uint32_t first_flag);

    NativeGroup group;
    BucketId bucket;
    std::uint32_t flag;
    std::uint32_t ordinal;
    std::uint64_t world_number = 0;  ///< The step's number in the order of rank 0.
    std::vector<Completion> turns;   ///< Messages with `world_number`, from rank 0.
  };

  /// Begins an iteration of the step. Call it before the first `take_turn` of the iteration.
  void begin(Launch& launch, std::uint64_t iteration);

  /// Whether the step is next in the launch order. If so, counts it as launched, and the caller
  /// launches it now. Before: the step is ready on this rank.
  bool take_turn(Launch& launch, std::uint64_t iteration);

  /// Whether messages of the launch are still in flight.
  static bool busy(const Launch& launch);

 private:
  bool is_first_of_node() const { return rank_ == node_ranks_.front(); }
  bool is_next_of_world(Launch& launch, std::uint64_t iteration);
  Tag tag(const Launch& launch, std::uint64_t iteration) const;

  Transport& transport_;
  int rank_;
  std::vector<int> node_ranks_;
  std::vector<int> other_first_ranks_;  // first ranks of the nodes other than rank 0's
  std::uint64_t node_launches_ = 0;
  std::uint64_t world_launches_ = 0;
};

}  // namespace kolo
