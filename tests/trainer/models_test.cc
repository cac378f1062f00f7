#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loss/loss.h"
#include "trainer/models/bert.h"
#include "trainer/models/gpt.h"
#include "trainer/models/gpt_reader.h"
#include "trainer/models/image_models.h"
#include "trainer/models/matrix_factorization.h"
#include "trainer/models/text_models.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

constexpr std::size_t kTextLength = 6;
constexpr std::size_t kTextTokens = 9;
constexpr std::size_t kTextClasses = 3;

using MakeModel = std::function<std::unique_ptr<Model>(Device&, std::size_t samples)>;

/// Random integers from `lowest` to `highest`, `elements` per sample.
struct RandomInput {
  std::size_t elements;
  std::int32_t lowest, highest;
  DType dtype = DType::kInt32;
};

/// A model for batches of any size.
struct ModelCase {
  std::string name;
  std::vector<RandomInput> inputs;
  std::size_t outputs;  // per sample
  MakeModel make;
  /// Number of classes. If it is not 0, outputs are logits and the tested function is their loss.
  /// If it is 0, the function is the product of the outputs with random numbers.
  std::size_t classes = 0;
  DifferenceBound bound = {};
  bool mixes_samples = false;  // by statistics of the batch
  /// Factor of the initial weights. With 0.02, residual connections would hide mistakes.
  float scale = 1.0f;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

ImageModelOptions small_images(std::size_t samples) {
  return {.images = samples,
          .height = 16,
          .width = 16,
          .classes = 10,
          .hidden = 12,
          .scaling = PixelScaling(127.5, 73.9),
          .seed = 3};
}

ImageModelOptions small_photographs(std::size_t samples) {
  ImageModelOptions options = small_images(samples);
  options.height = 8;
  options.width = 8;
  options.channels = 3;
  return options;
}

ModelCase image_case(std::string name, std::size_t bytes, MakeModel make, double kinks,
                     bool mixes_samples = false) {
  return {.name = std::move(name),
          .inputs = {{bytes, 0, 255, DType::kUInt8}},
          .outputs = 10,
          .make = std::move(make),
          .classes = 10,
          .bound = {.step = 0x1.0p-10f, .absolute = 1e-2, .kinks = kinks},
          .mixes_samples = mixes_samples};
}

ModelCase gpt_case(std::string name, Gpt::Options options) {
  options.context = 6;
  options.model.layers = 2;
  options.model.width = 8;
  options.model.heads = 2;
  options.seed = 3;
  return {.name = std::move(name),
          .inputs = {{6, 0, 255}},
          .outputs = std::size_t{6} * 256,
          .make =
              [options](Device& device, std::size_t samples) {
                Gpt::Options made = options;
                made.sequences = samples;
                return std::make_unique<Gpt>(device, made);
              },
          .classes = 256,
          .bound = {.step = 0x1.0p-10f, .absolute = 1e-2}};
}

/// Returns a bert model. The head predicts `chosen` tokens, or one class per text if `chosen` is 0.
ModelCase bert_case(std::string name, std::size_t chosen) {
  ModelCase made{
      .name = std::move(name),
      .inputs = {{kTextLength, 0, kTextTokens - 1}, {1, 2, kTextLength}},
      .outputs = chosen > 0 ? chosen * kTextTokens : kTextClasses,
      .make =
          [chosen](Device& device, std::size_t samples) {
            return std::make_unique<Bert>(
                device,
                Bert::Options{.texts = samples,
                              .length = kTextLength,
                              .tokens = kTextTokens,
                              .chosen = chosen,
                              .classes = kTextClasses,
                              .model = {.layers = 2, .width = 8, .heads = 2, .dropout = 0.2f},
                              .seed = 3});
          },
      .scale = 10.0f};
  if (chosen > 0) made.inputs.push_back({chosen, 0, 1});
  return made;
}

template <typename Classifier>
ModelCase text_case(std::string name) {
  return {.name = std::move(name),
          .inputs = {{kTextLength, 0, 6}, {1, 0, 6}},
          .outputs = kTextClasses,
          .make = [](Device& device, std::size_t samples) {
            return std::make_unique<Classifier>(
                device, TextModelOptions{.texts = samples,
                                         .length = kTextLength,
                                         .words = 7,
                                         .classes = kTextClasses,
                                         .model = {.width = 5, .dropout = 0.4f},
                                         .seed = 3});
          }};
}

std::vector<ModelCase> model_cases() {
  const auto resnet = [](const Resnet::Stages& stages) {
    return [stages](Device& device, std::size_t samples) {
      return std::make_unique<Resnet>(device, small_photographs(samples), stages);
    };
  };
  // It is like resnet18, but narrow and with few blocks: a deep network has a kink in every step.
  const Resnet::Stages projections{{8, 12}, 1, ImageNetwork::Shortcut::kProjection};
  Gpt::Options all_options{};
  all_options.model = {.positions = "rotary", .tied = false, .dropout = 0.2f};
  return {image_case(
              "mlp", 256,
              [](Device& device, std::size_t samples) {
                return std::make_unique<Mlp>(device, small_images(samples));
              },
              0.15),
          image_case(
              "lenet", 256,
              [](Device& device, std::size_t samples) {
                return std::make_unique<Lenet>(device, small_images(samples));
              },
              0.3),
          image_case(
              "convnet", 192,
              [](Device& device, std::size_t samples) {
                return std::make_unique<Convnet>(device, small_photographs(samples));
              },
              0.3),
          image_case("resnet20", 192, resnet(Resnet::stages20()), 0.4, true),
          image_case("resnet_with_projections", 192, resnet(projections), 0.3, true),
          gpt_case("gpt", {}),
          gpt_case("gpt_with_all_options", all_options),
          bert_case("bert_of_classes", 0),
          bert_case("bert_of_masked_tokens", 2),
          text_case<EmbeddingBagClassifier>("embedding_bag"),
          text_case<LstmClassifier>("lstm"),
          {.name = "matrix_factorization",
           .inputs = {{1, 1, 6}, {1, 1, 6}},
           .outputs = 1,
           .make = [](Device&, std::size_t samples) {
             return std::make_unique<MatrixFactorization>(MatrixFactorization::Options{
                 .ratings = samples, .users = 7, .items = 8, .width = 5, .mean = 3.5f, .seed = 3});
           }}};
}

/// Returns the values of samples from `begin` on, followed by zeros up to `capacity` samples.
template <typename T>
std::vector<T> part_of(std::vector<T> all, std::size_t elements, std::size_t begin,
                       std::size_t capacity) {
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin * elements));
  all.resize(capacity * elements);
  return all;
}

