// Tests how a joined rank stands in for operations on device memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "runtime/gradients/gradient_compression.h"
#include "tests/runtime/join/joined_job.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/temporary_directory.h"

namespace kolo::joined {
namespace {

TEST(JoinedDevices, KeepMemoryFromOneOperationToTheNext) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), options(), 1,
                test::devices_for(MemoryKind::kDevice));
  const auto ticket = join(job, 1);
  std::vector<float> data(2000);
  std::size_t allocations = 0;
  for (int use = 0; use < 5; ++use) {
    const std::size_t count = use % 2 == 0 ? 2000 : 10;
    std::ranges::fill(data, 1.0f);
    job.finish({job.submit(0, {.kind = OperationKind::kAllReduce,
                               .name = "x" + std::to_string(count),
                               .tensors = test::in_place({data.data(), count, DType::kFloat32}),
                               .op = ReduceOp::kMin})});
    EXPECT_EQ(data[count - 1], 1.0f);
    job.poll(200);  // rank 1 has also performed its steps
    const std::size_t now = job.device(1).allocation_counts().allocations;
    if (use > 1) {
      EXPECT_EQ(now, allocations) << "use " << use;
    }
    allocations = now;
  }
}

/// A set in device memory of two ranks, of which rank 1 joins at once.
class SparseSteps {
 public:
  SparseSteps(std::vector<GradientSpec> gradients, std::uint64_t seed,
              const std::shared_ptr<Timeline>& timeline = nullptr)
      : job(ProcessGrid::with_node_sizes({2}), options(), seed, test::JobDevices{}),
        stream_(job.device(0).make_stream()) {
    for (GradientSpec& each : gradients) each.memory = MemoryKind::kDevice;
    resolve_compression(gradients, CompressionRules::parse("topk(0.05)"));
    for (const int rank : {0, 1}) {
      sets.push_back(std::make_shared<GradientSetState>("model", gradients, GradientOptions{}));
      if (timeline) sets.back()->write_to(timeline);
      job.engine(rank).submit(sets.back());
    }
    job.run_until_registered(sets);
    tickets_.push_back(join(job, 1));
  }

  /// Runs a step of rank 0. Its last gradient has this value everywhere, the others ones.
  void step(float last) {
    for (std::size_t g = 0; g < sets[0]->size(); ++g) {
      const BufferView& view = sets[0]->view(g);
      const float value = g + 1 == sets[0]->size() ? last : 1;
      as_host(*stream_).enqueue([view, value] {
        std::fill_n(static_cast<float*>(view.data), view.count, value);
        return true;
      });
      test::mark(job.engine(0), *sets[0], g, NativeStream{stream_.get()});
    }
    job.run_until([&] {
      if (sets[1]->awaits_check()) {
        ++polls_awaiting_check;
        EXPECT_TRUE(job.engine(1).device_busy()) << "the driving thread would sleep too long";
      }
      return sets[0]->iterations().is_over();
    });
    EXPECT_TRUE(sets[0]->wait(std::chrono::milliseconds(1)));
  }
  void end() {
    tickets_.push_back(join(job, 0));
    expect_all_joined(job, tickets_, "0");
  }

  EngineJob job;
  std::vector<std::shared_ptr<GradientSetState>> sets;
  std::size_t polls_awaiting_check = 0;

 private:
  std::unique_ptr<Stream> stream_;
  std::vector<std::shared_ptr<JoinTicket>> tickets_;
};

// All other work of the engine would wait, too. The check of dense gradients still counts.
TEST(JoinedDevices, EndStepsOfTopKWithoutAWaitForTheDevice) {
  for (unsigned seed = 0; seed < seeds(8); ++seed) {
    SparseSteps steps({{.name = "sparse", .shape = {65, 64}}, {.name = "dense", .shape = {65}}},
                      seed);
    steps.step(1);
    steps.step(std::numeric_limits<float>::infinity());
    steps.step(3);
    steps.end();
    EXPECT_EQ(steps.job.device(1).waits(), 0u) << "seed " << seed;
    EXPECT_EQ(steps.job.device(0).waits(), 3u);
    EXPECT_GT(steps.polls_awaiting_check, 0u);
    for (const auto& set : steps.sets) {
      EXPECT_EQ(static_cast<const float*>(set->view(1).data)[64], 1.5f);
      EXPECT_EQ(set->compressed().stats()[0].skipped_steps, 1u);
    }
  }
}

TEST(JoinedDevices, WaitForNoCheckWithoutDenseGradients) {
  SparseSteps steps({{.name = "sparse", .shape = {65, 64}}}, 1);
  steps.step(1);
  steps.end();
  for (const int rank : {0, 1}) EXPECT_EQ(steps.job.device(rank).waits(), 0u) << "rank " << rank;
}

// They would be downloaded in each step.
TEST(JoinedDevices, TimelinesHaveNoNormsInDeviceMemory) {
  const test::TemporaryDirectory folder;
  {
    SparseSteps steps({{.name = "sparse", .shape = {65, 64}}}, 1,
                      std::make_shared<Timeline>(folder.path() / "timeline", 1));
    steps.step(1);
    steps.end();
    for (const int rank : {0, 1}) EXPECT_EQ(steps.job.device(rank).waits(), 0u) << "rank " << rank;
  }
  std::ifstream file(folder.path() / "timeline.1");
  const std::string text{std::istreambuf_iterator(file), {}};
  EXPECT_THAT(text, testing::HasSubstr("\"skipped_steps\":0"));
  EXPECT_THAT(text, testing::HasSubstr("\"residual_norm\":null"));
}

}  // namespace
}  // namespace kolo::joined
