#include "trainer/loop/task.h"

#include <utility>

#include "trainer/data/data_source.h"
#include "trainer/models/gpt.h"
#include "trainer/models/lenet.h"
#include "trainer/models/mlp.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kBytes = 256;

Task make_text_task(const Config& config) {
  TextData data = load_text(config.data, config.context);
  return {.train = std::move(data.train),
          .held_out = std::move(data.held_out),
          .model = std::make_unique<Gpt>(Gpt::Options{.sequences = config.batch,
                                                      .context = config.context,
                                                      .layers = config.layers,
                                                      .width = config.width,
                                                      .heads = config.heads,
                                                      .seed = config.seed}),
          .classes = kBytes,
          .is_text = true};
}

Task make_image_task(const Config& config, Device& device) {
  ImageData data = load_images(config.data);
  const ImageDataset::Statistics pixels = data.train->statistics();
  const ImageModelOptions options{.images = config.batch,
                                  .height = data.train->height(),
                                  .width = data.train->width(),
                                  .classes = kImageClasses,
                                  .hidden = config.hidden,
                                  .scaling = PixelScaling(pixels.mean, pixels.deviation),
                                  .seed = config.seed};
  std::unique_ptr<Model> model;
  if (config.model == "lenet") {
    model = std::make_unique<Lenet>(device, options);
  } else {
    model = std::make_unique<Mlp>(options);
  }
  return {.train = std::move(data.train),
          .held_out = std::move(data.held_out),
          .model = std::move(model),
          .classes = kImageClasses,
          .is_text = false};
}

}  // namespace

Task make_task(const Config& config, Device& device) {
  return config.model == "gpt" ? make_text_task(config) : make_image_task(config, device);
}

}  // namespace kolo::trainer
