#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/sim/sim_cluster.h"
#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/compile.h"

// Some numbers that decide how buckets are summed are neither measured nor implied. None of them
// may matter much: docs/decisions/0041-constants.md lists them.

namespace kolo::bench {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10, kMiB = std::size_t{1} << 20;
constexpr double kFactor = 4;

/// The costs and defaults from which choices for a bucket are made.
struct Decider {
  LinkCosts costs = {};
  CompileOptions compile = {};
  std::size_t least_chunk = 64 * kKiB, most_chunk = 64 * kMiB;
  std::size_t most_flat = all_reduce::flat.auto_most_bytes;
};

struct Constant {
  std::string name;
  std::function<void(Decider&, double)> scale;
  std::size_t most_bytes = 64 * kMiB;  ///< Largest size that is simulated.
};

void scale(std::size_t& value, double factor) {
  value = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(value) * factor));
}

template <auto Field>
void scale_option(Decider& decider, double factor) {
  scale(decider.compile.*Field, factor);
}

Constant cost(std::string_view key) {
  return {std::string(key), [key](Decider& decider, double factor) {
            for (const auto& [name, value] : link_cost_values(decider.costs)) {
              if (name != key || value == 0) continue;
              decider.costs =
                  parse_link_costs(fmt::format("{}={}", key, value * factor), decider.costs);
              return;
            }
          }};
}

std::vector<Constant> documented_defaults() {
  return {{"slot_bytes", scale_option<&CompileOptions::slot_bytes>},
          {"cached_slot_bytes", scale_option<&CompileOptions::cached_slot_bytes>},
          {"cached_bytes", scale_option<&CompileOptions::cached_bytes>},
          {"window", scale_option<&CompileOptions::window>},
          {"eager_bytes", scale_option<&CompileOptions::eager_bytes>},
          {"network_window", scale_option<&CompileOptions::network_window>},
          {"device_chunk_bytes", scale_option<&CompileOptions::device_chunk_bytes>},
          {"staging_bytes", scale_option<&CompileOptions::staging_bytes>},
          // Beyond this size each chunk takes the same time, and compiling so many takes long.
          {"least_chunk", [](Decider& decider, double by) { scale(decider.least_chunk, by); },
           4 * kMiB},
          {"most_chunk", [](Decider& decider, double by) { scale(decider.most_chunk, by); }},
          {"most_flat", [](Decider& decider, double by) { scale(decider.most_flat, by); }},
          cost("bucket_us"),
          cost("device_latency_us"),
          cost("device_bytes_per_us"),
          cost("staging_bytes_per_us")};
}

/// Returns the defaults that are used only if nothing was measured.
std::vector<Constant> measured_costs() {
  std::vector<Constant> all;
  for (const auto& [key, value] : link_cost_values({})) {
    if (key.starts_with("memory_") || key.starts_with("network_") || key == "step_us") {
      all.push_back(cost(key));
    }
  }
  return all;
}

struct Case {
  int nodes, ranks_per_node;
  Placement placement;
  MemoryKind memory;
  std::size_t bytes;

  friend auto operator<=>(const Case&, const Case&) = default;

  std::string describe() const {
    return fmt::format("{} nodes of {}, {} B in {} memory{}", nodes, ranks_per_node, bytes,
                       memory == MemoryKind::kHost ? "host" : "device",
                       placement == Placement::kUser ? " of the user" : "");
  }
};

std::vector<Case> cases(MemoryKind memory, std::size_t most_bytes) {
  std::vector<Case> all;
  for (const auto& [nodes, ranks] : {std::pair{1, 2}, {1, 8}, {2, 1}, {4, 1}, {2, 4}}) {
    for (const Placement placement : {Placement::kInPlace, Placement::kUser}) {
      if (memory == MemoryKind::kDevice && placement == Placement::kUser) continue;
      for (std::size_t bytes = 4; bytes <= most_bytes; bytes *= 4) {
        all.push_back({nodes, ranks, placement, memory, bytes});
      }
    }
  }
  return all;
}

