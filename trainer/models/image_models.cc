#include "trainer/models/image_models.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/images.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer {
namespace {

/// Number of dense layers of Mlp.
constexpr std::size_t kMlpLayers = 3;

/// Makes the entry of a model M with hidden dense layers.
template <typename M>
ModelEntry hidden_layer_entry(std::string name, std::string help,
                              std::function<void(Config&)> set_defaults) {
  return {.name = std::move(name),
          .task = "image-classification",
          .help = std::move(help),
          .set_defaults = std::move(set_defaults),
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<M>(device, image_model_options(setting));
              },
          .reads = {"--hidden"}};
}

ModelEntry resnet_entry(std::string name, std::string help, const Resnet::Stages& stages) {
  return {.name = std::move(name),
          .task = "image-classification",
          .help = std::move(help),
          .set_defaults =
              [](Config& config) {
                set_image_defaults(config);
                config.epochs = 15;
                config.optimizer = "sgd";
                config.lr = 0.05f;
                config.optimizer_options.weight_decay = 5e-4f;
              },
          .make =
              [stages](const ModelSetting& setting, Device& device) {
                return std::make_unique<Resnet>(device, image_model_options(setting), stages);
              },
          .reads = {"--sync-batch-norm"}};
}

}  // namespace

ImageModelOptions image_model_options(const ModelSetting& setting) {
  const Field& image = setting.format.inputs[0];
  return {.images = setting.batch,
          .height = image.shape.at(0),
          .width = image.shape.at(1),
          .channels = image.shape.at(2),
          .classes = setting.outputs,
          .hidden = setting.config.hidden,
          .scaling = PixelScaling(image.mean, image.deviation),
          .seed = setting.config.seed,
          .sum_over_ranks = setting.sum_over_ranks,
          .ranks = setting.tensor,
          .stage = setting.stage,
          .parameters = setting.parameters};
}

void set_image_defaults(Config& config) {
  config.epochs = 3;
  config.batch = 32;
  config.lr = 2e-3f;
  config.final_lr_share = 0.0f;
  config.warmup_steps = 50;
  config.optimizer_options.weight_decay = 0.01f;
  config.log_every = 100;
}

ImageClassifier::ImageClassifier(const ImageModelOptions& options)
    : Model(options.seed, options.parameters),
      takes_pixels_(options.stage.is_first()),
      scaling_(options.scaling),
      pixels_({options.images, options.height, options.width, options.channels}) {}

float ImageClassifier::he_deviation(std::size_t inputs) {
  return std::sqrt(2.0f / static_cast<float>(inputs));
}

void ImageClassifier::append_linear(Device& device, const char* name, std::size_t inputs,
                                    std::size_t outputs, bool input_gradient, const Part& part,
                                    const TensorRanks& ranks) {
  layers_.append<Linear>(device, parameters(), name,
                         Linear::Options{.rows = pixels_.shape()[0],
                                         .inputs = inputs,
                                         .outputs = outputs,
                                         .deviation = he_deviation(inputs),
                                         .input_gradient = input_gradient,
                                         .part = part,
                                         .ranks = ranks});
}

std::span<const float> ImageClassifier::forward(std::span<const TensorView> inputs,
                                                const Pass& pass) {
  if (!takes_pixels_) return layers_.forward(inputs[0].as<float>(), pass);
  const std::span<const std::uint8_t> bytes = inputs[0].as<std::uint8_t>();
  check(bytes.size() == pixels_.size(), "a model takes batches of the size it was made for");
  scaling_.apply(bytes, pixels_.span());
  return layers_.forward(pixels_.span(), pass);
}

void ImageClassifier::backward(std::span<const float> output_gradient) {
  input_gradient_ = layers_.backward(output_gradient);
}

ConvolutionalClassifier::ConvolutionalClassifier(Device& device, const ImageModelOptions& o,
                                                 const Convolutions& convolutions)
    : ImageClassifier(o) {
  const std::string side = std::to_string(convolutions.least_side);
  check(o.height >= convolutions.least_side && o.width >= convolutions.least_side,
        convolutions.model + " needs images of at least " + side + " x " + side + " pixels");
  const std::size_t kernel = convolutions.kernel;
  const std::size_t lost = kernel - 1 - 2 * convolutions.padding;  // pixels that each side loses
  std::size_t height = o.height;
  std::size_t width = o.width;
  std::size_t channels = o.channels;

  for (std::size_t i = 0; i < convolutions.channels.size(); ++i) {
    layers_.append<Conv2d>(device, parameters(), "conv" + std::to_string(i + 1),
                           Conv2d::Options{.images = o.images,
                                           .height = height,
                                           .width = width,
                                           .input_channels = channels,
                                           .output_channels = convolutions.channels[i],
                                           .kernel = kernel,
                                           .padding = convolutions.padding,
                                           .deviation = he_deviation(channels * kernel * kernel),
                                           .input_gradient = i > 0});
    height -= lost;
    width -= lost;
    channels = convolutions.channels[i];
    layers_.append<MaxPool>(
        device, MaxPool::Options{
                    .images = o.images, .height = height, .width = width, .channels = channels});
    height /= 2;
    width /= 2;
    // ReLU after the pooling gives the same result as before it, with a quarter of the elements.
    layers_.append<Relu>(o.images * height * width * channels);
  }

  const std::size_t features = height * width * channels;
  append_linear(device, "fc1", features, o.hidden);
  layers_.append<Relu>(o.images * o.hidden);
  append_linear(device, "fc2", o.hidden, o.classes);
}

