#include "runtime/gradients/gradient_compression.h"

#include <gmock/gmock.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "runtime/gradients/compression_choice.h"

namespace kolo {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<GradientSpec> model() {
  return {{.name = "fc.weight", .shape = {100, 100}},
          {.name = "fc.bias", .shape = {100}},
          {.name = "table", .shape = {50, 100}},
          {.name = "counts", .shape = {80, 80}, .dtype = DType::kInt32}};
}

std::vector<GradientSpec> resolved(const char* rules) {
  std::vector<GradientSpec> gradients = model();
  resolve_compression(gradients, CompressionRules::parse(rules));
  return gradients;
}

TEST(ResolveCompression, NoneLeavesTheSetsWire) {
  for (const GradientSpec& gradient : resolved("none")) {
    EXPECT_EQ(gradient.compression, "");
    EXPECT_FALSE(gradient.wire_dtype);
  }
  EXPECT_EQ(summarize_compression(resolved("none")), "");
}

TEST(ResolveCompression, SixteenBitsBecomeTheWireOfFloats) {
  const auto gradients = resolved("table=bf16,*=fp16");
  EXPECT_EQ(gradients[0].wire_dtype, DType::kFloat16);
  EXPECT_EQ(gradients[1].wire_dtype, DType::kFloat16);
  EXPECT_EQ(gradients[2].wire_dtype, DType::kBFloat16);
  EXPECT_FALSE(gradients[3].wire_dtype);
  for (const GradientSpec& gradient : gradients) EXPECT_EQ(gradient.compression, "");
}

TEST(ResolveCompression, LargeMatricesBecomeSparse) {
  const auto gradients = resolved("topk(0.010)");
  EXPECT_EQ(gradients[0].compression, "topk(0.01)");
  EXPECT_EQ(gradients[1].compression, "");
  EXPECT_EQ(gradients[2].compression, "topk(0.01)");
  EXPECT_EQ(gradients[3].compression, "");
  EXPECT_NO_THROW(check_compression(gradients, {}));
  EXPECT_THROW(check_compression(gradients, {.op = ReduceOp::kMax}), UsageError);
  EXPECT_THROW(check_compression(gradients, {.divisor = Divisor::kContributingRanks}), UsageError);
  EXPECT_NO_THROW(check_compression(resolved("fp16"), {.op = ReduceOp::kMax}));
  EXPECT_EQ(summarize_compression(gradients),
            "2 of 4 gradients (30.2 % of elements) dense, 2 of 4 gradients (69.8 % of elements) "
            "topk(0.01)");
  std::vector<GradientSpec> on_device = model();
  on_device[0].memory = MemoryKind::kDevice;
  resolve_compression(on_device, CompressionRules::parse("topk(0.01)"));
  EXPECT_EQ(on_device[0].compression, "topk(0.01)");
}

/// Returns which gradients in this memory do not follow the rules, and why.
std::string reasons(std::vector<GradientSpec> gradients, const char* rules, MemoryKind memory) {
  for (GradientSpec& each : gradients) each.memory = memory;
  std::string text;
  for (const CompressionDecision& decision :
       resolve_compression(gradients, CompressionRules::parse(rules))) {
    text += to_string(decision) + "\n";
  }
  return text;
}

TEST(ResolveCompression, ASpecThatNoGradientFollowsIsNotDroppedInSilence) {
  std::vector<GradientSpec> floats = model();
  floats.pop_back();
  const auto reasons = [&](const char* rules, MemoryKind memory) {
    return kolo::reasons(floats, rules, memory);
  };
  constexpr MemoryKind kHost = MemoryKind::kHost, kDevice = MemoryKind::kDevice;
  for (const char* rules : {"none", "topk(0.01)", "int8", "2bit", "fp16", "auto"}) {
    EXPECT_EQ(reasons(rules, kHost), "");
    EXPECT_EQ(reasons(rules, kDevice), "");
  }
  EXPECT_EQ(reasons("powersgd", kHost), "");
  EXPECT_THAT(reasons("powersgd", kDevice), HasSubstr("host memory"));
  EXPECT_EQ(reasons("*.bias=int8,*=topk(0.01)", kHost),
            "dense of 'fc.bias' (100 elements): int8 does not apply: small tensors and those of "
            "one dimension are sent dense\n");
}

// Other gradients of the set follow it.
TEST(ResolveCompression, GradientsOfAnotherDTypeAreNotSkippedInSilence) {
  std::vector<GradientSpec> mixed = model();
  mixed.push_back({.name = "head", .shape = {70, 70}, .dtype = DType::kBFloat16});
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    EXPECT_EQ(reasons(mixed, "counts=none,*=topk(0.01)", memory),
              "dense of 'head' (4900 elements): topk(0.01) does not apply: it is for float32 "
              "gradients\n");
    EXPECT_EQ(reasons(mixed, "topk(0.01)", memory),
              "dense of 'counts' and 1 more (11300 elements): topk(0.01) does not apply: it is for "
              "float32 gradients\n");
    EXPECT_EQ(reasons(mixed, "fp16", memory),
              "dense of 'counts' (6400 elements): fp16 does not apply: it is for floating-point "
              "gradients\n");
  }
}

