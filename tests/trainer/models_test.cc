#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/models/gpt_reader.h"
#include "trainer/models/image_models.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

/// One kind of model for batches of any size, with the input of a sample and its rows.
struct ModelCase {
  std::string name;
  DType dtype;  // of the input: random bytes
  std::size_t elements;
  std::size_t rows;
  std::size_t classes;
  std::function<std::unique_ptr<Model>(Device&, std::size_t samples)> make;
  double kinks;                // see DifferenceBound
  bool mixes_samples = false;  // statistics of a batch enter each sample's output
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

std::vector<ModelCase> model_cases() {
  return {{"mlp", DType::kUInt8, 256, 1, 10,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Mlp>(device, small_images(samples));
           },
           0.15},
          {"lenet", DType::kUInt8, 256, 1, 10,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Lenet>(device, small_images(samples));
           },
           0.3},
          {"convnet", DType::kUInt8, 192, 1, 10,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Convnet>(device, small_photographs(samples));
           },
           0.3},
          {"resnet20", DType::kUInt8, 192, 1, 10,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Resnet>(device, small_photographs(samples),
                                             Resnet::stages20());
           },
           0.4, true},
          {"resnet_with_projections", DType::kUInt8, 192, 1, 10,
           [](Device& device, std::size_t samples) {
             // As resnet18, but narrow and with few blocks: a deep network has a kink within every
             // step.
             return std::make_unique<Resnet>(
                 device, small_photographs(samples),
                 Resnet::Stages{{8, 12}, 1, ResidualBlock::Shortcut::kProjection});
           },
           0.3, true},
          {"gpt", DType::kInt32, 6, 6, 256,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Gpt>(device, Gpt::Options{.sequences = samples,
                                                               .context = 6,
                                                               .layers = 2,
                                                               .width = 8,
                                                               .heads = 2,
                                                               .seed = 3});
           },
           0.0},
          {"gpt_with_all_options", DType::kInt32, 6, 6, 256,
           [](Device& device, std::size_t samples) {
             return std::make_unique<Gpt>(device, Gpt::Options{.sequences = samples,
                                                               .context = 6,
                                                               .layers = 2,
                                                               .width = 8,
                                                               .heads = 2,
                                                               .positions = Gpt::Positions::kRotary,
                                                               .is_tied = false,
                                                               .dropout = 0.2f,
                                                               .seed = 3});
           },
           0.0}};
}

std::vector<std::int32_t> random_integers(std::size_t count, std::uint64_t below) {
  Random random(5);
  std::vector<std::int32_t> integers(count);
  for (auto& integer : integers) integer = static_cast<std::int32_t>(random.below(below));
  return integers;
}

/// The input of some samples of a model, of which a part may be taken for a batch.
class RandomInput {
 public:
  RandomInput(const ModelCase& model_case, std::size_t samples)
      : dtype_(model_case.dtype),
        elements_(model_case.elements),
        integers_(random_integers(samples * model_case.elements, 256)) {}

  /// A batch of `capacity` samples: those from `begin` on, then zeros.
  std::vector<TensorView> batch(std::size_t begin, std::size_t samples, std::size_t capacity) {
    const auto first = integers_.begin() + static_cast<std::ptrdiff_t>(begin * elements_);
    const auto last = first + static_cast<std::ptrdiff_t>(samples * elements_);
    integers_batch_.assign(first, last);
    integers_batch_.resize(capacity * elements_);
    bytes_batch_.assign(integers_batch_.begin(), integers_batch_.end());
    if (dtype_ == DType::kUInt8) return {TensorView(bytes_batch_)};
    return {TensorView(integers_batch_)};
  }

 private:
  DType dtype_;
  std::size_t elements_;
  std::vector<std::int32_t> integers_, integers_batch_;
  std::vector<std::uint8_t> bytes_batch_;
};

class ModelTest : public testing::TestWithParam<ModelCase> {};

/// Models whose output for a sample depends on this sample only.
class SampleWiseModelTest : public ModelTest {};

std::vector<ModelCase> sample_wise_cases() {
  std::vector<ModelCase> cases = model_cases();
  std::erase_if(cases, [](const ModelCase& c) { return c.mixes_samples; });
  return cases;
}

TEST_P(ModelTest, GradientsOfTheLossMatchDifferences) {
  const ModelCase& c = GetParam();
  Device device;
  const auto model = c.make(device, 4);
  ParameterSet& parameters = model->parameters();
  parameters.own_gradients();
  RandomInput input(c, 4);
  const std::vector<TensorView> inputs = input.batch(0, 4, 4);
  const std::vector<std::int32_t> classes = random_integers(4 * c.rows, c.classes);
  const TensorView targets[] = {classes};
  SoftmaxCrossEntropy loss({.rows = 4 * c.rows, .classes = c.classes});
  const auto f = [&] { return loss.evaluate(model->forward(inputs, {}), targets, 1.0f).loss; };
  f();
  model->backward(loss.gradient());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_parameter_gradient(f, parameters[i],
                              {.step = 0x1.0p-10f, .absolute = 1e-2, .kinks = c.kinks});
  }
}

