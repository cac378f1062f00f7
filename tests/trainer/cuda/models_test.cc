// Compares device models with host models.

#include <algorithm>
#include <functional>
#include <variant>

#include "comm/base/error.h"
#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/finite_difference.h"
#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/cuda_optimizer.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kSamples = 6;

// Adam divides by the size of a gradient. If the exact gradient is zero, as for the bias of keys, a
// small epsilon would turn rounding errors into whole steps.
constexpr OptimizerOptions kAdamW{.epsilon = 1e-3f, .weight_decay = 0.1f};

/// A model on both devices.
struct ModelCase {
  std::string name;
  std::size_t sample_elements;
  std::size_t rows;  ///< Rows per sample.
  std::size_t classes;
  bool has_pooling;
  bool has_batch_norm;
  std::function<std::unique_ptr<Model>(trainer::Device&)> on_host;
  std::function<std::unique_ptr<CudaModel>(kolo::Device&, const CudaModelOptions&)> on_device;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

ImageModelOptions images(std::size_t channels, std::size_t side) {
  return {.images = kSamples,
          .height = side,
          .width = side + 4,
          .channels = channels,
          .classes = 10,
          .hidden = 24,
          .scaling = PixelScaling(127.5, 73.9),
          .seed = 3};
}

Gpt::Options text(std::size_t tokens) {
  return {.sequences = kSamples,
          .context = 8,
          .tokens = tokens,
          .model = {.layers = 2, .width = 32, .heads = 4},
          .seed = 3};
}

ModelCase gpt(const std::string& name, std::size_t tokens) {
  return {name,
          8,
          8,
          tokens,
          false,
          false,
          [=](trainer::Device& d) { return std::make_unique<Gpt>(d, text(tokens)); },
          [=](kolo::Device& d, const CudaModelOptions& o) { return make_gpt(d, text(tokens), o); }};
}

template <typename Options>
bool has_layer(const ImageNetwork& network) {
  return std::ranges::any_of(network.layers(), [](const ImageLayer& layer) {
    return std::holds_alternative<Options>(layer.options);
  });
}

ModelCase image_model(const std::string& name, std::size_t channels, DescribeNetwork describe,
                      std::size_t side = 16) {
  const ImageModelOptions shape = images(channels, side);
  const ImageNetwork network = describe(shape);
  return {name,
          shape.height * shape.width * channels,
          1,
          10,
          has_layer<MaxPool::Options>(network),
          has_layer<BatchNorm::Options>(network),
          [=](trainer::Device& d) { return std::make_unique<ImageClassifier>(d, shape, network); },
          [=](kolo::Device& d, const CudaModelOptions& o) {
            return make_image_model(d, describe, shape, o);
          }};
}

/// A narrow network like resnet18.
ImageNetwork projections(const ImageModelOptions& o) {
  return Resnet::network(o, {{8, 16}, 1, ImageNetwork::Shortcut::kProjection});
}

std::vector<ModelCase> model_cases() {
  return {image_model("mlp", 1, Mlp::network),
          image_model("mlp_in_colour", 3, Mlp::network),
          image_model("lenet", 1, Lenet::network),
          image_model("lenet_in_colour", 3, Lenet::network),
          image_model("convnet", 3, Convnet::network),
          image_model("resnet20", 3, Resnet::network20),
          image_model("resnet_with_projections", 3, projections),
          image_model("resnet_of_photographs", 3, projections, Resnet::kLargeSide),
          gpt("gpt", 256),
          gpt("gpt_of_byte_pairs", 1003)};
}

class ModelTest : public CudaTest, public testing::WithParamInterface<ModelCase> {
 protected:
  const ModelCase& c() const { return GetParam(); }
  std::size_t rows() const { return kSamples * c().rows; }

  void SetUp() override {
    CudaTest::SetUp();
    pixels_.resize(kSamples * c().sample_elements);
    tokens_.resize(rows());
    targets_.resize(rows());
    Random random(1);
    for (auto& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.below(256));
    for (auto& token : tokens_) token = static_cast<std::int32_t>(random.below(c().classes));
    for (auto& target : targets_) target = static_cast<std::int32_t>(random.below(c().classes));
  }

  // A model on the host reads its inputs again in its backward pass.
  TensorView inputs() const { return c().rows > 1 ? TensorView(tokens_) : TensorView(pixels_); }
  TensorView targets() const { return targets_; }
  static LossSums evaluate_on_host(Model& model, trainer::Loss& loss, const TensorView& inputs,
                                   const TensorView& targets, float row_weight,
                                   bool is_training = true) {
    const std::size_t rows = targets.as<std::int32_t>().size();  // one per image
    return loss.evaluate(model.forward({&inputs, 1}, {.is_training = is_training, .samples = rows}),
                         {&targets, 1}, row_weight);
  }
  LossFactors factors() const { return {.row_weight = 1.0f / static_cast<float>(rows())}; }

