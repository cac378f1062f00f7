#include "compression/sparse_all_reduce.h"

#include <algorithm>
#include <numeric>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/base/check.h"
#include "compression/sparse_steps.h"

namespace kolo {
namespace {

double largest_density(const SparseOptions& options) {
  double largest = options.density;
  if (options.warm_up.steps_per_density == 0) return largest;
  for (const double density : options.warm_up.ramp) largest = std::max(largest, density);
  return largest;
}

Extent whole_of(const SparseOptions& options) { return {0, bucket_count(options)}; }

std::vector<int> all_ranks(const ProcessGrid& grid) {
  std::vector<int> ranks(static_cast<std::size_t>(grid.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool is_two_level(int rank, const ProcessGrid& grid, const SparseOptions& options) {
  return options.scope == SparseScope::kBetweenNodes && grid.num_nodes() > 1 && grid.is_even() &&
         grid.local_size(rank) > 1;
}

// The parts of tensors that lie in the shard.
std::vector<SparsePart> parts_in(const Extent& shard, const SparseOptions& options) {
  const std::vector<std::size_t> offsets = tensor_offsets(options);
  std::vector<SparsePart> parts;
  for (std::size_t t = 0; t < offsets.size(); ++t) {
    const std::size_t begin = std::max(offsets[t], shard.offset);
    const std::size_t end = std::min(offsets[t] + options.tensors[t].count, shard.end());
    if (begin >= end) continue;
    parts.push_back(
        {.tensor = t, .first = begin - offsets[t], .count = end - begin, .offset = begin});
  }
  return parts;
}

void check_bucket(const BucketLayout& bucket, const SparseOptions& options) {
  check(bucket.count == bucket_count(options) && bucket.dtype == DType::kFloat32 &&
            bucket.memory == MemoryKind::kHost && bucket.placement != Placement::kStaged,
        "a bucket that is not one of this compression group");
  check(bucket.op == ReduceOp::kSum || bucket.op == ReduceOp::kAverage,
        "compressed gradients are summed or averaged");
}

Stage node_stage(int rank, const ProcessGrid& grid, const Extent& extent) {
  return {.group = grid.ranks_of_node(grid.node(rank)),
          .extent = extent,
          .finishes = false,
          .sink = Sink::kUser};
}

Schedule finished(ScheduleBuilder builder, const ProcessGrid& grid, const SparseOptions& options) {
  builder.codec(CodecVerb::kInspect, {}, {builder.home(0, bucket_count(options))});
  Schedule schedule = std::move(builder).build();
  schedule.eager = grid.num_nodes() == 1;
  return schedule;
}

}  // namespace

std::vector<std::vector<std::size_t>> compression_groups(std::span<const std::size_t> counts) {
  std::vector<std::vector<std::size_t>> groups;
  std::size_t elements = 0;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (groups.empty() || elements + counts[t] > kGroupElements) {
      groups.emplace_back();
      elements = 0;
    }
    groups.back().push_back(t);
    elements += counts[t];
  }
  return groups;
}

std::vector<std::size_t> tensor_offsets(const SparseOptions& options) {
  std::vector<std::size_t> offsets;
  std::size_t offset = 0;
  for (const FeedbackTensor& tensor : options.tensors) {
    offsets.push_back(offset);
    offset += tensor.count;
  }
  return offsets;
}

std::size_t bucket_count(const SparseOptions& options) {
  std::size_t count = 0;
  for (const FeedbackTensor& tensor : options.tensors) count += tensor.count;
  return count;
}

SparseLayout sparse_layout(int rank, const ProcessGrid& grid, const SparseOptions& options) {
  SparseLayout layout{.is_two_level = is_two_level(rank, grid, options),
                      .shard = whole_of(options),
                      .ranks = all_ranks(grid)};
  if (layout.is_two_level) {
    layout.ranks = grid.cross_group(rank);
    layout.shard = part_of(layout.shard, static_cast<std::size_t>(grid.local_size(rank)),
                           static_cast<std::size_t>(grid.local_rank(rank)), DType::kFloat32);
  }
  layout.position = static_cast<int>(std::ranges::find(layout.ranks, rank) - layout.ranks.begin());
  layout.parts = parts_in(layout.shard, options);
  layout.plan = {.tensor_counts = {},
                 .ranks = static_cast<int>(layout.ranks.size()),
                 .rule = options.rule,
                 .wire = options.wire};
  for (const SparsePart& part : layout.parts) {
    layout.plan.tensor_counts.push_back(part.count);
    layout.plan.k += pairs_to_keep(largest_density(options), part.count);
  }
  return layout;
}

BucketLayout sparse_bucket(const SparseOptions& options, ReduceOp op, Placement placement) {
  return {.count = bucket_count(options),
          .dtype = DType::kFloat32,
          .op = op,
          .placement = placement,
          .memory = MemoryKind::kHost};
}

Schedule compile_sparse(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                        const SparseOptions& options) {
  check_bucket(bucket, options);
  const SparseLayout layout = sparse_layout(rank, grid, options);
  const std::string route(to_string(options.route));
  ScheduleBuilder builder(rank, (layout.is_two_level ? "two-level sparse " : "sparse ") + route,
                          bucket);
  const bool finishes = grid.world_size() > 1;
  if (!layout.is_two_level) {
    if (bucket.placement == Placement::kUser) builder.forgo_bucket();
    append_sparse_exchange(builder, layout, options.route, builder.home(0, bucket.count), finishes);
  } else {
    const Stage node = node_stage(rank, grid, whole_of(options));
    builder.load(builder.bucket(0, bucket.count));
    kSharedDirect.reduce_scatter(builder, node);
    append_sparse_exchange(builder, layout, options.route,
                           builder.bucket(layout.shard.offset, layout.shard.count), finishes);
    kSharedDirect.all_gather(builder, node);
  }
  return finished(std::move(builder), grid, options);
}

Schedule compile_dense_step(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                            const SparseOptions& options) {
  check_bucket(bucket, options);
  const SparseLayout layout = sparse_layout(rank, grid, options);
  ScheduleBuilder builder(rank, layout.is_two_level ? "two-level folded direct" : "folded direct",
                          bucket);
  const Stage all{.group = layout.ranks,
                  .extent = layout.shard,
                  .finishes = true,
                  .sink = layout.is_two_level ? Sink::kBucket : Sink::kUser};
  const Range shard = builder.bucket(layout.shard.offset, layout.shard.count);
  const Stage node = node_stage(rank, grid, whole_of(options));
  builder.load(builder.bucket(0, bucket.count));
  if (layout.is_two_level) kSharedDirect.reduce_scatter(builder, node);
  builder.codec(CodecVerb::kFold, shard, {shard});
  if (grid.num_nodes() > 1) {
    append_direct(builder, all);
  } else {
    kSharedDirect.reduce_scatter(builder, all);
    kSharedDirect.all_gather(builder, all);
  }
  if (layout.is_two_level) kSharedDirect.all_gather(builder, node);
  return finished(std::move(builder), grid, options);
}

ScheduleTraffic planned_exchange(int rank, const ProcessGrid& grid, const SparseOptions& options) {
  const BucketLayout bucket = sparse_bucket(options, ReduceOp::kSum, Placement::kUser);
  return traffic(compile_sparse(rank, bucket, grid, options), [](int) { return true; });
}

}  // namespace kolo
