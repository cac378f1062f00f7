#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "benchmarks/sim/mesh_prediction.h"
#include "benchmarks/sim/predictions.h"
#include "comm/base/error.h"
#include "comm/schedule/collective_spec.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/temporary_directory.h"

namespace kolo::bench {
namespace {

CompileOptions forced(std::string algorithm, std::size_t chunk_bytes = std::size_t{1} << 30) {
  return {.algorithm = std::move(algorithm),
          .chunk_bytes = chunk_bytes,
          .device_chunk_bytes = chunk_bytes};
}

double all_reduce_us(ClusterSpec spec, std::size_t count) {
  Cluster cluster(std::move(spec));
  return cluster.run({cluster.layout(count, DType::kFloat32)}, {0})[0];
}

TEST(SimModels, HaveTheirParametersAndOperations) {
  const ModelPreset resnet = model_preset("resnet50");
  EXPECT_EQ(resnet.parameters(), 25'557'032u);
  EXPECT_EQ(resnet.gradients.size(), 161u);
  EXPECT_NEAR(resnet.forward_flops() / 2, 4.1e9, 0.05e9);  // multiply-adds in the paper's table
  const ModelPreset gpt = model_preset("gpt1b");
  EXPECT_NEAR(static_cast<double>(gpt.parameters()), 1.03e9, 0.005e9);
  // There are two operations per weight and token, and those of attention.
  const double weights = static_cast<double>(gpt.parameters() - 50304 * 1792);
  EXPECT_NEAR(gpt.forward_flops() / (2 * weights * 1024), 1.08, 0.02);
  EXPECT_THROW(model_preset("alexnet"), KoloError);
}

// Forward passes take one unit and backward passes two. A stage of S works 3 M of the 3 (M + S - 1)
// units between the first forward and the last backward pass.
TEST(SimPipeline, EqualStagesAreIdleInTheirShareOfTheUnits) {
  for (const std::size_t stages : {1u, 2u, 3u, 4u, 8u}) {
    for (const std::size_t passes : {1u, 2u, 3u, 4u, 8u, 32u}) {
      const std::vector<StageTimes> equal(stages, {.forward_us = 1, .backward_us = 2});
      const PipelineTimes times = play_passes(equal, passes);
      const auto units = static_cast<double>(passes + stages - 1);
      EXPECT_EQ(times.us, 3 * units) << stages << " " << passes;
      EXPECT_NEAR(times.bubble, static_cast<double>(stages - 1) / units, 1e-15);
    }
  }
}

// Messages to and fro delay the only pass of each stage; a slow stage sets the pace of many passes.
TEST(SimPipeline, MessagesAndSlowStagesDelayTheOthers) {
  std::vector<StageTimes> stages(3, {.forward_us = 1, .backward_us = 2, .message_us = 10});
  EXPECT_EQ(play_passes(stages, 1).us, 9 + 4 * 10);
  stages = {{1, 2}, {5, 10}, {1, 2}};
  EXPECT_EQ(play_passes(stages, 4).us, 1 + 4 * 15 + 2);
}

// If one node represents all, buckets are padded. Padding changes nothing if the parts are already
// equal.
TEST(SimCluster, ManyRanksPlayedByOneNodeTakeAsLongAsAllOfThem) {
  for (const char* algorithm : {"ring", "hierarchical:direct,ring", "hierarchical:native,ring",
                                "hierarchical:native,halving_doubling"}) {
    const std::string name = algorithm;
    ClusterSpec spec{.nodes = 32,
                     .ranks_per_node = 4,
                     .compile = forced(algorithm),
                     .memory = name.find("native") != std::string::npos ? MemoryKind::kDevice
                                                                        : MemoryKind::kHost};
    const std::size_t count = 128 * 64;
    const double reduced = all_reduce_us(spec, count);
    spec.full = true;
    EXPECT_EQ(all_reduce_us(spec, count), reduced) << algorithm;
    // With 127 parts of 64 elements and one of 63, some events are no longer simultaneous, so a
    // link may pass another message first.
    EXPECT_NEAR(all_reduce_us(spec, count - 1), reduced, 0.02 * reduced) << algorithm;
  }
}

TEST(SimCluster, FourThousandRanksFit) {
  const double us = all_reduce_us({.nodes = 512,
                                   .ranks_per_node = 8,
                                   .compile = forced("hierarchical:native,halving_doubling"),
                                   .memory = MemoryKind::kDevice},
                                  25'000'000);
  const double least = 2 * 511.0 / 512 * 25e6 * 4 / 1200;
  EXPECT_GT(us, least);
  EXPECT_LT(us, 1.5 * least);
}

TEST(SimCluster, RefusesWhatIsTooLarge) {
  Cluster cluster({.nodes = 4096, .compile = forced("ring", 1 << 20)});
  try {
    cluster.run({cluster.layout(64 << 20, DType::kFloat32)}, {0});
    ADD_FAILURE();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kConfig);
    EXPECT_NE(std::string(e.what()).find("raise the size of chunks"), std::string::npos);
  }
}

TEST(SimCluster, StragglersAreDrawnFromTheirSeed) {
  const Stragglers stragglers{.late_us = 100, .slow_share = 0.25, .slow_factor = 3, .seed = 5};
  const Lateness first = draw(stragglers, 4096), again = draw(stragglers, 4096);
  EXPECT_EQ(first.late_us, again.late_us);
  EXPECT_EQ(first.slowness, again.slowness);
  const double mean = std::accumulate(first.late_us.begin(), first.late_us.end(), 0.0) / 4096;
  EXPECT_NEAR(mean, 100, 8);  // five standard deviations
  const auto slow = std::count(first.slowness.begin(), first.slowness.end(), 3.0);
  EXPECT_NEAR(static_cast<double>(slow), 1024, 5 * 28);
}

TEST(SimCluster, TheLatestRankDelaysAll) {
  ClusterSpec spec{.nodes = 8, .compile = forced("ring")};
  const double punctual = all_reduce_us(spec, 8192);
  spec.stragglers = {.late_us = 1000, .seed = 3};
  const Lateness lateness = draw(spec.stragglers, 8);
  const double last = *std::max_element(lateness.late_us.begin(), lateness.late_us.end());
  EXPECT_NEAR(all_reduce_us(spec, 8192), last + punctual, 1e-6);
}

StepSpec step_of(std::string model) {
  StepSpec spec{.model = model_preset(model)};
  spec.compute_us = 30'000;
  return spec;
}

TEST(SimCollective, OneCallOfTheLibraryTakesItsPrice) {
  for (const std::string& collective : collective_kind_names()) {
    Cluster cluster({.nodes = 2, .ranks_per_node = 4, .memory = MemoryKind::kDevice});
    const auto times = collective_times(cluster, collective, std::size_t{64} << 20);
    SCOPED_TRACE(collective);
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].algorithm, "native");
    EXPECT_EQ(times[0].simulated_us, times[0].predicted_us);
    EXPECT_EQ(times[1].algorithm, "bounce");
    EXPECT_EQ(std::ranges::count(times, true, &CollectiveTime::is_choice), 1);
  }
}

