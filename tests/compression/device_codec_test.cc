// Compares compressed buckets in the memory of stand-in devices, bit for bit, with those in host
// memory: results, residuals, velocities, and what is saved.

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "tests/compression/compressed_cases.h"

namespace kolo::test {
namespace {

/// Two jobs with equal steps.
class TwoMemories {
 public:
  TwoMemories(const std::vector<int>& nodes, const SparseOptions& options, std::uint64_t seed = 1)
      : host(nodes, options, Placement::kUser, seed),
        device(nodes, options, Placement::kUser, seed, MemoryKind::kDevice) {}

  /// Runs a step in both. Returns whether it was accepted.
  bool step(const std::vector<Tensors>& gradients) {
    const bool accepted = host.step(gradients);
    EXPECT_EQ(device.step(gradients), accepted);
    expect_equal(accepted);
    return accepted;
  }

  void expect_equal(bool has_results) {
    EXPECT_EQ(residual_bits(device), residual_bits(host));
    for (int rank = 0; rank < host.size(); ++rank) {
      const GradientCodecStats& here = host.codec(rank).stats();
      const GradientCodecStats& there = device.codec(rank).stats();
      EXPECT_EQ(there.k, here.k);
      EXPECT_EQ(there.kept_pairs, here.kept_pairs);
      EXPECT_EQ(there.payload_bytes, here.payload_bytes);
      EXPECT_EQ(there.skipped, here.skipped);
      EXPECT_EQ(device.codec(rank).residual_norm(0), host.codec(rank).residual_norm(0));
      if (!has_results) continue;
      EXPECT_EQ(bits_of(device.rank(rank).results()), bits_of(host.rank(rank).results()));
    }
  }

