#include <gmock/gmock.h>

#include <random>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using test::compile_all;
using testing::HasSubstr;

constexpr int kMostDeviceRanks = 9;
/// With more ranks than this, each shape has one root, or one chunk in at most a few pieces,
/// because nodes of many sizes need long padding.
constexpr int kMostDeviceRanksOfAll = 6;

BucketLayout device_layout(const ProcessGrid& grid, std::size_t units) {
  return {.count = units * device_padding(grid, DType::kFloat32), .memory = MemoryKind::kDevice};
}

void expect_correct(const std::vector<Schedule>& schedules, const ProcessGrid& grid,
                    const CollectiveSpec& spec, const CompileOptions& options,
                    const std::string& what) {
  const auto wrong = verify(schedules, grid, spec,
                            {.network_takes_device_memory = options.network_takes_device_memory});
  ASSERT_EQ(wrong, std::nullopt) << what << ": " << *wrong;
  for (const Schedule& schedule : schedules) {
    const std::size_t most = options.staging_bytes / size_of(schedule.layout.dtype);
    EXPECT_LE(schedule.staging_count, 2 * most) << what;
  }
}

/// Returns the native steps of a rank by ordinal, each with its chunk: "RS0 RS1 AG0".
std::vector<std::string> launches(const Schedule& schedule, const std::vector<Extent>& chunks) {
  std::vector<const Step*> natives;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::kNative) natives.push_back(&step);
  }
  std::sort(natives.begin(), natives.end(),
            [](const Step* a, const Step* b) { return a->ordinal < b->ordinal; });
  std::vector<std::string> result;
  for (const Step* step : natives) {
    const Range& range = step->target;
    const auto chunk = std::find_if(chunks.begin(), chunks.end(), [&](const Extent& extent) {
      return extent.offset <= range.offset && range.end() <= extent.end();
    });
    static constexpr const char* kNames[] = {"RS", "AG", "AR"};
    result.push_back(kNames[static_cast<int>(step->native)] +
                     std::to_string(chunk - chunks.begin()));
  }
  return result;
}

class DeviceAlgorithmShapes : public testing::TestWithParam<std::string> {};

TEST_P(DeviceAlgorithmShapes, SumEveryElementOnce) {
  test::for_each_node_shape_up_to(kMostDeviceRanks, [&](const std::vector<int>& sizes) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    const std::size_t unit_bytes = device_padding(grid, DType::kFloat32) * sizeof(float);
    for (const std::size_t units : {std::size_t{1}, std::size_t{3}}) {
      const bool is_one_of_many = grid.world_size() > kMostDeviceRanksOfAll;
      if (is_one_of_many && units > 1) continue;
      BucketLayout layout = device_layout(grid, units);
      layout.placement = units == 1 ? Placement::kInPlace : Placement::kStaged;
      const CompileOptions options{
          .algorithm = GetParam(),
          .device_chunk_bytes = unit_bytes,
          .staging_bytes = std::max(6 * kWireAlignment, is_one_of_many ? unit_bytes / 2 : 0)};
      expect_correct(compile_all(grid, layout, options), grid,
                     CollectiveSpec::all_reduce(grid.world_size()), options,
                     test::shape_text(sizes));
    }
  });
}

