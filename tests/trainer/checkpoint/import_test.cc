#include "trainer/checkpoint/stored_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "tests/trainer/training_job.h"
#include "trainer/checkpoint/safetensors.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ImportTest : public testing::Test {
 protected:
  ImportTest() {
    model_.add("w", {2, 2}, {.deviation = 1.0f});
    model_.add("b", {2}, {.deviation = 1.0f});
  }
  /// Writes a file with a tensor "b" of two elements of this dtype, and a tensor `other`.
  void write(const std::string& dtype, std::span<const std::byte> bytes, const Shape& shape = {2},
             const std::string& other = "w") {
    const std::vector<float> w = {1, 2, 3, 4};
    write_safetensors(
        file_, {{"b", dtype, shape, bytes}, {other, "F32", {2, 2}, std::as_bytes(std::span(w))}},
        {});
  }
  std::string error() {
    std::string what = data_error([&] { import_weights(file_, model_); });
    EXPECT_THAT(what, HasSubstr(file_.string()));
    return what;
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "weights.safetensors";
  ParameterSet model_{1};
};

TEST_F(ImportTest, TakesWhatWasExported) {
  export_weights(model_, file_);
  ParameterSet other(2);
  other.add("b", {2}, {.deviation = 1.0f});
  other.add("w", {2, 2}, {.deviation = 1.0f});
  import_weights(file_, other);
  EXPECT_THAT(other[0].value(), testing::ElementsAreArray(model_[1].value()));
  EXPECT_THAT(other[1].value(), testing::ElementsAreArray(model_[0].value()));
}

TEST_F(ImportTest, TakesBuffersToo) {
  model_.add_buffer("running_mean", {3}, 0.5f);
  export_weights(model_, file_);
  ParameterSet other(2);
  other.add("w", {2, 2}, {.deviation = 1.0f});
  other.add("b", {2}, {.deviation = 1.0f});
  other.add_buffer("running_mean", {3}, 0.0f);
  import_weights(file_, other);
  EXPECT_EQ(other.hash(), model_.hash());
  ParameterSet without(2);
  without.add("w", {2, 2}, {});
  without.add("b", {2}, {});
  EXPECT_THAT(data_error([&] { import_weights(file_, without); }),
              HasSubstr("this model has no 'running_mean'"));
}

TEST_F(ImportTest, WidensSixteenBits) {
  const std::vector<BFloat16> b = {to_bfloat16(1.5f), to_bfloat16(-3e38f)};
  write("BF16", std::as_bytes(std::span(b)));
  import_weights(file_, model_);
  EXPECT_THAT(model_[0].value(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(model_[1].value(), ElementsAre(1.5f, to_float(b[1])));
  const std::vector<Float16> f = {to_float16(0.25f), to_float16(-65504.0f)};
  write("F16", std::as_bytes(std::span(f)));
  import_weights(file_, model_);
  EXPECT_THAT(model_[1].value(), ElementsAre(0.25f, -65504.0f));
}

TEST_F(ImportTest, ErrorsNameTheTensor) {
  const std::vector<double> b = {1, 2};
  const auto bytes = std::as_bytes(std::span(b));
  write("F64", bytes);
  EXPECT_THAT(error(), HasSubstr("'b' is F64, not F32, F16 or BF16"));
  write("F32", bytes, {4});
  EXPECT_THAT(error(), HasSubstr("'b' has shape [4], and this model's has [2]"));
  write("F32", bytes.first(8), {2}, "v");
  EXPECT_THAT(error(), HasSubstr("it has no 'w'"));
  model_.add("v", {2, 2}, {});
  EXPECT_THAT(error(), HasSubstr("it has no 'w'"));
}

TEST_F(ImportTest, TensorsThatTheModelDoesNotHaveAreErrors) {
  model_.add("extra", {1}, {});
  export_weights(model_, file_);
  ParameterSet smaller(1);
  smaller.add("w", {2, 2}, {});
  smaller.add("b", {2}, {});
  EXPECT_THAT(data_error([&] { import_weights(file_, smaller); }),
              HasSubstr("this model has no 'extra'"));
}

TEST_F(ImportTest, AveragesFilesOfOneModel) {
  const std::filesystem::path first = directory_.path() / "first", second = directory_.path() / "2";
  ParameterSet other(7);
  other.add("b", {2}, {.deviation = 1.0f});
  other.add("w", {2, 2}, {.deviation = 1.0f});
  export_weights(model_, first);
  export_weights(other, second);
  const std::vector<std::filesystem::path> both = {first, second};
  export_average(both, file_);
  ParameterSet mean(1);
  mean.add("w", {2, 2}, {});
  mean.add("b", {2}, {});
  import_weights(file_, mean);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(mean[0].value()[i], 0.5f * (model_[0].value()[i] + other[1].value()[i]));
  }
  EXPECT_EQ(mean[1].value()[1], 0.5f * (model_[1].value()[1] + other[0].value()[1]));
}

TEST_F(ImportTest, AveragesNothingOfOtherModels) {
  const std::filesystem::path other = directory_.path() / "other";
  export_weights(model_, file_);
  ParameterSet shapes(1);
  shapes.add("w", {4}, {});
  shapes.add("b", {2}, {});
  export_weights(shapes, other);
  const std::vector<std::filesystem::path> both = {file_, other};
  EXPECT_THAT(data_error([&] { export_average(both, directory_.path() / "mean"); }),
              HasSubstr("other: it has no 'w' of the shape"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "mean"));
}

TEST(ImportedWeightsTest, TrainingBeginsWithThem) {
  const TemporaryDirectory directory;
  Config config = small_job("mlp", directory);
  const Catalog catalog = built_in_catalog();
  const Task task = make_task(config, catalog);
  Runtime runtime = Runtime::from_environment(config.runtime);
  config.weights = directory.path() / "weights.safetensors";
  std::uint64_t expected = 0;
  {
    Config first = config;
    first.weights.clear();
    first.seed = 17;
    const auto learner = make_learner(first, runtime, task, catalog);
    export_weights(learner->parameters(), config.weights);
    expected = learner->parameters().hash();
  }
  EXPECT_EQ(make_learner(config, runtime, task, catalog)->parameters().hash(), expected);
  runtime.close();
}

}  // namespace
}  // namespace kolo::trainer
