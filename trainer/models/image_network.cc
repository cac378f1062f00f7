#include "trainer/models/image_network.h"

#include <cmath>

#include "trainer/layers/elementwise.h"

namespace kolo::trainer {
namespace {

/// The standard deviation of initial weights with which a ReLU layer of `inputs` inputs preserves
/// the variance of activations. Source: He et al., "Delving Deep into Rectifiers", ICCV 2015.
float he_deviation(std::size_t inputs) { return std::sqrt(2.0f / static_cast<float>(inputs)); }

/// Appends one layer on the processor.
struct LayerMaker {
  Sequential& to;
  Device& device;
  ParameterSet& parameters;
  const std::string& name;

  void operator()(const Conv2d::Options& o) const {
    to.append<Conv2d>(device, parameters, name, o);
  }
  void operator()(const BatchNorm::Options& o) const { to.append<BatchNorm>(parameters, name, o); }
  void operator()(const ReluOptions& o) const { to.append<Relu>(o.count); }
  void operator()(const MaxPool::Options& o) const { to.append<MaxPool>(device, o); }
  void operator()(const AveragePool::Options& o) const { to.append<AveragePool>(o); }
  void operator()(const PaddedShortcut::Options& o) const { to.append<PaddedShortcut>(o); }
  void operator()(const ResidualOptions& o) const {
    auto& sum = to.append<Residual>(o.inputs, o.outputs);
    append_layers(sum.main(), device, parameters, o.main);
    append_layers(sum.shortcut(), device, parameters, o.shortcut);
  }
  void operator()(const Linear::Options& o) const {
    to.append<Linear>(device, parameters, name, o);
  }
};

}  // namespace

void append_layers(Sequential& to, Device& device, ParameterSet& parameters,
                   std::span<const ImageLayer> layers) {
  for (const ImageLayer& layer : layers) {
    std::visit(LayerMaker{to, device, parameters, layer.name}, layer.options);
  }
}

void ImageNetwork::convolution(const std::string& name, const Convolution& c, bool has_bias) {
  const Conv2d::Options o{.images = shape_.images,
                          .height = shape_.height,
                          .width = shape_.width,
                          .input_channels = shape_.channels,
                          .output_channels = c.channels,
                          .kernel = c.kernel,
                          .stride = c.stride,
                          .padding = c.padding,
                          .deviation = he_deviation(shape_.channels * c.kernel * c.kernel),
                          .input_gradient = has_input_gradient(),
                          .has_bias = has_bias};
  layers_.push_back({o, name});
  shape_.height = o.output_height();
  shape_.width = o.output_width();
  shape_.channels = c.channels;
}

void ImageNetwork::normalized_convolution(const std::string& name, const std::string& norm,
                                          const Convolution& c) {
  convolution(name, c, false);
  layers_.push_back({BatchNorm::Options{.samples = shape_.images,
                                        .rows_per_sample = shape_.height * shape_.width,
                                        .channels = shape_.channels,
                                        .sum_over_ranks = sum_over_ranks_},
                     norm});
}

void ImageNetwork::relu(std::size_t ways) {
  layers_.push_back({ReluOptions{shape_.images * shape_.features() / ways}});
}

void ImageNetwork::max_pool(std::size_t window, std::size_t stride, std::size_t padding) {
  const MaxPool::Options o{.images = shape_.images,
                           .height = shape_.height,
                           .width = shape_.width,
                           .channels = shape_.channels,
                           .window = window,
                           .stride = stride,
                           .padding = padding};
  layers_.push_back({o});
  shape_.height = o.output_height();
  shape_.width = o.output_width();
}

void ImageNetwork::average_pool() {
  layers_.push_back(
      {AveragePool::Options{shape_.images, shape_.height, shape_.width, shape_.channels}});
  shape_.height = 1;
  shape_.width = 1;
}

void ImageNetwork::dense(const std::string& name, std::size_t outputs, const Part& part,
                         const TensorRanks& ranks) {
  layers_.push_back({Linear::Options{.rows = shape_.images,
                                     .inputs = shape_.features(),
                                     .outputs = outputs,
                                     .deviation = he_deviation(shape_.features()),
                                     .input_gradient = has_input_gradient(),
                                     .part = part,
                                     .ranks = ranks},
                     name});
  shape_ = {.images = shape_.images, .height = 1, .width = 1, .channels = outputs};
}

ImageNetwork ImageNetwork::branch() const {
  ImageNetwork branch(shape_, sum_over_ranks_);
  branch.is_branch_ = true;
  return branch;
}

void ImageNetwork::residual_block(const std::string& name, const Block& b) {
  ImageNetwork main = branch(), shortcut = branch();
  main.normalized_convolution(
      name + ".conv1", name + ".norm1",
      {.channels = b.channels, .kernel = 3, .stride = b.stride, .padding = 1});
  main.relu();
  main.normalized_convolution(name + ".conv2", name + ".norm2",
                              {.channels = b.channels, .kernel = 3, .padding = 1});
  const bool keeps_size = b.stride == 1 && b.channels == shape_.channels;
  if (!keeps_size && b.shortcut == Shortcut::kPadded) {
    shortcut.layers_.push_back({PaddedShortcut::Options{.images = shape_.images,
                                                        .height = shape_.height,
                                                        .width = shape_.width,
                                                        .input_channels = shape_.channels,
                                                        .output_channels = b.channels,
                                                        .stride = b.stride}});
  } else if (!keeps_size) {
    shortcut.normalized_convolution(name + ".shortcut_conv", name + ".shortcut_norm",
                                    {.channels = b.channels, .kernel = 1, .stride = b.stride});
  }
  const auto count = [](const Shape& shape) { return shape.images * shape.features(); };
  layers_.push_back({ResidualOptions{.inputs = count(shape_),
                                     .outputs = count(main.shape_),
                                     .main = std::move(main.layers_),
                                     .shortcut = std::move(shortcut.layers_)}});
  shape_ = main.shape_;
  relu();
}

}  // namespace kolo::trainer
