#include "comm/collective/compile.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/collective/algorithm.h"
#include "comm/collective/host_pieces.h"
#include "topology/node_shares.h"

namespace kolo {
namespace {

std::vector<Extent> pieces_of(const CompileContext& context, const Algorithm& algorithm) {
  const BucketLayout& layout = context.layout;
  if (layout.is_on_device()) {
    return device_chunks(layout.count, device_padding(context.grid, layout.dtype), layout.dtype,
                         context.options.device_chunk_bytes);
  }
  if (const AlgorithmEntry* flat = algorithm.flat()) {
    if (flat->in_one_piece) return {{0, layout.count}};
    const auto own = flat->piece_bytes != nullptr ? flat->piece_bytes(context) : std::nullopt;
    if (own) return host_pieces(layout, *own);
  }
  return host_pieces(layout, context.grid, context.options);
}

/// The share of the sums that each node makes, for an algorithm that leaves this open. A host
/// bucket's sums are made in group order wherever they are made, so no bit follows from shares.
std::vector<double> shares_between_nodes(const CompileContext& context,
                                         const Algorithm& algorithm) {
  const int nodes = context.grid.num_nodes();
  const bool one_rank_each = algorithm.hierarchy() != nullptr || nodes == context.grid.world_size();
  const bool may_differ =
      !context.layout.is_on_device() && one_rank_each && algorithm.between_nodes().takes_shares;
  return may_differ ? node_shares(context.options.link_costs, nodes) : std::vector<double>{};
}

ScheduleBuilder make_builder(int rank, std::string name, const CompileContext& context) {
  const BucketLayout& layout = context.layout;
  // No message is longer than the bucket, so a ring that holds it twice is never full.
  const std::size_t staging =
      std::min(context.options.staging_bytes / size_of(layout.dtype), 2 * layout.count);
  return {rank,
          std::move(name),
          layout,
          {.are_direct = context.options.network_takes_device_memory, .staging_count = staging},
          window_width(layout, context.grid, context.options)};
}

std::vector<int> all_ranks(const ProcessGrid& grid) {
  std::vector<int> ranks(static_cast<std::size_t>(grid.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void append_hierarchy(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                      const CompileContext& context, const Hierarchy& hierarchy) {
  const LocalHalves& local = *hierarchy.local->halves;
  const AppendStage cross = hierarchy.cross->exchange;
  if (context.layout.is_on_device()) {
    return append_hierarchical(builder, stages, context.grid, local, cross);
  }
  for (const Stage& stage : stages) {
    builder.next_chunk();
    load_parts(builder, stage, 1);
    append_hierarchical(builder, {stage}, context.grid, local, cross);
  }
}

void append_flat(ScheduleBuilder& builder, const std::vector<Stage>& stages,
                 const CompileContext& context, const AlgorithmEntry& entry) {
  if (entry.append != nullptr) return entry.append(builder, stages, context);
  append_by_messages(builder, stages, entry.exchange, entry.send_order);
}

}  // namespace

Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options) {
  const CompileContext context{layout, grid, options};
  const Algorithm algorithm = resolve_algorithm(layout, grid, options);
  const std::vector<double> shares = shares_between_nodes(context, algorithm);
  std::vector<Stage> stages;
  for (const Extent& piece : pieces_of(context, algorithm)) {
    stages.push_back({.group = all_ranks(grid), .extent = piece, .node_shares = shares});
  }
  ScheduleBuilder builder = make_builder(rank, algorithm.to_string(), context);
  if (layout.is_on_device()) {
    // A launch packs many tensors at once, and packing a piece overlaps the collectives of the
    // last.
    for (const Stage& stage : stages) {
      builder.load(builder.bucket(stage.extent.offset, stage.extent.count));
    }
  }
  if (const Hierarchy* hierarchy = algorithm.hierarchy()) {
    append_hierarchy(builder, stages, context, *hierarchy);
  } else {
    append_flat(builder, stages, context, *algorithm.flat());
  }
  Schedule schedule = std::move(builder).build();
  schedule.eager = may_be_eager(layout, grid, options);
  return schedule;
}

}  // namespace kolo