TEST(ResolveCompression, TensorsThatAreTooLargeForTopKAreDense) {
  constexpr std::size_t kMost = std::size_t{1} << 31;
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    const auto why = [&](const char* rules, std::size_t count) {
      return reasons({{.name = "table", .shape = {count / 16, 16}}}, rules, memory);
    };
    for (const char* rules : {"topk(0.01)", "topk(0.01,route=owners,scope=flat)", "auto"}) {
      EXPECT_EQ(why(rules, kMost - 16), "");
      EXPECT_THAT(why(rules, kMost), HasSubstr("dense of 'table' (2147483648 elements): "));
      EXPECT_THAT(why(rules, kMost), HasSubstr("top-k takes fewer than 2^31 elements"));
    }
    EXPECT_EQ(why("int8", kMost), "");
  }
}

TEST(ResolveCompression, ReproducibleJobsLeaveNothingToMeasuredTimes) {
  EXPECT_NO_THROW(check_reproducible(resolved("topk(0.01)")));
  EXPECT_NO_THROW(check_reproducible(resolved("fp16")));
  try {
    check_reproducible(resolved("table=auto,*=none"));
    FAIL();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kConfig);
    EXPECT_THAT(e.error().what, HasSubstr("'table'"));
    EXPECT_THAT(e.error().what, HasSubstr("reproducible"));
  }
}

TEST(ResolveCompression, AGradientsOwnSpecCountsMoreThanRules) {
  std::vector<GradientSpec> gradients = model();
  gradients[0].compression = "none";
  gradients[2].compression = "topk(0.1)";
  resolve_compression(gradients, CompressionRules::parse("fp16"));
  EXPECT_FALSE(gradients[0].wire_dtype);
  EXPECT_EQ(gradients[2].compression, "topk(0.1)");
  gradients[0].compression = "zip";
  try {
    resolve_compression(gradients, CompressionRules::parse("none"));
    FAIL();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kConfig);
    EXPECT_THAT(e.what(), HasSubstr("gradient 'fc.weight': compression 'zip'"));
  }
}

TEST(PlanCompressed, ABucketHasAtMostTheElementsOfItsMethod) {
  std::vector<GradientSpec> gradients = {{.name = "first", .shape = {600, 1000}},
                                         {.name = "second", .shape = {600, 1000}},
                                         {.name = "third", .shape = {600, 1000}}};
  const auto buckets = [&](const char* spec) {
    for (GradientSpec& gradient : gradients) gradient.compression = spec;
    return plan_compressed(gradients);
  };
  EXPECT_EQ(buckets("topk(0.01)").size(), 1u);
  const auto quantised = buckets("int8");
  ASSERT_EQ(quantised.size(), 3u);
  EXPECT_EQ(quantised[0].name(gradients), "'third'");
}

/// A matrix of a million elements, and the choice of its compression.
struct Chosen {
  std::vector<GradientSpec> gradients;
  CompressionChoices choices;

