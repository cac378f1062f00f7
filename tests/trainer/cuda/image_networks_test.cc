// Proves without a device that the parameters and buffers which the layers of image models find by
// name are those of the models on the processor.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/loop/learner.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer::cuda {
namespace {

struct Tensors {
  std::vector<std::pair<std::string, Shape>> parameters, buffers;
};

/// Lists the tensors of layers in the order of the layers, a residual block's main branch first.
struct Lister {
  Tensors& found;
  const std::string& name;

  void operator()(const Conv2d::Options& o) const {
    EXPECT_EQ(o.output_channels % kChannelMultiple, 0u) << name;
    add("weight", {o.output_channels, o.input_channels, o.kernel, o.kernel});
    if (o.has_bias) add("bias", {o.output_channels});
  }
  void operator()(const BatchNorm::Options& o) const {
    for (const char* part : {"gain", "bias"}) add(part, {o.channels});
    for (const char* part : {"running_mean", "running_variance"}) {
      found.buffers.push_back({name + "." + part, {o.channels}});
    }
  }
  void operator()(const trainer::Linear::Options& o) const {
    add("weight", {o.outputs, o.inputs});
    add("bias", {o.outputs});
  }
  void operator()(const ResidualOptions& o) const {
    list(o.main, found);
    list(o.shortcut, found);
  }
  template <typename Other>
  void operator()(const Other&) const {}

  void add(const std::string& part, Shape shape) const {
    found.parameters.push_back({name + "." + part, std::move(shape)});
  }
  static void list(const ImageLayers& layers, Tensors& found) {
    for (const ImageLayer& layer : layers) std::visit(Lister{found, layer.name}, layer.options);
  }
};

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

struct NetworkCase {
  DescribeNetwork describe;
  std::unique_ptr<Model> (*on_host)(trainer::Device&, const ImageModelOptions&);
};

template <typename M>
std::unique_ptr<Model> model(trainer::Device& device, const ImageModelOptions& o) {
  return std::make_unique<M>(device, o);
}

TEST(ImageNetworks, HaveTheTensorsOfTheModelsOnTheProcessor) {
  const NetworkCase cases[] = {
      {Mlp::network, model<Mlp>},
      {Lenet::network, model<Lenet>},
      {Convnet::network, model<Convnet>},
      {Resnet::network20,
       [](trainer::Device& d, const ImageModelOptions& o) -> std::unique_ptr<Model> {
         return std::make_unique<Resnet>(d, o, Resnet::stages20());
       }},
      {Resnet::network18,
       [](trainer::Device& d, const ImageModelOptions& o) -> std::unique_ptr<Model> {
         return std::make_unique<Resnet>(d, o, Resnet::stages18());
       }},
  };
  trainer::Device processor;
  for (const std::size_t side : {std::size_t{32}, Resnet::kLargeSide}) {
    for (const NetworkCase& c : cases) {
      const ImageModelOptions o = photographs(side);
      Tensors found;
      Lister::list(c.describe(o).layers(), found);
      const auto host = c.on_host(processor, o);
      const ParameterSet& wanted = host->parameters();
      ASSERT_EQ(found.parameters.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found.parameters[i].first, wanted[i].name());
        EXPECT_EQ(found.parameters[i].second, wanted[i].shape()) << wanted[i].name();
      }
      ASSERT_EQ(found.buffers.size(), wanted.buffers().size());
      for (std::size_t i = 0; i < found.buffers.size(); ++i) {
        EXPECT_EQ(found.buffers[i].first, wanted.buffers()[i].name);
        EXPECT_EQ(found.buffers[i].second, wanted.buffers()[i].value.shape());
      }

      ImageModelOptions one_image = o;  // with which the device's initial values are made
      one_image.images = 1;
      EXPECT_EQ(copy_of(c.on_host(processor, one_image)->parameters())->hash(), wanted.hash());
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
