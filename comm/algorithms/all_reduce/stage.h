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

/// One stage of an all-reduce: an extent of the bucket that the ranks of a group sum.
struct Stage {
  std::vector<int> group;  ///< Ranks, in the order in which contributions are summed.
  Extent extent;  ///< Elements of the bucket, present in the bucket of every rank of the group.
  bool finishes = true;  ///< True for the last stage that sums; it applies the reduction's scale.
  Sink sink = Sink::kUser;
  /// Fraction of the extent that each node sums, by node; the fractions add up to 1. If empty, the
  /// parts are equal. Only algorithms with `takes_shares` use it, and only in groups with one rank
  /// per node.
  std::vector<double> node_shares = {};

  std::size_t size() const { return group.size(); }
  /// Index of `rank` in the group. Errors: KoloError(kInternal) if the group lacks `rank`.
  std::size_t position(int rank) const;
};

/// Range of part `index` of the stage's extent, in the bucket of `rank`. The parts are equal unless
/// the stage has `node_shares` for all positions.
inline Range part_at(const ScheduleBuilder& builder, const Stage& stage, int rank,
                     std::size_t index) {
  const DType dtype = builder.layout().dtype;
  const Extent part = stage.node_shares.size() == stage.size()
                          ? share_of(stage.extent, stage.node_shares, index, dtype)
                          : part_of(stage.extent, stage.size(), index, dtype);
  return builder.bucket_of(rank, part.offset, part.count);
}

/// Calls visit(position) for every position of the stage except `own`. It starts at the position
/// after `own`, so that ranks begin with different peers.
template <typename Visit>
void for_each_peer(const Stage& stage, std::size_t own, Visit visit) {
  for (std::size_t i = 1; i < stage.size(); ++i) visit((own + i) % stage.size());
}

/// Packs the parts of a stage, unless the bucket is in place. The parts are packed in the order in
/// which this rank sends them: starting with the part of the next rank (`send_order` 1) or of the
/// previous rank (`send_order` -1). This rank's own part comes last.
inline void load_parts(ScheduleBuilder& builder, const Stage& stage, int send_order) {
  const std::size_t own = stage.position(builder.rank());
  const std::size_t stride = send_order > 0 ? 1 : stage.size() - 1;
  for (std::size_t i = 1; i <= stage.size(); ++i) {
    const std::size_t owner = (own + i * stride) % stage.size();
    builder.load(part_at(builder, stage, builder.rank(), owner));
  }
}

/// A function that appends the steps of one stage to the schedule of `builder.rank()`. All ranks of
/// the group call it with equal stages, in the same order.
///
/// After the steps have run, `stage.sink` holds the sum of the extent on all ranks of the group.
/// Threads: pure; any.
using AppendStage = void (*)(ScheduleBuilder& builder, const Stage& stage);

/// A function that returns the cost of one chunk of `bytes` in host memory among all ranks of
/// `links`.
/// Threads: pure; any.
using HostPrice = StageCost (*)(const HostLinks& links, double bytes);

/// A set of memory kinds.
struct Memories {
  bool host = false;
  bool device = false;

  bool has(MemoryKind kind) const { return kind == MemoryKind::kHost ? host : device; }
};

/// The two phases that a hierarchy runs inside each node: a reduce-scatter before the exchange
/// between nodes, and an all-gather after the exchange. After the reduce-scatter, the bucket of the
/// rank at position p holds the sum of `part_of(extent, size, p)`; its other parts are unspecified.
struct IntraNodePhases {
  AppendStage reduce_scatter;
  AppendStage all_gather;
  /// Cost of both phases for a chunk in host memory. It is null if they do not support host memory.
  HostPrice host_price = nullptr;
  /// Microseconds of one phase for a unit of `bytes` in device memory, on a node of `ranks` ranks.
  /// It is null if they do not support device memory.
  double (*device_half_us)(const LinkCosts& costs, double ranks, double bytes) = nullptr;

  Memories memories() const { return {host_price != nullptr, device_half_us != nullptr}; }
};

/// An all-reduce that does not distinguish nodes: its name, steps, price and limits, all defined in
/// one source file. A hierarchy combines two of them; see all_reduce.h.
struct FlatAllReduce {
  std::string_view name;
  Memories memories;     ///< Memory kinds in which the bucket may be.
  Memories auto_choice;  ///< Memory kinds for which "auto" considers the algorithm.
  /// Bytes of the largest bucket for which "auto" considers the algorithm.
  std::size_t auto_most_bytes = std::numeric_limits<std::size_t>::max();

  /// Whether each element is summed at one rank, in the order of the group. If true, 16-bit sums
  /// are rounded once, and bucket and chunk sizes change no bit of the result.
  bool sums_in_one_place = false;
  bool needs_native = false;  ///< Whether it needs a native communicator of all ranks.
  /// Whether ranks of one node read each other's mapped memory. On a single node, "auto" considers
  /// only algorithms that do: the result's bits then do not depend on measured link costs.
  bool maps_memory = false;
  bool takes_shares = false;  ///< Whether it honours `Stage::node_shares`.
  bool owns_parts = false;    ///< Whether each rank of the group sums one part.

  /// Appends an all-reduce of one stage by messages among any ranks. It is null if the algorithm
  /// cannot be the CROSS of a hierarchy.
  AppendStage exchange = nullptr;
  /// 1: each rank sends the part of the next rank first. -1: that of the previous rank.
  int send_order = 1;
  /// The phases inside a node, or null if the algorithm cannot be the LOCAL of a hierarchy.
  const IntraNodePhases* phases = nullptr;

