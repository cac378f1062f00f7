// Tests compressed gradient sets in device memory, by engines in one thread with seeded
// interleavings: bits, states, plans, and what is not followed.

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/gradients/gradient_compression.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using testing::HasSubstr;

constexpr const char* kRules =
    "*.sparse=topk(0.05,route=owners),*.other=topk(0.02,fp32,route=owners,dgc,warmup=1)";
constexpr const char* kCodedRules =
    "a.sparse=int8(route=owners),b.sparse=fp8(bf16,rule=lossless,route=owners,warmup=1),"
    "a.other=2bit(0.002,dgc,route=owners),b.other=sign(scope=flat,route=owners)";

std::vector<GradientSpec> model(MemoryKind memory, const char* rules = kRules) {
  std::vector<GradientSpec> gradients;
  for (const char* name : {"a", "b"}) {
    gradients.push_back({.name = std::string(name) + ".sparse", .shape = {65, 64}});
    gradients.push_back({.name = std::string(name) + ".bias", .shape = {65}});
    gradients.push_back({.name = std::string(name) + ".other", .shape = {64, 65}});
  }
  for (GradientSpec& each : gradients) each.memory = memory;
  resolve_compression(gradients, CompressionRules::parse(rules));
  return gradients;
}

/// A job of one set in host memory, or in the memory of stand-in devices.
class SetJob {
 public:
  SetJob(const std::vector<int>& nodes, MemoryKind memory, std::uint64_t seed,
         const char* rules = kRules)
      : memory_(memory),
        random_(static_cast<unsigned>(seed)),
        job_(ProcessGrid::with_node_sizes(nodes), options_of(memory), seed,
             memory == MemoryKind::kDevice ? std::optional(test::JobDevices{}) : std::nullopt),
        sets_(job_.register_sets(model(memory, rules))) {
    for (int rank = 0; memory == MemoryKind::kDevice && rank < job_.world_size(); ++rank) {
      streams_.push_back(job_.device(rank).make_stream());
    }
  }

  int size() const { return job_.world_size(); }
  Engine& engine(int rank) { return job_.engine(rank); }
  GradientSetState& set(int rank) { return *sets_[static_cast<std::size_t>(rank)]; }

  /// Runs an iteration with gradients that rank, number and index determine; `bad` replaces one
  /// number of the last rank's gradient `spoiled`. Returns the bits of all results.
  std::vector<std::uint32_t> step(int number, std::optional<std::size_t> spoiled = std::nullopt,
                                  float bad = 0) {
    for (int rank = 0; rank < size(); ++rank) {
      for (std::size_t g = 0; g < set(rank).size(); ++g) {
        std::vector<float> values = values_of(rank, number, g);
        if (spoiled == g && rank == size() - 1) values[17] = bad;
        write_and_mark(rank, g, std::move(values));
      }
    }
    job_.run_until_idle();
    std::vector<std::uint32_t> bits;
    for (int rank = 0; rank < size(); ++rank) {
      if (!end(rank)) throw std::runtime_error("not finished");
      for (const BufferView& view : set(rank).views()) {
        const auto* const values = static_cast<const float*>(view.data);
        for (std::size_t i = 0; i < view.count; ++i) {
          bits.push_back(std::bit_cast<std::uint32_t>(values[i]));
        }
      }
    }
    return bits;
  }

  std::vector<CompressionState> save() {
    std::vector<CompressionState> states;
    for (const auto& set : sets_) states.push_back(set->save_compression());
    return states;
  }

 private:
  static Options options_of(MemoryKind memory) {
    Options options{.fusion_bytes = 1000, .device_fusion_bytes = 1000, .verify_schedules = true};
    if (memory == MemoryKind::kHost) options.algorithm = "direct";
    return options;
  }
  static std::vector<float> values_of(int rank, int number, std::size_t gradient) {
    std::mt19937 random(static_cast<unsigned>((number * 100 + rank) * 100) +
                        static_cast<unsigned>(gradient));
    std::normal_distribution<float> normal;
    std::vector<float> values(gradient % 3 == 1 ? 65 : 4160);
    for (float& value : values) value = 1e-3f * normal(random);
    return values;
  }
  void write_and_mark(int rank, std::size_t gradient, std::vector<float> values) {
    auto* const data = static_cast<float*>(set(rank).view(gradient).data);
    if (memory_ == MemoryKind::kHost) {
      std::ranges::copy(values, data);
      return test::mark(job_.engine(rank), set(rank), gradient);
    }
    Stream& stream = *streams_[static_cast<std::size_t>(rank)];
    as_host(stream).enqueue([data, values = std::move(values)] {
      std::ranges::copy(values, data);
      return true;
    });
    test::mark(job_.engine(rank), set(rank), gradient, NativeStream{&stream});
  }
  bool end(int rank) {
    GradientIterations& iterations = set(rank).iterations();
    if (memory_ == MemoryKind::kHost || random_() % 2 == 0) {
      return iterations.wait(std::chrono::milliseconds(1));
    }
    return iterations.wait(std::chrono::milliseconds(1),
                           NativeStream{streams_[static_cast<std::size_t>(rank)].get()});
  }

