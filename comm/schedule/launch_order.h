#pragma once

#include <cstdint>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

/// One order in which all ranks launch native steps, although buckets move at each rank's own pace.
///
/// A device runs collectives in the order of their launch, so two ranks that launch two of them in
/// different orders wait for each other forever. The first rank of a node therefore decides for
/// its node, by what is ready there: each launch gets the node's next number, which is the value of
/// the step's flag at the other ranks, and they launch by number. Steps of the whole world are
/// numbered by rank 0 in the same way, and the first rank of each other node is told by message.
///
///   first rank   RS a   RS b   AG a   AG b        flags of rank 1:  a.0 = 1  b.0 = 2  a.1 = 3 ...
///   rank 1       RS a   RS b   AG a   AG b        even if b was packed before a there
///
/// No circle: what the first rank launches is ready there, so each collective that it depends on
/// has been launched by all its members. (What the other ranks' steps depend on, the first rank's
/// does, too: the verifier sees to it.)
///
/// Threads: one, the transport's.
class LaunchOrder {
 public:
  LaunchOrder(Transport& transport, const ProcessGrid& grid);

  /// A native step of a bucket and what has been said about its current iteration.
  struct Launch {
    Launch(const Step& step, BucketId bucket, std::uint32_t first_flag);

    NativeGroup group;
    BucketId bucket;
    std::uint32_t flag;
    std::uint32_t ordinal;
    std::uint64_t world_number = 0;  ///< Sent or received by `turns`.
    std::vector<Completion> turns;   ///< To other nodes' first ranks, or from rank 0.
  };

  /// Before the first `take_turn` of an iteration.
  void begin(Launch& launch, std::uint64_t iteration);

  /// Whether this rank launches the step now, which is ready here; if so, the turn is taken.
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
