#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/host_links.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// The input of one stage of a collective.
struct Stage {
  std::vector<int> group;  ///< Ranks, in the order in which contributions are summed.
  Extent extent;  ///< Elements of the bucket, present in the bucket of every rank of the group.
  bool finishes = true;  ///< Nothing is added after this stage, so it applies the scale.
  Sink sink = Sink::kUser;
  /// Each node's share of the sums that are made between nodes; empty: equal shares. Used only by
  /// an algorithm with `takes_shares`, between groups of one rank per node.
  std::vector<double> node_shares = {};

  std::size_t size() const { return group.size(); }
  /// Index of `rank` in the group. Errors: internal if it is not in it.
  std::size_t position(int rank) const;
};

/// Part `index` of the stage's extent, in the bucket of `rank`. If nodes have shares and the group
/// has one rank per node, the part is that node's share.
inline Range part_at(const ScheduleBuilder& builder, const Stage& stage, int rank,
                     std::size_t index) {
  const DType dtype = builder.layout().dtype;
  const Extent part = stage.node_shares.size() == stage.size()
                          ? share_of(stage.extent, stage.node_shares, index, dtype)
                          : part_of(stage.extent, stage.size(), index, dtype);
  return builder.bucket_of(rank, part.offset, part.count);
}

/// Calls visit(position) for every other position, starting after our own so that ranks begin with
/// different peers.
template <typename Visit>
void for_each_peer(const Stage& stage, std::size_t own, Visit visit) {
  for (std::size_t i = 1; i < stage.size(); ++i) visit((own + i) % stage.size());
}

/// Packs the parts of a stage, unless the bucket is in place, in the order in which this rank sends
/// them: the part of the next rank first (`send_order` 1), or that of the previous rank (-1). This
/// rank's own part comes last.
inline void load_parts(ScheduleBuilder& builder, const Stage& stage, int send_order) {
  const std::size_t own = stage.position(builder.rank());
  const std::size_t stride = send_order > 0 ? 1 : stage.size() - 1;
  for (std::size_t i = 1; i <= stage.size(); ++i) {
    const std::size_t owner = (own + i * stride) % stage.size();
    builder.load(part_at(builder, stage, builder.rank(), owner));
  }
}

/// Appends the steps of one stage to the schedule of `builder.rank()`. All ranks of the group call
/// it with equal stages, in the same order.
///
/// Afterwards `sink` holds the combined extent on every rank of the group, with equal bytes.
/// Threads: pure; any.
using AppendStage = void (*)(ScheduleBuilder& builder, const Stage& stage);

/// The price of an all-reduce of a chunk of `bytes` in host memory among all ranks of `links`.
/// Threads: pure; any.
using HostPrice = StageCost (*)(const HostLinks& links, double bytes);

/// A set of kinds of memory, such as those that an algorithm supports.
struct Memories {
  bool host = false;
  bool device = false;

  bool has(MemoryKind kind) const { return kind == MemoryKind::kHost ? host : device; }
};

/// The two halves of an all-reduce inside a node, for a hierarchy. Between them, the rank at
/// position p holds the combined `part_of(extent, size, p)` in its bucket and the other parts of
/// its bucket are unspecified.
struct IntraNodePhases {
  AppendStage reduce_scatter;
  AppendStage all_gather;
  /// The price of both halves in host memory; null if they do not support host memory.
  HostPrice host_price = nullptr;
  /// The time of one half of a unit in device memory, on a node of `ranks` ranks; null if the
  /// halves do not support device memory.
  double (*device_half_us)(const LinkCosts& costs, double ranks, double bytes) = nullptr;

  Memories memories() const { return {host_price != nullptr, device_half_us != nullptr}; }
};

/// An all-reduce that treats all ranks alike: its name, steps, price and limits, defined in the
/// file that defines its steps. Two of them make a hierarchy; see all_reduce.h.
struct FlatAllReduce {
  std::string_view name;
  Memories memories;     ///< Kinds of memory whose buckets it can sum.
  Memories auto_choice;  ///< Kinds of memory for which "auto" considers it.
  /// The largest bucket for which "auto" considers it.
  std::size_t auto_most_bytes = std::numeric_limits<std::size_t>::max();

  /// Whether each element is summed at one rank, in the order of the group: 16-bit sums are rounded
  /// once, and the bits do not depend on how buckets and chunks are cut.
  bool sums_in_one_place = false;
  bool needs_native = false;  ///< The device's native library must have a communicator of all
                              ///< ranks.
  /// Inside one node it reads memory that peers have mapped. On a single node "auto" considers no
  /// other algorithm, so that the bits there do not depend on link costs.
  bool maps_memory = false;
  bool takes_shares = false;  ///< It honours `Stage::node_shares`.
  bool owns_parts = false;    ///< Its steps assign one part to each rank of the group.

  /// All-reduce of one stage by messages, between any ranks; null if it cannot be a hierarchy's
  /// CROSS.
  AppendStage exchange = nullptr;
  /// Each rank sends the part of the next rank first (1), or that of the previous rank (-1).
  int send_order = 1;
  /// Null if it cannot be a hierarchy's LOCAL.
  const IntraNodePhases* phases = nullptr;