  const GradientSpec& gradient() const { return gradients.front(); }
  std::string why() const { return to_string(choices.decisions.front()); }
};

Chosen chosen(const char* rules, const ProcessGrid& grid, const LinkCosts& costs) {
  Chosen result{.gradients = {{.name = "matrix", .shape = {1000, 1000}}}, .choices = {}};
  resolve_compression(result.gradients, CompressionRules::parse(rules));
  result.choices = choose_compression(result.gradients, grid, costs);
  EXPECT_EQ(result.choices.decisions.size(), 1u);
  return result;
}

LinkCosts links_of(double network_bytes_per_us, double memory_bytes_per_us = 10'000) {
  LinkCosts costs;
  costs.network.bytes_per_us = network_bytes_per_us;
  costs.memory.shared_bytes_per_us = memory_bytes_per_us;
  return costs;
}

TEST(ChooseCompression, SlowLinksAreMeasuredAndFastOnesDense) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  const Chosen slow = chosen("auto", four, links_of(12.5));
  EXPECT_EQ(slow.gradient().compression, "");
  EXPECT_EQ(slow.choices.open.size(), 1u);
  EXPECT_THAT(slow.why(),
              HasSubstr("until 20 iterations are measured; of the exchange alone, top-k"));
  EXPECT_THAT(describe(slow.choices, slow.gradients),
              HasSubstr("auto(0.01) of 'matrix', 1000000 elements"));
  const Chosen fast = chosen("auto", four, links_of(50'000));
  EXPECT_EQ(fast.gradient().compression, "");
  EXPECT_FALSE(fast.gradient().wire_dtype);
  EXPECT_TRUE(fast.choices.open.empty());
  EXPECT_EQ(describe(fast.choices, fast.gradients), "");
  EXPECT_THAT(fast.why(), HasSubstr("less than 1.2"));
}

// The dense exchange of 6 MB takes 0.5 s. Whether top-k is faster depends on the rest of the step.
TEST(ChooseCompression, MeasuredStepsSettleIt) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  const LinkCosts costs = links_of(12.5);
  for (const double compute_us : {20e3, 100e6}) {
    Chosen open = chosen("auto(0.01,dgc,ramp=40)", four, costs);
    const DenseSteps measured{.step_us = compute_us + 480e3, .exposed_us = 480e3};
    const bool pays = settle_compression(open.gradients, open.choices, measured, four, costs);
    EXPECT_EQ(pays, compute_us < 1e6);
    EXPECT_TRUE(open.choices.open.empty());
    EXPECT_THAT(open.why(), HasSubstr("0.48 s of it waiting"));
    if (pays) {
      EXPECT_EQ(open.gradient().compression, "topk(0.01,dgc=0.9,warmup=20,ramp=40,route=owners)");
      EXPECT_LT(open.choices.decisions[0].predicted_ms, 50);
    } else {
      EXPECT_EQ(open.gradient().compression, "");
      EXPECT_EQ(open.choices.decisions[0].path, "dense");
    }
  }
}

TEST(ChooseCompression, WhatARankMeasuredTravelsInOneWord) {
  const DenseSteps least{.step_us = 1234.5, .exposed_us = 17.8};
  const DenseSteps more{.step_us = 1200.1, .exposed_us = 90};
  EXPECT_EQ(dense_steps(to_word(least)), least);
  EXPECT_EQ(dense_steps(std::min(to_word(more), to_word(least))), least);
  EXPECT_EQ(dense_steps(to_word({.step_us = 1e12, .exposed_us = 1e12})).step_us, 429'496'729.5);
  EXPECT_EQ(dense_steps(to_word({})), DenseSteps{});
}