// The reduce of whole buffers between nodes exposes results, a step that has no peer.
TEST(SimCollective, EveryAlgorithmOfHostsPlaysToItsEnd) {
  for (const std::string& collective : collective_kind_names()) {
    Cluster cluster({.nodes = 3, .ranks_per_node = 2});
    for (const CollectiveTime& time : collective_times(cluster, collective, std::size_t{16} << 20))
      EXPECT_GT(time.simulated_us, 0) << collective << " by " << time.algorithm;
  }
}

TEST(SimStep, OneRankComputesOnly) {
  Cluster cluster({});
  const StepTimes times = predict_step(cluster, step_of("resnet50"));
  EXPECT_EQ(times.step_us, 30'000);
  EXPECT_EQ(times.exposed_us, 0);
  EXPECT_EQ(times.efficiency(), 1);
}

// Only the last bucket cannot be hidden. At 10 Gbit/s, a bucket of 64 MiB takes a sixth of the
// pass.
TEST(SimStep, BucketsOfDeviceMemoryHideNearlyAllByThemselves) {
  StepSpec spec = step_of("resnet50");
  spec.compute_us = 291'000;
  ClusterSpec shape{.nodes = 4, .ranks_per_node = 4, .memory = MemoryKind::kDevice};
  shape.costs.links.network.bytes_per_us = 1250;
  Cluster cluster(shape);
  const StepTimes chosen = predict_step(cluster, spec);
  EXPECT_GT(chosen.efficiency(), 0.98);
  spec.device_fusion_bytes = std::size_t{64} << 20;
  EXPECT_LT(predict_step(cluster, spec).efficiency(), 0.9);
}

// With a fast network, only the time after the last gradient is exposed. With a slow network, all
// communication is exposed that the backward pass does not hide.
TEST(SimStep, ExposesWhatBackwardDoesNotHide) {
  const StepSpec spec = step_of("resnet50");
  ClusterSpec fast{.nodes = 8, .compile = forced("direct")};
  fast.costs.links.network = {.latency_us = 2, .bytes_per_us = 50'000};
  ClusterSpec slow = fast;
  slow.costs.links.network.bytes_per_us = 1000;
  Cluster fast_cluster(fast), slow_cluster(slow);
  const StepTimes few = predict_step(fast_cluster, spec), many = predict_step(slow_cluster, spec);
  const double bytes = 4.0 * 25'557'032 * 2 * 7 / 8;
  EXPECT_LT(few.exposed_us, 0.25 * bytes / 50'000 + 500);
  EXPECT_GE(many.step_us,
            10'000 + bytes / 1000);  // no gradient is ready before the forward pass ends
  EXPECT_LE(many.step_us, 30'000 + bytes / 1000 + 5000);
  EXPECT_GT(few.efficiency(), 0.9);
  EXPECT_LT(many.efficiency(), 0.2);
  EXPECT_EQ(few.buckets, many.buckets);
}

TEST(SimStep, ASlowRankShowsAsItsOwnTime) {
  ClusterSpec spec{.nodes = 4, .compile = forced("ring")};
  spec.costs.links.network = {.latency_us = 2, .bytes_per_us = 50'000};
  spec.stragglers = {.slow_share = 0.5, .slow_factor = 2, .seed = 1};
  Cluster cluster(spec);
  const std::vector<double>& slowness = cluster.lateness().slowness;
  ASSERT_EQ(*std::max_element(slowness.begin(), slowness.end()), 2);
  const StepTimes times = predict_step(cluster, step_of("resnet50"));
  EXPECT_NEAR(times.step_us - times.exposed_us, 60'000, 1e-6);
}

/// Returns options for one tensor of which 1 % is sent.
SparseOptions one_percent(std::size_t count, ExchangeRoute route) {
  return {.tensors = {{.name = "weight", .count = count}}, .density = 0.01, .route = route};
}

/// Returns a cluster whose codecs and processors take no time, so that only links matter.
ClusterSpec slow_links(int nodes) {
  ClusterSpec spec{.nodes = nodes};
  spec.costs.links = parse_link_costs(
      "network_latency_us=5,network_bytes_per_us=100,network_message_us=0,bucket_us=0,step_us=0,"
      "selector_bytes_per_us=1e15,selector_pair_us=0");
  return spec;
}

// A rank sends (n-1)/n of k pairs of 6 bytes to the owners, and each owner sends its k/n sums of 8
// bytes to all others: less than 14 k, for any number of ranks.
TEST(SimSparse, PayloadsTakeTheBytesOfTheirPairsAndNotOfTheirElements) {
  constexpr std::size_t kCount = 1'000'000;
  constexpr double kPairs = 0.01 * kCount;
  for (int n : {2, 4, 16}) {
    Cluster cluster(slow_links(n));
    const auto& schedules = cluster.schedules(one_percent(kCount, ExchangeRoute::kPairwise));
    std::size_t sent = 0;
    for (const auto& step : schedules.of_rank(0).steps) {
      if (step.kind == StepKind::kSend) sent += step.bytes;
    }
    const double pairs = kPairs * (n - 1) / n;
    EXPECT_LT(static_cast<double>(sent), 14 * pairs + 200.0 * n) << n;
    EXPECT_GT(static_cast<double>(sent), 10 * pairs) << n;  // indices may take 16 bits
    const double us = cluster.run({&schedules}, {0})[0];
    EXPECT_GE(us, static_cast<double>(sent) / 100) << n;
    // The other terms are the start, and the latencies of two messages.
    EXPECT_LT(us, static_cast<double>(sent) / 100 + cluster.agreement_us() + 3 * 5 + 1) << n;
  }
}

TEST(SimSparse, EveryRankSendsAllItsPairsToEveryOtherByAllGather) {
  Cluster cluster(slow_links(8));
  const auto& schedules = cluster.schedules(one_percent(1'000'000, ExchangeRoute::kAllGather));
  std::size_t sent = 0;
  for (const auto& step : schedules.of_rank(3).steps) {
    if (step.kind == StepKind::kSend) sent += step.bytes;
  }
  EXPECT_LT(static_cast<double>(sent), 7 * (6 * 10'000.0 + 200));
  EXPECT_GT(static_cast<double>(sent), 7 * 4 * 10'000.0);
}

TEST(SimSparse, SelectionTakesItsTimeOfTheProcessor) {
  ClusterSpec fast = slow_links(2);
  fast.costs.links.network = {.latency_us = 5, .bytes_per_us = 1e9, .message_us = 0};
  ClusterSpec selecting = fast;
  selecting.costs.links.selector = {.bytes_per_us = 10'000, .pair_us = 0.008};
  const auto time_us = [](const ClusterSpec& spec) {
    Cluster cluster(spec);
    return cluster.run({&cluster.schedules(one_percent(1'000'000, ExchangeRoute::kPairwise))},
                       {0})[0];
  };
  // The codec streams 4 MB three times and clears 4 MB once. Half of the pairs of two ranks belong
  // to this owner, and equally many sums come back.
  const double codec_us = (12e6 + 4e6) / 10'000 + (10'000 + 10'000) * 0.008;
  EXPECT_NEAR(time_us(selecting) - time_us(fast), codec_us, 0.01 * codec_us);
}

TEST(SimSparse, OneNodeStandsForAll) {
  for (ExchangeRoute route : {ExchangeRoute::kPairwise, ExchangeRoute::kAllGather}) {
    ClusterSpec spec{.nodes = 32, .ranks_per_node = 4};
    const auto time_us = [&] {
      Cluster cluster(spec);
      const auto& schedules = cluster.schedules(one_percent(1 << 20, route));
      EXPECT_EQ(schedules.symmetry() == NodeSymmetry::kNone, spec.full) << to_string(route);
      return cluster.run({&schedules}, {0})[0];
    };
    const double reduced = time_us();
    spec.full = true;
    EXPECT_EQ(time_us(), reduced) << to_string(route);
  }
}

TEST(SimStep, CodecsPayOnSlowLinksOnly) {
  const auto step_us = [](double bytes_per_us, const std::string& compression) {
    ClusterSpec spec{.nodes = 8, .placement = Placement::kUser};
    spec.costs.links.network.bytes_per_us = bytes_per_us;
    Cluster cluster(spec);
    StepSpec step = step_of("resnet50");
    step.compression = compression;
    const StepTimes times = predict_step(cluster, step);
    EXPECT_EQ(times.sparse_buckets > 0, compression.ends_with(')')) << compression;
    return times.step_us;
  };
  EXPECT_LT(5 * step_us(120, "topk(0.01)"), step_us(120, "none"));
  EXPECT_LT(5 * step_us(120, "powersgd(4)"), step_us(120, "none"));
  EXPECT_LT(1.8 * step_us(120, "fp16"), step_us(120, "none"));
  EXPECT_GT(step_us(50'000, "topk(0.01)"), step_us(50'000, "none"));
  EXPECT_GT(step_us(50'000, "powersgd(4)"), step_us(50'000, "none"));
}

TEST(SimStep, AChoiceIsExplained) {
  ClusterSpec spec{.nodes = 8, .placement = Placement::kUser};
  spec.costs.links.network.bytes_per_us = 120;
  Cluster cluster(spec);
  StepSpec step = step_of("resnet50");
  step.compression = "auto";
  const StepTimes times = predict_step(cluster, step);
  ASSERT_FALSE(times.decisions.empty());
  EXPECT_EQ(times.sparse_buckets, times.decisions.size());
  EXPECT_NE(times.decisions[0].reason.find("predicted"), std::string::npos)
      << times.decisions[0].reason;
}

TEST(SimCheck, PredictsFromTheCostsThatARowCarries) {
  // Each of two rounds sends half the bytes at 100 bytes/us and takes 40 us. Nothing else takes
  // time.
  const std::string costs =
      "network_latency_us=40,network_bytes_per_us=100,network_message_us=0,bucket_us=0,step_us=0";
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() / "measured.json";
  nlohmann::json row = {{"system", "kolo"},      {"size", 8192},       {"dtype", "float32"},
                        {"algorithm", "direct"}, {"ranks", 2},         {"nodes", 2},
                        {"memory", "arena"},     {"median_us", 160.0}, {"link_costs", costs}};
  nlohmann::json other = row;
  other["system"] = "mpi";
  std::ofstream(file) << nlohmann::json{row, other};
  const std::vector<MeasuredRow> rows = read_measured(file, "median_us");
  ASSERT_EQ(rows.size(), 1u);  // only Kolo's
  EXPECT_EQ(rows[0].time_us, 160);
  const CompileOptions started_at_once{.eager_bytes = 8192};
  const MachineCosts machine{.links = parse_link_costs(rows[0].link_costs)};
  EXPECT_NEAR(predict_us(rows[0], machine, started_at_once), 2 * (40 + 40.96), 1);
}

// A cast halves the bytes on the wire; a call with two buffers runs other schedules than a set.
TEST(SimCheck, PredictsTheCaseThatWasMeasured) {
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() / "measured.json";
  nlohmann::json row = {{"collective", "all-reduce"},
                        {"system", "kolo"},
                        {"size", 1 << 20},
                        {"dtype", "float32"},
                        {"algorithm", "ring"},
                        {"ranks", 2},
                        {"nodes", 2},
                        {"memory", "arena"},
                        {"time_us", 160.0},
                        {"wire_dtype", "float32"},
                        {"in_place", true}};
  const auto read = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json other = row;
    other[key] = value;
    std::ofstream(file) << nlohmann::json{other};
    return read_measured(file, "time_us").front();
  };
  const MachineCosts machine{.links = parse_link_costs("network_bytes_per_us=100")};
  const MeasuredRow plain = read("in_place", true), cast = read("wire_dtype", "bfloat16");
  EXPECT_EQ(plain.layout().placement, Placement::kInPlace);
  EXPECT_EQ(cast.layout().placement, Placement::kStaged);
  EXPECT_EQ(cast.layout().count, plain.layout().count);
  row["algorithm"] = "direct";
  EXPECT_NEAR(predict_us(read("wire_dtype", "bfloat16"), machine, {}),
              predict_us(read("in_place", true), machine, {}) / 2, 500);
  // A gradient set in the arena is in place, and the benchmark copies contributions to it.
  EXPECT_THROW(read("in_place", false), KoloError);
  row["memory"] = "user";
  const MeasuredRow apart = read("in_place", false);
  EXPECT_EQ(apart.layout().placement, Placement::kUser);
  EXPECT_TRUE(apart.layout().out_of_place);
  EXPECT_FALSE(plain.layout().out_of_place);
  row["algorithm"] = "auto";
  const MeasuredRow any = read("in_place", false);
  row["algorithm"] = test::taken(any.layout(), ProcessGrid::with_node_sizes({1, 1}),
                                 {.link_costs = machine.links});
  const CompileOptions by_default{.chunk_bytes = 0};
  EXPECT_EQ(predict_us(any, machine, by_default),
            predict_us(read("in_place", false), machine, by_default));
  for (const char* other : {"sparse-rows", "reduce-scatter"}) {
    EXPECT_THROW(read("collective", other), KoloError) << other;
  }
}

// There is no 99th percentile of a few iterations.
TEST(SimCheck, LeavesOutRowsWithoutTheTime) {
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() / "measured.json";
  const nlohmann::json few = {{"system", "kolo"},      {"size", 8192},     {"dtype", "float32"},
                              {"algorithm", "direct"}, {"ranks", 2},       {"nodes", 2},
                              {"memory", "arena"},     {"p99_us", nullptr}};
  nlohmann::json many = few;
  many["p99_us"] = 170.0;
  std::ofstream(file) << nlohmann::json{few, many};
  const std::vector<MeasuredRow> rows = read_measured(file, "p99_us");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].time_us, 170);
  std::ofstream(file) << nlohmann::json{few, few};
  EXPECT_THROW(read_measured(file, "p99_us"), KoloError);
}

TEST(SimCheck, TheSlowestLinkLimitsIterationsThatFollowEachOther) {
  MachineCosts machine;
  machine.links = parse_link_costs("network_bytes_per_us=100,network_burst_bytes=1e9");
  const MeasuredRow row{.bytes = 1 << 20, .algorithm = "ring", .ranks = 2, .nodes = 2};
  EXPECT_NEAR(predict_us(row, machine, {}), (1 << 20) / 100.0, 1e-6);
  machine.links.node_rates = {100, 10};
  EXPECT_NEAR(predict_us(row, machine, {}), (1 << 20) / 10.0, 1e-6);
}

TEST(SimCheck, NamesWhatIsWrongWithAFile) {
  EXPECT_THROW(read_measured("no such file", "time_us"), KoloError);
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() / "wrong.json";
  for (const char* text : {"{", "[]", "[{\"system\": \"kolo\"}]"}) {
    std::ofstream(file) << text;
    try {
      read_measured(file, "time_us");
      ADD_FAILURE() << text;
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kData);
      EXPECT_NE(std::string(e.what()).find(file), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace kolo::bench