  CompressedJob host, device;
};

const std::vector<std::vector<int>> kShapes = {{1},       {2},    {3},       {8},       {1, 1},
                                               {2, 2},    {4, 4}, {3, 1},    {1, 1, 1}, {2, 2, 2},
                                               {3, 2, 1}, {4},    {2, 3, 3}, {3, 3}};

std::vector<const CompressionMethod*> device_methods() {
  std::vector<const CompressionMethod*> methods = coded_methods();
  std::erase_if(methods, [](const CompressionMethod* each) { return !each->on_device; });
  return methods;
}

SparseOptions next_options(std::mt19937& random, const CompressionMethod* method) {
  SparseOptions options = any_options(random, method);
  options.threshold = any_of(random, {0.5f, 2.0f, 0.3f});
  if (random() % 2 == 0) options.momentum = MomentumCorrection{.momentum = 0.75f};
  if (random() % 3 == 0) {
    options.warm_up.dense_steps = 1;
    if (method->takes_density) {
      options.warm_up.ramp = {0.7};
      options.warm_up.steps_per_density = 1;
    }
  }
  options.feedback = random() % 5 != 0;
  return options;
}

TEST_F(GradientCodecTest, DeviceMemoryGivesTheBitsOfHostMemoryForAllShapes) {
  for (const CompressionMethod* const method : device_methods()) {
    for (std::size_t round = 0; round < 2 * kShapes.size(); ++round) {
      const std::vector<int>& nodes = kShapes[round % kShapes.size()];
      if (method != &methods::topk && round % 2 == 0) continue;
      const SparseOptions options = next_options(random_, method);
      SCOPED_TRACE(text(options, nodes));
      TwoMemories jobs(nodes, options, random_());
      for (int step = 0; step < 5; ++step) {
        if (step == 3) {
          for (int rank = 0; rank < jobs.host.size(); ++rank) {
            jobs.host.codec(rank).flush_next();
            jobs.device.codec(rank).flush_next();
          }
        }
        ASSERT_TRUE(jobs.step(gradients_of(random_, options, jobs.host.size(), normal)));
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(GradientCodecTest, ABadNumberOnADeviceLeavesEveryResidualAsItWas) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::vector<int>& nodes : {std::vector<int>{1}, {2}, {2, 2}, {2, 2, 2}, {3, 1}}) {
      for (const CompressionMethod* const method : device_methods()) {
        SparseOptions options = options_of({700, 90}, 0.1);
        options.method = method;
        options.momentum = MomentumCorrection{};
        options.warm_up.dense_steps = 1;
        TwoMemories jobs(nodes, options);
        for (int step = 0; step < 4; ++step) {  // dense and sparse, good and bad
          SCOPED_TRACE(text(options, nodes) + ", step " + std::to_string(step));
          auto gradients = gradients_of(random_, options, jobs.host.size(), normal);
          const bool is_good = step % 2 == 1;
          if (!is_good) gradients.back()[random_() % 2][random_() % 90] = bad;
          const auto before = residual_bits(jobs.device);
          ASSERT_EQ(jobs.step(gradients), is_good);
          if (is_good) {
            EXPECT_NE(residual_bits(jobs.device), before);
          } else {
            EXPECT_EQ(residual_bits(jobs.device), before);
          }
        }
      }
    }
  }
}

// With one element, only one rank of each node has something to exchange.
TEST_F(GradientCodecTest, RanksWithoutElementsOnADeviceTakePart) {
  for (const CompressionMethod* const method : device_methods()) {
    for (const std::size_t dense_steps : {0u, 2u}) {
      SparseOptions options = options_of({1}, 1.0);
      options.method = method;
      options.warm_up.dense_steps = dense_steps;
      TwoMemories jobs({2, 2}, options);
      auto gradients = gradients_of(random_, options, 4, normal);
      ASSERT_TRUE(jobs.step(gradients));
      gradients[3][0][0] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_FALSE(jobs.step(gradients));
      EXPECT_TRUE(jobs.device.codec(1).parts().empty());
    }
  }
}

// A state saved in one memory goes on in the other.
TEST_F(GradientCodecTest, StatesMoveBetweenDeviceAndHostMemory) {
  for (const CompressionMethod* const method : device_methods()) {
    const std::vector<int> nodes = random_() % 2 == 0 ? std::vector{3} : std::vector{2, 2};
    SparseOptions options = options_of({900, 300}, 0.05);
    options.method = method;
    options.momentum = MomentumCorrection{};
    TwoMemories first(nodes, options), second(nodes, options);
    ASSERT_TRUE(first.step(gradients_of(random_, options, first.host.size(), normal)));
    for (int rank = 0; rank < first.host.size(); ++rank) {
      second.device.codec(rank).load(first.host.codec(rank).save());
      second.host.codec(rank).load(first.device.codec(rank).save());
    }
    second.expect_equal(false);
    EXPECT_EQ(residual_bits(second.device), residual_bits(first.device));
    EXPECT_GT(second.device.codec(0).residual_norm(0), 0.0);
    ASSERT_TRUE(second.step(gradients_of(random_, options, first.host.size(), normal)));
    for (int rank = 0; rank < first.host.size(); ++rank) second.device.codec(rank).drop_residuals();
    EXPECT_EQ(second.device.codec(0).residual_norm(0), 0.0);
  }
}

TEST_F(GradientCodecTest, StatesOfDevicesGoOnAmongOtherRanks) {
  for (const CompressionMethod* const method : device_methods()) {
    SparseOptions options = options_of({900, 300}, 0.05);
    options.method = method;
    options.momentum = MomentumCorrection{};
    TwoMemories former({2, 2}, options), later({3}, options);
    ASSERT_TRUE(former.step(gradients_of(random_, options, 4, normal)));
    for (CompressedJob* const job : {&later.host, &later.device}) {
      CompressedJob& source = job == &later.host ? former.host : former.device;
      std::vector<FeedbackState> states;
      for (int rank = 0; rank < 4; ++rank) states.push_back(source.codec(rank).save());
      for (int rank = 0; rank < 3; ++rank) {
        job->codec(rank).load(remap(states, job->codec(rank).share(0.75)));
      }
    }
    later.expect_equal(false);
    ASSERT_TRUE(later.step(gradients_of(random_, options, 3, normal)));
  }
}

TEST_F(GradientCodecTest, OtherMethodsRefuseDeviceMemory) {
  for (const CompressionMethod* const method : coded_methods()) {
    if (method->on_device) continue;
    SeededHostDevice device(1);
    SparseOptions options = options_of({900}, 0.05);
    options.method = method;
    options.device = std::make_shared<FeedbackStream>(device);
    EXPECT_THROW(method->make_codec(0, ProcessGrid::with_node_sizes({1}), options), UsageError)
        << method->name;
  }
}

}  // namespace
}  // namespace kolo::test
