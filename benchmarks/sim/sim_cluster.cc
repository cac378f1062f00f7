#include "benchmarks/sim/sim_cluster.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "comm/coordinator/combining_tree.h"
#include "comm/schedule/collective_spec.h"

namespace kolo::bench {
namespace {

// These limits keep a simulation within a few GB of memory and a minute.
constexpr std::size_t kMostParts = 1 << 15;           // parts in one rank's schedule
constexpr std::size_t kMostSteps = 80'000'000;        // steps in a simulation
constexpr std::size_t kMostStepsUnlike = 20'000'000;  // steps, compiled rank by rank

/// Returns a number in (0, 1], equal on all platforms. Distributions of the standard library
/// differ.
double next_uniform(std::mt19937_64& random) {
  return static_cast<double>((random() >> 11) + 1) * 0x1p-53;
}

std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

ProcessGrid make_grid(const ClusterSpec& spec) {
  if (spec.nodes < 1 || spec.ranks_per_node < 1)
    refuse(ErrorCode::kConfig, "a cluster has at least one rank");
  return ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(spec.nodes), spec.ranks_per_node));
}

}  // namespace

Lateness draw(const Stragglers& stragglers, int ranks) {
  std::mt19937_64 random(stragglers.seed);
  Lateness result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.late_us.push_back(-stragglers.late_us * std::log(next_uniform(random)));
    const bool is_slow = next_uniform(random) <= stragglers.slow_share;
    result.slowness.push_back(is_slow ? stragglers.slow_factor : 1.0);
  }
  return result;
}

Cluster::Cluster(ClusterSpec spec)
    : spec_(std::move(spec)),
      grid_(make_grid(spec_)),
      lateness_(draw(spec_.stragglers, grid_.world_size())) {
  spec_.compile.link_costs = spec_.costs.links;
}

BucketLayout Cluster::layout(std::size_t count, DType dtype) const {
  if (spec_.memory == MemoryKind::kDevice) count = round_up(count, device_padding(grid_, dtype));
  return {.count = count, .dtype = dtype, .placement = spec_.placement, .memory = spec_.memory};
}

const AllReduce& Cluster::algorithm(const BucketLayout& layout) const {
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid_.world_size());
  return find_all_reduce(choose({spec, layout, grid_, spec_.compile}).algorithm->name());
}

// Pads the layout so that every rank owns equal parts of equal chunks.
BucketLayout Cluster::padded(BucketLayout layout, CompileOptions& options) const {
  const bool on_device = layout.is_on_device();
  std::size_t& chunk_bytes = on_device ? options.device_chunk_bytes : options.chunk_bytes;
  const std::size_t chunks = chunk_count({0, layout.count}, layout.dtype, chunk_bytes);
  const std::size_t unit = kWireAlignment / size_of(layout.dtype);
  std::size_t parts = static_cast<std::size_t>(grid_.world_size()) * unit;
  if (on_device) parts = std::lcm(parts, device_padding(grid_, layout.dtype));
  const std::size_t bytes = layout.bytes();
  layout.count = round_up(std::max<std::size_t>(1, layout.count), chunks * parts);
  // The padded bucket is eager if and only if the original is.
  options.eager_bytes = bytes <= options.eager_bytes ? layout.bytes() : 0;
  chunk_bytes = layout.count / chunks * size_of(layout.dtype);
  return layout;
}

// Compilation compares each step with the parts in flight, so its time grows with their square.
void Cluster::check_size(const BucketLayout& layout, const CompileOptions& options,
                         const AllReduce& algorithm) const {
  const bool on_device = layout.is_on_device();
  const std::size_t chunks =
      chunk_count({0, layout.count}, layout.dtype,
                  on_device ? options.device_chunk_bytes : options.chunk_bytes);
  const bool is_flat = algorithm.flat() != nullptr;
  const auto group = static_cast<std::size_t>(is_flat ? grid_.world_size() : grid_.num_nodes());
  const bool has_all = grid_.num_nodes() > 1 && algorithm.between_nodes().owns_parts;
  if (!has_all || chunks * group <= kMostParts) return;
  refuse(ErrorCode::kConfig,
         fmt::format("{} in {} chunks for {} ranks names {} parts, more than the {} that can be "
                     "simulated; raise the size of chunks",
                     algorithm.name(), chunks, group, chunks * group, kMostParts));
}

SimulatorSchedules Cluster::make_schedules(BucketLayout layout) const {
  CompileOptions options = spec_.compile;
  const AllReduce& resolved = algorithm(layout);
  check_size(layout, options, resolved);
  if (!is_small()) layout = padded(layout, options);
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid_.world_size());
  const auto compiled = [&](int rank) {
    return compile(rank, resolved, {spec, layout, grid_, options});
  };
  return make_schedules(compiled, std::string(resolved.name()));
}

bool Cluster::is_small() const {
  return grid_.world_size() <= kMostRanksInFull || spec_.full || grid_.num_nodes() == 1;
}