ModelEntry Mlp::entry() {
  ModelEntry entry = hidden_layer_entry<Mlp>("mlp", "two hidden dense layers", [](Config& config) {
    set_image_defaults(config);
    config.hidden = 512;
    config.lr = 1e-3f;
  });
  entry.deal = [](const Config& config) {
    return ModelDeal{.blocks = kMlpLayers, .pieces = config.hidden, .option = "--hidden"};
  };
  return entry;
}

Mlp::Mlp(Device& device, const ImageModelOptions& o) : ImageClassifier(o) {
  const auto begins = [&](std::size_t layer) {
    const bool has = o.stage.has(layer, kMlpLayers);
    if (!has) parameters().leave_out(2);
    return has;
  };
  const std::size_t own = o.hidden / o.ranks.ways;  // outputs of fc1 on this rank
  // The output layer is whole on all ranks, because it has few classes.
  if (begins(0)) {
    append_linear(device, "fc1", o.height * o.width * o.channels, o.hidden, false,
                  o.ranks.outputs());
    layers_.append<Relu>(o.images * own);
  }
  if (begins(1)) {
    append_linear(device, "fc2", o.hidden, o.hidden, true, o.ranks.inputs(), o.ranks);
    layers_.append<Relu>(o.images * o.hidden);
  }
  if (begins(2)) append_linear(device, "fc3", o.hidden, o.classes);
  if (o.stage.is_first()) return;
  stage_inputs_ = o.images * (o.stage.has(1, kMlpLayers) ? own : o.hidden);
}

ModelEntry Lenet::entry() {
  return hidden_layer_entry<Lenet>("lenet", "two convolutions and a hidden dense layer",
                                   set_image_defaults);
}

Lenet::Lenet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(
          device, options,
          {.model = "lenet", .least_side = 16, .kernel = 5, .channels = {16, 32}}) {}

ModelEntry Convnet::entry() {
  return hidden_layer_entry<Convnet>(
      "convnet", "three convolutions and a hidden dense layer, for colour photographs",
      [](Config& config) {
        set_image_defaults(config);
        config.epochs = 10;
      });
}

Convnet::Convnet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(device, options,
                              {.model = "convnet",
                               .least_side = 8,
                               .kernel = 3,
                               .padding = 1,
                               .channels = {24, 48, 64}}) {}

ModelEntry Resnet::entry20() {
  return resnet_entry("resnet20", "residual network for small colour photographs", stages20());
}

ModelEntry Resnet::entry18() {
  return resnet_entry("resnet18", "residual network for photographs", stages18());
}

Resnet::Resnet(Device& device, const ImageModelOptions& o, const Stages& stages)
    : ImageClassifier(o) {
  check(o.height >= 8 && o.width >= 8, "a residual network needs images of at least 8 x 8 pixels");
  const bool is_large = std::min(o.height, o.width) >= kLargeSide;
  const std::size_t kernel = is_large ? 7 : 3;
  const Conv2d::Options stem{.images = o.images,
                             .height = o.height,
                             .width = o.width,
                             .input_channels = o.channels,
                             .output_channels = stages.channels.front(),
                             .kernel = kernel,
                             .stride = is_large ? std::size_t{2} : std::size_t{1},
                             .padding = kernel / 2,
                             .deviation = he_deviation(o.channels * kernel * kernel),
                             .input_gradient = false,
                             .has_bias = false};
  std::size_t height = stem.output_height();
  std::size_t width = stem.output_width();
  std::size_t channels = stem.output_channels;
  layers_.append<Conv2d>(device, parameters(), "conv", stem);
  layers_.append<BatchNorm>(parameters(), "norm",
                            BatchNorm::Options{.samples = o.images,
                                               .rows_per_sample = height * width,
                                               .channels = channels,
                                               .sum_over_ranks = o.sum_over_ranks});
  layers_.append<Relu>(o.images * height * width * channels);
  if (is_large) {
    const MaxPool::Options pool{.images = o.images,
                                .height = height,
                                .width = width,
                                .channels = channels,
                                .window = 3,
                                .stride = 2,
                                .padding = 1};
    height = pool.output_height();
    width = pool.output_width();
    layers_.append<MaxPool>(device, pool);
  }
  for (std::size_t stage = 0; stage < stages.channels.size(); ++stage) {
    for (std::size_t i = 0; i < stages.blocks; ++i) {
      const ResidualBlock::Options block{
          .images = o.images,
          .height = height,
          .width = width,
          .input_channels = channels,
          .output_channels = stages.channels[stage],
          .stride = stage > 0 && i == 0 ? std::size_t{2} : std::size_t{1},
          .shortcut = stages.shortcut,
          .sum_over_ranks = o.sum_over_ranks};
      const std::string name = "stage" + std::to_string(stage + 1) + ".block" + std::to_string(i);
      layers_.append<ResidualBlock>(device, parameters(), name, block);
      height = block.output_height();
      width = block.output_width();
      channels = block.output_channels;
    }
  }
  layers_.append<AveragePool>(o.images, height * width, channels);
  append_linear(device, "fc", channels, o.classes);
}

}  // namespace kolo::trainer
