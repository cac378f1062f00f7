
#include <gmock/gmock.h>

#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/compile.h"
#include "comm/schedule/collective_spec.h"

namespace kolo {
namespace {

constexpr std::size_t mib(std::size_t count) { return count << 20; }

std::vector<ProcessGrid> device_grids() {
  std::vector<ProcessGrid> result;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{
           {1}, {2}, {8}, {1, 1}, {2, 2}, {8, 8}, {3, 2}, {1, 1, 1, 1, 1}, {8, 8, 8, 8}}) {
    result.push_back(ProcessGrid::with_node_sizes(sizes));
  }
  return result;
}

std::vector<std::size_t> device_sizes() {
  std::vector<std::size_t> result{0};
  for (std::size_t bytes = 1; bytes <= mib(1024); bytes *= 4) result.push_back(bytes);
  return result;
}

double predict_us(const CostModel& model, const std::string& algorithm, std::size_t bytes,
                  std::size_t unit_bytes = kDeviceUnitBytes) {
  return model.device_price(find_all_reduce(algorithm), bytes, unit_bytes).us;
}

double ring_us(const CostModel& model, std::size_t bytes,
               std::size_t unit_bytes = kDeviceUnitBytes) {
  return predict_us(model, "hierarchical:native,ring", bytes, unit_bytes);
}

Choice chosen(const ProcessGrid& grid, std::size_t bytes, const CompileOptions& options = {},
              DType dtype = DType::kFloat32) {
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  const BucketLayout layout{
      .count = bytes / size_of(dtype), .dtype = dtype, .memory = MemoryKind::kDevice};
  return choose({spec, layout, grid, options});
}

std::vector<std::string> names_of(const CompileOptions& options, DType dtype = DType::kFloat32) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const CollectiveSpec spec = CollectiveSpec::all_reduce(4);
  const BucketLayout layout{.count = 1024, .dtype = dtype, .memory = MemoryKind::kDevice};
  std::vector<std::string> names;
  for (const Choice& each : considered({spec, layout, grid, options})) {
    names.emplace_back(each.algorithm->name());
  }
  return names;
}

TEST(DeviceCostModel, ChoosesTheLowestPredictionAmongWhatIsAllowed) {
  for (const ProcessGrid& grid : device_grids()) {
    const CostModel model(grid, {});
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      for (const bool spans_nodes : {false, true}) {
        const CompileOptions options{.native_spans_nodes = spans_nodes};
        const std::vector<std::string> names = names_of(options, dtype);
        for (const std::size_t size : device_sizes()) {
          const std::size_t bytes = size / 4 * 4;
          double best = std::numeric_limits<double>::infinity();
          for (const std::string& name : names)
            best = std::min(best, predict_us(model, name, bytes));
          const Choice taken = chosen(grid, bytes, options, dtype);
          EXPECT_THAT(names, testing::Contains(taken.algorithm->name()));
          EXPECT_EQ(taken.price.us, best);
          if (spans_nodes && predict_us(model, "native", bytes) == best) {
            EXPECT_EQ(taken.algorithm->name(), "native");
          }
        }
      }
    }
  }
}

TEST(DeviceCostModel, KeepsToItsLimits) {
  EXPECT_THAT(names_of({.native_spans_nodes = false}, DType::kFloat16),
              testing::ElementsAre("hierarchical:native,direct"));
  EXPECT_THAT(names_of({.native_spans_nodes = false}), testing::Not(testing::Contains("native")));
  EXPECT_THAT(names_of({.native_in_nodes = false}), testing::ElementsAre("native"));
}

TEST(DeviceCostModel, PredictionsGrowWithBytesUpToAUnit) {
  for (const ProcessGrid& grid : device_grids()) {
    const CostModel model(grid, {});
    for (const std::string& name : names_of({})) {
      double previous = 0;
      for (std::size_t bytes = 0; bytes <= kDeviceUnitBytes; bytes += kDeviceUnitBytes / 16) {
        const double predicted = predict_us(model, name, bytes);
        EXPECT_GE(predicted, previous) << name << ", " << bytes << " bytes";
        previous = predicted;
      }
    }
  }
}

