#include <algorithm>
#include <bit>

#include "comm/algorithms/all_reduce/stage.h"

namespace kolo {
namespace {

// Returns this rank's part. The parts of a padded extent are equal, as the native library requires.
Range part(const ScheduleBuilder& builder, const Stage& stage) {
  const Extent own =
      part_of(stage.extent, stage.size(), stage.position(builder.rank()), builder.layout().dtype);
  return builder.bucket(own.offset, own.count);
}

Range whole(const ScheduleBuilder& builder, const Stage& stage) {
  return builder.bucket(stage.extent.offset, stage.extent.count);
}

void reduce_scatter(ScheduleBuilder& builder, const Stage& stage) {
  if (stage.size() == 1) return;
  builder.native(NativeOp::kReduceScatter, NativeGroup::kNode, part(builder, stage),
                 whole(builder, stage), stage.finishes);
}

void all_gather(ScheduleBuilder& builder, const Stage& stage) {
  if (stage.size() > 1) {
    builder.native(NativeOp::kAllGather, NativeGroup::kNode, whole(builder, stage),
                   part(builder, stage));
  }
  builder.deliver(whole(builder, stage), stage.sink);
}

void append(ScheduleBuilder& builder, const std::vector<Stage>& stages, const CompileContext&) {
  for (const Stage& stage : stages) {
    const Range all = whole(builder, stage);
    if (stage.size() > 1) {
      builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, all, all, stage.finishes);
    }
    builder.deliver(all, stage.sink);
  }
}

double half_us(const LinkCosts& costs, double ranks, double bytes) {
  return transfer_us(costs.device, (ranks - 1) / ranks * bytes);
}

constexpr IntraNodePhases kIntraNodePhases{
    .reduce_scatter = reduce_scatter, .all_gather = all_gather, .device_half_us = half_us};

}  // namespace

// The library pipelines a call, so a call costs one latency plus the time of its bytes.
double native_us(const ProcessGrid& grid, const LinkCosts& costs, double bytes) {
  const double n = grid.world_size();
  if (grid.world_size() == 1) return 0;
  const double moved = 2 * (n - 1) / n * bytes;
  const double inside = grid.largest_node() > 1 ? moved / costs.device.bytes_per_us : 0;
  if (grid.num_nodes() == 1) return costs.device.latency_us + inside;
  // The library uses two trees for two nodes, and rings through all ranks for more nodes. A ring
  // sends (n-1)/n of the bytes twice over each node's link.
  const double crossed = grid.num_nodes() == 2 ? bytes : moved;
  const auto depth =
      static_cast<double>(std::bit_width(static_cast<unsigned>(grid.num_nodes() - 1)));
  return costs.device.latency_us + 2 * depth * costs.native_network.latency_us +
         std::max(inside, crossed / costs.native_network.bytes_per_us);
}

// `sums_in_one_place` is set because Kolo does not control how the library rounds. The library cuts
// and pipelines a bucket itself.
constinit const FlatAllReduce all_reduce::native{.name = "native",
                                                 .memories = {.device = true},
                                                 .auto_choice = {.device = true},
                                                 .sums_in_one_place = true,
                                                 .needs_native = true,
                                                 .phases = &kIntraNodePhases,
                                                 .append = append,
                                                 .in_one_piece = true,
                                                 .device_us = native_us};

}  // namespace kolo
