#include "trainer/models/resnet.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/layers/average_pool.h"
#include "trainer/layers/batch_norm.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool.h"
#include "trainer/layers/relu.h"

namespace kolo::trainer {
namespace {

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
          .generate = nullptr,
          .reads = {"--sync-batch-norm"}};
}

}  // namespace

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
  layers_.append<Linear>(device, parameters(), "fc",
                         Linear::Options{.rows = o.images,
                                         .inputs = channels,
                                         .outputs = o.classes,
                                         .deviation = he_deviation(channels)});
}

}  // namespace kolo::trainer
