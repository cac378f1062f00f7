// Tests the parsing of meshes, the places of ranks in them, and the parts of tensors.

#include "trainer/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/mesh/pipeline.h"
#include "trainer/models/gpt.h"
#include "trainer/part.h"

namespace kolo::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string mesh_error(const std::string& text, std::size_t ranks) {
  return error_of([&] { parse_mesh(text, ranks); }, ErrorCode::kConfig);
}

TEST(MeshTest, AxesThatAreLeftOutHaveOneRankAndDataHasTheRest) {
  const auto axes = [](const std::string& text, std::size_t ranks) {
    const MeshShape shape = parse_mesh(text, ranks);
    return std::vector<std::size_t>{shape.data, shape.tensor, shape.pipeline};
  };
  EXPECT_THAT(axes("auto", 6), ElementsAre(6, 1, 1));
  EXPECT_THAT(axes("data=3,tensor=2,pipeline=5", 30), ElementsAre(3, 2, 5));
  EXPECT_THAT(axes("pipeline=2", 6), ElementsAre(3, 1, 2));
  EXPECT_THAT(axes("tensor=4", 4), ElementsAre(1, 4, 1));
}

TEST(MeshTest, ImpossibleMeshesAreNamed) {
  EXPECT_THAT(mesh_error("data=2,tensor=2,pipeline=2", 4),
              AllOf(HasSubstr("data 2 x tensor 2 x pipeline 2 is not the number of ranks, 4"),
                    HasSubstr("start 8 ranks")));
  EXPECT_THAT(mesh_error("tensor=3", 4), HasSubstr("is not the number of ranks, 4"));
  EXPECT_THAT(mesh_error("tensor=8", 4), HasSubstr("is not the number of ranks, 4"));
  for (const char* text :
       {"tensor=4294967296,pipeline=4294967296", "data=3,tensor=3074457345618258603"}) {
    EXPECT_THAT(mesh_error(text, 4), HasSubstr("is not the number of ranks, 4")) << text;
  }
  for (const char* text :
       {"tensor", "tensor=", "tensor=0", "tensor=-1", "tensor=2x", "rows=2", ","}) {
    EXPECT_THAT(mesh_error(text, 2), HasSubstr("is not data=N, tensor=N or pipeline=N")) << text;
  }
}

TEST(MeshTest, EachRankHasOnePlaceAndTensorRanksAreNeighbours) {
  const MeshShape shape{.data = 3, .tensor = 2, .pipeline = 2};
  std::set<std::tuple<std::size_t, std::size_t, std::size_t>> places;
  for (int rank = 0; rank < 12; ++rank) {
    places.emplace(shape.stage(rank).index, shape.data_index(rank), shape.tensor_index(rank));
  }
  EXPECT_EQ(places.size(), 12u);
  EXPECT_EQ(shape.tensor_index(7), 1u);
  EXPECT_EQ(shape.data_index(7), shape.data_index(6));
  EXPECT_EQ(shape.stage(5).index, 0u);
  EXPECT_EQ(shape.stage(6).index, 1u);
}

class SplittableTest : public testing::Test {
 protected:
  std::string error(const MeshShape& shape) {
    return error_of([&] { require_splittable(config, options, shape, built_in_catalog()); },
                    ErrorCode::kConfig);
  }
  Config config = default_config(built_in_catalog(), "gpt");
  Options options;
};

TEST_F(SplittableTest, ModelsThatDoNotFitTheMeshAreNamed) {
  config.heads = 4;
  config.layers = 2;
  EXPECT_THAT(error({.tensor = 3}), HasSubstr("--heads 4 cannot be dealt out to 3 tensor ranks"));
  EXPECT_THAT(error({.pipeline = 3}), HasSubstr("2 blocks here, fewer than the 3 stages"));
  require_splittable(config, options, {.tensor = 4, .pipeline = 2}, built_in_catalog());
  config.model = "lenet";
  EXPECT_THAT(error({.tensor = 2}), HasSubstr("--model lenet cannot be split"));
  require_splittable(config, options, {.data = 7}, built_in_catalog());
  config.model = "mlp";
  config.hidden = 9;
  EXPECT_THAT(error({.tensor = 2}), HasSubstr("--hidden 9"));
  EXPECT_THAT(error({.pipeline = 4}), HasSubstr("3 blocks"));
}

TEST_F(SplittableTest, OptionsForWholeModelsAreNamed) {
  const MeshShape shape{.tensor = 2};
  options.compression = "topk(0.1)";
  EXPECT_THAT(error(shape), HasSubstr("--compression topk(0.1)"));
  options.compression = "none";
  config.shard = "optimizer";
  EXPECT_THAT(error(shape), HasSubstr("--shard optimizer"));
  config.shard = "none";
  config.uneven = "join";
  EXPECT_THAT(error(shape), HasSubstr("--uneven join"));
  config.uneven = "pad";
  config.exchange = "local";
  EXPECT_THAT(error(shape), AllOf(HasSubstr("--mesh"), HasSubstr("--exchange local")));
  config.every = 1;  // an exchange after every step is dense
  require_splittable(config, options, shape, built_in_catalog());
  config.exchange = "diloco";
  EXPECT_THAT(error(shape), HasSubstr("--exchange diloco"));
  config.exchange = "dense";
  config.balance = "auto";
  EXPECT_THAT(error(shape), AllOf(HasSubstr("--balance auto"), HasSubstr("--batch auto")));
  config.balance = "2,1";
  EXPECT_THAT(error(shape), HasSubstr("--balance 2,1"));
  require_splittable(config, options, {.data = 2}, built_in_catalog());
  config.balance = "off";
  config.optimizer = "lamb";
  EXPECT_THAT(error(shape), HasSubstr("--optimizer lamb"));
  require_splittable(config, options, {.pipeline = 2}, built_in_catalog());
}