TEST_P(DeviceAlgorithmShapes, WorkOnNodesOutOfOrderAndWithoutStaging) {
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"a", "b", "a", "b"},
                                                {"a", "b", "b", "c", "a", "a"},
                                                {"b", "a", "c"}}) {
    const ProcessGrid grid(nodes);
    for (const bool is_direct : {false, true}) {
      const CompileOptions options{.algorithm = GetParam(),
                                   .network_takes_device_memory = is_direct};
      for (const std::size_t units : {std::size_t{0}, std::size_t{2}}) {
        expect_correct(compile_all(grid, device_layout(grid, units), options), grid,
                       CollectiveSpec::all_reduce(grid.world_size()), options, GetParam());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, DeviceAlgorithmShapes,
                         testing::ValuesIn(test::all_reduces_in(MemoryKind::kDevice)),
                         [](const auto& each) { return test::test_name(each.param); });

// Tests random shapes, paddings, chunk and staging sizes, dtypes and algorithms.
TEST(DeviceAlgorithms, SumEveryElementOnceForAnySizes) {
  const std::vector<std::string> algorithms = test::all_reduces_in(MemoryKind::kDevice);
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return random() % limit; };
    std::vector<std::string> nodes(1 + below(8));
    for (std::string& node : nodes) node = std::to_string(below(3));
    const ProcessGrid grid(nodes);
    const DType dtype =
        std::vector{DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kUInt8}[below(4)];
    const std::size_t padding = device_padding(grid, dtype);
    const BucketLayout layout{.count = below(12) * padding,
                              .dtype = dtype,
                              .placement = below(2) == 0 ? Placement::kInPlace : Placement::kStaged,
                              .memory = MemoryKind::kDevice};
    const CompileOptions options{.algorithm = algorithms[below(algorithms.size())],
                                 .device_chunk_bytes = below(6 * padding * size_of(dtype)),
                                 .staging_bytes = 2 * kWireAlignment + below(20 * kWireAlignment)};
    expect_correct(compile_all(grid, layout, options), grid,
                   CollectiveSpec::all_reduce(grid.world_size()), options,
                   std::string(options.algorithm.names_for(CollectiveKind::kAllReduce).front()));
  }
}

TEST(DeviceAlgorithms, LaunchInOneOrderEverywhere) {
  for (const std::vector<int>& sizes : {std::vector<int>{4}, {2, 2}, {4, 2}, {3, 2, 1}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    const BucketLayout layout = device_layout(grid, 4);
    const std::size_t padding = device_padding(grid, layout.dtype);
    const CompileOptions options{.algorithm = "hierarchical:native,ring",
                                 .device_chunk_bytes = padding * sizeof(float)};
    const auto chunks =
        device_chunks(layout.count, padding, layout.dtype, options.device_chunk_bytes);
    ASSERT_EQ(chunks.size(), 4u);
    for (const Schedule& schedule : compile_all(grid, layout, options)) {
      const bool alone = grid.local_size(schedule.rank) == 1;
      EXPECT_EQ(launches(schedule, chunks),
                alone ? std::vector<std::string>{}
                      : (std::vector<std::string>{"RS0", "RS1", "AG0", "RS2", "AG1", "RS3", "AG2",
                                                  "AG3"}));
    }
  }
}

// If the library combines all ranks, it also averages. Otherwise the exchange between nodes does.
TEST(DeviceAlgorithms, ScaleInTheLibraryWhereItCombinesAllRanks) {
  const auto finishing = [](const Schedule& schedule) {
    std::vector<StepKind> kinds;
    for (const Step& step : schedule.steps) {
      if (step.finishes) kinds.push_back(step.kind);
    }
    return kinds;
  };
  const ProcessGrid node = ProcessGrid::with_node_sizes({4});
  const ProcessGrid nodes = ProcessGrid::with_node_sizes({2, 2});
  const auto kinds = [&](const ProcessGrid& grid, const std::string& algorithm,
                         DType dtype = DType::kFloat32) {
    BucketLayout layout = device_layout(grid, 2);
    layout.dtype = dtype;
    layout.op = ReduceOp::kAverage;
    return finishing(test::compile_all_reduce(0, layout, grid, {.algorithm = algorithm}));
  };
  EXPECT_EQ(kinds(node, "native"), std::vector{StepKind::kNative});
  EXPECT_EQ(kinds(nodes, "native"), std::vector{StepKind::kNative});
  EXPECT_EQ(kinds(node, "hierarchical:native,ring"), std::vector{StepKind::kNative});
  EXPECT_EQ(kinds(nodes, "hierarchical:native,ring"), std::vector{StepKind::kReduce});
  // The sum of a node's float16 numbers may exceed their range.
  EXPECT_EQ(kinds(nodes, "hierarchical:native,direct", DType::kFloat16),
            (std::vector{StepKind::kNative, StepKind::kReduce}));
  EXPECT_EQ(kinds(nodes, "hierarchical:native,direct", DType::kBFloat16),
            std::vector{StepKind::kReduce});
}

// Each rank sends 2(H-1)/H of its part, in messages that fit into half of the staging memory.
TEST(DeviceAlgorithms, SendOnlyTheirPartBetweenNodes) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4, 4});
  const BucketLayout layout = device_layout(grid, 16);
  const std::size_t bytes = layout.count * sizeof(float);
  const CompileOptions options{.algorithm = "hierarchical:native,ring",
                               .staging_bytes = 4 * kWireAlignment};
  const Schedule schedule = test::compile_all_reduce(5, layout, grid, options);
  const ScheduleTraffic sent = traffic(schedule, [](int) { return true; });
  EXPECT_EQ(sent.bytes, bytes / 4);
  EXPECT_EQ(sent.messages, bytes / 4 / (2 * kWireAlignment));
  EXPECT_EQ(traffic(schedule, [&](int peer) { return grid.same_node(5, peer); }).bytes, 0u);
}

