#pragma once

#include <string>
#include <vector>

#include "comm/collective/chunking.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// What one stage of a collective works on.
struct Stage {
  std::vector<int> group;  ///< Ranks, in the order in which contributions are summed.
  Extent extent;  ///< Elements of the bucket, present in the bucket of every rank of the group.
  bool finishes = true;  ///< Nothing is added after this stage, so it applies the scale.
  Sink sink = Sink::kUser;
  /// Which share of the sums between nodes each node makes, by node; empty: equal ones. Only
  /// `direct` between groups of one rank per node heeds it.
  std::vector<double> node_shares = {};

  std::size_t size() const { return group.size(); }
  /// Index of `rank` in the group. Errors: internal if it is not in it.
  std::size_t position(int rank) const;
};

/// An algorithm appends the steps of one stage to the schedule of `builder.rank()`. It is a pure
/// function: all ranks of the group call it with equal stages, in the same order.
///
/// After it, `sink` holds the combined extent on every rank of the group: equal bytes everywhere.
/// Threads: pure; any.
using AllReduce = void (*)(ScheduleBuilder& builder, const Stage& stage);

/// The two halves of an all-reduce. Between them, the rank at position p holds the combined
/// `part_of(extent, size, p)` in its bucket and the other parts of its bucket are unspecified.
struct ScatterGather {
  void (*reduce_scatter)(ScheduleBuilder& builder, const Stage& stage);
  void (*all_gather)(ScheduleBuilder& builder, const Stage& stage);
};

/// Cost of each for n ranks and S bytes, per rank: messages sent; bytes sent.
///
///   ring               2(n-1)            2(n-1)/n S     neighbours only
///   direct             2(n-1)            2(n-1)/n S     two rounds; sums in group order
///   halving_doubling   2 log2 n          2(n-1)/n S     + S and a hop each way unless n = 2^k
///   tree               log2 n (root)     log2 n S       2 log2 n rounds
///   flat               n-1               (n-1) S        one round; sums in group order
void append_ring(ScheduleBuilder& builder, const Stage& stage);
void append_direct(ScheduleBuilder& builder, const Stage& stage);
void append_halving_doubling(ScheduleBuilder& builder, const Stage& stage);
void append_tree(ScheduleBuilder& builder, const Stage& stage);
/// Ranks of one node read each other's contribution instead of sending it: one flag per pair.
void append_flat(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid);

/// `direct` for a bucket in place, between ranks of one node: no message, two flags per pair. The
/// owner of a part writes the sum to all buckets.
/// Cost: each byte of a bucket is read once and written once, by whichever rank.
void append_shared_direct(ScheduleBuilder& builder, const Stage& stage);

/// `direct` for a bucket in the caller's tensors, between ranks of one node: chunk by chunk,
/// through `window` slots of staging memory that are used in turn. Only what peers sum is packed.
/// `stages` are all chunks of the bucket. Two flags per pair and chunk.
void append_windowed_direct(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                            std::size_t window);

extern const ScatterGather kRing;
/// By messages, between any ranks.
extern const ScatterGather kDirect;
/// By reading each other's bucket, between ranks of one node: no message, three flags per pair. For
/// a whole all-reduce see `append_shared_direct`.
extern const ScatterGather kSharedDirect;
/// By the device's own library, between ranks of one node: device buckets whose extents are
/// multiples of `device_padding`.
extern const ScatterGather kNative;

/// One all-reduce of the device's own library over all ranks, which are the stage's group.
void append_native(ScheduleBuilder& builder, const Stage& stage);

/// Sums inside each node, then between nodes, then spreads inside each node: `local`
/// reduce-scatter, `cross` all-reduce of each rank's part over all nodes, `local` all-gather. Nodes
/// may differ in size: a part is cut wherever any node's parts are cut, and each piece is summed
/// among the ranks that own it. The stage's group must be all ranks of `grid`.
void append_hierarchical(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                         const ScatterGather& local, AllReduce cross);

/// The same for several stages of one bucket, one after the other, in the order in which a device
/// launches their local halves: the exchange of one unit between nodes overlaps those of the next.
///
///   reduce-scatter 0, reduce-scatter 1, all-gather 0, reduce-scatter 2, all-gather 1, ...
void append_pipelined_hierarchical(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                                   const ProcessGrid& grid, const ScatterGather& local,
                                   AllReduce cross);

/// Copies the root's extent to the user of every rank: along a binomial tree between nodes, by
/// reading one bucket inside each.
void append_broadcast(ScheduleBuilder& builder, Extent extent, int root, const ProcessGrid& grid);

/// The same for a device bucket: inside each node every rank gets a part by message, and the
/// device's own library gathers the parts. Source: Barnett et al., InterCom, SHPCC 1994.
void append_device_broadcast(ScheduleBuilder& builder, Extent extent, int root,
                             const ProcessGrid& grid);

}  // namespace kolo