  /// A whole bucket, stage after stage, outside a hierarchy; null: use `exchange` for each stage.
  void (*append)(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                 const CompileContext& context) = nullptr;
  bool in_one_piece = false;  ///< Host buckets are never cut into chunks.
  /// The piece size of a host bucket unless the options set one.
  std::optional<std::size_t> (*piece_bytes)(const CompileContext& context) = nullptr;

  /// Price in host memory, also as the exchange of a hierarchy; null if host memory is unsupported.
  HostPrice price = nullptr;
  /// The additional price of tensors outside the bucket; null: use `HostLinks::packing`.
  StageCost (*packing_price)(const HostLinks& links, double bytes, Packing packing) = nullptr;
  /// Time in device memory; null: use `price` for the messages and add their staging.
  double (*device_us)(const ProcessGrid& grid, const LinkCosts& costs, double bytes) = nullptr;
};

/// All flat all-reduces; among equally cheap ones the earlier is preferred. To add one, add a line
/// here and define `all_reduce::NAME` in the file with its steps. Cost per rank for n ranks and S
/// bytes: messages sent; bytes sent.
///
///   direct             2(n-1)            2(n-1)/n S     two rounds; sums in group order
///   flat               n-1               (n-1) S        one round; sums in group order
///   native             -                 -              one call of the device's own library
///   ring               2(n-1)            2(n-1)/n S     neighbours only
///   tree               log2 n (root)     log2 n S       2 log2 n rounds
///   halving_doubling   2 log2 n          2(n-1)/n S     + S and a hop each way unless n = 2^k
#define KOLO_ALL_REDUCES(ENTRY) \
  ENTRY(direct)                 \
  ENTRY(flat)                   \
  ENTRY(native)                 \
  ENTRY(ring)                   \
  ENTRY(tree)                   \
  ENTRY(halving_doubling)

namespace all_reduce {
#define KOLO_DECLARE_ALL_REDUCE(name) extern const FlatAllReduce name;
KOLO_ALL_REDUCES(KOLO_DECLARE_ALL_REDUCE)
#undef KOLO_DECLARE_ALL_REDUCE
}  // namespace all_reduce

/// Ranks of one node read each other's bucket: no message, three flags per pair.
extern const IntraNodePhases kSharedDirect;

/// Works by messages between any ranks: the owner of a part sums it in group order.
void append_direct(ScheduleBuilder& builder, const Stage& stage);

/// `direct` for a bucket in place, between ranks of one node: no message, two flags per pair. The
/// owner of a part writes the sum to all buckets.
/// Cost: each byte of a bucket is read once and written once.
void append_shared_direct(ScheduleBuilder& builder, const Stage& stage);

/// `direct` for a bucket in the caller's tensors, between ranks of one node: chunk by chunk,
/// through `window` slots of staging memory in rotation. A rank packs only the parts that peers
/// sum. `stages` holds all chunks of the bucket. Two flags per pair and chunk.
void append_windowed_direct(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                            std::size_t window);

/// Appends each stage by `exchange`. The parts of a host bucket are packed just before it, in the
/// order in which they are sent: peers can start before all parts are packed, and ranks begin with
/// different owners.
void append_by_messages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                        AppendStage exchange, int send_order);

/// The time of one all-reduce of the device's own library over all ranks: rings inside a node,
/// trees between nodes.
double native_us(const ProcessGrid& grid, const LinkCosts& costs, double bytes);

/// Sums inside each node, then between nodes, then spreads inside each node: `local`
/// reduce-scatter, `cross` all-reduce of each rank's part over all nodes, `local` all-gather. Nodes
/// may differ in size: a part is cut wherever any node's parts are cut, and each piece is summed
/// among the ranks that own it. The stages' group must be all ranks of `grid`.
///
/// The stages of one bucket follow each other in the order in which a device launches their local
/// halves: the exchange of one unit between nodes overlaps those of the next.
///
///   reduce-scatter 0, reduce-scatter 1, all-gather 0, reduce-scatter 2, all-gather 1, ...
void append_hierarchical(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                         const ProcessGrid& grid, const IntraNodePhases& local, AppendStage cross);

/// The price of a hierarchy for a chunk in host memory.
StageCost hierarchical_price(const HostLinks& links, const IntraNodePhases& local, HostPrice cross,
                             double bytes);

/// The time of an exchange among all ranks of `grid` with staged messages: each message is copied
/// from device to host, sent, and copied to the other device. Copies in one direction follow each
/// other. Inside a node, only one message per round is counted.
struct StagedExchange {
  double copy_us = 0;  ///< Copying time in each direction.
  double network_us = 0;
};
/// `copied_bytes`: bytes that one rank copies in each direction.
StagedExchange staged_exchange(const ProcessGrid& grid, const LinkCosts& costs, HostPrice price,
                               double bytes, double copied_bytes);

/// The price of a hierarchy for a bucket in device memory, in units of at most `unit_bytes` that
/// follow each other through reduce-scatter, staged exchange and all-gather, at most two in flight.
double hierarchical_device_us(const ProcessGrid& grid, const LinkCosts& costs,
                              const IntraNodePhases& local, HostPrice cross, std::size_t bytes,
                              std::size_t unit_bytes);

/// Copies the root's extent to the user memory of every rank: along a binomial tree between nodes,
/// and by reading one bucket inside each node.
void append_broadcast(ScheduleBuilder& builder, Extent extent, int root, const ProcessGrid& grid);

}  // namespace kolo