  const MemoryKind memory_;
  std::mt19937 random_;
  test::EngineJob job_;
  std::vector<std::shared_ptr<GradientSetState>> sets_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

const std::vector<std::vector<int>> kNodesOfSets = {{1},    {3},       {1, 1}, {2, 2},
                                                    {2, 1}, {2, 2, 2}, {4, 4}};

void expect_bits_of_host(const std::vector<int>& nodes, const char* rules, std::uint64_t seed) {
  SCOPED_TRACE(test::shape_text(nodes) + ", " + rules);
  SetJob host(nodes, MemoryKind::kHost, seed, rules);
  SetJob device(nodes, MemoryKind::kDevice, seed + 100, rules);
  for (int number = 0; number < 3; ++number) {
    const std::vector<std::uint32_t> expected = host.step(number);
    EXPECT_GT(std::ranges::count_if(expected, [](auto bits) { return bits != 0; }), 100);
    ASSERT_EQ(device.step(number), expected);
    ASSERT_EQ(device.save(), host.save());
  }
  const CompressionStats here = host.set(0).compressed().stats().front();
  const CompressionStats there = device.set(0).compressed().stats().front();
  EXPECT_GT(here.kept_pairs, 0U);
  EXPECT_EQ(there.kept_pairs, here.kept_pairs);
  EXPECT_EQ(there.gradient_norm, here.gradient_norm);
  EXPECT_EQ(there.residual_norm, here.residual_norm);
}

TEST(DeviceCompression, GivesTheBitsOfHostMemory) {
  std::uint64_t seed = 1;
  for (const std::vector<int>& nodes : kNodesOfSets) {
    expect_bits_of_host(nodes, kRules, ++seed);
    expect_bits_of_host(nodes, kCodedRules, ++seed);
    if (testing::Test::HasFailure()) return;
  }
}

// Not even if the number is in a dense gradient, which no codec sees.
TEST(DeviceCompression, ABadNumberLeavesEveryResidualAsItWas) {
  for (const auto& [nodes, rules] : {std::pair{std::vector<int>{1}, kRules},
                                     {std::vector<int>{2}, kCodedRules},
                                     {std::vector<int>{2, 2}, kRules},
                                     {std::vector<int>{2, 2}, kCodedRules}}) {
    SetJob job(nodes, MemoryKind::kDevice, 5, rules);
    job.step(0);
    std::vector<CompressionState> before = job.save();
    for (const std::size_t spoiled : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      for (const float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        job.step(1, spoiled, bad);
        for (CompressionState& state : before) ++state.step;
        ASSERT_EQ(job.save(), before) << test::shape_text(nodes) << ", gradient " << spoiled;
      }
    }
    job.step(2);
    EXPECT_NE(job.save(), before);
  }
}

TEST(DeviceCompression, StatesGoOnInTheOtherMemoryAndAmongOtherRanks) {
  for (const auto& [nodes, rules] : {std::pair{std::vector<int>{2, 2}, kRules},
                                     {std::vector<int>{3}, kRules},
                                     {std::vector<int>{2, 2}, kCodedRules},
                                     {std::vector<int>{3}, kCodedRules}}) {
    SetJob host({2, 2}, MemoryKind::kHost, 7, rules), device({2, 2}, MemoryKind::kDevice, 8, rules);
    host.step(0), device.step(0);
    SetJob later_host(nodes, MemoryKind::kHost, 9, rules);
    SetJob later_device(nodes, MemoryKind::kDevice, 10, rules);
    const std::vector<CompressionState> of_host = host.save(), of_device = device.save();
    ASSERT_EQ(of_device, of_host);
    for (int rank = 0; rank < later_host.size(); ++rank) {
      if (nodes.size() == 2) {
        const auto i = static_cast<std::size_t>(rank);
        later_device.set(rank).load_compression(of_host[i]);
        later_host.set(rank).load_compression(of_device[i]);
      } else {
        later_device.set(rank).remap_compression(of_device, 3);
        later_host.set(rank).remap_compression(of_device, 3);
      }
    }
    ASSERT_EQ(later_device.save(), later_host.save());
    const CompressedSet& loaded = later_device.set(0).compressed();  // shards have parts of tensors
    EXPECT_GT(*loaded.residual_norm("a.sparse") + *loaded.residual_norm("b.sparse"), 0.0);
    ASSERT_EQ(later_device.step(1), later_host.step(1));
  }
}

TEST(DeviceCompression, WhatIsNotFollowedStandsInThePlanWithItsReason) {
  std::vector<GradientSpec> gradients = model(MemoryKind::kDevice, "none");
  const auto decisions =
      resolve_compression(gradients, CompressionRules::parse("*.sparse=powersgd,*.bias=topk(0.1),"
                                                             "*.other=topk(0.01)"));
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].path, "dense");
  EXPECT_EQ(decisions[0].tensors, "'a.sparse' and 1 more");
  EXPECT_EQ(decisions[0].elements, 2U * 65 * 64);
  EXPECT_THAT(decisions[0].reason, HasSubstr("powersgd"));
  EXPECT_THAT(decisions[0].reason, HasSubstr("host memory"));
  EXPECT_THAT(decisions[1].reason, HasSubstr("topk(0.1) does not apply: small tensors"));
  EXPECT_EQ(gradients[0].compression, "");
  EXPECT_EQ(gradients[1].compression, "");
  EXPECT_EQ(gradients[2].compression, "topk(0.01)");

  SetJob followed({2, 2}, MemoryKind::kDevice, 3);
  EXPECT_TRUE(followed.engine(0).native_in_nodes());  // by which a bucket can be compressed
  EXPECT_TRUE(followed.set(0).summary().compression_decisions.empty());
  EXPECT_THAT(followed.set(0).summary().compression, HasSubstr("topk(0.05,route=owners)"));
}

}  // namespace
}  // namespace kolo