  /// Appends the steps of a whole bucket, stage by stage, outside a hierarchy. If null, each stage
  /// is appended by `exchange`.
  void (*append)(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                 const CompileContext& context) = nullptr;
  bool in_one_piece = false;  ///< Whether buckets are never cut into chunks.
  /// Returns the chunk size of a host bucket in bytes, or an empty value for `host_chunk_bytes`. If
  /// null, it is always `host_chunk_bytes`.
  std::optional<std::size_t> (*piece_bytes)(const CompileContext& context) = nullptr;

  /// Cost for a chunk in host memory, also as the CROSS of a hierarchy. It is null if the algorithm
  /// does not support host memory.
  HostPrice price = nullptr;
  /// Additional cost if the tensors are outside the bucket. If null, `HostLinks::packing` computes
  /// it.
  StageCost (*packing_price)(const HostLinks& links, double bytes, Packing packing) = nullptr;
  /// Microseconds for a bucket of `bytes` in device memory. If null, the time is that of `price`
  /// plus copies between device and host.
  double (*device_us)(const ProcessGrid& grid, const LinkCosts& costs, double bytes) = nullptr;
};

/// All flat all-reduces. If two algorithms are equally cheap, the earlier one is chosen. To add an
/// algorithm, add a line here and define `all_reduce::NAME` in the file with its steps. The columns
/// are: messages sent per rank, bytes sent per rank (n ranks, bucket of S bytes), and a remark.
///
///   direct             2(n-1)            2(n-1)/n S     two rounds; sums in group order
///   flat               n-1               (n-1) S        one round; sums in group order
///   native             -                 -              one call of the device's own library
///   ring               2(n-1)            2(n-1)/n S     neighbours only
///   halving_doubling   2 log2 n          2(n-1)/n S     + S and a hop each way unless n = 2^k
#define KOLO_ALL_REDUCES(ENTRY) \
  ENTRY(direct)                 \
  ENTRY(flat)                   \
  ENTRY(native)                 \
  ENTRY(ring)                   \
  ENTRY(halving_doubling)

namespace all_reduce {
#define KOLO_DECLARE_ALL_REDUCE(name) extern const FlatAllReduce name;
KOLO_ALL_REDUCES(KOLO_DECLARE_ALL_REDUCE)
#undef KOLO_DECLARE_ALL_REDUCE
}  // namespace all_reduce

/// Phases of `direct` inside a node: ranks read each other's bucket in mapped memory. No message is
/// sent; each pair of ranks uses three flags.
extern const IntraNodePhases kSharedDirect;

/// Appends `direct` by messages among any ranks: the owner of a part sums it in group order.
void append_direct(ScheduleBuilder& builder, const Stage& stage);

/// Appends `direct` for a bucket that is in place, among ranks of one node. The owner of a part
/// reads it from all buckets and writes the sum to all buckets. No message is sent; each pair of
/// ranks uses two flags.
void append_shared_direct(ScheduleBuilder& builder, const Stage& stage);

/// Appends `direct` for a bucket in the caller's tensors, among ranks of one node. The chunks in
/// `stages` pass through `window` slots of each rank's staging memory, in rotation. A rank packs
/// only the parts that peers sum. Each pair of ranks uses two flags per chunk.
void append_windowed_direct(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                            std::size_t window);

/// Appends each stage by `exchange`. For a host bucket, packing steps precede each exchange. Parts
/// are packed in the order of sending, so that peers can start before all parts are packed.
void append_by_messages(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                        AppendStage exchange, int send_order);

/// Predicted microseconds of one all-reduce by the device's native library over all ranks.
double native_us(const ProcessGrid& grid, const LinkCosts& costs, double bytes);

/// Appends a hierarchy: a `local` reduce-scatter inside each node, a `cross` all-reduce of each
/// part between nodes, and a `local` all-gather. If nodes differ in size, a part is cut wherever
/// any node's parts are cut, and each piece is summed among the ranks that own it. The group of
/// each stage must be all ranks of `grid`.
///
/// The local phases of consecutive stages are appended in the order below. Thus the exchange of one
/// stage between nodes overlaps the reduce-scatter of the next stage:
///
///   reduce-scatter 0, reduce-scatter 1, all-gather 0, reduce-scatter 2, all-gather 1, ...
void append_hierarchical(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                         const ProcessGrid& grid, const IntraNodePhases& local, AppendStage cross);

/// The cost of a hierarchy for a chunk of `bytes` in host memory.
StageCost hierarchical_price(const HostLinks& links, const IntraNodePhases& local, HostPrice cross,
                             double bytes);

/// The time of messages between devices that pass through host memory: each message is copied from
/// device to host, sent, and copied from host to device.
struct StagedExchange {
  double copy_us = 0;  ///< Microseconds of copies in each direction.
  double network_us = 0;
};
/// Predicts the time of an exchange of `bytes` with price `price` among all ranks of `grid`.
/// `copied_bytes` is the number of bytes that one rank copies in each direction. Copies in one
/// direction run one after the other. Inside a node, only one message per round is counted.
StagedExchange staged_exchange(const ProcessGrid& grid, const LinkCosts& costs, HostPrice price,
                               double bytes, double copied_bytes);

/// Predicted microseconds of a hierarchy for a bucket of `bytes` in device memory. Units of at most
/// `unit_bytes` are pipelined through reduce-scatter, staged exchange and all-gather, with at most
/// two units in flight.
double hierarchical_device_us(const ProcessGrid& grid, const LinkCosts& costs,
                              const IntraNodePhases& local, HostPrice cross, std::size_t bytes,
                              std::size_t unit_bytes);

}  // namespace kolo