struct Chosen {
  std::string algorithm;
  std::size_t chunk_bytes;
  friend auto operator<=>(const Chosen&, const Chosen&) = default;
};

/// Chooses like `kolo::choose` and `CostModel::chunk_bytes`, with limits that can be varied.
Chosen choose(const Case& tested, const Decider& decider) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(tested.nodes), tested.ranks_per_node));
  if (tested.memory == MemoryKind::kDevice) {
    const std::size_t unit = decider.compile.device_chunk_bytes;
    const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
    const BucketLayout layout{.count = tested.bytes / 4, .memory = MemoryKind::kDevice};
    CompileOptions options = decider.compile;
    options.link_costs = decider.costs;
    return {std::string(kolo::choose({spec, layout, grid, options}).algorithm->name()), unit};
  }
  HostBucket bucket{
      .bytes = tested.bytes,
      .packing = tested.placement == Placement::kUser ? Packing::kUser : Packing::kNone};
  const auto best_chunk = [&](const AllReduce& algorithm, const LinkCosts& costs) {
    const CostModel model(grid, costs);
    std::pair<double, std::size_t> best{std::numeric_limits<double>::infinity(), 0};
    std::size_t size = decider.least_chunk;
    while (size < tested.bytes && size < decider.most_chunk) size *= 2;
    for (; size >= decider.least_chunk; size /= 2) {
      bucket.chunk_bytes = size;
      const double us = model.host_price(algorithm, bucket).us;
      if (us < best.first) best = {us, size};
    }
    return best;
  };
  const AllReduce* chosen = nullptr;
  double least_us = std::numeric_limits<double>::infinity();
  for (const AllReduce& each : all_reduces()) {
    if (!each.is_for_auto(MemoryKind::kHost)) continue;
    if (grid.num_nodes() == 1 && !each.maps_memory()) continue;
    if (each.flat() == &all_reduce::flat && tested.bytes > decider.most_flat) continue;
    const double us = best_chunk(each, decider.costs).first;
    if (us >= least_us) continue;
    least_us = us;
    chosen = &each;
  }
  const LinkCosts costs = chosen->sums_in_one_place() ? decider.costs : LinkCosts{};
  return {std::string(chosen->name()), best_chunk(*chosen, costs).second};
}

/// Simulates the choices of a decider on machines with the costs `truth`.
class Machines {
 public:
  explicit Machines(LinkCosts truth) : truth_(std::move(truth)) {}

  const LinkCosts& truth() const { return truth_; }

  double us(const Case& tested, const Decider& decider) {
    const Chosen choice = choose(tested, decider);
    const CompileOptions& with = decider.compile;
    double& us = known_[{tested, choice, options_that_matter(tested, with)}];
    if (us > 0) return us;
    ClusterSpec spec{.nodes = tested.nodes,
                     .ranks_per_node = tested.ranks_per_node,
                     .compile = with,
                     .placement = tested.placement,
                     .memory = tested.memory};
    spec.costs.links = truth_;
    spec.compile.algorithm = choice.algorithm;
    spec.compile.chunk_bytes = choice.chunk_bytes;
    Cluster cluster(std::move(spec));
    us = cluster.run({cluster.layout(tested.bytes / sizeof(float), DType::kFloat32)}, {0})[0];
    return us;
  }

 private:
  using Numbers = std::vector<std::size_t>;

  static Numbers options_that_matter(const Case& tested, const CompileOptions& options) {
    if (tested.memory == MemoryKind::kDevice) return {options.staging_bytes};
    if (tested.nodes > 1) return {options.network_window, tested.bytes <= options.eager_bytes};
    if (tested.placement == Placement::kInPlace) return {};
    return {options.slot_bytes, options.cached_slot_bytes, options.cached_bytes, options.window};
  }

  LinkCosts truth_;
  std::map<std::tuple<Case, Chosen, Numbers>, double> known_;
};