// The expected times are computed by hand, with latency a and S bytes at rate b.
TEST(DeviceCostModel, AgreesWithTheFormulas) {
  LinkCosts costs;
  costs.network.latency_us = 100;
  costs.network.bytes_per_us = 1;
  costs.device = {.latency_us = 2, .bytes_per_us = 10};
  costs.staging = {.latency_us = 5, .bytes_per_us = 4};
  costs.native_network = {.latency_us = 50, .bytes_per_us = 2};
  costs.bucket_us = 0;
  const double agreement = 4 * costs.network.message_us;  // between nodes

  const CostModel node(ProcessGrid::with_node_sizes({4}), costs);
  EXPECT_DOUBLE_EQ(predict_us(node, "native", 400), 2 + 60);  // a + 2(n-1)/n S/b
  EXPECT_DOUBLE_EQ(ring_us(node, 400), 2 * (2 + 30));

  const CostModel two(ProcessGrid::with_node_sizes({2, 2}), costs);
  EXPECT_DOUBLE_EQ(predict_us(two, "native", 400),
                   agreement + 2 + 2 * 50 + 200);  // the network is the slower part
  // The stages follow each other: halves of collectives, copies of a rank's 2(H-1)/H S/2, and a
  // ring between nodes. Two messages are sent and two received; each takes a copy and 1 us.
  const double collectives = 2 * (2 + 20), copy = 2 * 5 + 50, exchange = 2 * (100 + 200) + 4;
  const double one_unit = agreement + collectives + 2 * copy + exchange;
  EXPECT_DOUBLE_EQ(ring_us(two, 400), one_unit);
  // With four units, the slowest stage determines the time of the other three.
  EXPECT_DOUBLE_EQ(ring_us(two, 1600, 400), one_unit + 3 * exchange);

  // No stage dominates. Two units are in progress, so a further unit takes half of a unit's time.
  costs.network.latency_us = 0;
  costs.network.bytes_per_us = 8;
  const CostModel balanced(ProcessGrid::with_node_sizes({2, 2}), costs);
  const double all = 44 + 2 * 60 + 54;
  EXPECT_DOUBLE_EQ(ring_us(balanced, 800, 400), agreement + all + all / 2);

  const CostModel four(ProcessGrid::with_node_sizes({1, 1, 1, 1}), costs);
  EXPECT_DOUBLE_EQ(predict_us(four, "native", 400),
                   agreement + 2 + 4 * 50 + 300);  // no data moves inside a node
  // In each of two rounds, three messages are copied one after the other, and then the last of them
  // is copied to the peer's device. Each direction has 2(H-1)/H S bytes.
  EXPECT_DOUBLE_EQ(predict_us(four, "hierarchical:native,direct", 400),
                   agreement + 2 * (3 + 1) * 5 + 2 * 150 + 12 + 75);
}

TEST(DeviceCostModel, PrefersTheLibraryUnlessItsNetworkIsPoor) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({8, 8});
  EXPECT_EQ(chosen(ProcessGrid::with_node_sizes({8}), mib(64)).algorithm->name(), "native");
  EXPECT_EQ(chosen(grid, mib(64)).algorithm->name(), "native");
  CompileOptions sockets;
  sockets.link_costs.network.bytes_per_us = 12'000;
  EXPECT_THAT(chosen(grid, mib(256), sockets).algorithm->name(),
              testing::StartsWith("hierarchical:native,"));
}

TEST(DeviceCostModel, TakesTheLibraryIfItsCostsAreAGuess) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({8, 8});
  CompileOptions guessed;
  guessed.link_costs.network.bytes_per_us = 12'000;
  guessed.link_costs.native_timed = 0;
  EXPECT_EQ(chosen(grid, mib(256), guessed).algorithm->name(), "native");
  EXPECT_EQ(chosen(grid, mib(256), guessed).reason,
            "native: the device's library, of which no call was timed");
  guessed.algorithm = "hierarchical";
  EXPECT_THAT(chosen(grid, mib(256), guessed).algorithm->name(), testing::StartsWith("hier"));
  guessed.algorithm = "auto";
  guessed.native_spans_nodes = false;
  EXPECT_THAT(chosen(grid, mib(256), guessed).algorithm->name(), testing::StartsWith("hier"));
}

TEST(DeviceCostModel, TheLibraryGetsBucketsUncut) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const BucketLayout layout{.count = mib(256) / sizeof(float), .memory = MemoryKind::kDevice};
  const CompileOptions options{.device_chunk_bytes = mib(32)};
  const CompileContext context{CollectiveSpec::all_reduce(4), layout, grid, options};
  const auto calls = [&](std::string_view name) {
    const Schedule schedule = compile(1, find_all_reduce(name), context);
    return std::ranges::count(schedule.steps, StepKind::kNative, &Step::kind);
  };
  EXPECT_EQ(calls("native"), 1);
  EXPECT_EQ(calls("hierarchical:native,ring"), 2 * 8);
}

