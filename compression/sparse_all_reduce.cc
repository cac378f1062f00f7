#include "compression/sparse_all_reduce.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/base/check.h"
#include "comm/schedule/codec.h"
#include "comm/schedule/schedule_builder.h"
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

std::vector<int> all_ranks(const ProcessGrid& grid) {
  std::vector<int> ranks(static_cast<std::size_t>(grid.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

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

void check_bucket(const BucketLayout& bucket, const SparseOptions& options) {
  check(bucket.count == bucket_count(options) && bucket.dtype == DType::kFloat32 &&
            bucket.memory == MemoryKind::kHost && bucket.placement != Placement::kStaged,
        "a bucket that is not one of this compressed bucket");
  check(bucket.op == ReduceOp::kSum || bucket.op == ReduceOp::kAverage,
        "compressed gradients are summed or averaged");
  check(options.route != ExchangeRoute::kAllGather || !options.method->needs_owners,
        "this method sends sums through their owners");
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

/// Appends the exchange of one shard among the ranks of a layout, which include the builder's rank.
/// The shard, in its bucket or its home, holds the contribution before and the result after. All
/// these ranks append it with layouts that differ only in `position`. Payloads that one step
/// produces or consumes together are allocated one after the other.
///
///     all-gather   encode · contributions to all · merge as every owner · decode
///     else         encode · shares to the owners · merge · results to all · decode
///     twice        encode ·       as above       · refine ·     as above      · decode
class Exchange {
 public:
  Exchange(ScheduleBuilder& builder, const SparseLayout& layout, const SparseOptions& options)
      : builder_(builder),
        layout_(layout),
        route_(options.route),
        ranks_(layout.plan.ranks),
        own_(layout.position),
        refined_forms_(options.method->refined_forms),
        forms_(options.method->forms(layout.plan)) {}

  void append(const Range& elements, bool finishes) {
    if (elements.count == 0) return;
    if (route_ == ExchangeRoute::kAllGather) {
      all_gather(elements);
    } else {
      through_owners(CodecVerb::kEncode, {elements});
    }
    if (refined_forms_ != nullptr) {
      forms_ = refined_forms_(layout_.plan);
      std::vector<Range> sources = results_;
      sources.insert(sources.begin(), elements);
      through_owners(CodecVerb::kRefine, sources);
    }
    builder_.decode(elements, results_, finishes);
  }

 private:
  Range payload(std::size_t count, const PayloadForm& form) {
    return builder_.payload(count, form.capacity, form.usual);
  }

  int rank_at(int position) const {
    return layout_.ranks[static_cast<std::size_t>(position % ranks_)];
  }
  std::size_t count_of(int owner) const { return layout_.plan.ownership().local_count(owner); }
  Range& result_of(int owner) { return results_[static_cast<std::size_t>(owner)]; }
  /// Calls visit(position) for every other rank, starting with the next rank.
  template <typename Visit>
  void for_others(Visit visit) const {
    for (int i = 0; i + 1 < ranks_; ++i) visit(pairwise_destination(ranks_, own_, i));
  }
  static Range side_by_side(const std::vector<Range>& ranges) {
    Range all = ranges.front();
    all.count = ranges.back().end() - all.offset;
    return all;
  }

  /// Allocates the results of owners first, first + 1, ..., modulo the number of owners.
  void make_results(int first) {
    results_.resize(static_cast<std::size_t>(ranks_));
    for (int i = 0; i < ranks_; ++i) {
      const int owner = (first + i) % ranks_;
      result_of(owner) = payload(count_of(owner), forms_.result);
    }
  }

  void all_gather(const Range& elements) {
    std::vector<Range> contributions;
    for (int i = 0; i < ranks_; ++i) {
      contributions.push_back(payload(elements.count, forms_.contribution));
    }
    const Range& mine = contributions[static_cast<std::size_t>(own_)];
    builder_.codec(CodecVerb::kEncode, mine, {elements});
    for_others([&](int peer) { builder_.send(rank_at(peer), mine); });
    for_others([&](int peer) {
      builder_.recv(rank_at(peer), contributions[static_cast<std::size_t>(peer)]);
    });
    make_results(0);
    builder_.codec(CodecVerb::kMerge, side_by_side(results_), contributions);
  }

  /// The first source is the elements.
  void through_owners(CodecVerb encode, const std::vector<Range>& sources) {
    std::vector<Range> shares;
    for (int owner = 0; owner < ranks_; ++owner) {
      shares.push_back(payload(count_of(owner), forms_.share));
    }
    Range all = shares.front();
    all.count = sources.front().count;
    builder_.codec(encode, all, sources);
    const bool by_steps = route_ == ExchangeRoute::kLogStep;
    const std::vector<Range> mine = by_steps ? pass_on(shares) : send_straight(shares);
    make_results(by_steps ? own_ : 0);
    builder_.codec(CodecVerb::kMerge, result_of(own_), mine);
    if (by_steps) {
      gather_by_steps();
    } else {
      for_others([&](int peer) { builder_.send(rank_at(peer), result_of(own_)); });
      for_others([&](int peer) { builder_.recv(rank_at(peer), result_of(peer)); });
    }
  }

  /// Returns the shares of all ranks for this owner, in the order of ranks.
  std::vector<Range> send_straight(const std::vector<Range>& shares) {
    std::vector<Range> mine(static_cast<std::size_t>(ranks_));
    mine[static_cast<std::size_t>(own_)] = shares[static_cast<std::size_t>(own_)];
    for_others(
        [&](int peer) { builder_.send(rank_at(peer), shares[static_cast<std::size_t>(peer)]); });
    for_others([&](int peer) {
      Range& theirs = mine[static_cast<std::size_t>(peer)];
      theirs = payload(count_of(own_), forms_.share);
      builder_.recv(rank_at(peer), theirs);
    });
    return mine;
  }

  std::vector<Range> pass_on(const std::vector<Range>& shares) {
    std::map<std::pair<int, int>, Range> held;  // by source and destination
    for (int owner = 0; owner < ranks_; ++owner) {
      held[{own_, owner}] = shares[static_cast<std::size_t>(owner)];
    }
    for (int round = 0; round < log_step_rounds(ranks_); ++round) {
      std::vector<Range> leaving;
      for (const Forward& forward : log_step_forwards(ranks_, own_, round)) {
        leaving.push_back(held.at({forward.source, forward.destination}));
      }
      send_joined(log_step_peer(ranks_, own_, round), leaving, forms_.share);
      const int source = (own_ + ranks_ - (1 << round)) % ranks_;
      std::vector<Range> coming;
      for (const Forward& forward : log_step_forwards(ranks_, source, round)) {
        coming.push_back(payload(count_of(forward.destination), forms_.share));
        held[{forward.source, forward.destination}] = coming.back();
      }
      receive_joined(source, coming, forms_.share);
    }
    std::vector<Range> mine;
    for (int source = 0; source < ranks_; ++source) mine.push_back(held.at({source, own_}));
    return mine;
  }

  // Before round b this rank has the results of 2^b owners, starting with its own result.
  void gather_by_steps() {
    for (int distance = 1; distance < ranks_; distance *= 2) {
      std::vector<Range> leaving, coming;
      for (int i = 0; i < std::min(distance, ranks_ - distance); ++i) {
        leaving.push_back(result_of((own_ + i) % ranks_));
        coming.push_back(result_of((own_ + distance + i) % ranks_));
      }
      send_joined((own_ + ranks_ - distance) % ranks_, leaving, forms_.result);
      receive_joined((own_ + distance) % ranks_, coming, forms_.result);
    }
  }

  Range joined(const std::vector<Range>& parts, const PayloadForm& part_form) {
    PayloadForm form{.capacity = kJoinedHeaderBytes, .usual = {.bytes = kJoinedHeaderBytes}};
    std::size_t count = 0;
    for (const Range& part : parts) {
      count += part.count;
      if (part.count == 0) continue;
      form.capacity += joined_bytes(part_form.capacity);
      form.usual.bytes += joined_bytes(part_form.usual.bytes);
      form.usual.entries += part_form.usual.entries;
    }
    return payload(count, form);
  }

  void send_joined(int peer, const std::vector<Range>& parts, const PayloadForm& form) {
    const Range message = joined(parts, form);
    builder_.codec(CodecVerb::kJoin, message, parts);
    builder_.send(rank_at(peer), message);
  }

  void receive_joined(int peer, const std::vector<Range>& parts, const PayloadForm& form) {
    const Range message = joined(parts, form);
    builder_.recv(rank_at(peer), message);
    builder_.codec(CodecVerb::kPart, side_by_side(parts), {message});
  }

  ScheduleBuilder& builder_;
  const SparseLayout& layout_;
  const ExchangeRoute route_;
  const int ranks_;
  const int own_;
  PayloadForms (*const refined_forms_)(const SparsePlan&);
  PayloadForms forms_;
  std::vector<Range> results_;  // by owner
};

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
    Exchange(builder, layout, options).append(builder.home(0, bucket.count), finishes);
  } else {
    const Stage node = node_stage(rank, grid, whole_of(options));
    builder.load(builder.bucket(0, bucket.count));
    kSharedDirect.reduce_scatter(builder, node);
    Exchange(builder, layout, options)
        .append(builder.bucket(layout.shard.offset, layout.shard.count), finishes);
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

}  // namespace kolo