/// Expects that no choice becomes slower by more than `bound` if one constant is wrong by kFactor.
void expect_tolerance(Machines machines, MemoryKind memory, const std::vector<Constant>& constants,
                      double bound, std::size_t most_bytes = 64 * kMiB) {
  const Decider usual{.costs = machines.truth()};
  for (const Case& tested : cases(memory, most_bytes)) {
    const double usual_us = machines.us(tested, usual);
    for (const Constant& constant : constants) {
      if (tested.bytes > constant.most_bytes) continue;
      for (const double factor : {1 / kFactor, kFactor}) {
        Decider varied = usual;
        constant.scale(varied, factor);
        EXPECT_LE(machines.us(tested, varied), bound * usual_us)
            << constant.name << " times " << factor << ": " << tested.describe() << ", "
            << choose(tested, usual).algorithm << " -> " << choose(tested, varied).algorithm;
      }
    }
  }
}

const char* const kGigabit = "network_bytes_per_us=118,network_latency_us=30,network_message_us=5";
const char* const kHundredGigabit =
    "network_bytes_per_us=12000,network_latency_us=2,network_message_us=0.3";

TEST(Constants, DefaultsDecideWithinAQuarter) {
  expect_tolerance(Machines({}), MemoryKind::kHost, documented_defaults(), 1.25);
}

TEST(Constants, DefaultsDecideWithinAQuarterOverOtherNetworks) {
  for (const char* network : {kGigabit, kHundredGigabit}) {
    SCOPED_TRACE(network);
    expect_tolerance(Machines(parse_link_costs(network)), MemoryKind::kHost, documented_defaults(),
                     1.25, kMiB);
  }
}

TEST(Constants, DefaultsForDevicesDecideWithinAQuarter) {
  for (const char* network : {"", kGigabit, kHundredGigabit}) {
    SCOPED_TRACE(network);
    expect_tolerance(Machines(parse_link_costs(network)), MemoryKind::kDevice,
                     documented_defaults(), 1.25);
  }
}

// The same holds for a cost of samples that almost disagreed, or for a default in its place.
TEST(Constants, CostsThatAreOffByTheMostSpreadDecideWithinAFactorOfTwo) {
  expect_tolerance(Machines({}), MemoryKind::kHost, measured_costs(), 2);
}

/// Returns the time at which the last bucket is done, for a backward pass as long as all sums.
double step_us(const ProcessGrid& grid, std::size_t all_bytes, std::size_t bucket_bytes) {
  const auto count = [](std::size_t bytes) { return bytes / sizeof(float); };
  const ClusterSpec spec{.nodes = grid.num_nodes(), .ranks_per_node = grid.local_size(0)};
  Cluster cluster(spec);
  const double compute_us =
      cluster.run({cluster.layout(count(all_bytes), DType::kFloat32)}, {0})[0];
  const std::size_t buckets = std::max<std::size_t>(1, all_bytes / bucket_bytes);
  std::vector<BucketLayout> layouts(buckets,
                                    cluster.layout(count(all_bytes / buckets), DType::kFloat32));
  std::vector<double> ready_us;
  for (std::size_t i = 1; i <= buckets; ++i) {
    ready_us.push_back(compute_us * static_cast<double>(i) / static_cast<double>(buckets));
  }
  return std::ranges::max(cluster.run(layouts, ready_us));
}

TEST(Constants, BucketsAreOfASizeThatToleratesWhatTheyCost) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2}, {8}, {1, 1}, {4, 4}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
    for (const std::size_t bytes : {kMiB, 16 * kMiB, 64 * kMiB}) {
      const auto us_with = [&](double factor) {
        LinkCosts costs;
        costs.bucket_us *= factor;
        return step_us(
            grid, bytes,
            cheapest_bucket_bytes(bytes, MemoryKind::kHost, grid, {.link_costs = costs}));
      };
      for (const double factor : {1 / kFactor, kFactor}) {
        EXPECT_LE(us_with(factor), 1.25 * us_with(1)) << bytes << " B, times " << factor;
      }
    }
  }
}

}  // namespace
}  // namespace kolo::bench
