#include "compression/sparse_all_reduce.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "compression/compression_method.h"

namespace kolo {
namespace {

double largest_density(const SparseOptions& options) {
  double largest = options.density;
  if (options.warm_up.steps_per_density == 0) return largest;
  for (const double density : options.warm_up.ramp) largest = std::max(largest, density);
  return largest;
}

Extent whole_of(const SparseOptions& options) { return {0, bucket_count(options)}; }

bool is_two_level(int rank, const ProcessGrid& grid, const SparseOptions& options) {
  return options.scope == SparseScope::kBetweenNodes && grid.num_nodes() > 1 && grid.is_even() &&
         grid.local_size(rank) > 1;
}

// Returns the parts of tensors that are in the shard.
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

}  // namespace

std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step) {
  if (step < warm_up.dense_steps) return std::nullopt;
  if (warm_up.steps_per_density == 0) return density;
  const std::size_t stage = (step - warm_up.dense_steps) / warm_up.steps_per_density;
  return stage < warm_up.ramp.size() ? warm_up.ramp[stage] : density;
}

std::size_t pairs_to_keep(double density, std::size_t count) {
  check(density > 0 && density <= 1, "a density lies above 0 and does not exceed 1");
  if (count == 0) return 0;
  // 0.1 * 30 is slightly more than 3 in binary, but means 3.
  constexpr double kSlightlyLess = 1 - 1e-12;
  const double pairs = std::ceil(density * static_cast<double>(count) * kSlightlyLess);
  return std::clamp<std::size_t>(static_cast<std::size_t>(pairs), 1, count);
}

std::vector<std::vector<std::size_t>> compressed_buckets(std::span<const std::size_t> counts,
                                                         std::size_t most) {
  std::vector<std::vector<std::size_t>> groups;
  std::size_t elements = 0;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (groups.empty() || elements + counts[t] > most) {
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
                      .ranks = grid.ranks()};
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
    if (!options.method->takes_rank) continue;
    const std::size_t columns = options.tensors[part.tensor].columns;
    const MatrixPart& matrix = layout.matrices.emplace_back(
        matrix_part(part.first, part.count, columns, options.matrix_rank));
    layout.plan.factors[0] += matrix.left_count();
    layout.plan.factors[1] += matrix.right_count();
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

BucketLayout sparse_device_bucket(const SparseOptions& options, ReduceOp op) {
  BucketLayout bucket = sparse_bucket(options, op, Placement::kStaged);
  bucket.memory = MemoryKind::kDevice;
  return bucket;
}

}  // namespace kolo
