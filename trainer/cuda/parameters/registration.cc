#include "trainer/cuda/parameters/registration.h"

#include <cmath>

#include "comm/base/check.h"

namespace kolo::trainer::cuda {
namespace {

// Braces evaluate from left to right, which is the order of registration.

LinearParameters add_linear(ParameterSet& parameters, const std::string& name, std::size_t inputs,
                            std::size_t outputs, float deviation) {
  return {parameters.add(name + ".weight", {outputs, inputs}, {.deviation = deviation}),
          parameters.add(name + ".bias", {outputs}, {})};
}

LayerNormParameters add_layer_norm(ParameterSet& parameters, const std::string& name,
                                   std::size_t width) {
  return {parameters.add(name + ".gain", {width}, {.mean = 1.0f}),
          parameters.add(name + ".bias", {width}, {})};
}

// Source: He et al., "Delving Deep into Rectifiers", ICCV 2015.
float he_deviation(std::size_t inputs) { return std::sqrt(2.0f / static_cast<float>(inputs)); }

LinearParameters add_dense(ParameterSet& parameters, const std::string& name, std::size_t inputs,
                           std::size_t outputs) {
  return add_linear(parameters, name, inputs, outputs, he_deviation(inputs));
}

ConvolutionParameters add_convolution(ParameterSet& parameters, const std::string& name,
                                      std::size_t inputs, std::size_t outputs, std::size_t kernel) {
  return {parameters.add(name + ".weight", {outputs, inputs, kernel, kernel},
                         {.deviation = he_deviation(inputs * kernel * kernel)}),
          parameters.add(name + ".bias", {outputs}, {})};
}

}  // namespace

GptParameters register_gpt(ParameterSet& parameters, const Gpt::Options& o) {
  constexpr float kDeviation = 0.02f;
  const float residual = kDeviation / std::sqrt(2.0f * static_cast<float>(o.layers));
  const std::size_t width = o.width;
  Parameter& token = parameters.add("embedding.token", {256, width}, {.deviation = kDeviation});
  Parameter& position =
      parameters.add("embedding.position", {o.context, width}, {.deviation = kDeviation});
  std::vector<BlockParameters> blocks;
  for (std::size_t i = 0; i < o.layers; ++i) {
    const std::string name = "block" + std::to_string(i);
    blocks.push_back(
        {add_layer_norm(parameters, name + ".attention_norm", width),
         add_linear(parameters, name + ".query_key_value", width, 3 * width, kDeviation),
         add_linear(parameters, name + ".project", width, width, residual),
         add_layer_norm(parameters, name + ".inner_norm", width),
         add_linear(parameters, name + ".expand", width, 4 * width, kDeviation),
         add_linear(parameters, name + ".contract", 4 * width, width, residual)});
  }
  return {token, position, std::move(blocks), add_layer_norm(parameters, "final_norm", width)};
}

MlpParameters register_mlp(ParameterSet& parameters, const ImageModelOptions& o) {
  check(o.channels == 1, "on a GPU images are grey");
  return {add_dense(parameters, "fc1", o.height * o.width, o.hidden),
          add_dense(parameters, "fc2", o.hidden, o.hidden),
          add_dense(parameters, "fc3", o.hidden, o.classes)};
}

LenetParameters register_lenet(ParameterSet& parameters, const ImageModelOptions& o) {
  check(o.channels == 1, "on a GPU images are grey");
  check(o.height >= 16 && o.width >= 16, "lenet needs images of at least 16 x 16 pixels");
  const std::size_t features = lenet_reduced(lenet_reduced(o.height)) *
                               lenet_reduced(lenet_reduced(o.width)) * kLenetChannels[1];
  return {add_convolution(parameters, "conv1", 1, kLenetChannels[0], kLenetKernel),
          add_convolution(parameters, "conv2", kLenetChannels[0], kLenetChannels[1], kLenetKernel),
          add_dense(parameters, "fc1", features, o.hidden),
          add_dense(parameters, "fc2", o.hidden, o.classes)};
}

}  // namespace kolo::trainer::cuda