TEST(StageTest, EachBlockBelongsToOneStageAndEachStageHasSome) {
  for (std::size_t count : {1, 2, 3, 5}) {
    for (std::size_t blocks = count; blocks < 9; ++blocks) {
      std::vector<std::size_t> owners;
      for (std::size_t block = 0; block < blocks; ++block) {
        for (std::size_t i = 0; i < count; ++i) {
          if (Stage{.index = i, .count = count}.has(block, blocks)) owners.push_back(i);
        }
      }
      EXPECT_EQ(owners.size(), blocks);
      EXPECT_TRUE(std::ranges::is_sorted(owners));
      EXPECT_EQ(std::set(owners.begin(), owners.end()).size(), count);
    }
  }
}

std::string text_of(const std::vector<StagePass>& order) {
  std::string text;
  for (const auto& [is_forward, pass] : order) {
    text += (is_forward ? " f" : " b") + std::to_string(pass);
  }
  return text;
}

TEST(PassesTest, StagesAlternateBetweenForwardAndBackward) {
  EXPECT_EQ(text_of(order_of_passes({.index = 0, .count = 2}, 4)), " f0 f1 b0 f2 b1 f3 b2 b3");
  EXPECT_EQ(text_of(order_of_passes({.index = 1, .count = 2}, 4)), " f0 b0 f1 b1 f2 b2 f3 b3");
  EXPECT_EQ(text_of(order_of_passes({.index = 0, .count = 4}, 2)), " f0 f1 b0 b1");
  EXPECT_EQ(text_of(order_of_passes({.index = 1, .count = 3}, 1)), " f0 b0");
}

TEST(PassesTest, AtMostOpenPassesAreOpen) {
  for (std::size_t count : {1u, 2u, 3u, 5u}) {
    for (std::size_t passes : {1u, 2u, 4u, 9u}) {
      for (Stage stage{.count = count}; stage.index < count; ++stage.index) {
        std::size_t open = 0;
        std::size_t most = 0;
        for (const auto& [is_forward, pass] : order_of_passes(stage, passes)) {
          is_forward ? ++open : --open;
          most = std::max(most, open);
        }
        EXPECT_EQ(open, 0u);
        EXPECT_EQ(most, open_passes(stage, passes));
      }
    }
  }
}

// Element i of the whole tensor has the value i, so each value tells its place.
TEST(PartTest, PartsTogetherAreTheWholeTensor) {
  for (const Part& kind : {Part{.ways = 2, .axis = 0}, Part{.ways = 3, .axis = 1},
                           Part{.ways = 2, .axis = 0, .sections = 3}, Part{}}) {
    const Shape shape{6, 5};
    std::vector<float> whole(30);
    std::iota(whole.begin(), whole.end(), 0.0f);
    std::vector<float> together(30, -1.0f);
    std::size_t elements = 0;
    for (Part part = kind; part.index < part.ways; ++part.index) {
      std::vector<float> own(element_count(part.shape_of(shape)));
      part.take(shape, whole, own);
      part.put(shape, own, together);
      elements += own.size();
    }
    EXPECT_EQ(together, whole);
    EXPECT_EQ(elements, whole.size());
  }
  std::vector<float> second(6);
  std::vector<float> rows(12);
  std::iota(rows.begin(), rows.end(), 0.0f);
  const Part part{.index = 1, .ways = 2, .axis = 0, .sections = 3};
  part.take({6, 2}, rows, second);
  EXPECT_THAT(second, ElementsAre(2, 3, 6, 7, 10, 11));
}

// Prediction, in elements: a block has 12 w² + 7 w weights and biases that tensor ranks deal out,
// and 6 w in norms and biases of sums that all have; the vocabulary is dealt out, positions are
// not.
TEST(ModelPartTest, ParametersPerRankAreAsPredicted) {
  constexpr std::size_t kWidth = 8, kTokens = 10, kContext = 6, kLayers = 4;
  for (const std::size_t ways : {1, 2, 4}) {
    for (const std::size_t stages : {1, 2, 4}) {
      for (std::size_t stage = 0; stage < stages; ++stage) {
        Gpt::Options options{
            .sequences = 1, .context = kContext, .tokens = kTokens, .model = {}, .seed = 1};
        options.model.layers = kLayers;
        options.model.width = kWidth;
        options.model.heads = 4;
        options.model.tied = false;
        options.ranks = {.index = ways - 1, .ways = ways};
        options.stage = {.index = stage, .count = stages};
        Device device;
        const Gpt gpt(device, options);
        const std::size_t vocabulary = (kTokens - kTokens * (ways - 1) / ways) * kWidth;
        std::size_t expected =
            kLayers / stages * ((12 * kWidth * kWidth + 7 * kWidth) / ways + 6 * kWidth);
        if (stage == 0) expected += vocabulary + kContext * kWidth;
        if (stage + 1 == stages) expected += 2 * kWidth + vocabulary;
        EXPECT_EQ(gpt.parameters().element_count(), expected) << ways << " " << stages;
      }
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