/// Returns random integers of some samples. The first ones do not depend on the number of samples.
std::vector<std::int32_t> random_integers(const RandomInput& input, std::size_t samples,
                                          std::uint64_t stream) {
  Random random(5, stream);
  std::vector<std::int32_t> integers(samples * input.elements);
  for (auto& integer : integers) {
    const auto values = static_cast<std::uint64_t>(input.highest - input.lowest + 1);
    integer = input.lowest + static_cast<std::int32_t>(random.below(values));
  }
  return integers;
}

/// A model and a function of its outputs, for samples from `begin` on in a batch of `capacity`.
class Evaluated {
 public:
  Evaluated(const ModelCase& c, std::size_t begin, std::size_t samples, std::size_t capacity,
            bool by_row = false)
      : pass_{.samples = samples, .first_position = begin},
        model_(c.make(device_, capacity)),
        slopes_(
            part_of(random_values((begin + samples) * c.outputs, 7), c.outputs, begin, capacity)) {
    for (std::size_t i = 0; i < parameters().size(); ++i) {
      for (float& value : parameters()[i].value()) value = value == 1.0f ? 1.0f : c.scale * value;
    }
    if (by_row) parameters().use_rows();
    parameters().own_gradients();
    for (const RandomInput& input : c.inputs) {
      const auto& integers =
          integers_.emplace_back(part_of(random_integers(input, begin + samples, integers_.size()),
                                         input.elements, begin, capacity));
      const auto& bytes = bytes_.emplace_back(integers.begin(), integers.end());
      if (input.dtype == DType::kUInt8) {
        inputs_.emplace_back(bytes);
      } else {
        inputs_.emplace_back(integers);
      }
    }
    if (c.classes == 0) return;
    const RandomInput classes{c.outputs / c.classes, 0, static_cast<std::int32_t>(c.classes) - 1};
    targets_ = random_integers(classes, begin + samples, 100);
    targets_.erase(targets_.begin(),
                   targets_.begin() + static_cast<std::ptrdiff_t>(begin * classes.elements));
    loss_.emplace(
        SoftmaxCrossEntropy::Options{.rows = capacity * classes.elements, .classes = c.classes});
  }