TEST(DeviceAlgorithms, RefuseWhatTheyCannotDo) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  BucketLayout layout = device_layout(grid, 2);
  EXPECT_THROW(test::compile_all_reduce(0, layout, grid,
                                        {.algorithm = "ring", .staging_bytes = kWireAlignment}),
               UsageError);
  layout.count -= 1;
  EXPECT_THROW(test::compile_all_reduce(0, layout, grid, {}), UsageError);
}

// If the named algorithm does not support the bucket, the cheapest one is chosen.
TEST(ChooseForDevices, StaysWithItsKindOfMemory) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const BucketLayout device = device_layout(grid, 8);
  const BucketLayout host{.count = device.count};
  EXPECT_EQ(test::taken(device, grid, {.algorithm = "hierarchical:direct,ring"}), "native");
  EXPECT_EQ(test::taken(host, grid, {.algorithm = "native"}), test::taken(host, grid, {}));
  EXPECT_EQ(test::taken(host, grid, {.algorithm = "native;ring"}), "ring");
  EXPECT_EQ(test::taken(device, grid, {.algorithm = "flat;ring"}), "ring");
  const CompileOptions alone{.algorithm = "native", .native_spans_nodes = false};
  EXPECT_THAT(test::taken(device, grid, alone), testing::StartsWith("hierarchical:native,"));
  EXPECT_EQ(test::taken(device, grid, {}), "native");
  EXPECT_THAT(test::taken(device, grid, {.algorithm = "hierarchical"}),
              testing::StartsWith("hierarchical:native,"));
}

TEST(ChooseForDevices, RoundsSixteenBitSumsOncePerLevelBetweenNodes) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const BucketLayout half{.count = 4 * device_padding(grid, DType::kBFloat16),
                          .dtype = DType::kBFloat16,
                          .memory = MemoryKind::kDevice};
  EXPECT_EQ(test::taken(half, grid, {}), "native");
  EXPECT_EQ(test::taken(half, grid, {.native_spans_nodes = false}), "hierarchical:native,direct");
  EXPECT_EQ(test::taken(half, grid, {.algorithm = "hierarchical"}), "hierarchical:native,direct");
  EXPECT_THROW(test::taken(half, grid, {.algorithm = "hierarchical:native,ring"}), KoloError);
  BucketLayout greatest = half;
  greatest.op = ReduceOp::kMax;
  EXPECT_NO_THROW(test::taken(greatest, grid, {.algorithm = "hierarchical:native,ring"}));
}

TEST(DeviceChunks, CoverTheBucketInMultiplesOfThePadding) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4, 6, 1});
  EXPECT_EQ(device_padding(grid, DType::kFloat32), 12 * kDeviceAlignment / 4);
  EXPECT_EQ(device_padding(grid, DType::kUInt8), 12 * kDeviceAlignment);
  const std::size_t padding = device_padding(grid, DType::kFloat32);
  for (const std::size_t units : std::initializer_list<std::size_t>{0, 1, 2, 7, 64}) {
    for (const std::size_t chunk_bytes : {std::size_t{0}, padding, 9 * padding, 1000 * padding}) {
      std::size_t at = 0;
      for (const Extent& chunk :
           device_chunks(units * padding, padding, DType::kFloat32, chunk_bytes)) {
        EXPECT_EQ(chunk.offset, at);
        EXPECT_EQ(chunk.count % padding, 0u);
        EXPECT_TRUE(chunk.count > 0 || units == 0);
        at = chunk.end();
      }
      EXPECT_EQ(at, units * padding);
    }
  }
  EXPECT_THROW(device_chunks(padding + 1, padding, DType::kFloat32, 1), UsageError);
}

}  // namespace
}  // namespace kolo