TEST(DeviceCostModel, SaysWhy) {
  CompileOptions options;
  options.link_costs.device = {.latency_us = 0, .bytes_per_us = 1};
  options.link_costs.bucket_us = 0;
  const ProcessGrid node = ProcessGrid::with_node_sizes({2});
  EXPECT_EQ(chosen(node, 5200, options).reason,
            "native: 5.2 ms predicted; hierarchical:native,direct 5.2 ms");
  options.native_spans_nodes = false;
  EXPECT_EQ(chosen(node, 100, options).reason,
            "hierarchical:native,direct: 100.0 us predicted; hierarchical:native,ring 100.0 us");
  options.algorithm = "ring";
  EXPECT_EQ(chosen(node, 100, options).reason, "ring: asked for");
}

BucketLayout device_layout_of(const CollectiveSpec& spec) {
  return {.count = spec.count(),
          .placement = Placement::kUser,
          .memory = MemoryKind::kDevice,
          .out_of_place = true};
}

CollectiveSpec all_gather(int ranks, std::size_t count) {
  return CollectiveSpec::all_gather(
      std::vector<std::size_t>(static_cast<std::size_t>(ranks), count));
}

/// Returns whether the spec runs natively in device memory: as one call of the library, either on
/// the tensors or in a bucket.
bool is_native(const CollectiveSpec& spec, const std::vector<int>& nodes,
               const CompileOptions& options) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
  BucketLayout device = device_layout_of(spec), host = device;
  host.memory = MemoryKind::kHost;
  const double copies_us =
      bounce_us(spec, device.dtype, grid.world_size(), options.link_costs.staging);
  const Placing placings[] = {{spec, device}, {spec, host, copies_us}};
  return choose_placing(placings, grid, options) == 0;
}

TEST(DeviceCollective, OneNodeTakesTheLibraryAtAnySize) {
  const std::vector<std::size_t> pairs(16, 1000), parts(4, 1000);
  for (const CollectiveSpec& spec :
       {CollectiveSpec::reduce(1, 4, 1), CollectiveSpec::reduce(1, 4, 1 << 20),
        CollectiveSpec::reduce_scatter(parts), all_gather(4, 1), all_gather(4, 1 << 20),
        CollectiveSpec::gather(2, parts), CollectiveSpec::scatter(2, parts),
        CollectiveSpec::all_to_all(4, pairs), CollectiveSpec::broadcast(3, 4, 100),
        CollectiveSpec::all_reduce(4, 100)}) {
    EXPECT_TRUE(is_native(spec, {4}, {}));
  }
}

TEST(DeviceCollective, BounceBuffersAreTakenWhereTheyCostLess) {
  CompileOptions slow_launch, slow_links;
  slow_launch.link_costs.device.latency_us = 100;
  slow_links.link_costs.device.bytes_per_us = 100;
  EXPECT_FALSE(is_native(all_gather(4, 16), {4}, slow_launch));
  EXPECT_TRUE(is_native(all_gather(4, 1 << 22), {4}, slow_launch));
  EXPECT_TRUE(is_native(all_gather(4, 16), {4}, slow_links));
  EXPECT_FALSE(is_native(all_gather(4, 1 << 22), {4}, slow_links));
  slow_links.link_costs.native_timed = 0;
  EXPECT_TRUE(is_native(all_gather(4, 1 << 22), {4}, slow_links)) << "the costs are a guess";
}

TEST(DeviceCollective, RanksThatTheLibraryDoesNotReachTakeBounceBuffers) {
  CompileOptions options{.native_spans_nodes = false, .native_in_nodes = false};
  for (const std::vector<int>& nodes : {std::vector{4}, {2, 2}}) {
    EXPECT_FALSE(is_native(all_gather(4, 1 << 20), nodes, options));
    options.algorithm = "native";
    EXPECT_FALSE(is_native(all_gather(4, 1 << 20), nodes, options));
    options.algorithm = {};
  }
}

TEST(DeviceCollective, ARequestDecides) {
  CompileOptions slow{.algorithm = "native"};
  slow.link_costs.device.latency_us = 100;
  const CollectiveSpec spec = all_gather(4, 16);
  EXPECT_TRUE(is_native(spec, {4}, slow));
  CompileOptions guessed{.algorithm = "direct"};
  guessed.link_costs.native_timed = 0;
  for (const CompileOptions& options : {CompileOptions{.algorithm = "direct"}, guessed}) {
    EXPECT_FALSE(is_native(spec, {4}, options)) << "an algorithm of the host";
  }
  EXPECT_TRUE(is_native(spec, {4}, {.algorithm = "ring"})) << "none of one node";
}

}  // namespace
}  // namespace kolo
