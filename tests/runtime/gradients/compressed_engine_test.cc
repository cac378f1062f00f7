// Tests sparse gradient sets, by engines in one thread with seeded interleavings.

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "compression/compression_spec.h"
#include "runtime/gradients/gradient_compression.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

constexpr int kSteps = 3;

/// Returns matrices with two specs and on a 16-bit wire, and biases between them, which are dense.
std::vector<GradientSpec> model() {
  std::vector<GradientSpec> gradients;
  for (const char* name : {"a", "b", "c"}) {
    gradients.push_back({.name = std::string(name) + ".sparse", .shape = {65, 64}});
    gradients.push_back({.name = std::string(name) + ".bias", .shape = {65}});
    gradients.push_back({.name = std::string(name) + ".wire", .shape = {40, 30}});
    gradients.push_back({.name = std::string(name) + ".other", .shape = {64, 64}});
  }
  resolve_compression(gradients,
                      CompressionRules::parse("*.sparse=topk(0.05,route=owners),*.wire=fp16,"
                                              "*.other=topk(0.01,bf16,route=owners,dgc)"));
  return gradients;
}

/// Returns the results of all ranks in all steps, as bits. `seed` determines only the order in
/// which gradients are ready and engines poll.
std::vector<std::uint32_t> run(const std::vector<int>& nodes, std::size_t fusion_bytes,
                               std::uint64_t seed) {
  test::EngineJob job(ProcessGrid::with_node_sizes(nodes),
                      {.fusion_bytes = fusion_bytes, .algorithm = "direct"}, seed);
  const auto sets = job.register_sets(model());
  std::mt19937_64 readiness(seed);
  std::vector<std::uint32_t> bits;
  for (int step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < job.world_size(); ++rank) {
      GradientSetState& set = *sets[static_cast<std::size_t>(rank)];
      std::vector<std::size_t> order(set.gradients().size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::shuffle(order, readiness);
      for (const std::size_t g : order) {
        std::mt19937 values(static_cast<unsigned>((step * 100 + rank) * 100) +
                            static_cast<unsigned>(g));
        std::normal_distribution<float> normal;
        const BufferView view = set.view(g);
        for (std::size_t i = 0; i < view.count; ++i) {
          static_cast<float*>(view.data)[i] = 1e-6f * normal(values);
        }
        test::mark(job.engine(rank), set, g);
      }
    }
    job.run_until_idle();
    for (const auto& set : sets) {
      if (!set->iterations().wait(std::chrono::milliseconds(1)))
        throw std::runtime_error("not finished");
      for (std::size_t g = 0; g < set->gradients().size(); ++g) {
        const auto* const values = static_cast<const float*>(set->view(g).data);
        for (std::size_t i = 0; i < set->view(g).count; ++i) {
          bits.push_back(std::bit_cast<std::uint32_t>(values[i]));
        }
      }
    }
  }
  return bits;
}

// Neither fusion nor the order of readiness or of polls changes any bit of a result.
TEST(CompressedEngine, NeitherFusionNorTheOrderOfReadinessChangesABit) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1, 1}, {2, 2}}) {
    const std::vector<std::uint32_t> expected = run(nodes, 0, 0);
    ASSERT_GT(std::ranges::count_if(expected, [](std::uint32_t bits) { return bits != 0; }), 1000);
    std::uint64_t seed = 1;
    for (const std::size_t fusion_bytes :
         {std::size_t{0}, std::size_t{1} << 20, std::size_t{64} << 20,
          std::numeric_limits<std::size_t>::max()}) {
      for (int round = 0; round < 2; ++round, ++seed) {
        ASSERT_EQ(run(nodes, fusion_bytes, seed), expected)
            << test::shape_text(nodes) << ", fusion " << fusion_bytes << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace kolo