  ParameterSet& parameters() { return model_->parameters(); }

  /// Runs a forward pass and returns the function's value.
  double forward() {
    const std::span<const float> outputs = model_->forward(inputs_, pass_);
    EXPECT_EQ(outputs.size(), slopes_.size());
    if (!loss_) return dot(outputs, slopes_);
    const TensorView targets[] = {targets_};
    return loss_->evaluate(outputs, targets, 1.0f).loss;
  }

  void backward() { model_->backward(loss_ ? loss_->gradient() : std::span<float>(slopes_)); }

  /// Returns the gradients of all parameters. Those of tables are dense.
  std::vector<float> gradients() {
    forward();
    backward();
    std::vector<float> all;
    for (std::size_t i = 0; i < parameters().size(); ++i) {
      const std::size_t offset = all.size();
      all.resize(offset + parameters()[i].size());
      parameters()[i].visit_gradient([&](std::size_t at, std::span<const float> part) {
        for (std::size_t j = 0; j < part.size(); ++j) all[offset + at + j] += part[j];
      });
    }
    return all;
  }

 private:
  Device device_;
  Pass pass_;
  std::unique_ptr<Model> model_;
  std::vector<float> slopes_;
  std::vector<std::vector<std::int32_t>> integers_;
  std::vector<std::vector<std::uint8_t>> bytes_;
  std::vector<TensorView> inputs_;
  std::vector<std::int32_t> targets_;
  std::optional<SoftmaxCrossEntropy> loss_;
};

class ModelTest : public testing::TestWithParam<ModelCase> {};

TEST_P(ModelTest, GradientsMatchDifferences) {
  Evaluated model(GetParam(), 0, 4, 4);
  model.gradients();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    expect_parameter_gradient([&] { return model.forward(); }, model.parameters()[i],
                              GetParam().bound);
  }
}

TEST_P(ModelTest, ReportsEveryGradientOnceAndWithItsFinalValue) {
  Evaluated model(GetParam(), 0, 2, 2);
  ParameterSet& parameters = model.parameters();
  std::vector<std::vector<float>> reported(parameters.size());
  parameters.on_gradient_ready([&](std::size_t i) {
    EXPECT_TRUE(reported[i].empty()) << parameters[i].name();
    const auto gradient = parameters[i].gradient();
    reported[i].assign(gradient.begin(), gradient.end());
  });
  model.gradients();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto gradient = parameters[i].gradient();
    EXPECT_EQ(reported[i], std::vector<float>(gradient.begin(), gradient.end()))
        << parameters[i].name();
  }
}

// N ranks with batch B compute what one rank computes with batch N·B. The last part is short by one
// sample, as at the end of an epoch. Dropout depends on the sample, padding has no effect, and row
// gradients equal whole gradients.
TEST_P(ModelTest, PartsOfABatchAddUpToIt) {
  const ModelCase& c = GetParam();
  if (c.mixes_samples) return;
  const std::vector<float> whole = Evaluated(c, 0, 5, 5).gradients();
  // Bound: sums of a few thousand float32 terms in another order, relative 1e-4 of the largest.
  const float bound = 1e-4f * *std::max_element(whole.begin(), whole.end());
  for (const bool by_row : {false, true}) {
    const std::vector<float> first = Evaluated(c, 0, 3, 3, by_row).gradients();
    const std::vector<float> second = Evaluated(c, 3, 2, 3, by_row).gradients();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_NEAR(first[i] + second[i], whole[i], bound) << i;
    }
  }
}

TEST_P(ModelTest, SameSeedGivesSameWeights) {
  const ModelCase& c = GetParam();
  Device device;
  EXPECT_EQ(c.make(device, 1)->parameters().hash(), c.make(device, 2)->parameters().hash());
}

