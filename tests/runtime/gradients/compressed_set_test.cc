// Tests results of sparse gradient sets, through the public interface.

#include <cmath>

#include <gtest/gtest.h>

#include "compression/compression_spec.h"
#include "tests/runtime/gradients/compressed_member.h"

namespace kolo::test {
namespace {

void add(Tensors& sums, const Tensors& values) {
  if (sums.empty())
    sums = values;
  else
    for (std::size_t i = 0; i < sums.size(); ++i) {
      for (std::size_t j = 0; j < sums[i].size(); ++j) sums[i][j] += values[i][j];
    }
}

TEST(CompressedSet, SendsAFewOfEachLargeTensorAndAllOfSmallOnes) {
  run({}, [](Member& member) {
    const Tensors result = member.reduce(std::size_t{0});
    const std::size_t kept = nonzeros(result[0]) + nonzeros(result[2]);
    require(kept > 0 && kept <= 570 + 3, "kept " + std::to_string(kept));
    require(nonzeros(result[1]) > 60, "the bias is not dense");
    const auto stats = member.set().compression_stats();
    require(stats.size() == 1, "groups");
    require(stats[0].k == 280 + 288, "k " + std::to_string(stats[0].k));
    require(stats[0].steps == 1 && stats[0].skipped_steps == 0, "steps");
    require(stats[0].residual_norm > 0 && stats[0].gradient_norm > 0, "norms");
    require(std::abs(stats[0].density - 0.05) < 1e-3, "density");
    require(member.set().is_sparse(0) && !member.set().is_sparse(1), "which are sparse");
    require(member.set().residual_norm("first").value() > 0, "norm of first");
    require(!member.set().residual_norm("bias"), "norm of bias");
  });
}

// The results and residuals add up to the inputs, element by element, after any number of steps. A
// flush delivers the residuals.
TEST(CompressedSet, NothingIsLostOverStepsAndAFlushBringsTheRest) {
  for (const char* spec :
       {"topk(0.05)", "topk(0.05,rule=lossless)", "topk(0.02,bf16)", "topk(0.05,route=allgather)",
        "topk(0.05,warmup=2,ramp=3)", "int8(warmup=1)", "2bit(4)", "2bit(0.5,rule=lossless)"}) {
    SCOPED_TRACE(spec);
    constexpr std::size_t kSteps = 6;
    run({.compression = spec}, [](Member& member) {
      Tensors expected;
      Tensors sums;
      for (std::size_t step = 0; step <= kSteps; ++step) {
        for (int rank = 0; rank < member.runtime().world_size(); ++rank) {
          add(expected, gradients_of(rank, step));
        }
        if (step == kSteps) member.set().flush_residuals();
        add(sums, member.reduce(step));
        require(step == kSteps || sums != expected || step < 2, "nothing was left out");
      }
      require(sums == expected, "what came is not what was put in");
      require(member.set().residual_norm("first") == 0.0, "something is left");
    });
  }
}

TEST(CompressedSet, AtDensityOneTheBitsAreThoseOfTheDensePath) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    const auto dense = results_of({.compression = "none", .op = op}, 3);
    EXPECT_EQ(results_of({.compression = "topk(1,fp32)", .op = op}, 3), dense);
  }
}

TEST(CompressedSet, FusionChangesNoBit) {
  for (const CompressionMethod* method : compression_methods()) {
    if (method->make_codec == nullptr) continue;
    const std::string owners =
        CompressionSpec{.method = method, .density = 0.05, .route = ExchangeRoute::kPairwise}
            .to_string();
    SCOPED_TRACE(owners);
    const auto expected = results_of({.compression = owners}, 4);
    for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{0, 1024}) {
      EXPECT_EQ(results_of({.compression = owners, .fusion_bytes = fusion_bytes}, 4), expected);
    }
  }
}

// Warm-up steps send every element, so velocity and residual must act on gradients as an
// optimizer's momentum acts on dense ones.
TEST(CompressedSet, MomentumIsCorrectedLikeTheOptimizers) {
  std::vector<Tensors> sent = results_of({.compression = "topk(0.05,fp32,dgc=0.5,warmup=9)"}, 4);
  const std::vector<Tensors> dense = results_of({.compression = "none"}, 4);
  std::vector<float> velocity(dense[0][0].size());
  for (std::size_t step = 0; step < dense.size(); ++step) {
    for (std::size_t j = 0; j < velocity.size(); ++j) {
      velocity[j] = 0.5f * velocity[j] + dense[step][0][j];
    }
    EXPECT_EQ(sent[step][0], velocity) << "step " << step;
    EXPECT_EQ(sent[step][1], dense[step][1]) << "step " << step;
  }
}

// Warm-up counts all iterations, also skipped ones. Gradients that are always dense have none.
TEST(CompressedSet, TellsItsDenseStepsAtTheStart) {
  run({.compression = "topk(0.05,warmup=2,ramp=4)", .ranks = 2}, [&](Member& member) {
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_EQ(member.set().is_warming_up(0), step < 2) << step;
      EXPECT_EQ(member.set().is_warming_up(2), step < 2) << step;
      EXPECT_FALSE(member.set().is_warming_up(1)) << "the bias is always dense";
      Tensors gradients = gradients_of(member.runtime().rank(), step);
      if (step == 0) gradients[0][0] = std::numeric_limits<float>::infinity();
      member.reduce(gradients);
    }
    // A flush is dense, and delivers the residuals.
    member.set().flush_residuals();
    EXPECT_FALSE(member.set().is_warming_up(0));
    member.reduce(5);
  });
}

TEST(CompressedSet, OnOneNodeAutoIsDense) {
  run({.compression = "auto"}, [](Member& member) {
    require(!member.set().is_sparse(0), "not dense");
    require(member.set().plan().compression.empty(), member.set().plan().compression);
  });
}

}  // namespace
}  // namespace kolo::test