  std::vector<float> gradient(CudaModel& model, std::size_t index) {
    model.take_sums();  // waits for the model's stream
    const DeviceParameter& parameter = model.device_parameters()[index];
    if (parameter.rounded == nullptr) return download<float>(parameter.gradient, parameter.size);
    std::vector<float> widened;
    for (const std::uint16_t bits : download<std::uint16_t>(parameter.rounded, parameter.size)) {
      widened.push_back(to_float(BFloat16{bits}));
    }
    return widened;
  }

  // Buffers are not among them: each training pass changes running statistics.
  static std::vector<std::vector<float>> values_of(CudaModel& model) {
    model.download_parameters();
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      const auto value = model.parameters()[i].value();
      values.emplace_back(value.begin(), value.end());
    }
    return values;
  }

  // Returns the parameters after `steps` steps of AdamW, each of `passes` equal passes.
  std::vector<std::vector<float>> train(const CudaModelOptions& options, int steps,
                                        std::size_t passes = 1, DType gradients = DType::kFloat32) {
    const auto model = c().on_device(*device_, options);
    model->own_gradients(gradients);
    model->accumulate(passes);
    CudaOptimizer optimizer(model->device_parameters(), "adamw", kAdamW);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t pass = 0; pass < passes; ++pass) {
        model->forward_backward(inputs(), targets(), factors());
      }
      optimizer.step({.lr = 1e-3f, .clip_norm = 1.0});
    }
    return values_of(*model);
  }

  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> tokens_, targets_;
};

double norm_of(std::span<const float> values) { return std::sqrt(dot(values, values)); }

// There are about 20 roundings to the activation dtype between an input and a gradient; another 20
// are allowed for units that they switch at the kink of ReLU. In float32 only the order of sums
// differs. In max pooling, roundings select another neighbour in a share of windows that grows with
// the roundoff, and each such selection moves a whole gradient. The norm of these moves grows with
// the square root of that share, which for bfloat16 is as large as the 20 roundings.
//
// The residual networks have some 130 roundings, which are at random: 12 in one direction, or in
// float32, where sums of hundreds of terms differ, 20 times as many. They switch a share of the
// units at the kink of ReLU of that size, and the norm of these moves is its square root. Batch
// norm over few images passes errors on to all of them, which a factor of 3 allows for.
double relative_bound(DType dtype, const ModelCase& c) {
  const auto roundoff = static_cast<double>(unit_roundoff(dtype));
  if (c.has_batch_norm) {
    const double error = (dtype == DType::kFloat32 ? 240.0 : 12.0) * roundoff;
    return 3.0 * (error + std::sqrt(error));
  }
  if (dtype == DType::kFloat32) return 1e-4;
  return 20.0 * roundoff + (c.has_pooling ? 1.25 * std::sqrt(roundoff) : 20.0 * roundoff);
}

// Expects that the running statistics of both follow the same pass.
void expect_statistics(CudaModel& model, Model& host, DType dtype) {
  model.download_parameters();
  for (std::size_t i = 0; i < host.parameters().buffers().size(); ++i) {
    const Buffer& wanted = host.parameters().buffers()[i];
    // They have a tenth of what a pass measures, whose inputs have up to 60 roundings at random.
    const float bound = 0.1f * 3.0f * (dtype == DType::kFloat32 ? 160.0f : 8.0f);
    expect_close(model.parameters().buffers()[i].value.span(), wanted.value.span(),
                 bound * unit_roundoff(dtype), wanted.name);
  }
}

