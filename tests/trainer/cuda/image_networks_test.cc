// Tests without a device what image models on a device take from those on the processor.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/loop/learner.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer::cuda {
namespace {

ImageModelOptions photographs(std::size_t side) {
  return {.images = 2,
          .height = side,
          .width = side + 3,
          .channels = 3,
          .classes = 10,
          .hidden = 24,
          .scaling = PixelScaling(127.5, 73.9),
          .seed = 3};
}

using MakeModel = std::unique_ptr<Model> (*)(trainer::Device&, const ImageModelOptions&);

template <typename M>
std::unique_ptr<Model> model(trainer::Device& device, const ImageModelOptions& o) {
  return std::make_unique<M>(device, o);
}

// The device's initial values are made with one image.
TEST(ImageNetworks, BeginWithTheSameValuesForAnyNumberOfImages) {
  const MakeModel models[] = {
      model<Mlp>, model<Lenet>, model<Convnet>,
      [](trainer::Device& d, const ImageModelOptions& o) -> std::unique_ptr<Model> {
        return std::make_unique<Resnet>(d, o, Resnet::stages20());
      },
      [](trainer::Device& d, const ImageModelOptions& o) -> std::unique_ptr<Model> {
        return std::make_unique<Resnet>(d, o, Resnet::stages18());
      }};
  trainer::Device processor;
  for (const std::size_t side : {std::size_t{32}, Resnet::kLargeSide}) {
    for (const MakeModel make : models) {
      ImageModelOptions options = photographs(side);
      const std::uint64_t hash = make(processor, options)->parameters().hash();
      options.images = 1;
      EXPECT_EQ(make(processor, options)->parameters().hash(), hash);
    }
  }
}

TEST(ImageNetworks, AreOfferedUnderTheNamesOfTheCatalog) {
  const Catalog catalog = built_in_catalog();
  std::vector<std::string> images;
  for (const std::string& name : device_models()) {
    if (catalog.models.at(name).task == "image-classification") images.push_back(name);
  }
  EXPECT_EQ(images, (std::vector<std::string>{"mlp", "lenet", "convnet", "resnet20", "resnet18"}));
}

}  // namespace
}  // namespace kolo::trainer::cuda