INSTANTIATE_TEST_SUITE_P(All, ModelTest, testing::ValuesIn(model_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(LenetTest, RefusesSmallImages) {
  Device device;
  ImageModelOptions options = small_images(1);
  options.height = 15;
  EXPECT_THROW(Lenet(device, options), UsageError);
}

TEST(BertTest, WordsBehindTheLengthHaveNoInfluence) {
  for (const std::size_t chosen : {0u, 2u}) {
    Device device;
    const auto model = bert_case("", chosen).make(device, 1);
    std::vector<std::int32_t> tokens = {2, 4, 5, 6, 0, 0}, length = {4}, places(chosen, 1);
    std::vector<TensorView> inputs = {tokens, length};
    if (chosen > 0) inputs.emplace_back(places);
    const auto output = model->forward(inputs, {});
    const std::vector<float> before(output.begin(), output.end());
    tokens[4] = 7;
    EXPECT_THAT(model->forward(inputs, {}), testing::ElementsAreArray(before));
  }
}

Field tokens_of(std::size_t length, std::size_t values) {
  return {.name = "tokens", .dtype = DType::kInt32, .shape = {length}, .values = values};
}

/// Returns the error of a catalog model for these inputs.
std::string error_for(const Config& config, const std::vector<Field>& inputs) {
  const SampleFormat format{.inputs = inputs, .targets = {inputs[0]}};
  Device device;
  const auto make = [&] {
    built_in_catalog()
        .models.at(config.model)
        .make({.config = config, .format = format, .outputs = 9, .batch = 1}, device);
  };
  return error_of(make, ErrorCode::kConfig);
}

TEST(BertTest, RefusesOtherSamples) {
  Config config = default_config(built_in_catalog(), "bert");
  const Field tokens = tokens_of(4, 9);
  const Field length{.name = "length", .dtype = DType::kInt32, .values = 5};
  EXPECT_THAT(error_for(config, {tokens}), HasSubstr("choose --task"));
  config.heads = 3;
  EXPECT_THAT(error_for(config, {tokens, length}), HasSubstr("--heads 3"));
  config.text_marks = false;
  EXPECT_THAT(error_for(config, {tokens, length}), HasSubstr("--text-marks on"));
}

TEST(BertTest, OtherModelsRefuseHiddenWords) {
  const Field tokens = tokens_of(4, 9);
  for (const char* model : {"embedding-bag", "gpt"}) {
    EXPECT_THAT(error_for(default_config(built_in_catalog(), model), {tokens, tokens, tokens}),
                HasSubstr("choose --task"));
  }
}

TEST(GptTest, RefusesHeadsThatDoNotFitTheWidth) {
  Config config = default_config(built_in_catalog(), "gpt");
  config.heads = 3;
  EXPECT_THAT(error_for(config, {tokens_of(6, 256)}),
              HasSubstr("--width 128 is not a multiple of --heads 3"));
  config.width = 9;
  config.positions = "rotary";
  EXPECT_THAT(error_for(config, {tokens_of(6, 256)}),
              HasSubstr("--positions rotary: --width 9 over --heads 3"));
}

// With GPT-2's vocabulary, the number of parameters is the published one.
TEST(GptTest, TheShapeOfGpt2HasItsParameters) {
  const Config config = default_config(built_in_catalog(), "gpt", "gpt2");
  const SampleFormat format{.inputs = {tokens_of(1024, 50257)}, .targets = {}};
  Gpt::Options options =
      Gpt::options({.config = config, .format = format, .outputs = 50257, .batch = 1});
  options.chunk = 1;  // uses little memory beside the parameters
  Device device;
  EXPECT_EQ(Gpt(device, options).parameters().element_count(), 124'439'808u);
}

TEST(GenerateTest, ContinuesAPromptTheSameWayEachTime) {
  Device device;
  const Gpt model(
      device,
      {.sequences = 3, .context = 5, .model = {.layers = 1, .width = 8, .heads = 2}, .seed = 1});
  const GenerateOptions options{.bytes = 12, .temperature = 0.9, .prompt = "ab", .seed = 4};
  const std::string text = generate(model.options(), model.parameters(), ByteTokenizer(), options);
  EXPECT_EQ(text.size(), 12u);
  EXPECT_EQ(text, generate(model.options(), model.parameters(), ByteTokenizer(), options));
}

TEST(GenerateTest, ControlCharactersAreNotPrinted) {
  EXPECT_EQ(printable(std::string("a\x1b[0m\n\t\x7f\xc3\xa4", 9)), "a?[0m\n\t?\xc3");
}

}  // namespace
}  // namespace kolo::trainer