TEST_P(ModelTest, LossAndGradientsFollowTheHostModel) {
  trainer::Device host_device;
  const auto host = c().on_host(host_device);
  host->parameters().own_gradients();
  const std::uint64_t initial = host->parameters().hash();
  const std::span<const std::int32_t> some(targets_.data(), rows() - 2);  // the rest is padding
  SoftmaxCrossEntropy loss({.rows = rows(), .classes = c().classes});
  const LossSums expected = evaluate_on_host(*host, loss, inputs(), some, factors().row_weight);
  host->backward(loss.gradient());
  const LossSums held_out =
      evaluate_on_host(*host, loss, inputs(), some, factors().row_weight, false);

  for (const DType dtype : kActivationTypes) {
    SCOPED_TRACE(to_string(dtype));
    const auto model = c().on_device(*device_, {.dtype = dtype});
    EXPECT_EQ(model->parameters().hash(), initial) << "equal initial bits";
    model->own_gradients();
    LossFactors scaled = factors();
    if (dtype == DType::kFloat16) scaled.loss_scale = 1024.0f;
    model->forward_backward(inputs(), some, scaled);
    const LossSums sums = model->take_sums();
    EXPECT_EQ(sums.rows, expected.rows);
    EXPECT_NEAR(sums.loss, expected.loss, relative_bound(dtype, c()) * expected.loss);
    model->evaluate(inputs(), some);
    if (c().has_batch_norm) {
      expect_statistics(*model, *host, dtype);
      EXPECT_NEAR(model->take_sums().loss, held_out.loss,
                  relative_bound(dtype, c()) * held_out.loss);
    } else {
      EXPECT_EQ(model->take_sums().loss, sums.loss) << "the same forward pass";
    }
    for (std::size_t i = 0; i < host->parameters().size(); ++i) {
      const auto wanted = host->parameters()[i].gradient();
      auto difference = gradient(*model, i);
      for (std::size_t k = 0; k < difference.size(); ++k) {
        difference[k] = difference[k] / scaled.loss_scale - wanted[k];
      }
      EXPECT_LE(norm_of(difference), relative_bound(dtype, c()) * norm_of(wanted) + 1e-7)
          << host->parameters()[i].name();
    }
  }
}

TEST_P(ModelTest, HooksComeInTheOrderOfTheHostModel) {
  trainer::Device host_device;
  const auto host = c().on_host(host_device);
  host->parameters().own_gradients();
  std::vector<std::size_t> expected;
  host->parameters().on_gradient_ready([&](std::size_t i) { expected.push_back(i); });
  SoftmaxCrossEntropy loss({.rows = rows(), .classes = c().classes});
  evaluate_on_host(*host, loss, inputs(), targets(), 1.0f);
  host->backward(loss.gradient());

  for (const LaunchMode launch : {LaunchMode::kEager, LaunchMode::kGraph}) {
    for (const std::size_t milestone : {std::size_t{0}, std::size_t{1} << 30}) {
      const auto model = c().on_device(*device_, {.launch = launch, .milestone_bytes = milestone});
      model->own_gradients();
      std::vector<std::size_t> order;
      model->on_gradient_ready([&](std::size_t i) { order.push_back(i); });
      for (int step = 0; step < 3; ++step) {
        order.clear();
        model->forward_backward(inputs(), targets(), factors());
        EXPECT_EQ(order, expected) << "step " << step;
      }
    }
  }
}

TEST_P(ModelTest, BitsAreEqualBetweenRunsAndWithGraphs) {
  for (const DType dtype : kActivationTypes) {
    const auto eager = train({.dtype = dtype}, 4);
    EXPECT_EQ(train({.dtype = dtype}, 4), eager) << to_string(dtype);
    for (const std::size_t milestone : {std::size_t{0}, std::size_t{1} << 30}) {
      EXPECT_EQ(
          train({.dtype = dtype, .launch = LaunchMode::kGraph, .milestone_bytes = milestone}, 4),
          eager)
          << to_string(dtype) << " as graphs";
    }
  }
}

TEST_P(ModelTest, GradientsOfPassesAddUpAndAreReadyInTheLast) {
  constexpr std::size_t kPasses = 3;
  for (const DType dtype : kActivationTypes) {
    const auto model = c().on_device(*device_, {.dtype = dtype});
    model->own_gradients();
    std::size_t ready = 0;
    model->on_gradient_ready([&](std::size_t) { ++ready; });
    model->forward_backward(inputs(), targets(), factors());
    EXPECT_EQ(ready, model->parameters().size());
    std::vector<std::vector<float>> once;
    for (std::size_t i = 0; i < ready; ++i) once.push_back(gradient(*model, i));

    model->accumulate(kPasses);
    for (int step = 0; step < 2; ++step) {
      ready = 0;
      for (std::size_t pass = 0; pass < kPasses; ++pass) {
        EXPECT_EQ(ready, 0u);
        model->forward_backward(inputs(), targets(), factors());
      }
      EXPECT_EQ(ready, once.size());
      for (std::size_t i = 0; i < once.size(); ++i) {
        auto difference = gradient(*model, i);
        for (std::size_t k = 0; k < difference.size(); ++k) {
          difference[k] -= static_cast<float>(kPasses) * once[i][k];
        }
        // A pass adds its terms to the sums so far in another order, all in float32.
        EXPECT_LE(norm_of(difference),
                  1e-4 * static_cast<double>(kPasses) * norm_of(once[i]) + 1e-7)
            << model->parameters()[i].name();
      }
    }
  }
}

