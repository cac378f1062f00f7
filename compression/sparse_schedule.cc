#include <utility>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "comm/schedule/schedule_builder.h"
#include "compression/compression_method.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {
namespace {

void check_bucket(const BucketLayout& bucket, const ProcessGrid& grid, const SparseOptions& options,
                  const CompileOptions& device) {
  if (bucket.is_on_device()) {
    const std::string_view obstacle = device_obstacle(grid, options, device.native_in_nodes);
    check(obstacle.empty(), obstacle);
  }
  check(bucket.count == bucket_count(options) && bucket.dtype == DType::kFloat32 &&
            bucket.is_on_device() == (bucket.placement == Placement::kStaged),
        "a bucket that is not one of this compressed bucket");
  check(bucket.op == ReduceOp::kSum || bucket.op == ReduceOp::kAverage,
        "compressed gradients are summed or averaged");
  check(options.route != ExchangeRoute::kAllGather || !options.method->needs_owners,
        "this method sends sums through their owners");
}

/// A schedule begins here; in device memory the tensors are packed.
ScheduleBuilder begun(int rank, std::string name, const BucketLayout& bucket,
                      const CompileOptions& device) {
  return {rank, std::move(name), bucket, device_messages(bucket, device)};
}

Stage node_stage(int rank, const ProcessGrid& grid, const Extent& extent) {
  return {.group = grid.ranks_of_node(grid.node(rank)),
          .extent = extent,
          .finishes = false,
          .sink = Sink::kUser};
}

// The phases inside a node. In device memory they are those of the device's library, which cuts the
// bucket as the host does, so that the same elements are selected.

std::vector<Range> node_parts(const ScheduleBuilder& builder, const Stage& node) {
  std::vector<Range> parts;
  for (std::size_t i = 0; i < node.size(); ++i) {
    parts.push_back(part_at(builder, node, builder.rank(), i));
  }
  return parts;
}

void reduce_in_node(ScheduleBuilder& builder, const Stage& node) {
  if (!builder.layout().is_on_device()) return kSharedDirect.reduce_scatter(builder, node);
  const std::vector<Range> parts = node_parts(builder, node);
  builder.reduce_parts({parts[node.position(builder.rank())]}, parts, node.finishes,
                       NativeGroup::kNode);
}

void gather_in_node(ScheduleBuilder& builder, const Stage& node) {
  if (!builder.layout().is_on_device()) return kSharedDirect.all_gather(builder, node);
  const std::vector<Range> parts = node_parts(builder, node);
  builder.gather_parts({parts[node.position(builder.rank())]}, parts, NativeGroup::kNode);
  builder.deliver(builder.bucket(node.extent.offset, node.extent.count), node.sink);
}

/// Appends the sum of a stage whose bucket is loaded and folded.
void append_sum(ScheduleBuilder& builder, const Stage& stage, const ProcessGrid& grid,
                const CompileOptions& device) {
  const bool is_of_all = static_cast<int>(stage.size()) == grid.world_size();
  const bool is_of_node = is_of_all && grid.num_nodes() == 1;
  const bool is_native =
      builder.layout().is_on_device() &&
      ((is_of_node && device.native_in_nodes) || (is_of_all && device.native_spans_nodes));
  if (is_native || stage.size() == 1) {
    const Range all = builder.bucket(stage.extent.offset, stage.extent.count);
    if (stage.size() > 1) {
      builder.native(NativeOp::kAllReduce,
                     device.native_spans_nodes ? NativeGroup::kWorld : NativeGroup::kNode, all, all,
                     stage.finishes);
    }
    builder.deliver(all, stage.sink);
  } else if (builder.layout().is_on_device() || grid.num_nodes() > 1) {
    append_direct(builder, stage);
  } else {
    kSharedDirect.reduce_scatter(builder, stage);
    kSharedDirect.all_gather(builder, stage);
  }
}

Schedule finished(ScheduleBuilder builder, const ProcessGrid& grid, const SparseOptions& options) {
  const std::size_t count = bucket_count(options);
  const bool on_device = builder.layout().is_on_device();
  builder.codec(CodecVerb::kInspect, {},
                {on_device ? builder.bucket(0, count) : builder.home(0, count)});
  Schedule schedule = std::move(builder).build();
  schedule.eager = grid.num_nodes() == 1 && !on_device;
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

  void append(const Range& shard, bool finishes) {
    if (shard.count == 0) return;
    const bool on_device = builder_.layout().is_on_device();
    const Range elements = on_device ? builder_.pairs(shard.offset, shard.count) : shard;
    if (on_device) builder_.codec(CodecVerb::kSelect, elements, {shard});
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
    if (on_device) builder_.codec(CodecVerb::kScatter, shard, {elements});
  }

 private:
  Range payload(std::size_t count, const PayloadForm& form) {
    return builder_.payload(count, form.capacity, form.usual);
  }

  int rank_at(int position) const { return layout_.ranks[static_cast<std::size_t>(position)]; }
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

  void make_results() {
    results_.resize(static_cast<std::size_t>(ranks_));
    for (int owner = 0; owner < ranks_; ++owner) {
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
    make_results();
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
    for_others(
        [&](int peer) { builder_.send(rank_at(peer), shares[static_cast<std::size_t>(peer)]); });
    std::vector<Range> mine(static_cast<std::size_t>(ranks_));  // for this owner, by rank
    mine[static_cast<std::size_t>(own_)] = shares[static_cast<std::size_t>(own_)];
    for_others([&](int peer) {
      Range& theirs = mine[static_cast<std::size_t>(peer)];
      theirs = payload(count_of(own_), forms_.share);
      builder_.recv(rank_at(peer), theirs);
    });
    make_results();
    builder_.codec(CodecVerb::kMerge, result_of(own_), mine);
    for_others([&](int peer) { builder_.send(rank_at(peer), result_of(own_)); });
    for_others([&](int peer) { builder_.recv(rank_at(peer), result_of(peer)); });
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

std::string_view device_obstacle(const ProcessGrid& grid, const SparseOptions& options,
                                 bool native_in_nodes) {
  if (!options.method->on_device) return "this method is for gradients in host memory";
  if (sparse_layout(0, grid, options).is_two_level && !native_in_nodes) {
    return "in device memory, ranks of a node sum by the device's library, which this job lacks; "
           "scope=flat does without";
  }
  return {};
}

Schedule compile_sparse(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                        const SparseOptions& options, const CompileOptions& device) {
  check_bucket(bucket, grid, options, device);
  const SparseLayout layout = sparse_layout(rank, grid, options);
  const std::string route(to_string(options.route));
  ScheduleBuilder builder =
      begun(rank, (layout.is_two_level ? "two-level sparse " : "sparse ") + route, bucket, device);
  const bool finishes = grid.world_size() > 1;
  const Range all = builder.bucket(0, bucket.count);
  if (layout.is_two_level) {
    const Stage node = node_stage(rank, grid, {0, bucket.count});
    builder.load(all);
    reduce_in_node(builder, node);
    Exchange(builder, layout, options)
        .append(builder.bucket(layout.shard.offset, layout.shard.count), finishes);
    gather_in_node(builder, node);
  } else if (bucket.is_on_device()) {
    builder.load(all);
    Exchange(builder, layout, options).append(all, finishes);
    builder.deliver(all, Sink::kUser);
  } else {
    if (bucket.placement == Placement::kUser) builder.forgo_bucket();
    Exchange(builder, layout, options).append(builder.home(0, bucket.count), finishes);
  }
  return finished(std::move(builder), grid, options);
}

Schedule compile_dense_step(int rank, const BucketLayout& bucket, const ProcessGrid& grid,
                            const SparseOptions& options, const CompileOptions& device) {
  check_bucket(bucket, grid, options, device);
  const SparseLayout layout = sparse_layout(rank, grid, options);
  ScheduleBuilder builder = begun(
      rank, layout.is_two_level ? "two-level folded direct" : "folded direct", bucket, device);
  const Stage all{.group = layout.ranks,
                  .extent = layout.shard,
                  .finishes = true,
                  .sink = layout.is_two_level ? Sink::kBucket : Sink::kUser};
  const Range shard = builder.bucket(layout.shard.offset, layout.shard.count);
  const Stage node = node_stage(rank, grid, {0, bucket.count});
  builder.load(builder.bucket(0, bucket.count));
  if (layout.is_two_level) reduce_in_node(builder, node);
  builder.codec(CodecVerb::kFold, shard, {shard});
  append_sum(builder, all, grid, device);
  if (layout.is_two_level) gather_in_node(builder, node);
  return finished(std::move(builder), grid, options);
}

}  // namespace kolo
