#include "trainer/models/image_models.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "trainer/config.h"

namespace kolo::trainer {
namespace {

/// Number of dense layers of Mlp.
constexpr std::size_t kMlpLayers = 3;

ImageNetwork network_of(const ImageModelOptions& o) {
  return ImageNetwork(
      {.images = o.images, .height = o.height, .width = o.width, .channels = o.channels},
      o.sum_over_ranks);
}

/// Convolutions of one kernel size, each with 2 × 2 max pooling and ReLU, then a hidden dense layer
/// and the output layer.
struct Convolutions {
  std::string model;       ///< Name of the model, for error messages.
  std::size_t least_side;  ///< Smallest allowed side of an image, in pixels.
  std::size_t kernel;
  std::size_t padding = 0;
  std::vector<std::size_t> channels;  ///< Output channels of each convolution.
};

/// Errors: UsageError if images are smaller than least_side.
ImageNetwork convolutional_network(const ImageModelOptions& o, const Convolutions& c) {
  const std::string side = std::to_string(c.least_side);
  check(o.height >= c.least_side && o.width >= c.least_side,
        c.model + " needs images of at least " + side + " x " + side + " pixels");
  ImageNetwork network = network_of(o);
  for (std::size_t i = 0; i < c.channels.size(); ++i) {
    network.convolution("conv" + std::to_string(i + 1),
                        {.channels = c.channels[i], .kernel = c.kernel, .padding = c.padding});
    network.max_pool(2, 2, 0);
    // ReLU after the pooling gives the same result as before it, with a quarter of the elements.
    network.relu();
  }
  network.dense("fc1", o.hidden);
  network.relu();
  network.dense("fc2", o.classes);
  return network;
}

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

ImageClassifier::ImageClassifier(Device& device, const ImageModelOptions& options,
                                 const ImageNetwork& network)
    : ImageClassifier(options) {
  append_layers(layers_, device, parameters(), network.layers());
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

// The output layer is whole on all ranks, because it has few classes.
ImageNetwork Mlp::network(const ImageModelOptions& o) {
  ImageNetwork network = network_of(o);
  network.dense("fc1", o.hidden, o.ranks.outputs());
  network.relu(o.ranks.ways);
  network.dense("fc2", o.hidden, o.ranks.inputs(), o.ranks);
  network.relu();
  network.dense("fc3", o.classes);
  return network;
}

Mlp::Mlp(Device& device, const ImageModelOptions& o) : ImageClassifier(o) {
  const ImageNetwork whole = network(o);
  std::span<const ImageLayer> left = whole.layers();  // a dense layer and its ReLU, and so on
  for (std::size_t i = 0; i < kMlpLayers; ++i) {
    const std::span<const ImageLayer> block = left.first(std::min<std::size_t>(2, left.size()));
    left = left.subspan(block.size());
    if (o.stage.has(i, kMlpLayers)) {
      append_layers(layers_, device, parameters(), block);
    } else {
      parameters().leave_out(2);
    }
  }
  if (o.stage.is_first()) return;
  stage_inputs_ = o.images * (o.stage.has(1, kMlpLayers) ? o.hidden / o.ranks.ways : o.hidden);
}

ModelEntry Lenet::entry() {
  return hidden_layer_entry<Lenet>("lenet", "two convolutions and a hidden dense layer",
                                   set_image_defaults);
}

ImageNetwork Lenet::network(const ImageModelOptions& o) {
  return convolutional_network(
      o, {.model = "lenet", .least_side = 16, .kernel = 5, .channels = {16, 32}});
}

ModelEntry Convnet::entry() {
  return hidden_layer_entry<Convnet>(
      "convnet", "three convolutions and a hidden dense layer, for colour photographs",
      [](Config& config) {
        set_image_defaults(config);
        config.epochs = 10;
      });
}

ImageNetwork Convnet::network(const ImageModelOptions& o) {
  return convolutional_network(
      o,
      {.model = "convnet", .least_side = 8, .kernel = 3, .padding = 1, .channels = {24, 48, 64}});
}

ModelEntry Resnet::entry20() {
  return resnet_entry("resnet20", "residual network for small colour photographs", stages20());
}

ModelEntry Resnet::entry18() {
  return resnet_entry("resnet18", "residual network for photographs", stages18());
}

ImageNetwork Resnet::network(const ImageModelOptions& o, const Stages& stages) {
  check(o.height >= 8 && o.width >= 8, "a residual network needs images of at least 8 x 8 pixels");
  const bool is_large = std::min(o.height, o.width) >= kLargeSide;
  ImageNetwork network = network_of(o);
  network.normalized_convolution("conv", "norm",
                                 {.channels = stages.channels.front(),
                                  .kernel = is_large ? std::size_t{7} : std::size_t{3},
                                  .stride = is_large ? std::size_t{2} : std::size_t{1},
                                  .padding = is_large ? std::size_t{3} : std::size_t{1}});
  network.relu();
  if (is_large) network.max_pool(3, 2, 1);
  for (std::size_t stage = 0; stage < stages.channels.size(); ++stage) {
    for (std::size_t i = 0; i < stages.blocks; ++i) {
      network.residual_block("stage" + std::to_string(stage + 1) + ".block" + std::to_string(i),
                             {.channels = stages.channels[stage],
                              .stride = stage > 0 && i == 0 ? std::size_t{2} : std::size_t{1},
                              .shortcut = stages.shortcut});
    }
  }
  network.average_pool();
  network.dense("fc", o.classes);
  return network;
}

}  // namespace kolo::trainer