// Bound: a rounding of every element, 2^-9; products may choose another order of sums, 2^-9 again.
TEST_P(ModelTest, BFloat16GradientsAreThoseInFloat32Rounded) {
  for (const DType dtype : kActivationTypes) {
    for (const std::size_t passes : {1u, 3u}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + ", passes: " + std::to_string(passes));
      const auto exact = c().on_device(*device_, {.dtype = dtype});
      const auto rounded = c().on_device(*device_, {.dtype = dtype});
      exact->own_gradients();
      rounded->own_gradients(DType::kBFloat16);
      for (CudaModel* const model : {exact.get(), rounded.get()}) {
        model->accumulate(passes);
        for (std::size_t i = 0; i < passes; ++i) {
          model->forward_backward(inputs(), targets(), factors());
        }
      }
      for (std::size_t i = 0; i < exact->parameters().size(); ++i) {
        const auto wanted = gradient(*exact, i);
        auto difference = gradient(*rounded, i);
        for (std::size_t k = 0; k < difference.size(); ++k) difference[k] -= wanted[k];
        EXPECT_LE(norm_of(difference), 0x1p-8 * norm_of(wanted) + 1e-7)
            << exact->parameters()[i].name();
      }
    }
  }
}

TEST_P(ModelTest, GraphsOfPassesChangeNoBit) {
  for (const std::size_t passes : {1u, 2u}) {
    EXPECT_EQ(train({.launch = LaunchMode::kGraph}, 4, passes, DType::kBFloat16),
              train({}, 4, passes, DType::kBFloat16));
  }
  for (const std::size_t passes : {2u, 4u}) {
    EXPECT_EQ(train({.launch = LaunchMode::kGraph, .milestone_bytes = 0}, 4, passes),
              train({}, 4, passes));
  }
}

TEST_P(ModelTest, ASteadyStepAllocatesNothing) {
  for (const LaunchMode launch : {LaunchMode::kEager, LaunchMode::kGraph}) {
    const auto model = c().on_device(*device_, {.launch = launch});
    model->own_gradients();
    CudaOptimizer optimizer(model->device_parameters(), "adamw", {});
    const auto step = [&] {
      model->forward_backward(inputs(), targets(), factors());
      optimizer.step({.lr = 1e-3f});
      optimizer.report();
    };
    for (int i = 0; i < 3; ++i) step();
    const AllocationCounts before = device_->allocation_counts();
    for (int i = 0; i < 3; ++i) step();
    const AllocationCounts after = device_->allocation_counts();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.streams, before.streams);
    EXPECT_EQ(after.events, before.events);
  }
}

TEST_P(ModelTest, AnOverflowSkipsTheUpdateAndIsReported) {
  const auto model = c().on_device(*device_, {.dtype = DType::kFloat16});
  model->own_gradients();
  CudaOptimizer optimizer(model->device_parameters(), "adamw", {});
  const auto initial = values_of(*model);
  LossFactors huge = factors();
  huge.loss_scale = 1e30f;
  model->forward_backward(inputs(), targets(), huge);
  optimizer.step({.lr = 1e-3f, .gradient_scale = 1e-30f});
  EXPECT_TRUE(optimizer.report().is_skipped);
  EXPECT_EQ(values_of(*model), initial);

  model->forward_backward(inputs(), targets(), factors());
  optimizer.step({.lr = 1e-3f});
  EXPECT_FALSE(optimizer.report().is_skipped);
  EXPECT_EQ(optimizer.report().steps, 1u);
  EXPECT_NE(values_of(*model), initial);
}

TEST_P(ModelTest, MisuseIsAnErrorAtTheCall) {
  const auto model = c().on_device(*device_, {});
  EXPECT_THROW(CudaOptimizer(model->device_parameters(), "adamw", {}), UsageError)
      << "no gradients";
  model->own_gradients();
  float* const memory = model->device_parameters()[0].gradient;
  EXPECT_THROW(model->bind_gradient(0, memory + 1), UsageError) << "alignment";
  EXPECT_THROW(CudaOptimizer(model->device_parameters(), "adam", {}), KoloError);
  const TensorView all = inputs();
  const TensorView less(all.dtype(), all.bytes().first(all.bytes().size() - sizeof(std::int32_t)));
  EXPECT_THROW(model->forward_backward(less, targets(), factors()), UsageError);
  EXPECT_THROW(model->forward_backward(inputs(), pixels_, factors()), UsageError) << "dtype";
  auto wrong = targets_;
  for (const int value : {-1, static_cast<int>(c().classes)}) {
    wrong.front() = value;
    EXPECT_THROW(model->forward_backward(inputs(), wrong, factors()), UsageError) << "a class";
    EXPECT_THROW(model->forward_backward(wrong, targets(), factors()), UsageError) << "a token";
  }
  EXPECT_THROW(c().on_device(*device_, {.dtype = DType::kInt32}), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelTest, testing::ValuesIn(model_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::trainer::cuda