// Four hosts are emulated on two cores and select top-k at the same time. A selection that would
// pay on separate cores does not pay there.
TEST(ChooseCompression, SharedCoresCountAgainstSelection) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  for (const double rank_cores : {1.0, 0.5}) {
    std::vector<GradientSpec> gradients = {{.name = "matrix", .shape = {1000, 1000}}};
    resolve_compression(gradients, CompressionRules::parse("auto"));
    LinkCosts costs;
    costs.selector = {.bytes_per_us = 8'000, .pair_us = 0.05};
    costs.rank_cores = rank_cores;
    costs.network.bytes_per_us = 1'000;
    const CompressionChoices choices = choose_compression(gradients, four, costs);
    ASSERT_EQ(choices.decisions.size(), 1u);
    const CompressionDecision& decision = choices.decisions[0];
    EXPECT_EQ(decision.reason.find("alone, top-k") == std::string::npos, rank_cores < 1)
        << decision.reason;
    EXPECT_THAT(decision.reason, HasSubstr("predicted"));
    EXPECT_GT(decision.dense_ms, 0);
  }
}

TEST(ChooseCompression, InOneNodeAutoIsDense) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const double memory_bytes_per_us : {1.0, 1e4}) {
      const Chosen dense = chosen("auto", ProcessGrid::with_node_sizes({ranks}),
                                  links_of(12.5, memory_bytes_per_us));
      EXPECT_EQ(dense.gradient().compression, "") << dense.why();
      EXPECT_FALSE(dense.gradient().wire_dtype) << dense.why();
      EXPECT_TRUE(dense.choices.open.empty()) << dense.why();
    }
  }
}

// Ranks of a node cannot sum without the device's library. That is the only decision about a
// bucket, whether its route is open or not.
TEST(ChooseCompression, ABucketThatADeviceCannotCompressIsDenseForOneReason) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const auto choose = [&](const char* rules, bool native_in_nodes) {
    std::vector<GradientSpec> gradients = {
        {.name = "matrix", .shape = {1000, 1000}, .memory = MemoryKind::kDevice}};
    resolve_compression(gradients, CompressionRules::parse(rules));
    const CompressionChoices choices =
        choose_compression(gradients, grid, links_of(12.5), native_in_nodes);
    EXPECT_LE(choices.decisions.size(), 1U);
    const bool is_dense = gradients[0].compression.empty();
    EXPECT_EQ(is_dense, !choices.decisions.empty() && choices.decisions[0].path == "dense");
    return choices.decisions.empty() ? "" : to_string(choices.decisions[0]);
  };
  EXPECT_EQ(choose("topk(0.01,route=owners)", true), "");
  EXPECT_THAT(choose("topk(0.01)", true), HasSubstr("top-k"));
  for (const char* rules : {"topk(0.01,route=owners)", "topk(0.01)"}) {
    EXPECT_EQ(choose(rules, false),
              "dense of 'matrix' (1000000 elements): in device memory, ranks of a node sum by the "
              "device's library, which this job lacks; scope=flat does without");
  }
  EXPECT_THAT(choose("topk(0.01,scope=flat)", false), HasSubstr("top-k"));
}

TEST(ChooseCompression, SaysWhereCostsOfSelectionAreDefaults) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  LinkCosts measured = links_of(12.5);
  measured.selector.bytes_per_us = 7'654;
  for (const char* rules : {"auto", "topk(0.001)"}) {
    EXPECT_THAT(chosen(rules, four, links_of(12.5)).why(), HasSubstr("selection are defaults"));
    EXPECT_THAT(chosen(rules, four, measured).why(), Not(HasSubstr("defaults")));
  }
  EXPECT_THAT(chosen("auto", ProcessGrid::with_node_sizes({2}), links_of(12.5)).why(),
              Not(HasSubstr("defaults")));
  Chosen open = chosen("auto", four, links_of(12.5));
  settle_compression(open.gradients, open.choices, {.step_us = 500e3, .exposed_us = 480e3}, four,
                     links_of(12.5));
  EXPECT_THAT(open.why(), HasSubstr("selection are defaults"));
}

TEST(ChooseCompression, OfTopKOnlyTheRouteIsOpen) {
  const Chosen sparse = chosen("topk(0.001)", ProcessGrid::with_node_sizes({2}), links_of(12.5));
  EXPECT_THAT(sparse.gradient().compression, HasSubstr("topk(0.001,route="));
  EXPECT_TRUE(sparse.choices.open.empty());
  EXPECT_THAT(sparse.why(), HasSubstr("which was asked for"));
}

}  // namespace
}  // namespace kolo