TEST_P(ModelTest, ReportsEveryGradientOnceAndWithItsFinalValue) {
  const ModelCase& c = GetParam();
  Device device;
  const auto model = c.make(device, 2);
  ParameterSet& parameters = model->parameters();
  parameters.own_gradients();
  RandomInput input(c, 2);
  const std::vector<TensorView> inputs = input.batch(0, 2, 2);
  const std::vector<std::int32_t> classes = random_integers(2 * c.rows, c.classes);
  const TensorView targets[] = {classes};
  SoftmaxCrossEntropy loss({.rows = 2 * c.rows, .classes = c.classes});

  std::vector<std::vector<float>> reported(parameters.size());
  parameters.on_gradient_ready([&](std::size_t i) {
    EXPECT_TRUE(reported[i].empty()) << parameters[i].name();
    const auto gradient = parameters[i].gradient();
    reported[i].assign(gradient.begin(), gradient.end());
  });
  loss.evaluate(model->forward(inputs, {}), targets, 0.5f);
  model->backward(loss.gradient());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto gradient = parameters[i].gradient();
    EXPECT_EQ(reported[i], std::vector<float>(gradient.begin(), gradient.end()))
        << parameters[i].name();
  }
}

// N ranks with batch B, their gradients averaged, do what one rank does with batch N·B; here the
// last part is short by one sample, as at the end of an epoch.
TEST_P(SampleWiseModelTest, AverageOverRanksIsTheGradientOfTheGlobalBatch) {
  const ModelCase& c = GetParam();
  constexpr std::size_t kRanks = 2;
  constexpr std::size_t kSamples = 5;  // 3 on rank 0, 2 on rank 1
  Device device;
  RandomInput input(c, kSamples);
  const std::vector<std::int32_t> classes = random_integers(kSamples * c.rows, c.classes);
  const auto gradients = [&](std::size_t begin, std::size_t samples, std::size_t capacity,
                             std::size_t ranks) {
    const auto model = c.make(device, capacity);
    ParameterSet& parameters = model->parameters();
    parameters.own_gradients();
    const std::vector<TensorView> inputs = input.batch(begin, samples, capacity);
    const TensorView targets[] = {std::span(classes).subspan(begin * c.rows, samples * c.rows)};
    SoftmaxCrossEntropy loss({.rows = capacity * c.rows, .classes = c.classes});
    const float weight = static_cast<float>(ranks) / static_cast<float>(kSamples * c.rows);
    const Pass pass{.samples = samples, .first_position = begin};
    loss.evaluate(model->forward(inputs, pass), targets, weight);
    model->backward(loss.gradient());
    std::vector<float> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      all.insert(all.end(), parameters[i].gradient().begin(), parameters[i].gradient().end());
    }
    return all;
  };
  const auto whole = gradients(0, kSamples, kSamples, 1);
  const auto first = gradients(0, 3, 3, kRanks);
  const auto second = gradients(3, 2, 3, kRanks);
  // Sums of at most a few thousand fp32 terms in another order: relative 1e-4 of the largest.
  const float bound = 1e-4f * *std::max_element(whole.begin(), whole.end());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(0.5f * (first[i] + second[i]), whole[i], bound) << i;
  }
}

TEST_P(ModelTest, SameSeedGivesSameWeights) {
  const ModelCase& c = GetParam();
  Device device;
  EXPECT_EQ(c.make(device, 1)->parameters().hash(), c.make(device, 2)->parameters().hash());
}

INSTANTIATE_TEST_SUITE_P(All, ModelTest, testing::ValuesIn(model_cases()),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(SampleWise, SampleWiseModelTest, testing::ValuesIn(sample_wise_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(LenetTest, RefusesSmallImages) {
  Device device;
  ImageModelOptions options = small_images(1);
  options.height = 15;
  EXPECT_THROW(Lenet(device, options), UsageError);
}

TEST(GptTest, RefusesHeadsThatDoNotFitTheWidth) {
  Config config = default_config(built_in_catalog(), "gpt");
  const SampleFormat format{
      .inputs = {{.name = "tokens", .dtype = DType::kInt32, .shape = {6}, .values = 256}},
      .targets = {}};
  const auto expect_error = [&](const std::string& part) {
    try {
      Gpt::options({.config = config, .format = format, .outputs = 256, .batch = 2});
      ADD_FAILURE() << "no error";
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kConfig);
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  config.heads = 3;
  expect_error("--width 128 is not a multiple of --heads 3");
  config.width = 9;
  config.positions = "rotary";
  expect_error("--positions rotary: --width 9 over --heads 3");
}

// With the vocabulary of GPT-2: the published number of its parameters.
TEST(GptTest, TheShapeOfGpt2HasItsParameters) {
  const Config config = default_config(built_in_catalog(), "gpt", "gpt2");
  const SampleFormat format{
      .inputs = {{.name = "tokens", .dtype = DType::kInt32, .shape = {1024}, .values = 50257}},
      .targets = {}};
  Gpt::Options options =
      Gpt::options({.config = config, .format = format, .outputs = 50257, .batch = 1});
  options.chunk = 1;  // little memory beside the parameters
  Device device;
  EXPECT_EQ(Gpt(device, options).parameters().element_count(), 124'439'808u);
}

TEST(GenerateTest, ContinuesAPromptTheSameWayEachTime) {
  Device device;
  const Gpt model(device,
                  {.sequences = 3, .context = 5, .layers = 1, .width = 8, .heads = 2, .seed = 1});
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
