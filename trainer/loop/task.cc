#include "trainer/loop/task.h"

#include <utility>

#include "trainer/data/data_source.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kBytes = 256;

Task make_text_task(const Config& config) {
  TextData data = load_text(config.data, config.context);
  return {.train = std::move(data.train),
          .held_out = std::move(data.held_out),
          .model = {.name = config.model,
                    .options = Gpt::Options{.sequences = config.batch,
                                            .context = config.context,
                                            .layers = config.layers,
                                            .width = config.width,
                                            .heads = config.heads,
                                            .seed = config.seed}},
          .classes = kBytes,
          .is_text = true};
}

Task make_image_task(const Config& config) {
  ImageData data = load_images(config.data);
  const ImageDataset::Statistics pixels = data.train->statistics();
  const ImageModelOptions options{.images = config.batch,
                                  .height = data.train->height(),
                                  .width = data.train->width(),
                                  .channels = data.train->channels(),
                                  .classes = kImageClasses,
                                  .hidden = config.hidden,
                                  .scaling = PixelScaling(pixels.mean, pixels.deviation),
                                  .seed = config.seed};
  return {.train = std::move(data.train),
          .held_out = std::move(data.held_out),
          .model = {.name = config.model, .options = options},
          .classes = kImageClasses,
          .is_text = false};
}

}  // namespace

Task make_task(const Config& config) {
  return config.model == "gpt" ? make_text_task(config) : make_image_task(config);
}

}  // namespace kolo::trainer
