#pragma once

#include <cstdint>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

/// A common order in which all ranks launch native steps, although buckets advance at different
/// paces.
///
/// A device runs collectives in launch order, so two ranks that launch two collectives in different
/// orders would deadlock. Therefore the first rank of a node decides for its node, by what is ready
/// on that rank: each launch gets the node's next number, which is signalled as the value of the
/// step's flag to the other ranks, and they launch by number. Rank 0 numbers steps of the whole
/// world in the same way, and tells the first rank of each other node by message.
///
///   first rank   RS a   RS b   AG a   AG b        flags of rank 1:  a.0 = 1  b.0 = 2  a.1 = 3 ...
///   rank 1       RS a   RS b   AG a   AG b        even if b was packed before a there
///
/// This cannot deadlock: a step that the first rank launches is ready there, so all members have
/// launched every collective that it depends on. (The verifier ensures that the first rank's step
/// depends on everything that the other ranks' steps depend on.)
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
    std::uint64_t world_number = 0;  ///< Sent or received through `turns`.
    std::vector<Completion> turns;   ///< Messages to other nodes' first ranks, or from rank 0.
  };

  /// Call before the first `take_turn` of an iteration.
  void begin(Launch& launch, std::uint64_t iteration);

  /// Whether this rank launches the step now; if so, takes the turn. Before: the step is ready
  /// here.
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
  std::vector<int> other_first_ranks_;  // of the nodes without rank 0
  std::uint64_t node_launches_ = 0;
  std::uint64_t world_launches_ = 0;
};

}  // namespace kolo