SimulatorSchedules Cluster::make_schedules(const SimulatorSchedules::Compile& compile,
                                           const std::string& what) const {
  if (is_small()) return {grid_, NodeSymmetry::kNone, compile};

  std::vector<int> samples{1, grid_.num_nodes() / 2, grid_.num_nodes() - 1};
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  const NodeSymmetry symmetry = find_symmetry(grid_, compile, samples);
  const std::size_t steps = compile(0).steps.size() * static_cast<std::size_t>(grid_.world_size());
  if (symmetry == NodeSymmetry::kNone && steps > kMostStepsUnlike) {
    refuse(ErrorCode::kConfig,
           fmt::format("no node stands for the others in {} of this bucket, and {} steps are more "
                       "than the {} that can be compiled; raise the size of chunks, take fewer "
                       "ranks, another algorithm or memory",
                       what, steps, kMostStepsUnlike));
  }
  return {grid_, symmetry, compile};
}

const SimulatorSchedules& Cluster::schedules(const BucketLayout& layout) {
  auto& made = schedules_[{layout.count, layout.dtype}];
  if (!made) made = std::make_unique<SimulatorSchedules>(make_schedules(layout));
  return *made;
}

const SimulatorSchedules& Cluster::schedules(const SparseOptions& group) {
  const BucketLayout bucket = sparse_bucket(group, ReduceOp::kSum, Placement::kUser);
  const auto compile = [&](int rank) { return compile_sparse(rank, bucket, grid_, group); };
  const std::string what = "the route " + std::string(to_string(group.route));
  others_.push_back(std::make_unique<SimulatorSchedules>(make_schedules(compile, what)));
  return *others_.back();
}

const SimulatorSchedules& Cluster::schedules(const CollectiveSpec& spec, const BucketLayout& layout,
                                             const Algorithm& algorithm) {
  const auto compiled = [&](int rank) {
    return compile(rank, algorithm, {spec, layout, grid_, spec_.compile});
  };
  others_.push_back(std::make_unique<SimulatorSchedules>(
      make_schedules(compiled, std::string(to_string(spec.kind)))));
  return *others_.back();
}

double Cluster::agreement_us() const {
  if (grid_.world_size() == 1) return 0;
  const LinkCosts& links = spec_.costs.links;
  double us = grid_.local_size(0) > 1 ? 2 * links.memory.latency_us : 0;
  double levels = 0;
  // The last leader is among the deepest in the tree.
  int rank = grid_.leader(grid_.num_nodes() - 1);
  for (CombiningTree place = CombiningTree::build(rank, grid_); place.parent >= 0;
       place = CombiningTree::build(place.parent, grid_)) {
    ++levels;
  }
  return us + levels * 2 * (links.network.latency_us + 2 * links.network.message_us);
}

std::vector<double> Cluster::run(const std::vector<BucketLayout>& layouts,
                                 const std::vector<double>& ready_us) {
  std::vector<const SimulatorSchedules*> all;
  for (const BucketLayout& layout : layouts) all.push_back(&schedules(layout));
  return run(all, ready_us);
}

std::vector<double> Cluster::run(const std::vector<const SimulatorSchedules*>& all,
                                 const std::vector<double>& ready_us) {
  std::vector<SimulatedBucket> buckets;
  std::size_t steps = 0;
  bool is_alike =
      !spec_.stragglers.exist() && grid_.num_nodes() > 1 && spec_.costs.links.node_rates.empty();
  for (std::size_t i = 0; i < all.size(); ++i) {
    SimulatedBucket bucket{.schedules = all[i], .start_us = {}};
    for (std::size_t rank = 0; rank < lateness_.late_us.size(); ++rank) {
      bucket.start_us.push_back(lateness_.late_us[rank] + ready_us[i] * lateness_.slowness[rank]);
    }
    if (!bucket.schedules->is_eager()) {
      const double last_us = *std::max_element(bucket.start_us.begin(), bucket.start_us.end());
      bucket.start_us.assign(bucket.start_us.size(), last_us + agreement_us());
    }
    is_alike = is_alike && bucket.schedules->symmetry() != NodeSymmetry::kNone;
    steps += bucket.schedules->steps();
    buckets.push_back(std::move(bucket));
  }
  if (is_alike) steps /= static_cast<std::size_t>(grid_.num_nodes());
  if (steps > kMostSteps) {
    refuse(ErrorCode::kConfig,
           fmt::format("{} steps are more than the {} that can be simulated; raise the size of "
                       "chunks, take fewer ranks or no stragglers",
                       steps, kMostSteps));
  }
  return simulate(
      grid_, buckets,
      {.costs = spec_.costs,
       .slowness = spec_.stragglers.exist() ? lateness_.slowness : std::vector<double>{},
       .only_first_node = is_alike});
}

}  // namespace kolo::bench
